//! What the threads of a real program do to each other's lines is found, and named.

use crate::support::c::build;
use crate::support::cli::{lossy, native, readable, shell_status, text, under};
use serde_json::Value;
use statcache::profile::types::Memory;
use std::path::Path;
use std::process::Command;

/// Sampled often enough for a short run, and observed as a whole.
const WAYS: [(&[&str], &str); 2] = [
    (&["--overhead", "60"], "200000000"),
    (&["--full"], "3000000"),
];

/// The JSON export of the program's run in that mode, which must print what it prints alone.
fn exported(program: &str, mode: &str, (options, rounds): (&[&str], &str)) -> Value {
    let place = tempfile::tempdir().expect("a temporary directory");
    let words = [program, mode, rounds];
    let expected = native(Path::new("/"), &words, b"");
    let found = under(Path::new("/"), place.path(), options, &words, b"");
    assert_eq!(shell_status(&found), 0, "{found:?}");
    assert_eq!(lossy(&found.stdout), lossy(&expected.stdout), "{mode}");
    let profile = place.path().join("p");
    let windows = readable(&profile).windows;
    assert!(windows.iter().any(|w| w.threads.len() == 2), "{mode}");
    let json = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .args(["export", "--format", "json", "-o", "-"])
        .arg(&profile)
        .output()
        .expect("exported");
    assert!(json.status.success(), "{json:?}");
    serde_json::from_slice(&json.stdout).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn line_of(source: &str, text: &str) -> u64 {
    let lines = source.lines().enumerate();
    let found = lines
        .filter(|(_, line)| line.contains(text))
        .map(|(at, _)| at);
    found.last().expect("a line of the source") as u64 + 1
}

#[test]
fn false_sharing_is_found_and_named_and_not_where_there_is_none() {
    let Some((_place, program)) = build("sharing") else {
        return;
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees/sharing.c");
    let source = std::fs::read_to_string(path).expect("the source");
    for way in WAYS {
        let shared = exported(&text(&program), "counters", way);
        let sharing = &shared["sharing"];
        // Two of four accesses are to the counter; the first of them is lost where the other thread
        // has counted meanwhile.
        let lost = number(&sharing["coherence_miss_ratio"]);
        // Of a sampled run less where the other thread was not there in windows, for want of a processor.
        let least = if way.0.contains(&"--full") {
            0.08
        } else {
            0.02
        };
        assert!((least..0.4).contains(&lost), "{way:?}: {sharing}");
        let pair = &sharing["pairs"][0];
        assert_eq!(pair["verdict"], "false", "{way:?}: {pair}");
        assert!(number(&pair["share"]) > 0.8, "{pair}");
        let line = line_of(&source, "++*mine");
        assert_eq!(
            (&pair["line"]["line"], &pair["writer"]["line"]),
            (&line.into(), &line.into())
        );
        assert_eq!(
            (&pair["data"]["kind"], &pair["data"]["name"]),
            (&"static".into(), &"counters".into())
        );

        let padded = exported(&text(&program), "padded", way);
        let sharing = &padded["sharing"];
        assert!(
            number(&sharing["coherence_miss_ratio"]) < 0.002,
            "{way:?}: {sharing}"
        );
        let accused = |pair: &Value| pair["verdict"] == "false";
        assert!(
            !sharing["pairs"]
                .as_array()
                .expect("pairs")
                .iter()
                .any(accused),
            "{sharing}"
        );
    }
}

#[test]
fn data_handed_over_are_no_false_sharing() {
    let Some((_place, program)) = build("sharing") else {
        return;
    };
    for way in WAYS {
        let handed = exported(&text(&program), "handed", way);
        let sharing = &handed["sharing"];
        assert!(
            number(&sharing["coherence_miss_ratio"]) > 0.02,
            "{way:?}: {sharing}"
        );
        // Each write is to one of eight words, most of them others than the reader's next.
        assert!(
            number(&sharing["pairs"][0]["share"]) > 0.5,
            "{way:?}: {sharing}"
        );
    }
}

/// Whoever is slower has the other one wait for it, block by block: neither runs ahead by its turn.
#[test]
fn who_waits_for_another_is_as_far_behind_as_alone() {
    let Some((_place, program)) = build("queue") else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let words = [&text(&program), "600"];
    let sum = |output: &std::process::Output| {
        let said = lossy(&output.stdout);
        let mut lines = said.lines().map(|line| line.parse().expect("a number"));
        let two: [u64; 2] = std::array::from_fn(|_| lines.next().expect("two lines"));
        two
    };
    let [expected, _] = sum(&native(Path::new("/"), &words, b""));
    let found = under(Path::new("/"), place.path(), &["--full"], &words, b"");
    assert_eq!(shell_status(&found), 0, "{found:?}");
    let [found, between] = sum(&found);
    assert_eq!(found, expected);
    println!("about half full at {between} of 100 blocks");
    assert!(between < 20, "{between}");
}

/// Who leaves the processor to others has its turn end there: it would wait through all of its turns otherwise, call by call.
#[test]
fn who_yields_to_another_has_it_go_on() {
    let Some((_place, program)) = build("yields") else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let words = [&text(&program), "600", "yields"];
    let expected = native(Path::new("/"), &words, b"");
    let found = under(Path::new("/"), place.path(), &["--full"], &words, b"");
    assert_eq!(shell_status(&found), 0, "{found:?}");
    assert_eq!(lossy(&found.stdout), lossy(&expected.stdout));
    let windows = readable(&place.path().join("p")).windows;
    let accesses: u64 = windows.iter().map(|w| w.accesses).sum();
    let said = lossy(&found.stderr);
    let times = said.lines().find_map(|line| line.parse::<u64>().ok());
    let times = times.expect("a number on standard error");
    println!("{times} yields beside {accesses} accesses");
    // One in a turn of some tens of thousands, and in those at the beginning: until the other thread has a processor, in all. A million without.
    assert!(
        accesses > 9_000_000 && times < 100_000,
        "{times}, {accesses}"
    );
}

#[test]
fn a_shared_cache_is_told_from_private_ones() {
    let Some((_place, program)) = build("sharing") else {
        return;
    };
    for way in WAYS {
        let whole = way.0.contains(&"--full");
        // Intervals hold at 94 %: of a sampled run's, most are to.
        let (runs, most) = if whole { (1, 1) } else { (8, 2) };
        let mut held = 0;
        for run in 0..runs {
            let apart = exported(&text(&program), "apart", way);
            let found = told_apart(&apart, way);
            println!("{way:?}, run {run}: {found:?}");
            held += usize::from(found.is_none());
            if held == most {
                break;
            }
        }
        assert_eq!(held, most, "{way:?}");
    }
}

/// What of an export of two threads, each with an array of its own, contradicts that.
fn told_apart(apart: &Value, way: (&[&str], &str)) -> Option<String> {
    let whole = way.0.contains(&"--full");
    let at = |stream: &str, bytes: u64, bound: &str| {
        let curves = apart["curves"].as_array().expect("curves");
        let curve = curves
            .iter()
            .find(|c| c["stream"] == stream && c["policy"] == "lru" && c["line_size"] == 64);
        let points = curve.expect("a curve")["points"]
            .as_array()
            .expect("points");
        let point = points.iter().find(|p| p["cache_bytes"] == bytes);
        number(&point.expect("a point")[bound])
    };
    // An eighth of the accesses is to a new line: 24 KiB fit into 32, twice as much does not. Of a sampled run a
    // dozen windows may be all there is: the intervals know.
    for (stream, bytes) in [("own", 32 << 10), ("all", 128 << 10)] {
        let found = at(stream, bytes, if whole { "miss_ratio" } else { "low" });
        if found >= 0.01 {
            return Some(format!("{stream} {bytes}: {found}"));
        }
    }
    let all = at("all", 32 << 10, "miss_ratio");
    // On a busy machine they seldom run side by side. No more than an eighth, but for what a dozen windows are off by.
    let least = if whole { 0.08 } else { 0.02 };
    (!(least..0.25).contains(&all)).then(|| format!("all: {all}"))
}

/// What a thread has on its stack and for itself is no heap, though it is mapped alike.
#[test]
fn memory_of_a_thread_of_its_own() {
    let Some((_built, program)) = build("own_memory") else {
        return;
    };
    let place = tempfile::tempdir().expect("a temporary directory");
    let found = under(
        Path::new("/"),
        place.path(),
        &["--full"],
        &[&text(&program)],
        b"",
    );
    assert_eq!(shell_status(&found), 0, "{found:?}");
    let profile = readable(&place.path().join("p"));
    let samples = profile.windows.iter().flat_map(|w| &w.samples);
    let (mut stack, mut heap, mut all) = (0, 0, 0);
    for taken in samples {
        all += 1;
        stack += usize::from(taken.sample.memory == Memory::Stack);
        heap += usize::from(taken.sample.memory == Memory::Heap);
    }
    // Seven in eight, and one. (Samples are denser at the start.)
    let told = format!("{stack} on the stack, {heap} on the heap, of {all} samples");
    assert!(10 * stack > 7 * all && 20 * heap > all, "{told}");
    assert!(all > 1000 && 50 * (stack + heap) > 49 * all, "{told}");
}
