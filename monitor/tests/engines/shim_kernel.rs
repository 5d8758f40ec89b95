//! What the kernel does on watched pages, in system calls and on its own account: nothing fails that would not fail alone, nothing
//! is lost, nobody sleeps for ever. Each behaviour is a program of `tests/tracees/shim`.

use crate::support::shimmed::{Seen, both, exact, hits, said};
use statcache_abi::{ended, kind};

/// Every watch of the run ended by `why`, none by a touch.
fn all_ended(seen: &Seen, why: u32) -> bool {
    let mut endings = seen.events.iter().filter(|event| event.kind == kind::ENDED);
    endings.all(|event| event.detail == why)
}

#[test]
fn read() {
    if let Some(seen) = both("read", &[]) {
        assert!(seen.counted.syscalls_opened > 30 && seen.counted.hits > 0);
    }
}

#[test]
fn readv_into_several_watched_pages() {
    if let Some(seen) = exact("readv") {
        assert!(seen.counted.syscalls_opened >= 40);
    }
}

#[test]
fn recvmsg() {
    exact("recvmsg");
}

#[test]
fn calls_by_the_instruction_itself() {
    exact("direct");
}

/// Some eighty calls, each with its operands on watched pages.
#[test]
fn calls_of_many_kinds() {
    if let Some(seen) = both("calls", &[]) {
        assert!(seen.counted.syscalls_opened > 60, "{:?}", seen.counted);
    }
}

/// How many calls meet a watched page is chance, twenty to many hundreds a run: again where they were few.
#[test]
fn a_stream_under_signals_and_passing_watches() {
    let mut few = Vec::new();
    while few.len() < 6 {
        let Some(seen) = both("stream", &["1200000"]) else {
            return;
        };
        assert!(seen.counted.chained > 0, "{:?}", seen.counted);
        if seen.counted.syscalls_opened > 100 {
            return;
        }
        few.push(seen.counted);
    }
    panic!("{few:?}");
}

#[test]
fn locks_on_a_watched_page() {
    if let Some(seen) = both("sync", &[]) {
        assert!(seen.counted.syscalls_opened > 100, "{:?}", seen.counted);
    }
}

/// The kernel clears a word at the end of a thread, and releases the locks of threads and processes that end.
#[test]
fn words_the_kernel_writes_when_a_thread_ends() {
    both("clear_tid", &[]);
}

#[test]
fn robust_locks_of_owners_that_end() {
    both("robust", &[]);
    both("robust", &["by a fault"]);
}

#[test]
fn threads_that_come_and_go_while_their_stacks_are_watched() {
    both("leaving", &[]);
}

#[test]
fn what_libraries_do_to_all_threads() {
    both("groups", &[]);
}

/// The kernel grows a stack with the protection of its lowest page, so that one is never watched.
#[test]
fn a_stack_that_grows() {
    // Every pass over the line is a hit too, wherever the frames lie.
    if let Some(seen) = both("stack_growth", &[]) {
        assert!(hits(&seen, |_| 64)[&2] >= 1);
    }
}

#[test]
fn no_memory_to_spare() {
    exact("data_limit");
}

/// A watch whose page cannot be protected again has ended, and says so.
#[test]
fn no_mapping_to_spare() {
    let Some(seen) = both("map_limit", &[]) else {
        return;
    };
    let (hits, said) = (hits(&seen, |_| 64), said(&seen.printed));
    for (id, times) in said {
        let ended = seen.events.iter().any(|event| {
            event.kind == kind::ENDED && event.id == id && event.detail == ended::UNMAPPED
        });
        let seen = hits.get(&id).copied().unwrap_or(0);
        assert!(seen == times || ended, "{id}: {seen} of {times}");
    }
}

#[test]
fn memory_that_moves() {
    both("remap", &[]);
}

#[test]
fn stopped_and_continued() {
    both("halted", &[]);
}

#[test]
fn masks_and_signals_of_faults() {
    both("masks", &[]);
}

/// Nothing may be watched where the kernel uses memory when nobody is in a system call.
#[test]
fn io_uring() {
    for arguments in [&[][..], &["armed before"]] {
        let Some(seen) = both("uring", arguments) else {
            return;
        };
        assert!(all_ended(&seen, ended::UNMAPPED));
    }
}

/// The shim's own calls must not meet a filter: it has gone before there is one.
#[test]
fn filters_of_system_calls() {
    for way in ["0", "1", "2"] {
        both("strict", &[way]);
    }
    for all in ["0", "1"] {
        both("sealed", &[all]);
    }
}

#[test]
fn a_process_that_shares_the_memory() {
    if let Some(seen) = both("borrowed", &[]) {
        assert!(all_ended(&seen, ended::UNMAPPED));
    }
}

#[test]
fn exec_by_another_thread_than_the_first() {
    both("exec_thread", &[]);
}

#[test]
fn handlers_set_when_the_last_watch_has_gone_and_a_thread_still_sleeps() {
    both("late_handler", &[]);
}
