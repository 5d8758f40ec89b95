//! The host's memory hierarchy, measured by timing alone: unprivileged, without counters or huge pages.
//!
//! Inference is pure. It asks a [`measure::Measure`] backend for timings and turns them into findings that
//! carry a confidence, or a refusal with its reason. Two backends exist: `hw`, the machine, and [`sim`],
//! machines whose truth is known.
//!
//! # Measured
//!
//! `benches/simulated_grid.rs` (`STATCACHE_GRID=238 cargo bench -p statcache-hierarchy --bench simulated_grid`, plan of 6 s), the
//! first 238 of its 500 machines: nothing wrong with high confidence; wrong of what was decided: second-level capacity 1 of 192,
//! third-level latency 1 of 165 and range 2 of 160, all else right. Refused: first-level geometry and latency, memory latency, write
//! policy 0 %, page size, translation entries, second-level latency, first-level policy at most 1.3 %; second-level ways 11 %, line 13 %,
//! capacity 19 %; third-level latency 12 %, range 15 %. Inference was corrected on the first 47 of them.
//! The 500 have not run to their end with this version: a machine takes some 7 s of processor time.
//!
//! What it does not do: use performance counters, load modules, change the host's settings.
//! Sources are given per module in [`probe`].

pub mod cli;
pub mod declared;
pub mod finding;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod hw;
mod infer;
mod live;
pub mod measure;
pub mod policy;
pub mod probe;
pub mod raw;
pub mod report;
pub mod rng;
pub mod session;
pub mod sim;
pub mod store;
mod view;

pub use finding::{Confidence, Finding};
pub use infer::{Code, Hierarchy, Level, Translation, infer};
pub use live::{HierarchyError, Mode, Options, cached, measure, store};
pub use raw::RawSamples;
pub use report::{LevelSummary, MachineReport, Row, Verdict};
pub use view::{render_svg, render_text};
