//! From raw samples to a hierarchy: the pure half of the tool.

use crate::finding::{Confidence, Finding};
use crate::probe::{
    PAGE, code, evict, footprint, inclusion, l1, latency, line, opcache, policy, prefetch, tlb,
    tlbways, unified, write,
};
use crate::raw::RawSamples;
use latency::{Latency, Spread};
use serde::{Deserialize, Serialize};

/// A data or unified cache level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// 1 for the level next to the core.
    pub level: u32,
    /// Capacity, bytes; for a shared last level the median effective share.
    pub capacity: Finding<u64>,
    /// Bounds on the effective capacity (p10 and p90 over time for the last level), bytes.
    pub range: Option<(u64, u64)>,
    /// Lines per set.
    pub ways: Finding<u32>,
    /// Line size, bytes.
    pub line: Finding<u64>,
    /// Load-to-use latency of a hit.
    pub latency: Finding<Latency>,
    /// Replacement policy.
    pub policy: Finding<policy::Named>,
    /// The set index uses only address bits below and above the page offset separately.
    pub linear_index: Finding<bool>,
    /// CPUs that share the level with the measuring one.
    pub shared_with: Finding<Vec<usize>>,
    /// Takes from the level above what it throws out itself.
    pub inclusion: Finding<bool>,
    /// Holds code as well as data.
    pub unified: Finding<bool>,
}

/// The instruction side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Code {
    /// Capacity of the first-level instruction cache, bytes.
    pub capacity: Finding<u64>,
    /// Its ways.
    pub ways: Finding<u32>,
    /// Its line, bytes.
    pub line: Finding<u64>,
    /// Bytes of straight code that the decoded-instruction cache in front of it keeps.
    pub op_cache: Finding<u64>,
    /// Bounds on the first-level instruction translations.
    pub translations: Finding<(u64, u64)>,
}

/// Data translation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Translation {
    /// Entries of the first level.
    pub entries: Finding<u64>,
    /// Bytes those entries reach.
    pub reach: Finding<u64>,
    /// Extra cycles of a miss that hits the second level.
    pub miss_cycles: Finding<f64>,
    /// Second level: bounds on the entries and extra cycles of a walk.
    pub second: Finding<(u64, u64, f64)>,
    /// Page size, bytes.
    pub page: Finding<u64>,
    /// Huge pages are translated as such (false: the host splits them).
    pub huge_effective: Finding<bool>,
    /// Associativity of the first level.
    pub ways: Finding<u32>,
}

/// Everything inferred.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hierarchy {
    /// Core clock, GHz.
    pub clock_ghz: Finding<f64>,
    /// Nanoseconds per step of the timer.
    pub timer_step_ns: f64,
    /// Cache levels.
    pub levels: Vec<Level>,
    /// Memory, translations at hand.
    pub memory: Finding<Spread>,
    /// Memory with translation misses.
    pub memory_walk: Finding<Spread>,
    /// Stores that miss bring the line in.
    pub write_allocate: Finding<bool>,
    /// Stored lines stay in some level until they are thrown out.
    pub write_back: Finding<bool>,
    /// Counters beside the timing: agree (true) or contradict it.
    pub counters: Finding<bool>,
    /// Translation of data addresses.
    pub translation: Translation,
    /// The instruction side.
    pub code: Code,
    /// Strides that prefetching hides: (bytes, share of the random walk's time).
    pub prefetch: Finding<Vec<(i64, f64)>>,
    /// Memory-level parallelism.
    pub parallelism: Finding<f64>,
    /// Architectural registers by class.
    pub registers: Finding<Vec<(String, u32)>>,
}

