//! `statcache run` from the outside: the program does not notice, and a profile is left.

use crate::support::cli::{
    WAYS, installed, lossy, native, output, readable, run, shell_status, text, under,
};
use crate::support::tracees::{Tracees, exclusive};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use statcache::profile::Profile;
use statcache::profile::types::{FirstTouches, Memory, Outcome, Since, WindowRecord};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A directory with something to work on.
fn input() -> tempfile::TempDir {
    let directory = directory();
    let mut lines = String::new();
    let mut state = 99u64;
    for line in 0..20_000 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        lines += &format!("{:x} line {line} of the input\n", state >> 36);
    }
    std::fs::write(directory.path().join("text"), lines).expect("written");
    for name in ["a", "b", "c"] {
        std::fs::create_dir(directory.path().join(name)).expect("created");
    }
    directory
}

/// Output and status are those of the program alone, and a profile is left.
fn transparent(words: &[&str], stdin: &[u8]) {
    let Some(program) = installed(words[0]) else {
        return;
    };
    let program = text(&program);
    let words = [&[program.as_str()], &words[1..]].concat();
    let input = input();
    let profiles = directory();
    let expected = native(input.path(), &words, stdin);
    for way in WAYS {
        let found = under(input.path(), profiles.path(), way, &words, stdin);
        assert_eq!(
            shell_status(&found),
            shell_status(&expected),
            "{words:?} {way:?}: {}",
            lossy(&found.stderr)
        );
        assert!(
            found.stdout == expected.stdout,
            "{words:?} {way:?}: {}",
            lossy(&found.stdout)
        );
        let profile = readable(&profiles.path().join("p"));
        let status = profile
            .footer
            .as_ref()
            .and_then(|footer| footer.exit_status);
        assert_eq!(status, Some(shell_status(&expected)), "{words:?} {way:?}");
        if way.contains(&"--full") {
            assert!(
                profile.windows.iter().map(|w| w.accesses).sum::<u64>() > 1000,
                "{words:?}"
            );
        }
    }
}

#[test]
fn ls() {
    // Not ".": beside ours others come and go in the directory above.
    transparent(&["ls", "-laR", "a", "b", "c", "text"], b"");
}

#[test]
fn sort() {
    transparent(&["sort", "-k2", "text"], b"");
}

#[test]
fn gzip() {
    transparent(&["gzip", "-nc", "text"], b"");
}

#[test]
fn xz_with_threads() {
    transparent(&["xz", "-1", "-c", "-T2", "text"], b"");
}

#[test]
fn sqlite3() {
    let query = "with recursive c(x) as (select 1 union all select x+1 from c limit 20000) \
        select x % 13, count(*), sum(x*x) from c group by 1 order by 3 desc;";
    transparent(&["sqlite3", ":memory:", query], b"");
}

#[test]
fn awk() {
    transparent(
        &[
            "awk",
            "{ n[$1 % 17] += length($0) } END { for (i in n) print i, n[i] }",
            "text",
        ],
        b"",
    );
}

#[test]
fn bc_reads_standard_input() {
    transparent(
        &["bc", "-l"],
        b"scale=60\n4*a(1)\nfor (i = 0; i < 300; ++i) s += i^3\ns\n",
    );
}

#[test]
fn cat_passes_a_megabyte_through() {
    let bytes: Vec<u8> = (0..1 << 20)
        .map(|n: u32| (n.wrapping_mul(2654435761) >> 13) as u8)
        .collect();
    transparent(&["cat"], &bytes);
}

#[test]
fn python3() {
    let program = "import json, re, hashlib\n\
        d = {str(i): [i * j for j in range(9)] for i in range(3000)}\n\
        print(hashlib.md5(json.dumps(d).encode()).hexdigest(), len(re.findall('1[0-9]+', str(d))))";
    transparent(&["python3", "-S", "-c", program], b"");
}

#[test]
fn perl() {
    let program =
        "my %h; $h{$_ % 997} .= chr(65 + $_ % 26) for 1..60000; print map { length } @h{1..9}";
    transparent(&["perl", "-e", program], b"");
}

#[test]
fn grep_that_finds_nothing() {
    transparent(&["grep", "-c", "no such line", "text"], b"");
}

