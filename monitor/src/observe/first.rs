//! Lines that a window touches for the first time.
//!
//! An access ends a reuse that began in its window, or it is the first touch of its line there. The former are followed
//! forwards, from samples; who makes the latter is seen here, for lines drawn at random. Together they are all accesses of the
//! window, by the instruction that would miss.

use super::filter::LineFilter;
use rand::Rng;
use rand::rngs::SmallRng;

/// Most of them that are kept, a random choice: a window may touch a line with each access.
const MOST: usize = 1000;

/// The first touch of a line in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouch {
    /// Address of the instruction.
    pub ip: u64,
    /// First byte touched in the line.
    pub address: u64,
    /// References at 64-byte lines before it, since the observer was made.
    pub position: u64,
}

/// Those that a window's drawn lines had.
#[derive(Clone, Debug, Default)]
pub struct FirstTouches {
    /// Those kept.
    pub kept: Vec<FirstTouch>,
    /// First touches of drawn lines, kept or not; an estimate, as of two lines that share an entry of the filter only one is seen.
    pub seen: f64,
    /// Entries whose mark is gone.
    gone: u32,
}

impl FirstTouches {
    /// One line in so many is drawn.
    pub const ONE_IN: u32 = super::filter::MARKED_ONE_IN;

    /// Draws the lines of a window: every one is as likely as any other.
    pub(super) fn begin(filter: &mut LineFilter, random: &mut SmallRng) -> FirstTouches {
        filter.mark(random);
        FirstTouches::default()
    }

    /// Takes one; all that are kept are equally likely to be (reservoir sampling, Knuth, The Art of Computer Programming, 3.4.2).
    pub(super) fn take(&mut self, touch: FirstTouch, random: &mut SmallRng) {
        let left = 1.0 - f64::from(self.gone) / f64::from(super::filter::MARKED);
        self.gone += 1;
        self.seen += 1.0 / left;
        if self.kept.len() < MOST {
            self.kept.push(touch);
            return;
        }
        let place = random.random_range(0..self.gone);
        if let Some(kept) = self.kept.get_mut(place as usize) {
            *kept = touch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Access, Observer};
    use rand::SeedableRng;
    use std::collections::HashMap;

    fn access(ip: u64, address: u64, size: u32) -> Access {
        Access {
            ip,
            address,
            size,
            load: true,
            store: false,
        }
    }

    /// Of lines touched again and again, some of them across a border, each drawn one is told once, and where it came first.
    #[test]
    fn the_first_touch_of_every_drawn_line_is_told() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut observer = Observer::new(1000, 2);
        let (mut lines, mut drawn) = (0, 0);
        for _ in 0..20 {
            observer.await_first_touches();
            let mut first: HashMap<u64, (u64, u64)> = HashMap::new();
            for ip in 0..60_000u64 {
                let line = random.random_range(0..10_000u64);
                let crosses = ip % 5 == 0;
                let position = observer.refs()[2];
                observer.access(access(ip, 64 * line + 56, if crosses { 16 } else { 8 }));
                first.entry(line).or_insert((ip, position));
                if crosses {
                    first.entry(line + 1).or_insert((ip, position + 1));
                }
            }
            let told = observer.end_first_touches().unwrap();
            assert!((told.seen / told.kept.len() as f64 - 1.0).abs() < 0.05);
            for touch in &told.kept {
                let expected = Some((touch.ip, touch.position));
                assert_eq!(first.remove(&(touch.address / 64)), expected);
                drawn += 1;
            }
            lines += 10_000;
        }
        let one_in = f64::from(lines) / f64::from(drawn);
        assert!(
            (one_in / f64::from(FirstTouches::ONE_IN) - 1.0).abs() < 0.1,
            "{one_in}"
        );
        assert!(observer.end_first_touches().is_none());
    }

    /// As many as there may be, each as likely to be kept as any other.
    #[test]
    fn of_many_a_random_choice_is_kept() {
        let (mut lines, mut late) = (0.0, 0);
        for seed in 0..20 {
            let mut observer = Observer::new(1000, seed);
            observer.await_first_touches();
            let mut random = SmallRng::seed_from_u64(seed);
            for _ in 0..400_000 {
                let line = random.random_range(0..1u64 << 36);
                observer.access(access(1, 64 * line, 8));
            }
            let told = observer.end_first_touches().unwrap();
            assert_eq!(told.kept.len(), MOST);
            lines += told.seen * f64::from(FirstTouches::ONE_IN);
            let of_late = told.kept.iter().filter(|touch| touch.position > 200_000);
            late += of_late.count();
        }
        let of_all = lines / 20.0 / 400e3;
        assert!((of_all - 1.0).abs() < 0.05, "{of_all}");
        // Fewer are seen when many marks are gone.
        let late = late as f64 / (20 * MOST) as f64;
        assert!((0.4..0.51).contains(&late), "{late}");
    }

    /// What was not seen might have been the first touch.
    #[test]
    fn windows_with_unseen_accesses_tell_nothing() {
        let mut observer = Observer::new(1_000_000, 4);
        observer.await_first_touches();
        observer.access(access(1, 0, 8));
        observer.skip_unseen(5);
        assert!(!observer.awaits_first_touches());
        assert!(observer.end_first_touches().is_none());
        // Marks of it do not disturb the next one.
        assert!((0..100_000).all(|line| !observer.filter().may_hold(line)));
    }
}
