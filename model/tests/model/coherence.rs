//! Private caches that lose lines to each other's writes, against exact simulation.

use std::collections::HashMap;

use statcache_model::{
    Estimate, Options, Outcome, Policy, Remote, Rng, Run, Sample, Sharing, Stream, Trigger, Window,
    Writer,
};

/// One reference: thread, line, instruction, whether it writes, and to which half of the line.
#[derive(Clone, Copy)]
struct Access {
    thread: u32,
    line: u64,
    instr: u32,
    store: bool,
    half: u64,
}

/// Instructions.
const PRIVATE: u32 = 1;
const COUNTER: u32 = 2;
const TABLE: u32 = 3;

/// Two threads at random turns. Each reads 900 lines of its own, increments its half of one
/// line (`disjoint`: else both the same half), and now and then writes to a table of 300 lines that both use.
fn program(n: usize, disjoint: bool) -> Vec<Access> {
    let mut rng = Rng::new(5);
    let mut access = || {
        let thread = rng.below(2) as u32;
        let private = 10_000 * u64::from(thread + 1) + rng.below(900);
        let half = if disjoint { u64::from(thread) } else { 0 };
        let (line, instr, store, half) = match rng.below(20) {
            0..3 => (1, COUNTER, true, half),
            3..5 => (100 + rng.below(300), TABLE, rng.below(4) == 0, 0),
            _ => (private, PRIVATE, rng.below(2) == 0, 0),
        };
        Access {
            thread,
            line,
            instr,
            store,
            half,
        }
    };
    (0..n).map(|_| access()).collect()
}

/// Samples every `period`th reference of `program`; one window a thread for each of `parts`.
fn sampled(program: &[Access], period: usize, parts: usize) -> Vec<Window> {
    let part = program.len() / parts;
    let mut windows: Vec<Window> = (0..2 * parts)
        .map(|i| Window {
            start: (i / 2) as f64,
            thread: i as u32 % 2,
            ..Window::default()
        })
        .collect();
    // Own references of each thread before each reference.
    let mut count = [0u64; 2];
    let own: Vec<u64> = program
        .iter()
        .map(|a| {
            count[a.thread as usize] += 1;
            count[a.thread as usize] - 1
        })
        .collect();
    let mut uses: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, a) in program.iter().enumerate() {
        uses.entry(a.line).or_default().push(i);
        let w = &mut windows[2 * (i / part).min(parts - 1) + a.thread as usize];
        w.accesses += 1;
        w.refs = [w.accesses; 5];
        w.stands_for = Estimate::exact(w.accesses as f64);
    }
    let mut start = [0u64; 2];
    let mut before = 0;
    for (i, a) in program.iter().enumerate() {
        let at = (i / part).min(parts - 1);
        if at != before {
            start = [
                windows[2 * before].accesses,
                windows[2 * before + 1].accesses,
            ]
            .iter()
            .zip(start)
            .map(|(w, s)| w + s)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
            before = at;
        }
        if i % period != 0 {
            continue;
        }
        let (mut remote, mut writer) = (Remote::default(), None);
        let mut disjoint = true;
        let mut outcome = Outcome::NeverReused {
            at: count[a.thread as usize] - own[i] - 1,
        };
        let list = &uses[&a.line];
        for &j in &list[list.partition_point(|&j| j <= i)..] {
            let b = program[j];
            if b.thread == a.thread {
                outcome = Outcome::Reused {
                    distance: own[j] - own[i] - 1,
                    trigger: Trigger {
                        instr: b.instr,
                        thread: b.thread,
                        store: b.store,
                    },
                };
                break;
            }
            remote.read |= !b.store;
            if b.store {
                remote.written = true;
                disjoint &= b.half != a.half;
                writer = Some(Writer {
                    instr: b.instr,
                    thread: b.thread,
                });
            }
        }
        remote.disjoint = remote.written && disjoint;
        windows[2 * at + a.thread as usize].samples.push(Sample {
            position: own[i] - start[a.thread as usize],
            instr: a.instr,
            thread: a.thread,
            own: [outcome; 5],
            remote: Some(Box::new([remote; 5])),
            writer,
            ..Sample::default()
        });
    }
    windows
}

/// Miss ratio of two private caches with random replacement that drop what the other writes.
fn simulated(program: &[Access], lines: usize) -> f64 {
    let mut rng = Rng::new(8);
    let mut caches: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
    let mut places: [HashMap<u64, usize>; 2] = Default::default();
    let mut misses = 0u64;
    for a in program {
        let (mine, other) = (a.thread as usize, 1 - a.thread as usize);
        if a.store
            && let Some(place) = places[other].remove(&a.line)
        {
            let last = caches[other].len() - 1;
            caches[other].swap_remove(place);
            if place != last {
                places[other].insert(caches[other][place], place);
            }
        }
        if places[mine].contains_key(&a.line) {
            continue;
        }
        misses += 1;
        let cache = &mut caches[mine];
        if cache.len() < lines {
            cache.push(a.line);
            places[mine].insert(a.line, cache.len() - 1);
        } else {
            let victim = rng.below(lines as u64) as usize;
            places[mine].remove(&cache[victim]);
            cache[victim] = a.line;
            places[mine].insert(a.line, victim);
        }
    }
    misses as f64 / program.len() as f64
}

