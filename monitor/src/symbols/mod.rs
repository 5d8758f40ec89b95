//! From addresses in object files to source lines, functions and static objects.
//!
//! [`name`] is called by the session before it closes a profile, so that the file needs nothing of this machine
//! to be read; a [`Resolver`] answers while the session goes on, with the same names. The parsing ([`object_file`],
//! [`table`], [`frames`]) works on bytes it is handed and does no IO; [`files`] finds the bytes: the object,
//! its separate debug file, the file that one shares strings with, and those of its units ([`split`]). Each module is read once, only
//! when an address lies in it, modules in parallel.

mod demangle;
mod files;
mod frames;
mod object_file;
mod perf_map;
mod resolver;
mod split;
mod table;

use crate::pool;
use rayon::prelude::*;

use crate::profile::types::{Frame, Instr, Module, ModuleId};

pub use files::{Files, SystemFiles, open_regular, read_object};
pub use frames::short_module_name;
pub use object_file::build_id;
pub use perf_map::{names_of_generated, open_ordinary};
pub use resolver::{Resolver, TooLarge};

/// Addresses in one module (its object file's own) that are to be named.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Of instructions.
    pub instrs: Vec<u64>,
    /// Of static data, in any order.
    pub touched: Vec<u64>,
}

/// Their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Source positions of each instruction, innermost first, never empty.
    pub frames: Vec<Vec<Frame>>,
    /// Static objects in order, each once: start, size, demangled name. An address without a symbol (a stripped
    /// object) is given its section, `.bss` for instance.
    pub objects: Vec<(u64, u64, String)>,
}

/// Names what is wanted of each module, in order.
#[must_use]
pub fn name(files: &dyn Files, wanted: &[(&Module, Wanted)]) -> Vec<Found> {
    let of = |(module, wanted): &(&Module, Wanted)| {
        if wanted.instrs.is_empty() && wanted.touched.is_empty() {
            return Found::default();
        }
        let loaded = files::load(files, module);
        let frames = match wanted.instrs.is_empty() {
            true => Vec::new(),
            false => frames::frames(files, module, &loaded, &wanted.instrs),
        };
        let objects = match wanted.touched.is_empty() {
            true => Vec::new(),
            false => objects(&table::Objects::new(&loaded), wanted.touched.clone()),
        };
        Found { frames, objects }
    };
    match pool::is_there() {
        true => wanted.par_iter().map(of).collect(),
        false => wanted.iter().map(of).collect(),
    }
}

fn objects(table: &table::Objects, mut touched: Vec<u64>) -> Vec<(u64, u64, String)> {
    touched.sort_unstable();
    touched.dedup();
    let mut found = table.at(&touched);
    found.dedup();
    found
}

/// Source positions of every instruction, innermost first, in the order of `instrs`.
///
/// An instruction of unknown place has one frame that names object and offset; one in generated
/// code has none.
#[must_use]
pub fn resolve(modules: &[Module], instrs: &[Instr]) -> Vec<Vec<Frame>> {
    resolve_with(&SystemFiles::default(), modules, instrs)
}

/// As [`resolve`], with the files of another root or of a test.
#[must_use]
pub fn resolve_with(files: &dyn Files, modules: &[Module], instrs: &[Instr]) -> Vec<Vec<Frame>> {
    let mut wanted: Vec<_> = modules.iter().map(|m| (m, Wanted::default())).collect();
    let mut places = vec![Vec::new(); modules.len()];
    for (at, instr) in instrs.iter().enumerate() {
        let module = instr.module.map(|module| module as usize);
        if let Some(module) = module.filter(|module| *module < modules.len()) {
            wanted[module].1.instrs.push(instr.offset);
            places[module].push(at);
        }
    }
    let mut all = vec![Vec::new(); instrs.len()];
    for (places, found) in places.into_iter().zip(name(files, &wanted)) {
        for (at, chain) in places.into_iter().zip(found.frames) {
            all[at] = chain;
        }
    }
    all
}

/// The static objects that contain the addresses touched: module, start, size, demangled name, as in [`Found`].
#[must_use]
pub fn resolve_data(
    modules: &[Module],
    touched: impl IntoIterator<Item = (ModuleId, u64)>,
) -> Vec<(ModuleId, u64, u64, String)> {
    resolve_data_with(&SystemFiles::default(), modules, touched)
}

/// As [`resolve_data`], with the files of another root or of a test.
#[must_use]
pub fn resolve_data_with(
    files: &dyn Files,
    modules: &[Module],
    touched: impl IntoIterator<Item = (ModuleId, u64)>,
) -> Vec<(ModuleId, u64, u64, String)> {
    let mut wanted: Vec<_> = modules.iter().map(|m| (m, Wanted::default())).collect();
    for (module, offset) in touched {
        if let Some((_, wanted)) = wanted.get_mut(module as usize) {
            wanted.touched.push(offset);
        }
    }
    let mut all = Vec::new();
    for (id, found) in name(files, &wanted).into_iter().enumerate() {
        let objects = found.objects.into_iter();
        all.extend(objects.map(|(start, size, name)| (id as ModuleId, start, size, name)));
    }
    all.sort();
    all
}
