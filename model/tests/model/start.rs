//! What is not known of the time before the first window.

use crate::common::{sizes, sparse, stream};
use statcache_model::{Options, Policy, Run, Stream};

#[test]
fn a_start_that_no_window_saw_widens_the_curve() {
    const REFS: usize = 1_000_000;
    let distances = stream("chase", REFS, 7).distances();
    let curve = |unseen, policy| {
        let windows = sparse(&distances, 10_000, 50, (20_000, 80_000), 1);
        let options = Options {
            unseen,
            ..Options::default()
        };
        let run = Run::new(windows, options).unwrap();
        run.curve(64, policy, Stream::Own, &sizes()).unwrap()
    };
    for policy in [Policy::RANDOM, Policy::LRU] {
        let known = curve(0.0, policy);
        // As many as all that the windows stand for, or next to none.
        let half = curve(REFS as f64, policy);
        let little = curve(REFS as f64 / 1000.0, policy);
        for ((known, half), little) in known.iter().zip(half).zip(little) {
            assert_eq!(known.miss_ratio, half.miss_ratio);
            assert!(half.low <= known.low && half.high >= known.high);
            assert!(half.low < 0.55 * known.miss_ratio, "{half:?}");
            assert!(little.low > known.low - 0.005, "{known:?} {little:?}");
        }
    }
}
