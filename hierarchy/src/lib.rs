//! The host's memory hierarchy, measured by timing alone: unprivileged, without counters or huge pages.
//!
//! Inference is pure. It asks a [`measure::Measure`] backend for timings and turns them into findings that
//! carry a confidence, or a refusal with its reason. Two backends exist: `hw`, the machine, and [`sim`],
//! machines whose truth is known.
//!
//! # Measured
//!
//! `STATCACHE_GRID=371 cargo bench -p statcache-hierarchy --bench simulated_grid` (plan of 6 s), the first 371 of its 500 machines:
//! nothing that was decided is wrong. Refused: first-level line and latency, memory latency, write policy 0 %; first-level capacity and
//! ways, page size 0.3 %, translation entries 1.1 %, second-level latency 1.3 %, first-level policy 1.3 %; second-level ways 12 %, line
//! 14 %, capacity 17 %; third-level latency 14 %, range 16 %. Inference was corrected on the first 47 of them and on six later ones.
//! The 500 have not run to their end: a machine takes some 4 to 6 s of processor time.
//!
//! `taskset -c 1 cargo bench -p statcache-hierarchy --bench stability`, on a virtual machine of an AMD Zen 5 with two CPUs whose other
//! one was 99 % busy with other work: 20 of 20 standard runs gave the same first-level capacity, ways, line and replacement, second-level
//! capacity, ways and line, translation entries, page size, write policy, instruction cache, its line and translations, and registers.
//! First-level latency differed by 0 %, the second level's by 0.9 %, the third's by 9.1 % from the median (refused once), memory's 10th
//! percentile by 5.0 % from a run before them. The third level's size was refused 3 times, inclusion of the first in the second 15 times.
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
