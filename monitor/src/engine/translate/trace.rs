//! Which instructions a fragment holds: decoding along the likely path.
//!
//! A trace follows direct jumps and calls, returns from the calls it has followed, falls through forward branches, and
//! runs around a loop a few times when the loop leads back to its head. Once it is of some length it ends where another
//! one begins, unless it is a loop: else it would end somewhere in the middle of that one's path, what is behind its end would have a trace
//! that ends in the middle of the next one's, and so on. Where code may change while it is executed
//! ([`Code::changes`]) it ends at the first transfer behind a store (through another register than rsp): the fragment is
//! to compare its source at every entry, and a program that writes code goes to it by some transfer. Pure: bytes come
//! through [`Code`].

use crate::arch::{self, Access, AddressExpr, Flow, Gpr, GprSet, Kind};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpKind};
use std::ops::Range;

/// How long traces may be.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Most instructions of a straight trace.
    items: usize,
    /// Fewest instructions of a straight trace that ends because another one begins. (Chosen; what it saves is in
    /// benches/README.md.)
    least: usize,
    /// Most instructions of a trace that unrolls a loop.
    unrolled: usize,
    /// Most rounds of an unrolled loop.
    rounds: usize,
}

impl Lengths {
    /// Of those that are logged.
    pub const LOGGED: Lengths = Lengths {
        items: 64,
        least: 24,
        unrolled: 96,
        rounds: 8,
    };
    /// Of those that are counted: the fewer ends there are the less is added to the program.
    pub const COUNTED: Lengths = Lengths {
        items: 96,
        least: 24,
        unrolled: 240,
        rounds: 24,
    };
}

// Items are numbered by bytes (`LoggedAccess::item`, and how many are done at an exit).
const _: () = {
    let (logged, counted) = (Lengths::LOGGED, Lengths::COUNTED);
    assert!(logged.items <= 255 && logged.unrolled <= 255);
    assert!(counted.items <= 255 && counted.unrolled <= 255);
};

/// Bytes of `syscall`.
pub const SYSCALL_LENGTH: u64 = 2;

/// Most bytes of source that may change of a straight trace: comparing them takes time.
const MAX_CHANGING: usize = 96;

/// Source of code bytes.
pub trait Code {
    /// Up to 15 bytes at `ip`; empty when this is not code that may be translated.
    fn bytes(&mut self, ip: u64) -> &[u8];

    /// Whether what is at `ip` may become other code while it is executed.
    fn changes(&mut self, ip: u64) -> bool;

    /// Whether accesses made by code at `ip` count. Those of the vDSO, which is the kernel's, and of our shim do not.
    fn counted(&self, ip: u64) -> bool;

    /// Notes the restartable sequence (rseq(2)) that the instruction names, if any: it has the address of its description.
    fn note_sequence(&mut self, instruction: &Instruction);

    /// Whether a store to this address begins a restartable sequence, or one behind which there is code at `next`: the kernel must see
    /// the sequence's own addresses in it, so it cannot run as a copy.
    fn begins_sequence(&self, address: &AddressExpr, next: u64) -> bool;
}

/// One instruction of a trace.
#[derive(Clone, Debug)]
pub struct Item {
    /// As decoded at its original address.
    pub instruction: Instruction,
    /// What it accesses.
    pub accesses: Vec<Access>,
    /// Registers it reads and registers it may change.
    pub gprs: (GprSet, GprSet),
    /// How the trace goes on.
    pub step: Step,
}

impl Item {
    /// Whether what is behind it will be returned to.
    fn calls(&self) -> bool {
        let indirect = self.instruction.is_call_near_indirect();
        self.step == Step::Call || indirect
    }
}

/// How a trace goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// With the next item, the instruction copied.
    Next,
    /// With the next item when the condition (negated if `negate`) does not hold, else out to `exit`.
    Side {
        /// Where the other direction leads.
        exit: u64,
        /// Whether the trace follows the taken direction.
        negate: bool,
    },
    /// With the next item; the jump itself vanishes.
    Elided,
    /// With the next item, the return address pushed.
    Call,
    /// A return, with the next item where it leads to this address, behind the call that the trace has followed; else out.
    Return {
        /// That address.
        to: u64,
    },
}