fn run(program: &[Access], parts: usize, contiguous: bool) -> Run {
    let options = Options {
        contiguous,
        ..Options::default()
    };
    Run::new(sampled(program, 97, parts), options).unwrap()
}

#[test]
fn private_caches_are_those_of_the_simulation() {
    let program = program(1_000_000, true);
    let run = run(&program, 4, true);
    for lines in [256usize, 512, 1024, 2048] {
        let size = [64 * lines as u64];
        let at = |stream| run.curve(64, Policy::RANDOM, stream, &size).unwrap()[0];
        let (own, private, exact) = (
            at(Stream::Own),
            at(Stream::Private),
            simulated(&program, lines),
        );
        println!(
            "{lines}: exact {exact:.4}, own {:.4}, private {:.4} {:.4}..{:.4}",
            own.miss_ratio, private.miss_ratio, private.low, private.high
        );
        assert!(
            (private.miss_ratio - exact).abs() < 0.01,
            "{} for {exact}",
            private.miss_ratio
        );
        assert!(private.low - 0.002 <= exact && exact <= private.high + 0.002);
        assert!(private.low <= private.miss_ratio && private.miss_ratio <= private.high);
        assert!(
            private.miss_ratio > own.miss_ratio + 0.05,
            "own distances do not know what is lost"
        );
        let keys = run
            .attribute(64, size[0], Policy::RANDOM, Stream::Private, |s| s.instr)
            .unwrap();
        assert!((keys.miss_ratio - private.miss_ratio).abs() < 0.01);
    }
}

#[test]
fn lost_lines_are_counted_and_their_writers_named() {
    let program = program(1_000_000, true);
    for (run, half) in [
        (run(&program, 4, true), 0.01),
        (run(&program, 40, false), 0.02),
    ] {
        let c = run.coherence(64).unwrap().unwrap();
        // In half of the turns the other thread came in between: by definition of the program.
        let exact = exact_coherence(&program);
        println!("exact {exact:.4}: {c:?}");
        assert!((c.miss_ratio - exact).abs() < 0.01, "{c:?}");
        assert!(c.miss_interval.0 <= exact && exact <= c.miss_interval.1);
        assert!(c.interval.1 - c.interval.0 < 2.0 * half, "{c:?}");
        assert!((c.private + c.shared + c.coherence - 1.0).abs() < 1e-9);
        assert!(c.shared > 0.005 && c.weak.is_none());
        let rivals = run
            .rivalries(64, |lost| (lost.at.instr, lost.writer.unwrap().instr))
            .unwrap();
        assert_eq!(rivals[0].key, (COUNTER, COUNTER));
        assert_eq!(
            (rivals[0].sharing, rivals[0].disjoint),
            (Sharing::False, 1.0)
        );
        assert_eq!(rivals[1].key, (TABLE, TABLE));
        assert_eq!(rivals[1].sharing, Sharing::True);
        assert_eq!(rivals.len(), 2);
        assert!((rivals.iter().map(|r| r.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((rivals.iter().map(|r| r.miss_ratio).sum::<f64>() - c.miss_ratio).abs() < 1e-9);
    }
}

fn exact_coherence(program: &[Access]) -> f64 {
    let mut last: HashMap<u64, [Option<bool>; 2]> = HashMap::new();
    let mut lost = 0u64;
    for a in program {
        // Per thread: whether the line was written by the other since its last touch.
        let state = last.entry(a.line).or_default();
        lost += u64::from(state[a.thread as usize] == Some(true));
        state[a.thread as usize] = Some(false);
        if a.store
            && let Some(written) = &mut state[1 - a.thread as usize]
        {
            *written = true;
        }
    }
    lost as f64 / program.len() as f64
}

#[test]
fn the_same_bytes_are_true_sharing_and_no_information_is_none() {
    let program = program(300_000, false);
    let run = run(&program, 4, true);
    let rivals = run.rivalries(64, |lost| lost.at.instr).unwrap();
    assert_eq!((rivals[0].key, rivals[0].sharing), (COUNTER, Sharing::True));
    let mut windows = sampled(&program, 97, 4);
    for s in windows.iter_mut().flat_map(|w| &mut w.samples) {
        s.remote = None;
    }
    let options = Options {
        contiguous: true,
        ..Options::default()
    };
    let run = Run::new(windows, options).unwrap();
    assert_eq!(run.coherence(64).unwrap(), None);
    let at = |stream| run.curve(64, Policy::LRU, stream, &[32 << 10]).unwrap();
    assert_eq!(at(Stream::Own), at(Stream::Private));
    assert_eq!(run.rivalries(64, |lost| lost.at.instr).unwrap(), []);
}
