//! Programs that trace others, filter their system calls, limit their address space, lock their memory, or need parts of it for themselves: they do what they do alone.

use crate::support::attached::reads_filters;
use crate::support::c;
use crate::support::cli::{WAYS, lossy, native, output, readable, shell_status, text, under};
use std::path::Path;
use std::process::{Command, Output};

/// `words` print and return the same under `options`; what the profiler said.
fn same(words: &[&str], options: &[&str]) -> (Output, statcache::profile::Profile) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let alone = native(place.path(), words, b"");
    let found = under(place.path(), place.path(), options, words, b"");
    let said = lossy(&found.stderr);
    assert_eq!(
        (shell_status(&found), lossy(&found.stdout)),
        (shell_status(&alone), lossy(&alone.stdout)),
        "{words:?} {options:?}: {said}"
    );
    let profile = readable(&place.path().join("p"));
    (found, profile)
}

/// A thread that is interrupted in one starts over, also where we stop it, move it or have it make calls, and however it begins one.
#[test]
fn restartable_sequences_guard() {
    let Some((_place, program)) = c::build("sequences") else {
        return;
    };
    let program = text(&program);
    let dense: &[&str] = &["--overhead", "300"];
    for options in WAYS.into_iter().chain([dense, dense, dense]) {
        for way in ["pointer", "register"] {
            let (found, _) = same(&[&program, "8", "2000000", way], options);
            let said = lossy(&found.stdout);
            if said.starts_with("skip") {
                println!("SKIP restartable_sequences_guard: {said}");
                return;
            }
            assert_eq!(said, "lost 0\n", "{way} {options:?}");
        }
    }
}

/// Code of other modes is left to the processor: 32-bit code, and what single-steps itself.
#[test]
fn modes_are_the_programs() {
    let Some((_place, program)) = c::build_with("modes", &["-no-pie"]) else {
        return;
    };
    let program = text(&program);
    let dense: &[&str] = &["--overhead", "300"];
    for options in WAYS.into_iter().chain([dense]) {
        same(&[&program, "narrow", "40000"], options);
        same(&[&program, "steps", "500"], options);
    }
}

/// Code whose file is cut off is gone.
#[test]
fn code_that_is_cut_off_is_not_executed() {
    let Some((place, program)) = c::build("truncates") else {
        return;
    };
    let (program, file) = (text(&program), text(&place.path().join("code")));
    let dense: &[&str] = &["--overhead", "300"];
    for options in WAYS.into_iter().chain([dense]) {
        same(&[&program, &file, "200"], options);
    }
}

/// What threads and files are called need be no UTF-8: the threads are the process's all the same, and the profile goes on when such a file is mapped.
#[test]
fn names_are_any_bytes() {
    let Some((place, program)) = c::build("latin") else {
        return;
    };
    let (program, directory) = (text(&program), text(place.path()));
    let dense: &[&str] = &["--overhead", "300", "--no-follow"];
    for options in [&["--no-follow"][..], &["--no-follow", "--full"], dense] {
        let (found, profile) = same(&[&program, &directory], options);
        let said = lossy(&found.stderr);
        assert!(!said.contains("ends early"), "{options:?}: {said}");
        assert!(profile.others.is_empty(), "{options:?}");
        let seen = profile
            .windows
            .iter()
            .map(|window| window.threads.len())
            .max();
        assert!(seen >= Some(2), "{options:?}: {said}");
    }
}

/// Instructions that fault without an operand in memory and are stepped over, or do nothing here, leave registers as they were; system calls may have prefixes.
#[test]
fn instructions_that_do_otherwise() {
    let Some((_place, program)) = c::build("skips") else {
        return;
    };
    let program = text(&program);
    let ways: [&[&str]; 3] = [&[], &["--full"], &["--overhead", "300"]];
    for way in ["convert", "stamp", "identify", "shadow", "prefixed"] {
        for options in ways {
            let (found, _) = same(&[&program, way, "300"], options);
            let said = lossy(&found.stdout);
            match said.strip_prefix("skip: ") {
                Some(why) => println!("SKIP instructions_that_do_otherwise, {way}: {why}"),
                None => assert!(said.contains(": wrong 0,"), "{options:?}: {said}"),
            }
        }
    }
}