/// How a trace ends.
#[derive(Clone, Debug)]
pub enum End {
    /// Goes on at this address.
    Fall(u64),
    /// The last item is a conditional branch: taken and not-taken addresses.
    Branch(u64, u64),
    /// The last item is `loop` or `jrcxz`: taken and not-taken addresses.
    Counted(u64, u64),
    /// The last item is an indirect jump or call or a return.
    Indirect,
    /// A `syscall` instruction at this address, not part of the trace.
    Syscall(u64),
    /// Something at this address must run natively.
    Declined(u64, &'static str),
}

/// A decoded trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Original address of its head.
    pub ip: u64,
    /// Its instructions in execution order.
    pub items: Vec<Item>,
    /// Its end.
    pub end: End,
    /// What it was decoded from, if that may change: to be compared at every entry.
    pub source: Source,
}

/// Pieces of code as they were when they were decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source(pub Vec<(u64, Vec<u8>)>);

impl Source {
    fn add(&mut self, ip: u64, bytes: &[u8]) {
        let end = ip + bytes.len() as u64;
        let ends = |piece: &(u64, Vec<u8>)| piece.0 + piece.1.len() as u64;
        // An unrolled loop comes by again.
        let known = self.0.iter().any(|p| p.0 <= ip && end <= ends(p));
        match self.0.last_mut() {
            _ if known => {}
            Some(last) if ends(last) == ip => last.1.extend_from_slice(bytes),
            _ => self.0.push((ip, bytes.to_vec())),
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|piece| piece.1.len()).sum()
    }

    /// Where it lies.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let range = |piece: &(u64, Vec<u8>)| piece.0..piece.0 + piece.1.len() as u64;
        self.0.iter().map(range).collect()
    }
}

impl Trace {
    /// Where its calls return to that it does not return from itself.
    pub fn awaited_returns(&self) -> impl Iterator<Item = u64> {
        let follows = |to: u64| self.items.iter().any(|i| i.step == Step::Return { to });
        let calls = self.items.iter().filter(|item| item.calls());
        calls
            .map(|item| item.instruction.next_ip())
            .filter(move |&to| !follows(to))
    }

    /// One that executes nothing.
    pub fn declined(ip: u64, reason: &'static str) -> Trace {
        Trace {
            ip,
            items: Vec::new(),
            end: End::Declined(ip, reason),
            source: Source::default(),
        }
    }
}

/// Decodes one instruction at `ip`, and adds the bytes it was decoded from to `source` if that is wanted.
fn decode(code: &mut impl Code, ip: u64, source: Option<&mut Source>) -> Option<Instruction> {
    let bytes = code.bytes(ip);
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if let Some(source) = source {
        let length = match instruction.is_invalid() {
            true => bytes.len(),
            false => instruction.len(),
        };
        source.add(ip, &bytes[..length]);
    }
    (!bytes.is_empty() && !instruction.is_invalid()).then_some(instruction)
}

/// Decodes the trace that begins at `ip`; `begins` says where others do.
pub fn form(
    code: &mut impl Code,
    ip: u64,
    lengths: Lengths,
    begins: impl Fn(u64) -> bool,
    factory: &mut InstructionInfoFactory,
) -> Trace {
    let mut former = Former {
        items: Vec::with_capacity(lengths.items),
        head: ip,
        rounds: 0,
        path: Vec::new(),
        calls: Vec::new(),
        changing: code.changes(ip),
        written: false,
        lengths,
    };
    let mut source = Source::default();
    let mut at = ip;
    let mut joint = None;
    let end = loop {
        let limit = if former.rounds > 0 {
            lengths.unrolled
        } else {
            lengths.items
        };
        if former.items.len() >= limit {
            break End::Fall(at);
        }
        if joint.is_none() && former.items.len() >= lengths.least && begins(at) {
            joint = Some((former.items.len(), at));
        }
        let much = former.rounds == 0 && source.bytes() >= MAX_CHANGING;
        if much || code.changes(at) != former.changing {
            break End::Fall(at);
        }
        let wanted = former.changing.then_some(&mut source);
        let Some(instruction) = decode(code, at, wanted) else {
            // The end of what may be executed is met when it is reached: there may be code by then.
            break match code.bytes(at).is_empty() && at != ip {
                true => End::Fall(at),
                false => End::Declined(at, "no instruction of this processor"),
            };
        };
        let mut accesses = Vec::new();
        if let Err(reason) = arch::accesses(&instruction, factory, &mut accesses) {
            break End::Declined(at, reason.reason);
        }
        code.note_sequence(&instruction);
        let next = instruction.next_ip();
        let begins_one =
            |a: &Access| a.kind != Kind::Load && code.begins_sequence(&a.address, next);
        // Zero names none: so a library clears the word for each new thread.
        if accesses.iter().any(begins_one) && !stores_zero(&instruction) {
            break End::Declined(at, "a restartable sequence");
        }
        if !code.counted(at) {
            accesses.clear();
        }
        let gprs = arch::gprs_read_and_written(&instruction, factory);
        match former.push(instruction, accesses, gprs) {
            Ok(next) => at = next,
            Err(end) => break end,
        }
    };
    let (mut items, mut end) = (former.items, end);
    // A loop is unrolled wherever else in it somebody came by first. (What may change is short, and compared as a whole.)
    if let Some((length, at)) = joint.filter(|_| former.rounds == 0 && !former.changing) {
        items.truncate(length);
        end = End::Fall(at);
    }
    Trace {
        ip,
        items,
        end,
        source,
    }
}

