//! A profile's windows as the model takes them: one run of each thread's own distances, and one of
//! all threads' where some window saw several.
//!
//! A window of several threads becomes one a thread, as each has private caches of its own: the
//! thread's accesses and references, its part of what the window stands for, its samples. Their
//! positions, which count all threads' references, are scaled to the thread's. Where all windows
//! are of one thread, both runs would be the same and there is but one.

use std::collections::HashMap;

use statcache_model::{self as model, ModelError, Run};

use super::DEFAULT_LINE;
use super::allocated::Sites;
use super::stacks::StackOwners;
use super::subjects::{self, Interner, Subject};
use super::unseen;
use crate::profile::Profile;
use crate::profile::types::{
    Estimate, FirstTouch, FirstTouches, Outcome, SampleRecord, Since, ThreadShare, WindowRecord,
    remote_flags, sample_flags,
};

/// Part of the run from which on a single window is the whole of it.
const WHOLE: f64 = 0.95;

/// What an analysis is made from.
pub(super) struct Fed {
    pub(super) own: Run,
    pub(super) all: Option<Run>,
    /// Profile window of each window of `own`.
    pub(super) window_of: Vec<u32>,
    pub(super) data: Vec<Subject>,
}

/// One thread's part of a window, and its place among the model's windows.
struct Part {
    share: ThreadShare,
    at: usize,
}

pub(super) fn feed(profile: &Profile) -> Result<Fed, ModelError> {
    let several = profile.windows.iter().any(|w| w.threads.len() > 1);
    let mut own: Vec<model::Window> = Vec::new();
    let mut window_of = Vec::new();
    let mut parts: Vec<Vec<Part>> = Vec::new();
    for (i, w) in profile.windows.iter().enumerate() {
        let of_window = shares(w).into_iter().map(|share| {
            let at = own.len();
            own.push(model::Window {
                looks: looks_of(profile, w, &share),
                ..own_window(w, &share)
            });
            window_of.push(i as u32);
            Part { share, at }
        });
        parts.push(of_window.collect());
    }
    let mut all: Vec<model::Window> = profile
        .windows
        .iter()
        .filter(|_| several)
        .map(|w| model::Window {
            looks: profile.looks.get(&w.index).copied(),
            ..all_window(w)
        })
        .collect();
    let mut taken_in: Vec<Vec<Place>> = vec![Vec::new(); all.len()];
    let places: HashMap<u32, usize> = profile
        .windows
        .iter()
        .enumerate()
        .map(|(at, w)| (w.index, at))
        .collect();
    let mut tids = profile.windows.iter().map(|w| w.tid);
    let first = tids.next();
    let many_threads = several || tids.any(|t| Some(t) != first);
    let owners = several.then(|| StackOwners::new(profile));
    let sites = Sites::of(profile);
    let mut data = Interner::new();
    let mut by_memory = HashMap::new();
    for taken in profile.windows.iter().flat_map(|w| &w.samples) {
        // A window that never was written takes its samples with it.
        let Some(&at) = places.get(&taken.taken_in) else {
            continue;
        };
        let sample = &taken.sample;
        let Some(part) = part_of(&parts[at], sample.tid).map(|part| &parts[at][part]) else {
            continue;
        };
        let thread = many_threads.then(|| match &owners {
            Some(owners) => owners.thread(sample),
            None => sample.tid,
        });
        let datum = *by_memory.entry((sample.memory, thread)).or_insert_with(|| {
            data.id(subjects::data_subject(
                profile,
                &sites,
                sample.memory,
                thread,
            ))
        });
        if let Some(window) = all.get_mut(at) {
            taken_in[at].push(Place {
                tid: part.share.tid,
                all: (at, window.samples.len()),
                own: (part.at, own[part.at].samples.len()),
            });
            window.samples.push(all_sample(sample, datum));
        }
        let mut of_thread = own_sample(sample, datum, several);
        if several {
            of_thread.position = scaled(sample.position, &profile.windows[at], &part.share);
        }
        own[part.at].samples.push(of_thread);
    }
    for (at, w) in profile.windows.iter().enumerate() {
        // Those of epochs were looked for before there were several threads.
        let first = w.first_touches.as_ref();
        let Some(first) = first.filter(|first| !several || first.epochs.is_empty()) else {
            continue;
        };
        let of_memory = |touch: &FirstTouch| {
            let thread = many_threads.then_some(touch.tid);
            let known = by_memory.entry((touch.memory, thread));
            *known.or_insert_with(|| {
                data.id(subjects::data_subject(
                    profile,
                    &sites,
                    touch.memory,
                    thread,
                ))
            })
        };
        let (of_parts, of_all) = first_touches(w, first, &parts[at], of_memory);
        for (part, of_part) in parts[at].iter().zip(of_parts) {
            own[part.at].first_touches = Some(of_part);
        }
        if let Some(window) = all.get_mut(at) {
            window.first_touches = Some(of_all);
        }
    }
    let options = options(profile);
    if several && options.contiguous {
        share_out((&mut all, &mut own), &profile.windows, &taken_in);
    }
    let all = match several {
        true => Some(Run::new(all, options)?),
        false => None,
    };
    Ok(Fed {
        own: Run::new(own, options)?,
        all,
        window_of,
        data: data.into_list(),
    })
}

