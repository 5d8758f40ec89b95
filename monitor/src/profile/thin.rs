//! Thinning a profile that has grown too large, so that one of any length stays bounded.
//!
//! Of two neighbouring windows of a process one is kept, and from then on stands for what both stood
//! for. It is drawn with a chance in proportion to what it stood for, which leaves every sum over
//! windows what it was on average (sampling with probability proportional to size: Hansen & Hurwitz,
//! Annals of Mathematical Statistics 14, 1943). Short and long windows are paired among themselves,
//! because only long ones see long distances. The newest windows are left alone, so that the density falls with
//! age. Does no IO.

use super::frame::{self, Decoded, Effort, PREAMBLE};
use super::types::{Estimate, Record, WindowRecord};
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, HashSet};

/// The newest windows, one in this many, are left as they are.
const NEWEST: usize = 4;
/// Rounds at the most: each halves what is old.
const ROUNDS: u32 = 12;

/// A profile with fewer windows.
#[derive(Debug)]
pub struct Thinned {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// Windows that were left out.
    pub dropped: u64,
}

/// A window in the file, as far as the choice is concerned.
struct Place {
    at: usize,
    length: usize,
    process: u32,
    class: u32,
    stands_for: Estimate,
    changed: bool,
}

/// Leaves out windows of the complete profile `bytes` until it is at most `target` bytes long or
/// only the newest are left, and whatever belongs to the processes `forgotten`.
///
/// # Errors
/// A text of what is wrong with the profile.
pub fn thin(
    bytes: &[u8],
    target: usize,
    forgotten: &HashSet<u32>,
    random: &mut SmallRng,
) -> Result<Thinned, String> {
    let (mut windows, rest) = survey(bytes, forgotten)?;
    let before = windows.len();
    for _ in 0..ROUNDS {
        let size: usize = windows.iter().map(|w| w.length).sum();
        let count = windows.len();
        if rest + size <= target {
            break;
        }
        halve(&mut windows, random);
        if windows.len() == count {
            break;
        }
    }
    Ok(Thinned {
        dropped: (before - windows.len()) as u64,
        bytes: rewrite(bytes, &windows, forgotten)?,
    })
}

/// Each record with its place, its length and the process it belongs to.
fn walk(
    bytes: &[u8],
    mut see: impl FnMut(usize, usize, u32, Record) -> Result<(), String>,
) -> Result<(), String> {
    let (mut at, mut process) = (PREAMBLE, 0);
    while at < bytes.len() {
        match frame::decode(&bytes[at..]) {
            Decoded::Record(record, length) => {
                if let Record::Process(p) = &*record {
                    process = p.id;
                }
                see(at, length, process, *record)?;
                at += length;
            }
            Decoded::Torn => return Err("it is torn".to_owned()),
            Decoded::Damaged(what) => return Err(what),
        }
    }
    Ok(())
}

/// The windows to choose from, and the bytes of all else that stays.
fn survey(bytes: &[u8], forgotten: &HashSet<u32>) -> Result<(Vec<Place>, usize), String> {
    let (mut windows, mut rest) = (Vec::new(), PREAMBLE);
    walk(bytes, |at, length, process, record| {
        match record {
            _ if forgotten.contains(&process) => {}
            Record::Window(window) => windows.push(Place {
                at,
                length,
                process,
                class: size_class(&window),
                stands_for: window.stands_for,
                changed: false,
            }),
            _ => rest += length,
        }
        Ok(())
    })?;
    Ok((windows, rest))
}

/// Windows within a factor of four are alike.
fn size_class(window: &WindowRecord) -> u32 {
    window.accesses.max(1).ilog2() / 2
}

/// Keeps one of each pair of neighbours among the older windows, which are in the order of time.
fn halve(windows: &mut Vec<Place>, random: &mut SmallRng) {
    let old = windows.len() - windows.len().div_ceil(NEWEST);
    let mut waiting: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut gone = vec![false; windows.len()];
    for i in 0..old {
        let key = (windows[i].process, windows[i].class);
        let Some(first) = waiting.remove(&key) else {
            waiting.insert(key, i);
            continue;
        };
        let (a, b) = (windows[first].stands_for, windows[i].stands_for);
        let share = a.value / (a.value + b.value);
        let keep_first = random.random_bool(if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.5
        });
        let (kept, left) = if keep_first { (first, i) } else { (i, first) };
        gone[left] = true;
        windows[kept].changed = true;
        windows[kept].stands_for = Estimate {
            value: a.value + b.value,
            low: a.low + b.low,
            high: a.high + b.high,
        };
    }
    let mut gone = gone.into_iter();
    windows.retain(|_| !gone.next().unwrap_or(false));
}

