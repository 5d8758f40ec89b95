//! Unwind information, read for one address: where the caller's frame is, and the caller's frame pointer.
//!
//! Unsafe invariant: [`read`]'s contract, that a whole, true `.eh_frame_hdr` with its `.eh_frame` lies there; lengths in them are believed.

/// How the frame of a function's caller is found from inside the function, at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// The canonical frame address: the stack pointer before the function was called.
    pub cfa: Cfa,
    /// How far below it the caller's frame pointer has been saved, in bytes; 0 where the register still holds it.
    pub saved: u32,
}

/// See [`Rule::cfa`]: a register and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// From the stack pointer.
    Stack(u32),
    /// From the frame pointer.
    Frame(u32),
}

/// In a packed rule: none, and that it begins from the frame pointer; words of 8 bytes otherwise.
const ENDS: u32 = 1 << 31;
const OF_FRAME: u32 = 1 << 30;
const OFFSET: u32 = 15;
const MOST: u32 = (1 << OFFSET) - 1;

impl Rule {
    /// As 32 bits that are not 0; a rule that they do not hold is none.
    pub fn pack(rule: Option<Rule>) -> u32 {
        let Some(rule) = rule else { return ENDS };
        let (kind, offset) = match rule.cfa {
            Cfa::Stack(offset) => (0, offset),
            Cfa::Frame(offset) => (OF_FRAME, offset),
        };
        // One more, as the stack pointer may be where the return address was.
        let (offset, saved) = (offset / 8 + 1, rule.saved / 8);
        if offset > MOST || saved > MOST {
            return ENDS;
        }
        kind | saved << OFFSET | offset
    }

    /// Undoes [`Rule::pack`].
    pub fn unpack(packed: u32) -> Option<Rule> {
        if packed & ENDS != 0 {
            return None;
        }
        let offset = ((packed & MOST).checked_sub(1)?) * 8;
        let cfa = match packed & OF_FRAME {
            0 => Cfa::Stack(offset),
            _ => Cfa::Frame(offset),
        };
        let saved = (packed >> OFFSET & MOST) * 8;
        Some(Rule { cfa, saved })
    }
}

/// DWARF numbers of rbp, rsp and the return address.
const RBP: u64 = 6;
const RSP: u64 = 7;
const RETURN: u64 = 16;

/// A place in unwind information.
#[derive(Clone, Copy)]
struct Cursor {
    at: u64,
}

impl Cursor {
    /// # Safety
    /// There must be a `T` there.
    unsafe fn take<T: Copy>(&mut self) -> T {
        // SAFETY: the caller's contract.
        let value = unsafe { (self.at as *const T).read_unaligned() };
        self.at += size_of::<T>() as u64;
        value
    }