/// What is ours goes as well where a program unmaps what it does not know, or maps something over it: it goes on natively then, and the profile says so.
#[test]
fn programs_that_unmap_what_they_do_not_know() {
    let options = [
        "-static",
        "-nostdlib",
        "-nostartfiles",
        "-fno-stack-protector",
    ];
    let Some((_place, program)) = c::build_with("unmaps", &options) else {
        return;
    };
    let program = text(&program);
    let ways: [&[&str]; 3] = [&[], &["--full"], &["--overhead", "300"]];
    for options in ways {
        for words in [&[&*program][..], &[&program, "covers"]] {
            let (found, _) = same(words, options);
            let said = lossy(&found.stderr);
            if options.contains(&"--full") {
                assert!(
                    said.contains("unmapped or mapped over"),
                    "{words:?}: {said}"
                );
            }
        }
    }
}

/// Where a signal that does nothing comes while memory is mapped, no descriptor of ours stays.
#[test]
fn no_descriptor_stays_where_signals_come() {
    let Some((_place, program)) = c::build("reaps") else {
        return;
    };
    let program = text(&program);
    same(&[&program, "6", "300"], &[]);
    same(&[&program, "6", "300"], &["--overhead", "300"]);
}

#[test]
fn tracers_trace() {
    let Some((_place, program)) = c::build("tracer") else {
        return;
    };
    let program = text(&program);
    for options in WAYS {
        let (found, _) = same(&[&program], options);
        assert!(
            lossy(&found.stdout).starts_with("traced yes, status 4\ncloned, status 5\n0 refused\n")
        );
        let said = lossy(&found.stderr);
        assert!(said.contains("traces them itself"), "{said}");
    }
    same(&[&program], &["--no-follow"]);
}

/// Where its limit can be raised by what we map, the program is observed; where it cannot, it is not. It has the same room in both.
#[test]
fn address_space_is_the_programs() {
    let Some((_place, program)) = c::build("limited") else {
        return;
    };
    let program = text(&program);
    for options in WAYS {
        let soft = format!("ulimit -S -v 2000000; exec {program}");
        // The shell that it replaces makes less than a million, and it makes more than 150 million. A sampled run may have no window:
        // it is a short one.
        let (runs, least) = if options.is_empty() {
            (5, 0)
        } else {
            (1, 150_000_000)
        };
        let observed = || -> u64 {
            let (_, profile) = same(&["sh", "-c", &soft], options);
            profile.windows.iter().map(|w| w.accesses).sum()
        };
        assert!((0..runs).any(|_| observed() > least), "{options:?}");
        let hard = format!("ulimit -v 2000000; exec {program}");
        same(&["sh", "-c", &hard], options);
        // Children inherit it.
        let inherited = format!("ulimit -S -v 2000000; {program}; {program}");
        same(&["sh", "-c", &inherited], options);
    }
    // At a moment of its own: seen where its system calls are.
    same(&[&program, "2000000"], &["--full"]);
}

/// A program at a low fixed address has all of what is behind it for its heap, and is observed also where that leaves no room near its code.
#[test]
fn heaps_grow_from_where_programs_end() {
    let Some((_place, program)) = c::build_with("heap", &["-no-pie"]) else {
        return;
    };
    let program = text(&program);
    // From before the heap grows on, and with windows of a moment when it has.
    for (options, rounds, least) in [
        (&["--full"][..], "300", 14_000_000),
        (&[], "60000", 100_000),
    ] {
        let (found, profile) = same(&[&program, rounds], options);
        if lossy(&found.stdout).starts_with("skip") {
            println!("SKIP heap: the kernel does not grant it alone");
            return;
        }
        let observed: u64 = profile.windows.iter().map(|w| w.accesses).sum();
        println!("{options:?}: {observed}");
        assert!(observed > least, "{options:?}: {observed}");
    }
}

