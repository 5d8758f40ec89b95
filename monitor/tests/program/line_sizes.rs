//! Miss ratios at all line sizes, of accesses that lie in several lines.

use crate::support::c::build;
use crate::support::cli::{readable, shell_status, text, under};
use statcache::analysis::Analysis;
use statcache::profile::types::LINE_SIZES;
use statcache_model::Policy;
use std::collections::HashSet;

const WALKED: u64 = 1 << 20;
const LOADED: u64 = 16;
/// Points by which a ratio may be off.
const OFF: f64 = 0.03;

/// The miss ratio of `spans` in a small cache: each round, every line is new.
fn truth(line: u64, [offset, step, words]: [u64; 3]) -> f64 {
    let (mut references, mut lines) = (0, HashSet::new());
    for at in (offset..WALKED).step_by(step as usize) {
        let covered = at / line..=(at + LOADED - 1) / line;
        references += covered.clone().count() as u64 + words;
        lines.extend(covered);
    }
    lines.len() as f64 / references as f64
}

#[test]
fn accesses_count_at_each_line_that_they_cover() {
    let Some((place, program)) = build("spans") else {
        return;
    };
    let program = text(&program);
    // Few of a window's samples are followed at 16 and 32 bytes: it takes more windows than the first milliseconds have.
    let ways = [
        (&["-q", "--full"][..], "150"),
        (&["-q", "--overhead", "100"], "6000"),
    ];
    for (options, rounds) in ways {
        for case in [[24, 64, 4], [56, 64, 2], [8, 16, 0]] {
            let [offset, step, hot] = case.map(|n| n.to_string());
            let words = [program.as_str(), &offset, &step, &hot, rounds];
            let found = under(place.path(), place.path(), options, &words, b"");
            assert_eq!(shell_status(&found), 0, "{found:?}");
            let profile = readable(&place.path().join("p"));
            let analysis = Analysis::new(&profile).expect("a sound profile");
            for line in LINE_SIZES {
                let stream = analysis.stream_at(64 << 10);
                let curve = analysis.curve(line, Policy::LRU, stream, &[64 << 10]);
                let [point] = &curve.expect("a curve")[..] else {
                    panic!("one size, one point");
                };
                let truth = truth(u64::from(line), case);
                let off = (point.miss_ratio - truth).abs();
                let may_be_off = match options.contains(&"--full") {
                    true => OFF,
                    false => OFF + (point.high - point.low) / 2.0,
                };
                assert!(
                    off < may_be_off,
                    "{options:?} {case:?} {line}: {} for {truth}",
                    point.miss_ratio
                );
            }
        }
    }
}
