//! `statcache`: a data-locality profiler for Linux on x86-64.

use std::process::ExitCode;

fn main() -> ExitCode {
    statcache::cli::main()
}
