//! Symbol tables: functions and static objects by address, also where the file was stripped.
//!
//! Three sources, best first: `.symtab` (of the object or its debug file), `.dynsym`, and the
//! names of PLT slots taken from the relocations of the GOT entries they jump through. What no
//! symbol covers is at least divided into functions by the unwind table (`.eh_frame`), which
//! stripping leaves.

use std::cmp::Reverse;
use std::collections::HashMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};

use super::demangle::demangle;
use super::files::Loaded;

/// A named range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    /// One past its last address; equal to `start` when the size is unknown.
    end: u64,
    name: String,
}

/// Functions of a module by address.
#[derive(Debug, Default)]
pub(super) struct Functions {
    /// Sorted by start; names still mangled.
    symbols: Vec<Range>,
    /// Start and end by the unwind table, sorted.
    unwind: Vec<(u64, u64)>,
}

/// How an address is named.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Inside this function.
    Function(String),
    /// Behind this symbol, by so many bytes: it may not belong to it.
    Near(String, u64),
    /// In a nameless function that starts here.
    Nameless(u64),
    /// Nothing is known.
    Unknown,
}

impl Functions {
    pub(super) fn new(loaded: &Loaded) -> Self {
        let mut functions = Self::default();
        for bytes in [&loaded.debug, &loaded.object].into_iter().flatten() {
            let Ok(file) = object::File::parse(bytes.as_slice()) else {
                continue;
            };
            for symbol in file.symbols().chain(file.dynamic_symbols()) {
                functions.add(&symbol);
            }
        }
        if let Some(bytes) = &loaded.object
            && let Ok(file) = object::File::parse(bytes.as_slice())
        {
            functions.symbols.extend(plt(&file));
            functions.unwind = unwind_ranges(&file);
        }
        // Of several names for one address the sized, then the plainest (fewest underscores,
        // shortest) is kept: `memcpy` before `__memcpy_alias`.
        functions.symbols.sort_by(|a, b| {
            let rank = |r: &Range| {
                let leading = r.name.bytes().take_while(|&c| c == b'_').count();
                (r.start, r.end == r.start, leading, r.name.len())
            };
            rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
        });
        functions.symbols.dedup_by_key(|r| r.start);
        functions
    }

    fn add(&mut self, symbol: &object::Symbol<'_, '_>) {
        let code = match symbol.kind() {
            SymbolKind::Text => true,
            // Assembly without `.type`, as in a linker's `_start`.
            SymbolKind::Unknown => symbol.section_index().is_some(),
            _ => false,
        };
        if !code || symbol.is_undefined() || symbol.address() == 0 {
            return;
        }
        if let Ok(name) = symbol.name()
            && !name.is_empty()
            && !name.starts_with("$")
        {
            let start = symbol.address();
            let end = start.saturating_add(symbol.size());
            self.symbols.push(Range {
                start,
                end,
                name: name.to_owned(),
            });
        }
    }

    /// Names the function at `address` (in the object file).
    pub(super) fn place(&self, address: u64) -> Place {
        let after = self.symbols.partition_point(|r| r.start <= address);
        let nearest = self.symbols[..after].last();
        if let Some(r) = nearest
            && (address < r.end || address == r.start)
        {
            return Place::Function(demangle(&r.name));
        }
        let after = self.unwind.partition_point(|&(start, _)| start <= address);
        if let Some(&(start, end)) = self.unwind[..after].last()
            && address < end
        {
            return match nearest {
                // A symbol without a size, inside the same function.
                Some(r) if r.start >= start && r.end == r.start => {
                    Place::Function(demangle(&r.name))
                }
                _ => Place::Nameless(start),
            };
        }
        match nearest {
            Some(r) => Place::Near(demangle(&r.name), address - r.start),
            None => Place::Unknown,
        }
    }
}

