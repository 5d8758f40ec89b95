//! Names for all processes of a run at once: a library that fifty of them use is read once.

use super::ahead::{self, Ahead, Key};
use super::memory;
use super::recorder::Recorder;
use super::root::ForeignFiles;
use crate::profile::types::{Frame, Instr, InstrId, Module, ModuleId};
use crate::symbols::{self, Files, Found, Wanted};
use rustc_hash::FxHashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    module_ids: FxHashMap<Key, ModuleId>,
    instrs: Vec<Instr>,
    instr_ids: FxHashMap<Instr, InstrId>,
}

impl Union {
    /// The number here of each of a process's modules. Where it is loaded makes no difference.
    fn modules(&mut self, of: &[Module]) -> Vec<ModuleId> {
        of.iter()
            .map(|module| {
                let key = ahead::key(module);
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

/// A file and what is parsed of it take so many times its bytes: twice where there is much debug information that is not compressed,
/// measured with this program; that may be a third of its size when it is.
const TIMES_ITS_BYTES: u64 = 3;

/// Files that are read as long as there is memory for them.
struct Within<'f> {
    files: &'f ForeignFiles,
    left: AtomicU64,
    /// Whether there was one for which there was not enough.
    refused: AtomicBool,
}

impl<'f> Within<'f> {
    /// Three quarters of what is left, at the most.
    fn new(files: &'f ForeignFiles, left: Option<u64>) -> Within<'f> {
        Within {
            files,
            left: AtomicU64::new(left.map_or(u64::MAX, |left| left - left / 4)),
            refused: AtomicBool::new(false),
        }
    }
}

impl Files for Within<'_> {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let takes = self.size(path).saturating_mul(TIMES_ITS_BYTES);
        let without = |left: u64| left.checked_sub(takes);
        let order = Ordering::Relaxed;
        if self.left.fetch_update(order, order, without).is_err() {
            self.refused.store(true, order);
            return None;
        }
        self.files.read(path)
    }

    fn size(&self, path: &Path) -> u64 {
        self.files.size(path)
    }
}

/// Resolves everything that the recorders refer to, with what is known `ahead`; one [`Names`] for each, in their
/// order. Where that would take more memory than there is none of what lies in files is named, and `false` comes with
/// it: whoever reads the profile looks up what has no names.
pub fn resolve<'r>(
    recorders: impl Iterator<Item = &'r Recorder>,
    ahead: Option<Ahead>,
) -> (Vec<Names>, bool) {
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
        parts.push((recorder, modules, instrs, own));
    }
    let mut wanted = vec![Wanted::default(); union.modules.len()];
    for (module, offset) in touched {
        wanted[module as usize].touched.push(offset);
    }
    for instr in &union.instrs {
        if let Some(module) = instr.module {
            wanted[module as usize].instrs.push(instr.offset);
        }
    }
    let within = Within::new(&files, memory::left());
    let mut found = name(&within, &union.modules, wanted, ahead);
    let refused = within.refused.into_inner();
    if refused {
        // All of them: one whose debug file was refused would be named by its symbols alone, for good.
        found.fill(Found::default());
    }
    let mut data = Vec::new();
    let mut chains: Vec<_> = Vec::with_capacity(found.len());
    for (id, found) in found.into_iter().enumerate() {
        let objects = found.objects.into_iter();
        data.extend(objects.map(|(start, size, name)| (id as ModuleId, start, size, name)));
        chains.push(found.frames.into_iter());
    }
    data.sort_by_key(|&(module, start, size, _)| (module, start, size));
    let frames: Vec<Vec<Frame>> = union
        .instrs
        .iter()
        .map(|instr| match instr.module {
            Some(module) => chains[module as usize].next().unwrap_or_default(),
            None => Vec::new(),
        })
        .collect();
    let names = parts
        .into_iter()
        .map(|(recorder, modules, instrs, own)| {
            let mut of_process: Vec<Vec<Frame>> = instrs
                .iter()
                .map(|&id| frames[id as usize].clone())
                .collect();
            name_generated(recorder, &mut of_process);
            Names {
                frames: of_process,
                data: own_data(&data, &modules, &own),
            }
        })
        .collect();
    (names, !refused)
}

/// Names instructions that lie in no file by what their compiler says.
fn name_generated(recorder: &Recorder, frames: &mut [Vec<Frame>]) {
    let address = |instr: &Instr| match instr.module {
        None => Some(instr.offset),
        Some(module) => {
            let module = &recorder.modules()[module as usize];
            // Mapped twice, to be written and to be executed.
            let is_memory = module.path.starts_with("/memfd:");
            is_memory.then(|| instr.offset.wrapping_add(module.bias))
        }
    };
    let generated = recorder.instrs().iter().enumerate();
    let (places, addresses): (Vec<usize>, Vec<u64>) = generated
        .filter_map(|(i, instr)| Some((i, address(instr)?)))
        .unzip();
    if addresses.is_empty() {
        return;
    }
    let names = recorder.generated_names(&addresses).unwrap_or_default();
    for (place, name) in places.into_iter().zip(names) {
        if let (Some(function), Some(frames)) = (name, frames.get_mut(place)) {
            *frames = vec![Frame {
                function,
                file: String::new(),
                line: 0,
            }];
        }
    }
}

/// Names what is wanted of each module, of those opened ahead on their own thread.
fn name(
    files: &Within,
    modules: &[Module],
    wanted: Vec<Wanted>,
    ahead: Option<Ahead>,
) -> Vec<Found> {
    let mut all = vec![Found::default(); modules.len()];
    let mut left: Vec<usize> = (0..modules.len()).collect();
    let rest = |left: &[usize], wanted: &[Wanted]| {
        let of = |&id: &usize| (&modules[id], wanted[id].clone());
        symbols::name(files, &left.iter().map(of).collect::<Vec<_>>())
    };
    if let Some(ahead) = ahead {
        let taken = ahead.close();
        // Where a process with mounts of its own had a file of that path, its file is meant.
        let is_taken = |id: &usize| {
            let module = &modules[*id];
            taken.contains(&ahead::key(module)) && !files.files.holds(&module.path)
        };
        let (there, here): (Vec<usize>, Vec<usize>) = left.into_iter().partition(is_taken);
        let asked = there
            .iter()
            .map(|&id| (ahead::key(&modules[id]), wanted[id].clone()));
        let (found, others) = ahead.name(asked.collect(), || rest(&here, &wanted));
        for (id, found) in here.into_iter().zip(others) {
            all[id] = found;
        }
        let mut found: FxHashMap<Key, Found> = found.into_iter().collect();
        left = Vec::new();
        for id in there {
            match found.remove(&ahead::key(&modules[id])) {
                Some(found) => all[id] = found,
                None => left.push(id),
            }
        }
    }
    for (id, found) in left.iter().zip(rest(&left, &wanted)) {
        all[*id] = found;
    }
    all
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
    fn files_are_read_while_there_is_memory() {
        let files = ForeignFiles::default();
        let this = std::env::current_exe().expect("this test");
        let size = files.size(&this);
        assert!(size > 1 << 20, "{size}");
        // Three quarters of it may be taken.
        let least = TIMES_ITS_BYTES.div_ceil(3) * 4 * size;
        for (left, reads) in [(Some(least - 4), 0), (Some(least), 1), (None, 2)] {
            let within = Within::new(&files, left);
            let read = (0..2).filter(|_| within.read(&this).is_some()).count();
            assert_eq!(read, reads, "{left:?}");
            assert_eq!(within.refused.into_inner(), reads < 2);
        }
    }

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
