//! Of what code a window is.

use super::looks::falling;
use rustc_hash::FxHashMap;

/// Bytes of code that are taken together.
const GRANULE: u64 = 16;
/// Samples at a window's end that are compared with all of it, and how much less like it they may be than as many from all over it.
const LAST: usize = 64;
const SETTLED: f64 = 0.6;
/// Windows on either side of one that tell how fast its code is.
const FAR: usize = 200;

/// What the samples of a window are of.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Code and its share of the samples, in the order of addresses.
    code: Vec<(u64, f32)>,
    /// Whether the window ended in the code that it is of, on the whole: only then is what was timed behind it its own rate.
    pub settled: bool,
}

impl Content {
    /// Of a window of program image `image` with samples of these instructions, in the order of their execution.
    pub fn new(image: u32, ips: &[u64]) -> Content {
        let code = |ips: &mut dyn Iterator<Item = u64>| {
            let mut counts: FxHashMap<u64, u32> = FxHashMap::default();
            let mut all = 0;
            for ip in ips {
                *counts
                    .entry((ip / GRANULE) ^ (u64::from(image) << 48))
                    .or_default() += 1;
                all += 1;
            }
            let share = |(granule, count)| (granule, count as f32 / all as f32);
            let mut code: Vec<(u64, f32)> = counts.into_iter().map(share).collect();
            code.sort_unstable_by_key(|&(granule, _)| granule);
            code
        };
        let all = code(&mut ips.iter().copied());
        let last = code(&mut ips.iter().rev().take(LAST).copied());
        let stride = ips.len().div_ceil(LAST).max(1);
        let any = code(&mut ips.iter().step_by(stride).copied());
        Content {
            settled: common(&last, &all) >= SETTLED * common(&any, &all),
            code: all,
        }
    }
}

/// Common part of two windows' samples.
fn common(a: &[(u64, f32)], b: &[(u64, f32)]) -> f64 {
    let mut b = b.iter().peekable();
    let mut common = 0.0;
    for &(granule, share) in a {
        while b.next_if(|other| other.0 < granule).is_some() {}
        if let Some(other) = b.next_if(|other| other.0 == granule) {
            common += f64::from(share.min(other.1));
        }
    }
    common
}

/// How long an access takes in what code, by windows that were timed.
#[derive(Debug, Default)]
pub struct Speeds {
    /// For code, windows in their order, with its share of their samples, and seconds per access there.
    by_code: FxHashMap<u64, Vec<(usize, f32, f64)>>,
}

impl Speeds {
    /// Learns from a window, its number being larger than all before.
    pub fn learn(&mut self, window: usize, content: &Content, access_s: f64) {
        for &(granule, share) in &content.code {
            let of = self.by_code.entry(granule).or_default();
            of.push((window, share, access_s));
        }
    }

    /// The share of a window's samples that is of code which was timed near it, and seconds per access there: windows fall
    /// evenly in time, so those that were faster made more of the accesses.
    pub fn of(&self, window: usize, content: &Content) -> (f64, f64) {
        let (mut covered, mut access_s) = (0.0, 0.0);
        for (granule, share) in &content.code {
            let Some(timed) = self.by_code.get(granule) else {
                continue;
            };
            let begin = timed.partition_point(|&(other, ..)| other + FAR < window);
            let near = timed[begin..]
                .iter()
                .take_while(|&&(other, ..)| other <= window + FAR);
            let (mut weight, mut accesses) = (0.0, 0.0);
            for &(other, part, s) in near {
                let how = f64::from(part) * falling(window.abs_diff(other));
                weight += how;
                accesses += how / s;
            }
            if weight > 0.0 {
                covered += f64::from(*share);
                access_s += f64::from(*share) * weight / accesses;
            }
        }
        (covered, access_s / f64::max(covered, f64::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loop_at(place: u64, samples: usize) -> Vec<u64> {
        (0..samples as u64).map(|i| place + 8 * (i % 40)).collect()
    }

    #[test]
    fn a_window_is_settled_where_its_end_is_like_all_of_it() {
        let one = loop_at(0x1000, 400);
        assert!(Content::new(0, &one).settled);
        let two = [loop_at(0x1000, 300), loop_at(0x9000, 100)].concat();
        assert!(!Content::new(0, &two).settled);
        // In turn: code of many parts.
        let turns: Vec<u64> = (0..10)
            .flat_map(|n| loop_at(0x1000 * (n % 2), 40))
            .collect();
        assert!(Content::new(0, &turns).settled);
        assert!(Content::new(0, &[]).settled);
    }

    #[test]
    fn code_is_as_fast_as_where_it_was_timed() {
        let content = |place| Content::new(0, &loop_at(place, 200));
        let mut speeds = Speeds::default();
        speeds.learn(0, &content(0x1000), 1e-9);
        speeds.learn(1, &content(0x9000), 9e-9);
        let half = [loop_at(0x1000, 200), loop_at(0x9000, 200)].concat();
        let (covered, access_s) = speeds.of(2, &Content::new(0, &half));
        assert!((covered - 1.0).abs() < 1e-6 && (access_s - 5e-9).abs() < 1e-12);
        let half = [loop_at(0x1000, 200), loop_at(0x5000, 200)].concat();
        let (covered, access_s) = speeds.of(2, &Content::new(0, &half));
        assert!((covered - 0.5).abs() < 1e-6 && (access_s - 1e-9).abs() < 1e-12);
        // The same addresses in another program, and nothing at all.
        assert_eq!(speeds.of(2, &Content::new(1, &half)).0, 0.0);
        assert_eq!(speeds.of(2, &Content::default()).0, 0.0);
    }
}