#[test]
fn checksum() {
    transparent(&["sha256sum", "text"], b"");
}

#[test]
fn tar() {
    transparent(&["tar", "cf", "-", "text", "a"], b"");
}

#[test]
fn shell_with_pipes_and_children() {
    transparent(
        &[
            "sh",
            "-c",
            "cut -c1-3 text | sort | uniq -c | head -40; (exit 7)",
        ],
        b"",
    );
}

#[test]
fn chain_of_execs() {
    let chain =
        "exec sh -c 'x=1; exec sh -c \"exec awk \\\"{ s += length } END { print s }\\\" text\"'";
    transparent(&["sh", "-c", chain], b"");
}

#[test]
fn program_killed_by_a_fault() {
    transparent(&["sh", "-c", "echo before; kill -SEGV $$"], b"");
}

#[test]
fn program_that_aborts() {
    transparent(
        &[
            "python3",
            "-S",
            "-c",
            "import os; print('x', flush=True); os.abort()",
        ],
        b"",
    );
}

#[test]
fn signal_handlers_of_a_shell() {
    let script = "trap 'echo caught' USR1; i=0; while [ $i -lt 40 ]; do kill -USR1 $$; i=$((i+1)); done; \
        trap 'echo bye; exit 3' TERM; kill -TERM $$; echo not here";
    transparent(&["sh", "-c", script], b"");
}

#[test]
fn tracees_with_signals_and_faults() {
    let _turn = exclusive();
    for (name, arg) in [
        ("alarms", ""),
        ("faults", ""),
        ("ignored", ""),
        ("patient", ""),
        ("dies", "11"),
        ("dies", "15"),
    ] {
        let Some((_tracees, program)) = Tracees::build(name) else {
            return;
        };
        let profiles = directory();
        let program = text(&program);
        let words = [program.as_str(), arg];
        for way in WAYS {
            for _ in 0..5 {
                let found = under(Path::new("/"), profiles.path(), way, &words, b"");
                let printed = lossy(&found.stdout);
                if name == "dies" {
                    assert_eq!(
                        shell_status(&found),
                        128 + arg.parse::<i32>().expect("a number"),
                        "{found:?}"
                    );
                } else {
                    assert_eq!(shell_status(&found), 0, "{name} {way:?} {found:?}");
                    assert!(
                        printed.starts_with(&format!("ok {name} ")),
                        "{name} {way:?} {found:?}"
                    );
                }
                readable(&profiles.path().join("p"));
            }
        }
    }
}

#[test]
fn other_threads_and_children_are_observed() {
    let _turn = exclusive();
    if installed("python3").is_none() {
        return;
    }
    for way in WAYS {
        // A short run that is sampled may have no window of them.
        let (runs, times) = if way.is_empty() { (5, 10) } else { (1, 1) };
        let threads = format!(
            "import threading, hashlib\n\
            def work(): hashlib.pbkdf2_hmac('sha256', b'x', b'y', {times}*60000)\n\
            all = [threading.Thread(target=work) for _ in range(2)]\n\
            [t.start() for t in all]; [t.join() for t in all]; print('done')"
        );
        let child =
            format!("i=0; while [ $i -lt $(({times}*40000)) ]; do i=$((i+1)); done; echo done");
        let commands: [&[&str]; 2] = [
            &["python3", "-S", "-c", &threads],
            &["sh", "-c", &format!("sh -c '{child}'; exit 5")],
        ];
        for words in commands {
            let program = text(&installed(words[0]).expect("every system has a shell"));
            let words = [&[program.as_str()], &words[1..]].concat();
            let seen = (0..runs).any(|_| seen_of_others(&words, way) > 0);
            assert!(seen, "{words:?} {way:?}");
        }
    }
}

/// Windows of threads but the first and of children, in a run that ends as it does alone.
fn seen_of_others(words: &[&str], way: &[&str]) -> usize {
    let profiles = directory();
    let found = under(profiles.path(), profiles.path(), way, words, b"");
    assert_eq!(found.stdout, b"done\n", "{found:?}");
    let status = if words[0].ends_with("sh") { 5 } else { 0 };
    assert_eq!(shell_status(&found), status, "{}", lossy(&found.stderr));
    let profile = readable(&profiles.path().join("p"));
    let first = profile.header.pid;
    let of_threads =
        |w: &&WindowRecord| w.tid != first || w.threads.iter().any(|share| share.tid != first);
    let of_children = profile.others.iter().map(|p| p.windows.len());
    profile.windows.iter().filter(of_threads).count() + of_children.sum::<usize>()
}

