//! Translating what is likely to be executed, because another cache of the same code has it or a call will return there: a
//! miss costs several times what a translation does.

use super::{Blocked, CodeCache};
use crate::engine::translate::fragment::{ExitKind, FragmentId};
use crate::engine::translate::trace::Code;

/// Fragments beyond which no returns are translated ahead: what never executes would crowd out what does.
const ROOM_AHEAD: usize = super::MAX_FRAGMENTS / 2;
/// Fragments translated at one miss.
const MOST: usize = 96;

/// How far another cache has been followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Followed {
    met: usize,
    indirect: usize,
    flushes: u64,
}

impl CodeCache {
    /// Takes note of what `other` has met and had translated since `followed`. Returns the targets of indirect transfers among it.
    pub fn follow<'a>(&mut self, other: &'a CodeCache, followed: &mut Followed) -> &'a [u64] {
        if followed.flushes != other.flushes {
            *followed = Followed {
                flushes: other.flushes,
                ..Followed::default()
            };
        }
        // Traces end elsewhere here: any instruction may begin one.
        let met = &other.around.met;
        let new = met[followed.met..].iter();
        let new = new.map(|&id| &other.fragments[id as usize]);
        let ips = new.clone().flat_map(|f| f.item_ips());
        self.known.extend(ips);
        self.note_met(new.map(|f| f.ip));
        let indirect = &other.indirect[followed.indirect..];
        followed.met = met.len();
        followed.indirect = other.indirect.len();
        indirect
    }

    /// Translates the code that a call in one of the newest fragments returns to: it is certain to be executed, as a rule.
    /// Returns where that is.
    pub fn translate_return(&mut self, code: &mut impl Code) -> Option<u64> {
        if self.crowded || self.fragments.len() > ROOM_AHEAD {
            self.returns.clear();
        }
        loop {
            let (ip, is_ahead) = self.returns.pop()?;
            match self.by_ip.get(&ip) {
                Some(&id) if self.fragments[id as usize].targeted => {}
                Some(_) => return Some(ip),
                None if code.bytes(ip).is_empty() => {}
                None => {
                    self.around.is_ahead = is_ahead;
                    let translated = self.translate(ip, code, true);
                    self.around.is_ahead = false;
                    return translated.is_ok().then_some(ip);
                }
            }
        }
    }

    /// Translates what `first` leads to, as far as it is known; gives side exits to it their code.
    ///
    /// # Errors
    /// As [`CodeCache::entry`].
    pub(super) fn translate_known(
        &mut self,
        first: FragmentId,
        code: &mut impl Code,
    ) -> Result<(), Blocked> {
        let (mut next, mut translated) = (vec![first], 0);
        while let Some(id) = next.pop() {
            for place in 0.. {
                let fragment = &self.fragments[id as usize];
                let Some(&exit) = fragment.exits.get(place) else {
                    break;
                };
                let target = match self.tables.exit(exit).map(|exit| exit.kind) {
                    Some(
                        ExitKind::Direct { target, .. }
                        | ExitKind::Side {
                            target: Some(target),
                            ..
                        },
                    ) => target,
                    _ => continue,
                };
                if !self.known.contains(&target) {
                    continue;
                }
                if let Some(ExitKind::Side { .. }) = self.tables.exit(exit).map(|e| e.kind) {
                    self.build_side(exit, code);
                }
                if !self.by_ip.contains_key(&target) && !code.bytes(target).is_empty() {
                    if translated == MOST {
                        return Ok(());
                    }
                    translated += 1;
                    next.push(self.translate(target, code, false)?);
                }
            }
        }
        Ok(())
    }
}
