//! Code that may change while it is executed, such as a just-in-time compiler's: at every entry a fragment
//! compares the bytes it was made of with those that are there, and leaves for the monitor on a difference.
//!
//! Nothing of the fragment has run then, so what is there now is translated and executed instead. Code of one
//! fragment that another thread changes behind the comparison is executed as it was, once, up to the end of the
//! fragment. Processors do that too, for some instructions (Intel SDM vol. 3, 10.1.3, cross-modifying code); a
//! program that must not be too early waits for the others to reach a place of its own.

use super::super::asm::OutOfReach;
use super::super::state::Ip;
use super::super::trace::Source;
use super::{ExitKind, Exits, JUMP_BYTES, Stretch};
use crate::arch::Gpr;

/// Where each comparison begins and how many bytes it takes (8, 4, 2 or 1): together all of `length` and no more.
fn pieces(length: usize) -> Vec<(usize, usize)> {
    let largest = [8, 4, 2, 1].into_iter().find(|size| *size <= length);
    let Some(size) = largest else {
        return Vec::new();
    };
    let mut pieces: Vec<_> = (0..length / size).map(|i| (i * size, size)).collect();
    if !length.is_multiple_of(size) {
        // Three bytes are two and one; more than that are two overlapping pieces of a kind.
        pieces.push(match size {
            2 => (2, 1),
            _ => (length - size, size),
        });
    }
    pieces
}

/// Writes the comparison. Expects the program's registers but for the spare one; they are the same behind
/// it. No flag is touched. Returns the address of [`super::Changing::skips_exit`].
pub(super) fn compare(
    (hot, cold): (&mut Stretch, &mut Stretch),
    spare: Gpr,
    ip: u64,
    source: &Source,
    exits: &mut Exits,
) -> Result<Option<u64>, OutOfReach> {
    let words = source.0.iter().flat_map(|(ip, bytes)| {
        let word = move |(at, size): (usize, usize)| (ip + at as u64, &bytes[at..at + size]);
        pieces(bytes.len()).into_iter().map(word)
    });
    let pieces: Vec<(u64, &[u8])> = words.collect();
    if pieces.is_empty() {
        return Ok(None);
    }
    let mut free = [Gpr::Rdx, Gpr::Rax].into_iter().filter(|gpr| *gpr != spare);
    let scratch = free.next().expect("one of two is not the spare one");
    let canonical = hot.inside(spare, Ip::At(ip), Some(0));
    let mut state = canonical;
    // The literals, then the way out.
    cold.asm.align(8);
    let literals = cold.asm.here();
    for (_, bytes) in &pieces {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let negated = u64::from_le_bytes(word).wrapping_neg();
        cold.asm.raw(&negated.to_le_bytes());
    }
    let changed = cold.asm.here();
    state.spilled.insert(Gpr::Rcx);
    state.spilled.insert(scratch);
    state.open = None;
    cold.mark(state);
    cold.asm.unspill(scratch);
    cold.asm.unspill(Gpr::Rcx);
    let mut out = canonical;
    out.open = None;
    cold.mark(out);
    let field = cold.asm.jump(cold.asm.here() + JUMP_BYTES as u64);
    let kind = ExitKind::Changed {
        warm_field: 0,
        cold_field: 0,
    };
    let (_, number) = exits.pad(cold, spare, out, Some(ip), kind);
    exits.set_warm_field(number, field);

    state.open = Some(0);
    hot.asm.spill(Gpr::Rcx);
    hot.asm.spill(scratch);
    hot.mark(state);
    let mut first = None;
    for (i, (at, bytes)) in pieces.iter().enumerate() {
        hot.asm.load_at(Gpr::Rcx, *at, bytes.len())?;
        hot.asm.load_at(scratch, literals + 8 * i as u64, 8)?;
        hot.asm.lea_sum(Gpr::Rcx, Gpr::Rcx, scratch);
        hot.asm.jrcxz(JUMP_BYTES);
        first.get_or_insert(hot.asm.here() - 1);
        hot.asm.jump(changed);
    }
    hot.asm.unspill(scratch);
    hot.asm.unspill(Gpr::Rcx);
    hot.mark(canonical);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_every_byte_and_none_beyond() {
        for length in 0..200 {
            let mut covered = vec![false; length];
            for (at, size) in pieces(length) {
                covered[at..at + size].fill(true);
            }
            assert!(covered.iter().all(|c| *c), "{length}");
        }
    }
}
