//! How far the ratio of a key's watched reuses differs between windows with gaps around them: samples of one window are of one phase of the program, and of turns that its
//! threads took in one order.

/// Fewest windows that tell it.
const ENOUGH: u32 = 4;

/// Sums over windows, which are added one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Apart {
    /// The window at hand, and what it has so far: weight and misses.
    window: Option<u32>,
    open: [f64; 2],
    windows: u32,
    all: [f64; 2],
    /// Of the windows before: squares of weights, products, squares of misses.
    squares: [f64; 3],
}

impl Apart {
    /// Adds a reuse in `window`.
    pub fn add(&mut self, window: u32, weight: f64, miss: f64) {
        if self.window != Some(window) {
            self.close();
            self.window = Some(window);
        }
        self.open[0] += weight;
        self.open[1] += weight * miss;
    }

    fn close(&mut self) {
        let [weight, misses] = std::mem::take(&mut self.open);
        if weight > 0.0 {
            self.windows += 1;
            self.all = [self.all[0] + weight, self.all[1] + misses];
            let squares = [weight * weight, weight * misses, misses * misses];
            for (sum, square) in self.squares.iter_mut().zip(squares) {
                *sum += square;
            }
        }
    }

    /// Variance of the ratio because windows fall where they fall, as that of a ratio of sums over clusters (Cochran, Sampling Techniques,
    /// 3rd ed., 9A.6), and the weight that the ratio is of. `None` where windows are too few to tell.
    pub fn variance(mut self) -> Option<(f64, f64)> {
        self.close();
        let [weight, misses] = self.all;
        if self.windows < ENOUGH || weight <= 0.0 {
            return None;
        }
        let (n, ratio) = (f64::from(self.windows), misses / weight);
        let [weights, products, missed] = self.squares;
        let squared = missed - 2.0 * ratio * products + ratio * ratio * weights;
        let variance = n / (n - 1.0) * squared.max(0.0) / (weight * weight);
        Some((variance, weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variance(windows: &[(usize, usize)]) -> Option<f64> {
        let mut apart = Apart::default();
        for (window, &(hits, misses)) in windows.iter().enumerate() {
            (0..hits).for_each(|_| apart.add(window as u32, 1.0, 0.0));
            (0..misses).for_each(|_| apart.add(window as u32, 1.0, 1.0));
        }
        apart.variance().map(|(variance, _)| variance)
    }

    #[test]
    fn windows_that_differ_tell_less_than_their_samples() {
        // Of 1,000 samples in ten windows that hit in every other one, as much as nine samples tell.
        let alternating = [(100, 0), (0, 100)].repeat(5);
        assert!((variance(&alternating).unwrap() - 0.25 / 9.0).abs() < 1e-9);
        // Nearly as a binomial of 100 samples in each would have it.
        let apart = [(55, 45), (45, 55), (50, 50), (50, 50)].repeat(5);
        let told = 0.25 / variance(&apart).unwrap();
        assert!((1_500.0..4_000.0).contains(&told), "{told}");
        assert_eq!(variance(&[(50, 50)].repeat(20)), Some(0.0));
        assert_eq!(variance(&[(100, 0), (0, 100), (100, 0)]), None, "few");
        assert_eq!(variance(&[]), None);
    }
}
