//! What each policy does to a set's metadata on a hit, on a fill and when a line must leave.

use super::{Ageing, Policy};
use crate::rng::Rng;

impl Policy {
    /// Prepares the metadata of an empty set.
    pub fn reset(&self, meta: &mut [u8], word: &mut u64) {
        *word = 0;
        for (i, m) in meta.iter_mut().enumerate() {
            *m = match self {
                Policy::Qlru { .. } => 3,
                _ => i as u8,
            };
        }
    }

    /// Records a hit on `way`.
    #[inline]
    pub fn hit(&self, meta: &mut [u8], word: &mut u64, way: usize) {
        match *self {
            Policy::Lru | Policy::Lip => to_front(meta, way),
            Policy::Fifo | Policy::Random => {}
            Policy::TreePlru => *word = tree_touch(*word, meta.len(), way),
            Policy::LruOfPlru { groups } => group_touch(meta, word, groups as usize, way),
            Policy::BitPlru => {
                *word |= 1 << way;
                if word.count_ones() as usize == meta.len() {
                    *word = 1 << way;
                }
            }
            Policy::Nru => *word |= 1 << way,
            Policy::Qlru {
                hit3,
                hit2,
                ageing,
                on_miss_only,
                ..
            } => {
                meta[way] = match meta[way] {
                    3 => hit3,
                    2 => hit2,
                    _ => 0,
                };
                if !on_miss_only {
                    age(meta, ageing, Some(way));
                }
            }
        }
    }

    /// Chooses the way to replace in a full set; the caller then calls [`Policy::filled`] with it.
    #[inline]
    pub fn victim(&self, meta: &mut [u8], word: &mut u64, rng: &mut Rng) -> usize {
        let ways = meta.len();
        match *self {
            Policy::Lru | Policy::Lip => last_of(meta, ways),
            Policy::Fifo => {
                let way = *word as usize;
                *word = ((way + 1) % ways) as u64;
                way
            }
            Policy::Random => rng.below(ways as u64) as usize,
            Policy::TreePlru => tree_victim(*word, ways),
            Policy::LruOfPlru { groups } => {
                let n = groups as usize;
                let inner = ways / n;
                let g = last_of(&meta[..n], n);
                let bits = (*word >> (g * (inner - 1))) & ((1 << (inner - 1)) - 1);
                g * inner + tree_victim(bits, inner)
            }
            Policy::BitPlru => (!*word).trailing_zeros() as usize % ways,
            Policy::Nru => {
                if word.count_ones() as usize >= ways {
                    *word = 0;
                }
                (!*word).trailing_zeros() as usize % ways
            }
            Policy::Qlru {
                from_right, ageing, ..
            } => loop {
                let found = if from_right {
                    meta.iter().rposition(|&a| a == 3)
                } else {
                    meta.iter().position(|&a| a == 3)
                };
                if let Some(way) = found {
                    return way;
                }
                let all = match ageing {
                    Ageing::AllToThree | Ageing::OthersToThree => Ageing::AllToThree,
                    Ageing::AllByOne | Ageing::OthersByOne => Ageing::AllByOne,
                };
                age(meta, all, None);
            },
        }
    }

    /// Records that a new line was put into `way`.
    #[inline]
    pub fn filled(&self, meta: &mut [u8], word: &mut u64, way: usize) {
        match *self {
            Policy::Lip | Policy::Fifo | Policy::Random => {}
            Policy::Qlru {
                insert,
                ageing,
                on_miss_only,
                ..
            } => {
                meta[way] = insert;
                if !on_miss_only {
                    age(meta, ageing, Some(way));
                }
            }
            _ => self.hit(meta, word, way),
        }
    }
}

#[inline]
fn last_of(ranks: &[u8], n: usize) -> usize {
    ranks.iter().position(|&r| r as usize == n - 1).unwrap_or(0)
}

#[inline]
fn to_front(ranks: &mut [u8], which: usize) {
    let old = ranks[which];
    for r in ranks.iter_mut() {
        *r += u8::from(*r < old);
    }
    ranks[which] = 0;
}

fn age(meta: &mut [u8], ageing: Ageing, touched: Option<usize>) {
    let oldest = meta.iter().copied().max().unwrap_or(3);
    if oldest >= 3 {
        return;
    }
    let step = match ageing {
        Ageing::AllToThree | Ageing::OthersToThree => 3 - oldest,
        Ageing::AllByOne | Ageing::OthersByOne => 1,
    };
    let spare = matches!(ageing, Ageing::OthersToThree | Ageing::OthersByOne);
    for (i, a) in meta.iter_mut().enumerate() {
        if !(spare && touched == Some(i)) {
            *a = (*a + step).min(3);
        }
    }
}

/// Node bits point to the half to replace next; a touch makes each node on the path point away.
#[inline]
fn tree_touch(mut bits: u64, ways: usize, way: usize) -> u64 {
    let (mut node, mut low, mut size) = (1usize, 0usize, ways);
    while size > 1 {
        size /= 2;
        let right = way >= low + size;
        if right {
            bits &= !(1 << (node - 1));
            low += size;
        } else {
            bits |= 1 << (node - 1);
        }
        node = node * 2 + usize::from(right);
    }
    bits
}

#[inline]
fn tree_victim(bits: u64, ways: usize) -> usize {
    let (mut node, mut low, mut size) = (1usize, 0usize, ways);
    while size > 1 {
        size /= 2;
        let right = bits >> (node - 1) & 1 == 1;
        if right {
            low += size;
        }
        node = node * 2 + usize::from(right);
    }
    low
}

fn group_touch(meta: &mut [u8], word: &mut u64, groups: usize, way: usize) {
    let inner = meta.len() / groups;
    let g = way / inner;
    to_front(&mut meta[..groups], g);
    let shift = g * (inner - 1);
    let mask = (1u64 << (inner - 1)) - 1;
    let bits = tree_touch(*word >> shift & mask, inner, way % inner);
    *word = *word & !(mask << shift) | bits << shift;
}
