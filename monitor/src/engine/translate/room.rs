//! What the code ahead of an address does not need: flags and registers that it overwrites before it reads them.
//!
//! A fragment may use those for its own ends where it closes a record there, and need not put them back. Followed are a few
//! instructions along direct transfers, on both ways of a branch; what is not settled by then is needed. Only code that
//! does not change is looked at.
//!
//! Where an instruction faults, a handler sees the registers as they are: so nothing counts as overwritten behind an
//! access that may fault, the stack's excepted, which do not in practice, and not what an instruction itself would have overwritten that may be refused. Flags do: no handler can tell what they were from
//! what the faulting instruction, executed again, leaves. Handlers of other signals see what is overwritten soon as something else, where their
//! signal comes between; rbp never, as who unwinds the stack may go by it.

use super::trace::Code;
use crate::arch::{self, Flow, Gpr, GprSet, STATUS_FLAGS};
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
    Register, RflagsBits,
};
use rustc_hash::FxHashMap;

/// Instructions looked at, those on both ways of branches together.
const MOST: usize = 24;
/// Instructions looked at on one way, at least (for what is read soon) and at most.
const LEAST_IN_A_ROW: usize = 7;
const MOST_IN_A_ROW: usize = 12;

/// What is not needed at some address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Whether the status flags are overwritten before they are read.
    pub flags: bool,
    /// Registers that are overwritten before they are read.
    pub dead: GprSet,
    /// Registers that are read soon: to bring one back from memory would keep the program waiting.
    pub soon: GprSet,
}

impl Room {
    /// Everything is needed.
    pub const NONE: Room = Room {
        flags: false,
        dead: GprSet::EMPTY,
        soon: GprSet::EMPTY,
    };
}

/// What was found, by address.
#[derive(Debug, Default)]
pub struct Rooms {
    by_ip: FxHashMap<u64, Room>,
}

impl Rooms {
    /// Tells what `code` does not need at an address.
    pub fn by(
        &mut self,
        code: &mut impl Code,
        factory: &mut InstructionInfoFactory,
    ) -> impl FnMut(u64) -> Room {
        |ip| match code.changes(ip) {
            true => Room::NONE,
            false => *self
                .by_ip
                .entry(ip)
                .or_insert_with(|| at(code, ip, factory)),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.by_ip.clear();
    }
}

/// What the code at `ip` does not need.
pub fn at(code: &mut impl Code, ip: u64, factory: &mut InstructionInfoFactory) -> Room {
    let mut left = MOST;
    follow(code, ip, Way::BEGIN, &mut left, factory)
}

/// What is known of the way so far.
#[derive(Clone, Copy)]
struct Way {
    /// Flags not overwritten yet.
    flags: u32,
    /// Flags of those that were read.
    flags_read: bool,
    read: GprSet,
    dead: GprSet,
    /// Whether an instruction may have faulted.
    faults: bool,
    length: usize,
}

impl Way {
    const BEGIN: Way = Way {
        flags: STATUS_FLAGS,
        flags_read: false,
        read: GprSet::EMPTY,
        dead: GprSet::EMPTY,
        faults: false,
        length: 0,
    };

    fn room(self) -> Room {
        Room {
            flags: !self.flags_read && self.flags == 0,
            dead: self.dead,
            soon: self.read,
        }
    }

