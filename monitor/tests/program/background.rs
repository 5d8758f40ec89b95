//! `--background`, `ps`, `report PID`, `stop PID`: a profile is taken while nobody watches.

use crate::support::c::build;
use crate::support::cli::{awaited, is_traced, lossy, readable};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// For what takes a second where nothing else runs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A runtime directory of its own for each test, and the profile in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = tempfile::tempdir().expect("a temporary directory");
        Place(place)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        command
            .args(words)
            .env("XDG_RUNTIME_DIR", self.0.path())
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn statcache(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("run")
    }

    fn profile(&self) -> std::path::PathBuf {
        self.0.path().join("statcache.prof")
    }

    fn live(&self) -> String {
        lossy(&self.statcache(&["ps"]).stdout)
    }

    /// Waits until the monitor of `pid` has this many windows.
    fn await_windows(&self, pid: &str, wanted: u64) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let live = self.live();
            let line = live.lines().find(|l| l.trim_start().starts_with(pid));
            let windows = line.and_then(|l| l.split_whitespace().nth(2)?.parse::<u64>().ok());
            if windows.is_some_and(|windows| windows >= wanted) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{wanted} windows of {pid} in time: {}", self.live());
    }

    /// The socket of the profiler of a process.
    fn socket(&self, pid: &str) -> PathBuf {
        let mut names = std::fs::read_dir(self.0.path().join("statcache"))
            .expect("there")
            .map(|entry| entry.expect("read").path());
        let of = format!("{pid}.");
        let is_of = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(&of))
        };
        names.find(is_of).expect("a socket")
    }
}

fn spinning() -> Option<(tempfile::TempDir, Child)> {
    let (place, program) = build("threads")?;
    let mut command = Command::new(program);
    // Minutes of work for two threads, should nobody end it.
    let child = command.args(["2", "10", "200000"]).stdout(Stdio::piped());
    Some((place, child.spawn().expect("started")))
}

#[test]
fn attached_in_the_background_and_stopped() {
    let Some((_built, mut child)) = spinning() else {
        return;
    };
    let (place, pid) = (Place::new(), child.id().to_string());
    // That the output can be read to its end shows that nobody in the background holds it.
    let started = place.statcache(&["attach", "--background", &pid]);
    assert!(started.status.success(), "{started:?}");
    assert!(
        lossy(&started.stderr).contains("in the background"),
        "{started:?}"
    );
    assert!(is_traced(child.id()));

    let directory = place.0.path().join("statcache");
    let mode = |path: &Path| {
        std::fs::symlink_metadata(path)
            .expect("there")
            .permissions()
            .mode()
    };
    assert_eq!(mode(&directory) & 0o777, 0o700);
    assert_eq!(mode(&place.socket(&pid)) & 0o777, 0o600);

    place.await_windows(&pid, 3);
    let again = place.statcache(&["attach", "--background", &pid, "-o", "other"]);
    assert_eq!(again.status.code(), Some(126), "{again:?}");
    assert!(lossy(&again.stderr).contains("already traced"), "{again:?}");
    // Nor does another profile take this one's place.
    let taken = place.statcache(&["run", "-o", "statcache.prof", "true"]);
    assert_eq!(taken.status.code(), Some(125), "{taken:?}");
    let said = lossy(&taken.stderr);
    assert!(
        said.contains("being written") && said.lines().count() == 1,
        "{said}"
    );
    let report = place.statcache(&["report", &pid]);
    let whole = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.status.success(), "{report:?}");
    assert!(
        whole.contains("threads.c"),
        "names are found while it is live: {whole}"
    );
    let export = place.statcache(&["export", "--format", "json", &pid]);
    let json: serde_json::Value = serde_json::from_slice(&export.stdout).expect("JSON");
    assert!(json["totals"]["windows"].as_u64() >= Some(3));
    assert!(
        json["warnings"].to_string().contains("is live"),
        "{}",
        json["warnings"]
    );

    // Its own profile is not written over, by whichever name it is asked for.
    for named in [&pid, "statcache.prof"] {
        let words = ["export", "--format", "csv", named, "-o", "./statcache.prof"];
        let refused = place.statcache(&words);
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        let said = lossy(&refused.stderr);
        assert!(said.contains("is the profile itself"), "{said}");
    }

    // Nobody has to read what it says.
    let (_, unread) = std::io::pipe().expect("a pipe");
    let mut stop = place.command(&["stop", &pid]);
    let stopped = stop.stdout(unread).output().expect("run");
    assert!(stopped.status.success(), "{stopped:?}");
    // Complete at once, and nothing stays behind.
    let profile = readable(&place.profile());
    assert_eq!(profile.footer.as_ref().and_then(|f| f.exit_status), None);
    assert!(profile.windows.len() >= 3);
    assert!(!is_traced(child.id()));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("alive");
    assert!(!maps.contains("statcache"), "{maps}");
    assert!(!place.live().contains(&pid));
    // It answers until it has ended itself.
    let unknown = || place.statcache(&["stop", &pid]).status.code() == Some(127);
    assert!(awaited(unknown));
    let stopped = place.statcache(&["stop", &pid]);
    assert_eq!(lossy(&stopped.stderr).lines().count(), 1, "{stopped:?}");
    child.kill().expect("killed");
    child.wait().expect("waited");
}

