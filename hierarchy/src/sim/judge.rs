//! Compares what was inferred with the truth, field by field.

use super::Truth;
use super::cache::Inclusion;
use crate::finding::{Confidence, Finding};
use crate::infer::Hierarchy;

/// How one field came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Right.
    Right,
    /// No value was given.
    Refused,
    /// Wrong, and said with less than high confidence.
    Wrong,
    /// Wrong with high confidence: the worst.
    WrongHigh,
}

fn check<T>(f: &Finding<T>, right: impl Fn(&T) -> bool) -> Outcome {
    match &f.value {
        None => Outcome::Refused,
        Some(v) if right(v) => Outcome::Right,
        Some(_) if f.confidence == Confidence::High => Outcome::WrongHigh,
        Some(_) => Outcome::Wrong,
    }
}

fn within(x: f64, truth: f64, share: f64) -> bool {
    (x / truth - 1.0).abs() <= share
}

/// All fields that have a truth. Latencies count as right within 2 % (first level), 3 % (second), 10 % (memory).
pub fn judge(truth: &Truth, h: &Hierarchy) -> Vec<(&'static str, Outcome)> {
    let (l1, l2) = (&truth.levels[0], &truth.levels[1]);
    let Some(m1) = h.levels.first() else {
        return Vec::new();
    };
    let mut out = vec![
        ("L1 capacity", check(&m1.capacity, |b| *b == l1.bytes())),
        ("L1 ways", check(&m1.ways, |w| *w == l1.ways)),
        ("L1 line", check(&m1.line, |b| *b == l1.line)),
        (
            "L1 latency",
            check(&m1.latency, |l| within(l.cycles, l1.latency, 0.02)),
        ),
        (
            "L1 policy",
            check(&m1.policy, |p| p.alike.contains(&l1.policy) || l1.ways == 1),
        ),
        (
            "DTLB entries",
            check(&h.translation.entries, |n| *n == truth.tlbs[0].entries),
        ),
        ("page size", check(&h.translation.page, |n| *n == 4096)),
        (
            "write-allocate",
            check(&h.write_allocate, |w| *w == truth.write_allocate),
        ),
        (
            "write-back",
            check(&h.write_back, |w| *w == truth.write_back),
        ),
        (
            "memory latency",
            check(&h.memory, |m| within(m.cycles_p10, truth.memory, 0.1)),
        ),
    ];
    match h.levels.get(1) {
        Some(m2) => out.extend([
            ("L2 capacity", check(&m2.capacity, |b| *b == l2.bytes())),
            ("L2 ways", check(&m2.ways, |w| *w == l2.ways)),
            ("L2 line", check(&m2.line, |b| *b == l2.line)),
            (
                "L2 latency",
                check(&m2.latency, |l| within(l.cycles, l2.latency, 0.03)),
            ),
        ]),
        None => out.extend(
            ["L2 capacity", "L2 ways", "L2 line", "L2 latency"].map(|f| (f, Outcome::Refused)),
        ),
    }
    if let (Some(l3), Some(m3)) = (truth.levels.get(2), h.levels.get(2)) {
        out.push((
            "L3 latency",
            check(&m3.latency, |l| within(l.cycles, l3.latency, 0.1)),
        ));
        // Reported as a range: it must hold the truth and be narrow enough to mean something.
        let held = l3.bytes()
            + if l3.inclusion == Inclusion::Victim {
                l2.bytes()
            } else {
                0
            };
        let holds = m3
            .range
            .is_some_and(|(low, high)| (low..=high).contains(&held) && high < 4 * low);
        out.push(("L3 range", check(&m3.capacity, |_| holds)));
    }
    if h.code.capacity.votes > 0 {
        out.push((
            "L1i capacity",
            check(&h.code.capacity, |b| *b == truth.code.bytes()),
        ));
        out.push(("L1i line", check(&h.code.line, |b| *b == truth.code.line)));
    }
    out
}