    fn execute(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        self.flags_read |= arch::flags_read(instruction) & self.flags != 0;
        self.flags &= !overwritten_flags(instruction);
        let (read, written) = arch::gprs_read_and_written(instruction, factory);
        self.read = self.read.union(read.without(self.dead));
        self.faults |= may_fault(instruction);
        // Who steps over one that is refused goes on with what it would have overwritten.
        let stays = self.faults || written != GprSet::EMPTY && may_be_refused(instruction);
        if !stays {
            self.dead = self.dead.union(written.without(self.read));
            self.dead.remove(Gpr::Rbp);
        }
        self.length += 1;
    }
}

fn follow(
    code: &mut impl Code,
    mut ip: u64,
    mut way: Way,
    left: &mut usize,
    factory: &mut InstructionInfoFactory,
) -> Room {
    let is_settled = |way: &Way| (way.flags_read || way.flags == 0) && way.length >= LEAST_IN_A_ROW;
    while *left > 0 && way.length < MOST_IN_A_ROW && !is_settled(&way) {
        *left -= 1;
        let bytes = code.bytes(ip);
        let instruction = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || code.changes(ip) {
            break;
        }
        let flow = arch::classify(&instruction);
        if !matches!(
            flow,
            Flow::Next
                | Flow::PopFlags
                | Flow::Jump { .. }
                | Flow::Call { .. }
                | Flow::CondJump { .. }
        ) {
            // What is read there, and what is behind, anything may need; but what it names is read soon.
            way.read = way
                .read
                .union(arch::gprs_read(&instruction, factory).without(way.dead));
            break;
        }
        way.execute(&instruction, factory);
        // It may have what is behind it trap.
        way.faults |= flow == Flow::PopFlags;
        match flow {
            Flow::CondJump { target } => {
                let next = follow(code, instruction.next_ip(), way, left, factory);
                let taken = follow(code, target, way, left, factory);
                return Room {
                    flags: next.flags && taken.flags,
                    dead: next.dead.intersection(taken.dead),
                    soon: next.soon.union(taken.soon),
                };
            }
            Flow::Jump { target } | Flow::Call { target } => ip = target,
            _ => ip = instruction.next_ip(),
        }
    }
    way.room()
}

/// Flags that are what they were before no more. Of bitwise operations AF is undefined by the manuals (Intel SDM vol. 1, appendix A),
/// and cleared by all processors: none leaves it as it was.
fn overwritten_flags(instruction: &Instruction) -> u32 {
    let killed = arch::flags_killed(instruction);
    match instruction.mnemonic() {
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => killed | RflagsBits::AF,
        _ => killed,
    }
}

/// Whether it may fault by what it accesses, or divides, the stack being there.
fn may_fault(instruction: &Instruction) -> bool {
    if matches!(
        instruction.mnemonic(),
        Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Endbr64
    ) {
        return false;
    }
    let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
    let memory = (0..instruction.op_count()).any(|op| {
        use OpKind::*;
        let implied = matches!(
            instruction.op_kind(op),
            MemorySegSI | MemorySegESI | MemorySegRSI | MemorySegDI | MemorySegEDI | MemorySegRDI
        );
        implied || instruction.op_kind(op) == Memory
    });
    let on_stack = Gpr::containing(instruction.memory_base()) == Some(Gpr::Rsp)
        && instruction.memory_index() == Register::None;
    divides || memory && !on_stack || instruction.is_string_instruction()
}

/// Whether it may come to nothing otherwise: as it computes with floating-point numbers, whose exceptions programs may want; as it may be forbidden (time
/// stamps and `cpuid`, prctl(2); what tells of the kernel's tables, Intel SDM vol. 3, 2.5, CR4.UMIP); or as not every processor has it.
fn may_be_refused(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let moves = matches!(
        instruction.mnemonic(),
        Movd | Movq | Pmovmskb | Movmskps | Movmskpd
    );
    // Those of MMX share x87's registers, and its exceptions.
    let mmx = || (0..instruction.op_count()).any(|op| instruction.op_register(op).is_mm());
    if moves && !mmx() {
        return false;
    }
    let forbidden = matches!(instruction.mnemonic(), Sldt | Str | Smsw);
    let features = instruction.cpuid_features();
    forbidden || !features.iter().all(|f| ALWAYS.contains(f))
}

/// Instructions of these every processor has, and none of them computes with floating-point numbers.
const ALWAYS: [CpuidFeature; 6] = [
    CpuidFeature::INTEL8086,
    CpuidFeature::INTEL186,
    CpuidFeature::INTEL386,
    CpuidFeature::INTEL486,
    CpuidFeature::X64,
    CpuidFeature::CMOV,
];

#[cfg(test)]
mod tests {
    use super::super::trace::tests::{AT, Bytes};
    use super::*;

    fn room(code: &[u8]) -> Room {
        let factory = &mut InstructionInfoFactory::new();
        at(&mut Bytes(code.to_vec(), false), AT, factory)
    }

    fn set(gprs: &[Gpr]) -> GprSet {
        gprs.iter().copied().collect()
    }

    #[test]
    fn what_is_overwritten_first_is_not_needed() {
        // mov ecx,edx; test rax,rax; ret
        let found = room(&[0x89, 0xd1, 0x48, 0x85, 0xc0, 0xc3]);
        assert!(found.flags);
        assert_eq!(found.dead, set(&[Gpr::Rcx]));
        assert!(found.soon.contains(Gpr::Rdx) && found.soon.contains(Gpr::Rax));
        // The same by code that changes.
        let factory = &mut InstructionInfoFactory::new();
        let changing = &mut Bytes(vec![0x89, 0xd1, 0x48, 0x85, 0xc0, 0xc3], true);
        assert_eq!(at(changing, AT, factory), Room::NONE);
    }

