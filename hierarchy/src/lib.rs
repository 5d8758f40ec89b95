//! The host's memory hierarchy, measured by timing alone: unprivileged, without counters or huge pages.
//!
//! Inference is pure. It asks a [`measure::Measure`] backend for timings and turns them into findings that
//! carry a confidence, or a refusal with its reason. Two backends exist: `hw`, the machine, and [`sim`],
//! machines whose truth is known.
//!
//! # Measured
//!
//! `cargo bench -p statcache-hierarchy --bench simulated_grid` (plan of 6 s), 500 machines: one of the decided figures is wrong, none
//! with high confidence. Refused: first-level capacity, ways, line and latency, memory latency, write policy 0 %; page size 0.2 %,
//! translation entries 0.8 %, second-level latency 1.0 %, first-level policy 1.4 %; second-level ways 9.0 %, capacity 12.4 %, line
//! 12.6 %; third-level latency 11.6 %, range 14.6 %. Wrong: one third-level latency of 352 (by 14 %: a random second level of 6 ways in
//! front, whose walks creep up and never rest). Of the 45 second-level ways refused 31 have a hashed index (76 machines), whose classes take
//! longer to find than there is time. Inference was corrected on some of these machines; the 52 whose plan that changed were measured again.
//!
//! `taskset -c 1 cargo bench -p statcache-hierarchy --bench stability`, on a virtual machine of an AMD Zen 5 with two CPUs, both used by
//! others too, at low priority (`nice -n 10`): no figure that must be exact differed in any of 20 standard runs. First-level capacity,
//! ways and line, page size, write policy, instruction line and registers came out every time; first-level replacement, translation
//! entries, second-level ways (16) and line were refused once, second-level capacity 3 times, the instruction cache 4 times.
//! First-level latency differed by 0 %, the second level's by 0.9 %, the third's by 12.7 % from the median (refused once), memory's
//! 10th percentile by 2.6 % from a run before them. The third level's size was refused 8 times, inclusion of the first in the second
//! 14 times. With an eighth of a processor to itself replacement was refused 6 times of 20, ways 6 times, and again nothing was wrong.
//! (An earlier version had 20 of 20 equal runs with a processor to itself, and read a first level that another thread of the core
//! shared as smaller: see [`probe::l1`].)
//!
//! What it does not do: use performance counters, load modules, change the host's settings.
//! Sources are given per module in [`probe`].

#![deny(clippy::print_stderr)]

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
