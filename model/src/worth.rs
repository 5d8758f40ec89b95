//! How much more a long window tells than a short one.
//!
//! Windows have very different lengths. In a program that changes its ways slowly a long window sees what a short one
//! at its place would have seen, and both count alike. In one that goes through the same round again and again, a
//! short window sees a part of a round and a long one its mean: counted alike, the short ones would drown it. Which of
//! the two it is, is seen by cutting long windows into pieces as long as short windows: where pieces of one window
//! differ as much as pieces of different windows do, each piece is worth a window.
//!
//! Source: cluster sampling with the intraclass correlation `r`, where `k` pieces are worth `k / (1 + (k - 1) r)`
//! independent ones (Cochran, Sampling Techniques, 9.4; Kish's design effect).

use crate::{LineSize, Outcome, Sample, Stream, memory};

/// Equal parts of a window that are told apart.
const PARTS: usize = 64;
/// A sample is told from others by whether its line comes back within so many line references.
const DISTANCES: [u64; 3] = [32, 1_000, 8_000];
/// Fewest samples of a piece, and fewest long windows and pieces of them that correlations are believed of.
const LEAST_SAMPLES: f64 = 30.0;
const LEAST_LONG: usize = 4;
const LEAST_PIECES: f64 = 12.0;
/// Standard errors by which the correlation is taken to be larger than it seems.
const DOUBT: f64 = 1.0;
/// Standard errors by which pieces must differ to be taken to.
const SURE: f64 = 2.0;
/// Windows before and behind one that say how long windows are there.
const AROUND: usize = 7;
/// Most that a window is worth: what is behind it is an estimate.
const MOST: f64 = 12.0;

/// How often lines came back soon, over the course of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course {
    parts: Vec<Counts>,
}

/// For each of [`DISTANCES`], samples that were followed for as long, and those among them not touched by then.
type Counts = [(u16, u16); DISTANCES.len()];

impl Course {
    /// Of a window of so many line references.
    pub fn new(samples: &[Sample], refs: u64) -> Self {
        let mut parts = vec![Counts::default(); PARTS];
        for sample in samples {
            let at = (sample.position as f64 / refs.max(1) as f64 * PARTS as f64) as usize;
            let counts = &mut parts[at.min(PARTS - 1)];
            for ((followed, open), distance) in counts.iter_mut().zip(DISTANCES) {
                let is_open = match crate::prepare::outcome(sample, LineSize::B64, Stream::Own) {
                    Outcome::Reused { distance: d, .. } => d >= distance,
                    Outcome::Censored { at } | Outcome::NeverReused { at } if at >= distance => {
                        true
                    }
                    _ => continue,
                };
                *followed = followed.saturating_add(1);
                *open = open.saturating_add(u16::from(is_open));
            }
        }
        Self { parts }
    }

    /// Samples and those that were open, of equal pieces.
    fn pieces(&self, count: usize, distance: usize) -> Vec<(f64, f64)> {
        let mut pieces = vec![(0.0, 0.0); count];
        for (at, counts) in self.parts.iter().enumerate() {
            let piece = &mut pieces[at * count / PARTS];
            piece.0 += f64::from(counts[distance].0);
            piece.1 += f64::from(counts[distance].1);
        }
        pieces.retain(|&(followed, _)| followed >= LEAST_SAMPLES);
        pieces
    }
}

/// A window, and what it stands for before any is worth more than another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighed<'a> {
    /// Its accesses.
    pub length: f64,
    /// Line references of the run.
    pub weight: f64,
    pub course: &'a Course,
}

/// What the windows of a run tell by their lengths.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Worth {
    /// By how much the weight of each window is to be multiplied.
    pub factors: Vec<f64>,
    /// Accesses over which the run goes on as it does ([`memory::length`]).
    pub memory: f64,
}

/// By how much the weight of each window is to be multiplied for what it is worth. The run is no longer for that: the sum of
/// all weights stays.
pub(crate) fn weigh(windows: &[Weighed]) -> Worth {
    let courses: Vec<(f64, &Course)> = windows.iter().map(|w| (w.length, w.course)).collect();
    let Worth {
        mut factors,
        memory,
    } = worth(&courses);
    let run: f64 = windows.iter().map(|w| w.weight).sum();
    let weights = windows.iter().map(|w| w.weight);
    let worthy: f64 = weights.zip(&factors).map(|(w, x)| w * x).sum();
    let scale = if worthy > 0.0 { run / worthy } else { 1.0 };
    for factor in &mut factors {
        *factor *= scale;
    }
    Worth { factors, memory }
}

