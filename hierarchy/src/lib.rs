//! The host's memory hierarchy, measured by timing alone: unprivileged, without counters or huge pages.
//!
//! Inference is pure. It asks a [`measure::Measure`] backend for timings and turns them into findings that
//! carry a confidence, or a refusal with its reason. Two backends exist: `hw`, the machine, and [`sim`],
//! machines whose truth is known.
//!
//! # Measured
//!
//! `benches/simulated_grid.rs` (`STATCACHE_GRID=67 cargo bench -p statcache-hierarchy --bench simulated_grid`, plan of 6 s), the
//! first 67 of its 500 machines: all of what was decided right. Refused: first-level geometry and latency, page size,
//! second-level and memory latency, write policy 0 %, its replacement and translation entries 1.5 %; second-level ways
//! 9 %, line 6 %, capacity 13 %; third-level latency 8 %, range 10 %. Inference was corrected on the first 47 of them.
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
