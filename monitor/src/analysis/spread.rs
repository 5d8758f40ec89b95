//! How far shares of a run's references would move if other windows had been opened.
//!
//! A [`super::Miss`] says how well a subject's miss ratio is known, not how well its share of the references is: in two
//! runs of one program windows fall into other parts of it. That is told by how the share differs between the windows of
//! one run. With gaps the error is that of a ratio of sums over a sample of windows (Cochran, *Sampling Techniques*, 3rd
//! ed., 6.3). Of a run observed as a whole nothing was left out, and only what differs from one window to the next counts
//! (successive differences: Wolter, *Introduction to Variance Estimation*, 2nd ed., 8.2).

use std::collections::HashMap;

use statcache_model::{ModelError, Policy, Stream};

use super::{Analysis, Subjects};

/// Samples are taken in clusters, of which most often tell one thing: so many times the variance of samples taken each for
/// itself at the least. (Guessed.)
const CLUSTERED: f64 = 4.0;

impl Analysis<'_> {
    /// Half width of the 95 % interval of each subject's share of the line references, 0 to 1, by its number.
    ///
    /// # Errors
    /// A cache the model refuses.
    pub fn share_errors(
        &self,
        subjects: &Subjects,
        cache_bytes: u64,
        line_bytes: u32,
        policy: Policy,
        stream: Stream,
    ) -> Result<HashMap<u32, f64>, ModelError> {
        let windows = Subjects::windows();
        let (run, asked) = self.run(stream);
        let line = u64::from(line_bytes);
        let parts = run.attribute(line, cache_bytes, policy, asked, |site| {
            let window = self.key(&windows, stream, site);
            (self.key(subjects, stream, site), window)
        })?;
        let mut all = vec![0.0; self.profile.windows.len()];
        let mut of: HashMap<u32, (Vec<(u32, f64)>, u64)> = HashMap::new();
        for part in &parts.keys {
            let (subject, window) = part.key;
            all[window as usize] += part.references;
            let (references, samples) = of.entry(subject).or_default();
            references.push((window, part.references));
            *samples += part.samples;
        }
        let whole = self.profile.header.full;
        let samples: u64 = of.values().map(|(_, samples)| samples).sum();
        Ok(of
            .into_iter()
            .map(|(subject, (references, _))| {
                (subject, half_width(&references, &all, samples, whole))
            })
            .collect())
    }
}

/// Half width of the share of one subject, from its references in the windows that have some, and those of all subjects in
/// each window; `samples` are those of all.
fn half_width(references: &[(u32, f64)], all: &[f64], samples: u64, whole: bool) -> f64 {
    let total: f64 = all.iter().sum();
    let own: f64 = references.iter().map(|&(_, references)| references).sum();
    if total <= 0.0 {
        return 1.0;
    }
    let share = own / total;
    let mut apart: Vec<f64> = all.iter().map(|of_all| -share * of_all).collect();
    for &(window, references) in references {
        apart[window as usize] += references;
    }
    let seen: Vec<f64> = apart
        .into_iter()
        .zip(all)
        .filter(|(_, of_all)| **of_all > 0.0)
        .map(|(apart, _)| apart)
        .collect();
    let n = seen.len() as f64;
    let few = share * (1.0 - share) / samples.max(1) as f64 * CLUSTERED;
    let squares: f64 = match whole {
        false => seen.iter().map(|apart| apart * apart).sum(),
        true => seen.windows(2).map(|w| (w[1] - w[0]).powi(2) / 2.0).sum(),
    };
    let degrees = n - 1.0;
    if degrees < 1.0 {
        // One window tells nothing of others.
        return if whole { 1.96 * few.sqrt() } else { 1.0 };
    }
    let between = squares / (total * total) * n / degrees;
    // Student's t of 95 %, to 2 % from two degrees on, for the normal distribution's 1.96.
    let t = 1.96 + 2.4 / degrees + 2.8 / (degrees * degrees);
    (t * between.sqrt()).max(1.96 * few.sqrt()).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::half_width;

    #[test]
    fn a_share_that_differs_between_windows_is_known_less() {
        let all = [1.0; 64];
        let of = |parts: [f64; 4], whole| {
            let references: Vec<(u32, f64)> =
                (0..64).map(|w| (w, parts[w as usize / 16])).collect();
            half_width(&references, &all, 1_000_000, whole)
        };
        let alike = of([0.25; 4], false);
        assert!(alike < 0.01, "{alike}");
        // One part of the run only: of windows with gaps another choice may have met it more or less often.
        let apart = of([0.0, 0.0, 1.0, 0.0], false);
        assert!((0.1..0.12).contains(&apart), "{apart}");
        // Where all was observed, the parts of the run are what they are.
        let whole = of([0.0, 0.0, 1.0, 0.0], true);
        assert!(whole < apart / 3.0, "{whole}");
        // Few samples say little, however alike they are.
        let few: Vec<(u32, f64)> = (0..64).map(|w| (w, 0.25)).collect();
        assert!(half_width(&few, &all, 100, false) > 0.1);
        assert_eq!(half_width(&[(0, 1.0)], &[2.0], 1_000_000, false), 1.0);
    }
}
