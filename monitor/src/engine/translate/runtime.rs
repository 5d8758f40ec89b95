//! The stubs every fragment shares: leaving the cache, and finding the fragment of an indirect target.

use super::asm::Asm;
use super::duty::Duty;
use super::layout::{LEAVING_SYSCALL, PROBES, TABLE, state};
use super::state::{CARRIER, Ip, Spare, State};
use super::states::{StateMap, States};
use crate::arch::{Fast, Gpr, GprSet};

/// Addresses of the stubs of one arena, and the meaning of the registers in them.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// Leaves the cache. Expects rax spilled, `TARGET` and `EXIT` set, no register in use.
    pub exit: u64,
    /// Address after the `syscall` of [`Runtime::exit`]: where the monitor sees the thread stopped.
    pub after_syscall: u64,
    /// Goes to the fragment of the address in rcx. Expects rcx spilled, no other register in use.
    pub indirect: u64,
    /// Does the same for the address in `TARGET`. Expects registers as in [`State::bound`].
    pub lookup: u64,
    /// One past the last byte.
    pub end: u64,
    /// Where the stubs begin, and what registers mean in them.
    base: u64,
    states: States,
    /// What fragments do about accesses.
    pub duty: Duty,
    /// What the processor is fast at.
    pub fast: Fast,
}

impl Runtime {
    /// What the registers mean at an address of the stubs.
    pub fn state(&self, address: u64) -> Option<State> {
        self.states.at((self.base, 0), address)
    }
}

/// Exit number of a target that the table of indirect targets does not hold.
pub const EXIT_INDIRECT: u32 = 0;

/// Generates the stubs to run at `base`.
pub fn generate(base: u64, duty: Duty) -> (Vec<u8>, Runtime) {
    let mut asm = Asm::new(base);
    let mut states = StateMap::new(base, 0);
    let rax: GprSet = [Gpr::Rax].into_iter().collect();
    let syscall_clobbers: GprSet = [Gpr::Rax, Gpr::Rcx, Gpr::R11].into_iter().collect();
    let leaving = |spilled| State {
        ip: Ip::InTarget,
        spilled,
        spare: Spare::Unused,
        open: None,
        counted: false,
        cut: false,
    };

    let exit = asm.here();
    states.mark(exit, leaving(rax));
    asm.spill(Gpr::Rcx);
    asm.spill(Gpr::R11);
    asm.constant32(Gpr::Rax, LEAVING_SYSCALL);
    asm.syscall();
    let after_syscall = asm.here();
    states.mark(after_syscall, leaving(syscall_clobbers));
    // Nobody traces us any more: go on natively.
    asm.unspill(Gpr::R11);
    asm.unspill(Gpr::Rcx);
    asm.unspill(Gpr::Rax);
    states.mark(asm.here(), leaving(GprSet::EMPTY));
    asm.jump_through(state::TARGET);

    // Open addressing from `first_entry` on, without touching the flags: the table holds negated targets, so that
    // equality makes rcx zero.
    let indirect = asm.here();
    let in_rcx = |spilled| State {
        ip: Ip::InRcx,
        spilled,
        spare: Spare::Unused,
        open: None,
        counted: false,
        cut: false,
    };
    let of = |gprs: &[Gpr]| gprs.iter().copied().collect::<GprSet>();
    states.mark(indirect, in_rcx(of(&[Gpr::Rcx])));
    asm.spill(Gpr::Rax);
    asm.spill(Gpr::Rdx);
    asm.save(state::TARGET, Gpr::Rcx);
    states.mark(asm.here(), leaving(of(&[Gpr::Rcx, Gpr::Rax, Gpr::Rdx])));
    asm.load_word16(Gpr::Rdx, state::TARGET + 1);
    asm.low_word(Gpr::Rax, Gpr::Rcx);
    asm.lea_scaled(Gpr::Rax, Gpr::Rax, (Gpr::Rdx, 4));
    asm.lea_sum(Gpr::Rax, Gpr::Rax, Gpr::Rax);
    let mut hits = Vec::new();
    for probe in 0..PROBES as i32 {
        asm.load_indexed(Gpr::Rdx, Gpr::Rax, TABLE + 16 * probe);
        asm.lea_sum(Gpr::Rcx, Gpr::Rcx, Gpr::Rdx);
        // jrcxz reaches 127 bytes: it goes to a jump just behind.
        asm.jrcxz(0);
        let short = asm.here() - 1;
        asm.load(Gpr::Rcx, state::TARGET);
        hits.push((short, probe));
    }
    asm.unspill(Gpr::Rdx);
    asm.unspill(Gpr::Rcx);
    states.mark(asm.here(), leaving(rax));
    asm.constant32(Gpr::Rax, EXIT_INDIRECT);
    asm.save(state::EXIT, Gpr::Rax);
    asm.jump(exit);
    let mut jumps = Vec::new();
    for (short, probe) in hits {
        states.mark(asm.here(), leaving(of(&[Gpr::Rcx, Gpr::Rax, Gpr::Rdx])));
        let distance = u8::try_from(asm.here() - (short + 1)).expect("the hits lie within reach");
        assert!(distance < 128);
        asm.patch_byte(short, distance);
        asm.load_indexed(Gpr::Rdx, Gpr::Rax, TABLE + 16 * probe + 8);
        jumps.push(asm.jump(base));
    }
    let found = asm.here();
    for field in jumps {
        asm.patch(field, found);
    }
    asm.save(state::JUMP, Gpr::Rdx);
    asm.unspill(Gpr::Rcx);
    asm.unspill(Gpr::Rdx);
    asm.unspill(Gpr::Rax);
    states.mark(asm.here(), leaving(GprSet::EMPTY));
    asm.jump_through(state::JUMP);
    let lookup = asm.here();
    let bound = State::bound(duty);
    states.mark(lookup, bound);
    if duty == Duty::Count {
        asm.save(state::LOG, CARRIER);
    }
    states.mark(asm.here(), leaving(bound.spilled));
    asm.unspill(CARRIER);
    states.mark(asm.here(), leaving(of(&[Gpr::Rcx])));
    asm.load(Gpr::Rcx, state::TARGET);
    asm.jump(indirect);
    let end = asm.here();
    (
        asm.into_bytes(),
        Runtime {
            exit,
            after_syscall,
            indirect,
            lookup,
            end,
            base,
            states: States::of(&states),
            duty,
            fast: match duty {
                Duty::Observe { fast } => fast,
                Duty::Count => Fast::here(),
            },
        },
    )
}
