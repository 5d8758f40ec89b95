//! What the registers mean in stretches of the code cache, packed: there are tens of boundaries in each of a hundred thousand
//! fragments, and hardly any is ever looked up.
//!
//! Each is the distance from the one before, a byte that says what differs, and that. A stretch begins with its offset and what
//! differs from [`Boundary::default`].

use super::state::{Ip, Spare, State};
use crate::arch::{Gpr, GprSet};
use crate::varint::{put_varint, take_varint, unzigzag, zigzag};

/// The boundaries of code that is being written, in address order.
#[derive(Clone, Debug)]
pub struct StateMap {
    /// Addresses in the cache are kept relative to this one.
    base: u64,
    /// Original addresses are kept relative to this one.
    ip: u64,
    boundaries: Vec<Boundary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    address: u32,
    /// Of [`Ip::At`].
    ip: i64,
    spilled: GprSet,
    open: Option<u16>,
    kind: IpKind,
    spare: Spare,
    counted: bool,
    cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IpKind {
    At,
    InRcx,
    InTarget,
}

impl Default for Boundary {
    fn default() -> Boundary {
        Boundary {
            address: 0,
            ip: 0,
            spilled: GprSet::EMPTY,
            open: None,
            kind: IpKind::At,
            spare: Spare::Unused,
            counted: false,
            cut: false,
        }
    }
}

impl StateMap {
    /// For code at `base` and above, made of the original code around `ip`.
    pub fn new(base: u64, ip: u64) -> StateMap {
        StateMap {
            base,
            ip,
            boundaries: Vec::new(),
        }
    }

    /// From `address` on, the registers mean `state`. An arena is smaller than 4 GiB.
    pub fn mark(&mut self, address: u64, state: State) {
        let (kind, ip) = match state.ip {
            Ip::At(ip) => (IpKind::At, ip.wrapping_sub(self.ip) as i64),
            Ip::InRcx => (IpKind::InRcx, 0),
            Ip::InTarget => (IpKind::InTarget, 0),
        };
        let boundary = Boundary {
            address: (address - self.base) as u32,
            ip,
            spilled: state.spilled,
            open: state.open,
            kind,
            spare: state.spare,
            counted: state.counted,
            cut: state.cut,
        };
        match self.boundaries.last_mut() {
            Some(last) if last.address == boundary.address => *last = boundary,
            Some(last) if last.same_state(&boundary) => {}
            _ => self.boundaries.push(boundary),
        }
    }
}

impl Boundary {
    fn same_state(&self, other: &Boundary) -> bool {
        let address = self.address;
        *self == Boundary { address, ..*other }
    }
}

/// What differs from the boundary before: original address,
const IP: u8 = 1;
/// items done of an open record,
const OPEN: u8 = 2;
/// registers in their slots,
const SPILLED: u8 = 4;
/// or anything else.
const OTHER: u8 = 8;
/// A stretch begins.
const BEGINS: u8 = 16;

/// The boundaries of the code of a fragment, hot or cold.
#[derive(Clone, Debug, Default)]
pub struct States(Vec<u8>);

impl States {
    /// Those of one stretch, which begins where the code does.
    pub fn of(map: &StateMap) -> States {
        let mut states = States::default();
        states.append(map.base, map);
        states.0.shrink_to_fit();
        states
    }

    /// Adds those of code of the same fragment at higher addresses; the first lies at `base`.
    pub fn append(&mut self, base: u64, later: &StateMap) {
        let mut bytes = Vec::with_capacity(8 * later.boundaries.len());
        let mut before = Boundary::default();
        for (place, boundary) in later.boundaries.iter().enumerate() {
            let from = match place {
                0 => base.wrapping_sub(later.base) as u32,
                _ => before.address,
            };
            let begins = if place == 0 { BEGINS } else { 0 };
            boundary.pack(
                &before,
                boundary.address.wrapping_sub(from),
                begins,
                &mut bytes,
            );
            before = *boundary;
        }
        // Each is kept for long, and few grow again and again.
        self.0.reserve_exact(bytes.len());
        self.0.extend(bytes);
    }

    /// The meaning at `address` of the code at `base` and above, made of the original code around `ip`; `None` in front of it.
    pub fn at(&self, (base, ip): (u64, u64), address: u64) -> Option<State> {
        let offset = u32::try_from(address.checked_sub(base)?).ok()?;
        let (mut bytes, mut found) = (&self.0[..], None);
        let mut boundary = Boundary::default();
        while !bytes.is_empty() {
            boundary = Boundary::unpack(&boundary, &mut bytes);
            if boundary.address > offset {
                break;
            }
            found = Some(boundary);
        }
        found.map(|boundary| boundary.state(ip))
    }
}

impl Boundary {
    fn state(&self, ip: u64) -> State {
        State {
            ip: match self.kind {
                IpKind::At => Ip::At(ip.wrapping_add_signed(self.ip)),
                IpKind::InRcx => Ip::InRcx,
                IpKind::InTarget => Ip::InTarget,
            },
            spilled: self.spilled,
            spare: self.spare,
            open: self.open,
            counted: self.counted,
            cut: self.cut,
        }
    }

