//! Exact caches driven by an access stream: what the estimates are tested against. Not for use
//! on real runs: every reference is simulated.

use std::collections::HashMap;

use crate::Rng;

/// A stream of line references, lines renumbered densely.
#[derive(Clone, Debug)]
pub struct Trace {
    ids: Vec<u32>,
    /// The line number given, per id: chooses the set.
    lines: Vec<u64>,
}

/// No line in this slot.
const EMPTY: u32 = u32::MAX;

impl Trace {
    /// From line numbers in the order of the references.
    #[must_use]
    pub fn new(references: impl IntoIterator<Item = u64>) -> Self {
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut lines = Vec::new();
        let ids = references
            .into_iter()
            .map(|line| {
                *known.entry(line).or_insert_with(|| {
                    lines.push(line);
                    (lines.len() - 1) as u32
                })
            })
            .collect();
        Self { ids, lines }
    }

    /// References.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Distinct lines.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.lines.len()
    }

    /// Forward reuse distance of each reference: references strictly between it and the next to
    /// the same line, `None` for the last one to it.
    #[must_use]
    pub fn distances(&self) -> Vec<Option<u64>> {
        let mut next = vec![usize::MAX; self.lines.len()];
        let mut out = vec![None; self.ids.len()];
        for (i, &id) in self.ids.iter().enumerate().rev() {
            let n = std::mem::replace(&mut next[id as usize], i);
            if n != usize::MAX {
                out[i] = Some((n - i - 1) as u64);
            }
        }
        out
    }

    /// Which references miss a cache of `lines` lines with random replacement, filled before
    /// anything is evicted; `ways` lines per set, sets by line number modulo their count.
    #[must_use]
    pub fn random_misses(&self, lines: u64, ways: Option<u32>, seed: u64) -> Vec<bool> {
        let mut rng = Rng::new(seed);
        self.simulate(lines, ways, false, &mut |ways| rng.below(ways) as usize)
    }

    /// Which references miss a cache of `lines` lines that evicts the least recently used of a set.
    #[must_use]
    pub fn lru_misses(&self, lines: u64, ways: u32) -> Vec<bool> {
        self.simulate(lines, Some(ways), true, &mut |_| 0)
    }

    fn simulate(
        &self,
        lines: u64,
        ways: Option<u32>,
        lru: bool,
        victim: &mut dyn FnMut(u64) -> usize,
    ) -> Vec<bool> {
        let ways = ways.map_or(lines, u64::from);
        let sets = (lines / ways).max(1);
        let mut slots: Vec<Vec<u32>> = vec![Vec::new(); sets as usize];
        let mut resident = vec![false; self.lines.len()];
        self.ids
            .iter()
            .map(|&id| {
                let set = &mut slots[(self.lines[id as usize] % sets) as usize];
                if resident[id as usize] {
                    if lru && let Some(at) = set.iter().position(|&x| x == id) {
                        let x = set.remove(at);
                        set.push(x);
                    }
                    return false;
                }
                resident[id as usize] = true;
                if (set.len() as u64) < ways {
                    set.push(id);
                } else if lru {
                    resident[set.remove(0) as usize] = false;
                    set.push(id);
                } else {
                    let gone = std::mem::replace(&mut set[victim(ways)], id);
                    resident[gone as usize] = false;
                }
                true
            })
            .collect()
    }

    /// Random-replacement miss ratio, fully associative or in sets.
    #[must_use]
    pub fn random_miss_ratio(&self, lines: u64, ways: Option<u32>, seed: u64) -> f64 {
        ratio(&self.random_misses(lines, ways, seed))
    }

    /// LRU miss ratio in sets.
    #[must_use]
    pub fn lru_miss_ratio(&self, lines: u64, ways: u32) -> f64 {
        ratio(&self.lru_misses(lines, ways))
    }

    /// Stack distance of each reference (distinct lines since the last touch of its own), `None`
    /// for first touches. Fenwick tree over time, one mark at each line's last touch.
    #[must_use]
    pub fn stack_distances(&self) -> Vec<Option<u64>> {
        let n = self.ids.len();
        let mut tree = vec![0i32; n + 1];
        let mut last = vec![EMPTY; self.lines.len()];
        let add = |tree: &mut Vec<i32>, at: usize, v: i32| {
            let mut i = at + 1;
            while i <= n {
                tree[i] += v;
                i += i & i.wrapping_neg();
            }
        };
        let sum = |tree: &Vec<i32>, upto: usize| {
            let (mut i, mut s) = (upto, 0i64);
            while i > 0 {
                s += i64::from(tree[i]);
                i -= i & i.wrapping_neg();
            }
            s
        };
        let mut out = Vec::with_capacity(n);
        for (t, &id) in self.ids.iter().enumerate() {
            let before = last[id as usize];
            if before == EMPTY {
                out.push(None);
            } else {
                let between = sum(&tree, t) - sum(&tree, before as usize + 1);
                out.push(Some(between as u64));
                add(&mut tree, before as usize, -1);
            }
            add(&mut tree, t, 1);
            last[id as usize] = t as u32;
        }
        out
    }

    /// Fully associative LRU miss ratios of several capacities in one pass.
    #[must_use]
    pub fn lru_curve(&self, lines: &[u64]) -> Vec<f64> {
        let mut depths: Vec<u64> = self
            .stack_distances()
            .into_iter()
            .map(|d| d.unwrap_or(u64::MAX))
            .collect();
        depths.sort_unstable();
        lines
            .iter()
            .map(|&l| {
                let hits = depths.partition_point(|&d| d < l);
                1.0 - hits as f64 / depths.len().max(1) as f64
            })
            .collect()
    }
}

fn ratio(misses: &[bool]) -> f64 {
    if misses.is_empty() {
        return 0.0;
    }
    misses.iter().filter(|&&m| m).count() as f64 / misses.len() as f64
}
