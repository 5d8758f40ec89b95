//! A write that a stop has cut is completed, whatever becomes of us: the program is told that all is written, and its registers and flags are its own.

use crate::support::c;
use nix::sys::ptrace;
use nix::unistd::Pid;
use statcache::tracee::hub::{self, Follow};
use statcache::tracee::{Event, Stopped, launch};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

const MUCH: usize = 1 << 20;

/// Waits until it sleeps in a write, and meanwhile sees to what happens to it.
fn until_full(pid: Pid) {
    let tells = |what: &str, that: &dyn Fn(&str) -> bool| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{what}"));
        text.is_ok_and(|text| that(&text))
    };
    // Not stopped at one.
    let writes = || {
        tells("stat", &|stat| stat.contains(") S "))
            && tells("syscall", &|call| call.starts_with("1 "))
    };
    while !writes() {
        std::thread::sleep(Duration::from_millis(1));
        hub::serve().expect("served");
    }
}

/// Stops the program in the middle of its write, does `then` with it on the thread that traces it, and ends that; reads what it writes. Returns
/// how much that is, and what it says of its call.
fn stopped_in_write(then: fn(Stopped)) -> Option<(usize, String)> {
    let (_place, program) = c::build("fills")?;
    let mut child = Command::new(&program)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let pid = Pid::from_raw(child.id() as i32);
    until_full(pid);
    let traced = std::thread::spawn(move || {
        let _hub = hub::open(Follow::Threads);
        ptrace::seize(pid, launch::options(Follow::Threads)).expect("seized");
        hub::add_found(pid);
        let event = hub::interrupt(pid).expect("alive").wait().expect("waited");
        let Event::Stopped(stopped) = event else {
            panic!("{event:?}");
        };
        assert!(hub::is_in_call(pid), "it goes on");
        then(stopped);
    });
    traced.join().expect("no panic");
    let (mut written, mut said) = (Vec::new(), String::new());
    let mut output = child.stdout.take().expect("a pipe");
    output.read_to_end(&mut written).expect("read");
    let mut errors = child.stderr.take().expect("a pipe");
    errors.read_to_string(&mut said).expect("read");
    assert_eq!(child.wait().expect("ended").code(), Some(4));
    let expected = |i: usize| ((i * i) >> 9) as u8;
    assert!(written.iter().enumerate().all(|(i, &b)| b == expected(i)));
    Some((written.len(), said))
}

#[test]
fn a_write_is_completed_whoever_is_left() {
    // As a kill of the monitor would: the thread is let go while it is stopped, or asleep in the rest of its call. (Where it is stopped at
    // the entry to that, the kernel's own way of letting it go may cut the call.)
    let ways: [fn(Stopped); 2] = [drop, |stopped| {
        let pid = stopped.tid();
        hub::release(Event::Stopped(stopped));
        until_full(pid);
    }];
    for way in ways {
        let Some((written, said)) = stopped_in_write(way) else {
            return;
        };
        assert_eq!(written, MUCH);
        assert_eq!(said, format!("{MUCH}, registers same\n"));
    }
}

#[test]
fn who_is_left_is_told_what_is_written_and_keeps_nothing_of_ours() {
    let leave = |stopped: Stopped| stopped.detach(0).expect("detached");
    let Some((written, said)) = stopped_in_write(leave) else {
        return;
    };
    assert!(written > 0 && written < MUCH, "{written}");
    assert_eq!(said, format!("{written}, registers same\n"));
}
