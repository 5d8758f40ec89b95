//! The host's memory hierarchy, measured by timing alone: unprivileged, without counters or huge pages.
//!
//! Inference is pure. It asks a [`measure::Measure`] backend for timings and turns them into findings that
//! carry a confidence, or a refusal with its reason. Two backends exist: [`hw`], the machine, and [`sim`],
//! machines whose truth is known.
//!
//! What it does not do: use performance counters, load modules, change the host's settings.
//! Sources are given per module in [`probe`].

pub mod finding;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod hw;
mod infer;
pub mod measure;
pub mod policy;
pub mod probe;
pub mod raw;
pub mod rng;
pub mod session;
pub mod sim;

pub use infer::{Code, Hierarchy, Level, Translation, infer};
