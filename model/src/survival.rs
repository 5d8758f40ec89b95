//! Log-binned histograms of sampled distances and their Kaplan-Meier survival function.
//!
//! Memory does not grow with the number of samples. A watch cut off by us is censored, one still
//! open at the process's end is never reused (mass at infinity); the two are never mixed.
//! Source: Kaplan & Meier, JASA 53 (1958), with weights; variance by Greenwood (1926); ARCHITECTURE.md.

use crate::bins::{self, BINS};
use crate::{LineSize, ModelError, Outcome, Weight};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cell {
    events: f64,
    /// Sum of weight times distance of the events.
    moment: f64,
    censored: f64,
}

/// Share of the not yet reused samples still followed below which a thin tail is spliced.
const CENSORED_AWAY: f64 = 0.2;

/// Weighted outcomes at one line size, in logarithmic bins.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    line_size: LineSize,
    cells: Vec<Cell>,
    never: f64,
    weight: f64,
    weight_squares: f64,
    samples: u64,
}

impl Histogram {
    /// Empty, at one line size.
    #[must_use]
    pub fn new(line_size: LineSize) -> Self {
        Self {
            line_size,
            cells: Vec::new(),
            never: 0.0,
            weight: 0.0,
            weight_squares: 0.0,
            samples: 0,
        }
    }

    /// The line size.
    #[must_use]
    pub fn line_size(&self) -> LineSize {
        self.line_size
    }

    /// Adds one outcome. `NotFollowed` adds nothing.
    pub fn add(&mut self, outcome: &Outcome, weight: Weight) {
        match *outcome {
            Outcome::Reused { distance, .. } => self.add_reuses(distance as f64, 1, weight),
            Outcome::Censored { at } => {
                self.cell(bins::bin_of(at)).censored += weight.get();
                self.count(1, weight.get());
            }
            Outcome::NeverReused { .. } => {
                self.never += weight.get();
                self.count(1, weight.get());
            }
            Outcome::NotFollowed => {}
        }
    }

    /// Adds `count` reuses at (mean) distance `distance`, each of the weight given.
    pub fn add_reuses(&mut self, distance: f64, count: u64, weight: Weight) {
        let w = weight.get() * count as f64;
        let cell = self.cell(bins::bin_of_real(distance));
        cell.events += w;
        cell.moment += w * distance;
        self.count(count, weight.get());
    }

    /// Adds `count` samples never reused, each of the weight given.
    pub fn add_never(&mut self, count: u64, weight: Weight) {
        self.never += weight.get() * count as f64;
        self.count(count, weight.get());
    }

    fn cell(&mut self, bin: usize) -> &mut Cell {
        if self.cells.len() <= bin {
            self.cells.resize(bin + 1, Cell::default());
        }
        &mut self.cells[bin]
    }

    fn count(&mut self, samples: u64, weight: f64) {
        self.samples += samples;
        self.weight += weight * samples as f64;
        self.weight_squares += weight * weight * samples as f64;
    }

