//! `statcache run --heap-sites`: data in the heap by the call that allocated them, and the program none the worse.

use crate::support::c;
use crate::support::cli::{WAYS, lossy, native, readable, run, shell_status, under};
use statcache::profile::Profile;
use statcache::profile::types::{InstrId, Memory};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The function that holds an instruction, as it was compiled.
fn function(profile: &Profile, ip: InstrId) -> &str {
    let frames = profile.frames(ip);
    frames.last().map_or("", |frame| frame.function.as_str())
}

/// Of the samples of heap memory by `toucher`: how many lie in blocks that `allocators` were called for, and how many there are.
fn touched(profile: &Profile, toucher: &str) -> (BTreeMap<String, usize>, usize) {
    const ALLOCATORS: [&str; 5] = ["list", "table", "grown", "mapped", "freed"];
    let samples = profile.windows.iter().flat_map(|w| &w.samples);
    let (mut found, mut all) = (BTreeMap::new(), 0);
    for taken in samples.filter(|t| function(profile, t.sample.ip) == toucher) {
        let site = match taken.sample.memory {
            Memory::Allocated { site } => Some(site),
            Memory::Heap => None,
            _ => continue,
        };
        all += 1;
        let calls = site.map_or(&[][..], |site| &profile.sites[site as usize]);
        let names = calls.iter().map(|&call| function(profile, call));
        if let Some(name) = names.into_iter().find(|name| ALLOCATORS.contains(name)) {
            *found.entry(name.to_owned()).or_default() += 1;
        }
    }
    (found, all)
}

fn count(found: &BTreeMap<String, usize>, names: &[&str]) -> usize {
    let of = |name: &&str| found.get(*name).copied();
    names.iter().filter_map(of).sum()
}

/// That blocks are of whom they were allocated by, in the process that does the work.
fn check(profile: &Profile) {
    let (found, all) = touched(profile, "walk");
    assert!(all > 200, "{all}");
    assert_eq!(count(&found, &["list"]), all, "{found:?} of {all}");
    let (found, all) = touched(profile, "add");
    let of = |name| count(&found, &[name]);
    assert!(all > 600, "{all}");
    assert_eq!(
        of("table") + of("grown") + of("mapped"),
        all,
        "{found:?} of {all}"
    );
    for name in ["table", "grown", "mapped"] {
        assert!(of(name) * 5 > all, "{found:?} of {all}");
    }
}

#[test]
fn blocks_are_of_whom_they_were_allocated_by() {
    let Some((place, program)) = c::build("blocks") else {
        return;
    };
    let program = program.to_str().expect("text");
    for way in ["plain", "child", "exec"] {
        let words = [program, way];
        let options = ["-q", "--full", "--heap-sites"];
        let alone = native(place.path(), &words, b"");
        let found = under(place.path(), place.path(), &options, &words, b"");
        assert_eq!(
            (shell_status(&found), &found.stdout, lossy(&found.stderr)),
            (0, &alone.stdout, String::new()),
            "{way}"
        );
        let profile = readable(&place.path().join("p"));
        let all = std::iter::once(&profile).chain(&profile.others);
        let most = |p: &&Profile| p.windows.iter().map(|w| w.accesses).sum::<u64>();
        check(all.max_by_key(most).expect("one process at least"));
    }
    let said = report(&place.path().join("p"));
    for name in ["list", "table", "grown", "mapped"] {
        assert!(
            said.contains(&format!("heap of {name} blocks.c:")),
            "{said}"
        );
    }
    assert!(said.contains("called by main"), "{said}");
}

fn report(profile: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
    let output = command
        .args(["report", "--by", "data"])
        .arg(profile)
        .output();
    lossy(&output.expect("started").stdout)
}

/// The shim's own accesses are not the program's.
#[test]
fn accesses_are_as_many() {
    let Some((place, program)) = c::build("blocks") else {
        return;
    };
    let words = [program.to_str().expect("text"), "plain"];
    let [without, with] =
        [&["-q", "--full"][..], &["-q", "--full", "--heap-sites"]].map(|options| {
            under(place.path(), place.path(), options, &words, b"");
            let profile = readable(&place.path().join("p"));
            profile.windows.iter().map(|w| w.accesses).sum::<u64>() as f64
        });
    // The linker has one object more to look after.
    assert!((with / without - 1.0).abs() < 0.01, "{with} for {without}");
}

#[test]
fn allocators_keep_their_promises_in_threads() {
    let Some((place, program)) = c::build("blocks") else {
        return;
    };
    let words = [program.to_str().expect("text"), "threads"];
    for way in WAYS {
        let options = [&["-q", "--heap-sites"], way].concat();
        let found = under(place.path(), place.path(), &options, &words, b"");
        assert_eq!(
            (shell_status(&found), lossy(&found.stdout)),
            (0, "0 nothing\n".to_owned()),
            "{found:?}"
        );
    }
}