/// Infers everything from raw samples; the same samples give the same answer.
pub fn infer(raw: &RawSamples) -> Hierarchy {
    let ns = raw.facts.ns_per_tick;
    let s = &raw.latency;
    let geometry = reasoned(l1::infer(&raw.l1), raw, "first level");
    let found_line = reasoned(line::infer(&raw.line), raw, "line");
    let named = match geometry.value {
        Some(g) if g.ways == 1 => policy::infer(&policy::Samples {
            ways: 1,
            ..policy::Samples::default()
        }),
        Some(_) => policy::infer(&raw.policy),
        None => Finding::refused("the first level's geometry is not known"),
    };
    let l1_latency = latency::infer_l1(s, ns);
    // One policy when it is known; otherwise all that the sequences leave open.
    let possible = match &named.value {
        Some(n) => n.alike.first().copied().into_iter().collect(),
        None => policy::possible(&raw.policy),
    };
    let memory = latency::infer_memory(&s.memory);
    let shared = |level: u32| sharing(raw, level);
    let mut levels = vec![Level {
        level: 1,
        capacity: geometry.clone().map(|g| g.bytes()),
        range: None,
        ways: geometry.clone().map(|g| g.ways),
        line: found_line.clone(),
        latency: l1_latency.clone(),
        policy: named,
        linear_index: geometry.clone().map(|_| true),
        shared_with: shared(1),
        inclusion: Finding::refused("no level above it"),
        unified: held_by_code(raw, 1),
    }];
    let l2_latency = latency::infer_l2(
        s,
        ns,
        l1_latency.value.map(|l| l.cycles),
        &possible,
        geometry.value.map_or(1, |g| g.ways),
    );
    let upper = levels[0]
        .policy
        .value
        .as_ref()
        .and_then(|n| n.alike.first().copied());
    if let Some(mut level) = second(raw, geometry.value, found_line.clone(), l2_latency) {
        level.inclusion = inclusion::infer(&raw.inclusion, upper);
        levels.push(level);
    }
    if let Some(level) = third(raw, &levels, memory.value) {
        levels.push(level);
    }
    let instructions = reasoned(code::infer(&raw.code), raw, "instructions");
    let code_bytes = instructions.value.map(|(a, w)| u64::from(a) * w);
    let entries = reasoned(tlb::infer_entries(&raw.tlb), raw, "translation");
    let mut page = tlb::infer_page(&raw.tlb);
    if page.value.is_some_and(|p| p != raw.facts.page_bytes) {
        // Translations of less than a page do not exist, and of more only where hardware joins pages.
        page = Finding::refused("read as another size than the operating system's page");
    }
    Hierarchy {
        clock_ghz: match latency::ghz(s, ns) {
            Some(g) => Finding::new(g, Confidence::High, ""),
            None => Finding::refused("no undisturbed window"),
        },
        timer_step_ns: raw.facts.timer_step * ns,
        levels,
        memory_walk: latency::infer_memory(&s.memory_walk),
        memory,
        write_allocate: reasoned(write::infer(&raw.write), raw, "stores"),
        write_back: write::infer_back(&raw.write),
        counters: reasoned(counters(raw), raw, "counters"),
        translation: Translation {
            reach: match page.value {
                Some(p) => entries.clone().map(|e| e * p),
                None => Finding::refused("the page size is not known"),
            },
            entries,
            miss_cycles: tlb::infer_cost(&raw.tlb),
            second: tlb::infer_second(&raw.tlb),
            huge_effective: reasoned(tlb::infer_granule(&raw.tlb, page.value), raw, "huge pages"),
            page,
            ways: reasoned(tlbways::infer(&raw.tlb_ways), raw, "translation sets"),
        },
        code: Code {
            capacity: instructions.clone().map(|(a, w)| u64::from(a) * w),
            ways: instructions.map(|i| i.0),
            line: reasoned(code::infer_line(&raw.code), raw, "instructions"),
            op_cache: reasoned(
                opcache::infer(&raw.op_cache, code_bytes),
                raw,
                "decoded instructions",
            ),
            translations: code::infer_translations(&raw.code),
        },
        prefetch: prefetch::infer_strides(&raw.prefetch),
        parallelism: reasoned(prefetch::infer_parallel(&raw.prefetch), raw, "parallelism"),
        registers: if raw.registers.is_empty() {
            Finding::refused("not measured")
        } else {
            let list = raw
                .registers
                .iter()
                .map(|r| (r.name.clone(), r.count))
                .collect();
            Finding::new(
                list,
                Confidence::High,
                "encodings executed, write-all read-all",
            )
        },
    }
}

