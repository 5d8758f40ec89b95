//! The calls that led to the allocator: return addresses, found by what compilers say of their frames.
//!
//! Where a function has put its caller's frame is a matter of its return address alone, but for functions with frames of
//! varying size, which have a frame pointer: so a frame costs one look at a table (`RULES`), and the unwind information, which is some
//! hundred times slower to read, is read once for each return address. Of what cannot be told that way, generated code and frames said by
//! expressions among it, the chain ends.
//!
//! Source: DWARF 5, section 6.4; Linux Standard Base 5.0, "Exception Frames"; System V ABI for x86-64, figure 3.36 "DWARF Register Number
//! Mapping".
//!
//! Unsafe invariant: what unwind information of a loaded object says of a frame that is on the stack is true, as it is where exceptions
//! are thrown, but for frames that nothing returns to: what lies in another page is looked for first. Such information is read where the dynamic linker says it lies.

mod rules;

use crate::raw::syscall;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use rules::{Cfa, Rule};
use statcache_abi::PAGE_BYTES;
use statcache_abi::heap::FRAMES;

/// By a hash of the return address the rest of that hash, and the rule packed: a word, so that both are of one moment.
static RULES: [AtomicU64; LENGTH] = [const { AtomicU64::new(0) }; LENGTH];
const LENGTH: usize = 1 << 14;
/// Pages that can be read, by their numbers.
static READABLE: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// From the first frame to the last, at most: what lies further is no caller's frame.
const FARTHEST: u64 = 1 << 23;

/// Return addresses on a stack.
pub(super) struct Chain {
    /// The addresses, the callee's first, then 0s.
    pub addresses: [u64; FRAMES],
    /// How far from the first each lies, in bytes.
    pub offsets: [u32; FRAMES],
    /// How many there are.
    pub count: usize,
    /// Each alone says where the next one is, and will as long as nothing is closed.
    pub plain: bool,
}

/// The chain from the return address at `at` on outwards; `frame` is rbp as it was there.
///
/// # Safety
/// The return address of a call that is under way must lie at `at`.
pub(super) unsafe fn callers(at: *const u64, frame: u64) -> Chain {
    let mut chain = Chain {
        addresses: [0; FRAMES],
        offsets: [0; FRAMES],
        count: 0,
        plain: true,
    };
    let first = at as u64;
    let (mut place, mut frame) = (first, frame);
    for (slot, offset) in chain.addresses.iter_mut().zip(&mut chain.offsets) {
        if !is_on(place, first) {
            chain.plain = false;
            break;
        }
        // SAFETY: the caller's contract, then this module's invariant, and that it can be read.
        let address = unsafe { (place as *const u64).read() };
        if address < 4096 {
            // What is there may be another time's return address.
            chain.plain = false;
            break;
        }
        *slot = address;
        *offset = (place - first) as u32;
        chain.count += 1;
        let (rule, stays) = rule(address);
        chain.plain &= stays;
        let Some(rule) = rule else {
            break;
        };
        // Behind the return address: the caller's stack pointer.
        let cfa = match rule.cfa {
            Cfa::Stack(offset) => (place + 8).wrapping_add(u64::from(offset)),
            Cfa::Frame(offset) => {
                chain.plain = false;
                frame.wrapping_add(u64::from(offset))
            }
        };
        let next = cfa.wrapping_sub(8);
        if next <= place || next - first > FARTHEST || next % 8 != 0 {
            break;
        }
        if rule.saved != 0 {
            let saved = cfa.wrapping_sub(u64::from(rule.saved));
            if saved <= place || saved >= next || !is_on(saved, first) {
                break;
            }
            // SAFETY: this module's invariant.
            frame = unsafe { (saved as *const u64).read() };
        }
        place = next;
    }
    chain
}

/// Whether a place further up can be read: it lies in the same page, or the kernel says so. A stack that a program has made may end with its first
/// function, which never returns and has nothing above.
fn is_on(place: u64, first: u64) -> bool {
    const SIGPROCMASK: u64 = 14;
    const NO_HOW: u64 = u64::MAX;
    const SET_BYTES: u64 = 8;
    const EFAULT: i64 = -14;
    let page = place / PAGE_BYTES;
    let known = READABLE.get(page as usize % READABLE.len());
    if page == first / PAGE_BYTES || known.is_some_and(|known| known.load(Relaxed) == page) {
        return true;
    }
    // It is read before it is found that nothing is to be done with it (rt_sigprocmask(2)); of the calls that read, filters forbid this one last.
    let arguments = [NO_HOW, place & !7, 0, SET_BYTES, 0, 0];
    // SAFETY: the kernel reads eight bytes, or fails, and changes nothing.
    let answer = unsafe { syscall(SIGPROCMASK, arguments) };
    if answer != EFAULT
        && let Some(known) = known
    {
        known.store(page, Relaxed);
    }
    answer != EFAULT
}

/// Something was unmapped: what could be read may be no more.
pub(super) fn forget_places() {
    for page in &READABLE {
        page.store(0, Relaxed);
    }
}

/// Code may have gone, and other code come in its place.
pub(super) fn forget() {
    for word in &RULES {
        word.store(0, Relaxed);
    }
}

