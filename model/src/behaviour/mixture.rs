//! Which behaviours there are, and when each goes on.

use super::{GROUP, Glimpse, MOST};
use crate::Rng;

/// Most groups that behaviours are learned from.
const GROUPS: usize = 4096;
/// Part of what is missing of the right share that is made up for each time, and what is added to shares.
const TILT: f32 = 0.5;
const LEAST_SHARE: f64 = 0.002;
/// Rounds of classification.
const ROUNDS: usize = 12;
/// Samples of the run's own mixture that each behaviour is taken to have had before it was looked at.
const PRIOR: f64 = 20.0;
/// Log-likelihood (nats) that a change of behaviour must be worth at first, and at least.
const CHANGE: f32 = 10.0;
const LEAST_CHANGE: f32 = 1.0;

/// Behaviours.
pub(super) struct Mixture {
    /// Of each code, the log-likelihood in each behaviour.
    logs: Vec<[f32; MOST]>,
    /// Of each code, whether it is one of ends of reuses, which are a multinomial of their own.
    ends: Vec<bool>,
    /// How many there are.
    many: usize,
    /// Of each, how many reuses end for each sample that is taken; nothing where that is not known.
    pace: Option<[f32; MOST]>,
    /// Log-likelihood of each for the time of a sample, beside: such that each has the share of the time that it has of the samples, which are
    /// taken at times that know nothing of it. (One whose reuses end far away is seen at their ends, too, and would have more.)
    tilt: [f32; MOST],
    /// Log-likelihood that a change must be worth.
    change: f32,
}

impl Mixture {
    /// Learns what behaviours there are from groups of samples, and nothing of what ends in them: as many as there may be, begun with groups
    /// that fit the others least (k-means++, Arthur & Vassilvitskii 2007). What fits nothing best stays without any.
    pub(super) fn learn(codes: &[u32], ends: Vec<bool>) -> Mixture {
        let step = (codes.len() / GROUP).div_ceil(GROUPS);
        let groups: Vec<&[u32]> = codes.chunks(GROUP).step_by(step).collect();
        let all = shares(codes, &ends);
        let mut mixture = Mixture {
            logs: all.iter().map(|share| [log_of(*share); MOST]).collect(),
            ends,
            many: 1,
            pace: None,
            tilt: [0.0; MOST],
            change: CHANGE,
        };
        let mut rng = Rng::new(1);
        let own: Vec<f32> = groups.iter().map(|g| alone(g)).collect();
        let mut best: Vec<f32> = groups.iter().map(|g| mixture.logs(g)[0]).collect();
        while mixture.many < MOST {
            let losses = own
                .iter()
                .zip(&best)
                .map(|(own, best)| f64::from((own - best).max(0.0)));
            let mut at = rng.unit() * losses.clone().sum::<f64>();
            let drawn = losses.into_iter().position(|loss| {
                at -= loss;
                at <= 0.0
            });
            let Some(drawn) = drawn else { break };
            mixture.set(mixture.many, std::iter::once(groups[drawn]), &all);
            mixture.many += 1;
            for (best, group) in best.iter_mut().zip(&groups) {
                *best = best.max(mixture.logs(group)[mixture.many - 1]);
            }
        }
        let mut before = Vec::new();
        for _ in 0..ROUNDS {
            let of: Vec<usize> = groups.iter().map(|g| mixture.likeliest(g)).collect();
            if of == before {
                break;
            }
            for k in 0..mixture.many {
                let members = groups.iter().zip(&of).filter(|(_, of)| **of == k);
                mixture.set(k, members.map(|(group, _)| *group), &all);
            }
            before = of;
        }
        mixture
    }

    /// Log-likelihoods of so many codes in each behaviour.
    fn logs(&self, codes: &[u32]) -> [f32; MOST] {
        let mut sums = [0.0; MOST];
        for &code in codes {
            let logs = &self.logs[code as usize];
            sums.iter_mut().zip(logs).for_each(|(sum, log)| *sum += log);
        }
        sums
    }

    fn likeliest(&self, codes: &[u32]) -> usize {
        let logs = self.logs(codes);
        let each = (0..self.many).max_by(|&a, &b| logs[a].total_cmp(&logs[b]));
        each.unwrap_or(0)
    }