/// A program that has no use for the shim is run as without it.
#[test]
fn static_programs_go_without() {
    let Some((place, program)) = c::build_with("blocks", &["-static"]) else {
        return;
    };
    let words = [program.to_str().expect("text"), "plain"];
    let alone = native(place.path(), &words, b"");
    let found = under(
        place.path(),
        place.path(),
        &["-q", "--full", "--heap-sites"],
        &words,
        b"",
    );
    assert_eq!(
        (shell_status(&found), &found.stdout, lossy(&found.stderr)),
        (0, &alone.stdout, String::new())
    );
    let profile = readable(&place.path().join("p"));
    assert!(profile.sites.is_empty());
    let said: Vec<&str> = profile.warnings().map(|w| w.what.as_str()).collect();
    assert!(
        said.iter().any(|what| what.contains("allocation sites")),
        "{said:?}"
    );
}

/// Constructors of libraries come before the program's own, and may have the environment copied.
#[test]
fn libraries_find_the_environment_as_it_was() {
    let place = directory();
    let source = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let library = source(
        "library.c",
        "#include <stdlib.h>\n__attribute__((constructor)) static void first(void) { setenv(\"SET\", \"1\", 1); }",
    );
    let program = source(
        "program.c",
        "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv(\"LD_PRELOAD\") ? \"seen\" : getenv(\"SET\")); }",
    );
    let cc = |words: &[&str]| {
        let output = Command::new("cc")
            .args(words)
            .current_dir(place.path())
            .output();
        let Ok(output) = output else {
            println!("SKIP libraries_find_the_environment_as_it_was: no cc here");
            return false;
        };
        assert!(output.status.success(), "{}", lossy(&output.stderr));
        true
    };
    let [library, program] = [library, program].map(|path| path.to_str().expect("text").to_owned());
    let rpath = format!("-Wl,--no-as-needed,-rpath,{}", place.path().display());
    if !cc(&["-shared", "-fPIC", "-o", "liblibrary.so", &library])
        || !cc(&["-o", "program", &program, &rpath, "-L.", "-llibrary"])
    {
        return;
    }
    let words = [place.path().join("program")];
    let words = [words[0].to_str().expect("text")];
    let found = under(
        place.path(),
        place.path(),
        &["-q", "--full", "--heap-sites"],
        &words,
        b"",
    );
    assert_eq!(
        (shell_status(&found), lossy(&found.stdout)),
        (0, "1\n".to_owned()),
        "{found:?}"
    );
}

/// Sanitizers refuse to start behind another library.
#[test]
fn sanitized_programs_go_without() {
    let place = directory();
    let source = place.path().join("one.c");
    let program = place.path().join("one");
    std::fs::write(&source, "int main(void) { return 7; }").expect("written");
    let mut cc = Command::new("cc");
    let built = cc
        .arg("-fsanitize=address")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output();
    if !built.is_ok_and(|built| built.status.success()) {
        println!("SKIP sanitized_programs_go_without: no cc with a sanitizer here");
        return;
    }
    let program = program.to_str().expect("text");
    // The one for leaks does not run under ptrace(2) at all.
    let words = ["env", "ASAN_OPTIONS=detect_leaks=0", program];
    let found = under(
        place.path(),
        place.path(),
        &["-q", "--heap-sites"],
        &words,
        b"",
    );
    assert_eq!(
        (shell_status(&found), lossy(&found.stderr)),
        (7, String::new())
    );
}

#[test]
fn other_engines_are_refused_in_a_line() {
    let place = directory();
    let profile = place.path().join("p");
    let mut command = run(&profile, &["--heap-sites", "--engine", "step"]);
    let refused = command.arg("true").output().expect("started");
    assert_eq!(shell_status(&refused), 2);
    assert!(
        lossy(&refused.stderr).contains("leave '--engine' out"),
        "{refused:?}"
    );
    assert!(!profile.exists());
}

/// A stack that the program has made itself may end where no frame is, and be aligned as it likes.
#[test]
fn stacks_of_the_programs_own() {
    let Some((place, program)) = c::build("stacks") else {
        return;
    };
    let program = program.display().to_string();
    for way in ["0", "16", "1"] {
        let words = [program.as_str(), way, "2000"];
        let alone = native(place.path(), &words, b"");
        for options in WAYS {
            let options = [options, &["--heap-sites"]].concat();
            let found = under(place.path(), place.path(), &options, &words, b"");
            let said = lossy(&found.stderr);
            assert_eq!(shell_status(&found), 0, "{way} {options:?}: {said}");
            assert_eq!(found.stdout, alone.stdout, "{way} {options:?}");
        }
    }
}
