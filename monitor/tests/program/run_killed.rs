//! A program outlives its monitor: killed at any moment, the monitor takes nothing with it.

use crate::support::c;
use crate::support::cli::{installed, lossy, native, run, shell_status, text};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Deaths; more by `STATCACHE_DEATHS`.
const DEATHS: u32 = 60;

/// Set where this program runs no other test.
const ALONE: &str = "STATCACHE_ADOPTS_ORPHANS";

/// Waits for every child, adopted ones included; the status of `pid`'s as a shell sees it is left out.
fn reap(monitor: i32) -> Vec<i32> {
    let mut statuses = Vec::new();
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live i32.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
        if pid < 0 {
            return statuses;
        }
        if pid == monitor {
            continue;
        }
        let signal = || 128 + libc::WTERMSIG(status);
        statuses.push(if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            signal()
        });
    }
}

#[test]
fn monitor_killed_at_random_moments() {
    if std::env::var_os(ALONE).is_none() {
        // What is adopted below is adopted by a whole process, and other tests wait for their children.
        let this = std::env::current_exe().expect("this test's path");
        let name = "run_killed::monitor_killed_at_random_moments";
        let alone = Command::new(this)
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .expect("run");
        assert!(alone.status.success(), "{}", lossy(&alone.stderr));
        print!("{}", lossy(&alone.stdout));
        return;
    }
    let threads = c::build("threads");
    let threads_path = threads
        .as_ref()
        .map(|(_, program)| text(program))
        .unwrap_or_default();
    let signals = c::build("signals");
    let signals_path = signals
        .as_ref()
        .map(|(_, program)| text(program))
        .unwrap_or_default();
    let programs: [&[&str]; 6] = [
        &[
            "sh",
            "-c",
            "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo $i; exit 23",
        ],
        &[
            "awk",
            "BEGIN { for (i = 0; i < 300000; i++) n[i % 9973] += i; print n[17]; exit 6 }",
        ],
        &[
            "python3",
            "-S",
            "-c",
            "import sys\ns = 0\nfor i in range(300000): s += len(str(i)) ^ i\nprint(s); sys.exit(9)",
        ],
        &[
            "sh",
            "-c",
            "for i in 1 2 3 4 5 6 7 8; do echo $i | tr 1-8 a-h; done; exit 4",
        ],
        &[&threads_path, "2", "60", "60"],
        // Waits for every signal it was sent.
        &[&signals_path, "3000"],
    ];
    // SAFETY: sets a flag of this process, which runs no other test.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let deaths = std::env::var("STATCACHE_DEATHS")
        .ok()
        .and_then(|n| n.parse().ok());
    let profiles = tempfile::tempdir().expect("a temporary directory");
    let mut rng = SmallRng::seed_from_u64(3);
    let (mut before_the_start, mut under_way, mut too_late) = (0, 0, 0);
    for death in 0..deaths.unwrap_or(DEATHS) {
        let words = programs[death as usize % programs.len()];
        if words[0].is_empty() || !words[0].contains('/') && installed(words[0]).is_none() {
            continue;
        }
        let round = death / programs.len() as u32;
        let way: &[&str] = if round.is_multiple_of(2) {
            &["-q", "--full"]
        } else {
            &["-q"]
        };
        let begun = Instant::now();
        let expected = native(Path::new("/"), words, b"");
        let alone = begun.elapsed();
        let full = if way.len() > 1 { 4.0 } else { 1.1 };
        // A third of them while things are being set up.
        let moment = match round % 3 {
            0 => Duration::from_micros(rng.random_range(2_000..40_000)),
            _ => alone.mul_f64(full * rng.random_range(0.0..1.0)),
        };
        let mut command = run(&profiles.path().join("p"), way);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut monitor = command.spawn().expect("started");
        std::thread::sleep(moment);
        let killed = monitor.try_wait().expect("waited").is_none();
        monitor.kill().expect("killed, or gone");
        let mut printed = Vec::new();
        // To the end of file, which comes when the orphan is gone too.
        monitor
            .stdout
            .take()
            .expect("piped")
            .read_to_end(&mut printed)
            .expect("read");
        let mut complained = Vec::new();
        monitor
            .stderr
            .take()
            .expect("piped")
            .read_to_end(&mut complained)
            .expect("read");
        let statuses = reap(monitor.id() as i32);
        let what = format!("death {death} of {words:?} {way:?} after {moment:?}: {statuses:?}");
        // With all printed and nobody left to wait for, the monitor had seen its end.
        let reaped = statuses.is_empty() && printed == expected.stdout;
        if !killed || reaped {
            too_late += 1;
            assert_eq!(printed, expected.stdout, "{what}");
        } else if statuses.is_empty() || printed.is_empty() && statuses == [127] {
            // Before there was a program, or before it was let go.
            before_the_start += 1;
            assert!(printed.is_empty(), "{what}");
        } else {
            under_way += 1;
            let (printed, expected_text) = (lossy(&printed), lossy(&expected.stdout));
            assert_eq!(printed, expected_text, "{what} {}", lossy(&complained));
            assert!(
                statuses.contains(&shell_status(&expected)),
                "{what} {}",
                lossy(&complained)
            );
        }
    }
    println!("{under_way} under way, {before_the_start} before the start, {too_late} too late");
    assert!(under_way > 5 || deaths.is_some(), "{under_way} of {DEATHS}");
}
