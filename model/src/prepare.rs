//! Windows as they come in, checked and reduced to what the solvers need.

use std::sync::Arc;

use crate::given_up::Take;
use crate::histogram::{CompactHistogram, Histogram};
use crate::placed::{Entry, Group};
use crate::sparse::{self, Block, Known};
use crate::worth::{self, Course, Worth};
use crate::{
    Estimate, FirstTouches, Key, LineSize, ModelError, Outcome, Sample, Stream, Weight, Window,
    contiguous,
};

/// Parts that each of the first windows is kept in, so that even one window has blocks to resample.
const PARTS: usize = 8;
/// Windows kept in parts; with more of them the windows themselves are the blocks.
const WINDOWS_IN_PARTS: usize = 8;
/// Samples below which a thread's windows do not make a timeline of their own.
const THREAD_SAMPLES: usize = 1000;

/// One window, its distances in bins; its samples only where they are needed later.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub index: usize,
    pub start: f64,
    pub thread: Key,
    pub accesses: u64,
    pub refs: [u64; 5],
    pub stands_for: Estimate,
    pub looks: Option<f64>,
    pub samples: Vec<Sample>,
    pub first_touches: Option<FirstTouches>,
    pub count: usize,
    /// Nothing where nothing is binned, as for `own`.
    course: Course,
    own: Binned,
    all: Option<Binned>,
    /// Only where some line was lost to a remote write.
    private: Option<Binned>,
}

/// A sample that is told to stand for fewer references is taken for one that was told nothing.
const LEAST_REFS: f64 = 1e-9;

/// Per line size, per part.
type Parts = [Vec<Arc<CompactHistogram>>; 5];

/// A window's distances of one stream.
#[derive(Clone, Debug, Default)]
struct Binned {
    parts: Parts,
    /// With the watches given up taken for either extreme, where there are any.
    extremes: Option<Box<[Parts; 2]>>,
}

impl Stored {
    /// Checks a window and bins its samples.
    pub fn new(index: usize, window: Window, keep: bool, bin: bool) -> Result<Self, ModelError> {
        let stands_for = check(index, &window)?;
        let parts = if index < WINDOWS_IN_PARTS { PARTS } else { 1 };
        let has_all = !window.samples.is_empty() && window.samples.iter().all(|s| s.all.is_some());
        let of = |stream| {
            if bin {
                Binned::new(&window, parts, stream)
            } else {
                Binned::default()
            }
        };
        let own = of(Stream::Own);
        let course = match bin {
            true => Course::new(&window.samples, window.refs[LineSize::B64.index()]),
            false => Course::default(),
        };
        let all = has_all.then(|| of(Stream::All));
        let any_lost = |s: &Sample| LineSize::ALL.iter().any(|&line| lost(s, line));
        let private = (bin && window.samples.iter().any(any_lost)).then(|| of(Stream::Private));
        Ok(Self {
            index,
            start: window.start,
            thread: window.thread,
            accesses: window.accesses,
            refs: window.refs,
            stands_for,
            looks: window
                .looks
                .filter(|looks| looks.is_finite() && *looks >= 0.0),
            count: window.samples.len(),
            course,
            samples: if keep { window.samples } else { Vec::new() },
            first_touches: window.first_touches.filter(|_| keep),
            own,
            all,
            private,
        })
    }

    /// References of the run this window stands for, at a line size.
    fn weight(&self, line: usize, plain: bool) -> Estimate {
        let per_access = if self.accesses > 0 {
            self.refs[line] as f64 / self.accesses as f64
        } else {
            0.0
        };
        if plain {
            return Estimate::exact(1e6);
        }
        Estimate {
            value: self.stands_for.value * per_access,
            low: self.stands_for.low * per_access,
            high: self.stands_for.high * per_access,
        }
    }

    fn entries(&self, at: usize, line: LineSize, stream: Stream) -> Vec<Entry> {
        let refs = self.refs[LineSize::B64.index()].max(1) as f64;
        self.samples
            .iter()
            .enumerate()
            .map(|(i, s)| Entry {
                share: share(s, line),
                window: at as u32,
                sample: i as u32,
                fraction: (s.position as f64 / refs).min(1.0),
                outcome: outcome(s, line, stream),
                given_up: s.given_up,
                refs: s
                    .refs
                    .filter(|&refs| refs > LEAST_REFS)
                    .map(|refs| refs * share(s, line)),
                code: u64::from(s.instr) << 32 | u64::from(s.data),
                lost: stream == Stream::Private && lost(s, line),
            })
            .collect()
    }
}

