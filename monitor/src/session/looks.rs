//! Which window stands for which part of a run, by looks at where the program is between them.
//!
//! Windows are few, as each takes milliseconds; a look takes microseconds ([`super::observed`]'s `whereabouts`). Each
//! stands for the time around it, and that time goes to the windows that were in the same code, the nearer ones a little rather. So a
//! phase that is short and fast, in which a window falls now and then, has the weight of the many looks that fell into it
//! (post-stratification: Cochran, Sampling Techniques, 5A.9).
//!
//! A window is where it begins: when it does is as random as when a look is taken, but where it was sought ([`super::seek`]). Windows share code, so a look goes to each
//! by the share of its first samples that are near the look's instruction, and to near windows a little rather than to far ones.

use crate::profile::types::Unmet;
use std::collections::BTreeMap;

/// Samples around a look that suffice to tell windows apart, and the distances in bytes within which they are sought: an interrupt is taken
/// instructions behind what it waited for, much of a loop makes no access, and a window of some hundred samples has few in each piece of a large
/// program's code. (With 16 samples and up to 512 bytes, 34 and 41 % of the looks of an interpreter and a chess program were in code that no
/// window saw: benches/README.md.)
const ENOUGH: usize = 3;
const NEAR: [u64; 11] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Windows on either side of a look that it may go to, where there are any in its code.
const FAR: usize = 400;
/// The same where there are none.
const FAR_UNSEEN: usize = 8;
/// Windows on either side by which it is told how far apart they are, and how far at the least.
const AROUND: usize = 3;
const LEAST_APART_S: f64 = 1e-4;
/// How many times slower windows in the same code are before that tells that they spent their time elsewhere: rates are known to a factor
/// of two or so.
const UNEQUAL: f64 = 4.0;
/// Looks for each window, on the mean, below which they tell no more than the windows do.
const ENOUGH_LOOKS: usize = 3;
/// Addresses that are kept, over all windows: for some days of a run.
const MOST: usize = 4 << 20;
/// Looks that are told from one another by their code.
const MOST_PLACES: usize = 2000;

/// Where the program was at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    /// CPU seconds outside of windows so far.
    at_s: f64,
    /// Instruction, and the program image it is of.
    ip: u64,
    image: u32,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    at_s: f64,
    image: u32,
    samples: usize,
    /// See [`Looks::of_its_code`].
    of_its_code: bool,
}

/// The looks at one process, and its windows.
#[derive(Debug, Default)]
pub struct Looks {
    looks: Vec<Look>,
    windows: Vec<Window>,
    /// Instructions sampled, the window, and how often.
    sampled: Vec<(u64, u32, u32)>,
}

/// What windows stand for by the looks.
#[derive(Debug, PartialEq)]
pub struct Shares {
    /// Native CPU seconds of each window.
    pub native_s: Vec<f64>,
    /// Variance of the accesses of the run, because looks fall where they fall; that windows do is not in it.
    pub variance: f64,
    /// Looks in its code that each window stands for.
    pub looks: Vec<f64>,
}

impl Looks {
    /// At `at_s` CPU seconds outside of windows, a thread of program image `image` was at `ip`.
    pub fn look(&mut self, at_s: f64, ip: u64, image: u32) {
        self.looks.push(Look { at_s, ip, image });
    }

    /// The next window, opened at `at_s`, which began with samples of these instructions.
    pub fn window(&mut self, at_s: f64, image: u32, first: Vec<u64>) {
        self.add(at_s, image, first, false);
    }

    /// The same of one that was sought there, or of what the window before saw behind the stretch that it began in: it stands for no time but that
    /// in its code.
    pub fn of_its_code(&mut self, at_s: f64, image: u32, first: Vec<u64>) {
        self.add(at_s, image, first, true);
    }

