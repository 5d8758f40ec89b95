//! The second and third level, from what all probes say of them.

use super::{Level, held_by_code, reasoned, sharing};
use crate::finding::{Confidence, Finding};
use crate::probe::{PAGE, evict, footprint, l1, latency, line, tlb};
use crate::raw::RawSamples;
use latency::{Latency, Spread};

pub(super) fn second(
    raw: &RawSamples,
    l1: Option<l1::Geometry>,
    found_line: Finding<u64>,
    latency: Finding<Latency>,
) -> Option<Level> {
    let l1 = l1?;
    let mut ways = reasoned(evict::infer(&raw.evict), raw, "second-level sets");
    let tlb = tlb::infer_cost(&raw.tlb).value.unwrap_or(0.0);
    let hit = latency.value.map(|l| l.cycles);
    let next = behind(raw, hit).value.map(|l| l.cycles).or_else(|| {
        // Without it the plateau after the first steep rise stands in.
        raw.evict
            .iter()
            .filter(|v| v.levels.1 > 0.0)
            .map(|v| v.levels.1)
            .reduce(f64::min)
    });
    let linear = evict::linear(&raw.evict);
    if ways.value.is_some() && linear.is_none() {
        ways = Finding::refused("the classes differ in whether lines at other page offsets evict");
    }
    if let Some(a) = ways.value
        && from_memory(raw, l1.bytes(), hit, tlb, a)
    {
        ways = Finding::refused(
            "what was evicted came from memory, yet latency rises in steps: the sets may be a further level's",
        );
    }
    let by_curve = match (hit, next) {
        (Some(h), Some(n)) => {
            footprint::infer_capacity(&raw.footprint, l1.bytes(), h, n, tlb, ways.value)
        }
        _ => Finding::refused("the latencies on both sides of the level are not known"),
    };
    let rise = match (hit, next) {
        (Some(h), Some(n)) => footprint::rise(&raw.footprint, l1.bytes(), h, n, tlb),
        _ => None,
    };
    let (capacity, range) = capacity(
        &ways,
        found_line.value,
        linear,
        evict::colours(&raw.evict, evict::USABLE),
        &by_curve,
        rise,
    );
    Some(Level {
        level: 2,
        capacity,
        range,
        ways,
        line: line::infer_second(&raw.line2, found_line.value),
        latency,
        policy: Finding::refused("only the first level's sets can be driven in lockstep"),
        linear_index: match linear {
            Some(l) => Finding::new(
                l,
                Confidence::Medium,
                if l {
                    "lines at other page offsets do not evict"
                } else {
                    "lines at other page offsets evict"
                },
            ),
            None => Finding::refused("not decided"),
        },
        shared_with: sharing(raw, 2),
        inclusion: Finding::refused("not measured"),
        unified: held_by_code(raw, 2),
    })
}

/// Latency behind the second level, whose own is `hit` cycles.
fn behind(raw: &RawSamples, hit: Option<f64>) -> Finding<Latency> {
    let cost = evict::cost(&raw.evict);
    latency::infer_l3(&raw.latency, raw.facts.ns_per_tick, hit, cost)
}

