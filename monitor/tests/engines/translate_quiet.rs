//! Windows that look at addresses around samples and at watched lines only find what windows that
//! look at every address find.

use crate::support::tracee::{MARK_BEGIN, Tracee, Tracees, exclusive};
use crate::support::translated;
use crate::support::translated::{Looking, Plan};
use statcache::arch::Fast;
use statcache::observe::{Ended, FirstTouch, Observer, Outcome, Returns, Sample};

const SEED: u64 = 11;

struct Found {
    accesses: u64,
    refs: [u64; 5],
    samples: Vec<Sample>,
    stops: u64,
    records: u64,
    returns: Option<Returns>,
    expected: Option<u64>,
    /// Nothing had to run natively.
    whole: bool,
}

fn find(name: &str, period: u64, looking: Looking) -> Option<Found> {
    find_by(name, looking, Observer::new(period, SEED))
}

fn find_by(name: &str, looking: Looking, observer: Observer) -> Option<Found> {
    let (_tracees, program) = Tracees::build(name)?;
    let (tracee, stopped) = Tracee::launch(&program, &[]);
    let stopped = match Tracee::run_past(stopped, MARK_BEGIN) {
        Ok(stopped) => stopped,
        Err(event) => {
            assert_eq!(tracee.ended(event).expected_accesses(name), None);
            return None;
        }
    };
    let plan = Plan {
        looking,
        ..Plan::WHOLE
    };
    let mut run = translated::run(stopped, plan, observer, false);
    let whole = run.declined.is_empty();
    let expected = tracee.ended(run.event).expected_accesses(name);
    let mut samples = run.observer.drain_finished();
    samples.extend(run.observer.end_all(Ended::Cut));
    samples.sort_by_key(|sample| sample.position);
    Some(Found {
        accesses: run.observer.accesses(),
        refs: run.observer.refs(),
        samples,
        stops: run.stats.stops,
        records: run.stats.records,
        returns: run.observer.take_returns(),
        expected,
        whole,
    })
}

