//! The verb `machine` by itself: `cargo run --release -p statcache-hierarchy --example machine -- --quick`.

use clap::Parser;
use statcache_hierarchy::cli::{MachineArgs, run};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    machine: MachineArgs,
}

fn main() {
    std::process::exit(run(&Arguments::parse().machine));
}
