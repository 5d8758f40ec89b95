//! Log-binned histograms of sampled distances: memory does not grow with the number of samples.
//!
//! A watch cut off by us is censored, one still open at the process's end is never reused (mass at
//! infinity); the two are never mixed. What is made of them is in `survival`.

use crate::bins;
use crate::{LineSize, ModelError, Outcome, Weight};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    pub events: f64,
    /// Sum of weight times distance of the events.
    pub moment: f64,
    pub censored: f64,
    /// Known never to be reused, the process having ended here.
    pub ended: f64,
}

/// Weighted outcomes at one line size, in logarithmic bins.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    line_size: LineSize,
    pub(crate) cells: Vec<Cell>,
    /// Never reused, followed for ever.
    pub(crate) never: f64,
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
            Outcome::NeverReused { at } => {
                self.cell(bins::bin_of(at)).ended += weight.get();
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

    /// Adds `count` samples never reused, each of the weight given, as if followed for ever.
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
            mine.ended += f * theirs.ended;
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

    /// The bins in use, for compact storage, with weights of 1 in the mean. Of windows with gaps: their samples never end with the
    /// process, they are cut.
    pub(crate) fn compact(&self) -> CompactHistogram {
        let scale = match self.weight > 0.0 {
            true => self.samples as f64 / self.weight,
            false => 1.0,
        };
        CompactHistogram {
            cells: self
                .cells
                .iter()
                .enumerate()
                .filter(|(_, c)| c.events > 0.0 || c.censored > 0.0)
                .map(|(bin, c)| CompactCell {
                    bin: bin as u16,
                    events: (scale * c.events) as f32,
                    mean: if c.events > 0.0 {
                        (c.moment / c.events) as f32
                    } else {
                        0.0
                    },
                    censored: (scale * c.censored) as f32,
                })
                .collect(),
            never: (scale * self.never) as f32,
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
}

/// One bin of a [`CompactHistogram`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct CompactCell {
    bin: u16,
    events: f32,
    mean: f32,
    censored: f32,
}

/// A histogram of samples, of weight 1 in the mean, in its used bins only: what is kept per window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CompactHistogram {
    cells: Box<[CompactCell]>,
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
