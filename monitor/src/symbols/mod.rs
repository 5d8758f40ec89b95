//! From addresses in object files to source lines, functions and static objects.
//!
//! [`resolve`] and [`resolve_data`] are called by the session before it closes a profile, so that
//! the file needs nothing of this machine to be read. The parsing ([`object_file`], [`table`],
//! [`frames`]) works on bytes it is handed and does no IO; [`files`] finds the bytes: the object,
//! its separate debug file, the file that one shares strings with. Each module is read once, only
//! when an address lies in it, modules in parallel.

mod demangle;
mod files;
mod frames;
mod object_file;
mod table;

use std::collections::HashMap;

use rayon::prelude::*;

use crate::profile::types::{Frame, Instr, Module, ModuleId};

pub use files::{Files, SystemFiles};
pub use frames::short_module_name;
pub use object_file::build_id;

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
    let mut by_module: HashMap<ModuleId, Vec<usize>> = HashMap::new();
    for (at, instr) in instrs.iter().enumerate() {
        if let Some(module) = instr.module {
            by_module.entry(module).or_default().push(at);
        }
    }
    let resolved: Vec<(Vec<usize>, Vec<Vec<Frame>>)> = by_module
        .into_par_iter()
        .filter_map(|(id, places)| {
            let module = modules.get(id as usize)?;
            let addresses: Vec<u64> = places.iter().map(|&at| instrs[at].offset).collect();
            let loaded = files::load(files, module);
            Some((places, frames::frames(module, &loaded, &addresses)))
        })
        .collect();
    let mut all = vec![Vec::new(); instrs.len()];
    for (places, frames) in resolved {
        for (at, chain) in places.into_iter().zip(frames) {
            all[at] = chain;
        }
    }
    all
}

/// The static objects that contain the addresses touched: module, start, size, demangled name.
///
/// An address without a symbol (a stripped object) is given its section, `.bss` for instance.
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
    let mut by_module: HashMap<ModuleId, Vec<u64>> = HashMap::new();
    for (module, offset) in touched {
        by_module.entry(module).or_default().push(offset);
    }
    let mut all: Vec<_> = by_module
        .into_par_iter()
        .filter_map(|(id, mut offsets)| {
            let module = modules.get(id as usize)?;
            offsets.sort_unstable();
            offsets.dedup();
            let loaded = files::load(files, module);
            let mut found: Vec<_> = table::data_symbols(&loaded, &offsets)
                .into_iter()
                .map(|(start, size, name)| (id, start, size, name))
                .collect();
            found.dedup();
            Some(found)
        })
        .flatten()
        .collect();
    all.sort();
    all
}
