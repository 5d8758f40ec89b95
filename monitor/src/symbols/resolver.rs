//! One module, read once, that stays open to be asked again: it answers as [`super::name`] does.

use super::frames::{self, Open};
use super::table::{Functions, Objects};
use super::{Files, Found, SystemFiles, Wanted, files, split};
use crate::profile::types::{Frame, Module};
use rustc_hash::FxHashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Names the addresses of one module, whose file is ours. Belongs to one thread.
pub struct Resolver {
    module: Module,
    functions: Functions,
    objects: Objects,
    context: Option<Open>,
    /// What was named before.
    known: FxHashMap<u64, Vec<Frame>>,
}

/// The module would take more memory than there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Largest file that is read.
const MOST_FILE: u64 = 40 << 20;

impl Resolver {
    /// Reads `module`, where what is kept of it takes no more than about `most` bytes; gives the bytes taken, too.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn open(module: &Module, most: u64) -> Result<(Self, u64), TooLarge> {
        let files = Limited {
            refused: AtomicBool::new(false),
        };
        let loaded = files::load(&files, module);
        if files.refused.into_inner() {
            return Err(TooLarge);
        }
        let all = [&loaded.object, &loaded.debug, &loaded.supplement];
        // What is parsed of debug information takes half as much as that at the most, as a rule. (Guessed.)
        let bytes = |b: &Vec<u8>| 3 * frames::open_bytes(b) / 2;
        let taken: u64 = all.into_iter().flatten().map(bytes).sum();
        if taken > most {
            return Err(TooLarge);
        }
        let resolver = Resolver {
            module: module.clone(),
            functions: Functions::new(&loaded),
            objects: Objects::new(&loaded),
            context: frames::open(&loaded),
            known: FxHashMap::default(),
        };
        Ok((resolver, taken))
    }

    /// Finds names of instructions ahead of [`Resolver::name`]; says of how many it did not know them.
    pub fn learn(&mut self, instrs: &[u64]) -> usize {
        let before = self.known.len();
        for &address in instrs {
            if !self.known.contains_key(&address) {
                let chain = self.chain(address);
                self.known.insert(address, chain);
            }
        }
        self.known.len() - before
    }

    /// Names what is wanted,.
    pub fn name(&mut self, wanted: Wanted) -> Found {
        let known = |address: &u64| {
            let known = self.known.get(address).cloned();
            known.unwrap_or_else(|| self.chain(*address))
        };
        Found {
            frames: wanted.instrs.iter().map(known).collect(),
            objects: super::objects(&self.objects, wanted.touched),
        }
    }

    fn chain(&self, address: u64) -> Vec<Frame> {
        let files = SystemFiles::default();
        let context = self.context.as_ref();
        let split = |unit| split::load(&files, &self.module, unit);
        frames::chain(&self.module, &self.functions, context, &split, address)
    }
}

/// The files of this machine, but for large ones.
struct Limited {
    /// Whether there was a file too large.
    refused: AtomicBool,
}

impl Files for Limited {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        if std::fs::metadata(path).is_ok_and(|m| m.len() > MOST_FILE) {
            self.refused.store(true, Ordering::Relaxed);
            return None;
        }
        SystemFiles::default().read(path)
    }
}
