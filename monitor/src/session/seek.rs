//! Code that the program is often in and no window began with: where the next window should be.
//!
//! Other windows open at random moments, so code that makes many accesses in little time has few, or none: of a loop that makes a tenth of the accesses,
//! and nearly half of the misses, in a twenty-fifth of the time, half of the runs of a second had none or next to none. Looks are many ([`super::looks`]), so they tell
//! that there is such code; a window is opened when one falls into it again. It stands for the looks in its code and for no other time, so that
//! it does not matter that it was not opened at random (sampling with unequal probabilities: Cochran, Sampling Techniques, 9A).

use super::content::granule;
use super::follow::{Session, stop};
use super::observed::Observed;
use crate::tracee::{Event, Result, Stopped, hub, procinfo};
use nix::unistd::Pid;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Looks that are gone by: the last ones.
const KEPT: usize = 4000;
/// Looks that it takes to say something, and how many of them, and what share, make a place notable.
const ENOUGH: usize = 100;
const NOTABLE: usize = 4;
const NOTABLE_SHARE: f64 = 0.005;
/// Samples of a window that it begins with. (Those behind may be of code that it came to: where that makes its accesses in no time, the window is
/// none of that.)
pub const BEGINNING: usize = 8;
/// Numbers of code (see [`granule`]) on either side of a look that are of the same place, where no window began with them; and of one place at
/// the most, a kilobyte.
const NEAR: u64 = 2;
const REACH: u64 = 64;
/// How often one place is sought at the most, one that was found counting as so many: where a window sees no access of it, it makes none.
const TRIES: u32 = 16;
const FOUND: u32 = 6;
/// Time between two questions where the program is, and processor seconds of one; of a stop; and how often it is asked for one window at the most.
const NAP: Duration = Duration::from_micros(500);
const NAP_S: f64 = 7e-6;
const STOP_S: f64 = 30e-6;
const MOST_ASKED: u32 = 1000;

/// Places to open a window in: of each the numbers of code where looks fell, and near there, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sought(Vec<Vec<u64>>);

impl Sought {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that code at `ip` of program image `image` is of.
    pub fn at(&self, image: u32, ip: u64) -> Option<Sought> {
        let at = granule(image, ip);
        let has = |place: &&Vec<u64>| place.binary_search(&at).is_ok();
        let place = self.0.iter().find(has)?;
        Some(Sought(vec![place.clone()]))
    }
}

/// Where a process was natively, and which of its code windows saw.
#[derive(Clone, Debug, Default)]
pub struct Seek {
    looks: VecDeque<u64>,
    /// Code that windows began with.
    seen: FxHashSet<u64>,
    /// How often code was sought, more for what was found.
    tried: FxHashMap<u64, u32>,
}

impl Seek {
    /// The program was there.
    pub fn look(&mut self, image: u32, ip: u64) {
        if self.looks.len() == KEPT {
            self.looks.pop_front();
        }
        self.looks.push_back(granule(image, ip));
    }

    /// A window began with accesses of the instructions `first`, and executed `others` in one go with those.
    pub fn saw(&mut self, image: u32, first: &FxHashSet<u64>, others: Vec<u64>) {
        let ips = first.iter().copied().chain(others);
        self.seen.extend(ips.map(|ip| granule(image, ip)));
    }

    /// Whether a window began with this code.
    pub fn is_met(&self, image: u32, ip: u64) -> bool {
        self.seen.contains(&granule(image, ip))
    }

    /// Another program image begins: only what is met there is sought.
    pub fn begin_image(&mut self) {
        self.looks.clear();
        self.tried.clear();
    }

    /// Whether most of these instructions are of code that no window began with yet.
    pub fn is_mostly_new(&self, image: u32, ips: &[u64]) -> bool {
        let is_new = |ip: &&u64| !self.is_met(image, **ip);
        2 * ips.iter().filter(is_new).count() >= ips.len()
    }

    /// These places were sought, and found or not.
    pub fn tried(&mut self, sought: &Sought, found: bool) {
        for &at in sought.0.iter().flatten() {
            *self.tried.entry(at).or_default() += if found { FOUND } else { 1 };
        }
    }