    /// Adds another histogram, its weights times `factor`.
    ///
    /// # Errors
    /// [`ModelError::MixedLineSizes`].
    pub fn merge(&mut self, other: &Histogram, factor: Weight) -> Result<(), ModelError> {
        if self.line_size != other.line_size {
            return Err(ModelError::MixedLineSizes(
                self.line_size.bytes(),
                other.line_size.bytes(),
            ));
        }
        if self.cells.len() < other.cells.len() {
            self.cells.resize(other.cells.len(), Cell::default());
        }
        let f = factor.get();
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            mine.events += f * theirs.events;
            mine.moment += f * theirs.moment;
            mine.censored += f * theirs.censored;
        }
        self.never += f * other.never;
        self.weight += f * other.weight;
        self.weight_squares += f * f * other.weight_squares;
        self.samples += other.samples;
        Ok(())
    }

    /// Outcomes added.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Sum of their weights.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Equally weighted samples that would know as much (Kish).
    #[must_use]
    pub fn effective_samples(&self) -> f64 {
        if self.weight_squares > 0.0 {
            self.weight * self.weight / self.weight_squares
        } else {
            0.0
        }
    }

    /// The bins in use, for compact storage.
    pub(crate) fn compact(&self) -> CompactHistogram {
        CompactHistogram {
            cells: self
                .cells
                .iter()
                .enumerate()
                .filter(|(_, c)| c.events > 0.0 || c.censored > 0.0)
                .map(|(bin, c)| CompactCell {
                    bin: bin as u16,
                    events: c.events as f32,
                    mean: if c.events > 0.0 {
                        (c.moment / c.events) as f32
                    } else {
                        0.0
                    },
                    censored: c.censored as f32,
                })
                .collect(),
            never: self.never as f32,
            samples: self.samples as u32,
        }
    }

    /// Adds a compact histogram, its weights times `factor`.
    pub(crate) fn merge_compact(&mut self, other: &CompactHistogram, factor: f64) {
        if factor <= 0.0 {
            return;
        }
        if let Some(last) = other.cells.last()
            && self.cells.len() <= last.bin as usize
        {
            self.cells.resize(last.bin as usize + 1, Cell::default());
        }
        for c in &other.cells {
            let mine = &mut self.cells[c.bin as usize];
            let events = factor * f64::from(c.events);
            mine.events += events;
            mine.moment += events * f64::from(c.mean);
            mine.censored += factor * f64::from(c.censored);
        }
        self.never += factor * f64::from(other.never);
        self.count(u64::from(other.samples), factor);
    }

    /// Kaplan-Meier estimate. Censored at `c` means the distance is at least `c`: such a sample
    /// is at risk below `c` only; in a bin wider than one distance both happen at constant rates.
    #[must_use]
    pub fn survival(&self) -> Survival {
        self.survival_spliced(None, 0.0)
    }

    /// As [`Histogram::survival`], but from the first bin on where fewer than `thin` (effective)
    /// samples are at risk because the others were censored (not because they were reused), the conditional tail `S(t)/S(T)` of `pool` is taken: what windows
    /// of this kind are too short to see, longer windows saw (ARCHITECTURE.md "The model").
    #[must_use]
    pub fn survival_spliced(&self, pool: Option<&Survival>, thin: f64) -> Survival {
        let total = self.weight;
        let mut result = Survival {
            line_size: self.line_size,
            ..Survival::empty(self.line_size)
        };
        result.samples = self.samples;
        result.censored = self.cells.iter().any(|c| c.censored > 0.0);
        if total <= 0.0 {
            result.undecided = 1.0;
            return result;
        }
        let per_weight = self.effective_samples() / total;
        let mut at_risk = total;
        let mut s = 1.0;
        let mut greenwood = 0.0;
        let never = self.never / total;
        for (bin, cell) in self.cells.iter().enumerate() {
            if let Some(pool) = pool
                && at_risk * per_weight < thin
                && at_risk < CENSORED_AWAY * total * s
                && result.horizon < pool.horizon
            {
                return result.splice(pool, bin, s);
            }
            let cut = if bins::is_exact(bin) {
                cell.censored
            } else {
                0.0
            };
            let risk = at_risk - cut;
            if cell.events > 0.0 && risk > 0.0 {
                let hazard = if bins::is_exact(bin) || cell.censored <= 0.0 {
                    (cell.events / risk).min(1.0)
                } else {
                    // Constant rates of both inside the bin; half a sample more at risk keeps the
                    // last bin from putting all that is left on a single reuse.
                    let exits = cell.events + cell.censored;
                    let stay = (1.0 - exits / (risk + 0.5 / per_weight)).max(0.0);
                    1.0 - stay.powf(cell.events / exits)
                };
                result.steps.push(Step {
                    bin,
                    distance: cell.moment / cell.events,
                    mass: s * hazard,
                });
                if hazard < 1.0 {
                    greenwood += hazard / ((1.0 - hazard) * risk * per_weight);
                }
                s *= 1.0 - hazard;
                result.greenwood.push(greenwood);
            }
            if cell.events > 0.0 || cell.censored > 0.0 {
                result.horizon = bins::lower_edge(bin + 1);
            }
            at_risk -= cell.events + cell.censored;
        }
        if let Some(pool) = pool
            && s - never > 1e-9
            && result.horizon < pool.horizon
        {
            return result.splice(pool, self.cells.len(), s);
        }
        result.never = never.min(s);
        // Only rounding separates the two when nothing was censored.
        result.undecided = if s - never < 1e-9 { 0.0 } else { s - never };
        result
    }
}

/// One bin of a [`CompactHistogram`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct CompactCell {
    bin: u16,
    events: f32,
    mean: f32,
    censored: f32,
}

/// A histogram of unit-weight samples in its used bins only: what is kept per window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CompactHistogram {
    cells: Vec<CompactCell>,
    never: f32,
    pub(crate) samples: u32,
}

impl CompactHistogram {
    /// Used bins: bin, reuses, censored.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
        self.cells
            .iter()
            .map(|c| (c.bin as usize, f64::from(c.events), f64::from(c.censored)))
    }
}

/// A mass of the distance distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its bin.
    pub bin: usize,
    /// Mean distance inside the bin, line references.
    pub distance: f64,
    /// Probability.
    pub mass: f64,
}

/// What is known of the run as a whole when a tail has to be guessed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    /// Line references.
    pub refs: f64,
    /// Distinct lines it can have touched; infinite when unknown.
    pub lines: f64,
}

/// Distribution of the reuse distance at one line size: steps, mass at infinity, undecided mass.
#[derive(Clone, Debug, PartialEq)]
pub struct Survival {
    line_size: LineSize,
    /// Reuses, nearest first.
    pub steps: Vec<Step>,
    greenwood: Vec<f64>,
    /// Probability of never being reused, known.
    pub never: f64,
    /// Probability that the data cannot place: beyond `horizon`, or never.
    pub undecided: f64,
    /// Distance up to which the data reach, line references.
    pub horizon: f64,
    /// Outcomes behind it.
    pub samples: u64,
    /// Whether any of them was censored.
    pub censored: bool,
}

