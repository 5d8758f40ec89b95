//! Accesses that one look into a filter covers: those through the same register values, near each
//! other.

use super::fragment::LoggedAccess;
use rustc_hash::FxHashMap;

/// Most bytes from the first to the last byte of a group: it then lies in at most two lines.
pub const GROUP_BYTES: u64 = 64;

/// Accesses at constant distances from `word[base] + word[index]*scale + low` (plus fs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Constant part of the address of the first byte.
    pub low: u64,
    /// Last byte, relative to the first.
    pub extent: u8,
    /// Word of the base, 0 for none.
    pub base: u8,
    /// Word of the index, 0 for none.
    pub index: u8,
    /// Factor of the index, 0 without one.
    pub scale: u8,
    /// Whether the fs base is added.
    pub fs: bool,
    /// Bit a: no member crosses a 16-byte line when the first byte is at a modulo 16.
    pub no_span: u16,
    /// Offset from the first byte, and size.
    pub members: Vec<(u8, u8)>,
}

/// Whether an access lies at a constant distance from register values and is short.
pub fn groupable(access: &LoggedAccess) -> bool {
    access.dynamic.is_none()
        && !access.space.wraps()
        && access.size >= 1
        && u64::from(access.size) <= GROUP_BYTES
}

/// The groups of those accesses that are [`groupable`].
pub fn groups(accesses: &[LoggedAccess]) -> Vec<Group> {
    /// Word of the base, word and factor of the index, fs.
    type Registers = (u8, u8, u8, bool);
    let mut by_registers: FxHashMap<Registers, Vec<(i64, u32)>> = FxHashMap::default();
    let mut order = Vec::new();
    for access in accesses.iter().filter(|a| groupable(a)) {
        let scale = if access.index == 0 { 0 } else { access.scale };
        let key = (access.base, access.index, scale, access.space.fs());
        let members = by_registers.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        members.push((access.disp as i64, u32::from(access.size)));
    }
    let mut groups = Vec::new();
    for key in order {
        let mut all = by_registers.remove(&key).unwrap_or_default();
        all.sort_unstable();
        let mut rest = &all[..];
        while let Some(&(low, _)) = rest.first() {
            let fits = |&(disp, size): &(i64, u32)| {
                disp.wrapping_sub(low) as u64 + u64::from(size) <= GROUP_BYTES
            };
            let count = rest.iter().position(|m| !fits(m)).unwrap_or(rest.len());
            let (these, others) = rest.split_at(count);
            rest = others;
            let members: Vec<(u8, u8)> = these
                .iter()
                .map(|&(disp, size)| ((disp - low) as u8, size as u8))
                .collect();
            let extent = members.iter().map(|&(o, s)| o + s - 1).max().unwrap_or(0);
            let no_span = (0..16u16).fold(0, |bits, a| {
                let stays = |&(o, s): &(u8, u8)| (a + u16::from(o)) % 16 + u16::from(s) <= 16;
                bits | u16::from(members.iter().all(stays)) << a
            });
            let (base, index, scale, fs) = key;
            groups.push(Group {
                low: low as u64,
                extent,
                base,
                index,
                scale,
                fs,
                no_span,
                members,
            });
        }
    }
    groups
}
