//! What the seccomp filters of a thread do to the system calls that we have it make.
//!
//! A filter is a classic BPF program that is shown the number of a call and its arguments. Root may read them; they are gone through here as the
//! kernel would, both ways wherever what is not known in advance decides. A call is *borne* where every way ends with the call being made or failing with an
//! error, and not with the end of the thread, a signal, or somebody else being asked.
//!
//! Sources: seccomp(2); ptrace(2), `PTRACE_SECCOMP_GET_FILTER`; linux/net/core/filter.c, `bpf_check_classic`; linux/kernel/seccomp.c,
//! `seccomp_check_filter`.
//!
//! Unsafe invariant: the kernel writes to a live buffer that is as long as a filter can be.

use super::{Stopped, status};
use libc::sock_filter;

/// Whether a thread can make the calls that we need of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// It has none.
    None,
    /// It has no filters but those it has from us, who could make the same calls.
    Inherited,
    /// It has, and they bear what we need.
    Borne,
    /// It cannot, and why.
    Against(&'static str),
}

/// A call that does nothing and has no arguments, by which threads say something to whoever traces them: most filters let it through.
pub const HARMLESS_SYSCALL: i64 = libc::SYS_getpid;

/// Why a thread is not observed whose filters we cannot read.
pub const UNREADABLE: &str = "a seccomp filter of the program's own that cannot be read from here";
/// Why a thread is not observed whose filters would end it.
pub const HARMFUL: &str = "a seccomp filter of the program's own that bears no calls of ours";

/// Looks through the filters of a stopped thread.
pub fn of(stopped: &Stopped) -> Filters {
    let tid = stopped.tid();
    match status::seccomp_filters(tid) {
        0 => return Filters::None,
        _ if !status::is_filtered(tid) => return Filters::Inherited,
        _ => {}
    }
    match read(stopped) {
        None => Filters::Against(UNREADABLE),
        Some(filters) if bear(&filters, status::locks_memory(tid)) => Filters::Borne,
        Some(_) => Filters::Against(HARMFUL),
    }
}

