//! Exit codes, named once. (Wrong usage is 2, which the parser of the command line ends with.)

use std::process::ExitCode;

/// How `statcache` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Success,
    /// A limit that two profiles were held to is met: `diff --fail-if`.
    LimitMet,
    /// Our own failure.
    Failure,
    /// The program exists and cannot be executed.
    CannotExecute,
    /// The program does not exist.
    NotFound,
    /// The program's own status, as a shell would see it (128+n for signal n).
    Program(u8),
}

impl Exit {
    /// The number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::LimitMet => 1,
            Self::Failure => 125,
            Self::CannotExecute => 126,
            Self::NotFound => 127,
            Self::Program(status) => status,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}