    /// Places where the program was often, and no window was.
    pub fn sought(&self) -> Sought {
        if self.looks.len() < ENOUGH {
            return Sought::default();
        }
        let least = NOTABLE.max((NOTABLE_SHARE * self.looks.len() as f64).ceil() as usize);
        let is_new = |at: &u64| {
            !self.seen.contains(at) && self.tried.get(at).is_none_or(|&tries| tries < TRIES)
        };
        let mut new: Vec<u64> = self.looks.iter().copied().filter(is_new).collect();
        new.sort_unstable();
        let mut places: Vec<&[u64]> = Vec::new();
        let mut rest = &new[..];
        while let Some(first) = rest.first() {
            let (place, others) = rest.split_at(rest.partition_point(|at| at - first <= REACH));
            places.push(place);
            rest = others;
        }
        let notable = places.into_iter().filter(|looks| looks.len() >= least);
        let code = |looks: &[u64]| {
            let near = |at: &u64| at.saturating_sub(NEAR)..=at.saturating_add(NEAR);
            let mut code: Vec<u64> = looks.iter().flat_map(near).collect();
            code.retain(|at| !self.seen.contains(at));
            code.sort_unstable();
            code.dedup();
            code
        };
        Sought(notable.map(code).collect())
    }
}

impl Session<'_> {
    /// Threads run natively until `window`; behind the first quarter of that time one that comes to a place that is sought is stopped there.
    ///
    /// # Errors
    /// As [`Session::rest`].
    pub(super) fn rest_or_seek(&mut self, window: Instant) -> Result<Option<Stopped>> {
        let may = !self.sought && !self.schedule.is_long_next();
        let Some((id, tid, sought)) = may.then(|| self.place_sought()).flatten() else {
            self.rest(Some(window))?;
            return Ok(None);
        };
        let quarter = window.saturating_duration_since(Instant::now()) / 4;
        self.rest(Some(Instant::now() + quarter))?;
        let last = |session: &mut Session<'_>| {
            let observed = session.observed.get_mut(&id);
            observed.and_then(Observed::note_where_threads_are)
        };
        // Where it was before says nothing of where it is.
        last(self);
        let (mut asked, mut looks, mut stops) = (0, 0_u32, 0_u32);
        let mut found = None;
        while found.is_none()
            && asked < MOST_ASKED
            && Instant::now() < window
            && !self.is_over()
            && !hub::any_held()
        {
            let is_there = |session: &mut Session<'_>| {
                asked += 1;
                let place = last(session);
                looks += u32::from(place.is_some());
                place.is_some_and(|at| sought.at(at.image, at.ip).is_some()) || asked >= MOST_ASKED
            };
            if !self.rest_until(Some(window), NAP, is_there)? || asked >= MOST_ASKED {
                break;
            }
            let Some(observed) = self.observed.get(&id) else {
                break;
            };
            let (pid, image) = (observed.process.pid, observed.process.image);
            // One that sleeps by now is left alone.
            if !procinfo::is_running(pid, tid) {
                continue;
            }
            stops += 1;
            let Some(stopped) = stop(tid)? else {
                continue;
            };
            let regs = stopped.regs().ok().filter(|_| hub::is_same(tid, image));
            match regs.and_then(|regs| sought.at(image, regs.rip)) {
                Some(place) => found = Some((stopped, place)),
                None => hub::release(Event::Stopped(stopped)),
            }
        }
        let spent_s = NAP_S * f64::from(asked) + STOP_S * f64::from(stops);
        self.schedule.spend(spent_s);
        let place = found.as_ref().map(|(_, place)| place);
        if let Some(observed) = self.observed.get_mut(&id)
            && looks > 0
        {
            observed.has_sought(place.unwrap_or(&sought), place.is_some());
        }
        match found {
            Some((stopped, place)) => {
                tracing::debug!(?place, asked, "found where it was sought");
                Ok(Some(stopped))
            }
            None => {
                tracing::debug!(?sought, asked, looks, "sought in vain");
                self.rest(Some(window))?;
                Ok(None)
            }
        }
    }

    /// A process of one thread and the places that are sought in it.
    fn place_sought(&self) -> Option<(u32, Pid, Sought)> {
        let mut observed = self.observed.iter();
        observed.find_map(|(&id, observed)| {
            let process = hub::process(observed.process.pid)?;
            let may = process.id == id
                && process.image == observed.process.image
                && process.threads.len() == 1
                && !process.borrows_memory
                && !hub::may_be_traced(&process)
                && !observed.is_refused(process.image);
            let sought = may.then(|| observed.sought()).flatten()?;
            Some((id, *process.threads.first()?, sought))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two loops beside each other, and one far from them.
    const LOOPS: [u64; 3] = [0x401000, 0x401060, 0x480000];

    fn looks(seek: &mut Seek, ip: u64, count: usize) {
        (0..count).for_each(|n| seek.look(0, ip + 8 * (n as u64 % 4)));
    }

    fn saw(seek: &mut Seek, ip: u64) {
        // All of it in one go with its first access.
        seek.saw(
            0,
            &[ip].into_iter().collect(),
            (0..4).map(|n| ip + 8 * n).collect(),
        );
    }

    fn is_sought(seek: &Seek, ip: u64) -> bool {
        seek.sought().at(0, ip).is_some()
    }

    #[test]
    fn code_that_is_looked_at_often_and_began_no_window_is_sought() {
        let mut seek = Seek::default();
        saw(&mut seek, LOOPS[0]);
        looks(&mut seek, LOOPS[0], ENOUGH);
        looks(&mut seek, LOOPS[1], NOTABLE - 1);
        // What is seldom met may be chance.
        assert!(seek.sought().is_empty());
        looks(&mut seek, LOOPS[1], 1);
        assert!(is_sought(&seek, LOOPS[1]) && !is_sought(&seek, LOOPS[2]));
        // Near it, but where windows began.
        assert!(!is_sought(&seek, LOOPS[0] + 24) && is_sought(&seek, LOOPS[1] + 24));
        // In another image the same address is other code.
        assert!(seek.sought().at(1, LOOPS[1]).is_none());
        assert!(!seek.is_met(0, LOOPS[1]));
        saw(&mut seek, LOOPS[1]);
        assert!(seek.sought().is_empty());
        assert!(seek.is_met(0, LOOPS[1]) && !seek.is_met(1, LOOPS[1]));
        assert!(seek.is_mostly_new(0, &[LOOPS[2], LOOPS[2], LOOPS[0]]));
        assert!(!seek.is_mostly_new(0, &[LOOPS[2], LOOPS[1], LOOPS[0]]));
        // What was met before is not forgotten, but sought no more.
        looks(&mut seek, LOOPS[2], ENOUGH);
        assert!(is_sought(&seek, LOOPS[2]));
        seek.begin_image();
        assert!(seek.sought().is_empty() && seek.is_met(0, LOOPS[1]));
    }

    #[test]
    fn too_few_looks_and_a_small_share_of_them_say_nothing() {
        let mut seek = Seek::default();
        looks(&mut seek, LOOPS[0], ENOUGH - 1);
        assert!(seek.sought().is_empty());
        looks(&mut seek, LOOPS[0], KEPT);
        looks(
            &mut seek,
            LOOPS[2],
            (NOTABLE_SHARE * KEPT as f64) as usize - 1,
        );
        assert!(is_sought(&seek, LOOPS[0]) && !is_sought(&seek, LOOPS[2]));
        // Those of long ago are forgotten.
        looks(&mut seek, LOOPS[2], KEPT);
        assert!(is_sought(&seek, LOOPS[2]) && !is_sought(&seek, LOOPS[0]));
    }

    #[test]
    fn a_place_is_given_up_after_a_while_and_not_for_others() {
        let mut seek = Seek::default();
        looks(&mut seek, LOOPS[0], ENOUGH);
        looks(&mut seek, LOOPS[2], ENOUGH);
        let both = seek.sought();
        let one = both.at(0, LOOPS[0]).expect("one of them");
        let times = |seek: &mut Seek, found| {
            let mut times = 0;
            while is_sought(seek, LOOPS[0]) {
                seek.tried(&one, found);
                times += 1;
            }
            times
        };
        assert_eq!(times(&mut seek.clone(), false), TRIES);
        assert_eq!(times(&mut seek, true), TRIES.div_ceil(FOUND));
        assert!(is_sought(&seek, LOOPS[2]));
    }
}
