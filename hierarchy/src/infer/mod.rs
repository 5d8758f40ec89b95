//! From raw samples to a hierarchy: the pure half of the tool.

mod levels;

use crate::finding::{Confidence, Finding};
use crate::probe::{
    code, inclusion, l1, latency, line, opcache, policy, prefetch, tlb, tlbways, unified, write,
};
use crate::raw::RawSamples;
use latency::{Latency, Spread};
pub(crate) use levels::counted;
use levels::{second, third};
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
        memory_walk: if s.memory_walk.is_empty() {
            reasoned(Finding::refused("not measured"), raw, "memory with walks")
        } else {
            latency::infer_memory(&s.memory_walk)
        },
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

/// Pairs of walks, alone and beside one on another CPU, that tell something of that one.
const FEWEST_PAIRS: usize = 3;

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
    let told: Vec<_> = of
        .into_iter()
        .filter(|c| c.pairs.len() >= FEWEST_PAIRS)
        .collect();
    if told.is_empty() {
        return Finding::refused("no walk beside another was left alone for long enough");
    }
    let mut with = Vec::new();
    let mut clear = true;
    for c in told {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Corun, Counted};

    /// On a crowded host there may be none.
    #[test]
    fn levels_are_shared_where_pairs_of_walks_say_so() {
        let mut raw = RawSamples::example();
        let pairs = |cpu, pairs: &[(f64, f64)]| Corun {
            cpu,
            level: 2,
            bytes: 1 << 20,
            pairs: pairs.to_vec(),
        };
        raw.corun = vec![pairs(1, &[]), pairs(2, &[(1.0, 9.0)])];
        assert_eq!(sharing(&raw, 2).value, None);
        raw.corun.push(pairs(3, &[(1.0, 1.5); 3]));
        raw.corun.push(pairs(4, &[(1.0, 1.0); 3]));
        assert_eq!(sharing(&raw, 2).value, Some(vec![3]));
    }

    #[test]
    fn counters_agree_when_misses_set_in_where_the_timing_says() {
        let mut raw = RawSamples::example();
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