    /// An unsigned LEB128.
    ///
    /// # Safety
    /// As [`Cursor::take`].
    unsafe fn unsigned(&mut self) -> u64 {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            // SAFETY: the caller's contract.
            let byte = unsafe { self.take::<u8>() };
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// A signed LEB128.
    ///
    /// # Safety
    /// As [`Cursor::take`].
    unsafe fn signed(&mut self) -> i64 {
        let from = self.at;
        // SAFETY: the caller's contract.
        let value = unsafe { self.unsigned() };
        let bits = 7 * (self.at - from) as u32;
        match 64u32.checked_sub(bits) {
            Some(above) if above > 0 => (value << above) as i64 >> above,
            _ => value as i64,
        }
    }
}

/// `DW_EH_PE_*` of the tables that linkers write: differences of 32 bits, to where they lie or to the table's begin; unsigned.
const PLACE_RELATIVE: u8 = 0x1b;
const TABLE_RELATIVE: u8 = 0x3b;
const UNSIGNED: u8 = 0x03;

/// The rule at `address`, by the table at `header` (`.eh_frame_hdr`).
///
/// # Safety
/// Such a table must lie there, of an object that is loaded.
pub(super) unsafe fn read(header: u64, address: u64) -> Option<Rule> {
    // SAFETY: the caller's contract, for this and all that follow.
    unsafe {
        let mut cursor = Cursor { at: header };
        let head: [u8; 4] = cursor.take();
        if head != [1, PLACE_RELATIVE, UNSIGNED, TABLE_RELATIVE] {
            return None;
        }
        cursor.take::<i32>();
        let count = u64::from(cursor.take::<u32>());
        let table = cursor.at;
        let begin = |n: u64| {
            let offset = ((table + 8 * n) as *const i32).read_unaligned();
            header.wrapping_add_signed(i64::from(offset))
        };
        // The last that begins at or before the address.
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if begin(middle) <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let place = table + 8 * low.checked_sub(1)? + 4;
        let offset = (place as *const i32).read_unaligned();
        of_function(header.wrapping_add_signed(i64::from(offset)), address)
    }
}

/// What holds for a group of functions.
struct Common {
    code_factor: u64,
    data_factor: i64,
    /// Whether their entries have data of their own before their instructions.
    augmented: bool,
    instructions: u64,
    end: u64,
}

/// The rule at `address` of the function whose entry (FDE) lies at `entry`.
///
/// # Safety
/// As [`read`].
unsafe fn of_function(entry: u64, address: u64) -> Option<Rule> {
    // SAFETY: the caller's contract, for this and all that follow.
    unsafe {
        let mut cursor = Cursor { at: entry };
        let length = cursor.take::<u32>();
        if length == u32::MAX {
            return None;
        }
        let end = cursor.at + u64::from(length);
        let place = cursor.at;
        let common = common(place.checked_sub(u64::from(cursor.take::<u32>()))?)?;
        let place = cursor.at;
        let begin = place.wrapping_add_signed(i64::from(cursor.take::<i32>()));
        let bytes = u64::from(cursor.take::<u32>());
        if !(begin..begin + bytes).contains(&address) {
            return None;
        }
        if common.augmented {
            let skipped = cursor.unsigned();
            cursor.at += skipped;
        }
        let mut state = State::NEW;
        let initial = Cursor {
            at: common.instructions,
        };
        state.run(&common, initial, common.end, begin, address, &State::NEW)?;
        let first = state;
        state.run(&common, cursor, end, begin, address, &first)?;
        state.rule()
    }
}

/// Reads a CIE.
///
/// # Safety
/// As [`read`].
unsafe fn common(entry: u64) -> Option<Common> {
    // SAFETY: the caller's contract, for this and all that follow.
    unsafe {
        let mut cursor = Cursor { at: entry };
        let length = cursor.take::<u32>();
        if length == u32::MAX {
            return None;
        }
        let end = cursor.at + u64::from(length);
        cursor.take::<u32>();
        let version = cursor.take::<u8>();
        let augmentation = cursor;
        while cursor.take::<u8>() != 0 {}
        let code_factor = cursor.unsigned();
        let data_factor = cursor.signed();
        let returns_at = match version {
            1 => u64::from(cursor.take::<u8>()),
            3 => cursor.unsigned(),
            _ => return None,
        };
        if returns_at != RETURN {
            return None;
        }
        let mut letters = augmentation;
        let augmented = letters.take::<u8>() == b'z';
        let mut instructions = cursor.at;
        if augmented {
            let bytes = cursor.unsigned();
            instructions = cursor.at + bytes;
            loop {
                match letters.take::<u8>() {
                    0 => break,
                    b'R' if cursor.take::<u8>() == PLACE_RELATIVE => {}
                    b'L' => {
                        cursor.take::<u8>();
                    }
                    b'P' => {
                        const WIDTHS: [u64; 5] = [8, 0, 2, 4, 8];
                        let encoding = cursor.take::<u8>();
                        // Signed ones are as wide, LEB128 (1) and aligned ones are in nobody's tables.
                        let width = *WIDTHS.get(usize::from(encoding & 7))?;
                        if width == 0 || encoding & 0x70 == 0x50 {
                            return None;
                        }
                        cursor.at += width;
                    }
                    // Of a signal's frame ('S'), among others.
                    _ => return None,
                }
            }
        } else if (augmentation.at as *const u8).read() != 0 {
            return None;
        }
        Some(Common {
            code_factor,
            data_factor,
            augmented,
            instructions,
            end,
        })
    }
}

/// What is known at one place of a function.
#[derive(Clone, Copy)]
struct State {
    register: u64,
    offset: i64,
    /// Where rbp is, from the frame address: 0 where it is still in the register. Elsewhere: not a number that it can be.
    frame: i64,
    /// The same of the return address.
    returns: i64,
}

/// For [`State::frame`] and [`State::returns`]: in none of the places that we look at.
const ELSEWHERE: i64 = i64::MAX;

impl State {
    const NEW: State = State {
        register: ELSEWHERE as u64,
        offset: 0,
        frame: 0,
        returns: ELSEWHERE,
    };

    fn put(&mut self, register: u64, place: i64) {
        match register {
            RBP => self.frame = place,
            RETURN => self.returns = place,
            _ => {}
        }
    }