fn stores_zero(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Immediate32to64
        && instruction.immediate(1) == 0
}

struct Former {
    items: Vec<Item>,
    head: u64,
    rounds: usize,
    /// Where the trace has been since it was last at its head, leaving out calls since then that it has returned from.
    path: Vec<u64>,
    /// Calls it has not returned from: where they return to, and how long `path` was.
    calls: Vec<(u64, usize)>,
    /// Whether the code may change.
    changing: bool,
    /// Whether something was stored that could be code.
    written: bool,
    lengths: Lengths,
}

impl Former {
    /// Adds an instruction; gives the address to go on at, or the end of the trace.
    fn push(
        &mut self,
        instruction: Instruction,
        accesses: Vec<Access>,
        gprs: (GprSet, GprSet),
    ) -> Result<u64, End> {
        let next = instruction.next_ip();
        let writes = |a: &Access| a.kind != Kind::Load && a.address.base != Some(Gpr::Rsp);
        self.written |= accesses.iter().any(writes);
        self.path.push(instruction.ip());
        let (step, then) = match arch::classify(&instruction) {
            Flow::Next => (Step::Next, Ok(next)),
            Flow::PopFlags if self.items.is_empty() => (Step::Next, Ok(next)),
            // What it may lead out to has nothing of a trace behind it.
            Flow::PopFlags => return Err(End::Fall(instruction.ip())),
            Flow::Jump { target } => (Step::Elided, self.follow(target)),
            Flow::Call { target } => {
                // A call of what is next asks where it is, and does not return.
                if target != next {
                    self.calls.push((next, self.path.len()));
                }
                (Step::Call, self.follow(target))
            }
            Flow::Ret { pop: 0 } => self.leave_call(),
            Flow::CondJump { target } if self.changing && self.written => {
                (Step::Next, Err(End::Branch(target, next)))
            }
            Flow::CondJump { target } => self.branch(target, next),
            Flow::LoopOrJrcxz { target } => (Step::Next, Err(End::Counted(target, next))),
            Flow::IndirectJump | Flow::IndirectCall | Flow::Ret { .. } => {
                (Step::Next, Err(End::Indirect))
            }
            // Prefixes do nothing, and the kernel takes the instruction for two bytes where it has a call begin again.
            Flow::Syscall => return Err(End::Syscall(next - SYSCALL_LENGTH)),
            Flow::Decline(reason) => return Err(End::Declined(instruction.ip(), reason)),
        };
        self.items.push(Item {
            instruction,
            accesses,
            gprs,
            step,
        });
        then
    }

    /// Goes on at a direct target: around the loop again if that is the head and the round fits,
    /// else onward unless the trace has been there.
    fn follow(&mut self, target: u64) -> Result<u64, End> {
        if self.changing && self.written {
            return Err(End::Fall(target));
        }
        if target == self.head {
            return if self.another_round() {
                Ok(target)
            } else {
                Err(End::Fall(target))
            };
        }
        let seen = self.path.contains(&target);
        // A trace stays near its head, so that its addresses can be kept in 32 bits.
        if seen || target.abs_diff(self.head) > 1 << 30 {
            Err(End::Fall(target))
        } else {
            Ok(target)
        }
    }