impl Survival {
    fn empty(line_size: LineSize) -> Self {
        Self {
            line_size,
            steps: Vec::new(),
            greenwood: Vec::new(),
            never: 0.0,
            undecided: 0.0,
            horizon: 0.0,
            samples: 0,
            censored: false,
        }
    }

    /// The line size.
    #[must_use]
    pub fn line_size(&self) -> LineSize {
        self.line_size
    }

    fn splice(mut self, pool: &Survival, bin: usize, s: f64) -> Survival {
        let beyond: f64 = pool
            .steps
            .iter()
            .filter(|x| x.bin >= bin)
            .map(|x| x.mass)
            .sum();
        let tail = beyond + pool.never + pool.undecided;
        if tail <= 0.0 {
            self.undecided = s;
            return self;
        }
        let scale = s / tail;
        let last = self.greenwood.last().copied().unwrap_or(0.0);
        for step in pool.steps.iter().filter(|x| x.bin >= bin) {
            self.steps.push(Step {
                mass: step.mass * scale,
                ..*step
            });
            self.greenwood.push(last);
        }
        self.never = pool.never * scale;
        self.undecided = pool.undecided * scale;
        self.horizon = pool.horizon;
        self
    }

    /// `P(d > t)`, undecided mass counted as beyond.
    #[must_use]
    pub fn at(&self, t: f64) -> f64 {
        let gone: f64 = self
            .steps
            .iter()
            .take_while(|x| x.distance <= t)
            .map(|x| x.mass)
            .sum();
        (1.0 - gone).max(0.0)
    }

    /// Greenwood's variance of [`Survival::at`], from effective sample counts.
    #[must_use]
    pub fn variance_at(&self, t: f64) -> f64 {
        let seen = self.steps.iter().take_while(|x| x.distance <= t).count();
        let s = self.at(t);
        if seen == 0 {
            0.0
        } else {
            s * s * self.greenwood[seen - 1]
        }
    }

    /// Places the undecided mass beyond the horizon `T` by continuing the decay of the last two
    /// octaves, `S(t) = S(T) (t/T)^-a`, up to the length of the run; what is left there is never
    /// reused, as far as the run's lines allow it. More than those must come back: lines that are
    /// touched again and again with share `u` of the references do so after about `lines / u`.
    /// A guess between "reused right away" and "never", which bound it.
    pub(crate) fn spread_undecided(&mut self, run: RunSize) {
        const PARTS: usize = 8;
        /// Octaves of decay that are continued.
        const LOOK_BACK: f64 = 2.0;
        let limit = run.refs;
        let start = self.horizon.max(1.0);
        if self.undecided <= 0.0 || limit <= start * 1.01 {
            self.never += std::mem::take(&mut self.undecided);
            return;
        }
        let end = self.never + self.undecided;
        let before = self.at(start / LOOK_BACK.exp2());
        let decay = ((before / end).ln() / (LOOK_BACK * std::f64::consts::LN_2)).max(0.0);
        let mut tail = Vec::with_capacity(2 * PARTS);
        let mut place = |from: f64, to: f64, decay: f64, mass: f64| {
            let edge = |i: usize| (to / from).powf(i as f64 / PARTS as f64);
            for i in 0..PARTS {
                let part = if decay > 0.0 {
                    edge(i).powf(-decay) - edge(i + 1).powf(-decay)
                } else {
                    1.0 / PARTS as f64
                };
                let distance = from * (edge(i) * edge(i + 1)).sqrt();
                let bin = bins::bin_of_real(distance);
                tail.push(Step {
                    bin,
                    distance,
                    mass: mass * part,
                });
            }
        };
        if decay > 0.0 {
            place(start, limit, decay, self.undecided);
        }
        let left = self.undecided * (limit / start).powf(-decay);
        let room = (run.lines / limit - self.never).clamp(0.0, left);
        if left > room {
            let far =
                (2.0 * run.lines / self.undecided).clamp(2.0 * start, (2.0 * start).max(limit));
            place(start, far, 0.0, left - room);
        }
        tail.retain(|s| s.mass > 0.0);
        tail.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        let last = self.greenwood.last().copied().unwrap_or(0.0);
        self.greenwood.extend(tail.iter().map(|_| last));
        self.steps.append(&mut tail);
        self.never += room;
        self.undecided = 0.0;
        self.horizon = limit;
    }

    /// `P(d >= lower edge)` for every bin edge, `BINS + 1` values.
    pub(crate) fn at_edges(&self) -> Vec<f64> {
        let mut edges = vec![0.0; BINS + 1];
        for step in &self.steps {
            edges[step.bin] += step.mass;
        }
        let mut s = 1.0;
        for e in &mut edges {
            let mass = *e;
            *e = s;
            s = f64::max(s - mass, 0.0);
        }
        edges
    }
}
