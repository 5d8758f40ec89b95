//! Programs nobody here wrote, under the `counter` engine with the shim loaded and windows open as often as can be: same
//! output, same status. The programs are those of the harness that `STATCACHE_TRUTH` names.

use statcache::session::counter::{SIMULATE, SIMULATE_CLOCK};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// Status and digest of the output, as the harness prints them on its last line.
fn run(directory: &Path, name: &str, wrapper: &[&str]) -> Result<(String, String), String> {
    let mut command = Command::new("sh");
    command
        .arg(directory.join("run.sh"))
        .args([name, "--mode", "cmd"]);
    if !wrapper.is_empty() {
        command.args(["--pre", &wrapper.join(" ")]);
    }
    let out = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let word = |key: &str| {
        let mut words = text.lines().last()?.split_whitespace();
        words.find(|word| *word == key)?;
        words.next().map(str::to_owned)
    };
    word("rc")
        .zip(word("sha"))
        .ok_or_else(|| format!("{text}{}", String::from_utf8_lossy(&out.stderr)))
}

/// Programs whose output says how long they took, in steps so coarse that two short runs may agree.
const SAY_THEIR_TIME: [&str; 1] = ["glpsol"];

/// What became of one program under the engine.
struct Found {
    /// How it differs from the program alone.
    differing: Vec<String>,
    windows: usize,
}

/// The program of the harness alone and under the engine; `None` for one that does not run here.
fn beside_itself(directory: &Path, name: &str) -> Option<Found> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let profile = scratch.path().join("p").display().to_string();
    // Behind windows stepped, and native.
    let kinds = ["1", SIMULATE_CLOCK].map(|kind| format!("{SIMULATE}={kind}"));
    let statcache = env!("CARGO_BIN_EXE_statcache");
    let counting = "run --quiet --engine counter --overhead 100 -o";
    let native = match run(directory, name, &[]) {
        Ok(native) => native,
        Err(error) => {
            println!("SKIP {NAME} {name}: {error}");
            return None;
        }
    };
    let mut found = Found {
        differing: Vec::new(),
        windows: 0,
    };
    for kind in &kinds {
        let wrapper = ["env", kind, statcache, counting, &profile, "--"];
        let watched = run(directory, name, &wrapper);
        if watched.as_ref() != Ok(&native) {
            // Some say how long they took.
            let same_end = watched.as_ref().is_ok_and(|w| w.0 == native.0);
            let again = run(directory, name, &[]);
            let timed = SAY_THEIR_TIME.contains(&name);
            if same_end && (timed || again.is_ok_and(|again| again != native)) {
                println!("SKIP {NAME} output of {name}: it prints something else each time");
            } else {
                let differing = format!("{name}, {kind}: {native:?} alone, {watched:?}");
                found.differing.push(differing);
            }
        }
        let read = statcache::profile::Profile::read(scratch.path().join("p").as_path());
        let read = read.expect("a profile");
        assert_eq!(read.header.engine, "counter");
        found.windows += read.windows.len();
        println!("{name}, {kind}: {} windows", read.windows.len());
    }
    Some(found)
}

const NAME: &str = "public_programs_do_not_notice";

#[test]
fn public_programs_do_not_notice() {
    let Some(directory) = std::env::var_os("STATCACHE_TRUTH").map(std::path::PathBuf::from) else {
        println!("SKIP {NAME}: STATCACHE_TRUTH is not set");
        return;
    };
    let table = std::fs::read_to_string(directory.join("workloads.tsv")).expect("workloads.tsv");
    let names: Vec<&str> = (table.lines().filter(|line| !line.starts_with('#')))
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let name = fields.next()?;
            (fields.next() == Some("public")).then_some(name)
        })
        .collect();
    let (first, others) = names.split_first().expect("public programs");
    // The harness builds its programs with the first one; of the others two run at once, never one twice, as each has one place for its output.
    let mut found: Vec<Found> = beside_itself(&directory, first).into_iter().collect();
    let next = Mutex::new(others.iter());
    let take = || next.lock().expect("no panic").next();
    thread::scope(|scope| {
        let worker = || {
            let found = std::iter::from_fn(take).filter_map(|name| beside_itself(&directory, name));
            found.collect::<Vec<Found>>()
        };
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        for worker in workers {
            found.extend(worker.join().expect("no panic"));
        }
    });
    let differing: Vec<&String> = found.iter().flat_map(|found| &found.differing).collect();
    assert!(differing.is_empty(), "{differing:#?}");
    let windows: usize = found.iter().map(|found| found.windows).sum();
    let ran = found.len();
    assert!(
        ran > 0 && windows > ran,
        "{ran} programs, {windows} windows"
    );
}