/// PLT slots: each holds an indirect jump (`ff 25 rel32`) through a GOT entry, and the relocation
/// of that entry names the function. Source: System V ABI, x86-64 supplement, section 5.2.
fn plt(file: &object::File<'_>) -> Vec<Range> {
    const SLOT: usize = 16;
    let mut names = HashMap::new();
    if let Some(relocations) = file.dynamic_relocations() {
        let table = file.dynamic_symbol_table();
        for (address, relocation) in relocations {
            if let RelocationTarget::Symbol(index) = relocation.target() {
                use object::ObjectSymbolTable;
                let symbol = table.as_ref().and_then(|t| t.symbol_by_index(index).ok());
                if let Some(name) = symbol.as_ref().and_then(|s| s.name().ok()) {
                    names.insert(address, name.to_owned());
                }
            }
        }
    }
    let mut slots = Vec::new();
    for section in [".plt", ".plt.sec", ".plt.got"] {
        let Some(section) = file.section_by_name(section) else {
            continue;
        };
        let Ok(data) = section.data() else { continue };
        let step = if section.name() == Ok(".plt.got") {
            8
        } else {
            SLOT
        };
        for (n, slot) in data.chunks(step).enumerate() {
            let Some(at) = slot.windows(2).position(|w| w == [0xff, 0x25]) else {
                continue;
            };
            let Some(rel) = slot.get(at + 2..at + 6) else {
                continue;
            };
            let rel = i32::from_le_bytes([rel[0], rel[1], rel[2], rel[3]]);
            let start = section.address().wrapping_add((n * step) as u64);
            let next = start.wrapping_add(at as u64 + 6);
            if let Some(name) = names.get(&next.wrapping_add_signed(i64::from(rel))) {
                let end = start.saturating_add(step as u64);
                slots.push(Range {
                    start,
                    end,
                    name: format!("{}@plt", demangle(name)),
                });
            }
        }
    }
    slots
}

/// Function ranges by `.eh_frame`.
fn unwind_ranges(file: &object::File<'_>) -> Vec<(u64, u64)> {
    let Some(section) = file.section_by_name(".eh_frame") else {
        return Vec::new();
    };
    let Ok(data) = section.data() else {
        return Vec::new();
    };
    let address_of = |name| file.section_by_name(name).map_or(0, |s| s.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(address_of(".text"))
        .set_got(address_of(".got"));
    let mut eh_frame = EhFrame::new(data, LittleEndian);
    eh_frame.set_address_size(8);
    let mut entries = eh_frame.entries(&bases);
    let mut cies: HashMap<usize, gimli::CommonInformationEntry<EndianSlice<'_, LittleEndian>>> =
        HashMap::new();
    let mut ranges = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(|section, bases, offset| {
            // A few CIEs serve thousands of functions.
            if let Some(cie) = cies.get(&offset.0) {
                return Ok(cie.clone());
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(offset.0, cie.clone());
            Ok(cie)
        });
        if let Ok(fde) = fde {
            ranges.push((fde.initial_address(), fde.end_address()));
        }
    }
    ranges.sort_unstable();
    ranges
}

/// Static objects of a module by address.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Sorted by start; names still mangled.
    symbols: Vec<Range>,
    sections: Vec<Range>,
}

impl Objects {
    pub(super) fn new(loaded: &Loaded) -> Self {
        let mut symbols: Vec<Range> = Vec::new();
        for bytes in [&loaded.debug, &loaded.object].into_iter().flatten() {
            let Ok(file) = object::File::parse(bytes.as_slice()) else {
                continue;
            };
            for symbol in file.symbols().chain(file.dynamic_symbols()) {
                if symbol.kind() == SymbolKind::Data
                    && symbol.size() > 0
                    && !symbol.is_undefined()
                    && let Ok(name) = symbol.name()
                {
                    let start = symbol.address();
                    let end = start.saturating_add(symbol.size());
                    symbols.push(Range {
                        start,
                        end,
                        name: name.to_owned(),
                    });
                }
            }
        }
        symbols.sort_by(|a, b| {
            (a.start, a.name.len(), &a.name).cmp(&(b.start, b.name.len(), &b.name))
        });
        symbols.dedup_by_key(|r| r.start);
        Objects {
            symbols,
            sections: data_sections(loaded),
        }
    }

    /// Those at `offsets` (sorted): start, size, demangled name, each once, in order.
    pub(super) fn at(&self, offsets: &[u64]) -> Vec<(u64, u64, String)> {
        let mut found: Vec<(u64, u64, String)> = Vec::new();
        for &offset in offsets {
            let after = self.symbols.partition_point(|r| r.start <= offset);
            let symbol = self.symbols[..after].last().filter(|r| offset < r.end);
            let range = symbol.or_else(|| {
                self.sections
                    .iter()
                    .find(|r| r.start <= offset && offset < r.end)
            });
            if let Some(r) = range {
                let name = if symbol.is_some() {
                    demangle(&r.name)
                } else {
                    r.name.clone()
                };
                found.push((r.start, r.end - r.start, name));
            }
        }
        keep_apart(found)
    }
}

