//! From a record of the log to the accesses it stands for.

use super::fragment::{Dynamic, Fragment, LoggedAccess};
use crate::arch::Kind;
use crate::observe::{Access, Observer};

/// Takes accesses in program order.
pub trait Sink {
    /// Takes one.
    fn access(&mut self, access: Access);

    /// Takes several rounds of the same accesses at once, each `step` bytes from where it was in the round before: at most
    /// `most`. Returns how many; 0: the first is to be taken access by access.
    fn rounds(
        &mut self,
        _first: impl Iterator<Item = Access> + Clone,
        _step: u64,
        _most: u64,
    ) -> u64 {
        0
    }
}

impl<F: FnMut(Access)> Sink for F {
    fn access(&mut self, access: Access) {
        self(access);
    }
}

impl Sink for Observer {
    fn access(&mut self, access: Access) {
        Observer::access(self, access);
    }

    fn rounds(&mut self, first: impl Iterator<Item = Access> + Clone, step: u64, most: u64) -> u64 {
        self.skip_rounds(first, step, most)
    }
}

/// Hands to `sink` every access of the first `items` items of `fragment`, whose record is
/// `record` (at least as long as those items need). `partial_rep`: the counter left of a `rep`
/// item that follows them and was interrupted; its iterations so far are included.
pub fn expand(
    fragment: &Fragment,
    items: u16,
    record: &[u64],
    fs_base: u64,
    partial_rep: Option<u64>,
    sink: &mut impl Sink,
) {
    expand_from(0, fragment, items, record, fs_base, sink);
    let done = usize::from(fragment.first_access[usize::from(items)]);
    if let Some(left) = partial_rep
        && let Some(&next) = fragment.first_access.get(usize::from(items) + 1)
    {
        let accesses = &fragment.accesses[done..usize::from(next)];
        if accesses
            .iter()
            .any(|a| matches!(a.dynamic.as_deref(), Some(Dynamic::Rep { .. })))
        {
            let ip = fragment.item_ip(usize::from(items));
            expand_item(accesses, ip, record, fs_base, Some(left), sink);
        }
    }
}

/// As [`expand`] of whole items, without the first `from` accesses: of a record in which each is made once.
pub fn expand_from(
    from: usize,
    fragment: &Fragment,
    items: u16,
    record: &[u64],
    fs_base: u64,
    sink: &mut impl Sink,
) {
    let done = usize::from(fragment.first_access[usize::from(items)]);
    let mut i = from;
    while i < done {
        let item = fragment.accesses[i].item;
        let mut end = i + 1;
        while end < done && fragment.accesses[end].item == item {
            end += 1;
        }
        let ip = fragment.item_ip(usize::from(item));
        expand_item(&fragment.accesses[i..end], ip, record, fs_base, None, sink);
        i = end;
    }
}

fn expand_item(
    accesses: &[LoggedAccess],
    ip: u64,
    record: &[u64],
    fs_base: u64,
    left: Option<u64>,
    sink: &mut impl Sink,
) {
    if let Some(Dynamic::Rep {
        count,
        after,
        counter32,
        step,
    }) = accesses.first().and_then(|first| first.dynamic.as_deref())
    {
        let mask = if *counter32 { 0xffff_ffff } else { u64::MAX };
        let before = term(count.slot, count.add, record) & mask;
        let after = match (left, after) {
            (Some(left), _) => left & mask,
            (None, 0) => 0,
            (None, word) => record[usize::from(*word)] & mask,
        };
        let round = |iteration: u64| {
            let moved = iteration.wrapping_mul(u64::from(*step));
            let accesses = accesses.iter();
            accesses.map(move |a| at(a, ip, address(a, record, fs_base, moved), u32::from(a.size)))
        };
        let wraps = accesses.iter().any(|a| a.space.wraps());
        let (mut iteration, iterations) = (0, before.wrapping_sub(after));
        while iteration < iterations {
            let at_once = match wraps {
                true => 0,
                false => sink.rounds(round(iteration), u64::from(*step), iterations - iteration),
            };
            if at_once == 0 {
                round(iteration).for_each(|access| sink.access(access));
            }
            iteration += at_once.max(1);
        }
        return;
    }
    for access in accesses {
        let size = u32::from(access.size);
        match access.dynamic.as_deref() {
            None | Some(Dynamic::Rep { .. }) => {
                sink.access(at(access, ip, address(access, record, fs_base, 0), size));
            }
            Some(&Dynamic::Bit {
                offset,
                operand_bytes,
            }) => {
                let bytes = i64::from(operand_bytes);
                let value = term(offset.slot, offset.add, record) as i64;
                // Intel SDM vol. 2, BT: the offset is signed and of the operand's size.
                let signed = value << (64 - 8 * bytes) >> (64 - 8 * bytes);
                let moved = signed.div_euclid(8 * bytes) * bytes;
                sink.access(at(
                    access,
                    ip,
                    address(access, record, fs_base, moved as u64),
                    size,
                ));
            }
            Some(Dynamic::Xlat { rax }) => {
                let al = term(rax.slot, rax.add, record) & 0xff;
                sink.access(at(access, ip, address(access, record, fs_base, al), size));
            }
            Some(Dynamic::Gather { .. }) => expand_gather(access, ip, record, fs_base, sink),
        }
    }
}