    /// Where looks at a program image fell, and how many; of some, evenly spread, where there are many.
    pub fn places(&self, image: u32) -> Vec<(u64, u32)> {
        let of_image = || self.looks.iter().filter(|look| look.image == image);
        let every = of_image().count().div_ceil(MOST_PLACES).max(1);
        let mut ips: Vec<u64> = of_image().step_by(every).map(|look| look.ip).collect();
        ips.sort_unstable();
        let alike = ips.chunk_by(|a, b| a == b);
        alike.map(|ips| (ips[0], ips.len() as u32)).collect()
    }

    fn add(&mut self, at_s: f64, image: u32, mut first: Vec<u64>, of_its_code: bool) {
        let number = self.windows.len() as u32;
        self.windows.push(Window {
            at_s,
            image,
            samples: first.len(),
            of_its_code,
        });
        if self.sampled.len() < MOST {
            first.sort_unstable();
            let alike = first.chunk_by(|a, b| a == b);
            self.sampled
                .extend(alike.map(|ips| (ips[0], number, ips.len() as u32)));
        }
    }

    /// Shares out the time up to `end_s`, `rates` being the accesses per native second of each window, and `seen` those of which that is more than a
    /// guess, and is of its samples. `None` where looks do not tell: they are too few, or too much was sampled.
    pub fn shares(&self, end_s: f64, rates: &[f64], seen: &[bool]) -> Option<Shares> {
        let windows = &self.windows;
        let mut looks = self.looks.clone();
        // Of several threads, one after the other.
        looks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        if windows.len() < 2
            || rates.len() != windows.len()
            || looks.len() < ENOUGH_LOOKS * windows.len()
            || self.sampled.len() >= MOST
        {
            return None;
        }
        let mut sampled = self.sampled.clone();
        sampled.sort_unstable();
        let by_ip: Vec<&[(u64, u32, u32)]> = sampled.chunk_by(|a, b| a.0 == b.0).collect();
        let fast: Vec<Option<f64>> = rates
            .iter()
            .zip(seen)
            .map(|(rate, seen)| seen.then_some(*rate))
            .collect();
        let apart_s = self.apart_s(end_s);
        let mut native_s = vec![0.0; windows.len()];
        let mut counts = vec![0.0; windows.len()];
        let (mut variance, mut before) = (0.0, None);
        // From window to window, from the beginning to the end.
        let mut from_s = 0.0;
        let mut rest = &looks[..];
        for next in 0..=windows.len() {
            let to_s = windows.get(next).map_or(end_s, |w| w.at_s).max(from_s);
            let here = rest.partition_point(|look| next < windows.len() && look.at_s < to_s);
            let (looks, behind) = match next < windows.len() {
                true => rest.split_at(here),
                false => (rest, &[][..]),
            };
            rest = behind;
            if looks.is_empty() {
                // As the windows before and behind.
                let began = |window: &usize| !windows[*window].of_its_code;
                let before = (0..next).rev().find(began);
                let after = (next..windows.len()).find(began);
                for window in [before.or(after), after.or(before)].into_iter().flatten() {
                    native_s[window] += 0.5 * (to_s - from_s);
                }
            }
            let time_s = (to_s - from_s) / looks.len().max(1) as f64;
            for look in looks {
                let (mut chances, seen) = self.chances(look, &by_ip, &fast);
                for (window, chance) in &mut chances {
                    *chance *= apart_s[*window];
                }
                let sum: f64 = chances.iter().map(|&(_, chance)| chance).sum();
                let mut rate = 0.0;
                for (window, chance) in chances {
                    native_s[window] += time_s * chance / sum;
                    // In code that no window saw a look tells nothing of windows.
                    counts[window] += if seen { chance / sum } else { 0.0 };
                    rate += rates[window] * chance / sum;
                }
                if let Some(before) = before.replace(rate) {
                    variance += 0.5 * (time_s * (rate - before)).powi(2);
                }
            }
            from_s = to_s;
        }
        Some(Shares {
            native_s,
            variance,
            looks: counts,
        })
    }