/// Counters agree when hardly any load misses inside a measured size and most do beyond it.
fn counters(raw: &RawSamples) -> Finding<bool> {
    if raw.counters.is_empty() {
        return Finding::refused("not asked");
    }
    let agree = raw
        .counters
        .iter()
        .filter(|c| c.inside < 0.1 && c.beyond > 0.5);
    let agree = agree.count();
    let text: Vec<String> = raw
        .counters
        .iter()
        .map(|c| {
            format!(
                "{} {:.2} and {:.2} misses a load inside and beyond",
                c.what, c.inside, c.beyond
            )
        })
        .collect();
    let mut f = Finding::new(
        agree == raw.counters.len(),
        Confidence::Medium,
        text.join(", "),
    );
    (f.votes, f.agree) = (raw.counters.len() as u32, agree as u32);
    f
}

/// Code against data in one level.
fn held_by_code(raw: &RawSamples, level: u32) -> Finding<bool> {
    reasoned(
        unified::infer(&raw.unified, level),
        raw,
        "code against data",
    )
}

/// A backend's refusal is a better reason than "not measured".
fn reasoned<T>(mut f: Finding<T>, raw: &RawSamples, probe: &str) -> Finding<T> {
    if f.value.is_none()
        && f.votes == 0
        && let Some((_, why)) = raw.failures.iter().find(|x| x.0 == probe)
    {
        f.reason.clone_from(why);
    }
    f
}

/// A level counts as shared when walking it on the other CPU slows us by a fifth in most pairs.
fn sharing(raw: &RawSamples, level: u32) -> Finding<Vec<usize>> {
    let of: Vec<_> = raw.corun.iter().filter(|c| c.level == level).collect();
    if of.is_empty() {
        let why = raw
            .failures
            .iter()
            .find(|f| f.0 == "sharing")
            .map_or("not measured", |f| f.1.as_str());
        return Finding::refused(why);
    }
    let mut with = Vec::new();
    let mut clear = true;
    for c in of {
        let slowed = c.pairs.iter().filter(|p| p.1 > 1.2 * p.0).count();
        if slowed * 4 >= c.pairs.len() * 3 {
            with.push(c.cpu);
        } else if slowed * 4 > c.pairs.len() {
            clear = false;
        }
    }
    let why = if with.is_empty() {
        "walks on the other CPUs do not slow it"
    } else {
        "walks on those CPUs slow it"
    };
    let f = Finding::new(with, Confidence::Medium, why);
    if clear {
        f
    } else {
        f.at_most(Confidence::Low, "some pairs were undecided")
    }
}