/// References at lines of this size that a sample, which was drawn from those at 64-byte lines, stands for: an access makes one to each
/// line that it covers.
fn share(sample: &Sample, line: LineSize) -> f64 {
    let last = sample
        .address
        .saturating_add(u64::from(sample.size.max(1)) - 1);
    let lines = |bytes: u64| (last / bytes - sample.address / bytes + 1) as f64;
    lines(u64::from(line.bytes())) / lines(64)
}

/// The outcome of a sample at a line size in a stream. A line that a remote write took occupied a
/// private cache until then: half-way, as far as anybody knows.
pub(crate) fn outcome(sample: &Sample, line: LineSize, stream: Stream) -> Outcome {
    let own = sample.own[line.index()];
    match (stream, &sample.all, own) {
        (Stream::Private, _, Outcome::Reused { distance, trigger }) if lost(sample, line) => {
            Outcome::Reused {
                distance: distance / 2,
                trigger,
            }
        }
        (Stream::Own | Stream::Private, ..) => own,
        (Stream::All, Some(all), _) => all[line.index()],
        (Stream::All, None, _) => Outcome::NotFollowed,
    }
}

/// Whether a remote write took the line before the thread touched it again.
pub(crate) fn lost(sample: &Sample, line: LineSize) -> bool {
    let remote = sample.remote.as_ref();
    remote.is_some_and(|remote| remote[line.index()].written)
}

/// Returns what the window stands for.
fn check(index: usize, window: &Window) -> Result<Estimate, ModelError> {
    if !window.start.is_finite() {
        return Err(ModelError::BadWeight {
            what: "start of a window",
            value: window.start,
        });
    }
    let stands_for = window.stands_for.check("accesses a window stands for")?;
    let refs = window.refs[LineSize::B64.index()];
    let outside = |position: u64| ModelError::PositionOutsideWindow {
        window: index,
        position,
        refs,
    };
    if let Some(first) = &window.first_touches {
        Weight::check("lines that a first touch stands for", first.each)?;
        let mut positions = first.touches.iter().map(|touch| touch.position);
        if let Some(position) = positions.find(|&position| position > refs) {
            return Err(outside(position));
        }
        if let Some(&position) = first.epochs.iter().find(|&&epoch| epoch > refs) {
            return Err(outside(position));
        }
    }
    for s in &window.samples {
        if s.position > refs {
            return Err(outside(s.position));
        }
        if let Some(each) = s.refs {
            Weight::check("references that a sample stands for", each)?;
        }
        let all = s
            .all
            .iter()
            .flat_map(|all| LineSize::ALL.iter().zip(all.iter()));
        for (line, o) in LineSize::ALL.iter().zip(&s.own).chain(all) {
            if *o != Outcome::NotFollowed
                && (window.refs[line.index()] == 0 || window.accesses == 0)
            {
                return Err(ModelError::NoReferences {
                    window: index,
                    line_bytes: line.bytes(),
                });
            }
        }
    }
    Ok(stands_for)
}

impl Binned {
    fn new(window: &Window, parts: usize, stream: Stream) -> Self {
        let with = |take| binned(window, parts, stream, take);
        let any = window.samples.iter().any(|s| s.given_up);
        Self {
            parts: with(Take::Cut),
            extremes: any.then(|| Box::new([with(Take::Reused), with(Take::Never)])),
        }
    }
}

fn binned(window: &Window, parts: usize, stream: Stream, take: Take) -> Parts {
    LineSize::ALL.map(|line| {
        let mut histograms = vec![Histogram::new(line); parts];
        let refs = window.refs[LineSize::B64.index()].max(1) as f64;
        for s in &window.samples {
            let part = (s.position as f64 / refs * parts as f64) as usize;
            // The process's end cuts a window short like any other end: what it says of the run is
            // that the distance is longer.
            let outcome = match outcome(s, line, stream) {
                Outcome::NeverReused { at } => Outcome::Censored { at },
                other => other,
            };
            let histogram = &mut histograms[part.min(parts - 1)];
            let weight = Weight::new(share(s, line)).unwrap_or(Weight::ONE);
            take.add(histogram, &outcome, s.given_up, weight);
        }
        histograms.iter().map(|h| Arc::new(h.compact())).collect()
    })
}

