//! What is said of a limit that is met, and of one that may be.

use super::words::{points, points_interval, relative, relative_interval};
use crate::analysis::sizes::label;
use crate::diff::change::{Change, Figure};
use crate::diff::limit::{Judged, Limit, Metric, Of};
use crate::profile::types::Header;
use crate::report::format::{count, interval, percent};

/// A line on a limit that is met.
#[must_use]
pub fn met(limit: &Limit, judged: &Judged, header: &Header) -> String {
    format!("failed: {}", told(limit, judged, header))
}

/// A line on one that may be.
#[must_use]
pub fn not_sure(limit: &Limit, judged: &Judged, header: &Header) -> String {
    let told = told(limit, judged, header);
    format!("not sure: {told}, would need more samples (--full or a longer run)")
}

/// A line on one that there is nothing to hold against it for.
#[must_use]
pub fn unknown(limit: &Limit, judged: &Judged, header: &Header) -> String {
    format!("not judged: {}", told(limit, judged, header))
}

fn told(limit: &Limit, judged: &Judged, header: &Header) -> String {
    let Judged { before, after, .. } = judged;
    let place = judged
        .cache_bytes
        .map_or_else(String::new, |bytes| format!(" in {}", label(header, bytes)));
    let figure = |f: &Figure| match limit.metric {
        Metric::MissRatio => percent(f.value),
        Metric::Misses | Metric::Accesses => count(f.value),
    };
    let found = judged.found.as_ref();
    let change = match (limit.metric, limit.of) {
        (_, Of::After) => format!("interval {} %", interval(after.low, after.high, " to ")),
        (Metric::MissRatio, _) => told_of(found, |change| {
            format!(
                "{} points ({})",
                points(change.value),
                points_interval(change)
            )
        }),
        _ => told_of(found, |change| {
            format!("{} ({})", relative(change), relative_interval(change))
        }),
    };
    let both = format!("{} before, {} after", figure(before), figure(after));
    format!("{}{place}: {both}, {change}", limit.text)
}

fn told_of(found: Option<&Change>, text: impl Fn(&Change) -> String) -> String {
    found.map_or_else(|| "no change can be told".to_owned(), text)
}