    /// Returns from the last call followed, if there is one.
    fn leave_call(&mut self) -> (Step, Result<u64, End>) {
        if self.changing && self.written {
            return (Step::Next, Err(End::Indirect));
        }
        let Some((to, length)) = self.calls.pop() else {
            return (Step::Next, Err(End::Indirect));
        };
        self.path.truncate(length);
        (Step::Return { to }, Ok(to))
    }

    fn branch(&mut self, target: u64, next: u64) -> (Step, Result<u64, End>) {
        if target == self.head {
            return if self.another_round() {
                (
                    Step::Side {
                        exit: next,
                        negate: true,
                    },
                    Ok(target),
                )
            } else {
                (Step::Next, Err(End::Branch(target, next)))
            };
        }
        // A branch back to anywhere else closes a loop that deserves a head of its own.
        if target < next {
            return (Step::Next, Err(End::Branch(target, next)));
        }
        (
            Step::Side {
                exit: target,
                negate: false,
            },
            Ok(next),
        )
    }

    /// Whether the loop whose body is in `items` may be run around once more.
    fn another_round(&mut self) -> bool {
        // `items` does not yet hold the branch that closes the round.
        let body = (self.items.len() + 1) / (self.rounds + 1);
        self.rounds += 1;
        self.path.clear();
        self.rounds < self.lengths.rounds && (self.rounds + 1) * body <= self.lengths.unrolled
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Code at [`AT`], not code elsewhere; whether it changes.
    pub struct Bytes(pub Vec<u8>, pub bool);

    /// Where it is.
    pub const AT: u64 = 0x40_1000;

    impl Code for Bytes {
        fn bytes(&mut self, ip: u64) -> &[u8] {
            let from = ip
                .checked_sub(AT)
                .map_or(self.0.len(), |from| from as usize);
            let rest = self.0.get(from..).unwrap_or_default();
            &rest[..rest.len().min(15)]
        }

        fn changes(&mut self, _: u64) -> bool {
            self.1
        }

        fn counted(&self, _: u64) -> bool {
            true
        }

        fn note_sequence(&mut self, _: &Instruction) {}

        fn begins_sequence(&self, _: &AddressExpr, _: u64) -> bool {
            false
        }
    }

    fn trace(code: Vec<u8>, others: &[u64]) -> Trace {
        let begins = |ip| others.contains(&ip);
        let factory = &mut InstructionInfoFactory::new();
        form(
            &mut Bytes(code, false),
            AT,
            Lengths::LOGGED,
            begins,
            factory,
        )
    }

    /// Instructions of a trace and where it goes on.
    fn falls(trace: &Trace) -> (usize, u64) {
        match trace.end {
            End::Fall(at) => (trace.items.len(), at - AT),
            ref end => panic!("{end:?}"),
        }
    }

    #[test]
    fn straight_traces_join_others_once_they_have_a_length() {
        const NOP: u8 = 0x90;
        let straight = || vec![NOP; 100];
        assert_eq!(falls(&trace(straight(), &[])), (64, 64));
        assert_eq!(falls(&trace(straight(), &[AT + 40])), (40, 40));
        // Not one that begins where it does, or soon behind.
        assert_eq!(falls(&trace(straight(), &[AT, AT + 23])), (64, 64));
        assert_eq!(falls(&trace(straight(), &[AT + 5, AT + 24])), (24, 24));
    }

    #[test]
    fn a_system_call_is_behind_its_prefixes() {
        for (code, at) in [
            (vec![0x0f, 5], 0),
            (vec![0x90, 0x48, 0x0f, 5], 2),
            (vec![0xf3, 0x66, 0x0f, 5], 2),
        ] {
            let end = trace(code, &[]).end;
            assert!(matches!(end, End::Syscall(ip) if ip == AT + at), "{end:?}");
        }
    }

    #[test]
    fn loops_are_unrolled_whatever_begins_in_them() {
        // Fifteen `nop`, `jne` back to the first: six rounds of sixteen.
        let mut code = vec![0x90; 15];
        code.extend([0x75, 0xef]);
        for others in [vec![], vec![AT + 5], vec![AT + 13]] {
            assert_eq!(trace(code.clone(), &others).items.len(), 96);
        }
    }
}