/// The classes' lines come back from memory although the footprint curve leaves this level long before it
/// reaches memory: an inclusive further level took them.
pub(super) fn from_memory(
    raw: &RawSamples,
    above: u64,
    hit: Option<f64>,
    tlb: f64,
    ways: u32,
) -> bool {
    let Some(memory) = latency::infer_memory(&raw.latency.memory).value else {
        return false;
    };
    let memory = memory.cycles_p10;
    let evicted = raw.evict.iter().filter(|v| !v.curve.is_empty());
    let Some(hit) = hit else {
        // Where the curve starts from is not known, and so not what it says: the doubt stays.
        return evicted.clone().any(|v| v.levels.1 > 0.75 * memory);
    };
    // More of the class than any level holds, and still not memory: a further level has what this one lost.
    let next = behind(raw, Some(hit));
    let next = next.value.map(|l| l.cycles);
    // A random further level spares some of its lines, so that a single figure is a mixture; more of the class tells then.
    let climbs =
        next.is_none() && latency::highest(&raw.latency).is_some_and(|l| l > 0.75 * memory);
    if !evicted.clone().any(|v| v.levels.1 > 0.75 * memory)
        && next.is_none_or(|l| l < 0.75 * memory)
        && !climbs
    {
        return false;
    }
    let curve = footprint::envelope(&raw.footprint);
    let at =
        |share: f64| footprint::crossing(&curve, above * 2, hit + tlb + share * (memory - hit));
    if next.is_some_and(|l| l < 0.6 * memory) {
        return false;
    }
    // Where the curve leaves the level as the ways and the share of congruent pages foretell, all is well; or as the ways
    // and the place where it is half way to memory do, as it is where nothing lies between.
    let half = at(0.5).map(|bytes| footprint::colours_of(bytes / PAGE as f64, ways));
    let counted = evict::colours(&raw.evict, evict::USABLE).map(|c| c.0);
    for colours in [counted, half].into_iter().flatten() {
        // The whole foot of the rise: a step to a further level shows there, at a tenth of the way or less.
        let as_foretold = [0.03, 0.05, 0.08].iter().all(|&share| {
            let foretold = footprint::pages_at(share, colours, ways) * PAGE as f64;
            at(share).is_some_and(|bytes| bytes > 0.75 * foretold)
        });
        if as_foretold {
            return false;
        }
    }
    match (at(0.05), at(0.5)) {
        (Some(onset), Some(half)) => half > 1.7 * onset,
        _ => true,
    }
}

/// What speaks against three times a power of two of sets, on a scale where 2 is odds of 2.7 to 1: further levels have it, and
/// hardly a second one.
const THREE_TIMES: f64 = 5.0;

