//! Inline chains from DWARF, with the symbol table where there is none.

use std::borrow::Cow;

use addr2line::Context;
use gimli::{DwarfSections, EndianSlice, LittleEndian};
use object::{Object, ObjectSection};

use super::demangle::demangle;
use super::files::Loaded;
use super::table::{Functions, Place};
use crate::profile::types::{Frame, Module};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The inline chain at each address, innermost first, never empty.
pub(super) fn frames(module: &Module, loaded: &Loaded, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let functions = Functions::new(loaded);
    let fallback = |address: u64| by_symbol(module, &functions, address);
    let Some(bytes) = loaded.debug.as_ref().or(loaded.object.as_ref()) else {
        return addresses.iter().map(|&a| vec![fallback(a)]).collect();
    };
    let sections = sections(bytes);
    let supplement = loaded.supplement.as_ref().map(|b| self::sections(b));
    let dwarf = match &supplement {
        Some(sup) => sections.borrow_with_sup(sup, |s| EndianSlice::new(s, LittleEndian)),
        None => sections.borrow(|s| EndianSlice::new(s, LittleEndian)),
    };
    let context: Option<Context<Slice<'_>>> = Context::from_dwarf(dwarf).ok();
    addresses
        .iter()
        .map(|&address| {
            let mut chain = context
                .as_ref()
                .map(|c| by_dwarf(c, address))
                .unwrap_or_default();
            if chain.is_empty() {
                return vec![fallback(address)];
            }
            // DWARF of assembly has lines but no functions.
            if let Some(outermost) = chain.last_mut().filter(|f| f.function.is_empty()) {
                outermost.function = fallback(address).function;
            }
            chain
        })
        .collect()
}

fn by_dwarf(context: &Context<Slice<'_>>, address: u64) -> Vec<Frame> {
    let mut chain = Vec::new();
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
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

fn sections(bytes: &[u8]) -> DwarfSections<Cow<'_, [u8]>> {
    let file = object::File::parse(bytes).ok();
    let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, std::convert::Infallible> {
        let section = file.as_ref().and_then(|f| f.section_by_name(id.name()));
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