/// What we map into it is not allocated as a whole, as what it maps itself is.
#[test]
fn locked_memory_does_not_grow_by_ours() {
    let Some((_place, program)) = c::build("locks") else {
        return;
    };
    // A short run may have no window.
    for run in 0..5 {
        let (found, profile) = same(&[&text(&program)], &[]);
        let printed = lossy(&found.stdout);
        if printed.starts_with("not allowed") {
            println!("SKIP locked_memory_does_not_grow_by_ours: it may not be locked here");
            return;
        }
        assert_eq!(printed, "locked\nlittle\n");
        if lossy(&found.stderr).contains("nothing was observed: mmap") {
            println!("SKIP locked_memory_does_not_grow_by_ours: we may not lock as much here");
            return;
        }
        if !profile.windows.is_empty() {
            return;
        }
        println!("run {run}: nothing was mapped");
    }
    panic!("nothing was mapped");
}

/// Programs under filters that bear what we do are observed like any; filters are shown no call of a number that there is not.
#[test]
fn filters_that_bear_us_are_observed_through() {
    let built = ["sandbox", "filtered", "signals"].map(c::build);
    let [
        Some((_a, sandbox)),
        Some((_b, filtered)),
        Some((_c, signals)),
    ] = &built
    else {
        return;
    };
    let reads = reads_filters("filters_that_bear_us_are_observed_through");
    let (sandbox, filtered, signals) = (text(sandbox), text(filtered), text(signals));
    // The first takes on another one, in the middle of a window; the second is sent signals.
    let programs: [[&str; 2]; 2] = [[&filtered, "fail"], [&signals, "2000"]];
    let of = |profile: &statcache::profile::Profile| -> u64 {
        profile.windows.iter().map(|w| w.accesses).sum()
    };
    for [program, argument] in programs {
        let words = |how| [&sandbox as &str, how, program, argument];
        let (_, free) = same(&[program, argument], &["--full"]);
        let all = of(&free);
        for how in ["container", "service", "strict"] {
            let (_, profile) = same(&words(how), &["--full"]);
            let seen = of(&profile);
            let expected = reads && how != "strict";
            let is_whole = seen > all / 10 * 9;
            assert_eq!(is_whole, expected, "{program} {how}: {seen} of {all}");
        }
        same(&words("service"), &["--overhead", "400"]);
    }
}

/// As in most containers, the profiler's own filters are the program's, too.
#[test]
fn filters_that_are_ours_too_are_observed_through() {
    let built = ["sandbox", "signals"].map(c::build);
    let [Some((_a, sandbox)), Some((_b, signals))] = &built else {
        return;
    };
    let program = text(signals);
    let place = tempfile::tempdir().expect("a temporary directory");
    for how in ["container", "service"] {
        // A run of some hundredths of a second may be over before its first window.
        for (options, rounds) in [(&["--full"][..], "2000"), (&["--overhead", "400"], "40000")] {
            let words = [&program as &str, rounds];
            let alone = native(place.path(), &words, b"");
            let profile = place.path().join("p");
            let mut command = Command::new(sandbox);
            command
                .arg(how)
                .arg(env!("CARGO_BIN_EXE_statcache"))
                .args(["run", "-q", "-o"])
                .arg(&profile)
                .args(options)
                .arg("--")
                .args(words);
            let found = output(command, b"");
            assert_eq!(
                (shell_status(&found), lossy(&found.stdout)),
                (shell_status(&alone), lossy(&alone.stdout)),
                "{how} {options:?}: {}",
                lossy(&found.stderr)
            );
            let profile = readable(&profile);
            assert!(!profile.windows.is_empty(), "{how} {options:?}");
        }
    }
}

/// The window in which the filter comes ends there, unless it bears what we do.
#[test]
fn filters_of_system_calls_meet_none_of_ours() {
    let Some((_place, program)) = c::build("filtered") else {
        return;
    };
    let program = text(&program);
    for how in ["fail", "kill"] {
        let dense: &[&str] = &["--overhead", "400"];
        for options in WAYS.into_iter().chain([dense]) {
            let (found, _) = same(&[&program, how], options);
            assert_eq!(shell_status(&found), 0, "{how} {options:?}: {found:?}");
        }
    }
}