    #[test]
    fn what_is_read_first_or_in_part_overwritten_is_needed() {
        // adc eax,edx; cmp eax,edx
        assert!(!room(&[0x11, 0xd0, 0x39, 0xd0]).flags);
        // mov cl,1; mov ecx,edx
        assert_eq!(room(&[0xb1, 1, 0x89, 0xd1]).dead, GprSet::EMPTY);
        // inc leaves the carry.
        assert!(!room(&[0xff, 0xc0, 0xc3]).flags);
        // A shift by cl may leave all.
        assert!(!room(&[0xd3, 0xe0, 0xc3]).flags);
        // syscall: all that is
        assert_eq!(room(&[0x0f, 0x05]).dead, GprSet::EMPTY);
        assert!(!room(&[0x0f, 0x05]).flags);
    }

    #[test]
    fn registers_are_seen_by_handlers_of_faults() {
        // mov rax,[rbx]; mov ecx,edx; test eax,eax
        let found = room(&[0x48, 0x8b, 0x03, 0x89, 0xd1, 0x85, 0xc0]);
        assert!(found.flags);
        assert_eq!(found.dead, GprSet::EMPTY);
        // push rbx; mov ecx,edx
        assert_eq!(room(&[0x53, 0x89, 0xd1]).dead, set(&[Gpr::Rcx]));
        // maskmovdqu xmm0,xmm1; mov ecx,edx
        let stores = [0x66, 0x0f, 0xf7, 0xc1, 0x89, 0xd1];
        assert_eq!(room(&stores).dead, GprSet::EMPTY);
        // pop rbx; pop rbp
        assert_eq!(room(&[0x5b, 0x5d]).dead, set(&[Gpr::Rbx]));
    }

    #[test]
    fn what_may_be_refused_overwrites_nothing() {
        // bswap esi; cmovc esi,edi; pmovmskb eax,xmm0; movd eax,xmm0
        let sure = [
            (&[0x0f, 0xce][..], Gpr::Rsi, false),
            (&[0x0f, 0x42, 0xf7], Gpr::Rsi, false),
            (&[0x66, 0x0f, 0xd7, 0xc0], Gpr::Rax, true),
            (&[0x66, 0x0f, 0x7e, 0xc0], Gpr::Rax, true),
        ];
        for (code, gpr, dead) in sure {
            assert_eq!(room(code).dead.contains(gpr), dead, "{code:x?}");
        }
        // cvttsd2si rax,xmm5; rdtsc; cpuid; popcnt eax,ebx; fnstsw ax; pmovmskb eax,mm0; sldt eax; rdsspq rax (nothing without a shadow stack); bsf eax,esi
        // (of nothing leaves it as it was)
        for code in [
            &[0xf2, 0x48, 0x0f, 0x2c, 0xc5][..],
            &[0x0f, 0x31],
            &[0x0f, 0xa2],
            &[0xf3, 0x0f, 0xb8, 0xc3],
            &[0xdf, 0xe0],
            &[0x0f, 0xd7, 0xc0],
            &[0x0f, 0x00, 0xc0],
            &[0xf3, 0x48, 0x0f, 0x1e, 0xc8],
            &[0x0f, 0xbc, 0xc6],
        ] {
            assert_eq!(room(code).dead, GprSet::EMPTY, "{code:x?}");
        }
        // addsd xmm0,xmm1; mov ecx,edx
        assert_eq!(
            room(&[0xf2, 0x0f, 0x58, 0xc1, 0x89, 0xd1]).dead,
            set(&[Gpr::Rcx])
        );
    }

    #[test]
    fn both_ways_of_a_branch_count() {
        // test eax,eax; je +4; mov ecx,edx; jmp +2; mov ecx,edx; cmp eax,edx
        let both = [
            0x85, 0xc0, 0x74, 0x04, 0x89, 0xd1, 0xeb, 0x02, 0x89, 0xd1, 0x39, 0xd0,
        ];
        assert_eq!(room(&both).dead, set(&[Gpr::Rcx]));
        // je +2; mov ecx,edx; cmp eax,edx
        let one = [0x85, 0xc0, 0x74, 0x02, 0x89, 0xd1, 0x39, 0xd0];
        assert_eq!(room(&one).dead, GprSet::EMPTY);
        // je reads the flags.
        assert!(!room(&one[2..]).flags);
    }
}
