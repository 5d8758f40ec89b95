//! Sums over the first so many of a sequence of numbers that change.

/// Prefix sums in logarithmic time. Source: Fenwick, Software: Practice and Experience 24 (1994).
#[derive(Clone, Debug)]
pub(crate) struct Fenwick {
    tree: Vec<f64>,
    all: f64,
}

impl Fenwick {
    /// `len` zeroes.
    pub fn new(len: usize) -> Self {
        Self {
            tree: vec![0.0; len + 1],
            all: 0.0,
        }
    }

    pub fn add(&mut self, at: usize, x: f64) {
        self.all += x;
        let mut i = at + 1;
        while i < self.tree.len() {
            self.tree[i] += x;
            i += i & i.wrapping_neg();
        }
    }

    /// Of the first `end`.
    pub fn sum(&self, end: usize) -> f64 {
        let (mut i, mut sum) = (end, 0.0);
        while i > 0 {
            sum += self.tree[i];
            i -= i & i.wrapping_neg();
        }
        sum
    }

    pub fn all(&self) -> f64 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_what_was_added() {
        let mut tree = Fenwick::new(9);
        let mut plain = [0.0; 9];
        for (at, x) in [(0, 1.0), (8, 2.0), (3, -4.0), (3, 0.5), (7, 8.0)] {
            tree.add(at, x);
            plain[at] += x;
        }
        for end in 0..=9 {
            assert_eq!(tree.sum(end), plain[..end].iter().sum::<f64>());
        }
        assert_eq!(tree.all(), tree.sum(9));
    }
}