fn second(
    raw: &RawSamples,
    l1: Option<l1::Geometry>,
    found_line: Finding<u64>,
    latency: Finding<Latency>,
) -> Option<Level> {
    let l1 = l1?;
    let mut ways = reasoned(evict::infer(&raw.evict), raw, "second-level sets");
    let tlb = tlb::infer_cost(&raw.tlb).value.unwrap_or(0.0);
    let hit = latency.value.map(|l| l.cycles);
    let next = latency::infer_l3(&raw.latency, raw.facts.ns_per_tick, hit)
        .value
        .map(|l| l.cycles)
        .or_else(|| {
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
    let (capacity, range) = capacity(
        &ways,
        found_line.value,
        linear,
        evict::colours(&raw.evict),
        &by_curve,
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

/// The classes' lines come back from memory although the footprint curve leaves this level long before it
/// reaches memory: an inclusive further level took them.
fn from_memory(raw: &RawSamples, above: u64, hit: Option<f64>, tlb: f64, ways: u32) -> bool {
    let (Some(hit), Some(memory)) = (hit, latency::infer_memory(&raw.latency.memory).value) else {
        return false;
    };
    let memory = memory.cycles_p10;
    let evicted = raw.evict.iter().filter(|v| !v.curve.is_empty());
    if !evicted.clone().any(|v| v.levels.1 > 0.75 * memory) {
        return false;
    }
    let curve = footprint::envelope(&raw.footprint);
    let at =
        |share: f64| footprint::crossing(&curve, above * 2, hit + tlb + share * (memory - hit));
    // More of the class than any level holds, and still not memory: a further level has what this one lost.
    let next = latency::infer_l3(&raw.latency, raw.facts.ns_per_tick, Some(hit));
    if next.value.is_some_and(|l| l.cycles < 0.6 * memory) {
        return false;
    }
    // Where the curve leaves the level as the ways and the share of congruent pages foretell, all is well; or as the ways
    // and the place where it is half way to memory do, as it is where nothing lies between.
    let half = at(0.5).map(|bytes| footprint::colours_of(bytes / PAGE as f64, ways));
    let counted = evict::colours(&raw.evict).map(|c| c.0);
    if let Some(onset) = at(0.03) {
        for colours in [counted, half].into_iter().flatten() {
            if onset > 0.5 * footprint::pages_at(0.03, colours, ways) * PAGE as f64 {
                return false;
            }
        }
    }
    match (at(0.05), at(0.5)) {
        (Some(onset), Some(half)) => half > 1.7 * onset,
        _ => true,
    }
}

/// Capacity of the second level: ways x line x sets where one number of sets fits all evidence.
///
/// With an index that leaves the page offset alone, the sets are those reachable from one offset times the
/// lines of a page, and the share of congruent pages counts them; sets are taken to be 1 or 3 times a power of
/// two, and the footprint curve only has a small say. With a hashed index the sets are taken to be a power of
/// two, and the curve chooses. Otherwise there is a range and no value.
fn capacity(
    ways: &Finding<u32>,
    line: Option<u64>,
    linear: Option<bool>,
    colours: Option<(f64, f64)>,
    by_curve: &Finding<(u64, u64, u64)>,
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
    if counted.is_none() && (linear != Some(false) || curve_way.is_none()) {
        return refuse("the sets could not be counted");
    }
    let mut scored: Vec<(f64, u64)> = (8..26)
        .flat_map(|k| [1u64 << k, 3 << k])
        .filter(|w| *w >= PAGE && (counted.is_some() || w.is_power_of_two()))
        .map(|w| {
            let curve = curve_way.map_or(0.0, |c| (c / w as f64).ln().abs());
            let cost = match counted {
                Some((g, error)) => {
                    ((g * PAGE as f64 / w as f64).ln() / error).powi(2)
                        + (curve / 0.6).powi(2).min(2.0)
                }
                None => (curve / 0.2).powi(2),
            };
            // Three times a power of two exists, but is rare.
            (cost + if w.is_power_of_two() { 0.0 } else { 1.0 }, w)
        })
        .collect();
    scored.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (best, second) = (scored[0], scored[1]);
    if best.0 > 8.0 || second.0 - best.0 < 5.0 {
        return refuse("more than one number of sets fits");
    }
    if contradicts((best.1 * u64::from(a)) as f64) {
        return refuse("the sets counted and the footprint curve contradict each other");
    }
    let limit = if counted.is_some() && second.0 - best.0 >= 7.0 {
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

fn third(raw: &RawSamples, above: &[Level], memory: Option<Spread>) -> Option<Level> {
    let memory = memory?;
    let l2 = above.get(1)?;
    let hit = l2.latency.value.map(|l| l.cycles);
    let below = latency::infer_l3(&raw.latency, raw.facts.ns_per_tick, hit);
    if below
        .value
        .is_some_and(|l| l.cycles > 0.8 * memory.cycles_p10)
    {
        // The second level's misses go to memory: there is no third.
        return None;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Facts;
    use crate::raw::Counted;

    #[test]
    fn counters_agree_when_misses_set_in_where_the_timing_says() {
        let mut raw = RawSamples::new(
            Facts {
                ns_per_tick: 0.5,
                timer_step: 1.0,
                clock: 1.5,
                page_bytes: 4096,
                memory_bytes: 1 << 30,
                can_flush: true,
            },
            1,
        );
        assert_eq!(counters(&raw).value, None);
        let counted = |inside, beyond| Counted {
            what: "L1d".into(),
            inside,
            beyond,
        };
        raw.counters = vec![counted(0.01, 0.97)];
        assert_eq!(counters(&raw).value, Some(true));
        raw.counters.push(counted(0.6, 0.97));
        assert_eq!(counters(&raw).value, Some(false));
    }
}
