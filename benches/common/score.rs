//! An exported profile held against what exact tracing found, or against that of a whole run.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::Result;
use super::chance::{Chance, Traced, chance};

/// Cache sizes at which instructions are compared.
pub const INSTRUCTION_CACHES: [u64; 3] = [32 << 10, 256 << 10, 1 << 20];
/// Programs linked to run at a fixed place lie below this address.
const LOW: u64 = 1 << 28;
/// Instructions compared by rank.
const TOP: usize = 20;
/// Samples below which an instruction's ratio is not judged.
const ENOUGH_SAMPLES: u64 = 100;

/// One cache size of one curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub cache_bytes: u64,
    pub exact: f64,
    pub got: f64,
    pub low: f64,
    pub high: f64,
}

impl Point {
    fn error(&self) -> f64 {
        (self.got - self.exact).abs()
    }

    fn inside(&self) -> bool {
        (self.low..=self.high).contains(&self.exact)
    }
}

/// One replacement policy at 64-byte lines, over all sizes that both sides have; empty where the
/// tracer was not asked for it.
#[derive(Clone, Debug)]
pub struct Curve {
    pub points: Vec<Point>,
}

impl Curve {
    pub fn mean_error(&self) -> f64 {
        self.points.iter().map(Point::error).sum::<f64>() / self.points.len() as f64
    }

    pub fn worst(&self) -> Option<&Point> {
        self.points
            .iter()
            .max_by(|a, b| a.error().total_cmp(&b.error()))
    }

    pub fn inside(&self) -> usize {
        self.points.iter().filter(|p| p.inside()).count()
    }