fn rewrite(bytes: &[u8], windows: &[Place], forgotten: &HashSet<u32>) -> Result<Vec<u8>, String> {
    let mut out = bytes[..PREAMBLE].to_vec();
    let mut next = windows.iter().peekable();
    walk(bytes, |at, length, process, record| {
        if forgotten.contains(&process) {
            return Ok(());
        }
        let Record::Window(mut window) = record else {
            out.extend_from_slice(&bytes[at..at + length]);
            return Ok(());
        };
        let Some(place) = next.next_if(|place| place.at == at) else {
            return Ok(());
        };
        if place.changed {
            window.stands_for = place.stands_for;
            out.extend(frame::encode(&Record::Window(window), Effort::High)?);
        } else {
            out.extend_from_slice(&bytes[at..at + length]);
        }
        Ok(())
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::types::{Header, ProcessRecord, ThreadShare};
    use super::*;
    use crate::profile::{Profile, example};
    use rand::SeedableRng;
    use std::path::Path;

    fn window(index: u32, accesses: u64, value: f64) -> Record {
        let stands_for = Estimate {
            value,
            low: 0.5 * value,
            high: 2.0 * value,
        };
        let share = |tid| ThreadShare {
            tid,
            accesses: accesses / 2,
            refs: [accesses / 2; 5],
        };
        Record::Window(WindowRecord {
            threads: [1, 2].map(share).to_vec(),
            ..example::window(index, accesses, stands_for)
        })
    }

    /// Windows 0..n of the first process, every seventh long, and as many of another.
    fn file(n: u32) -> Vec<u8> {
        let mut bytes = frame::preamble().to_vec();
        let mut push = |record: &Record| bytes.extend(frame::encode(record, Effort::Low).unwrap());
        push(&Record::Header(Header::example(&["a"])));
        for id in [0, 3] {
            push(&Record::Process(ProcessRecord {
                id,
                pid: 100 + id as i32,
                ppid: 1,
                command: vec!["b".to_owned()],
            }));
            for index in 0..n {
                let accesses = if index % 7 == 6 { 3_000_000 } else { 100_000 };
                push(&window(index, accesses, f64::from(1 + index % 5) * 1e6));
            }
        }
        bytes
    }

    fn total(profile: &Profile) -> f64 {
        profile.windows.iter().map(|w| w.stands_for.value).sum()
    }

    #[test]
    fn what_is_stood_for_stays_and_the_newest_windows_do() {
        let bytes = file(700);
        let before = Profile::from_bytes(&bytes, Path::new("p")).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let thinned = thin(&bytes, bytes.len() / 3, &HashSet::new(), &mut random).unwrap();
        assert!(thinned.bytes.len() <= bytes.len() / 3);
        let after = Profile::from_bytes(&thinned.bytes, Path::new("p")).unwrap();
        let whole =
            |w: &WindowRecord| w.threads.iter().map(|t| t.accesses).sum::<u64>() == w.accesses;
        assert!(
            after.windows.iter().all(whole),
            "a kept window keeps its threads"
        );
        let left = 1400 - after.windows.len() - after.others[0].windows.len();
        assert_eq!(thinned.dropped, left as u64);
        for (a, b) in [(&before, &after), (&before.others[0], &after.others[0])] {
            let error = (total(a) - total(b)) / total(a);
            assert!(error.abs() < 1e-9, "{error}");
        }
        // The other process's windows come last in the file.
        let newest = after.others[0].windows.iter().filter(|w| w.index >= 650);
        assert!(newest.count() >= 45);
        let long = after.windows.iter().filter(|w| w.accesses > 1_000_000);
        assert!(
            long.count() * 10 > after.windows.len(),
            "long windows are kept like short ones"
        );
    }

    #[test]
    fn sums_over_windows_are_kept_on_average() {
        let bytes = file(60);
        let of = |bytes: &[u8]| {
            let profile = Profile::from_bytes(bytes, Path::new("p")).unwrap();
            let miss = |w: &WindowRecord| f64::from(w.index % 3) * w.stands_for.value;
            profile.windows.iter().map(miss).sum::<f64>()
        };
        let truth = of(&bytes);
        let mut mean = 0.0;
        for seed in 0..400 {
            let mut random = SmallRng::seed_from_u64(seed);
            mean += of(&thin(&bytes, bytes.len() / 2, &HashSet::new(), &mut random)
                .unwrap()
                .bytes)
                / 400.0;
        }
        assert!((mean / truth - 1.0).abs() < 0.02, "{mean} for {truth}");
    }

    #[test]
    fn forgotten_processes_leave_nothing() {
        let bytes = file(20);
        let mut random = SmallRng::seed_from_u64(1);
        let forgotten = HashSet::from([3]);
        let thinned = thin(&bytes, usize::MAX, &forgotten, &mut random).unwrap();
        let after = Profile::from_bytes(&thinned.bytes, Path::new("p")).unwrap();
        assert_eq!(
            (after.windows.len(), after.others.len(), thinned.dropped),
            (20, 0, 0)
        );
    }
}