    /// How far apart windows are around each: where they are denser than elsewhere each stands for less.
    fn apart_s(&self, end_s: f64) -> Vec<f64> {
        let at_s = |window: usize| self.windows.get(window).map_or(end_s, |w| w.at_s);
        let around = |window: usize| {
            let from_s = match window.checked_sub(AROUND) {
                Some(before) => at_s(before),
                None => 0.0,
            };
            let gaps = (window + AROUND).min(self.windows.len()) - window.saturating_sub(AROUND)
                + usize::from(window < AROUND);
            ((at_s(window + AROUND) - from_s) / gaps as f64).max(LEAST_APART_S)
        };
        (0..self.windows.len()).map(around).collect()
    }

    /// What looks up to `end_s` tell of the time in code that `is_unmet`, given the program image and the instruction.
    pub fn unmet(&self, end_s: f64, is_unmet: impl Fn(u32, u64) -> bool) -> Unmet {
        let mut looks = self.looks.clone();
        looks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let mut unmet = Unmet::default();
        let (mut from_s, mut rest) = (0.0, &looks[..]);
        let ends = self.windows.iter().map(|window| window.at_s);
        for to_s in ends.chain([end_s]) {
            let to_s = to_s.max(from_s);
            let (here, behind) = rest.split_at(rest.partition_point(|look| look.at_s < to_s));
            let others = here.iter().filter(|look| is_unmet(look.image, look.ip));
            let others = others.count();
            let gap_s = to_s - from_s;
            if !here.is_empty() {
                unmet.looks += others as u32;
                unmet.unmet_s += gap_s * others as f64 / here.len() as f64;
                unmet.of += here.len() as u32;
                unmet.of_s += gap_s;
            }
            unmet.all_s += gap_s;
            (from_s, rest) = (to_s, behind);
        }
        // But for the last digits.
        unmet.unmet_s = unmet.unmet_s.min(unmet.of_s);
        unmet.of_s = unmet.of_s.min(unmet.all_s);
        unmet
    }

    /// Windows that the look may be like, with chances that need not add up to one, and whether they saw its code.
    fn chances(
        &self,
        look: &Look,
        by_ip: &[&[(u64, u32, u32)]],
        rates: &[Option<f64>],
    ) -> (Vec<(usize, f64)>, bool) {
        let windows = &self.windows;
        let next = windows.partition_point(|w| w.at_s <= look.at_s);
        let between = |window: usize| match window < next {
            true => next - 1 - window,
            false => window - next,
        };
        for distance in NEAR {
            let from = look.ip.saturating_sub(distance);
            let first = by_ip.partition_point(|of| of[0].0 < from);
            let around = by_ip[first..]
                .iter()
                .take_while(|of| of[0].0 <= look.ip.saturating_add(distance));
            let mut counts = BTreeMap::new();
            let mut all = 0;
            for of in around {
                let begin = of.partition_point(|&(_, window, _)| (window as usize) + FAR < next);
                for &(_, window, count) in &of[begin..] {
                    let window = window as usize;
                    if window > next + FAR {
                        break;
                    }
                    if windows[window].image == look.image {
                        *counts.entry(window).or_insert(0) += count as usize;
                        all += count as usize;
                    }
                }
            }
            if all >= ENOUGH {
                let fastest = counts.keys().filter_map(|&window| rates[window]);
                let fastest = fastest.fold(1.0, f64::max);
                let chance = |(window, count): (usize, usize)| {
                    let share = count as f64 / windows[window].samples as f64;
                    // Of a slow window that much of its accesses is little of its time.
                    let slow =
                        rates[window].map_or(1.0, |rate| (UNEQUAL * rate / fastest).min(1.0));
                    (window, nearness(between(window)) * share * slow)
                };
                return (counts.into_iter().map(chance).collect(), true);
            }
        }
        // Code that no window saw: as those around it, of which one alone may be of something short and unlike the rest.
        let around = next.saturating_sub(FAR_UNSEEN)..windows.len().min(next + FAR_UNSEEN);
        let chance = |window| (window, nearness(between(window)));
        let of_time = |window: &usize| !windows[*window].of_its_code;
        let chances: Vec<(usize, f64)> = around.clone().filter(of_time).map(chance).collect();
        match chances.is_empty() {
            true => (around.map(chance).collect(), false),
            false => (chances, false),
        }
    }
}