    pub fn median_width(&self) -> f64 {
        let mut widths: Vec<f64> = self.points.iter().map(|p| p.high - p.low).collect();
        widths.sort_by(f64::total_cmp);
        widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Instructions at one cache size.
#[derive(Clone, Copy, Debug)]
pub struct Instructions {
    pub cache_bytes: u64,
    /// Of so many instructions with most true misses ...
    pub top: usize,
    /// ... so many are among ours.
    pub found: usize,
    /// Mean absolute error of the miss ratio, weighted by true misses, over instructions with
    /// [`ENOUGH_SAMPLES`]; NaN where there is none.
    pub weighted_error: f64,
    /// Share of the true misses listed by the tracer that those instructions make.
    pub judged_share: f64,
    /// How many those are, and how many of them have the exact ratio inside their interval.
    pub judged: usize,
    pub inside: usize,
    /// Of the misses of the instructions that the tracer lists, the share that we have at another of them.
    pub misplaced: f64,
    /// What chance alone leaves of it.
    pub chance: Chance,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Score {
    pub accesses_exact: f64,
    pub accesses_observed: f64,
    pub accesses_estimated: f64,
    pub random: Curve,
    pub lru: Curve,
    pub instructions: Vec<Instructions>,
}

/// Compares an export with a result of the tracer.
pub fn score(export: &Value, exact: &Value) -> Result<Score> {
    let total = |key: &str| {
        export["totals"][key]
            .as_f64()
            .ok_or(format!("no totals.{key}"))
    };
    if total("windows")? == 0.0 {
        return Err(format!("no window was observed; warnings: {}", export["warnings"]).into());
    }
    Ok(Score {
        accesses_exact: exact["accesses"].as_f64().ok_or("no accesses")?,
        accesses_observed: total("accesses_observed")?,
        accesses_estimated: total("accesses_estimated")?,
        random: curve(export, exact, "random", "own")?,
        lru: curve(export, exact, "lru", "own")?,
        instructions: instructions(export, exact)?,
    })
}

/// `stream`: a cache of each thread (`own`) or of all.
pub fn curve(export: &Value, exact: &Value, policy: &str, stream: &str) -> Result<Curve> {
    let ours: HashMap<u64, &Value> = of_policy(export, policy, stream)?
        .iter()
        .filter_map(|p| Some((p["cache_bytes"].as_u64()?, p)))
        .collect();
    // A long input may have been traced for one policy only.
    let Some(ratios) = exact["line"]["64"][format!("{policy}_miss_ratio")].as_array() else {
        return Ok(Curve { points: Vec::new() });
    };
    let points: Vec<Point> = array(&exact["sizes_bytes"])?
        .iter()
        .zip(ratios)
        .filter_map(|(size, ratio)| {
            let point = ours.get(&size.as_u64()?)?;
            Some(Point {
                cache_bytes: size.as_u64()?,
                exact: ratio.as_f64()?,
                got: point["miss_ratio"].as_f64()?,
                low: point["low"].as_f64()?,
                high: point["high"].as_f64()?,
            })
        })
        .collect();
    if points.is_empty() {
        return Err(format!("no size of the {policy} curve in common").into());
    }
    Ok(Curve { points })
}

/// Two exports of one program, the second of a whole run, which stands for the exact curve.
pub fn beside(export: &Value, whole: &Value, policy: &str) -> Result<Curve> {
    let whole = of_policy(whole, policy, "own")?;
    let points: Vec<Point> = of_policy(export, policy, "own")?
        .iter()
        .filter_map(|p| {
            let same = whole
                .iter()
                .find(|w| w["cache_bytes"] == p["cache_bytes"])?;
            Some(Point {
                cache_bytes: p["cache_bytes"].as_u64()?,
                exact: same["miss_ratio"].as_f64()?,
                got: p["miss_ratio"].as_f64()?,
                low: p["low"].as_f64()?,
                high: p["high"].as_f64()?,
            })
        })
        .collect();
    match points.is_empty() {
        true => Err(format!("no size of the {policy} curve in common").into()),
        false => Ok(Curve { points }),
    }
}

/// The process of an export that made most accesses, of those with this command where one is given; an error where several have its command, so
/// that it might be another one in another run.
pub fn process_with_most<'a>(export: &'a Value, command: Option<&Value>) -> Result<&'a Value> {
    let accesses = |p: &Value| p["totals"]["accesses_estimated"].as_f64().unwrap_or(0.0);
    let all = array(&export["processes"])?;
    let most = all
        .iter()
        .filter(|p| command.is_none_or(|command| p["command"] == *command))
        .max_by(|a, b| accesses(a).total_cmp(&accesses(b)))
        .filter(|p| accesses(p) > 0.0)
        .ok_or("not observed")?;
    let same = all.iter().filter(|p| p["command"] == most["command"]);
    match same.count() {
        1 => Ok(most),
        _ => Err("several processes of one command".into()),
    }
}

/// The points of the curve at 64-byte lines.
fn of_policy<'a>(export: &'a Value, policy: &str, stream: &str) -> Result<&'a Vec<Value>> {
    let curve = array(&export["curves"])?
        .iter()
        .find(|c| c["line_size"] == 64 && c["policy"] == policy && c["stream"] == stream);
    array(&curve.ok_or("no curve at 64 bytes")?["points"])
}

/// An instruction as both sides can name it: file name of its object, address in the file.
type Place = (String, u64);

fn instructions(export: &Value, exact: &Value) -> Result<Vec<Instructions>> {
    let mut ours: HashMap<Place, &Value> = HashMap::new();
    for instruction in array(&export["instructions"])? {
        let (Some(object), Some(offset)) = (
            instruction["object"].as_str(),
            instruction["offset"].as_u64(),
        ) else {
            continue;
        };
        ours.insert((file_name(object), offset), instruction);
    }
    let caches: Vec<u64> = array(&exact["pc_caps"])?
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    let references = exact["line"]["64"]["refs"].as_f64().ok_or("no refs")?;
    let rate = export["totals"]["samples"].as_f64().ok_or("no samples")? / references;
    let mut scores = Vec::new();
    for cache_bytes in INSTRUCTION_CACHES {
        let Some(column) = caches.iter().position(|&c| c == cache_bytes) else {
            continue;
        };
        scores.push(at_cache(
            cache_bytes,
            column,
            &ours,
            array(&exact["top_pcs"])?,
            rate,
        ));
    }
    Ok(scores)
}