/// First touches of a window: those of each of its parts, and those of all threads together.
fn first_touches(
    w: &WindowRecord,
    first: &FirstTouches,
    parts: &[Part],
    mut datum: impl FnMut(&FirstTouch) -> u32,
) -> (Vec<model::FirstTouches>, model::FirstTouches) {
    let kept = first.touches.len().max(1) as f64;
    let mut of_all = model::FirstTouches {
        each: f64::from(first.one_in) * first.seen as f64 / kept,
        touches: Vec::new(),
        epochs: first.epochs.clone(),
    };
    let mut of_parts = vec![of_all.clone(); parts.len()];
    for touch in &first.touches {
        let of_model = model::FirstTouch {
            position: touch.position,
            instr: touch.ip,
            data: datum(touch),
            since: match touch.since {
                Since::AtLeast(least) => model::Since::AtLeast(least),
                Since::Between(least, most) => model::Since::Between(least, most),
            },
        };
        if touch.of_all {
            of_all.touches.push(of_model);
        }
        if let Some(at) = part_of(parts, touch.tid) {
            of_parts[at].touches.push(model::FirstTouch {
                position: scaled(touch.position, w, &parts[at].share),
                ..of_model
            });
        }
    }
    (of_parts, of_all)
}

/// The threads of a window, each once.
fn shares(w: &WindowRecord) -> Vec<ThreadShare> {
    let mut shares: Vec<ThreadShare> = Vec::new();
    for thread in w.threads.iter().filter(|t| t.accesses > 0) {
        match shares.iter_mut().find(|s| s.tid == thread.tid) {
            Some(known) => {
                known.accesses = known.accesses.saturating_add(thread.accesses);
                for (a, b) in known.refs.iter_mut().zip(thread.refs) {
                    *a = a.saturating_add(b);
                }
            }
            None => shares.push(*thread),
        }
    }
    if shares.is_empty() {
        shares.push(ThreadShare {
            tid: w.tid,
            accesses: w.accesses,
            refs: w.refs,
        });
    }
    shares
}

/// The part a sample belongs to: its thread's; the only one's, whatever the thread is called.
fn part_of(parts: &[Part], tid: i32) -> Option<usize> {
    match parts {
        [_] => Some(0),
        parts => parts.iter().position(|p| p.share.tid == tid),
    }
}

/// Fewest samples that tell how many references of their thread each stands for.
const ENOUGH: usize = 16;

/// Where a sample is, in a window of all threads and in one of its own.
#[derive(Clone, Copy)]
struct Place {
    tid: i32,
    all: (usize, usize),
    own: (usize, usize),
}

/// Says for how many of its thread's references each sample stands, by `places` of each window: only one thread at a time is sampled, and which
/// one is drawn.
fn share_out(
    fed: (&mut [model::Window], &mut [model::Window]),
    windows: &[WindowRecord],
    places: &[Vec<Place>],
) {
    let (all, own) = fed;
    let mut tell = |refs: u64, places: &mut Vec<Place>| {
        let each = Some(refs as f64 / places.len() as f64);
        for Place {
            all: (a, i),
            own: (o, j),
            ..
        } in places.drain(..)
        {
            all[a].samples[i].refs = each;
            own[o].samples[j].refs = each;
        }
    };
    // References of each thread, and samples, that nobody stands for yet.
    let mut open: HashMap<i32, (u64, Vec<Place>)> = HashMap::new();
    for (w, places) in windows
        .iter()
        .zip(places)
        .filter(|(w, _)| w.threads.len() > 1)
    {
        for &place in places {
            open.entry(place.tid).or_default().1.push(place);
        }
        for share in shares(w) {
            let (refs, places) = open.entry(share.tid).or_default();
            *refs = refs.saturating_add(share.refs[DEFAULT_LINE]);
            if places.len() >= ENOUGH {
                tell(std::mem::take(refs), places);
            }
        }
    }
    for (refs, mut places) in open.into_values() {
        tell(refs, &mut places);
    }
}

