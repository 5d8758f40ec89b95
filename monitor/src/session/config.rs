//! What a session is to do: options that have been checked.

use std::ffi::OsString;
use std::path::PathBuf;

/// How samples are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// What suits the host: windows of translated code, so far on all.
    #[default]
    Auto,
    /// Windows of translated code; needs no hardware counters.
    Translate,
    /// Windows of single steps: exact and very slow.
    Step,
    /// The processor's counter of instructions and page protection; needs hardware counters.
    Counter,
}

impl EngineChoice {
    /// Whether all its waits hear of signals to the monitor.
    pub fn hears_signals(self) -> bool {
        matches!(self, EngineChoice::Auto | EngineChoice::Translate)
    }
}

/// How a profile is taken, of a program started for it or of one that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileConfig {
    /// Where the profile goes.
    pub output: PathBuf,
    /// How samples are taken.
    pub engine: EngineChoice,
    /// Per cent of wall time that windows may add; more than 0.
    pub overhead_percent: f64,
    /// Observe the whole run.
    pub full: bool,
    /// Seed of every random choice.
    pub seed: u64,
    /// Follow child processes.
    pub follow: bool,
    /// Nobody waits for the end: how the program ends is no matter of ours.
    pub background: bool,
    /// Size of the profile in bytes from which on older windows are thinned out.
    pub most_bytes: u64,
    /// Whether anybody will read it: names are not looked up otherwise.
    pub kept: bool,
}

/// Checked options of `run`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunConfig {
    /// The program as given: a name to be looked up in `PATH`, or a path.
    pub program: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// How its profile is taken.
    pub profile: ProfileConfig,
    /// Have the program load a shim that notes which call made each block of its heap.
    pub heap_sites: bool,
    /// Print nothing but errors.
    pub quiet: bool,
}

/// Checked options of `attach`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachConfig {
    /// The process.
    pub pid: i32,
    /// How long it is watched, in seconds.
    pub seconds: Option<f64>,
    /// How its profile is taken.
    pub profile: ProfileConfig,
    /// Print nothing but errors.
    pub quiet: bool,
}