fn at_cache(
    cache_bytes: u64,
    column: usize,
    ours: &HashMap<Place, &Value>,
    traced: &[Value],
    rate: f64,
) -> Instructions {
    let mut theirs: Vec<(Place, Traced)> = traced
        .iter()
        .filter_map(|pc| {
            let hexadecimal = |key: &str| {
                u64::from_str_radix(pc[key].as_str()?.trim_start_matches("0x"), 16).ok()
            };
            // The tracer gives the offset from the first mapping, which is the address in a file that is placed
            // anywhere; a program that is linked to run at a fixed place is mapped low.
            let (at, offset) = (hexadecimal("pc")?, hexadecimal("off")?);
            let fixed = at.wrapping_sub(offset) < LOW;
            let place = (
                file_name(pc["mod"].as_str()?),
                if fixed { at } else { offset },
            );
            let traced = Traced {
                references: pc["refs"].as_f64()?,
                misses: pc["miss"][column].as_f64()?,
            };
            Some((place, traced))
        })
        .collect();
    theirs.sort_by(|a, b| b.1.misses.total_cmp(&a.1.misses));
    let ratio = |instruction: &Value, key: &str| {
        let misses = instruction["miss"].as_array()?;
        misses.iter().find(|m| m["cache_bytes"] == cache_bytes)?[key].as_f64()
    };
    let mut ranked: Vec<(&Place, f64)> = ours
        .iter()
        .filter_map(|(place, i)| Some((place, ratio(i, "miss_share")?)))
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    let best: Vec<&Place> = ranked.iter().take(TOP).map(|(place, _)| *place).collect();
    // An instruction without misses is nothing to find.
    let wanted = theirs.iter().take(TOP).filter(|t| t.1.misses > 0.0);
    let (top, found) = wanted.fold((0, 0), |(n, found), t| {
        (n + 1, found + usize::from(best.contains(&&t.0)))
    });
    let all: f64 = theirs.iter().map(|t| t.1.misses).sum();
    let of_ours = |place: &Place| ours.get(place).and_then(|i| ratio(i, "miss_share"));
    let shares: Vec<f64> = theirs
        .iter()
        .map(|t| of_ours(&t.0).unwrap_or(0.0))
        .collect();
    let listed = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let apart = theirs.iter().zip(&shares);
    let apart = apart.map(|(t, share)| (t.1.misses / all - share / listed).abs());
    let misplaced = 0.5 * apart.sum::<f64>();
    let (mut errors, mut judged_misses, mut judged, mut inside) = (0.0, 0.0, 0, 0);
    for (place, traced) in &theirs {
        let Some(instruction) = ours.get(place) else {
            continue;
        };
        if instruction["samples"].as_u64() < Some(ENOUGH_SAMPLES) {
            continue;
        }
        let Some(got) = ratio(instruction, "miss_ratio") else {
            continue;
        };
        let exact = traced.misses / traced.references;
        errors += traced.misses * (got - exact).abs();
        judged_misses += traced.misses;
        judged += 1;
        let interval = ratio(instruction, "low").zip(ratio(instruction, "high"));
        inside += usize::from(interval.is_some_and(|(low, high)| (low..=high).contains(&exact)));
    }
    Instructions {
        cache_bytes,
        top,
        found,
        weighted_error: errors / judged_misses,
        judged_share: judged_misses / all,
        judged,
        inside,
        misplaced,
        chance: chance(
            &theirs.iter().map(|t| t.1).collect::<Vec<_>>(),
            rate,
            TOP,
            ENOUGH_SAMPLES,
        ),
    }
}

fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name();
    name.map_or_else(|| path.to_owned(), |n| n.to_string_lossy().into_owned())
}

fn array(value: &Value) -> Result<&Vec<Value>> {
    Ok(value
        .as_array()
        .ok_or("a key of the JSON is missing or no array")?)
}