/// Rust's runtime opens `/dev/null` for us where a descriptor is missing; the program does without as it would alone.
#[test]
fn descriptors_closed_at_the_start_stay_closed() {
    let profiles = directory();
    let look = "for d in 0 1 2; do [ -e /proc/self/fd/$d ] && echo $d >> \"$0\"; done; exit 5";
    for (closing, left) in [("<&-", "1\n2\n"), (">&-", "0\n2\n"), ("<&- >&- 2>&-", "")] {
        let seen = profiles.path().join("seen");
        std::fs::write(&seen, "").expect("written");
        let line = format!(
            "exec {} run -q -o {} -- sh -c '{look}' {} {closing}",
            env!("CARGO_BIN_EXE_statcache"),
            profiles.path().join("p").display(),
            seen.display()
        );
        let found = native(profiles.path(), &["sh", "-c", &line], b"");
        assert_eq!(shell_status(&found), 5, "{closing}: {found:?}");
        let seen = std::fs::read_to_string(&seen).expect("written");
        assert_eq!(seen, left, "{closing}");
    }
}

#[test]
fn closed_pipe_kills_the_program_as_it_would_alone() {
    let _turn = exclusive();
    let profiles = directory();
    let statcache = env!("CARGO_BIN_EXE_statcache");
    let profile = text(&profiles.path().join("p"));
    for way in ["", "--full"] {
        for (trap, expected) in [("", "141"), ("trap '' PIPE; ", "1")] {
            let script = format!(
                "{trap}{{ {statcache} run -q -o {profile} {way} yes 2>/dev/null; echo $? >&2; }} | head -n 1"
            );
            let found = Command::new("sh")
                .args(["-c", &script])
                .output()
                .expect("run");
            assert_eq!(lossy(&found.stderr).trim(), expected, "{script}");
            assert_eq!(found.stdout, b"y\n");
        }
    }
}

/// Who reads what we say may have gone, or have no room for it.
#[test]
fn nobody_hears_what_is_said() {
    let directory = directory();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let full = full.expect("opened");
    for way in WAYS {
        let mut command = run(&directory.path().join("p"), way);
        command.args(["sh", "-c", "sleep 0.2; exit 7"]);
        let status = command.stderr(full.try_clone().expect("another")).status();
        assert_eq!(status.expect("run").code(), Some(7));
    }
    let mut command = run(&directory.path().join("p"), WAYS[0]);
    let command = command.arg("no-such-program-anywhere").stderr(full);
    assert_eq!(command.status().expect("run").code(), Some(127));
}

/// As of daemons, which leave what started them.
#[test]
fn what_outlives_the_program_is_told_of() {
    let directory = directory();
    for way in WAYS {
        let script = "sleep 300 >&- 2>&- & echo $!; exec sleep 0.3";
        let mut command = run(&directory.path().join("p"), way);
        let found = command.args(["sh", "-c", script]).output().expect("run");
        assert!(found.status.success(), "{found:?}");
        let (said, pid) = (lossy(&found.stderr), lossy(&found.stdout));
        let went_on = format!("went on ({})", pid.trim());
        let pid = Pid::from_raw(pid.trim().parse().expect("a number"));
        kill(pid, Signal::SIGKILL).expect("it goes on");
        assert!(said.contains(&went_on), "{went_on}: {said}");
    }
    // Where it waits for them nothing is said.
    let mut command = run(&directory.path().join("p"), WAYS[0]);
    let waits = command.args(["sh", "-c", "sleep 0.2 & wait"]).output();
    let said = lossy(&waits.expect("run").stderr);
    assert!(!said.contains("went on"), "{said}");
}

