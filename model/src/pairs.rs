//! How much likelier than by chance two references are both sampled, by how far apart they are.
//!
//! Samplers do not draw every reference for itself: one that looks at addresses in short stretches takes several samples
//! there and none for long after. Each reference is still as likely to be sampled as any other, but a pair of samples
//! close together stands for fewer pairs of references than one far apart, by the density of such pairs relative to that
//! of independent ones (Horvitz & Thompson 1952). It is measured on the positions of the samples, which know nothing of
//! the program.
//!
//! Threads that are sampled by turns are sampled more densely for tens of thousands of references: farther than is looked here, but for
//! whether that is so.

use std::ops::Range;

use crate::placed::Placed;

/// Pairs farther apart are taken to be independent: line references, and mean distances of samples.
const REACH: f64 = 8192.0;
const REACH_SAMPLES: f64 = 32.0;
/// Bins of distance: two for each octave up to [`REACH`], the first for all below 16.
const BINS: usize = 19;
/// Octaves of references per sample that are told apart: how a sampler goes about it hangs on how rarely it samples; twice, as it may
/// do so in clusters.
const OCTAVES: usize = 48;
const CLASSES: usize = 2 * OCTAVES;
/// Part of the samples that say something of their own from which on they do not come in clusters.
const SCATTERED: f64 = 0.6;
/// Added to counted and expected pairs alike: without any, nothing is known.
const DOUBT: f64 = 1.0;
/// Least density: pairs seldom taken would count for many.
const LEAST: f64 = 0.25;
/// Part of the far pairs of clusters that may be too many or too few, and square roots of them by chance; stretches that a window must have to tell;
/// and part of the run that may be uneven.
const UNEVEN: f64 = 0.05;
const CHANCE: f64 = 5.0;
const STRETCHES: f64 = 4.0;
const LITTLE: f64 = 0.1;
/// Part of their mean distance below which neighbours belong together.
const TOGETHER: f64 = 0.5;