/// One that comes between windows ends what was still to be prepared for them.
#[test]
fn filters_that_come_late_meet_none_of_ours() {
    let Some((_place, program)) = c::build("filtered") else {
        return;
    };
    let program = text(&program);
    // Some of these lie between the first window and the second, on most machines.
    for rounds in ["200", "250", "300", "350", "400", "450", "500", "600"] {
        let (found, _) = same(&[&program, "kill", rounds], &[]);
        assert_eq!(shell_status(&found), 0, "{rounds}: {found:?}");
    }
}

/// A thread that sleeps in a page fault while it is observed keeps nobody from serving it.
#[test]
fn page_faults_are_served_by_other_threads() {
    let Some((_place, program)) = c::build("serves") else {
        return;
    };
    let program = text(&program);
    let dense: &[&str] = &["--overhead", "400"];
    for options in WAYS.into_iter().chain([dense]) {
        let (found, _) = same(&[&program], options);
        if lossy(&found.stdout).starts_with("not allowed") {
            println!(
                "SKIP page_faults_are_served_by_other_threads: userfaultfd(2) is not allowed here"
            );
            return;
        }
    }
}

#[test]
fn shadows_of_sanitizers_stay_free() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees/threads.c");
    for sanitizer in ["address", "thread"] {
        let place = tempfile::tempdir().expect("a temporary directory");
        let program = place.path().join("program");
        let built = Command::new("cc")
            .args(["-O1", "-g", "-pthread", &format!("-fsanitize={sanitizer}")])
            .arg("-o")
            .args([&program, &source])
            .output();
        match built {
            Ok(output) if output.status.success() => {}
            why => {
                println!("SKIP {sanitizer}: cannot be built here: {why:?}");
                continue;
            }
        }
        let program = text(&program);
        // That for leaks traces the process that it is in, which nobody else may do meanwhile.
        let words = [
            "env",
            "ASAN_OPTIONS=detect_leaks=0",
            &program,
            "2",
            "60",
            "5",
        ];
        let alone = native(place.path(), &words, b"");
        if shell_status(&alone) != 7 {
            println!("SKIP {sanitizer}: {}", lossy(&alone.stderr));
            continue;
        }
        for options in WAYS {
            same(&words, options);
        }
    }
}

/// `program` says that nothing failed, or that it cannot try, whatever the options are.
fn nothing_fails(test: &str, words: &[&str], right: &str, ways: &[&[&str]]) {
    for options in ways {
        let (found, _) = same(words, options);
        let said = lossy(&found.stdout);
        if said.starts_with("skip") {
            println!("SKIP {test}: {said}");
            return;
        }
        assert_eq!(said, format!("{right}\n"), "{options:?}");
    }
}

/// A stop is no interrupt to a file's server, nor to the verifier of programs for the kernel.
#[test]
fn servers_and_verifiers_are_not_interrupted() {
    let ways: [&[&str]; 3] = [&[], &["--overhead", "300"], &["--full"]];
    if let Some((place, program)) = c::build_with("served", &["-pthread"]) {
        let words = [
            &text(&program),
            &text(&place.path().join("served-files")),
            "30",
        ];
        nothing_fails("served", &words, "failed 0", &ways);
    }
    if let Some((_place, program)) = c::build_with("verified", &["-pthread"]) {
        nothing_fails("verified", &[&text(&program), "12"], "failed 0", &ways);
    }
}

/// What a process that is not observed writes to the program's code is executed, also where it is observed as a whole.
#[test]
fn code_that_others_patch_is_seen() {
    if let Some((_place, program)) = c::build("patched") {
        let ways: [&[&str]; 3] = [&["--no-follow"], &["--full", "--no-follow"], &["--full"]];
        nothing_fails("patched", &[&text(&program)], "new", &ways);
    }
}