/// Capacity of the second level: ways x line x sets where one number of sets fits all evidence.
///
/// With an index that leaves the page offset alone, the sets are those reachable from one offset times the
/// lines of a page, and the share of congruent pages counts them; sets are taken to be 1 or 3 times a power of
/// two, and the footprint curve only has a small say. With a hashed index the sets are taken to be a power of
/// two, and the curve's rise must have room for one number only. Otherwise there is a range and no value.
pub(super) fn capacity(
    ways: &Finding<u32>,
    line: Option<u64>,
    linear: Option<bool>,
    colours: Option<(f64, f64)>,
    by_curve: &Finding<(u64, u64, u64)>,
    rise: Option<(f64, f64)>,
) -> (Finding<u64>, Option<(u64, u64)>) {
    let range = by_curve.value.map(|c| (c.1, c.2));
    let refuse = |why: &str| {
        let text = match range {
            Some((a, b)) => format!(
                "{why}; by the footprint curve {} to {}",
                crate::report::bytes(a),
                crate::report::bytes(b)
            ),
            None => format!("{why}; {}", by_curve.reason),
        };
        (Finding::refused(text), range)
    };
    let (Some(a), Some(_)) = (ways.value, line) else {
        return refuse("ways or line are not known");
    };
    let counted = colours.filter(|_| linear == Some(true));
    let curve_way = by_curve.value.map(|c| c.0 as f64 / f64::from(a));
    // Interference and uneven pages shift the curve, but not without limit.
    let contradicts = |bytes: f64| {
        range.is_some_and(|(low, high)| bytes < 0.7 * low as f64 || bytes > 1.4 * high as f64)
    };
    if linear == Some(false)
        && let Some(rise) = rise
    {
        let sizes = (12..26).map(|k| (1u64 << k) * u64::from(a));
        let fit: Vec<u64> = sizes
            .filter(|&b| footprint::rises_at(b as f64, a, rise))
            .collect();
        let [bytes] = fit[..] else {
            return refuse("no single number of sets explains where the curve rises");
        };
        let sure = ways.confidence.min(Confidence::Medium);
        let mut f = Finding::new(bytes, sure, "ways x line x sets, by the curve's rise");
        (f.votes, f.agree) = (ways.votes, ways.agree);
        return (f, range);
    }
    let prior = |way: u64| {
        if way.is_power_of_two() {
            0.0
        } else {
            THREE_TIMES
        }
    };
    let Some((colours, error)) = counted else {
        return refuse("the sets could not be counted");
    };
    let mut scored: Vec<(f64, u64)> = (8..26)
        .flat_map(|k| [1u64 << k, 3 << k])
        .filter(|w| *w >= PAGE)
        .map(|w| {
            let curve = curve_way.map_or(0.0, |c| (c / w as f64).ln().abs());
            let cost = ((colours * PAGE as f64 / w as f64).ln() / error).powi(2)
                + (curve / 0.6).powi(2).min(2.0);
            (cost + prior(w), w)
        })
        .collect();
    scored.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (best, second) = (scored[0], scored[1]);
    // A difference of 9 is odds of about 90 to 1.
    if best.0 - prior(best.1) > 8.0 || second.0 - best.0 < 9.0 {
        return refuse("more than one number of sets fits");
    }
    if contradicts((best.1 * u64::from(a)) as f64) {
        return refuse("the sets counted and the footprint curve contradict each other");
    }
    let limit = if second.0 - best.0 >= 12.0 {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let mut f = Finding::new(
        best.1 * u64::from(a),
        ways.confidence.min(limit),
        "ways x line x sets",
    );
    (f.votes, f.agree) = (ways.votes, ways.agree);
    (f, range)
}

/// The second level's sets are counted as well as they can be: where the index leaves the page offset alone, so well that
/// its capacity follows. Otherwise more classes of pages would not help.
pub(crate) fn counted(raw: &RawSamples) -> bool {
    let ways = evict::infer(&raw.evict);
    if ways.value.is_none() || evict::linear(&raw.evict) == Some(false) {
        return true;
    }
    let line = line::infer(&raw.line).value;
    let linear = evict::linear(&raw.evict);
    // As long as there is time for more, classes whose test hardly errs are worth it.
    let colours = evict::colours(&raw.evict, evict::SOUND);
    let by_curve = Finding::refused("not asked");
    capacity(&ways, line, linear, colours, &by_curve, None)
        .0
        .value
        .is_some()
}

pub(super) fn third(raw: &RawSamples, above: &[Level], memory: Option<Spread>) -> Option<Level> {
    let memory = memory?;
    let l2 = above.get(1)?;
    let hit = l2.latency.value.map(|l| l.cycles);
    let below = behind(raw, hit);
    let mut below = below;
    if below
        .value
        .is_some_and(|l| l.cycles > 0.8 * memory.cycles_p10)
    {
        // The second level's misses go to memory: there is no third, unless one took the lines along that it lost itself.
        let cost = tlb::infer_cost(&raw.tlb).value.unwrap_or(0.0);
        let ways = evict::infer(&raw.evict).value?;
        let first = above[0].capacity.value?;
        if !from_memory(raw, first, hit, cost, ways) {
            return None;
        }
        below = Finding::refused("lines thrown out came from memory, yet latency rises in steps");
    }
    let tlb = tlb::infer_second(&raw.tlb).value.map_or(0.0, |t| t.2)
        + tlb::infer_cost(&raw.tlb).value.unwrap_or(0.0);
    let mut points = raw.shared.clone();
    if points.is_empty() {
        points.clone_from(&raw.footprint);
    }
    let from = l2.capacity.value.unwrap_or(256 << 10);
    let capacity = match below.value {
        Some(l) => footprint::infer_last_level(&points, from, l.cycles, memory.cycles_p10, tlb),
        None => Finding::refused("its latency is not known"),
    };
    Some(Level {
        level: 3,
        range: capacity.value.map(|c| (c.0, c.2)),
        capacity: capacity.map(|c| c.1),
        ways: Finding::refused("needs sets of pages beyond what ordinary memory gives in the time"),
        line: Finding::refused("a longer line and a prefetched pair look alike by timing"),
        latency: below,
        policy: Finding::refused("only the first level's sets can be driven in lockstep"),
        linear_index: Finding::refused("not measured"),
        shared_with: Finding::refused(
            "a walk on another CPU cannot be told from the share moving by itself",
        ),
        inclusion: Finding::refused("needs sets of this level, see its ways"),
        unified: Finding::refused(
            "needs a steady share of the level for as long as code of twice its size runs",
        ),
    })
}