/// Active lanes, adjoining ones merged into one access.
fn expand_gather(
    access: &LoggedAccess,
    ip: u64,
    record: &[u64],
    fs_base: u64,
    sink: &mut impl Sink,
) {
    let Some(&Dynamic::Gather {
        index,
        lanes,
        index_bytes,
        element_bytes,
        scale,
        mask,
        vector_mask,
    }) = access.dynamic.as_deref()
    else {
        return;
    };
    let mut last: Option<(u64, u32)> = None;
    for lane in 0..usize::from(lanes) {
        let active = if vector_mask {
            signed_element(record, mask, lane, element_bytes) < 0
        } else {
            record[usize::from(mask)] >> lane & 1 != 0
        };
        if !active {
            continue;
        }
        let offset = signed_element(record, index, lane, index_bytes) * i64::from(scale);
        let start = address(access, record, fs_base, offset as u64);
        last = match last {
            Some((first, size)) if first.wrapping_add(u64::from(size)) == start => {
                Some((first, size + u32::from(element_bytes)))
            }
            other => {
                if let Some((first, size)) = other {
                    sink.access(at(access, ip, first, size));
                }
                Some((start, u32::from(element_bytes)))
            }
        };
    }
    if let Some((first, size)) = last {
        sink.access(at(access, ip, first, size));
    }
}

fn signed_element(record: &[u64], word: u8, lane: usize, bytes: u8) -> i64 {
    let word = usize::from(word);
    match bytes {
        4 => i64::from((record[word + lane / 2] >> (32 * (lane % 2))) as i32),
        _ => record[word + lane] as i64,
    }
}

fn term(slot: u8, add: u64, record: &[u64]) -> u64 {
    match slot {
        0 => add,
        slot => record[usize::from(slot)].wrapping_add(add),
    }
}

fn address(access: &LoggedAccess, record: &[u64], fs_base: u64, extra: u64) -> u64 {
    let mut sum = term(access.base, access.disp, record)
        .wrapping_add(term(access.index, 0, record).wrapping_mul(u64::from(access.scale)))
        .wrapping_add(extra);
    if access.space.wraps() {
        sum &= 0xffff_ffff;
    }
    if access.space.fs() {
        sum.wrapping_add(fs_base)
    } else {
        sum
    }
}

fn at(access: &LoggedAccess, ip: u64, address: u64, size: u32) -> Access {
    Access {
        ip,
        address,
        size,
        load: access.kind != Kind::Store,
        store: access.kind != Kind::Load,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Ended;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Copies and fills of any length and alignment, some of watched lines: nothing tells what was counted at once.
    #[test]
    fn rounds_at_once_count_as_one_by_one() {
        let mut random = SmallRng::seed_from_u64(5);
        for period in [1, 40, 900, 20_000] {
            let (mut fast, mut slow) = (Observer::new(period, 9), Observer::new(period, 9));
            let mut at_once = 0;
            for _ in 0..400 {
                let size = 1u32 << random.random_range(0..4);
                let step = u64::from(size);
                let place = |random: &mut SmallRng| 0x7000 + random.random_range(0..40_000u64);
                let mut first = [place(&mut random), place(&mut random)].map(|address| Access {
                    ip: 4,
                    address,
                    size,
                    load: true,
                    store: false,
                });
                if random.random_bool(0.8) {
                    first.iter_mut().for_each(|a| a.address &= !(step - 1));
                }
                let first = &first[..random.random_range(1..3)];
                let most = random.random_range(0..3000u64);
                let round = |n: u64| {
                    first.iter().map(move |a| Access {
                        address: a.address + n * step,
                        ..*a
                    })
                };
                let mut n = 0;
                while n < most {
                    let taken = fast.rounds(round(n), step, most - n);
                    assert!(taken <= most - n);
                    if taken == 0 {
                        round(n).for_each(|access| fast.access(access));
                    }
                    at_once += taken;
                    n += taken.max(1);
                }
                for n in 0..most {
                    round(n).for_each(|access| slow.access(access));
                }
            }
            assert_eq!(fast.accesses(), slow.accesses());
            assert_eq!(fast.refs(), slow.refs());
            assert_eq!(fast.until_sample(), slow.until_sample());
            assert_eq!(fast.end_all(Ended::Cut), slow.end_all(Ended::Cut));
            assert!(period < 40 || at_once > fast.accesses() / 8, "{at_once}");
        }
    }
}