    fn pack(&self, before: &Boundary, distance: u32, begins: u8, to: &mut Vec<u8>) {
        let other = |b: &Boundary| (b.kind, b.spare, b.counted, b.cut);
        let mut differs = begins;
        for (differ, bit) in [
            (self.ip != before.ip, IP),
            (self.open != before.open, OPEN),
            (self.spilled != before.spilled, SPILLED),
            (other(self) != other(before), OTHER),
        ] {
            differs |= if differ { bit } else { 0 };
        }
        to.push(differs);
        put_varint(to, u64::from(distance));
        if differs & IP != 0 {
            put_varint(to, zigzag(self.ip.wrapping_sub(before.ip)));
        }
        if differs & OPEN != 0 {
            put_varint(to, self.open.map_or(0, |open| u64::from(open) + 1));
        }
        if differs & SPILLED != 0 {
            to.extend(self.spilled.0.to_le_bytes());
        }
        if differs & OTHER != 0 {
            let (spare, gpr) = match self.spare {
                Spare::Unused => (0, 0),
                Spare::Block(gpr) => (1, gpr.number()),
                Spare::Count(gpr) => (2, gpr.number()),
            };
            let kind = self.kind as u8 | u8::from(self.counted) << 2 | u8::from(self.cut) << 3;
            to.extend([kind | spare << 4, gpr as u8]);
        }
    }

    /// The next of `bytes`, which are not empty.
    fn unpack(before: &Boundary, bytes: &mut &[u8]) -> Boundary {
        let differs = next(bytes);
        let mut boundary = match differs & BEGINS {
            0 => *before,
            _ => Boundary::default(),
        };
        boundary.address = boundary.address.wrapping_add(number(bytes) as u32);
        if differs & IP != 0 {
            boundary.ip = boundary.ip.wrapping_add(unzigzag(number(bytes)));
        }
        if differs & OPEN != 0 {
            boundary.open = number(bytes).checked_sub(1).map(|open| open as u16);
        }
        if differs & SPILLED != 0 {
            let bits = [next(bytes), next(bytes)];
            boundary.spilled = GprSet(u16::from_le_bytes(bits));
        }
        if differs & OTHER != 0 {
            let (what, gpr) = (next(bytes), Gpr::ALL[usize::from(next(bytes))]);
            boundary.kind = [IpKind::At, IpKind::InRcx, IpKind::InTarget][usize::from(what & 3)];
            boundary.counted = what & 4 != 0;
            boundary.cut = what & 8 != 0;
            boundary.spare = match what >> 4 {
                0 => Spare::Unused,
                1 => Spare::Block(gpr),
                _ => Spare::Count(gpr),
            };
        }
        boundary
    }
}

fn number(bytes: &mut &[u8]) -> u64 {
    take_varint(bytes).expect("all of a boundary was put")
}

fn next(bytes: &mut &[u8]) -> u8 {
    let (&first, rest) = bytes.split_first().expect("all of a boundary was put");
    *bytes = rest;
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn states() -> impl Strategy<Value = State> {
        let gpr = || (0usize..16).prop_map(|number| Gpr::ALL[number]);
        let ip = prop_oneof![
            (0x3000_0000u64..0x5000_0000).prop_map(Ip::At),
            (0x4000_0000u64..0x4000_0040).prop_map(Ip::At),
            any::<u64>().prop_map(Ip::At),
            Just(Ip::InRcx),
            Just(Ip::InTarget),
        ];
        let spare = prop_oneof![
            Just(Spare::Unused),
            gpr().prop_map(Spare::Block),
            gpr().prop_map(Spare::Count),
        ];
        let open = proptest::option::of(0u16..300);
        let spilled = any::<u16>().prop_map(GprSet);
        (ip, spare, open, spilled, any::<[bool; 2]>()).prop_map(
            |(ip, spare, open, spilled, [counted, cut])| State {
                ip,
                spilled,
                spare,
                open,
                counted,
                cut,
            },
        )
    }

    proptest! {
        /// Whatever was marked is found at every address, in what was appended too.
        #[test]
        fn what_was_marked_is_found(
            stretches in proptest::collection::vec(
                (0u64..100_000, proptest::collection::vec((0u64..200, states()), 1..20)),
                1..4,
            )
        ) {
            let (base, ip) = (0x7f00_0000_0000, 0x4000_0000);
            let (mut next, mut packed) = (base, States::default());
            let mut expected = Vec::new();
            for (gap, marks) in stretches {
                next += gap;
                let mut map = StateMap::new(next, ip);
                for (distance, state) in marks {
                    map.mark(next, state);
                    expected.push((next..next + distance + 1, state));
                    next += distance + 1;
                }
                packed.append(base, &map);
            }
            prop_assert_eq!(packed.at((base, ip), base - 1), None);
            for (range, state) in expected {
                for address in [range.start, range.end - 1] {
                    prop_assert_eq!(packed.at((base, ip), address), Some(state));
                }
            }
        }
    }
}
