//! Inline chains from DWARF, with the symbol table where there is none.

use std::borrow::Cow;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, DwarfSections, EndianReader, EndianSlice, LittleEndian, Reader, SectionId};
use object::{Object, ObjectSection};
use std::rc::Rc;
use std::sync::Arc;

use super::demangle::demangle;
use super::files::{Files, Loaded};
use super::split;
use super::table::{Functions, Place};
use crate::profile::types::{Frame, Module};

/// Sections that belong to those who read them.
pub(super) type Shared = EndianReader<LittleEndian, Rc<[u8]>>;

/// The debug information of a module, which stays open to be asked again.
pub(super) type Open = Context<Shared>;

/// What finds the debug information of a unit that is elsewhere.
pub(super) type Split<'a, R> = &'a dyn Fn(SplitDwarfLoad<R>) -> Option<Arc<Dwarf<R>>>;

/// The inline chain at each address, innermost first, never empty.
pub(super) fn frames(
    files: &dyn Files,
    module: &Module,
    loaded: &Loaded,
    addresses: &[u64],
) -> Vec<Vec<Frame>> {
    let functions = Functions::new(loaded);
    let bytes = loaded.debug.as_ref().or(loaded.object.as_ref());
    let sections = bytes.map(|bytes| sections(bytes));
    let supplement = loaded.supplement.as_ref().map(|b| self::sections(b));
    let slice = |section| EndianSlice::new(section, LittleEndian);
    let dwarf = match (&sections, &supplement) {
        (Some(sections), Some(sup)) => {
            Some(sections.borrow_with_sup(sup, |s: &Cow<'_, [u8]>| slice(s)))
        }
        (Some(sections), None) => Some(sections.borrow(|s| slice(s))),
        (None, _) => None,
    };
    if dwarf.as_ref().is_some_and(split::is_split) {
        let context = open(loaded);
        let split = |unit| split::load(files, module, unit);
        let chain = |&at: &u64| chain(module, &functions, context.as_ref(), &split, at);
        return addresses.iter().map(chain).collect();
    }
    let context = dwarf.and_then(|dwarf| Context::from_dwarf(dwarf).ok());
    let chain = |&at: &u64| chain(module, &functions, context.as_ref(), &|_| None, at);
    addresses.iter().map(chain).collect()
}

/// The inline chain at one address, as [`frames`].
pub(super) fn chain<R: Reader>(
    module: &Module,
    functions: &Functions,
    context: Option<&Context<R>>,
    split: Split<'_, R>,
    address: u64,
) -> Vec<Frame> {
    let fallback = || by_symbol(module, functions, address);
    let by_dwarf = context.map(|context| by_dwarf(context, split, address));
    let mut chain = by_dwarf.unwrap_or_default();
    if chain.is_empty() {
        return vec![fallback()];
    }
    // DWARF of assembly has lines but no functions.
    if let Some(outermost) = chain.last_mut().filter(|f| f.function.is_empty()) {
        outermost.function = fallback().function;
    }
    chain
}

/// Opens the debug information to be asked as often as wanted.
pub(super) fn open(loaded: &Loaded) -> Option<Open> {
    let share = |bytes: &Vec<u8>| {
        sections(bytes).borrow(|s| EndianReader::new(Rc::from(&**s), LittleEndian))
    };
    let mut dwarf = share(loaded.debug.as_ref().or(loaded.object.as_ref())?);
    if let Some(supplement) = &loaded.supplement {
        dwarf.set_sup(share(supplement));
    }
    Context::from_dwarf(dwarf).ok()
}

/// Bytes that the debug information of an object takes when it is open, without what is parsed of it.
pub(super) fn open_bytes(bytes: &[u8]) -> u64 {
    let Ok(file) = object::File::parse(bytes) else {
        return 0;
    };
    let size = |id: &SectionId| {
        let section = file.section_by_name(id.name())?;
        Some(section.compressed_data().ok()?.uncompressed_size)
    };
    READ.iter().filter_map(size).sum()
}

fn by_dwarf<R: Reader>(context: &Context<R>, split: Split<'_, R>, address: u64) -> Vec<Frame> {
    let mut chain = Vec::new();
    let mut found = context.find_frames(address);
    let found = loop {
        match found {
            LookupResult::Output(found) => break found,
            LookupResult::Load { load, continuation } => found = continuation.resume(split(load)),
        }
    };
    let Ok(mut frames) = found else {
        return chain;
    };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame
            .function
            .as_ref()
            .and_then(|f| f.raw_name().ok())
            .map(|name| demangle(&name))
            .unwrap_or_default();
        let (file, line) = match &frame.location {
            Some(l) => (tidy(l.file.unwrap_or_default()), l.line.unwrap_or(0)),
            None => (String::new(), 0),
        };
        if !function.is_empty() || line != 0 {
            chain.push(Frame {
                function,
                file,
                line,
            });
        }
    }
    chain
}

fn by_symbol(module: &Module, functions: &Functions, address: u64) -> Frame {
    let object = short_module_name(&module.path);
    let function = match functions.place(address) {
        Place::Function(name) => name,
        Place::Near(name, by) => format!("{name}+{by:#x}"),
        Place::Nameless(start) => format!("{object}+{start:#x}"),
        Place::Unknown => format!("{object}+{address:#x}"),
    };
    Frame {
        function,
        file: String::new(),
        line: 0,
    }
}

/// The last component of a module's path; `[vdso]` stays as it is.
#[must_use]
pub fn short_module_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/')
        .next()
        .filter(|n| !n.is_empty())
        .unwrap_or(path)
}

/// `a/./b` and `a/x/../b` are `a/b`: compilers join directories as they come.
fn tidy(path: &str) -> String {
    if !path.contains("/.") {
        return path.to_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|p| !p.is_empty() && *p != "..") => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// The sections that source positions are read from. Others, descriptions of variables above all, are as large
/// and have to be decompressed too.
const READ: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

fn sections(bytes: &[u8]) -> DwarfSections<Cow<'_, [u8]>> {
    let file = object::File::parse(bytes).ok();
    let load = |id: SectionId| -> Result<Cow<'_, [u8]>, std::convert::Infallible> {
        let file = file.as_ref().filter(|_| READ.contains(&id));
        let section = file.and_then(|f| f.section_by_name(id.name()));
        Ok(section
            .and_then(|s| s.uncompressed_data().ok())
            .unwrap_or_default())
    };
    match DwarfSections::load(load) {
        Ok(sections) => sections,
        Err(never) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_tidied_and_modules_shortened() {
        assert_eq!(tidy("/a/./b/../c.c"), "/a/c.c");
        assert_eq!(tidy("../x.c"), "../x.c");
        assert_eq!(tidy("./x.c"), "./x.c");
        assert_eq!(short_module_name("/usr/lib/libc.so.6"), "libc.so.6");
        assert_eq!(short_module_name("/opt/app (deleted)"), "app");
        assert_eq!(short_module_name("[vdso]"), "[vdso]");
    }
}
