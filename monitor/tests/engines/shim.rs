//! The shim's torture set: each program of `tests/tracees/shim` does with watches armed exactly what it does without, and
//! what it says it did to each watched line is what the shim reports. What the kernel does on watched pages is `shim_kernel`'s.

use crate::support::shimmed::{both, exact, hits, run, said};
use statcache::engine::counter::shim::Inherited;
use statcache_abi::{Event, kind};
use std::path::Path;
use std::process::{Command, Output, Stdio};

#[test]
fn line_sizes_and_neighbours() {
    let Some(seen) = both("lines", &[]) else {
        return;
    };
    let bytes = |id| [0, 16, 64, 256, 128][id as usize];
    assert_eq!(hits(&seen, bytes), said(&seen.printed));
    // Near misses were met and told apart: both kinds of doubt, and plain false hits.
    assert!(seen.counted.maybes > 2 && seen.counted.false_hits > 300);
}

#[test]
fn watched_stack() {
    exact("stack");
}

#[test]
fn system_calls_on_watched_pages() {
    if let Some(seen) = exact("kernel") {
        assert!(seen.counted.syscalls_opened > 10);
    }
}

#[test]
fn the_kernel_comes_to_write_to_watched_pages() {
    if let Some(seen) = exact("restartable") {
        let ended = |id| {
            let of = |event: &&Event| event.kind == kind::ENDED && event.id == id;
            seen.events.iter().filter(of).count()
        };
        assert_eq!([ended(1), ended(2)], [1, 1]);
    }
}

#[test]
fn interrupted_system_calls() {
    exact("interrupted");
}

#[test]
fn two_threads_on_one_page() {
    let Some(seen) = both("two_threads", &[]) else {
        return;
    };
    let (hits, said) = (hits(&seen, |_| 64), said(&seen.printed));
    // No watch reports twice, and none what was not done. One may report nothing: where the neighbour loses the processor
    // while it steps, the page is open to all threads for tens of milliseconds, and a round takes one. The watch says so.
    assert!(hits.iter().all(|(id, n)| *n == 1 && said[id] == 1));
    for id in said.keys().filter(|id| !hits.contains_key(id)) {
        let of = |event: &&Event| event.kind == kind::ENDED && event.id == *id;
        let ending = seen.events.iter().find(of).expect("an end");
        assert!(ending.blind > 1 << 18, "{ending:?}");
    }
}

#[test]
fn no_atomic_update_is_lost() {
    let Some(seen) = both("atomics", &[]) else {
        return;
    };
    // What a thread does while the page is open for the other goes unseen; the shim says for how long.
    assert!(
        (1..=24_000 * 2).contains(&seen.counted.hits),
        "{:?}",
        seen.counted
    );
    assert!(seen.counted.blind_ticks > 0);
}

#[test]
fn line_touched_by_signal_handlers() {
    exact("handler");
}

#[test]
fn program_with_faults_of_its_own() {
    if let Some(seen) = exact("own_faults") {
        assert!(seen.counted.own_faults >= 29, "{:?}", seen.counted);
    }
}

#[test]
fn program_changes_protection() {
    exact("mprotect");
}

#[test]
fn program_unmaps_and_moves() {
    let Some(seen) = exact("unmap") else { return };
    let ended = |id| {
        let of = |event: &&Event| event.kind == kind::ENDED && event.id == id;
        seen.events.iter().find(of).map(|event| event.detail)
    };
    use statcache_abi::ended::{DISARMED, UNMAPPED};
    let endings = [0, 1, 2, 3, 4, 5, 9].map(ended);
    let unmapped = Some(UNMAPPED);
    let kept = Some(DISARMED);
    assert_eq!(
        endings,
        [unmapped, unmapped, unmapped, kept, unmapped, kept, unmapped]
    );
}

#[test]
fn fork_and_threads_while_armed() {
    if let Some(seen) = exact("fork") {
        assert_eq!(seen.counted.forks, 3);
    }
}

#[test]
fn exec_while_armed() {
    exact("exec");
}

#[test]
fn string_instructions() {
    exact("strings");
}

#[test]
fn threads_asleep_when_the_first_watch_comes() {
    exact("sleepers");
}

#[test]
fn longjmp_out_of_a_fault_handler() {
    exact("longjmp");
}

#[test]
fn death_by_the_program_s_own_fault() {
    for how in ["0", "1", "2", "3", "4", "5", "6"] {
        both("dies", &[how]);
    }
}

/// The object brings all it needs: a symbol left open would be bound to the program's libraries, at the worst moment.
#[test]
fn shim_needs_nothing() {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(statcache::engine::counter::shim::IMAGE).expect("an object");
    let open: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined() && !symbol.name().unwrap_or("").is_empty())
        .map(|symbol| symbol.name().map(str::to_owned))
        .collect();
    assert!(open.is_empty(), "{open:?}");
    let exported: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    assert_eq!(exported, ["statcache_shim_call", "statcache_shim_places"]);
}

/// Programs nobody here wrote, with lines of all their memory armed at random while they run: same output, same end.
#[test]
fn unknown_programs_with_lines_armed_at_random() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = directory.path().join("chaos.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tracees/shim/chaos.c");
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        println!("SKIP chaos: cannot be built here");
        return;
    }
    let count = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo $i; exit 23";
    let pipes = "for i in 1 2 3 4 5; do echo $i | tr 1-5 a-e; done; trap 'echo usr' USR1; kill -USR1 $$; exit 4";
    let awk = "BEGIN { for (i = 0; i < 100000; i++) n[i % 9973] += i; print n[17]; exit 6 }";
    let python = "import threading\nr=[]\nts=[threading.Thread(target=lambda k=k: r.append(sum(i*k for i in range(20000)))) for k in range(4)]\n[t.start() for t in ts]; [t.join() for t in ts]; print(sorted(r))";
    let programs: [&[&str]; 4] = [
        &["sh", "-c", count],
        &["bash", "-c", pipes],
        &["awk", awk],
        &["python3", "-S", "-c", python],
    ];
    for words in programs {
        let command = || {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        };
        if command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            println!("SKIP chaos {}: not installed", words[0]);
            continue;
        }
        let native = run(command());
        let shim = Inherited::create().expect("a shim");
        let mut watched = command();
        watched.envs(shim.environment());
        let preload = format!("{} {}", shim.path().display(), library.display());
        watched.env("LD_PRELOAD", preload);
        let watched = run(watched);
        let ended = |output: &Output| (output.stdout.clone(), output.status.code());
        assert_eq!(ended(&watched), ended(&native), "{words:?}: {watched:?}");
    }
}
