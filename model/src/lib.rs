//! From sampled reuse distances to miss ratios with honest intervals.
//!
//! Pure: no IO, no clock, no operating system; deterministic for a seed.
#![forbid(unsafe_code)]

mod error;
mod result;
mod run;
mod sample;
mod units;

pub use error::ModelError;
pub use result::{Attribution, CurvePoint, KeyFigures, ReuseFrom, Site, Weak};
pub use run::{Options, Run};
pub use sample::{Estimate, Key, Kind, Outcome, Remote, Sample, Stream, Trigger, Window};
pub use units::{Accesses, Bytes, Cache, LineSize, Lines, MissRatio, Policy, Weight};