/// All filters of a stopped thread. `None`: they cannot be read. That takes `CAP_SYS_ADMIN`, a kernel that can checkpoint
/// processes, and no filters of our own; nor is there anything to read of strict mode.
fn read(stopped: &Stopped) -> Option<Vec<Vec<sock_filter>>> {
    const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
    let nothing = sock_filter {
        code: 0,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let mut buffer = vec![nothing; libc::BPF_MAXINSNS as usize];
    let mut filters = Vec::new();
    loop {
        // SAFETY: the kernel writes one filter, and takes none of more instructions than the buffer is for (`BPF_MAXINSNS`).
        let length = unsafe {
            libc::ptrace(
                PTRACE_SECCOMP_GET_FILTER,
                stopped.tid().as_raw(),
                filters.len(),
                buffer.as_mut_ptr(),
            )
        };
        match usize::try_from(length) {
            Ok(length) => filters.push(buffer.get(..length)?.to_vec()),
            Err(_) if nix::errno::Errno::last() == nix::errno::Errno::ENOENT => {
                return Some(filters);
            }
            Err(_) => return None,
        }
    }
}

/// A system call, with what is known of its arguments.
struct Call(i64, [Option<u64>; 6]);

/// Calls that must not fail either: one that we have interrupted is the program's own, and what cannot be taken away stays.
const MUST_BE_MADE: [i64; 3] = [libc::SYS_restart_syscall, libc::SYS_munmap, libc::SYS_close];

/// The calls that we have a thread make (`engine/translate/target.rs`, `session/leave.rs`), and those that come of our stopping it or being killed.
fn needed(locks_memory: bool) -> Vec<Call> {
    const ANY: [Option<u64>; 6] = [None; 6];
    let with = |at: usize, value: i32| {
        let mut args = ANY;
        args[at] = Some(value as u64);
        args
    };
    let protections = [
        libc::PROT_READ | libc::PROT_WRITE,
        libc::PROT_READ | libc::PROT_EXEC,
    ];
    let mut calls = vec![
        Call(HARMLESS_SYSCALL, ANY),
        Call(libc::SYS_restart_syscall, ANY),
        Call(libc::SYS_memfd_create, ANY),
        Call(libc::SYS_close, ANY),
        Call(libc::SYS_munmap, ANY),
        Call(libc::SYS_madvise, with(2, libc::MADV_DONTDUMP)),
    ];
    for protection in protections {
        let mut args = with(2, protection);
        args[3] = Some((libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64);
        calls.push(Call(libc::SYS_mmap, args));
    }
    if locks_memory {
        calls.push(Call(libc::SYS_munlock, ANY));
        calls.extend(protections.map(|how| Call(libc::SYS_mprotect, with(2, how))));
        let mut args = with(2, libc::PROT_NONE);
        args[3] = Some((libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64);
        calls.push(Call(libc::SYS_mmap, args));
    }
    calls
}

fn bear(filters: &[Vec<sock_filter>], locks_memory: bool) -> bool {
    let calls = needed(locks_memory);
    filters
        .iter()
        .all(|filter| calls.iter().all(|call| is_borne(filter, call)))
}

/// Instructions gone through at the most for a call: filters of containers have some hundreds, and few ways through them.
const MOST_STEPS: u32 = 100_000;

/// One way through a filter; `None` is a value that is not known.
#[derive(Clone)]
struct Way {
    at: usize,
    a: Option<u32>,
    x: Option<u32>,
    memory: [Option<u32>; libc::BPF_MEMWORDS as usize],
}

/// Whether every way through the filter ends with the call being made, or failing with an error.
fn is_borne(filter: &[sock_filter], call: &Call) -> bool {
    let mut ways = vec![Way {
        at: 0,
        a: Some(0),
        x: Some(0),
        memory: [Some(0); libc::BPF_MEMWORDS as usize],
    }];
    let mut steps = 0;
    while let Some(mut way) = ways.pop() {
        loop {
            steps += 1;
            let Some(instruction) = filter.get(way.at).filter(|_| steps < MOST_STEPS) else {
                return false;
            };
            match step(&mut way, instruction, call) {
                Step::On => {}
                Step::Either(other) => ways.push(other),
                Step::Returns(Some(action)) if allows(action, call.0) => break,
                Step::Returns(_) | Step::Unknown => return false,
            }
        }
    }
    true
}

enum Step {
    On,
    /// The other way goes on here.
    Either(Way),
    Returns(Option<u32>),
    /// No instruction of a filter.
    Unknown,
}

fn step(way: &mut Way, instruction: &sock_filter, call: &Call) -> Step {
    use libc::{
        BPF_A, BPF_ALU, BPF_JMP, BPF_LD, BPF_LDX, BPF_MISC, BPF_RET, BPF_ST, BPF_STX, BPF_X,
    };
    let (code, k) = (u32::from(instruction.code), instruction.k);
    let slot = k as usize % way.memory.len();
    // Of ALU and JMP, the other operand.
    let operand = if code & BPF_X != 0 { way.x } else { Some(k) };
    way.at += 1;
    match code & 7 {
        BPF_LD | BPF_LDX => {
            let value = match code & 0xe0 {
                libc::BPF_IMM => Some(k),
                libc::BPF_ABS => word(call, k),
                libc::BPF_MEM => way.memory[slot],
                libc::BPF_LEN => Some(SHOWN_BYTES),
                _ => return Step::Unknown,
            };
            match code & 7 {
                BPF_LD => way.a = value,
                _ => way.x = value,
            }
        }
        BPF_ST => way.memory[slot] = way.a,
        BPF_STX => way.memory[slot] = way.x,
        BPF_ALU => match calculate(code & 0xf0, way.a, operand) {
            Ok(a) => way.a = a,
            Err(()) => return Step::Unknown,
        },
        BPF_JMP if code & 0xf0 == libc::BPF_JA => way.at += k as usize,
        BPF_JMP => {
            let (yes, no) = (usize::from(instruction.jt), usize::from(instruction.jf));
            let (Some(a), Some(b)) = (way.a, operand) else {
                let mut other = way.clone();
                other.at += no;
                way.at += yes;
                return Step::Either(other);
            };
            let holds = match code & 0xf0 {
                libc::BPF_JEQ => a == b,
                libc::BPF_JGT => a > b,
                libc::BPF_JGE => a >= b,
                libc::BPF_JSET => a & b != 0,
                _ => return Step::Unknown,
            };
            way.at += if holds { yes } else { no };
        }
        BPF_RET => {
            let is_a = code & 0x18 == BPF_A;
            return Step::Returns(if is_a { way.a } else { Some(k) });
        }
        BPF_MISC if code & 0xf8 == libc::BPF_TAX => way.x = way.a,
        BPF_MISC => way.a = way.x,
        _ => return Step::Unknown,
    }
    Step::On
}

fn calculate(operation: u32, a: Option<u32>, b: Option<u32>) -> Result<Option<u32>, ()> {
    let both = |of: fn(u32, u32) -> u32| Ok(a.zip(b).map(|(a, b)| of(a, b)));
    match operation {
        libc::BPF_ADD => both(u32::wrapping_add),
        libc::BPF_SUB => both(u32::wrapping_sub),
        libc::BPF_MUL => both(u32::wrapping_mul),
        // By 0 the filter ends, and the thread with it.
        libc::BPF_DIV if b.is_none_or(|b| b == 0) => Err(()),
        libc::BPF_DIV => both(|a, b| a / b),
        libc::BPF_AND => both(|a, b| a & b),
        libc::BPF_OR => both(|a, b| a | b),
        libc::BPF_XOR => both(|a, b| a ^ b),
        libc::BPF_LSH => both(u32::wrapping_shl),
        libc::BPF_RSH => both(u32::wrapping_shr),
        libc::BPF_NEG => Ok(a.map(u32::wrapping_neg)),
        _ => Err(()),
    }
}

/// Bytes of what a filter is shown, `struct seccomp_data`: number, architecture, instruction pointer, arguments.
const SHOWN_BYTES: u32 = 64;

/// The word at a byte of that.
fn word(call: &Call, at: u32) -> Option<u32> {
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    const ARGUMENTS: u32 = 16;
    match at {
        0 => Some(call.0 as u32),
        4 => Some(AUDIT_ARCH_X86_64),
        _ => {
            let argument = call.1.get(at.checked_sub(ARGUMENTS)? as usize / 8)?;
            let half = if at.is_multiple_of(8) { 0 } else { 32 };
            argument.map(|argument| (argument >> half) as u32)
        }
    }
}

/// Whether what a filter returns is that the call is made, or fails where it may. (One that asks a tracer fails: we do not ask for that.)
fn allows(action: u32, number: i64) -> bool {
    let may_fail = !MUST_BE_MADE.contains(&number);
    match action & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => true,
        // Error 0 is success, of a call that was not made.
        libc::SECCOMP_RET_ERRNO => may_fail && action & libc::SECCOMP_RET_DATA != 0,
        libc::SECCOMP_RET_TRACE => may_fail,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET};

    const NUMBER: u32 = 0;
    const THIRD: u32 = 32;

    fn plain(code: u32, k: u32) -> sock_filter {
        jump(code, k, 0, 0)
    }

    fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
        let code = code as u16;
        sock_filter { code, jt, jf, k }
    }

    fn load(at: u32) -> sock_filter {
        plain(BPF_LD | BPF_ABS, at)
    }

    fn is(value: u32, jt: u8, jf: u8) -> sock_filter {
        jump(BPF_JMP | BPF_JEQ | BPF_K, value, jt, jf)
    }

    fn returns(action: u32) -> sock_filter {
        plain(BPF_RET | BPF_K, action)
    }

    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const FAIL: u32 = libc::SECCOMP_RET_ERRNO | 1;

    #[track_caller]
    fn check(filter: &[sock_filter], call: Call, borne: bool) {
        assert_eq!(is_borne(filter, &call), borne);
    }

    #[test]
    fn what_a_filter_returns_for_a_number() {
        for (action, borne) in [
            (ALLOW, true),
            (libc::SECCOMP_RET_LOG, true),
            (FAIL, true),
            (libc::SECCOMP_RET_TRACE | 7, true),
            (libc::SECCOMP_RET_ERRNO, false),
            (libc::SECCOMP_RET_TRAP, false),
            (libc::SECCOMP_RET_USER_NOTIF, false),
            (libc::SECCOMP_RET_KILL_THREAD, false),
            (KILL, false),
        ] {
            let filter = [load(NUMBER), is(39, 0, 1), returns(action), returns(FAIL)];
            check(&filter, Call(39, [None; 6]), borne);
            check(&filter, Call(40, [None; 6]), true);
        }
    }

    #[test]
    fn some_calls_must_not_fail() {
        let refuses = [returns(FAIL)];
        check(&refuses, Call(libc::SYS_memfd_create, [None; 6]), true);
        for number in MUST_BE_MADE {
            check(&refuses, Call(number, [None; 6]), false);
            check(&[returns(ALLOW)], Call(number, [None; 6]), true);
        }
    }

    /// Only the lower half of an argument is asked for here, as by most.
    #[test]
    fn arguments_decide_where_they_are_known() {
        let filter = [
            load(THIRD),
            plain(BPF_ALU | BPF_AND | BPF_K, 6),
            is(6, 0, 1),
            returns(KILL),
            returns(ALLOW),
        ];
        let third = |value| Call(9, [None, None, value, None, None, None]);
        check(&filter, third(Some(7)), false);
        check(&filter, third(Some(5)), true);
        check(&filter, third(Some(5 | 6 << 32)), true);
        check(&filter, third(None), false);
    }

    #[test]
    fn both_ways_are_gone_where_nothing_is_known() {
        let at_least = |to| {
            let test = jump(BPF_JMP | BPF_JGE | BPF_K, 100, 0, 1);
            [load(THIRD), test, returns(to), returns(ALLOW)]
        };
        check(&at_least(KILL), Call(9, [None; 6]), false);
        check(&at_least(FAIL), Call(9, [None; 6]), true);
        // The instruction pointer is nothing that we know.
        let from = [load(8), is(1, 0, 1), returns(KILL), returns(ALLOW)];
        check(&from, Call(9, [Some(0); 6]), false);
    }

    #[test]
    fn what_is_no_filter_bears_nothing() {
        check(&[], Call(9, [None; 6]), false);
        check(&[load(NUMBER)], Call(9, [None; 6]), false);
        check(
            &[plain(BPF_ALU | 0xe0, 1), returns(ALLOW)],
            Call(9, [None; 6]),
            false,
        );
        // Forty tests of what is not known, each of which doubles the ways.
        let mut many: Vec<_> = (0..40).flat_map(|_| [load(THIRD), is(1, 0, 0)]).collect();
        many.push(returns(ALLOW));
        check(&many, Call(9, [None; 6]), false);
    }

    #[test]
    fn a_list_of_what_is_allowed_bears_us_if_we_are_on_it() {
        let list = |allowed: &[i64]| {
            let mut filter = vec![load(NUMBER)];
            for &number in allowed {
                filter.extend([is(number as u32, 0, 1), returns(ALLOW)]);
            }
            filter.push(returns(KILL));
            filter
        };
        let needs = needed(false).iter().map(|call| call.0).collect::<Vec<_>>();
        assert!(bear(&[list(&needs)], false));
        assert!(!bear(&[list(&needs)], true), "mprotect(2)");
        assert!(!bear(&[list(&needs), list(&needs[1..])], false));
    }
}
