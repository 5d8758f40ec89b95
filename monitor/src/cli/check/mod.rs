//! `statcache check`: what this host allows, and what to do about what it does not.
//!
//! The first two lines come from a real run of a small child under the profiler, the others from
//! what the kernel tells. Facts are gathered first ([`facts`]) and judged by pure functions ([`judge`]), so that hosts
//! which nobody has at hand can be tested too.
//!
//! Unsafe invariant: the accesses that are counted go to one live local, which nobody else has.

mod facts;
mod judge;
#[cfg(test)]
mod tests;

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use clap::Args;

use super::Exit;
use facts::Facts;
use judge::{Finding, Verdict, judge};

/// Raw options of `check`.
#[derive(Clone, Debug, Args)]
pub(super) struct CheckArgs {
    /// Be the child that `check` observes.
    #[arg(long, hide = true)]
    be_observed: bool,
}

/// Loads and stores that the observed child is known to make.
const KNOWN_ACCESSES: u64 = 200_000;

/// Status of a child that computed what it should.
const CHILD_STATUS: u8 = 42;

pub(super) fn execute(args: &CheckArgs) -> anyhow::Result<Exit> {
    if args.be_observed {
        return Ok(be_observed());
    }
    let facts = Facts::gather();
    let findings = judge(&facts);
    io::stdout()
        .lock()
        .write_all(render(&facts, &findings).as_bytes())?;
    Ok(if runs(&findings) {
        Exit::Success
    } else {
        Exit::Failure
    })
}

/// The observed child: a known number of accesses, and a status that only the right values give.
fn be_observed() -> Exit {
    let mut word = 1u64;
    for i in 0..KNOWN_ACCESSES / 2 {
        // SAFETY: both accesses are to a live local; volatile, so that each is executed.
        unsafe {
            let before = (&raw const word).read_volatile();
            (&raw mut word).write_volatile(before.wrapping_mul(31).wrapping_add(i));
        }
    }
    let expected = (0..KNOWN_ACCESSES / 2).fold(1u64, |w, i| w.wrapping_mul(31).wrapping_add(i));
    Exit::Program(if word == expected { CHILD_STATUS } else { 1 })
}

fn runs(findings: &[Finding]) -> bool {
    findings.iter().all(|f| f.verdict != Verdict::Bad)
}

fn render(facts: &Facts, findings: &[Finding]) -> String {
    let mut text = format!(
        "statcache {} on Linux {}\n\n",
        env!("CARGO_PKG_VERSION"),
        facts.kernel
    );
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Good => "ok",
            Verdict::Less => "less",
            Verdict::Bad => "FAIL",
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "  {verdict:<4}  {:<width$}  {}",
            finding.what, finding.says
        );
        if let Some(remedy) = finding.remedy {
            let _ = write!(text, "\n  {:<4}  {:<width$}  -> {remedy}", "", "");
        }
        text.push('\n');
    }
    text.push_str(if runs(findings) {
        "\nstatcache run works on this host.\n"
    } else {
        "\nstatcache run does not work on this host; the lines marked FAIL say what to do.\n"
    });
    text
}
