//! From sampled reuse distances to miss ratios with honest intervals.
//!
//! Pure: no IO, no clock, no operating system; deterministic for a seed.
#![forbid(unsafe_code)]

mod attribute;
pub mod bins;
mod cluster;
mod contiguous;
mod equation;
mod error;
mod interval;
pub mod oracle;
mod placed;
mod prepare;
mod result;
mod rng;
mod run;
mod sample;
mod sparse;
mod spatial;
mod stack;
mod survival;
mod threads;
mod timeline;
mod units;

pub use equation::{Undecided, random_miss_ratio};
pub use error::ModelError;
pub use result::{Attribution, CurvePoint, KeyFigures, ReuseFrom, Site, Weak};
pub use rng::Rng;
pub use run::{Options, Run, RunBuilder};
pub use sample::{Estimate, Key, Kind, Outcome, Remote, Sample, Stream, Trigger, Window};
pub use spatial::{BytesUsed, Footprint, Touch, spatial_use, spatial_use_by_key};
pub use stack::{StackDistance, lru_miss_ratio, lru_miss_ratio_with, miss_probability};
pub use survival::{Histogram, Step, Survival};
pub use threads::{Sharing, ThreadUse};
pub use units::{Accesses, Bytes, Cache, LineSize, Lines, MissRatio, Policy, Weight};