#[test]
fn program_that_exits_inside_a_window_has_a_whole_profile() {
    let _turn = exclusive();
    let Some((_tracees, program)) = Tracees::build("plain") else {
        return;
    };
    let profiles = directory();
    let found = under(
        Path::new("/"),
        profiles.path(),
        &["--full"],
        &[&text(&program)],
        b"",
    );
    assert_eq!(shell_status(&found), 0, "{found:?}");
    let profile = readable(&profiles.path().join("p"));
    let footer = profile.footer.as_ref().expect("readable");
    let accesses: u64 = profile.windows.iter().map(|w| w.accesses).sum();
    let expected: u64 = lossy(&found.stdout)
        .rsplit(' ')
        .next()
        .and_then(|n| n.trim().parse().ok())
        .expect("its number of accesses");
    assert!(
        accesses >= expected && accesses < expected + 1500,
        "{accesses} {expected}"
    );
    assert_eq!(footer.accesses_estimated.value, accesses as f64);
    // Lines that were not touched again by the end are known not to be: no watch was cut.
    let samples = profile.windows.iter().flat_map(|w| &w.samples);
    for outcome in samples.flat_map(|s| s.sample.own) {
        assert!(!matches!(outcome, Outcome::Censored { .. }), "{outcome:?}");
    }
}

/// Not the program, which is the larger one.
#[test]
fn the_profiler_is_killed_first_where_memory_runs_out() {
    let place = directory();
    // The program is started before.
    let script = "sleep 0.5; cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj";
    let words = ["sh", "-c", script];
    let found = under(place.path(), place.path(), &[], &words, b"");
    let ours = std::fs::read_to_string("/proc/self/oom_score_adj").expect("there");
    assert_eq!(lossy(&found.stdout), format!("{ours}1000\n"));
}

#[test]
fn same_seed_gives_the_same_samples() {
    let _turn = exclusive();
    if installed("sqlite3").is_none() {
        return;
    }
    let mut fixed = Command::new("true");
    // SAFETY: personality only sets a number in the child; it is async-signal-safe.
    unsafe {
        fixed.pre_exec(
            || match libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            },
        );
    }
    if let Err(error) = fixed.status() {
        println!("SKIP same_seed_gives_the_same_samples: addresses cannot be fixed here: {error}");
        return;
    }
    // In memory: the name of a temporary file is drawn from /dev/urandom, and its number of digits
    // changes what formatting it costs.
    let query = "pragma temp_store=memory; \
        with recursive c(x) as (select 1 union all select x+1 from c limit 5000) \
        select x % 13, count(*), sum(x*x) from c group by 1 order by 3 desc;";
    let sample = |seed: &str| {
        let profiles = directory();
        let mut command = Command::new(env!("CARGO_BIN_EXE_statcache"));
        let path = profiles.path().join("p");
        command
            .args(["run", "--full", "--seed", seed, "-o"])
            .arg(&path);
        command.args(["sqlite3", ":memory:", query]).env_clear();
        // SAFETY: personality only sets a number in the child; it is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                Ok(())
            });
        }
        command.env("PATH", "/usr/bin:/bin");
        let found = output(command, b"");
        assert_eq!(shell_status(&found), 0, "{found:?}");
        let profile = readable(&path);
        let windows: Vec<_> = profile
            .windows
            .iter()
            .map(|w| (w.accesses, w.refs))
            .collect();
        let samples: Vec<_> = profile
            .windows
            .iter()
            .flat_map(|w| &w.samples)
            .map(|s| {
                (
                    s.taken_in,
                    s.sample.address,
                    s.sample.position,
                    s.sample.ip,
                    s.sample.own,
                )
            })
            .collect();
        (windows, samples)
    };
    let (one, other, third) = (sample("5"), sample("5"), sample("6"));
    assert_eq!(one.0, other.0, "windows");
    assert_eq!(one.1.len(), other.1.len(), "samples");
    for (a, b) in one.1.iter().zip(&other.1) {
        assert_eq!(a, b);
    }
    assert_ne!(one.1, third.1, "another seed");
}

/// The profile of a Python program; `None` without Python.
fn of_python(program: &str, options: &[&str]) -> Option<Profile> {
    let _turn = exclusive();
    // Not what stands for it in PATH: that may be a script of many processes.
    let python = text(&installed("python3")?);
    let profiles = directory();
    let words = [python.as_str(), "-S", "-c", program];
    let found = under(Path::new("/"), profiles.path(), options, &words, b"");
    assert_eq!(shell_status(&found), 0, "{found:?}");
    Some(readable(&profiles.path().join("p")))
}

