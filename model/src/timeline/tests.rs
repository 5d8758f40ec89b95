use super::*;
use crate::{LineSize, Rng};
use std::ops::Range;

fn segment(cold: f64, local: &[(f64, f64)], cross: &[(f64, f64)], shape: usize) -> Segment {
    let local = local.iter().map(|&(distance, weight)| Local {
        bin: bins::bin_of_real(distance),
        distance,
        weight,
        distinct: 0.0,
        spread: 0.0,
    });
    let cross = cross.iter().map(|&(to, weight)| Cross {
        from: 0.0,
        from_segment: 0,
        to,
        weight,
        distinct: 0.0,
    });
    Segment {
        cold,
        local: local.collect(),
        cross: cross.collect(),
        shape,
    }
}

fn shape(of: f64) -> Shape {
    let edges: Vec<f64> = (0..=BINS)
        .map(|bin| (1.0 + bins::lower_edge(bin)).powf(-of))
        .collect();
    Shape::new(&edges, 1e-4)
}

fn timeline(bounds: &[f64], segments: Vec<Segment>, block_of: Vec<usize>) -> Timeline {
    let shapes = vec![shape(0.2), shape(0.5), shape(0.9)];
    let mut timeline = Timeline::new(bounds.to_vec(), segments, shapes, true, None);
    timeline.normalise(block_of);
    timeline.measure();
    timeline
}

/// References of the reuses of some segments, and those that are no first touches.
fn reuses_and_left(timeline: &Timeline, segments: Range<usize>) -> (f64, f64) {
    let reuses = |j: usize| timeline.segments[j].reuses() * timeline.refs(j);
    let left = segments.clone().map(|j| timeline.left(j)).sum();
    (segments.map(reuses).sum(), left)
}

#[test]
fn reuses_fill_what_first_touches_leave_of_each_block() {
    let bounds = [0.0, 1e4, 2e4, 3e4, 4e4];
    let parts = vec![
        // More long ones than there is room for; no short one; nothing but first touches; nothing at all.
        segment(0.1, &[(10.0, 2e3), (5e3, 2e4)], &[], 0),
        segment(0.0, &[], &[(1.5e4, 4e3)], 1),
        segment(1.0, &[], &[(2.5e4, 3e3)], 2),
        segment(0.5, &[], &[], 2),
    ];
    for block_of in [vec![0, 1, 2, 3], vec![0, 0, 1, 1], vec![0; 4]] {
        let all = timeline(&bounds, parts.clone(), block_of.clone());
        for block in 0..all.blocks() {
            let of = |j: &usize| block_of[*j] == block;
            let (from, to) = ((0..4).find(of).unwrap(), (0..4).rfind(of).unwrap() + 1);
            let (reuses, left) = reuses_and_left(&all, from..to);
            // The last has no sample to go by.
            if reuses > 0.0 {
                assert!((reuses / left - 1.0).abs() < 1e-9, "{block_of:?} {block}");
            }
            assert!(left > 0.0 || reuses == 0.0);
        }
        for policy in [Policy::RANDOM, Policy::LRU] {
            let cache = Cache::new(1 << 14, LineSize::B64, policy).unwrap();
            let ratios = match policy {
                Policy::Random { .. } => all.random_ratios(&all.random(&cache)),
                Policy::Lru { .. } => all.lru_ratios(&cache),
            };
            assert!(ratios.iter().all(|r| r.is_finite() && *r >= 0.0));
            assert!((0.0..=1.0).contains(&all.mean(&ratios)));
        }
    }
}

#[test]
fn short_reuses_make_up_for_long_ones_in_their_segment() {
    let bounds = [0.0, 1e4, 2e4];
    // As many of either in both together, and half of all are long.
    let parts = vec![
        segment(0.0, &[(1.0, 8e3)], &[(5e3, 3e3)], 0),
        segment(0.0, &[(1.0, 2e3)], &[(1.5e4, 7e3)], 0),
    ];
    let all = timeline(&bounds, parts, vec![0, 0]);
    for (j, long) in [3e3, 7e3].into_iter().enumerate() {
        let segment = &all.segments[j];
        assert!((segment.reuses() - 1.0).abs() < 1e-9);
        assert!((segment.cross[0].weight - long / 1e4).abs() < 1e-9);
    }
}

#[test]
fn stack_distances_are_sums_over_the_segments() {
    let mut rng = Rng::new(5);
    let mut bounds = vec![0.0];
    let mut segments = Vec::new();
    for _ in 0..60 {
        bounds.push(bounds[bounds.len() - 1] + 10.0 + rng.below(5000) as f64);
        segments.push(segment(0.0, &[(1.0, 1.0)], &[], rng.below(2) as usize));
    }
    let all = timeline(&bounds, segments, (0..60).collect());
    for _ in 0..300 {
        let mut times = [all.total() * rng.unit(), all.total() * rng.unit()];
        times.sort_by(f64::total_cmp);
        let [from, to] = times;
        let (first, last) = (all.segment_of(from), all.segment_of(to));
        let mut sum = 0.0;
        for s in first..=last {
            let shape = &all.shapes[all.segments[s].shape];
            let end = all.bounds[s + 1].min(to);
            let oldest = (to - all.bounds[s].max(from + 1.0)).max(0.0);
            sum += shape.alive(oldest) - shape.alive((to - end).max(0.0));
            if s == first {
                sum -= shape.own_share * (end - from - 1.0).max(0.0);
            }
        }
        let found = all.distinct(from, to);
        let least = (to - from - 1.0).clamp(0.0, 1.0);
        assert!((found - sum.max(least)).abs() < 1e-6 * (1.0 + sum));
    }
}