    fn rule(&self) -> Option<Rule> {
        if self.returns != -8 {
            return None;
        }
        let cfa = match self.register {
            RSP => Cfa::Stack(u32::try_from(self.offset).ok()?),
            RBP => Cfa::Frame(u32::try_from(self.offset).ok()?),
            _ => return None,
        };
        let saved = match self.frame {
            0 => 0,
            // Below the return address.
            place @ i64::MIN..=-16 => u32::try_from(-place).ok()?,
            _ => return None,
        };
        let whole = self.offset % 8 == 0 && saved % 8 == 0;
        whole.then_some(Rule { cfa, saved })
    }

    /// Follows the instructions from `cursor` to `end`, those of a function that begins at `begin`, up to `address`.
    ///
    /// # Safety
    /// As [`read`].
    unsafe fn run(
        &mut self,
        common: &Common,
        mut cursor: Cursor,
        end: u64,
        begin: u64,
        address: u64,
        first: &State,
    ) -> Option<()> {
        let mut kept = [State::NEW; 4];
        let mut depth = 0;
        let mut at = begin;
        while cursor.at < end && at <= address {
            // SAFETY: the caller's contract, for this and all that follow.
            unsafe {
                let byte = cursor.take::<u8>();
                let low = u64::from(byte & 0x3f);
                match byte {
                    // Names of DWARF 5, table 7.29, without their DW_CFA_.
                    // advance_loc
                    0x40..=0x7f => at += low * common.code_factor,
                    // offset
                    0x80..=0xbf => {
                        let place = cursor.unsigned() as i64;
                        self.put(low, place.wrapping_mul(common.data_factor));
                    }
                    // restore, restore_extended
                    0xc0..=0xff | 0x06 => {
                        let register = if byte == 0x06 { cursor.unsigned() } else { low };
                        match register {
                            RBP => self.frame = first.frame,
                            RETURN => self.returns = first.returns,
                            _ => {}
                        }
                    }
                    // nop
                    0x00 => {}
                    // advance_loc1, 2, 4
                    0x02 => at += u64::from(cursor.take::<u8>()) * common.code_factor,
                    0x03 => at += u64::from(cursor.take::<u16>()) * common.code_factor,
                    0x04 => at += u64::from(cursor.take::<u32>()) * common.code_factor,
                    // offset_extended
                    0x05 => {
                        let register = cursor.unsigned();
                        let place = cursor.unsigned() as i64;
                        self.put(register, place.wrapping_mul(common.data_factor));
                    }
                    // undefined
                    0x07 => {
                        let register = cursor.unsigned();
                        self.put(register, ELSEWHERE);
                    }
                    // same_value
                    0x08 => {
                        let register = cursor.unsigned();
                        self.put(register, 0);
                    }
                    // register
                    0x09 => {
                        let register = cursor.unsigned();
                        cursor.unsigned();
                        self.put(register, ELSEWHERE);
                    }
                    // remember_state
                    0x0a => {
                        *kept.get_mut(depth)? = *self;
                        depth += 1;
                    }
                    // restore_state
                    0x0b => {
                        depth = depth.checked_sub(1)?;
                        *self = *kept.get(depth)?;
                    }
                    // def_cfa
                    0x0c => {
                        self.register = cursor.unsigned();
                        self.offset = cursor.unsigned() as i64;
                    }
                    // def_cfa_register
                    0x0d => self.register = cursor.unsigned(),
                    // def_cfa_offset
                    0x0e => self.offset = cursor.unsigned() as i64,
                    // def_cfa_expression
                    0x0f => {
                        self.register = ELSEWHERE as u64;
                        let bytes = cursor.unsigned();
                        cursor.at += bytes;
                    }
                    // expression, val_expression
                    0x10 | 0x16 => {
                        let register = cursor.unsigned();
                        let bytes = cursor.unsigned();
                        cursor.at += bytes;
                        self.put(register, ELSEWHERE);
                    }
                    // offset_extended_sf
                    0x11 => {
                        let register = cursor.unsigned();
                        let place = cursor.signed();
                        self.put(register, place.wrapping_mul(common.data_factor));
                    }
                    // def_cfa_sf
                    0x12 => {
                        self.register = cursor.unsigned();
                        self.offset = cursor.signed().wrapping_mul(common.data_factor);
                    }
                    // def_cfa_offset_sf
                    0x13 => self.offset = cursor.signed().wrapping_mul(common.data_factor),
                    // GNU_args_size
                    0x2e => {
                        cursor.unsigned();
                    }
                    _ => return None,
                }
            }
        }
        Some(())
    }
}