/// Memory that the program maps while it is observed is its heap, not something unknown.
#[test]
fn memory_mapped_in_a_window_is_heap() {
    let program = "x = [bytearray(1 << 20) for _ in range(20)]\n\
        print(sum(y[i] for y in x for i in range(0, 1 << 20, 1024)))";
    let Some(profile) = of_python(program, &["--full"]) else {
        return;
    };
    let samples = || profile.windows.iter().flat_map(|w| &w.samples);
    let of = |memory| samples().filter(|s| s.sample.memory == memory).count();
    let (heap, unknown, all) = (of(Memory::Heap), of(Memory::Mapping), samples().count());
    println!("{heap} of {all} samples in the heap, {unknown} unknown");
    assert!(
        10 * heap > all && 50 * unknown < heap,
        "{heap} {unknown} {all}"
    );
}

/// A file that the program maps is told by its name, whether or not it is shared with others.
#[test]
fn mapped_files_are_named() {
    let program = "import mmap, tempfile\n\
        for how in 'SHARED', 'PRIVATE':\n    \
            f = tempfile.NamedTemporaryFile(suffix='.' + how); f.truncate(1 << 22)\n    \
            m = mmap.mmap(f.fileno(), 0, getattr(mmap, 'MAP_' + how))\n    \
            print(sum(m.find(b'x') for _ in range(40)))";
    let Some(profile) = of_python(program, &["--full"]) else {
        return;
    };
    let samples = || profile.windows.iter().flat_map(|w| &w.samples);
    for how in [".SHARED", ".PRIVATE"] {
        let of_file = samples().filter(|s| match s.sample.memory {
            Memory::Static { module, .. } => profile.modules[module as usize].path.ends_with(how),
            _ => false,
        });
        let (found, all) = (of_file.count(), samples().count());
        println!("{found} of {all} samples in the file that ends with {how}");
        assert!(20 * found > all, "{how}: {found} of {all}");
    }
}

/// Where all accesses of a window are looked at, who touches lines for the first time is told.
#[test]
fn short_windows_tell_first_touches() {
    let program = "x = list(range(1000000))\nfor _ in range(120): sum(x)";
    let Some(profile) = of_python(program, &[]) else {
        return;
    };
    let looked = |w| -> Option<(&WindowRecord, &FirstTouches)> {
        let window: &WindowRecord = w;
        Some((window, window.first_touches.as_ref()?))
    };
    let first: Vec<_> = profile.windows.iter().filter_map(looked).collect();
    assert!(2 * first.len() >= profile.windows.len(), "{}", first.len());
    assert!(first.iter().any(|(_, first)| !first.touches.is_empty()));
    for (window, first) in first {
        assert!(first.seen >= first.touches.len() as u64);
        let mut touches = first.touches.iter();
        assert!(touches.all(|touch| touch.position <= window.refs[2]));
    }
}

/// A run observed as a whole is divided into epochs, and lines drawn at random tell who returns to them.
#[test]
fn whole_runs_tell_who_returns_to_lines() {
    let program = "x = list(range(300000))\nfor _ in range(8): sum(x)";
    let Some(profile) = of_python(program, &["--full"]) else {
        return;
    };
    if !statcache::arch::Fast::here().pext {
        return println!("SKIP returns: no fast pext");
    }
    let (mut returns, mut far) = (0, 0);
    for window in &profile.windows {
        let first = window.first_touches.as_ref();
        let first = first.expect("looked for in every window of one thread");
        assert!(first.epochs[0] == 0 && first.epochs.is_sorted());
        assert!(first.seen >= first.touches.len() as u64);
        returns += first.touches.len();
        for touch in &first.touches {
            assert!(touch.position <= window.refs[2]);
            if let Since::Between(least, most) = touch.since {
                assert!(least < most);
                far += u32::from(least > 1_000_000);
            }
        }
    }
    println!("{returns} returns, {far} of them after more than a million references");
    // Each round reads numbers that lie in some hundred thousand lines, one in a hundred of them drawn.
    assert!(returns > 1000 && far > 500, "{returns} {far}");
}
