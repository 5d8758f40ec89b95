//! Names for all processes of a run at once: a library that fifty of them use is read once.

use super::recorder::Recorder;
use super::root::ForeignFiles;
use crate::profile::types::{Frame, Instr, InstrId, Module, ModuleId};
use crate::symbols;
use rustc_hash::FxHashMap;

/// What [`Recorder::finish`] writes beside the footer.
#[derive(Debug, Default)]
pub struct Names {
    /// Source positions, in the order of the process's instructions.
    pub frames: Vec<Vec<Frame>>,
    /// Static objects: module, start, size, name.
    pub data: Vec<(ModuleId, u64, u64, String)>,
}

/// The tables of several processes as one.
#[derive(Default)]
struct Union {
    modules: Vec<Module>,
    module_ids: FxHashMap<(String, String), ModuleId>,
    instrs: Vec<Instr>,
    instr_ids: FxHashMap<Instr, InstrId>,
}

impl Union {
    /// The number here of each of a process's modules. Where it is loaded makes no difference.
    fn modules(&mut self, of: &[Module]) -> Vec<ModuleId> {
        of.iter()
            .map(|module| {
                let key = (module.path.clone(), module.build_id.clone());
                let next = self.modules.len() as ModuleId;
                let id = *self.module_ids.entry(key).or_insert(next);
                if id == next {
                    self.modules.push(module.clone());
                }
                id
            })
            .collect()
    }

    fn instr(&mut self, instr: Instr) -> InstrId {
        let next = self.instrs.len() as InstrId;
        let id = *self.instr_ids.entry(instr).or_insert(next);
        if id == next {
            self.instrs.push(instr);
        }
        id
    }
}

/// Resolves everything that the recorders refer to; one [`Names`] for each, in their order.
pub fn resolve<'r>(recorders: impl Iterator<Item = &'r Recorder>) -> Vec<Names> {
    let mut union = Union::default();
    let mut touched: Vec<(ModuleId, u64)> = Vec::new();
    let mut parts = Vec::new();
    let mut files = ForeignFiles::default();
    for recorder in recorders {
        files.merge(recorder.files());
        let modules = union.modules(recorder.modules());
        let instrs = recorder.instrs().iter().map(|instr| Instr {
            module: instr.module.map(|module| modules[module as usize]),
            offset: instr.offset,
        });
        let instrs: Vec<InstrId> = instrs.map(|instr| union.instr(instr)).collect();
        let own: Vec<(ModuleId, u64)> = recorder.touched().collect();
        touched.extend(
            own.iter()
                .map(|&(module, offset)| (modules[module as usize], offset)),
        );
        parts.push((modules, instrs, own));
    }
    let frames = symbols::resolve_with(&files, &union.modules, &union.instrs);
    let mut data = symbols::resolve_data_with(&files, &union.modules, touched);
    data.sort_by_key(|&(module, start, size, _)| (module, start, size));
    parts
        .into_iter()
        .map(|(modules, instrs, own)| Names {
            frames: instrs
                .iter()
                .map(|&id| frames[id as usize].clone())
                .collect(),
            data: own_data(&data, &modules, &own),
        })
        .collect()
}

/// Those of `data` that a process has touched, by its own module numbers.
fn own_data(
    data: &[(ModuleId, u64, u64, String)],
    modules: &[ModuleId],
    touched: &[(ModuleId, u64)],
) -> Vec<(ModuleId, u64, u64, String)> {
    let mut own: Vec<_> = touched
        .iter()
        .filter_map(|&(module, offset)| {
            let id = modules[module as usize];
            let after = data.partition_point(|d| (d.0, d.1) <= (id, offset));
            let (found, start, size, name) = data[..after].last()?;
            let holds = *found == id && offset - start < (*size).max(1);
            holds.then(|| (module, *start, *size, name.clone()))
        })
        .collect();
    own.sort();
    own.dedup();
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_one_wherever_they_are_loaded() {
        let module = |path: &str, bias| Module {
            path: path.to_owned(),
            bias,
            build_id: "ab".to_owned(),
        };
        let mut union = Union::default();
        assert_eq!(union.modules(&[module("/a", 1), module("/b", 2)]), [0, 1]);
        assert_eq!(union.modules(&[module("/b", 7), module("/c", 3)]), [1, 2]);
        let instr = |module, offset| Instr {
            module: Some(module),
            offset,
        };
        let ids = [instr(0, 5), instr(1, 5), instr(0, 5)].map(|i| union.instr(i));
        assert_eq!(ids, [0, 1, 0]);
    }

    #[test]
    fn a_process_gets_the_objects_it_touched() {
        let data = vec![
            (0, 8, 8, "x".to_owned()),
            (2, 16, 0, "y".to_owned()),
            (2, 32, 8, "z".to_owned()),
        ];
        // Its module 0 is number 2 of all.
        let own = own_data(&data, &[2], &[(0, 16), (0, 33), (0, 39), (0, 40), (0, 1)]);
        assert_eq!(
            own,
            [(0, 16, 0, "y".to_owned()), (0, 32, 8, "z".to_owned())]
        );
    }
}
