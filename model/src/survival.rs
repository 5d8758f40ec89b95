//! The survival function of the reuse distance, by Kaplan-Meier.
//!
//! The end of the process is a second way for a watch to end by itself (competing risks): who is
//! known never to be reused was followed no longer than until then, and had to escape our cuts only
//! so long. Counted as followed for ever, late samples would stand for too little, early ones that
//! were cut for too many misses.
//!
//! Source: Kaplan & Meier, JASA 53 (1958), with weights; Aalen & Johansen, Scand. J. Stat. 5 (1978);
//! variance by Greenwood (1926).

use crate::LineSize;
use crate::bins::{self, BINS};
use crate::histogram::Histogram;

/// Share of the not yet reused samples still followed below which a thin tail is spliced.
const CENSORED_AWAY: f64 = 0.2;

impl Histogram {
    /// Kaplan-Meier estimate. Censored at `c` means the distance is at least `c`: such a sample
    /// is at risk below `c` only; in a bin wider than one distance both happen at constant rates.
    #[must_use]
    pub fn survival(&self) -> Survival {
        self.survival_spliced(None, 0.0)
    }

    /// As [`Histogram::survival`], but from the first bin on where fewer than `thin` (effective)
    /// samples are at risk because the others were censored (not because they were reused), the
    /// conditional tail `S(t)/S(T)` of `pool` is taken: what windows of this kind are too short to
    /// see, longer windows saw.
    #[must_use]
    pub fn survival_spliced(&self, pool: Option<&Survival>, thin: f64) -> Survival {
        let total = self.weight();
        let mut result = Survival {
            line_size: self.line_size(),
            ..Survival::empty(self.line_size())
        };
        result.samples = self.samples();
        result.effective = self.effective_samples();
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
            let known = cell.events + cell.ended;
            if known > 0.0 && risk > 0.0 {
                let hazard = if bins::is_exact(bin) || cell.censored <= 0.0 {
                    (known / risk).min(1.0)
                } else {
                    // Constant rates of all inside the bin; half a sample more at risk keeps the
                    // last bin from putting all that is left on a single reuse.
                    let exits = known + cell.censored;
                    let stay = (1.0 - exits / (risk + 0.5 / per_weight)).max(0.0);
                    1.0 - stay.powf(known / exits)
                };
                let (reused, ended) = (hazard * cell.events / known, hazard * cell.ended / known);
                if reused > 0.0 {
                    result.steps.push(Step {
                        bin,
                        distance: cell.moment / cell.events,
                        mass: s * reused,
                    });
                    if hazard < 1.0 {
                        greenwood += reused / ((1.0 - reused) * risk * per_weight);
                    }
                    result.greenwood.push(greenwood);
                }
                if ended > 0.0 {
                    result.ended.push((bin, s * ended));
                    result.never += s * ended;
                }
                s *= 1.0 - hazard;
            }
            if known > 0.0 || cell.censored > 0.0 {
                result.horizon = bins::lower_edge(bin + 1);
            }
            at_risk -= known + cell.censored;
        }
        if let Some(pool) = pool
            && s - never > 1e-9
            && result.horizon < pool.horizon
        {
            return result.splice(pool, self.cells.len(), s);
        }
        result.never += never.min(s);
        // Only rounding separates the two when nothing was censored.
        result.undecided = if s - never < 1e-9 { 0.0 } else { s - never };
        result
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
    /// Bin of the process's end and probability of those never reused by then.
    pub(crate) ended: Vec<(usize, f64)>,
    /// Probability of never being reused, known.
    pub never: f64,
    /// Probability that the data cannot place: beyond `horizon`, or never.
    pub undecided: f64,
    /// Distance up to which the data reach, line references.
    pub horizon: f64,
    /// Outcomes behind it.
    pub samples: u64,
    /// As many of equal weight would know as much (Kish).
    pub effective: f64,
    /// Whether any of them was censored.
    pub censored: bool,
}

impl Survival {
    fn empty(line_size: LineSize) -> Self {
        Self {
            line_size,
            steps: Vec::new(),
            greenwood: Vec::new(),
            ended: Vec::new(),
            never: 0.0,
            undecided: 0.0,
            horizon: 0.0,
            samples: 0,
            effective: 0.0,
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
        self.never += pool.never * scale;
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