/// How much a window counts behind so many others: little less, as of windows in the same code the nearest one is seldom more like the look than
/// the next ones.
fn nearness(between: usize) -> f64 {
    (1.0 + between as f64).powf(-0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two loops, 4 KiB apart, sampled at two instructions each.
    const LOOPS: [u64; 2] = [0x401000, 0x402000];

    fn sampled(place: u64) -> Vec<u64> {
        (0..40).map(|i| place + 8 * (i % 2)).collect()
    }

    /// A window each second, of which every tenth is in the second loop; a hundred looks a second, of which `part` are there.
    fn shares(part: usize) -> Shares {
        let mut looks = Looks::default();
        for window in 0..20 {
            let from = f64::from(window);
            for look in 0..100 {
                let place = LOOPS[usize::from(look % 100 >= 100 - part)];
                looks.look(from + look as f64 * 0.01, place + 4, 0);
            }
            let place = LOOPS[usize::from(window % 10 == 3)];
            looks.window(from + 0.995, 0, sampled(place));
        }
        looks.shares(20.0, &[1e9; 20], &[true; 20]).unwrap()
    }

    #[test]
    fn a_window_stands_for_the_time_that_the_program_was_in_its_code() {
        for part in [0, 2, 30] {
            let shares = shares(part);
            let second = shares.native_s[3] + shares.native_s[13];
            let all: f64 = shares.native_s.iter().sum();
            assert!((all - 20.0).abs() < 1e-9, "{all}");
            assert!(
                (second - 0.2 * part as f64).abs() < 0.05,
                "{part}: {second}"
            );
        }
    }

    /// A window of a slow loop that comes to a fast one has most of its accesses there, and spends none of its time there.
    #[test]
    fn time_in_fast_code_is_not_of_windows_that_merely_came_to_it() {
        let mut looks = Looks::default();
        for at in 0..10 {
            let mixed = [sampled(LOOPS[0]), sampled(LOOPS[1])].concat();
            looks.window(f64::from(at), 0, mixed);
        }
        looks.of_its_code(10.0, 0, sampled(LOOPS[1]));
        for look in 0..1000 {
            let place = LOOPS[usize::from(look % 50 == 0)];
            looks.look(0.01 * f64::from(look), place, 0);
        }
        let mut rates = vec![10e6; 10];
        rates.push(3e9);
        let shares = looks.shares(10.0, &rates, &[true; 11]).unwrap().native_s;
        assert!((0.15..0.2).contains(&shares[10]), "{shares:?}");
        // A guess says nothing, nor does the rate of a stretch without accesses.
        let guessed = [[true; 10].as_slice(), &[false]].concat();
        let shares = looks.shares(10.0, &rates, &guessed).unwrap().native_s;
        assert!(shares[10] < 0.1, "{shares:?}");
        // Of equal speed they were as much in it.
        let shares = looks
            .shares(10.0, &[3e9; 11], &[true; 11])
            .unwrap()
            .native_s;
        assert!(shares[10] < 0.1, "{shares:?}");
    }

    #[test]
    fn nearer_windows_rather_and_those_around_where_no_code_is_alike() {
        let windows = |looks: &mut Looks| {
            // One right behind the other, so that there is no time between them.
            for window in 0..12 {
                let place = LOOPS[usize::from(window == 1)];
                looks.window(1.0, 0, sampled(place));
            }
        };
        let mut looks = Looks::default();
        windows(&mut looks);
        for look in 0..40 {
            looks.look(0.5 + 0.01 * f64::from(look), LOOPS[0], 0);
        }
        let shares = looks.shares(1.0, &[1.0; 12], &[true; 12]).unwrap().native_s;
        // By distance, and none of the other loop.
        assert_eq!(shares[1], 0.0);
        assert!(shares[0] > shares[2] && shares[2] > shares[11] && shares[11] > 0.0);
        // Elsewhere: the eight next ones, whatever code they are of.
        let mut looks = Looks::default();
        windows(&mut looks);
        for look in 0..40 {
            looks.look(0.5 + 0.01 * f64::from(look), 0x7fff_0000, 0);
        }
        let shares = looks.shares(1.0, &[1.0; 12], &[true; 12]).unwrap().native_s;
        assert!(shares[..8].is_sorted_by(|a, b| a > b), "{shares:?}");
        assert!(
            shares[7] > 0.0 && shares[8..].iter().all(|s| *s == 0.0),
            "{shares:?}"
        );
    }

    /// Ten windows in the first tenth of a second are not ten of a run of ten seconds.
    #[test]
    fn dense_windows_stand_for_less_each() {
        let mut looks = Looks::default();
        let ats = (1..=10).map(|n| 0.01 * f64::from(n));
        for at in ats.chain((1..10).map(f64::from)) {
            looks.window(at, 0, sampled(LOOPS[0]));
        }
        for look in 0..1000 {
            looks.look(0.01 * f64::from(look) + 0.005, LOOPS[0], 0);
        }
        let shares = looks.shares(10.0, &[1.0; 19], &[true; 19]).unwrap();
        let first: f64 = shares.native_s[..10].iter().sum();
        assert!((0.1..1.5).contains(&first), "{first}");
        // Evenly spread they are alike.
        let even: f64 = shares.native_s[12..16].iter().sum();
        assert!((3.0..6.0).contains(&even), "{even}");
    }

    #[test]
    fn code_of_another_program_at_the_same_address_is_other_code() {
        let mut looks = Looks::default();
        for at in [1.0, 2.0, 3.0, 4.0] {
            looks.window(at, 0, sampled(LOOPS[0]));
        }
        looks.window(5.0, 1, sampled(LOOPS[0]));
        for at in [5.5, 5.6, 5.7] {
            looks.look(at, LOOPS[0], 1);
        }
        for look in 0..12 {
            looks.look(0.1 * f64::from(look), LOOPS[0], 0);
        }
        let shares = looks.shares(6.0, &[1.0; 5], &[true; 5]).unwrap().native_s;
        assert!(shares[4] > 1.0, "{shares:?}");
    }

    #[test]
    fn time_without_looks_is_not_told_to_be_in_code_that_was_met() {
        let mut looks = Looks::default();
        // Ten looks before the first window, one of them elsewhere; none before the second; four behind it, two elsewhere.
        for look in 0..10 {
            let place = LOOPS[usize::from(look == 7)];
            looks.look(0.1 * f64::from(look) + 0.05, place, 0);
        }
        looks.window(1.0, 0, sampled(LOOPS[0]));
        looks.window(3.0, 0, sampled(LOOPS[0]));
        for look in 0..4 {
            looks.look(3.1 + f64::from(look), LOOPS[look as usize % 2], 0);
        }
        let unmet = looks.unmet(7.0, |_, ip| ip == LOOPS[1]);
        assert_eq!((unmet.looks, unmet.of), (3, 14));
        assert!((unmet.unmet_s - 2.1).abs() < 1e-9, "{unmet:?}");
        assert!((unmet.of_s - 5.0).abs() < 1e-9, "{unmet:?}");
        assert!((unmet.all_s - 7.0).abs() < 1e-9, "{unmet:?}");
    }

    #[test]
    fn too_few_looks_tell_nothing() {
        let mut looks = Looks::default();
        assert_eq!(looks.shares(1.0, &[], &[]), None);
        looks.window(0.5, 0, sampled(LOOPS[0]));
        looks.window(0.6, 0, sampled(LOOPS[0]));
        looks.look(0.7, LOOPS[0], 0);
        assert_eq!(looks.shares(1.0, &[1.0; 2], &[true; 2]), None);
    }
}
