//! The report as text and as a picture.

mod svg;
mod text;

pub use svg::render_svg;
pub use text::render_text;

use crate::probe::footprint;
use crate::report::MachineReport;

/// Footprints that are drawn, in bytes.
const DRAWN: std::ops::Range<u64> = 64..1 << 40;

/// The curve to draw: (bytes, nanoseconds per load), lowest figure per size over all passes.
fn curve(report: &MachineReport) -> Vec<(u64, f64)> {
    let raw = &report.raw;
    let ghz = report.hierarchy.clock_ghz.value.unwrap_or(1.0);
    let points: Vec<_> = raw.footprint.iter().chain(&raw.shared).copied().collect();
    footprint::envelope(&points)
        .into_iter()
        // A report read from a file may say anything.
        .filter(|p| DRAWN.contains(&p.0) && p.1.is_finite())
        .map(|(b, c)| (b, c / ghz))
        .collect()
}
