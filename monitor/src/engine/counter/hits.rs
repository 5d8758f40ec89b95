//! Whether an access that may have touched a watched line did: the shim has no decoder, so it sends the registers.
//!
//! Pure; the same description of accesses as the other engines use (`arch`).

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use statcache_abi::{Event, kind};

use crate::arch::{Access, Gpr, Registers, Shape, accesses, evaluate};

/// What became of a watched line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// Touched by this instruction.
    Yes,
    /// Not touched.
    No,
    /// Cannot be told: a gather, whose index registers the event does not hold, or an instruction that `arch` refuses.
    Unknown,
}

struct View<'a>(&'a Event);

impl Registers for View<'_> {
    fn gpr(&self, gpr: Gpr) -> u64 {
        self.0.gpr[gpr.number()]
    }
    fn rflags(&self) -> u64 {
        self.0.rflags
    }
    fn fs_base(&self) -> u64 {
        self.0.fs
    }
    fn vector(&self, _: u8) -> [u8; 64] {
        [0; 64]
    }
    fn mask(&self, _: u8) -> u64 {
        0
    }
}

/// Whether the instruction of `event` touched the `bytes` bytes of its line.
pub fn touched(event: &Event, bytes: u32) -> Touched {
    match event.kind {
        kind::HIT => return Touched::Yes,
        kind::MAYBE => {}
        _ => return Touched::No,
    }
    let instruction =
        Decoder::with_ip(64, &event.code[..15], event.rip, DecoderOptions::NONE).decode();
    let mut list: Vec<Access> = Vec::new();
    if accesses(&instruction, &mut InstructionInfoFactory::new(), &mut list).is_err() {
        return Touched::Unknown;
    }
    if list
        .iter()
        .any(|access| matches!(access.shape, Shape::Gather { .. }))
    {
        return Touched::Unknown;
    }
    let end = event.line + u64::from(bytes);
    let view = View(event);
    let overlaps = list
        .iter()
        .flat_map(|access| evaluate(access, &view))
        .any(|(at, size)| at < end && event.line < at.wrapping_add(u64::from(size)));
    if overlaps { Touched::Yes } else { Touched::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(code: &[u8], set: &[(Gpr, u64)], line: u64) -> Event {
        let mut event = Event {
            kind: kind::MAYBE,
            line,
            ..Event::NONE
        };
        event.code[..code.len()].copy_from_slice(code);
        for (gpr, value) in set {
            event.gpr[gpr.number()] = *value;
        }
        event
    }

    #[test]
    fn reaching_into_a_line() {
        // mov rax, [rbx]
        let at = |address| event(&[0x48, 0x8b, 0x03], &[(Gpr::Rbx, address)], 0x1040);
        assert_eq!(touched(&at(0x1038), 64), Touched::No);
        assert_eq!(touched(&at(0x1039), 64), Touched::Yes);
        assert_eq!(touched(&at(0x1080), 64), Touched::No);
        assert_eq!(touched(&at(0x1080), 128), Touched::Yes);
    }

    #[test]
    fn several_operands() {
        // rep movsb: one iteration; push [rbx]; vpgatherdd
        let set = [(Gpr::Rsi, 0x1000), (Gpr::Rdi, 0x1040), (Gpr::Rcx, 9)];
        let line = |line| touched(&event(&[0xf3, 0xa4], &set, line), 64);
        assert_eq!(
            [line(0x1000), line(0x1040), line(0x1080)],
            [Touched::Yes, Touched::Yes, Touched::No]
        );
        let set = [(Gpr::Rbx, 0x2000), (Gpr::Rsp, 0x1048)];
        assert_eq!(
            touched(&event(&[0xff, 0x33], &set, 0x1040), 16),
            Touched::Yes
        );
        assert_eq!(
            touched(&event(&[0xff, 0x33], &set, 0x1050), 16),
            Touched::No
        );
        let gather = [0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x08];
        assert_eq!(touched(&event(&gather, &[], 0), 64), Touched::Unknown);
    }
}
