//! How the watches of a window end: touched, cut off with the window, or given up before for a reason of their line.

use super::{Counter, MOST_FALSE_HITS, Seen};
use crate::engine::counter::hits::{Touched, touched};
use crate::engine::counter::live::{Mark, Met};
use crate::observe::{DEFAULT_LINE, Observer, Outcome};
use crate::profile::types::LINE_SIZES;
use nix::unistd::Pid;
use rustc_hash::FxHashMap;
use statcache_abi::{ended, kind};

impl Counter {
    /// Books touched and ended watches.
    pub(super) fn settle(&mut self, seen: &mut Seen, met: Vec<Met>, tid: Pid) {
        for Met { event, at } in met {
            let (index, k) = (event.id as usize / 8, event.id as usize % 8);
            let Some(following) = seen.following.get_mut(index) else {
                continue;
            };
            if k >= LINE_SIZES.len() || following.open >> k & 1 == 0 {
                continue;
            }
            let own = event.tid == tid.as_raw();
            let of_its_line = matches!(event.detail, ended::UNMAPPED | ended::STACK);
            following.sample.given_up |= event.kind == kind::ENDED && of_its_line;
            let end = match (event.kind, touched(&event, LINE_SIZES[k])) {
                (kind::ENDED, _) => Some(None),
                (_, Touched::No) => None,
                (_, Touched::Yes) if own => {
                    let store = event.detail & statcache_abi::access::WRITE != 0;
                    Some(Some((event.rip, store)))
                }
                (_, Touched::Unknown) if own => {
                    self.losses.untold += 1;
                    following.sample.given_up = true;
                    Some(None)
                }
                _ => None,
            };
            if let Some(end) = end {
                following.open &= !(1 << k);
                following.until[k] = Some((at, end));
                if event.kind != kind::ENDED {
                    // Where the hit has not ended it by itself. Dropped twice is no harm.
                    seen.stale.push(event.id);
                }
            }
        }
    }

    /// Gives watches up whose pages, by these new `faults`, are too hot.
    pub(super) fn cool(&mut self, seen: &mut Seen, faults: Vec<u64>) {
        const PAGE: u64 = 4096;
        let mut by_page: FxHashMap<u64, u32> = FxHashMap::default();
        for page in faults {
            *by_page.entry(page).or_default() += 1;
        }
        for (index, following) in seen.following.iter_mut().enumerate() {
            if following.open == 0 {
                continue;
            }
            let page = following.byte / PAGE * PAGE;
            following.faults += by_page.get(&page).copied().unwrap_or(0);
            if following.faults <= MOST_FALSE_HITS || following.given_up {
                continue;
            }
            following.given_up = true;
            following.sample.given_up = true;
            self.losses.hot += 1;
            let open = (0..LINE_SIZES.len()).filter(|k| following.open >> k & 1 == 1);
            seen.stale.extend(open.map(|k| (index * 8 + k) as u32));
        }
    }

    /// Tells the observer how far the thread has come, as far as it does not know.
    pub(super) fn tell(&self, seen: &mut Seen, at: Mark, exact: u64, observer: &mut Observer) {
        let (per_instruction, ratio) = self.ratio();
        let accesses = exact + (at.native as f64 * per_instruction) as u64;
        let more = accesses.saturating_sub(seen.told.0);
        let mut refs = [0; 5];
        for (k, more) in refs.iter_mut().enumerate() {
            let all = at.refs[k] + (at.native as f64 * ratio[k]) as u64;
            *more = all.saturating_sub(seen.told.1[k]);
            seen.told.1[k] += *more;
        }
        seen.told.0 += more;
        observer.count(more, refs);
    }

    /// Hands the samples over. What is still open is cut off `at` the end of the window, or the process is `over`.
    pub(super) fn deliver(&self, seen: Seen, at: Mark, over: bool, observer: &mut Observer) {
        let ratio = self.ratio().1;
        let between = |from: Mark, to: Mark, k: usize| {
            let native = to.native.saturating_sub(from.native) as f64 * ratio[k];
            to.refs[k].saturating_sub(from.refs[k]) + native.round() as u64
        };
        for following in seen.following {
            let mut sample = following.sample;
            let before = between(Mark::default(), following.from, DEFAULT_LINE);
            sample.position = seen.first_ref + before.saturating_sub(1);
            for (k, outcome) in sample.outcomes.iter_mut().enumerate() {
                let distance = |to: Mark| between(following.from, to, k);
                *outcome = match following.until[k] {
                    _ if following.followed >> k & 1 == 0 => Outcome::NotFollowed,
                    Some((to, Some((trigger, store)))) => Outcome::Reused {
                        distance: distance(to),
                        trigger,
                        store,
                    },
                    Some((to, None)) => Outcome::Censored(distance(to)),
                    None if over => Outcome::NeverReused(distance(at)),
                    None => Outcome::Censored(distance(at)),
                };
            }
            observer.add(sample);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Following, MOST_FALSE_HITS, Simulation, Source};
    use super::*;
    use crate::engine::counter::shim::Inherited;
    use crate::observe::{Access, Sample};
    use std::rc::Rc;

    pub(in super::super) const HOT: u64 = 0x7000_0000;

    /// A sample whose 64-byte line at `byte` is watched.
    pub(in super::super) fn following(byte: u64) -> Following {
        let access = Access {
            ip: 1,
            address: byte,
            size: 8,
            load: true,
            store: false,
        };
        Following {
            sample: Sample {
                access,
                window: 0,
                position: 0,
                outcomes: [Outcome::NotFollowed; 5],
                remotely: None,
                given_up: false,
            },
            byte,
            from: Mark::default(),
            until: [None; 5],
            open: 1 << DEFAULT_LINE,
            followed: 1 << DEFAULT_LINE,
            faults: 0,
            given_up: false,
        }
    }

    /// Two lines on a hot page, one on another, and one on the hot page that has been touched already.
    pub(in super::super) fn seen() -> Seen {
        let mut touched = following(HOT + 192);
        touched.open = 0;
        Seen {
            following: vec![
                following(HOT),
                following(HOT + 64),
                following(HOT + 4096),
                touched,
            ],
            stale: Vec::new(),
            told: (0, [0; 5]),
            first_ref: 0,
        }
    }

    #[test]
    fn watches_on_a_page_that_is_too_hot_are_given_up_counted_and_marked() {
        let shim = Rc::clone(Inherited::create().expect("a shim").shim());
        let mut counter = Counter::new(
            shim,
            Source::Simulated(Simulation::Instructions),
            Pid::this(),
            1,
        );
        let mut seen = seen();
        counter.cool(&mut seen, vec![HOT; MOST_FALSE_HITS as usize]);
        assert!(seen.stale.is_empty() && counter.losses.hot == 0, "not yet");
        counter.cool(&mut seen, vec![HOT, HOT + 4096]);
        let id = |index: u32| index * 8 + DEFAULT_LINE as u32;
        assert_eq!(seen.stale, [id(0), id(1)]);
        let marked: Vec<bool> = seen.following.iter().map(|f| f.sample.given_up).collect();
        assert_eq!(marked, [true, true, false, false]);
        counter.cool(&mut seen, vec![HOT; 10]);
        assert_eq!((counter.losses.hot, seen.stale.len()), (2, 2), "once each");
    }
}