#[test]
fn run_in_the_background_to_its_end() {
    let Some((_built, program)) = build("threads") else {
        return;
    };
    let place = Place::new();
    let words = ["2", "10", "1500"];
    let expected = Command::new(&program).args(words).output().expect("run");
    let mut command = place.command(&["run", "--background", "-q", "--"]);
    let mut started = command
        .arg(&program)
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    // The program's output is its own; the end of it comes with the program's.
    let mut printed = Vec::new();
    assert!(started.wait().expect("waited").success());
    let mut output = started.stdout.take().expect("piped");
    output.read_to_end(&mut printed).expect("read");
    assert_eq!(lossy(&printed), lossy(&expected.stdout));
    let begun = Instant::now();
    while !place.live().is_empty() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    let profile = readable(&place.profile());
    assert_eq!(profile.footer.as_ref().and_then(|f| f.exit_status), Some(7));
    assert!(!profile.windows.is_empty());
}

/// A profile in the foreground can be ended from elsewhere too; the program goes on to its end, with its
/// own output and status.
#[test]
fn run_in_the_foreground_stopped_from_elsewhere() {
    if let Some((_built, program)) = build("threads") {
        stopped_from_elsewhere(&program, &["2", "10", "50", "stay"], 7);
    }
    // Who traces it is its parent no more: who started it is.
    if let Some((_built, program)) = build("orphan") {
        stopped_from_elsewhere(&program, &["heir", "1000"], 2);
    }
}