/// Whether a call that returns to `address` may end there. Where a program has made a stack itself, the first function's return address is as a rule
/// where another function begins, and there is no frame beyond. (Intel SDM vol. 2, CALL: `e8` and four bytes, or `ff /2`.)
///
/// # Safety
/// The byte before `address` must be code that can be read.
unsafe fn is_behind_call(address: u64) -> bool {
    const LONGEST: u64 = 7;
    // Of a page where others begin the one before may be anything.
    if (address - 1) % PAGE_BYTES < LONGEST {
        return true;
    }
    // SAFETY: they lie in the same page as that byte.
    let byte = |back: u64| unsafe { ((address - back) as *const u8).read() };
    let is_indirect = |back: u64| byte(back) == 0xff && byte(back - 1) >> 3 & 7 == 2;
    byte(5) == 0xe8 || (2..=LONGEST).any(is_indirect)
}

/// The rule at a return address, `None` where the chain ends, and whether it will hold on.
fn rule(address: u64) -> (Option<Rule>, bool) {
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let name = hash & !0xffff_ffff;
    let Some(word) = RULES.get((hash >> 18) as usize % LENGTH) else {
        return (None, false);
    };
    let held = word.load(Relaxed);
    if held & !0xffff_ffff == name && held as u32 != 0 {
        return (Rule::unpack(held as u32), true);
    }
    // The instruction behind a call may be another function's, where the call does not return.
    let object = super::resolve::object(address - 1);
    // SAFETY: it lies in an object that is loaded, if any.
    let object = object.filter(|_| unsafe { is_behind_call(address) });
    let rule = object.as_ref().and_then(|object| {
        // SAFETY: the linker says so.
        unsafe { rules::read(object.table, address - 1) }
    });
    let stays = object.is_some_and(|object| !object.may_go);
    if stays {
        word.store(name | u64::from(Rule::pack(rule)), Relaxed);
    }
    (rule, stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Where this function's own return address lies is known from inside by its frame pointer alone, which the compiler need not keep: so
    /// a function that is nothing but a call has it read.
    #[unsafe(naked)]
    unsafe extern "C" fn enter(_: extern "C" fn(*const u64, u64), _: u64) {
        core::arch::naked_asm!("mov rax, rdi", "mov rdi, rsp", "mov rsi, rbp", "jmp rax")
    }

    thread_local! {
        static FOUND: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    extern "C" fn note(at: *const u64, frame: u64) {
        // SAFETY: `enter` has passed where its return address lies.
        let chain = unsafe { callers(at, frame) };
        FOUND.with_borrow_mut(|list| *list = chain.addresses[..chain.count].to_vec());
    }

    #[inline(never)]
    fn innermost(n: u64) -> u64 {
        // SAFETY: `note` is what it says.
        unsafe { enter(note, n) };
        black_box(n + 1)
    }

    /// A frame of varying alignment, which compilers keep a frame pointer for.
    #[repr(align(64))]
    struct Aligned([u64; 40]);

    #[inline(never)]
    fn aligned(n: u64) -> u64 {
        let mut room = Aligned([n; 40]);
        black_box(&mut room);
        innermost(n) + room.0[3]
    }

    #[inline(never)]
    fn outermost(n: u64) -> u64 {
        aligned(n) + black_box(1)
    }

    #[test]
    fn callers_are_those_of_the_standard_library() {
        for round in 0..3 {
            black_box(outermost(round));
            if round == 1 {
                forget();
            }
            let found = FOUND.take();
            assert_eq!(found.len(), FRAMES);
            let starts: Vec<u64> = found
                .iter()
                // SAFETY: any address may be asked about.
                .map(|address| unsafe { start_of(*address) })
                .collect();
            let wanted = [
                innermost as *const () as u64,
                aligned as *const () as u64,
                outermost as *const () as u64,
            ];
            assert_eq!(starts[..3], wanted, "{found:x?}");
        }
    }

    /// Begin of the function that holds the call which returns to `address`, as the unwinder of the compiler says.
    unsafe fn start_of(address: u64) -> u64 {
        unsafe extern "C" {
            fn _Unwind_FindEnclosingFunction(pc: u64) -> u64;
        }
        // SAFETY: it looks the address up in tables.
        unsafe { _Unwind_FindEnclosingFunction(address - 1) }
    }

    #[test]
    fn rules_of_whole_libraries_pack() {
        // Every function of this program that a return address of the last test can lie in, and of the C library.
        let mut told = 0;
        let mut asked = 0;
        for start in [innermost as *const () as u64, libc_function()] {
            for address in (start..start + (64 << 10)).step_by(5) {
                let Some(object) = super::super::resolve::object(address) else {
                    continue;
                };
                asked += 1;
                // SAFETY: the linker says so.
                if let Some(rule) = unsafe { rules::read(object.table, address) } {
                    assert_eq!(Rule::unpack(Rule::pack(Some(rule))), Some(rule));
                    told += 1;
                }
            }
        }
        assert!(asked > 10_000 && told * 10 > asked * 9, "{told} of {asked}");
    }

    fn libc_function() -> u64 {
        unsafe extern "C" {
            fn qsort();
        }
        qsort as *const () as u64
    }
}