/// Addresses are the same from run to run only where the kernel does not draw them.
fn without_randomization() {
    // SAFETY: sets a number in the process's own state.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}

#[test]
fn every_sample_of_an_aligned_walk_is_the_same() {
    let _turn = exclusive();
    without_randomization();
    for period in [700, 4_000, 60_000] {
        let Some(exact) = find("wander", period, Looking::Everywhere) else {
            return;
        };
        let counted = find("wander", period, Looking::Nowhere).expect("built before");
        assert_eq!(counted.accesses, exact.accesses);
        for looking in [Looking::Wide, Looking::Jumping, Looking::Narrow] {
            let quiet = find("wander", period, looking).expect("built before");
            assert!(quiet.whole && exact.whole);
            assert_eq!(quiet.expected, exact.expected);
            assert_eq!(quiet.accesses, exact.accesses, "{period} {looking:?}");
            assert_eq!(quiet.refs, exact.refs, "{period} {looking:?}");
            assert!(exact.samples.len() > 3, "{}", exact.samples.len());
            for (one, other) in exact.samples.iter().zip(&quiet.samples) {
                assert_eq!(one, other, "{period} {looking:?}");
            }
            assert_eq!(exact.samples.len(), quiet.samples.len());
            let reused = |s: &&Sample| matches!(s.outcomes[2], Outcome::Reused { .. });
            println!(
                "period {period}, {looking:?}: {} samples, {} reused, {} stops against {}",
                quiet.samples.len(),
                quiet.samples.iter().filter(reused).count(),
                quiet.stops,
                exact.stops
            );
        }
    }
}

/// Each piece is told when it ends, as laps that met new code do not count; none of a stay that is there to be timed is left out.
#[test]
fn what_is_counted_is_timed_piece_by_piece() {
    let _turn = exclusive();
    without_randomization();
    let find = |looking| {
        let (_tracees, program) = Tracees::build("wander")?;
        let (tracee, stopped) = Tracee::launch(&program, &[]);
        let plan = Plan {
            log: 2_000,
            looking,
            ..Plan::WHOLE
        };
        let run = translated::run(stopped, plan, Observer::new(1 << 40, 0), false);
        let pieces = run.pieces;
        let accesses = run.observer.accesses();
        tracee.ended(run.event);
        Some((pieces, accesses, run.stats))
    };
    if !std::path::Path::new("/proc/self/schedstat").exists() {
        println!("SKIP what_is_counted_is_timed_piece_by_piece: threads have no clock here");
        return;
    }
    let Some((pieces, accesses, stats)) = find(Looking::Nowhere) else {
        return;
    };
    println!("{} pieces, {accesses} accesses, {stats:?}", pieces.len());
    assert!(pieces.len() > 150, "{}", pieces.len());
    assert!(pieces.iter().all(|piece| piece.accesses >= 2_000));
    // But for what is before the first reading of the log and behind the last one.
    let all: u64 = pieces.iter().map(|piece| piece.accesses).sum();
    assert!(
        all <= accesses && accesses - all < 10_000,
        "{all} of {accesses}"
    );
    let misses: u64 = pieces.iter().map(|piece| piece.misses).sum();
    assert!(0 < misses && misses <= stats.misses, "{misses}");
    // It knows its code by then.
    assert_eq!(pieces[pieces.len() - 1].stops, 1);
    // Where samples are taken too, a look at the clock costs more than it tells.
    let (few, ..) = find(Looking::AsUsual).expect("built before");
    assert!(few.len() < 50, "{}", few.len());
}

/// Threads stop looking for drawn lines by themselves once they have kept an access to one, and keep none that only begins before one: no first
/// touch is lost by that, nor is much kept.
#[test]
fn every_first_touch_of_a_drawn_line_is_the_same() {
    let _turn = exclusive();
    without_randomization();
    if !Fast::here().pext {
        return println!("SKIP drawn lines: no fast pext");
    }
    let drawing = || {
        let mut observer = Observer::new(1 << 40, SEED);
        observer.draw_lines();
        observer
    };
    let touches = |found: &Found| {
        let returns = found.returns.as_ref().expect("drawn");
        let at = returns.kept.iter().map(|t| (t.ip, t.address, t.position));
        (returns.seen, at.collect::<Vec<_>>())
    };
    for name in ["wander", "strides"] {
        let Some(exact) = find_by(name, Looking::Everywhere, drawing()) else {
            return;
        };
        let quiet = find_by(name, Looking::Wide, drawing()).expect("built before");
        let (all, kept) = touches(&exact);
        println!(
            "{name}: {all} first touches, {} records kept",
            quiet.records
        );
        assert_eq!(touches(&quiet), (all, kept), "{name}");
        assert!(all > 50 && quiet.whole);
        assert_eq!(quiet.accesses, exact.accesses);
        assert!(quiet.records < 4 * u64::from(all), "{}", quiet.records);
    }
}

/// Where every record is kept most are disposed of as a whole, and of those in which a sample is due the accesses before that.
#[test]
fn what_is_read_at_once_is_as_if_read_access_by_access() {
    let _turn = exclusive();
    for name in ["wander", "strides", "askew", "plain", "returns"] {
        let Some((_tracees, program)) = Tracees::build(name) else {
            return;
        };
        let (tracee, stopped) = Tracee::launch(&program, &[]);
        let stopped = Tracee::run_past(stopped, MARK_BEGIN).expect("a mark");
        let drawing = || {
            let mut observer = Observer::new(100, SEED);
            observer.draw_lines();
            observer
        };
        let plan = Plan {
            looking: Looking::Everywhere,
            log: 20_000,
            epoch: 50_000,
            ..Plan::WHOLE
        };
        let run = translated::run(stopped, plan, drawing(), true);
        tracee.ended(run.event);
        let (mut at_once, mut each) = (run.observer, drawing());
        let mut epochs = run.epochs.iter().peekable();
        for access in run.accesses {
            while epochs.next_if_eq(&&each.accesses()).is_some() {
                each.begin_epoch(plan.epoch);
            }
            each.access(access);
        }
        let accesses = each.accesses();
        assert_eq!(at_once.accesses(), accesses, "{name}");
        assert_eq!(at_once.refs(), each.refs(), "{name}");
        let found = |observer: &mut Observer| {
            let returns = observer.take_returns().expect("drawn");
            let touch = |t: &FirstTouch| (t.ip, t.address, t.position, t.since);
            let kept: Vec<_> = returns.kept.iter().map(touch).collect();
            let mut samples = observer.drain_finished();
            samples.extend(observer.end_all(Ended::Cut));
            samples.sort_by_key(|sample| sample.position);
            (samples, returns.seen, kept, returns.begins)
        };
        let (at_once, each) = (found(&mut at_once), found(&mut each));
        println!(
            "{name}: {accesses} accesses, {} samples, {} first touches in {} epochs",
            each.0.len(),
            each.1,
            each.3.len()
        );
        assert_eq!(at_once, each, "{name}");
        // A run that is cut short has fewer. (How many samples come of 2,000 hangs on where its stack lies: lines that are drawn take from the same
        // random numbers.)
        assert!(accesses > 2_000, "{name}: {accesses}, {:?}", run.declined);
        assert!(each.0.len() > 5, "{name}");
    }
}

/// What is not looked at is taken to cross lines as often as what is, about then: both have their share of samples, as every
/// reference may be one.
#[test]
fn accesses_that_cross_lines_are_sampled_for_each_line() {
    let _turn = exclusive();
    let exact = find("askew", 1_000, Looking::Everywhere);
    let Some(exact) = exact.filter(|found| found.whole) else {
        return;
    };
    let across = exact.refs[2] - exact.accesses;
    assert!(5 * across > exact.accesses / 2);
    let (mut taken, mut all) = (0, 0);
    for seed in 0..24 {
        let looking = if seed % 2 == 0 {
            Looking::Wide
        } else {
            Looking::Narrow
        };
        let found = find_by("askew", looking, Observer::new(1_000, seed)).expect("built before");
        assert_eq!(found.accesses, exact.accesses);
        let off = found.refs[2] as f64 / exact.refs[2] as f64 - 1.0;
        assert!(off.abs() < 0.02, "{off}");
        taken += found.samples.iter().filter(|s| s.access.size == 8).count();
        all += found.samples.len();
    }
    // Two references each; of some 3,000 clusters, 2.5 % more or less by chance.
    let share = 2.0 * across as f64 / exact.refs[2] as f64;
    let ratio = taken as f64 / all as f64 / share;
    println!("{taken} of {all} samples: {ratio:.3} of their share");
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
}

#[test]
fn accesses_are_counted_to_the_access() {
    without_randomization();
    let (mut compared, mut built) = (0, 0);
    for name in [
        "plain",
        "string",
        "parts",
        "bits",
        "crossing",
        "gather",
        "avx512",
        "locked",
        "returns",
        "x87",
        "backwards",
        "sideways",
        "syscalls",
        "alarms",
        "faults",
        "wander",
    ] {
        let mut counts = Vec::new();
        for looking in [
            Looking::Everywhere,
            Looking::Wide,
            Looking::Jumping,
            Looking::Narrow,
        ] {
            let Some(found) = find(name, 1_000_000, looking) else {
                continue;
            };
            if found.whole {
                counts.push(found.accesses);
            }
        }
        compared += usize::from(counts.len() == 4);
        built += usize::from(!counts.is_empty());
        // All that is counted there, `rep` under a condition and gathers apart.
        if ["returns", "parts"].contains(&name) {
            let counted = find(name, 1_000_000, Looking::Nowhere);
            counts.extend(counted.map(|found| found.accesses));
        }
        counts.dedup();
        // How often its timer fires is another matter each time.
        assert!(counts.len() <= 1 || name == "alarms", "{name}: {counts:?}");
    }
    assert!(
        compared >= 8 || built == 0,
        "{compared} programs compared, {built} built"
    );
}