/// Density of sampled pairs relative to independent ones, by the references per sample of their window.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    classes: Vec<[Density; BINS]>,
    /// Class of each sample.
    of: Vec<u8>,
    /// Where each cluster of samples ends.
    ends: Vec<u32>,
    /// Of each class, how many say what one of them says.
    alike: [f64; CLASSES],
    /// Of clusters farther apart than is looked, and references of each class.
    far: [(Density, f64); CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Density {
    counted: f64,
    expected: f64,
}

impl Density {
    /// Pairs of a window's clusters, in their order, that lie in stretches of this length with one between them: one cluster does not reach so far.
    fn add_stretches(&mut self, positions: &[f64], apart: f64, length: f64, refs: f64) {
        let stretches = (refs / length).floor();
        let Some(&first) = positions.first().filter(|_| stretches >= STRETCHES) else {
            return;
        };
        let stretch = |at: f64| ((at - first) / length).floor();
        let begins = |i: &usize| *i == 0 || positions[*i] - positions[i - 1] >= apart;
        let begin = (0..positions.len()).filter(begins);
        let all: Vec<f64> = begin
            .map(|i| stretch(positions[i]))
            .filter(|&at| at < stretches)
            .collect();
        let counts = all.chunk_by(|a, b| a == b).map(|c| (c[0], c.len() as f64));
        // Most of a long window's may be empty.
        let counts: Vec<(f64, f64)> = counts.collect();
        for (i, &(at, count)) in counts.iter().enumerate() {
            let behind = counts[i + 1..].iter().take(2);
            let two_behind = behind.filter(|other| other.0 - at == 2.0);
            self.counted += two_behind.map(|other| count * other.1).sum::<f64>();
        }
        let n = all.len() as f64;
        self.expected += n * (n - 1.0).max(0.0) * (stretches - 2.0) / stretches.powi(2);
    }
}

/// How far apart two samples of a class may be not to be taken for independent.
fn reach(class: usize) -> f64 {
    let octave = class % OCTAVES;
    REACH.min(REACH_SAMPLES * (octave as f64).exp2())
}

fn bin_of(apart: f64) -> usize {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
    let first = apart / 16.0;
    if first < 1.0 {
        return 0;
    }
    // Octaves are the exponent of the number, and their halves part at the square root of two.
    let bits = first.to_bits();
    let octave = (bits >> FRACTION_BITS) as usize - (f64::MAX_EXP as usize - 1);
    let upper = bits & FRACTION >= std::f64::consts::SQRT_2.to_bits() & FRACTION;
    1 + 2 * octave + usize::from(upper)
}

/// Places are whole numbers, and no two samples have the same.
fn edges(bin: usize) -> Range<f64> {
    let edge = |bin: usize| match bin {
        0 => 1.0,
        bin => (16.0 * (0.5 * (bin as f64 - 1.0)).exp2()).ceil(),
    };
    edge(bin)..edge(bin + 1)
}

impl Pairs {
    /// From the samples of each window, at `place`.
    pub fn measure(windows: &[&[Placed]], place: impl Fn(&Placed) -> f64) -> Self {
        let mut classes = vec![[Density::default(); BINS]; CLASSES];
        let (mut of, mut ends) = (Vec::new(), Vec::new());
        let mut all = [0.0; CLASSES];
        let mut far = [(Density::default(), 0.0); CLASSES];
        for window in windows {
            let begin = of.len();
            let mut positions: Vec<f64> = taken(window).map(&place).collect();
            positions.sort_by(f64::total_cmp);
            let refs = length(window);
            let per_sample = refs / positions.len().max(1) as f64;
            let number = class_of(per_sample, independence(window));
            of.extend(std::iter::repeat_n(number as u8, window.len()));
            let neighbours = window.windows(2).enumerate();
            let apart = |two: &[Placed]| place(&two[1]) - place(&two[0]) >= TOGETHER * per_sample;
            let borders = neighbours.filter(|(_, two)| apart(two));
            ends.extend(borders.map(|(i, _)| (begin + i + 1) as u32));
            ends.push(of.len() as u32);
            let (class, reach) = (&mut classes[number], reach(number));
            for (i, from) in positions.iter().enumerate() {
                let after = positions[i + 1..].iter().map(|to| to - from);
                for apart in after.take_while(|&apart| apart < reach) {
                    class[bin_of(apart).min(BINS - 1)].counted += 1.0;
                }
            }
            far[number]
                .0
                .add_stretches(&positions, TOGETHER * per_sample, reach, refs);
            far[number].1 += refs;
            // Of independent ones so many begin far enough from the end.
            let n = positions.len() as f64;
            all[number] += n;
            for (bin, density) in class.iter_mut().enumerate() {
                let Range { start, end } = edges(bin);
                let most = reach.min(refs);
                let (start, end) = (start.min(most), end.min(most));
                let room = (end - start) * (refs - 0.5 * (start + end));
                density.expected += n * (n - 1.0).max(0.0) * room / (refs * refs).max(1.0);
            }
        }
        let alike = |class: usize| {
            let beyond = |d: &Density| d.counted - d.expected;
            let together = classes[class].iter().map(beyond).sum::<f64>();
            1.0 + 2.0 * together.max(0.0) / all[class].max(1.0)
        };
        Self {
            alike: std::array::from_fn(alike),
            far,
            classes,
            of,
            ends,
        }
    }

    /// How many samples say the same as `at`: 1 of independent ones.
    pub fn alike(&self, at: u32) -> f64 {
        self.alike[usize::from(self.of[at as usize])]
    }

    /// Samples that were taken close together, in their order; all of them.
    pub fn clusters(&self) -> impl ExactSizeIterator<Item = Range<u32>> {
        let begin = |i: usize| i.checked_sub(1).map_or(0, |before| self.ends[before]);
        (0..self.ends.len()).map(move |i| begin(i)..self.ends[i])
    }

    /// Whether samples show no pattern farther apart than pairs are told, in most of the run.
    pub fn are_even(&self) -> bool {
        let is_even = |Density { counted, expected }: Density| {
            (counted - expected).abs() <= UNEVEN * expected + CHANCE * expected.sqrt()
        };
        let refs = |of: &[(Density, f64)]| of.iter().map(|class| class.1).sum::<f64>();
        let uneven: Vec<(Density, f64)> = self
            .far
            .iter()
            .filter(|class| !is_even(class.0))
            .copied()
            .collect();
        refs(&uneven) <= LITTLE * refs(&self.far)
    }

    /// How near to sample `at` others are not independent of it.
    pub fn reach(&self, at: u32) -> f64 {
        reach(usize::from(self.of[at as usize]))
    }

    /// What a pair so far apart counts beyond one, of sample `at` and another in its window.
    pub fn surplus(&self, at: u32, apart: f64) -> f64 {
        let class = usize::from(self.of[at as usize]);
        if apart >= reach(class) {
            return 0.0;
        }
        let d = self.classes[class][bin_of(apart).min(BINS - 1)];
        1.0 / ((d.counted + DOUBT) / (d.expected + DOUBT)).max(LEAST) - 1.0
    }
}

/// Those that were sampled, not made up for what censoring hides.
fn taken(window: &[Placed]) -> impl Iterator<Item = &Placed> {
    window.iter().filter(|p| !p.imputed)
}

/// References of a window.
fn length(window: &[Placed]) -> f64 {
    match window.first() {
        Some(p) if p.window_refs > 0.0 => p.window_refs,
        _ => taken(window).map(|p| p.raw).sum(),
    }
}

/// Part of the samples that say something of their own, where neighbours close together say the same; 1 for independent
/// ones, of which a known part has close neighbours by chance.
pub(crate) fn independence(placed: &[Placed]) -> f64 {
    let taken: Vec<&Placed> = taken(placed).collect();
    let apart = |two: &&[&Placed]| two[1].from - two[0].from >= TOGETHER * two[1].raw;
    let apart = 1 + taken.windows(2).filter(apart).count();
    (apart as f64 / taken.len().max(1) as f64 / (-TOGETHER).exp()).min(1.0)
}

/// Windows sampled as rarely, all of them in clusters or none.
fn class_of(per_sample: f64, independence: f64) -> usize {
    let octave = (per_sample.max(1.0).log2() as usize).min(OCTAVES - 1);
    octave + if independence < SCATTERED { OCTAVES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_half_octaves() {
        for bin in 0..60 {
            let Range { start, end } = edges(bin);
            let inside = [start, end - 1.0].map(bin_of);
            assert!(
                start == end || inside == [bin; 2],
                "{bin} {start} {end}: {inside:?}"
            );
        }
        assert_eq!([0.0, 0.5, 15.9].map(bin_of), [0; 3]);
    }
    use crate::Rng;

    /// Samples at gaps drawn by `gap`.
    fn samples(windows: usize, mut gap: impl FnMut() -> f64) -> Vec<Vec<Placed>> {
        let mut window = || {
            let mut at = 0.0;
            let mut next = || {
                at += 1.0 + gap().floor();
                at
            };
            let positions: Vec<f64> = (0..500).map(|_| next()).collect();
            let raw = at / positions.len() as f64;
            let placed = |&from: &f64| Placed {
                from,
                raw,
                ..Placed::default()
            };
            positions.iter().map(placed).collect()
        };
        (0..windows).map(|_| window()).collect()
    }

    fn measured(windows: &[Vec<Placed>]) -> Pairs {
        let windows: Vec<&[Placed]> = windows.iter().map(Vec::as_slice).collect();
        Pairs::measure(&windows, |p| p.from)
    }

    #[test]
    fn bins_are_where_their_edges_say() {
        assert_eq!(edges(BINS - 1).end, REACH);
        for bin in 0..BINS {
            let Range { start, end } = edges(bin);
            assert_eq!(bin_of(start), bin);
            assert_eq!(bin_of(end - 1.0), bin);
        }
    }

    #[test]
    fn independent_samples_count_one_each() {
        let mut rng = Rng::new(5);
        let pairs = measured(&samples(100, || -1000.0 * (1.0 - rng.unit()).ln()));
        for apart in [10.0, 100.0, 1000.0, 5000.0] {
            let surplus = pairs.surplus(0, apart);
            assert!(surplus.abs() < 0.1, "{apart}: {surplus}");
        }
    }

    #[test]
    fn what_is_made_up_for_what_is_hidden_is_no_sample() {
        let mut rng = Rng::new(5);
        let mut windows = samples(100, || -1000.0 * (1.0 - rng.unit()).ln());
        for window in &mut windows {
            for i in (0..window.len()).step_by(50).rev() {
                let copy = Placed {
                    imputed: true,
                    raw: 0.0,
                    ..window[i]
                };
                window.splice(i + 1..i + 1, [copy; 17]);
            }
        }
        let pairs = measured(&windows);
        assert!(pairs.surplus(0, 10.0).abs() < 0.1);
        let independence: f64 = windows.iter().map(|w| independence(w)).sum();
        assert!((0.95..=1.0).contains(&(independence / windows.len() as f64)));
    }

    /// As many as expected are counted, however they are drawn: clusters of eight here.
    #[test]
    fn clusters_count_for_what_they_are() {
        let mut rng = Rng::new(5);
        let mut gap = || {
            let mean = if rng.below(8) == 0 { 20_000.0 } else { 100.0 };
            -mean * (1.0 - rng.unit()).ln()
        };
        let windows = samples(200, &mut gap);
        let pairs = measured(&windows);
        let clusters = windows.iter().map(Vec::len).sum::<usize>() / pairs.clusters().len();
        assert!((5..=12).contains(&clusters), "{clusters}");
        let per_sample = 20_000.0 / 8.0 + 87.5;
        assert!(pairs.surplus(0, 50.0) < -0.9);
        assert!(pairs.surplus(0, 7_000.0).abs() < 0.2);
        for reach in [30.0, 300.0, 1500.0] {
            let (mut sum, mut samples) = (0.0, 0.0);
            for (w, placed) in windows.iter().enumerate() {
                for (i, p) in placed.iter().enumerate() {
                    let at = (w * placed.len() + i) as u32;
                    let inside = placed[i + 1..].iter().map(|o| o.from - p.from);
                    let inside = inside.take_while(|&apart| apart < reach);
                    sum += inside
                        .map(|apart| 1.0 + pairs.surplus(at, apart))
                        .sum::<f64>();
                    samples += 1.0;
                }
            }
            let expected = reach / per_sample;
            assert!(
                (sum / samples / expected - 1.0).abs() < 0.2,
                "{reach}: {} of {expected}",
                sum / samples
            );
        }
    }
}