fn stopped_from_elsewhere(program: &Path, words: &[&str], status: i32) {
    let place = Place::new();
    let mut expected = Command::new(program);
    let expected = expected.args(words).stdin(Stdio::null()).output();
    let mut command = place.command(&["run", "-q", "--"]);
    command.arg(program).args(words).stdin(Stdio::piped());
    let mut started = command.stdout(Stdio::piped()).spawn().expect("started");
    let begun = Instant::now();
    let pid = loop {
        let live = place.live();
        let line = live.lines().nth(1).map(str::to_owned);
        if let Some(pid) = line.and_then(|l| l.split_whitespace().next().map(str::to_owned)) {
            break pid;
        }
        assert!(begun.elapsed() < PATIENCE, "it is not listed");
        std::thread::sleep(Duration::from_millis(20));
    };
    place.await_windows(&pid, 1);
    let stopped = place.statcache(&["stop", &pid]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(!is_traced(pid.parse().expect("a number")));
    assert!(!readable(&place.profile()).windows.is_empty());
    drop(started.stdin.take());
    let found = started.wait_with_output().expect("waited");
    assert_eq!(found.status.code(), Some(status));
    assert_eq!(found.stdout, expected.expect("run").stdout);
}

#[test]
fn refusals_come_before_the_background() {
    let place = Place::new();
    for (words, code, why) in [
        (
            &["run", "--background", "./no-such-program"][..],
            127,
            "No such file",
        ),
        (
            &["attach", "--background", "4194303"],
            127,
            "no such process",
        ),
        (
            &["run", "--background", "-o", "/no/such/dir/p", "true"],
            125,
            "choose another place",
        ),
        (&["stop", "4194303"], 127, "no live profile"),
        (&["report", "4194303"], 127, "no live profile"),
        (
            &["export", "--format", "json", "-o", "-", "4194303"],
            127,
            "no live profile",
        ),
        (&["run", "--max-size", "1K", "true"], 2, "256K or more"),
    ] {
        let found = place.statcache(words);
        let said = lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
        assert!(code == 2 || said.lines().count() == 1, "{words:?}: {said}");
        assert!(!place.profile().exists(), "{words:?}");
    }
}

#[test]
fn a_profile_that_was_removed_is_not_told_to_be_complete() {
    let Some((_built, mut child)) = spinning() else {
        return;
    };
    let (place, pid) = (Place::new(), child.id().to_string());
    let started = place.statcache(&["attach", "--background", &pid]);
    assert!(started.status.success(), "{started:?}");
    place.await_windows(&pid, 1);
    std::fs::remove_file(place.profile()).expect("removed");
    for (words, code) in [(["report", &pid], 125), (["stop", &pid], 125)] {
        let found = place.statcache(&words);
        assert_eq!(found.status.code(), Some(code), "{found:?}");
        assert!(lossy(&found.stderr).contains("was removed"), "{found:?}");
    }
    assert!(!is_traced(child.id()));
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// A directory that others can write to is not used: they could put a socket of theirs there.
#[test]
fn an_unsafe_runtime_directory_is_not_used() {
    let place = Place::new();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::create_dir(place.0.path().join("statcache")).expect("made");
    std::fs::set_permissions(place.0.path().join("statcache"), open).expect("set");
    let found = place.statcache(&["run", "--background", "sleep", "1"]);
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(
        lossy(&found.stderr).contains("others can write"),
        "{found:?}"
    );
    // In the foreground it is no matter.
    let found = place.statcache(&["run", "-q", "true"]);
    assert!(
        found.status.success() && found.stderr.is_empty(),
        "{found:?}"
    );
}

/// A socket's name has at most 107 bytes (unix(7)): nobody could ask a profiler anything.
#[test]
fn a_runtime_directory_with_a_long_name_is_not_used() {
    let place = Place::new();
    let long = place.0.path().join("x".repeat(100));
    std::fs::create_dir(&long).expect("made");
    let mut command = place.command(&["run", "--background", "sleep", "1"]);
    let found = command.env("XDG_RUNTIME_DIR", &long).output().expect("run");
    assert_eq!(found.status.code(), Some(125), "{found:?}");
    assert!(lossy(&found.stderr).contains("too long"), "{found:?}");
    let mut command = place.command(&["run", "-q", "true"]);
    let found = command.env("XDG_RUNTIME_DIR", &long).output().expect("run");
    assert!(found.status.success(), "{found:?}");
}

/// One that is stopped answers nobody: it is told of, by what makes it go on, and not waited for.
#[test]
fn a_profiler_that_is_stopped() {
    let Some((_built, mut child)) = spinning() else {
        return;
    };
    let (place, pid) = (Place::new(), child.id().to_string());
    let mut monitor = place
        .command(&["attach", "-q", &pid])
        .spawn()
        .expect("started");
    place.await_windows(&pid, 1);
    let id = Pid::from_raw(monitor.id() as i32);
    signal::kill(id, Signal::SIGSTOP).expect("stopped");
    for words in [&["ps"][..], &["stop", &pid], &["report", &pid]] {
        let found = place.statcache(words);
        assert_eq!(found.status.code(), Some(125), "{words:?}: {found:?}");
        let said = lossy(&found.stderr);
        assert!(said.contains(&format!("kill -CONT {id}")), "{said}");
        assert!(said.contains(&pid) && said.lines().count() == 1, "{said}");
    }
    signal::kill(id, Signal::SIGCONT).expect("goes on");
    let found = place.statcache(&["ps"]);
    assert!(lossy(&found.stdout).contains(&pid), "{found:?}");
    let found = place.statcache(&["stop", &pid]);
    assert!(found.status.success(), "{found:?}");
    assert!(monitor.wait().expect("waited").success());
    child.kill().expect("killed");
    child.wait().expect("waited");
}

#[test]
fn what_a_killed_monitor_left_is_no_live_profile() {
    let Some((_built, mut child)) = spinning() else {
        return;
    };
    let (place, pid) = (Place::new(), child.id().to_string());
    let mut command = place.command(&["attach", "-q", &pid]);
    let mut monitor = command.spawn().expect("started");
    place.await_windows(&pid, 1);
    monitor.kill().expect("killed");
    monitor.wait().expect("waited");
    assert_eq!(place.live(), "");
    let socket = place.socket(&pid);
    assert!(socket.exists(), "left behind");
    assert_eq!(place.statcache(&["stop", &pid]).status.code(), Some(127));
    // The next one takes its place.
    let started = place.statcache(&["attach", "--background", "-q", &pid]);
    assert!(started.status.success(), "{started:?}");
    assert!(place.live().contains(&pid));
    assert!(place.statcache(&["stop", &pid]).status.success());
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// Whoever asks nonsense, or nothing, keeps nobody from being answered.
#[test]
fn silent_and_talkative_clients() {
    let Some((_built, mut child)) = spinning() else {
        return;
    };
    let (place, pid) = (Place::new(), child.id().to_string());
    assert!(
        place
            .statcache(&["attach", "--background", "-q", &pid])
            .status
            .success()
    );
    let socket = place.socket(&pid);
    let silent: Vec<UnixStream> = (0..8)
        .map(|_| UnixStream::connect(&socket).expect("connected"))
        .collect();
    let mut talker = UnixStream::connect(&socket).expect("connected");
    // The other end may hang up in the middle of it.
    let _ = std::io::Write::write_all(&mut talker, &[b'x'; 1 << 16]);
    assert!(place.live().contains(&pid));
    assert!(place.statcache(&["stop", &pid]).status.success());
    drop(silent);
    child.kill().expect("killed");
    child.wait().expect("waited");
}

/// A profile stays under its limit, and what is left stands for all.
#[test]
fn a_profile_is_thinned_while_it_grows() {
    let Some((_built, mut child)) = spinning() else {
        return;
    };
    let (place, pid) = (Place::new(), child.id().to_string());
    let words = [
        "attach",
        "--background",
        "-q",
        "--overhead",
        "100",
        "--max-size",
        "256K",
        &pid,
    ];
    assert!(place.statcache(&words).status.success());
    let (mut size, mut largest, mut shrunk) = (0, 0, 0);
    let begun = Instant::now();
    while shrunk < 1 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        let now = std::fs::metadata(place.profile()).expect("there").len();
        shrunk += u32::from(now < size);
        (size, largest) = (now, largest.max(now));
        // Whole at any moment, but for a writer that has lost its processor in the middle of a write.
        let whole = || {
            let profile = statcache::profile::Profile::read(&place.profile()).expect("readable");
            let mut warnings = profile.read_warnings.iter();
            warnings.all(|warning| !warning.what.contains("damaged"))
        };
        assert!(awaited(whole));
    }
    assert!(place.statcache(&["stop", &pid]).status.success());
    let profile = readable(&place.profile());
    child.kill().expect("killed");
    child.wait().expect("waited");
    assert_eq!(shrunk, 1, "in {:?}, at {size} bytes", begun.elapsed());
    // Windows come while it is being thinned, more of them where nobody lets the thread that does it run.
    assert!(size < 256 << 10 && largest < 2 << 20, "{size} {largest}");
    let footer = profile.footer.as_ref().expect("readable");
    let stood_for: f64 = profile.windows.iter().map(|w| w.stands_for.value).sum();
    let ratio = stood_for / footer.accesses_estimated.value;
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    assert!(
        footer.warnings.iter().any(|w| w.what.contains("left out")),
        "{:?}",
        footer.warnings
    );
    let left: Vec<_> = std::fs::read_dir(place.0.path())
        .expect("there")
        .flatten()
        .collect();
    assert!(left.len() <= 2, "{left:?}");
}
