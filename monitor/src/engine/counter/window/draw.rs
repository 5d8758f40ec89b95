//! What a draw of the window comes to: its references, and the watches on their lines.

use super::{ALL_SIZES_ONE_IN, Counter, Following, MOST_WATCHED, Seen};
use crate::engine::counter::live::{Live, Stop};
use crate::engine::counter::sampler::{Drawn, Machine};
use crate::engine::translate::window::Control;
use crate::observe::{Access, DEFAULT_LINE, LINE_SHIFTS, Outcome, Sample};
use rand::Rng;
use statcache_abi::{Request, flag, op, result};

impl Counter {
    /// The instructions right before the one drawn are as likely as that is: the ratio is learnt from them too. No more than are always
    /// stepped, or it would depend on where stops come.
    pub(super) fn learn(&mut self, stepped: impl IntoIterator<Item = (u64, [u64; 5])>) {
        for (accesses, refs) in stepped {
            self.mix.add(accesses, refs);
        }
    }

    /// Lets the instruction drawn execute and watches what it touched.
    pub(super) fn take<C: Control>(
        &mut self,
        live: &mut Live<'_, C>,
        window: u32,
        samples: &[Drawn],
        seen: &mut Seen,
    ) -> std::result::Result<(), Stop> {
        let accesses: Vec<Access> = samples.iter().map(|drawn| drawn.access).collect();
        let before = live.mark;
        live.step()?;
        let mut references = [0; 5];
        let mut taken = Vec::new();
        for (n, access) in accesses.iter().enumerate() {
            let last = last_byte(access);
            for line in
                access.address >> LINE_SHIFTS[DEFAULT_LINE]..=last >> LINE_SHIFTS[DEFAULT_LINE]
            {
                let byte = access.address.max(line << LINE_SHIFTS[DEFAULT_LINE]);
                let mut from = before;
                let mut until = [None; 5];
                for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
                    let first = access.address >> shift;
                    from.refs[k] += references[k] + (byte >> shift) - first + 1;
                    until[k] =
                        again(&accesses[n + 1..], byte >> shift, shift).map(|(skip, trigger)| {
                            let own = (last >> shift) - first + 1;
                            let mut at = before;
                            at.refs[k] += references[k] + own + skip;
                            (at, Some((trigger.ip, trigger.store)))
                        });
                }
                taken.push((access, byte, from, until));
            }
            for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
                references[k] += (last >> shift) - (access.address >> shift) + 1;
            }
        }
        self.learn([(accesses.len() as u64, references)]);
        if seen.watched() + taken.len() > MOST_WATCHED {
            return Ok(());
        }
        let alone = self.is_alone();
        for (access, byte, from, until) in taken {
            let all = self.random.random_ratio(1, ALL_SIZES_ONE_IN);
            let followed: u8 = if all { 0b11111 } else { 1 << DEFAULT_LINE };
            let index = seen.following.len() as u32;
            let mut following = Following {
                sample: Sample {
                    access: *access,
                    window,
                    position: 0,
                    outcomes: [Outcome::NotFollowed; 5],
                    remotely: None,
                    given_up: false,
                },
                byte,
                from,
                until,
                open: 0,
                followed,
                faults: 0,
                given_up: false,
            };
            self.losses.samples += 1;
            let mut refused = false;
            for (k, shift) in LINE_SHIFTS.into_iter().enumerate() {
                if followed >> k & 1 == 0 || following.until[k].is_some() {
                    continue;
                }
                let arm = Request {
                    op: op::ARM,
                    // Other threads' touches do not end what is this one's.
                    flags: if alone { 0 } else { flag::KEEP },
                    address: byte >> shift << shift,
                    length: 1 << shift,
                    id: index * 8 + k as u32,
                    ..Request::default()
                };
                match live.call(arm)? {
                    result::OK => following.open |= 1 << k,
                    _ => {
                        refused = true;
                        following.until[k] = Some((following.from, None));
                    }
                }
            }
            self.losses.unwatchable += u64::from(refused);
            following.sample.given_up = refused;
            seen.following.push(following);
        }
        Ok(())
    }
}

fn last_byte(access: &Access) -> u64 {
    access.address + u64::from(access.size.max(1)) - 1
}

/// The first of these accesses that touches the line, and the references before that one.
fn again(accesses: &[Access], line: u64, shift: u32) -> Option<(u64, &Access)> {
    let mut skipped = 0;
    for access in accesses {
        let (first, last) = (access.address >> shift, last_byte(access) >> shift);
        if (first..=last).contains(&line) {
            return Some((skipped + line - first, access));
        }
        skipped += last - first + 1;
    }
    None
}
