//! `statcache check` on the host the tests run on.

use std::process::Command;

#[test]
fn it_tells_what_it_looked_at_and_exits_accordingly() {
    let out = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .arg("check")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    // A remedy stands below its line, under the third column.
    let remedy = |line: &&str| line.trim_start().starts_with("-> ");
    let all: Vec<&str> = text.lines().filter(|l| l.starts_with("  ")).collect();
    let lines: Vec<&str> = all.iter().copied().filter(|l| !remedy(l)).collect();
    let looked_at = [
        "tracing",
        "code cache",
        "hardware counters",
        "seccomp",
        "memory",
        "processor",
        "cache sizes",
    ];
    assert_eq!(lines.len(), looked_at.len(), "{text}");
    for (line, what) in lines.iter().zip(looked_at) {
        let mut words = line.split_whitespace();
        let verdict = words.next().unwrap_or_default();
        assert!(["ok", "less", "FAIL"].contains(&verdict), "{line}");
        assert!(line[8..].starts_with(what), "{line}");
    }
    for pair in all.windows(2) {
        let due = !remedy(&pair[0]) && !pair[0].trim_start().starts_with("ok");
        assert_eq!(due, remedy(&pair[1]), "a remedy where one is due: {text}");
    }
    let fails = lines.iter().any(|l| l.trim_start().starts_with("FAIL"));
    assert_eq!(
        out.status.code(),
        Some(if fails { 125 } else { 0 }),
        "{text}"
    );
    if fails {
        println!("SKIP the_code_cache_saw_the_child: this host does not allow it:\n{text}");
        return;
    }
    let code_cache = lines[1];
    let seen: u64 = code_cache
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .expect("a number of accesses");
    // The child makes 200,000 known ones beside its start-up.
    assert!((200_000..5_000_000).contains(&seen), "{code_cache}");
    assert!(
        out.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn it_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_statcache"))
        .arg("check")
        .env("TMPDIR", temporary.path())
        .current_dir(temporary.path())
        .output()
        .unwrap()
        .status;
    assert!(status.code().is_some(), "ended by a signal");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
