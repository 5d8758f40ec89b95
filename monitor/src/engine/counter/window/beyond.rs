//! Behind a window: the thread runs natively again, and watches still out are met there, at distances that the counter counts.
//!
//! So a short window knows of long distances. Nothing is drawn meanwhile. What it costs are the stops for pages that are watched and for
//! system calls, so it may take as many as the window did, and then ends early. Whichever way it ends, a watch whose page was met without its
//! line being touched is marked as given up: stops take time of what there is, so to be cut off has to do with the line. Of several
//! threads none is followed.
//!
//! Source: StatCache (Berg & Hagersten 2005) section 3.5, whose watchpoints stay from one burst of samples to the next.

use super::{Counter, Seen, Stage};
use crate::engine::counter::live::{Live, Stop};
use crate::engine::translate::window::{Control, WindowEnd};
use crate::observe::Observer;
use crate::tracee::{Result, Stopped};

impl Counter {
    /// Whether watches are out: [`Counter::beyond`] comes next.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Runs the thread natively until the last window's watches are met, or `control` wants it to end, and hands over the window's samples.
    ///
    /// # Errors
    /// As [`Counter::window`].
    pub fn beyond<C: Control>(
        &mut self,
        stopped: Stopped,
        observer: &mut Observer,
        control: &mut C,
    ) -> Result<WindowEnd> {
        let Some(mut open) = self.open.take() else {
            return Ok(WindowEnd::Closed(stopped));
        };
        let (tid, most) = (stopped.tid(), open.stops);
        let (before, watched) = (self.stats.stops, open.seen.watched());
        let stage: Stage = self.stage(stopped, &mut open, control, |counter, live, seen| {
            (counter.follow(live, observer, seen, most), false)
        });
        let (stops, out) = (self.stats.stops - before, open.seen.watched());
        tracing::debug!(watched, out, stops, most, mark = ?open.mark, "beyond a window");
        self.ended(stage, open, tid, observer)
    }

    /// Follows until it is over.
    fn follow<C: Control>(
        &mut self,
        live: &mut Live<'_, C>,
        observer: &mut Observer,
        seen: &mut Seen,
        most: u64,
    ) -> std::result::Result<(), Stop> {
        let met_before: Vec<u32> = seen.following.iter().map(|f| f.faults).collect();
        while seen.watched() > 0 && live.control().progress(observer, &self.maps) > 0 {
            if live.stops > most && !live.steps() {
                break;
            }
            let more = live.go_on()?;
            self.keep_up(live, seen)?;
            if !more {
                break;
            }
        }
        self.losses.hot += seen.give_up_met(&met_before);
        Ok(())
    }
}

impl Seen {
    /// Marks watches still out whose pages have been met since they had so many faults; how many.
    fn give_up_met(&mut self, before: &[u32]) -> u64 {
        let out = self.following.iter_mut().zip(before);
        let met = out.filter(|(f, before)| f.open != 0 && f.faults > **before && !f.given_up);
        let mut marked = 0;
        for (following, _) in met {
            following.given_up = true;
            following.sample.given_up = true;
            marked += 1;
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::counter::window::outcome::tests::seen;

    /// What was met and not touched is marked: not what was met before, what was not, or what has ended.
    #[test]
    fn watches_met_in_vain_are_given_up() {
        let mut seen = seen();
        for (following, faults) in seen.following.iter_mut().zip([5, 2, 0, 9]) {
            following.faults = faults;
        }
        assert_eq!(seen.give_up_met(&[4, 2, 0, 1]), 1);
        let marked: Vec<bool> = seen.following.iter().map(|f| f.sample.given_up).collect();
        assert_eq!(marked, [true, false, false, false]);
        assert_eq!(seen.give_up_met(&[4, 2, 0, 1]), 0, "once");
    }
}
