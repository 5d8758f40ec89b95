//! Running programs with and without `statcache run`.

use statcache::profile::Profile;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The ways of running that must not show in the program.
pub const WAYS: [&[&str]; 2] = [&[], &["--full"]];

/// `statcache run -o PROFILE OPTIONS -- `, to be completed by the program and its arguments.
pub fn run(profile: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    command
        .args(["run", "--seed", "1", "-o"])
        .arg(profile)
        .args(options)
        .arg("--");
    command
}

/// The words before a command that have it run under windows back to back.
pub fn back_to_back(profile: &str) -> [&str; 8] {
    let profiler = env!("CARGO_BIN_EXE_statcache");
    let overhead = "--overhead";
    [profiler, "run", "-q", overhead, "400", "-o", profile, "--"]
}

/// Runs `words` in `directory` with `input` on standard input, without us.
pub fn native(directory: &Path, words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(directory);
    output(command, input)
}

/// The same under `statcache run OPTIONS`; the profile is `p` in `profiles`.
pub fn under(
    directory: &Path,
    profiles: &Path,
    options: &[&str],
    words: &[&str],
    input: &[u8],
) -> Output {
    let mut command = run(&profiles.join("p"), options);
    command.args(words).current_dir(directory);
    output(command, input)
}

/// Feeds `input` and collects the output.
pub fn output(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let (mut stdin, input) = (child.stdin.take().expect("piped"), input.to_owned());
    let feeder = std::thread::spawn(move || {
        // The program need not read it all.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("waited");
    feeder.join().expect("fed");
    output
}

/// The status as a shell sees it.
pub fn shell_status(output: &Output) -> i32 {
    let signal = || 128 + output.status.signal().expect("exited or killed");
    output.status.code().unwrap_or_else(signal)
}

/// A profile that can be read to its end, and that `report` takes.
pub fn readable(path: &Path) -> Profile {
    let profile = Profile::read(path).expect("a profile");
    assert!(profile.footer.is_some(), "it has an end");
    let report = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .arg("report")
        .arg(path)
        .output()
        .expect("run");
    assert!(report.status.success(), "{report:?}");
    profile
}

/// Where `name` is installed; says so when it is not.
pub fn installed(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"];
    let found = places
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        println!("SKIP {name}: not installed");
    }
    found
}

/// Waits until something holds; whether it does at last.
pub fn awaited(mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > Duration::from_secs(120) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether the process is traced.
pub fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    !status.contains("TracerPid:\t0\n")
}

/// The process that a monitor has started, once it executes the program `name`.
pub fn program_of(monitor: u32, name: &str) -> Option<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{monitor}/task")).ok()?;
    let children = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let comm = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
    children
        .collect::<Vec<_>>()
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .find(|pid| comm(pid).is_ok_and(|comm| comm.trim() == name))
}

/// Windows in a profile that is being written.
pub fn windows(path: &Path) -> usize {
    Profile::read(path).map_or(0, |profile| profile.windows.len())
}

/// The end of a text, for messages.
pub fn lossy(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let start = text.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
    text[start..].to_owned()
}

/// As a string, for command lines.
pub fn text(path: &(impl AsRef<OsStr> + ?Sized)) -> String {
    path.as_ref().to_str().expect("text").to_owned()
}
