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

/// A field's name, how it came out, and the reason given with it.
pub type Judged = (&'static str, Outcome, String);

fn check<T>(name: &'static str, f: &Finding<T>, right: impl Fn(&T) -> bool) -> Judged {
    let outcome = match &f.value {
        None => Outcome::Refused,
        Some(v) if right(v) => Outcome::Right,
        Some(_) if f.confidence == Confidence::High => Outcome::WrongHigh,
        Some(_) => Outcome::Wrong,
    };
    (name, outcome, f.reason.clone())
}

fn within(x: f64, truth: f64, share: f64) -> bool {
    (x / truth - 1.0).abs() <= share
}

/// All fields that have a truth. Latencies count as right within 2 % (first level), 3 % (second), 10 % (memory and third).
///
/// A third level is there or not: a latency for one that is not there is wrong, and so is the statement that there is none.
pub fn judge(truth: &Truth, h: &Hierarchy) -> Vec<Judged> {
    let (l1, l2) = (&truth.levels[0], &truth.levels[1]);
    let Some(m1) = h.levels.first() else {
        return Vec::new();
    };
    let mut out = vec![
        check("L1 capacity", &m1.capacity, |b| *b == l1.bytes()),
        check("L1 ways", &m1.ways, |w| *w == l1.ways),
        check("L1 line", &m1.line, |b| *b == l1.line),
        check("L1 latency", &m1.latency, |l| {
            within(l.cycles, l1.latency, 0.02)
        }),
        check("L1 policy", &m1.policy, |p| {
            p.alike.contains(&l1.policy) || l1.ways == 1
        }),
        check("DTLB entries", &h.translation.entries, |n| {
            *n == truth.tlbs[0].entries
        }),
        check("page size", &h.translation.page, |n| *n == 4096),
        check("write-allocate", &h.write_allocate, |w| {
            *w == truth.write_allocate
        }),
        check("write-back", &h.write_back, |w| *w == truth.write_back),
        check("memory latency", &h.memory, |m| {
            within(m.cycles_p10, truth.memory, 0.1)
        }),
    ];
    match h.levels.get(1) {
        Some(m2) => out.extend([
            check("L2 capacity", &m2.capacity, |b| *b == l2.bytes()),
            check("L2 ways", &m2.ways, |w| *w == l2.ways),
            check("L2 line", &m2.line, |b| *b == l2.line),
            check("L2 latency", &m2.latency, |l| {
                within(l.cycles, l2.latency, 0.03)
            }),
        ]),
        None => out.extend(
            ["L2 capacity", "L2 ways", "L2 line", "L2 latency"]
                .map(|f| (f, Outcome::Refused, "no second level was looked for".into())),
        ),
    }
    match (truth.levels.get(2), h.levels.get(2)) {
        (Some(l3), Some(m3)) => {
            out.push(check("L3 latency", &m3.latency, |l| {
                within(l.cycles, l3.latency, 0.1)
            }));
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
            out.push(check("L3 range", &m3.capacity, |_| holds));
        }
        (None, Some(m3)) if m3.latency.value.is_some() => {
            out.push(check("L3 latency", &m3.latency, |_| false));
        }
        // Without a second level or memory to compare with the report refuses the third, and says what it would need.
        (Some(_), None) if h.levels.len() < 2 || h.memory.value.is_none() => {
            let why = "needs the second level and memory".to_string();
            out.push(("L3 latency", Outcome::Refused, why));
        }
        (Some(_), None) => {
            let why = "said not to be there".to_string();
            out.push(("L3 latency", Outcome::Wrong, why));
        }
        (None, _) => {}
    }
    if h.code.capacity.votes > 0 {
        out.push(check("L1i capacity", &h.code.capacity, |b| {
            *b == truth.code.bytes()
        }));
        out.push(check("L1i line", &h.code.line, |b| *b == truth.code.line));
    }
    out
}