/// What each window is worth, at least 1; they have these lengths.
fn worth(windows: &[(f64, &Course)]) -> Worth {
    // In windows around it: lengths that change with the phases of a run say nothing.
    let times: Vec<f64> = (0..windows.len())
        .map(|at| {
            let around = &windows[at.saturating_sub(AROUND)..windows.len().min(at + AROUND + 1)];
            let mut lengths: Vec<f64> = around.iter().map(|&(length, _)| length).collect();
            lengths.sort_by(f64::total_cmp);
            let times = windows[at].0 / lengths[lengths.len() / 2];
            if times.is_finite() { times } else { 1.0 }
        })
        .collect();
    let pieces = |times: f64| (times as usize).clamp(1, PARTS);
    let correlations = (0..DISTANCES.len()).filter_map(|distance| {
        let cut = |(&(_, course), &times): (&(f64, &Course), &f64)| {
            course.pieces(pieces(times), distance)
        };
        let cut = windows.iter().zip(&times).map(cut);
        correlation(&cut.collect::<Vec<_>>())
    });
    // The largest: whatever is alike inside windows.
    let r = correlations.fold(f64::NAN, f64::max);
    let worth = |times: &f64| {
        let k = times.max(1.0);
        let worth = k / (1.0 + (k - 1.0) * r);
        if worth.is_finite() {
            worth.min(MOST)
        } else {
            1.0
        }
    };
    let lengths = windows.iter().zip(&times).map(|(&(length, _), &times)| {
        let pieces = pieces(times);
        (pieces, length / pieces as f64)
    });
    Worth {
        factors: times.iter().map(worth).collect(),
        memory: memory::length(r, &lengths.collect::<Vec<_>>()),
    }
}