/// The windows of each timeline: with several threads, each thread of weight has its own cache.
fn by_thread(windows: &[Stored], stream: Stream) -> Vec<Vec<usize>> {
    let everything: Vec<usize> = (0..windows.len()).collect();
    if stream == Stream::All {
        return vec![everything];
    }
    let mut threads: Vec<Key> = windows.iter().map(|w| w.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    if threads.len() <= 1 {
        return vec![everything];
    }
    let (mut groups, mut rest) = (Vec::new(), Vec::new());
    for t in threads {
        let members: Vec<usize> = everything
            .iter()
            .copied()
            .filter(|&i| windows[i].thread == t)
            .collect();
        if members.iter().map(|&i| windows[i].count).sum::<usize>() >= THREAD_SAMPLES {
            groups.push(members);
        } else {
            rest.extend(members);
        }
    }
    if !rest.is_empty() {
        rest.sort_unstable();
        groups.push(rest);
    }
    groups
}

/// A single window over (nearly) the whole run has no gaps: never reused then means it.
fn covers_the_run(windows: &[Stored], options: &crate::Options) -> bool {
    const NEARLY: f64 = 0.95;
    match windows {
        [w] => {
            options.from_start
                && w.samples.len() == w.count
                && w.accesses as f64 >= NEARLY * w.stands_for.value
        }
        _ => false,
    }
}

/// Whether a stream was followed.
pub(crate) fn check_stream(windows: &[Stored], stream: Stream) -> Result<(), ModelError> {
    if stream == Stream::All && windows.iter().any(|w| w.count > 0 && w.all.is_none()) {
        return Err(ModelError::NoAllThreadOutcomes);
    }
    Ok(())
}

/// Builds the timelines of one line size and stream, which was followed. `windows` in time order.
pub(crate) fn groups(
    windows: &[Stored],
    line: LineSize,
    stream: Stream,
    options: &crate::Options,
) -> Vec<Group> {
    let l = line.index();
    let lines = options
        .footprint_bytes
        .map_or(f64::INFINITY, |b| b as f64 / f64::from(line.bytes()));
    by_thread(windows, stream)
        .into_iter()
        .map(|members| {
            let entries: Vec<(f64, Vec<Entry>)> = members
                .iter()
                .map(|&i| {
                    (
                        windows[i].refs[l] as f64,
                        windows[i].entries(i, line, stream),
                    )
                })
                .collect();
            let contiguous = options.contiguous || covers_the_run(windows, options);
            let looked = |&i: &usize| {
                let first = windows[i].first_touches.as_ref();
                let fits =
                    |f: &&FirstTouches| line == LineSize::B64 && f.epochs.is_empty() != contiguous;
                (i as u32, first.filter(fits))
            };
            let looked: Vec<_> = members.iter().map(looked).collect();
            if contiguous {
                return contiguous::build(&entries, &looked, line, options.from_start, lines);
            }
            let weights: Vec<Estimate> = members
                .iter()
                .map(|&i| windows[i].weight(l, options.plain_mean))
                .collect();
            let worth = match options.plain_mean {
                true => Worth {
                    factors: vec![1.0; members.len()],
                    memory: f64::INFINITY,
                },
                false => {
                    let weighed = |(&i, weight): (&usize, &Estimate)| worth::Weighed {
                        length: windows[i].accesses as f64,
                        weight: weight.value,
                        course: &windows[i].course,
                    };
                    let weighed: Vec<_> = members.iter().zip(&weights).map(weighed).collect();
                    worth::weigh(&weighed)
                }
            };
            let mut blocks = Vec::new();
            for (at, &i) in members.iter().enumerate() {
                let w = &windows[i];
                let weight = weights[at];
                let other = match stream {
                    Stream::Own => None,
                    Stream::Private => w.private.as_ref(),
                    Stream::All => w.all.as_ref(),
                };
                let binned = other.unwrap_or(&w.own);
                let parts = &binned.parts[l];
                let share = worth.factors[at] / parts.len().max(1) as f64;
                blocks.extend(parts.iter().enumerate().map(|(part, h)| {
                    let extreme = |parts: &Parts| Arc::clone(&parts[l][part]);
                    Block {
                        window: at,
                        weight: weight.value * share,
                        low: weight.low * share,
                        high: weight.high * share,
                        looks: w.looks.map(|looks| looks / parts.len().max(1) as f64),
                        histogram: Arc::clone(h),
                        extremes: binned.extremes.as_ref().map(|e| e.each_ref().map(extreme)),
                    }
                }));
            }
            // References of several threads are not those of the one whose window it is.
            let alone = |&i: &usize| windows[i].thread == windows[members[0]].thread;
            let own = stream != Stream::All || members.iter().all(alone);
            let (refs, accesses) = members.iter().fold((0.0, 0.0), |(refs, accesses), &i| {
                (
                    refs + windows[i].refs[l] as f64,
                    accesses + windows[i].accesses as f64,
                )
            });
            let known = Known {
                fills: options.from_start,
                lines,
                memory: match own {
                    true => worth.memory * refs / accesses,
                    false => f64::INFINITY,
                },
            };
            sparse::build(blocks, &entries, &looked, line, known)
        })
        .collect()
}
