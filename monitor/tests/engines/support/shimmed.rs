//! Programs of `tests/tracees/shim`, run alone and under the shim.

use statcache::engine::counter::hits::{Touched, touched};
use statcache::engine::counter::shim::{Counted, Inherited};
use statcache_abi::{Event, kind};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(600);

/// A program of the set.
pub struct Built {
    _directory: tempfile::TempDir,
    /// Its file.
    pub program: PathBuf,
}

/// Compiles `tests/tracees/shim/NAME.c`; says why it cannot.
pub fn build(name: &str) -> Option<Built> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/tracees/shim")
        .join(format!("{name}.c"));
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .output();
    match output {
        Ok(output) if output.status.success() => Some(Built {
            _directory: directory,
            program,
        }),
        Ok(output) => panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("SKIP {name}: no cc here: {error}");
            None
        }
    }
}

/// Runs to its end, within [`PATIENCE`].
pub fn run(mut command: Command) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let begin = Instant::now();
    while child.try_wait().expect("waited").is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().expect("killed");
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("its output")
}

/// What a run under the shim came to.
pub struct Seen {
    /// What it printed, which is what it prints alone.
    pub printed: String,
    /// What the shim reported.
    pub events: Vec<Event>,
    /// What it counted.
    pub counted: Counted,
}

/// Runs natively and under the shim: same output, same end.
pub fn both(name: &str, arguments: &[&str]) -> Option<Seen> {
    let built = build(name)?;
    let mut native = Command::new(&built.program);
    native.args(arguments);
    let native = run(native);
    let inherited = Inherited::create().expect("a shim");
    let shim = inherited.shim();
    let mut watched = Command::new(&built.program);
    watched.args(arguments).envs(inherited.environment());
    let watched = run(watched);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&watched.stdout), text(&native.stdout), "{name}");
    assert_eq!(text(&watched.stderr), text(&native.stderr), "{name}");
    assert_eq!(
        (watched.status.code(), watched.status.signal()),
        (native.status.code(), native.status.signal()),
        "{name}"
    );
    if shim.counted().entered == 0 {
        println!("SKIP {name}: no Syscall User Dispatch here");
        return None;
    }
    Some(Seen {
        printed: text(&native.stdout),
        events: shim.events(),
        counted: shim.counted(),
    })
}

/// How often each watch was touched, by the events.
pub fn hits(seen: &Seen, bytes: impl Fn(u32) -> u32) -> BTreeMap<u32, u64> {
    let mut hits = BTreeMap::new();
    for event in seen.events.iter().filter(|event| event.kind != kind::ENDED) {
        match touched(event, bytes(event.id)) {
            Touched::Yes => *hits.entry(event.id).or_default() += 1,
            Touched::No => {}
            Touched::Unknown => panic!("{event:?}"),
        }
    }
    hits
}

/// What the program says: `hits id:times ...`.
pub fn said(printed: &str) -> BTreeMap<u32, u64> {
    let line = printed.lines().last().expect("a line");
    let words = line.strip_prefix("hits ").expect("hits").split(' ');
    words
        .map(|word| {
            let (id, times) = word.split_once(':').expect("id:times");
            (id.parse().expect("id"), times.parse().expect("times"))
        })
        .filter(|(_, times)| *times > 0)
        .collect()
}

/// As [`both`]; and each line was touched as often as the program says.
pub fn exact(name: &str) -> Option<Seen> {
    let seen = both(name, &[])?;
    assert_eq!(seen.counted.lost, 0, "{name}");
    assert_eq!(hits(&seen, |_| 64), said(&seen.printed), "{name}");
    Some(seen)
}