/// Intraclass correlation of the pieces of windows, on the large side of what is likely. `None` where nothing differs, or too
/// few pieces tell.
fn correlation(windows: &[Vec<(f64, f64)>]) -> Option<f64> {
    let all = || windows.iter().flatten();
    let (followed, open) = all().fold((0.0, 0.0), |(n, x), piece| (n + piece.0, x + piece.1));
    let mean = open / followed;
    let pieces = all().count() as f64;
    // Of the pieces around the mean of all, and around that of their window, both without what chance does.
    let noise = |&(n, x): &(f64, f64)| (x / n) * (1.0 - x / n) / (n - 1.0);
    let apart = || all().map(|p| (p.1 / p.0 - mean).powi(2) - noise(p));
    let total = apart().sum::<f64>() / (pieces - 1.0);
    let error = apart().map(|v| (v - total).powi(2)).sum::<f64>() / (pieces * (pieces - 1.0));
    // Of each long window, its pieces and what they lie apart on the mean: windows are independent of each other, pieces of one are not.
    let mut within: Vec<(f64, f64)> = Vec::new();
    for window in windows.iter().filter(|window| window.len() > 1) {
        let k = window.len() as f64;
        let mean = window.iter().map(|(n, x)| x / n).sum::<f64>() / k;
        let apart = |p: &(f64, f64)| (p.1 / p.0 - mean).powi(2) * k / (k - 1.0) - noise(p);
        within.push((k, window.iter().map(apart).sum::<f64>() / k));
    }
    let (long, count) = (within.len() as f64, within.iter().map(|w| w.0).sum::<f64>());
    // Not a number where there is no piece.
    if !total.is_finite()
        || within.len() < LEAST_LONG
        || count < LEAST_PIECES
        || total <= SURE * error.sqrt()
    {
        return None;
    }
    let mean = within.iter().map(|(k, v)| k * v).sum::<f64>() / count;
    let off = |(k, v): &(f64, f64)| (k / count * (v - mean)).powi(2);
    let spread = within.iter().map(off).sum::<f64>() * long / (long - 1.0);
    Some((1.0 - (mean - DOUBT * spread.sqrt()) / total).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Rng};

    /// A window of which part `open` of the samples come back late, by the place in it.
    fn course(rng: &mut Rng, samples: usize, open: impl Fn(f64) -> f64) -> Course {
        let refs = 1_000_000;
        let sample = |i: usize| {
            let place = (i as f64 + 0.5) / samples as f64;
            let distance = if rng.unit() < open(place) { 100_000 } else { 1 };
            let outcome = Outcome::Reused {
                distance,
                trigger: Default::default(),
            };
            Sample {
                position: (place * refs as f64) as u64,
                own: [outcome; 5],
                ..Sample::default()
            }
        };
        let samples: Vec<Sample> = (0..samples).map(sample).collect();
        Course::new(&samples, refs)
    }

    /// Eighty short windows and twenty that are ten times as long; `open` by the place in them in lengths of the short ones.
    fn worth_of(open: impl Fn(usize, f64) -> f64) -> Worth {
        let mut rng = Rng::new(3);
        let courses: Vec<(f64, Course)> = (0..100)
            .map(|w| {
                let times = if w % 5 == 0 { 10 } else { 1 };
                let open = |place: f64| open(w, place * times as f64);
                (times as f64 * 1e6, course(&mut rng, 200 * times, open))
            })
            .collect();
        worth(
            &courses
                .iter()
                .map(|(length, c)| (*length, c))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn long_windows_are_worth_more_where_their_pieces_differ_as_windows_do() {
        // Rounds as long as two short windows, which begin anywhere in them.
        let rounds = worth_of(|w, place| {
            let phase = (place + w as f64 * 0.37) % 2.0;
            if phase < 1.0 { 0.1 } else { 0.7 }
        });
        let (factors, memory) = (&rounds.factors, rounds.memory);
        assert!(factors[5] > 3.0 && factors[6] == 1.0, "{rounds:?}");
        assert!(memory < 2e6, "{memory}");
        // Phases that last longer than windows do.
        let phases = worth_of(|w, _| if w < 48 { 0.1 } else { 0.7 });
        assert!(phases.factors[5] < 1.3, "{phases:?}");
        assert!(phases.memory > 1e7, "{phases:?}");
        // Nothing differs: all the same.
        let even = worth_of(|_, _| 0.0);
        assert_eq!(even.factors, vec![1.0; 100]);
        assert!(even.memory.is_infinite());
    }

    #[test]
    fn the_run_is_as_long_whatever_its_windows_are_worth() {
        let mut rng = Rng::new(3);
        let courses: Vec<(f64, Course)> = (0..100)
            .map(|w| {
                let times = if w % 5 == 0 { 10.0 } else { 1.0 };
                let open = |place: f64| {
                    let phase = (place * times + f64::from(w) * 0.37) % 2.0;
                    if phase < 1.0 { 0.1 } else { 0.7 }
                };
                (times, course(&mut rng, 200 * times as usize, open))
            })
            .collect();
        let weigh = |weight: fn(f64) -> f64| {
            let weighed = courses.iter().map(|(times, course)| Weighed {
                length: times * 1e6,
                weight: weight(*times),
                course,
            });
            let weighed: Vec<Weighed> = weighed.collect();
            let factors = super::weigh(&weighed).factors;
            let sum = |factor: &dyn Fn(usize) -> f64| -> f64 {
                (0..weighed.len())
                    .map(|at| weighed[at].weight * factor(at))
                    .sum()
            };
            (sum(&|at| factors[at]), sum(&|_| 1.0), factors)
        };
        let (new, old, factors) = weigh(|times| 3e6 * times);
        assert!((new / old - 1.0).abs() < 1e-12, "{new} {old}");
        assert!(factors[5] > 3.0 * factors[6] && factors[6] < 1.0);
        // Where no window stands for anything there is nothing to keep.
        let (none, _, factors) = weigh(|_| 0.0);
        assert!(none == 0.0 && factors[6] == 1.0, "{factors:?}");
    }

    /// One of three long windows, of pieces unlike each other, says nothing for sure of the next ones.
    #[test]
    fn few_long_windows_do_not_decide() {
        let mut rng = Rng::new(3);
        let courses: Vec<(f64, Course)> = (0..24)
            .map(|w| {
                let times = if w % 7 == 6 { 10 } else { 1 };
                let open = |place: f64| match w {
                    13 if place < 0.5 => 0.7,
                    13 => 0.1,
                    _ => 0.2 + 0.02 * f64::from(w % 3),
                };
                (
                    f64::from(times),
                    course(&mut rng, 200 * times as usize, open),
                )
            })
            .collect();
        let courses: Vec<_> = courses.iter().map(|(times, c)| (*times, c)).collect();
        assert_eq!(worth(&courses).factors, vec![1.0; 24]);
    }

    #[test]
    fn few_windows_are_worth_what_they_are() {
        assert_eq!(worth(&[]).factors, Vec::<f64>::new());
        let mut rng = Rng::new(1);
        let one = course(&mut rng, 10, |_| 0.5);
        assert_eq!(worth(&[(1e6, &one), (9e6, &one)]).factors, vec![1.0, 1.0]);
        assert_eq!(worth(&[(0.0, &one)]).factors, vec![1.0]);
    }
}
