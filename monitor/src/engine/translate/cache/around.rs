//! Translating what code that was met leads to, while the program runs natively and a processor is idle: a thread that comes to new code in
//! a window is stopped for it, waits until it is translated, and finds it cold.
//!
//! One transfer ahead, as two and three saved little more. (Stops for new code in default runs of 2 to 4 s, means of four, with none, one, two and three
//! transfers from what was met or threads were seen in: 713, 570, 579, 475 in a solver, 1724, 1218, 1202, 1107 in a chess program, 725, 702,
//! 740, 780 and 877, 839, 837, 832 in two interpreters.)

use super::super::fragment::{ExitKind, FragmentId};
use super::super::trace::Code;
use super::CodeCache;

/// Fragments translated at one call, about, and those whose side exits are looked at: a fraction of a millisecond.
const AT_ONCE: usize = 3;
const LOOKED_AT_ONCE: usize = 300;

/// What is still to be done.
#[derive(Debug, Default)]
pub struct Around {
    /// Where code was met outside of the cache.
    places: Vec<u64>,
    /// Fragments of code that was met, and which of their exits is the next to be followed; the newest last.
    open: Vec<(FragmentId, usize)>,
    /// Fragments of code that was met.
    pub met: Vec<FragmentId>,
    /// Those of other code.
    ahead: Vec<FragmentId>,
    /// The next of those whose side exits are looked at.
    next_sides: usize,
    /// Whether what is translated now has not been met.
    pub is_ahead: bool,
}

impl Around {
    /// A new fragment.
    pub fn add(&mut self, id: FragmentId) {
        // Side exits may lead here.
        self.next_sides = 0;
        if self.is_ahead {
            self.ahead.push(id);
        } else {
            self.met.push(id);
            self.open.push((id, 0));
        }
    }
}

impl CodeCache {
    /// Says that code was met at these addresses outside of the cache.
    pub fn note_met(&mut self, ips: impl Iterator<Item = u64>) {
        self.around.places.extend(ips);
    }

    /// Translates some of what code that was met leads to, up to `most` fragments in all, as much of it will never be executed. False
    /// when there is nothing more to do, or no room.
    pub fn translate_around(&mut self, code: &mut impl Code, most: usize) -> bool {
        let (mut left, mut looks_left) = (AT_ONCE, LOOKED_AT_ONCE);
        while left > 0 && looks_left > 0 {
            if self.crowded || self.around.ahead.len() >= most {
                return false;
            }
            if let Some(ip) = self.around.places.pop() {
                if self.is_new_code(ip, code) && self.translate(ip, code, false).is_ok() {
                    left -= 1;
                }
            } else if let Some((id, first)) = self.around.open.pop() {
                left = self.follow_exits(id, first, left, code);
            } else if let Some(&id) = self.around.ahead.get(self.around.next_sides) {
                self.around.next_sides += 1;
                looks_left -= 1;
                left -= usize::from(self.build_known_sides(id, code));
            } else {
                return false;
            }
        }
        true
    }

    /// Gives those side exits of a fragment their code that lead to other fragments. Returns whether there were any.
    fn build_known_sides(&mut self, id: FragmentId, code: &mut impl Code) -> bool {
        let mut any = false;
        for place in 0..self.fragments[id as usize].exits.len() {
            let exit = self.fragments[id as usize].exits[place];
            if let Some(ExitKind::Side {
                target: Some(target),
                field,
                ..
            }) = self.tables.exit(exit).map(|exit| exit.kind)
                && field != 0
                && self.by_ip.contains_key(&target)
            {
                self.build_side(exit, code);
                any = true;
            }
        }
        any
    }

    /// Whether there is code, which stays what it is, and no fragment of it.
    fn is_new_code(&self, ip: u64, code: &mut impl Code) -> bool {
        !self.by_ip.contains_key(&ip) && !code.bytes(ip).is_empty() && !code.changes(ip)
    }

    /// Translates what a fragment's exits from the `first` one on lead to, up to so many; gives side exits their code. Returns how
    /// many are left.
    fn follow_exits(
        &mut self,
        id: FragmentId,
        first: usize,
        mut left: usize,
        code: &mut impl Code,
    ) -> usize {
        for place in first.. {
            let Some(&exit) = self.fragments[id as usize].exits.get(place) else {
                break;
            };
            if left == 0 {
                self.around.open.push((id, place));
                break;
            }
            let (target, is_side) = match self.tables.exit(exit).map(|exit| exit.kind) {
                Some(ExitKind::Direct { target, .. }) => (target, false),
                // Only long copies come by.
                Some(ExitKind::Side {
                    done,
                    target: Some(target),
                    ..
                }) if self.fragments[id as usize].item_ip(usize::from(done) - 1) == target => {
                    continue;
                }
                Some(ExitKind::Side {
                    target: Some(target),
                    ..
                }) => (target, true),
                _ => continue,
            };
            let is_new = self.is_new_code(target, code);
            if is_side && (is_new || self.by_ip.contains_key(&target)) {
                self.build_side(exit, code);
            }
            if is_new {
                self.around.is_ahead = true;
                left -= usize::from(self.translate(target, code, false).is_ok());
                self.around.is_ahead = false;
            }
        }
        left
    }
}