fn own_window(w: &WindowRecord, share: &ThreadShare) -> model::Window {
    let part = share_of(w, share);
    model::Window {
        start: w.start_s,
        thread: key_of_tid(share.tid),
        accesses: share.accesses,
        refs: share.refs,
        stands_for: estimate(w.stands_for, part),
        ..model::Window::default()
    }
}

/// What part of a window a thread's is.
fn share_of(w: &WindowRecord, share: &ThreadShare) -> f64 {
    match w.threads.is_empty() || w.accesses == 0 {
        true => 1.0,
        false => share.accesses as f64 / w.accesses as f64,
    }
}

/// Looks that a thread's part of a window stands for.
fn looks_of(profile: &Profile, w: &WindowRecord, share: &ThreadShare) -> Option<f64> {
    let part = share_of(w, share);
    profile.looks.get(&w.index).map(|looks| looks * part)
}

fn all_window(w: &WindowRecord) -> model::Window {
    model::Window {
        start: w.start_s,
        thread: 0,
        accesses: w.accesses,
        refs: w.refs,
        stands_for: estimate(w.stands_for, 1.0),
        samples: Vec::with_capacity(w.samples.len()),
        ..model::Window::default()
    }
}

fn estimate(e: Estimate, part: f64) -> model::Estimate {
    model::Estimate {
        value: e.value * part,
        low: e.low * part,
        high: e.high * part,
    }
}

/// A position among all threads' references as one among the thread's own.
fn scaled(position: u64, w: &WindowRecord, share: &ThreadShare) -> u64 {
    let (all, own) = (w.refs[DEFAULT_LINE], share.refs[DEFAULT_LINE]);
    if all == 0 || w.threads.is_empty() {
        return position;
    }
    let scaled = u128::from(position) * u128::from(own) / u128::from(all);
    u64::try_from(scaled).unwrap_or(u64::MAX).min(own)
}

fn options(profile: &Profile) -> model::Options {
    let windows = &profile.windows;
    let gapless = match windows.as_slice() {
        // One window is told by the model itself whether it is the run, but not where it is several.
        [w] => w.threads.len() > 1 && w.accesses as f64 >= WHOLE * w.stands_for.value,
        windows => windows.len() > 1 && windows[1..].iter().all(|w| w.contiguous_with_previous),
    };
    model::Options {
        seed: profile.header.seed,
        contiguous: gapless,
        // Of a process that was attached to as well. Without its first touches a run observed as a whole has no misses that would evict what
        // it comes back to: passes over 24 MiB were told to miss at 0.8 % in 16 MiB, for 58 %.
        from_start: true,
        footprint_bytes: profile
            .footer
            .as_ref()
            .map(|footer| footer.footprint_bytes)
            .filter(|&bytes| bytes > 0),
        unseen: unseen::before_first(profile).0,
        overlooked: unseen::between_windows(profile),
        ..model::Options::default()
    }
}

fn key_of_tid(tid: i32) -> model::Key {
    tid.unsigned_abs()
}

fn own_sample(s: &SampleRecord, datum: u32, several: bool) -> model::Sample {
    let thread = key_of_tid(s.tid);
    let shared = s.shared.as_deref();
    // Where other windows saw several threads, one without others is all private.
    let remote = several.then(|| {
        let flags = shared.map_or([0; 5], |shared| shared.remote);
        Box::new(flags.map(|f| model::Remote {
            read: f & remote_flags::READ != 0,
            written: f & remote_flags::WRITTEN != 0,
            disjoint: f & remote_flags::DISJOINT != 0,
        }))
    });
    let writer = shared.and_then(|shared| shared.writer);
    model::Sample {
        remote,
        writer: writer.map(|(instr, tid)| model::Writer {
            instr,
            thread: key_of_tid(tid),
        }),
        ..model_sample(s, datum, thread, &s.own)
    }
}

