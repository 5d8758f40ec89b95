//! Accuracy and coverage on synthetic streams, printed as tables. Not a timing.
//!
//! `cargo bench -p statcache-model --bench accuracy [-- STREAM...]`; `REPEATS=n` sets the number
//! of seeded repetitions (default 20), `REFERENCES=n` the length of the streams (default 16
//! million), `DETAIL=1` prints every size, `ONLY=text` keeps the rows whose name holds the text
//! ("random", "lru gapless", ...). Above 50 repetitions the short windows are left out.
//! Without names: the streams the method was built on, those held out from that, and those that
//! judge what was changed in view of the latter.
//!
//! "covers mean": the sampling part covers the mean of the repetitions; "limit": the mean of
//! [`LIMIT_DRAWS`] runs of [`LIMIT_SAMPLES`] samples each, which resolve more of the run's course
//! and are closer to the exact value; "oracle": the interval covers the exact value.

#[path = "../tests/model/common/mod.rs"]
mod common;

use common::{HELD_OUT, JUDGES, STREAMS, contiguous, sizes, sparse, stream};
use statcache_model::oracle::Trace;
use statcache_model::{CurvePoint, Options, Policy, Run, Stream, Window};

const SAMPLES: usize = 10_000;
/// Samples of a run that stands for the estimator's own large-sample limit.
const LIMIT_SAMPLES: usize = 160_000;
/// How many of them are averaged.
const LIMIT_DRAWS: u64 = 4;

#[derive(Default)]
struct Tally {
    error: f64,
    forms: [f64; 3],
    worst: (f64, u64),
    covered: usize,
    sampling_covered: usize,
    limit_covered: usize,
    points: usize,
    widths: Vec<f64>,
    model: Vec<f64>,
    means: Vec<f64>,
}

/// Repetitions whose three forms are compared too.
const FORMS: u64 = 20;

fn run(windows: Vec<Window>, gapless: bool) -> Run {
    Run::new(
        windows,
        Options {
            contiguous: gapless,
            ..Options::default()
        },
    )
    .expect("valid windows")
}

fn tally(make: impl Fn(u64, usize) -> Run, policy: Policy, exact: &[f64], repeats: u64) -> Tally {
    let sizes = sizes();
    let mut limit = vec![0.0; sizes.len()];
    for seed in 0..LIMIT_DRAWS {
        let curve = make(1_000 + seed, LIMIT_SAMPLES)
            .curve(64, policy, Stream::Own, &sizes)
            .expect("valid sizes");
        for (l, p) in limit.iter_mut().zip(curve) {
            *l += p.miss_ratio / LIMIT_DRAWS as f64;
        }
    }
    let mut t = Tally {
        means: vec![0.0; sizes.len()],
        ..Tally::default()
    };
    let curves: Vec<_> = (0..repeats)
        .map(|seed| {
            let run = make(seed, SAMPLES);
            if seed < FORMS {
                for (k, &bytes) in sizes.iter().enumerate() {
                    let f = run
                        .forms(64, bytes, policy, Stream::Own)
                        .expect("valid cache");
                    for (sum, form) in t.forms.iter_mut().zip(f) {
                        *sum += (form - exact[k]).abs();
                    }
                }
            }
            run.curve(64, policy, Stream::Own, &sizes)
                .expect("valid sizes")
        })
        .collect();
    for curve in &curves {
        for (k, p) in curve.iter().enumerate() {
            t.means[k] += p.miss_ratio / repeats as f64;
        }
    }
    if std::env::var_os("DETAIL").is_some() {
        detail(&curves, &t.means, exact);
    }
    for curve in &curves {
        for (k, p) in curve.iter().enumerate() {
            let e = (p.miss_ratio - exact[k]).abs();
            t.error += e;
            if e > t.worst.0 {
                t.worst = (e, p.cache_bytes);
            }
            t.covered += usize::from(p.low <= exact[k] && exact[k] <= p.high);
            let own = (p.miss_ratio - t.means[k]).abs();
            t.sampling_covered += usize::from(own <= p.sampling_half_width);
            let off = (p.miss_ratio - limit[k]).abs();
            t.limit_covered += usize::from(off <= p.sampling_half_width);
            t.points += 1;
            t.widths.push(p.high - p.low);
            t.model.push(p.model_half_width);
        }
    }
    t.widths.sort_by(f64::total_cmp);
    t
}

