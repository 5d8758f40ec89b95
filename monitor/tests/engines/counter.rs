//! Which accesses the counter engine's sampling picks, over simulated counters with the skid of real ones, on recorded kernels: every
//! access equally often, every distance as the `step` engine sees it. And that the same test fails without the method.

use crate::support::tracee;
use crate::support::tracee::{MARK_BEGIN, MARK_END, Tracee, Tracees};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use statcache::engine::counter::sampler::{
    Draw, Machine, REFERENCE_SHIFT, Ran, Sampler, SkidComp, Watching, calibrate,
};
use statcache::engine::counter::shim::Inherited;
use statcache::engine::counter::simulated::{Recording, Simulated, Skid, record};
use statcache::engine::counter::window::{Counter, Simulation, Source};
use statcache::engine::step::{Limits, Stepper};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

fn seeded(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

fn recorded(name: &str) -> Option<Recording> {
    let _turn = tracee::exclusive();
    let (_tracees, program) = Tracees::build(name)?;
    let (tracee, stopped) = Tracee::launch(&program, &[]);
    let stopped = Tracee::run_past(stopped, MARK_BEGIN).expect("begin");
    let (recording, stopped) = record(stopped, MARK_END).expect("recorded");
    let ending = tracee.finish(stopped);
    let said = ending.expected_accesses(name)?;
    assert_eq!(recording.accesses.len() as u64, said, "{name}");
    Some(recording)
}

/// Chi-square of `times` against equal expectation, and the value that it passes once in some millions of times.
fn chi_square(times: &[u64]) -> (f64, f64) {
    let total: u64 = times.iter().sum();
    let expected = total as f64 / times.len() as f64;
    assert!(expected > 20.0, "too few samples for the test");
    let chi = times
        .iter()
        .map(|n| (*n as f64 - expected).powi(2) / expected)
        .sum();
    let freedom = times.len() as f64 - 1.0;
    (chi, freedom + 5.2 * (2.0 * freedom).sqrt() + 10.0)
}

/// Places of the instructions that access memory.
fn accessing(recording: &Recording) -> Vec<usize> {
    let all = recording.instructions.iter().enumerate();
    all.filter(|(_, executed)| !executed.accesses.is_empty())
        .map(|(place, _)| place)
        .collect()
}

const DRAWS_PER_PLACE: usize = 60;
const MEAN: u64 = 150;

/// How often `pick` chose each accessing instruction. It says the place, or nothing.
fn tally(recording: &Recording, mut pick: impl FnMut() -> Option<usize>) -> Vec<u64> {
    let mut times: HashMap<usize, u64> = accessing(recording).iter().map(|p| (*p, 0)).collect();
    for _ in 0..DRAWS_PER_PLACE * recording.instructions.len() {
        if let Some(place) = pick() {
            *times.get_mut(&place).expect("an accessing instruction") += 1;
        }
    }
    times.into_values().collect()
}

fn skids(recording: &Recording) -> [Skid; 6] {
    let slow = recording.instructions.iter().find(|e| e.slow);
    let ip = slow.map_or(recording.instructions[0].ip, |slow| slow.ip);
    [
        Skid::Fixed(0),
        Skid::Fixed(7),
        Skid::Uniform(20),
        Skid::Geometric { mean: 8, most: 40 },
        Skid::AtSlow(70),
        Skid::Always { ip, most: 70 },
    ]
}

fn with_method(recording: &Recording, skid: Skid) -> (Vec<u64>, u64) {
    let mut machine = Simulated::new(recording, skid, seeded(3));
    let comp = calibrate(&mut machine, 500, 97)
        .expect("infallible")
        .expect("lasts for ever");
    let mut sampler = Sampler::new(comp, comp.0 + MEAN, seeded(4));
    let mut beyond = 0;
    let times = tally(recording, || {
        match sampler.draw(&mut machine).expect("infallible") {
            Draw::Samples(samples) => {
                let place = machine.place();
                let all = &recording.accesses[recording.instructions[place].accesses.clone()];
                assert!(
                    samples.iter().map(|s| &s.access).eq(all),
                    "all accesses of it"
                );
                Some(place)
            }
            Draw::SkidBeyond => {
                beyond += 1;
                None
            }
            _ => None,
        }
    });
    (times, beyond)
}

#[test]
fn every_access_is_equally_likely() {
    for name in ["skidding", "string", "crossing"] {
        let Some(recording) = recorded(name) else {
            continue;
        };
        for skid in skids(&recording) {
            let (times, beyond) = with_method(&recording, skid);
            let (chi, limit) = chi_square(&times);
            assert!(chi < limit, "{name} {skid:?}: {chi} of {limit}");
            assert_eq!(beyond, 0, "{name} {skid:?}");
        }
    }
}

/// The next memory instruction from where the counter stopped.
fn next_accessing(machine: &mut Simulated<'_>) -> usize {
    while machine
        .upcoming()
        .expect("infallible")
        .expect("told")
        .is_empty()
    {
        machine.step().expect("infallible");
    }
    machine.place()
}

/// The same test without the method: it must see what is wrong, or it would see nothing.
#[test]
fn the_test_fails_without_the_method() {
    let Some(recording) = recorded("skidding") else {
        return;
    };
    for skid in skids(&recording) {
        // No compensation: where the interrupt came, and on to a memory instruction.
        let mut machine = Simulated::new(&recording, skid, seeded(5));
        let mut gaps = Sampler::new(SkidComp(0), MEAN, seeded(6));
        let times = tally(&recording, || {
            gaps.draw(&mut machine).expect("infallible");
            Some(next_accessing(&mut machine))
        });
        let (chi, limit) = chi_square(&times);
        assert!(
            chi > 4.0 * limit,
            "no compensation, {skid:?}: {chi} of {limit}"
        );
        // Compensated, but on to the next memory instruction where the one drawn is none.
        let mut machine = Simulated::new(&recording, skid, seeded(7));
        let comp = calibrate(&mut machine, 500, 97).expect("infallible");
        let mut sampler = Sampler::new(comp.expect("lasts"), 300, seeded(8));
        let times = tally(&recording, || {
            sampler.draw(&mut machine).expect("infallible");
            Some(next_accessing(&mut machine))
        });
        let (chi, limit) = chi_square(&times);
        assert!(
            chi > 4.0 * limit,
            "next memory instruction, {skid:?}: {chi} of {limit}"
        );
    }
}

/// A stop beyond the compensation is declined, and counted.
#[test]
fn skid_beyond_compensation_is_declined() {
    let Some(recording) = recorded("skidding") else {
        return;
    };
    let mut machine = Simulated::new(&recording, Skid::Uniform(20), seeded(9));
    let mut sampler = Sampler::new(SkidComp(10), MEAN, seeded(10));
    let mut beyond = 0u32;
    const DRAWS: u32 = 20_000;
    for _ in 0..DRAWS {
        let draw = sampler.draw(&mut machine).expect("infallible");
        beyond += u32::from(draw == Draw::SkidBeyond);
    }
    // 10 of 21 skids.
    let share = f64::from(beyond) / f64::from(DRAWS);
    assert!((share - 10.0 / 21.0).abs() < 0.02, "{share}");
}

/// Reference numbers and lines of one round, as the `step` engine sees them in a run of its own.
fn stepped(name: &str) -> Option<Vec<(u64, u64)>> {
    let _turn = tracee::exclusive();
    let (_tracees, program) = Tracees::build(name)?;
    let (tracee, stopped) = Tracee::launch(&program, &[]);
    let stopped = Tracee::run_past(stopped, MARK_BEGIN).expect("begin");
    let mut references = Vec::new();
    let limits = Limits {
        before_syscall: Some(MARK_END),
        ..Limits::NONE
    };
    let window = Stepper::new()
        .window(stopped, &limits, |access| {
            let last = access.address + u64::from(access.size) - 1;
            for line in access.address >> REFERENCE_SHIFT..=last >> REFERENCE_SHIFT {
                references.push((access.ip, line));
            }
        })
        .expect("stepped");
    let statcache::engine::step::After::Stopped(stopped, _) = window.after else {
        panic!("{:?}", window.after);
    };
    tracee.finish(stopped);
    Some(references)
}

#[test]
fn every_distance_is_the_step_engine_s() {
    for name in ["skidding", "string", "crossing"] {
        let (Some(recording), Some(round)) = (recorded(name), stepped(name)) else {
            continue;
        };
        let total = round.len() as u64;
        for skid in skids(&recording) {
            let mut machine = Simulated::new(&recording, skid, seeded(11));
            let comp = calibrate(&mut machine, 200, 97).expect("infallible");
            let mut sampler = Sampler::new(comp.expect("lasts"), 400, seeded(12));
            let mut open = HashMap::new();
            let mut next_id = 0;
            let mut checked = 0;
            for _ in 0..3000 {
                let mut hits = Vec::new();
                if let Draw::Samples(samples) = sampler.draw(&mut machine).expect("infallible") {
                    for (n, sample) in samples.iter().enumerate() {
                        open.insert(next_id + n as u64, *sample);
                    }
                    let at_once = Sampler::follow(&mut machine, &samples, next_id, REFERENCE_SHIFT);
                    hits = at_once.expect("infallible");
                    next_id += samples.len() as u64;
                }
                hits.extend(machine.hits());
                for hit in hits {
                    let sample = open.remove(&hit.id).expect("its sample");
                    let at = |number: u64| round[(number % total) as usize];
                    let (ip, line) = at(sample.number);
                    assert_eq!(ip, sample.access.ip, "{name} {skid:?}");
                    let distance = (1..)
                        .find(|ahead| at(sample.number + ahead).1 == line)
                        .expect("the round comes again")
                        - 1;
                    let measured = hit.references - sample.number - 1;
                    assert_eq!(measured, distance, "{name} {skid:?} at {ip:#x}");
                    assert_eq!(hit.ip, at(hit.references).0, "{name} {skid:?}");
                    checked += 1;
                }
            }
            assert!(checked > 100, "{name} {skid:?}: {checked}");
            assert!(matches!(machine.run(1), Ok(Ran::Stopped(_))));
        }
    }
}

/// The kernel's counters stop the thread, say how far they came, and are gone with their descriptor. By CPU time, which
/// every host counts; by instructions where there is a PMU.
#[test]
fn overflow_stops_the_thread() {
    use statcache::engine::counter::overflow::{Overflow, Refused, SIGNAL, Unit};
    use statcache::tracee::{Event, Resume, StopReason};
    let _turn = tracee::exclusive();
    for (unit, period) in [
        (Unit::CpuNanoseconds, 2_000_000),
        (Unit::Instructions, 1_000_000),
    ] {
        let loops = ["-c", "while :; do :; done"];
        let mut stopped = Tracee::launch_uncaptured("/bin/sh".as_ref(), &loops);
        let tid = stopped.tid();
        match Overflow::open(tid, unit) {
            Ok(mut counter) => {
                for _ in 0..5 {
                    counter.arm(period).expect("armed");
                    let running = stopped.resume(Resume::Continue, 0).expect("resumed");
                    let Event::Stopped(stop) = running.wait().expect("waited") else {
                        panic!("{unit:?}: ended");
                    };
                    assert_eq!(stop.reason, StopReason::Signal(SIGNAL), "{unit:?}");
                    assert!(counter.caused(&stop.siginfo().expect("siginfo")));
                    let count = counter.count().expect("count");
                    assert!(count >= period, "{unit:?}: {count}");
                    stopped = stop;
                }
                counter.arm(period).expect("armed");
                drop(counter);
                let running = stopped.resume(Resume::Continue, 0).expect("resumed");
                std::thread::sleep(std::time::Duration::from_millis(30));
                assert!(
                    running.poll().expect("polled").is_err(),
                    "{unit:?}: a stop too many"
                );
            }
            Err(refused @ (Refused::NoPmu | Refused::Paranoid(_) | Refused::Sandboxed(_))) => {
                assert!(refused.to_string().contains("--engine translate"));
                println!("SKIP overflow of {unit:?}: {refused}");
            }
            Err(other) => panic!("{unit:?}: {other}"),
        }
        // SAFETY: our own child.
        unsafe { libc::kill(tid.as_raw(), libc::SIGKILL) };
    }
}

/// The shim turns system calls into signals, and a thread that slept in one when a window ended is under it for longer: the report
/// must not lay that to the program.
#[test]
fn a_call_under_the_shim_is_not_laid_to_the_program() {
    const TEST: &str = "a_call_under_the_shim_is_not_laid_to_the_program";
    const PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4210;
    let _turn = tracee::exclusive();
    let Some((_tracees, program)) = Tracees::build("plain") else {
        return;
    };
    let (tracee, stopped) = Tracee::launch(&program, &[]);
    let at = stopped.regs().expect("registers").rip;
    // Where the shim lies the block says: here that is the program itself, which is mapped already.
    let shim = Rc::clone(Inherited::create().expect("a shim").shim());
    shim.block().call.store(at, Ordering::Relaxed);
    let source = Source::Simulated(Simulation::Instructions);
    let counter = Counter::new(shim, source, stopped.tid(), 1);
    assert_eq!(counter.must_be_native(&stopped), None);
    let reason = |mode: u64, dispatcher: u64| {
        // `struct ptrace_sud_config`: mode, selector, offset, length.
        let configuration = [mode, 0, dispatcher, 64 * mode];
        // SAFETY: the kernel reads as many bytes as are said, all of the array.
        let rc = unsafe {
            libc::ptrace(
                PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG,
                stopped.tid().as_raw(),
                size_of_val(&configuration),
                configuration.as_ptr(),
            )
        };
        (rc == 0).then(|| counter.must_be_native(&stopped))
    };
    let Some(ours) = reason(1, at) else {
        println!(
            "SKIP {TEST}: the kernel does not let tracers dispatch system calls (before Linux 6.4)"
        );
        tracee.finish(stopped);
        return;
    };
    assert_eq!(ours, Some("a system call that an earlier window began"));
    let theirs = Some("the program turns its system calls into signals");
    assert_eq!(reason(1, 1 << 46), Some(theirs));
    assert_eq!(reason(0, 0), Some(None));
    tracee.finish(stopped);
}