    /// Makes a behaviour that of these groups. `all`: shares of codes in the run.
    fn set<'a>(&mut self, k: usize, groups: impl Iterator<Item = &'a [u32]>, all: &[f64]) {
        let (mut counts, mut sum) = (vec![0.0; all.len()], PRIOR);
        for &code in groups.flatten() {
            counts[code as usize] += 1.0;
            sum += 1.0;
        }
        for ((logs, count), share) in self.logs.iter_mut().zip(counts).zip(all) {
            logs[k] = log_share(count, *share, sum);
        }
    }

    /// Learns from a course: what each of its behaviours does, how often it ends reuses, how likely it goes on unseen, and how often behaviours
    /// change. Numbers those of the course anew.
    pub(super) fn learn_course(&mut self, codes: &[u32], glimpses: &[Glimpse], of: &mut [u32]) {
        self.renumber(of);
        let all = shares(codes, &self.ends);
        let mut counts = vec![[0.0f32; MOST]; all.len()];
        let mut sums = [[PRIOR; MOST]; 2];
        // Sums of a whole run have no digits left in half the width.
        let (mut ends, mut wide, mut taken) = ([0.5; MOST], [1.0; MOST], [0.0; MOST]);
        for (glimpse, &k) in glimpses.iter().zip(&*of) {
            let k = k as usize;
            for &code in &codes[glimpse.seen.clone()] {
                counts[code as usize][k] += 1.0;
                sums[usize::from(self.ends[code as usize])][k] += 1.0;
            }
            ends[k] += f64::from(glimpse.ends);
            wide[k] += f64::from(glimpse.wide);
            taken[k] += f64::from(glimpse.taken);
        }
        for (code, (logs, share)) in self.logs.iter_mut().zip(all).enumerate() {
            let sums = &sums[usize::from(self.ends[code])];
            for k in 0..self.many {
                logs[k] = log_share(counts[code][k].into(), share, sums[k]);
            }
        }
        let (time, samples) = (wide.iter().sum::<f64>(), taken.iter().sum::<f64>());
        let share = |n: f64, all: f64| n / all.max(f64::MIN_POSITIVE) + LEAST_SHARE;
        for k in 0..self.many {
            self.tilt[k] += TILT * (share(taken[k], samples) / share(wide[k], time)).ln() as f32;
        }
        let pace = |k: usize| (ends[k] / wide[k]) as f32;
        self.pace = Some(std::array::from_fn(pace));
        let changes = of.windows(2).filter(|two| two[0] != two[1]).count();
        let often = (changes + 1) as f32 / of.len() as f32;
        self.change = (-often.ln()).max(LEAST_CHANGE);
    }

    /// Numbers the behaviours of a course from 0, and leaves out what it has none of.
    fn renumber(&mut self, of: &mut [u32]) {
        let mut numbers = [None; MOST];
        let (mut tilt, mut many) = ([0.0; MOST], 0);
        for k in of {
            let before = *k as usize;
            *k = *numbers[before].get_or_insert_with(|| {
                tilt[many] = self.tilt[before];
                many += 1;
                many as u32 - 1
            });
        }
        (self.tilt, self.many) = (tilt, many);
    }

    /// The likeliest course of behaviours, one for each glimpse.
    pub(super) fn follow(&self, codes: &[u32], glimpses: &[Glimpse]) -> Vec<u32> {
        let mut scores = [0.0f32; MOST];
        let mut before: Vec<[u8; MOST]> = Vec::with_capacity(glimpses.len());
        let likeliest = |scores: &[f32; MOST]| {
            let best = (0..self.many).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            best.unwrap_or(0)
        };
        let pace = self.pace.map(|pace| (pace.map(f32::ln), pace));
        for glimpse in glimpses {
            let mut logs = self.logs(&codes[glimpse.seen.clone()]);
            if let Some((of_ends, pace)) = &pace {
                for k in 0..self.many {
                    let all = self.tilt[k] - pace[k];
                    logs[k] += glimpse.ends * of_ends[k] + all * glimpse.telling;
                }
            }
            let best = likeliest(&scores);
            let changed = scores[best] - self.change;
            let mut from = [0; MOST];
            // Relative to the best, as sums of a whole run have no digits left.
            let top = scores[best];
            for k in 0..self.many {
                from[k] = if scores[k] >= changed { k } else { best } as u8;
                scores[k] = scores[k].max(changed) - top + logs[k];
            }
            before.push(from);
        }
        let mut of = likeliest(&scores);
        let mut course = vec![0; glimpses.len()];
        for (at, from) in before.iter().enumerate().rev() {
            course[at] = of as u32;
            of = usize::from(from[of]);
        }
        course
    }
}

/// Shares of codes in the run, among those of ends or among the others.
fn shares(codes: &[u32], ends: &[bool]) -> Vec<f64> {
    let (mut shares, mut sums) = (vec![0.0; ends.len()], [0.0; 2]);
    for &code in codes {
        shares[code as usize] += 1.0;
        sums[usize::from(ends[code as usize])] += 1.0;
    }
    let all = shares.iter_mut().zip(ends);
    all.for_each(|(share, end)| *share /= f64::max(sums[usize::from(*end)], 1.0));
    shares
}

/// Log-likelihood; of what is not known, none.
fn log_of(share: f64) -> f32 {
    if share > 0.0 { share.ln() as f32 } else { 0.0 }
}

/// Log-likelihood of a code that a behaviour of so many samples, the prior ones among them, has `count` times. `share`: in the run.
fn log_share(count: f64, share: f64, samples: f64) -> f32 {
    log_of((count + PRIOR * share) / samples)
}

/// Log-likelihood of codes in a behaviour of their own.
fn alone(codes: &[u32]) -> f32 {
    let mut sorted = codes.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|a, b| a == b).map(|run| run.len() as f32);
    runs.map(|n| n * (n / codes.len() as f32).ln()).sum()
}