/// Sections contain symbols, and a reader finds an object by its nearest start: a section that
/// has symbols inside is therefore cut into the pieces between them.
fn keep_apart(mut found: Vec<(u64, u64, String)>) -> Vec<(u64, u64, String)> {
    // Of those that begin together the one that encloses the others comes first.
    found.sort_by(|a, b| (a.0, Reverse(a.1), &a.2).cmp(&(b.0, Reverse(b.1), &b.2)));
    found.dedup();
    let mut pieces: Vec<(u64, u64, String)> = Vec::new();
    // Ranges that enclose what follows, outermost first.
    let mut open: Vec<(u64, String)> = Vec::new();
    let mut cursor = 0;
    let mut emit = |start: u64, end: u64, name: &str| {
        if end > start {
            pieces.push((start, end - start, name.to_owned()));
        }
    };
    for (start, size, name) in found {
        while let Some((end, outer)) = open.last() {
            if *end > start {
                break;
            }
            emit(cursor, *end, outer);
            cursor = cursor.max(*end);
            open.pop();
        }
        if let Some((_, outer)) = open.last() {
            emit(cursor, start, outer);
        }
        cursor = cursor.max(start);
        open.push((start.saturating_add(size), name));
    }
    while let Some((end, outer)) = open.pop() {
        emit(cursor, end, &outer);
        cursor = cursor.max(end);
    }
    pieces
}

fn data_sections(loaded: &Loaded) -> Vec<Range> {
    let Some(bytes) = &loaded.object else {
        return Vec::new();
    };
    let Ok(file) = object::File::parse(bytes.as_slice()) else {
        return Vec::new();
    };
    file.sections()
        .filter(|s| s.address() != 0 && s.size() > 0)
        .filter_map(|s| {
            Some(Range {
                start: s.address(),
                end: s.address().checked_add(s.size())?,
                name: s.name().ok()?.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64, name: &str) -> Range {
        Range {
            start,
            end,
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_lies_in_a_section_is_cut_out_of_it() {
        let named = |found: &[(u64, u64, &str)]| -> Vec<(u64, u64, String)> {
            let owned = found
                .iter()
                .map(|&(start, size, name)| (start, size, name.to_owned()));
            owned.collect()
        };
        let section = (100, 100, ".bss");
        for (inside, pieces) in [
            ((100, 5, "a"), vec![(100, 5, "a"), (105, 95, ".bss")]),
            (
                (110, 5, "a"),
                vec![(100, 10, ".bss"), (110, 5, "a"), (115, 85, ".bss")],
            ),
            ((195, 5, "a"), vec![(100, 95, ".bss"), (195, 5, "a")]),
            // Nor do those overlap that are said to.
            ((195, 9, "a"), vec![(100, 95, ".bss"), (195, 9, "a")]),
        ] {
            let found = keep_apart(named(&[inside, section, section]));
            assert_eq!(found, named(&pieces));
        }
    }

    #[test]
    fn an_address_is_named_no_surer_than_it_is() {
        let functions = Functions {
            symbols: vec![range(0x100, 0x140, "sized"), range(0x200, 0x200, "bare")],
            unwind: vec![(0x180, 0x1a0), (0x200, 0x280)],
        };
        let name = |s: &str| Place::Function(s.to_owned());
        assert_eq!(functions.place(0x13f), name("sized"));
        assert_eq!(
            functions.place(0x140),
            Place::Near("sized".to_owned(), 0x40)
        );
        assert_eq!(functions.place(0x190), Place::Nameless(0x180));
        assert_eq!(functions.place(0x210), name("bare"));
        assert_eq!(
            functions.place(0x300),
            Place::Near("bare".to_owned(), 0x100)
        );
        assert_eq!(functions.place(0x50), Place::Unknown);
    }

    #[test]
    fn a_section_is_cut_around_the_symbols_in_it() {
        let s = |start, size, name: &str| (start, size, name.to_owned());
        let pieces = keep_apart(vec![
            s(0, 100, ".bss"),
            s(10, 5, "a"),
            s(40, 10, "b"),
            s(120, 4, "c"),
        ]);
        let expected = [
            s(0, 10, ".bss"),
            s(10, 5, "a"),
            s(15, 25, ".bss"),
            s(40, 10, "b"),
            s(50, 50, ".bss"),
            s(120, 4, "c"),
        ];
        assert_eq!(pieces, expected);
    }
}