fn detail(curves: &[Vec<CurvePoint>], means: &[f64], exact: &[f64]) {
    let n = curves.len() as f64;
    for k in 0..exact.len() {
        let points = || curves.iter().map(|c| &c[k]);
        let sd = (points()
            .map(|p| (p.miss_ratio - means[k]).powi(2))
            .sum::<f64>()
            / n)
            .sqrt();
        let mean = |f: &dyn Fn(&CurvePoint) -> f64| points().map(f).sum::<f64>() / n;
        println!(
            "   {:6}K exact {:.4} mean {:.4} sd {sd:.4} stated {:.4} model {:.4} undecided {:.4}..{:.4}",
            curves[0][k].cache_bytes >> 10,
            exact[k],
            means[k],
            mean(&|p| p.sampling_half_width / 1.881),
            mean(&|p| p.model_half_width),
            mean(&|p| p.undecided.map_or(p.miss_ratio, |u| u.0)),
            mean(&|p| p.undecided.map_or(p.miss_ratio, |u| u.1)),
        );
    }
}

fn print(name: &str, how: &str, t: &Tally) {
    let n = t.points as f64;
    let compared = n.min(27.0 * FORMS as f64);
    println!(
        "{name:8} {how:22} | err {:.4} worst {:.4} at {:6}K | whole {:.4} windows {:.4} varying {:.4} | covers mean {:5.1} % limit {:5.1} % oracle {:5.1} % | width median {:.4} p90 {:.4}",
        t.error / n,
        t.worst.0,
        t.worst.1 >> 10,
        t.forms[0] / compared,
        t.forms[1] / compared,
        t.forms[2] / compared,
        100.0 * t.sampling_covered as f64 / n,
        100.0 * t.limit_covered as f64 / n,
        100.0 * t.covered as f64 / n,
        t.widths[t.widths.len() / 2],
        t.widths[t.widths.len() * 9 / 10],
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(default)
    };
    let repeats = number("REPEATS", 20);
    let only = std::env::var("ONLY").unwrap_or_default();
    let references = number("REFERENCES", 16_000_000) as usize;
    // Windows with gaps see a fixed part of the run, whatever its length.
    let long = (references / 100, references / 62);
    let short = (references / 4_000, references / 200);
    for name in STREAMS
        .iter()
        .chain(&HELD_OUT)
        .chain(&JUDGES)
        .filter(|s| wanted.is_empty() || wanted.iter().any(|w| w == *s))
    {
        let trace: Trace = stream(name, references, 7);
        let distances = trace.distances();
        let lines: Vec<u64> = sizes().iter().map(|s| s / 64).collect();
        let random: Vec<f64> = lines
            .iter()
            .map(|&l| trace.random_miss_ratio(l, None, 3))
            .collect();
        let lru = trace.lru_curve(&lines);
        for (policy, kind, exact) in [
            (Policy::RANDOM, "random", &random),
            (Policy::LRU, "lru", &lru),
        ] {
            let row = |how: &str, make: &dyn Fn(u64, usize) -> Run| {
                let how = format!("{kind} {how}");
                if how.contains(&only) {
                    print(name, &how, &tally(make, policy, exact, repeats));
                }
            };
            row("gapless", &|seed, samples| {
                run(contiguous(&distances, samples, 40, seed), true)
            });
            row("60 long windows", &|seed, samples| {
                run(sparse(&distances, samples, 60, long, seed), false)
            });
            if repeats <= 50 {
                row("200 short windows", &|seed, samples| {
                    run(sparse(&distances, samples, 200, short, seed), false)
                });
            }
        }
    }
}