fn all_sample(s: &SampleRecord, datum: u32) -> model::Sample {
    let outcomes = s.shared.as_ref().map_or(&s.own, |shared| &shared.all);
    model_sample(s, datum, 0, outcomes)
}

fn model_sample(
    s: &SampleRecord,
    datum: u32,
    thread: model::Key,
    outcomes: &[Outcome; 5],
) -> model::Sample {
    let kind = match (
        s.flags & sample_flags::LOAD != 0,
        s.flags & sample_flags::STORE != 0,
    ) {
        (true, true) => model::Kind::Modify,
        (false, true) => model::Kind::Store,
        _ => model::Kind::Load,
    };
    model::Sample {
        position: s.position,
        address: s.address,
        size: s.size,
        kind,
        instr: s.ip,
        data: datum,
        thread,
        own: outcomes.map(|outcome| match outcome {
            Outcome::Reused {
                distance,
                trigger,
                store,
            } => model::Outcome::Reused {
                distance,
                trigger: model::Trigger {
                    instr: trigger,
                    thread,
                    store,
                },
            },
            Outcome::Censored { at } => model::Outcome::Censored { at },
            Outcome::NeverReused { at } => model::Outcome::NeverReused { at },
            Outcome::NotFollowed => model::Outcome::NotFollowed,
        }),
        all: None,
        remote: None,
        writer: None,
        given_up: s.flags & sample_flags::GIVEN_UP != 0,
        refs: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use crate::profile::types::{Header, Instr, Memory, Record, Shared, TakenSample};

    fn share(tid: i32, accesses: u64) -> ThreadShare {
        ThreadShare {
            tid,
            accesses,
            refs: [2 * accesses; 5],
        }
    }

    fn window(threads: Vec<ThreadShare>) -> WindowRecord {
        let accesses = threads.iter().map(|t| t.accesses).sum();
        let stands_for = Estimate {
            value: 1000.0,
            low: 500.0,
            high: 2000.0,
        };
        WindowRecord {
            tid: 7,
            refs: [2 * accesses; 5],
            threads,
            ..example::window(0, accesses, stands_for)
        }
    }

    fn sample(tid: i32, position: u64) -> TakenSample {
        TakenSample {
            taken_in: 0,
            sample: SampleRecord {
                ip: 0,
                address: 64,
                size: 8,
                flags: 0,
                tid,
                position,
                memory: Memory::Heap,
                own: [Outcome::Censored { at: 1 }; 5],
                shared: Some(Box::new(Shared {
                    all: [Outcome::Censored { at: 2 }; 5],
                    remote: [0; 5],
                    writer: None,
                })),
            },
        }
    }

    /// Of two threads one made three quarters of a window's references: where a touch was among all is where it was among its own, in parts.
    #[test]
    fn first_touches_are_their_threads_and_those_of_all_too() {
        let w = window(vec![share(70, 100), share(71, 300)]);
        let shares = shares(&w).into_iter().enumerate();
        let parts: Vec<Part> = shares.map(|(at, share)| Part { share, at }).collect();
        let touch = |ip, position, tid, of_all| FirstTouch {
            ip,
            position,
            memory: Memory::Heap,
            tid,
            of_all,
            since: Since::Between(5, 9),
        };
        let first = FirstTouches {
            touches: vec![
                touch(1, 400, 70, true),
                touch(2, 800, 71, false),
                // Of a thread that nothing is known of: of all, and of none.
                touch(3, 0, 99, true),
            ],
            seen: 6,
            one_in: 32,
            epochs: vec![0, 40],
        };
        let (of_parts, of_all) = first_touches(&w, &first, &parts, |touch| 10 * touch.ip);
        let told = |of: &model::FirstTouches| -> Vec<(u32, u64, u32)> {
            assert_eq!((of.each, of.epochs.as_slice()), (64.0, &[0, 40][..]));
            let since = model::Since::Between(5, 9);
            assert!(of.touches.iter().all(|t| t.since == since));
            let touches = of.touches.iter();
            touches.map(|t| (t.instr, t.position, t.data)).collect()
        };
        assert_eq!(told(&of_parts[0]), [(1, 100, 10)]);
        assert_eq!(told(&of_parts[1]), [(2, 600, 20)]);
        assert_eq!(told(&of_all), [(1, 400, 10), (3, 0, 30)]);
    }

    /// One thread is sampled in the first window alone and the other one in the second, at another rate; a third one too seldom to tell
    /// before the end. Whatever is sampled when, each thread's samples stand for its references.
    #[test]
    fn samples_stand_for_their_threads_references() {
        let windows = [
            window(vec![share(70, 800), share(71, 2400), share(72, 50)]),
            window(vec![share(70, 800), share(71, 2400), share(72, 50)]),
        ];
        let taken = [vec![(70, 2 * ENOUGH), (72, 1)], vec![(71, ENOUGH), (72, 3)]];
        let mut all = vec![model::Window::default(); 2];
        let mut own = vec![model::Window::default(); 3];
        let mut places = Vec::new();
        for (at, taken) in taken.iter().enumerate() {
            let mut of_window = Vec::new();
            for &(tid, count) in taken {
                for _ in 0..count {
                    let o = tid as usize - 70;
                    of_window.push(Place {
                        tid,
                        all: (at, all[at].samples.len()),
                        own: (o, own[o].samples.len()),
                    });
                    let taken = sample(tid, 0).sample;
                    all[at].samples.push(all_sample(&taken, 0));
                    own[o].samples.push(own_sample(&taken, 0, true));
                }
            }
            places.push(of_window);
        }
        share_out((&mut all, &mut own), &windows, &places);
        let told = |window: &model::Window| -> Vec<f64> {
            window.samples.iter().filter_map(|s| s.refs).collect()
        };
        // The first one's of the second window, which no sample is of, are nobody's.
        assert_eq!(told(&own[0]), [1600.0 / (2 * ENOUGH) as f64; 2 * ENOUGH]);
        assert_eq!(told(&own[1]), [2.0 * 4800.0 / ENOUGH as f64; ENOUGH]);
        assert_eq!(told(&own[2]), [200.0 / 4.0; 4]);
        assert_eq!(all[0].samples[0].refs, own[0].samples[0].refs);
        assert_eq!(all[1].samples[ENOUGH].refs, Some(50.0));
        // A window of one thread needs none of it.
        let alone = [window(vec![share(70, 800)])];
        let mut one = vec![all[0].clone()];
        one[0].samples[0].refs = None;
        share_out((&mut one, &mut own), &alone, &places[..1]);
        assert_eq!(one[0].samples[0].refs, None);
    }

    #[test]
    fn a_window_becomes_one_for_each_thread() {
        let w = window(vec![
            share(7, 100),
            share(8, 0),
            share(9, 200),
            share(7, 100),
        ]);
        let parts = shares(&w);
        assert_eq!(parts, [share(7, 200), share(9, 200)]);
        let own = own_window(&w, &parts[1]);
        assert_eq!((own.thread, own.accesses, own.refs[0]), (9, 200, 400));
        let stands_for = [
            own.stands_for.low,
            own.stands_for.value,
            own.stands_for.high,
        ];
        assert_eq!(stands_for, [250.0, 500.0, 1000.0]);
        assert_eq!(scaled(800, &w, &parts[1]), 400);
        assert_eq!(scaled(401, &w, &parts[1]), 200);
        assert_eq!(
            scaled(u64::MAX, &w, &parts[1]),
            400,
            "never outside the window"
        );
        let alone = window(Vec::new());
        assert_eq!(shares(&alone)[0].tid, 7);
    }

    #[test]
    fn samples_of_threads_that_a_window_does_not_know_are_left_out() {
        let mut w = window(vec![share(7, 100), share(9, 200)]);
        w.samples = vec![sample(7, 3), sample(8, 3), sample(9, 600), sample(9, 5)];
        let profile = Profile::from_records([
            Record::Header(Header::example(&["a"])),
            Record::Instrs(vec![Instr {
                module: None,
                offset: 1,
            }]),
            Record::Window(w),
        ])
        .unwrap();
        let fed = feed(&profile).unwrap();
        assert_eq!(fed.own.samples(), 3);
        assert_eq!(fed.all.unwrap().samples(), 3);
        assert_eq!(fed.window_of, [0, 0]);
    }
}
