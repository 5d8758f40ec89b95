//! A whole profile in memory, and reading its file; the records are folded by [`super::fold`].
//!
//! A file that ends inside a record (the monitor was killed, the disk was full) is read up to
//! there and says so in its warnings; a file of something else is refused.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::error::ProfileError;
use super::fold::Fold;
use super::tables::in_order;
use super::types::{
    Footer, Frame, Header, Instr, InstrId, Memory, Module, ModuleId, Record, Unmet, Warning,
    WindowRecord,
};

/// A static object that a sample touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSymbol {
    /// Module it lies in.
    pub module: ModuleId,
    /// Its first address in the object file.
    pub start: u64,
    /// Its size in bytes, at least 1.
    pub size: u64,
    /// Demangled name.
    pub name: String,
}

/// A whole profile in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What was run, where and how.
    pub header: Header,
    /// Objects the program executed from or touched.
    pub modules: Vec<Module>,
    /// Instructions that were samples or triggers.
    pub instrs: Vec<Instr>,
    /// Windows in the order they were written.
    pub windows: Vec<WindowRecord>,
    /// How many looks at where the program was between windows each stands for, by its number; empty where nothing but windows tells.
    pub looks: BTreeMap<u32, f64>,
    /// What looks tell of code that no window began with, where they tell anything and all windows are here.
    pub unmet: Option<Unmet>,
    /// Source positions by [`InstrId`], innermost first; shorter than `instrs` where a run broke
    /// off before names were resolved. One in a module without any was left to the reader.
    pub symbols: Vec<Vec<Frame>>,
    /// Static objects, sorted by module and start.
    pub data_symbols: Vec<DataSymbol>,
    /// Allocation sites: the calls that led to each, the one of the allocator first; empty where none were looked for.
    pub sites: Vec<Vec<InstrId>>,
    /// How the run ended; `None` when it broke off or still goes on.
    pub footer: Option<Footer>,
    /// Whether the run still goes on: who reads the file cannot tell, who asks its profiler can.
    pub is_live: bool,
    /// What was found wrong with the file itself.
    pub read_warnings: Vec<Warning>,
    /// The other processes of the run, in the order of their first windows; each a profile of its
    /// own, with its process id and command in the header.
    pub others: Vec<Profile>,
}

/// How long a write of a record may take to be seen as a whole, and how often one is waited for.
const WRITING: Duration = Duration::from_millis(5);
const LOOKS: u32 = 20;
/// A thread's clock and the wall differ by less, seconds (proc_pid_stat(5) counts ticks of a hundredth).
const CLOCKS_DIFFER_S: f64 = 0.05;

impl Profile {
    /// Reads the profile at `path`.
    ///
    /// # Errors
    /// [`ProfileError`] when it cannot be read, is something else or of another version, or breaks
    /// off before its header. A torn end is no error but a warning in the result.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let bytes = || {
            fs::read(path).map_err(|source| ProfileError::Read {
                path: path.to_owned(),
                hint: if source.kind() == io::ErrorKind::NotFound {
                    ": make one with `statcache run PROGRAM`, or name the file"
                } else {
                    ""
                },
                source,
            })
        };
        let mut read = bytes()?;
        let mut fold = Fold::of_bytes(&read, path)?;
        // A reader may see half of what a live monitor is just writing. (Of a pipe nothing is left.)
        let is_file = fs::metadata(path).is_ok_and(|m| m.is_file());
        for _ in 0..LOOKS {
            if fold.torn.is_none() || !is_file {
                break;
            }
            std::thread::sleep(WRITING);
            let again = bytes()?;
            if again == read {
                break;
            }
            read = again;
            fold = Fold::of_bytes(&read, path)?;
        }
        fold.finish().map_err(|what| ProfileError::Empty {
            path: path.to_owned(),
            what,
        })
    }

    /// Whether the process ran before it was observed: its first thread had used more CPU time than there had been of the run. (One that
    /// had used next to none is not told from one that was started.)
    #[must_use]
    pub fn is_attached(&self) -> bool {
        let first = self.windows.first();
        first.is_some_and(|w| w.index == 0 && w.cpu_start_s > w.start_s + CLOCKS_DIFFER_S)
    }

    /// Folds the bytes of a profile file; `path` is only named in errors.
    ///
    /// # Errors
    /// As [`Profile::read`].
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self, ProfileError> {
        Fold::of_bytes(bytes, path)?
            .finish()
            .map_err(|what| ProfileError::Empty {
                path: path.to_owned(),
                what,
            })
    }

    /// Folds records that never were in a file.
    ///
    /// # Errors
    /// A text of what contradicts what.
    pub fn from_records(records: impl IntoIterator<Item = Record>) -> Result<Self, String> {
        let mut fold = Fold::default();
        for record in records {
            fold.add(record)?;
        }
        fold.finish().map_err(str::to_owned)
    }

    /// Everything that makes the result less sure: of the run and of the file.
    pub fn warnings(&self) -> impl Iterator<Item = &Warning> {
        let of_run = self.footer.iter().flat_map(|f| &f.warnings);
        of_run.chain(&self.read_warnings)
    }

    /// Source positions of an instruction, innermost first; empty when unknown.
    #[must_use]
    pub fn frames(&self, id: InstrId) -> &[Frame] {
        self.symbols.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// Every address of static data that a sample touched, with its module, each once, in order.
    #[must_use]
    pub fn static_data(&self) -> Vec<(ModuleId, u64)> {
        let samples = self.windows.iter().flat_map(|w| &w.samples);
        let mut touched: Vec<(ModuleId, u64)> = samples
            .filter_map(|taken| match taken.sample.memory {
                Memory::Static { module, offset } => Some((module, offset)),
                _ => None,
            })
            .collect();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Adds names of static objects: module, start, size, name.
    pub fn name_data(&mut self, names: impl IntoIterator<Item = (ModuleId, u64, u64, String)>) {
        self.data_symbols.extend(
            names
                .into_iter()
                .map(|(module, start, size, name)| DataSymbol {
                    module,
                    start,
                    size: size.max(1),
                    name,
                }),
        );
        in_order(&mut self.data_symbols);
    }

    /// The static object at an address of an object file.
    #[must_use]
    pub fn data_symbol(&self, module: ModuleId, offset: u64) -> Option<&DataSymbol> {
        let after = self
            .data_symbols
            .partition_point(|s| (s.module, s.start) <= (module, offset));
        let symbol = self.data_symbols[..after].last()?;
        (symbol.module == module && offset - symbol.start < symbol.size).then_some(symbol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example::beginning;
    use crate::profile::frame;
    use crate::profile::types::{Estimate, OLDEST_SCHEMA_VERSION, SCHEMA_VERSION};

    fn bytes(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
        let mut out = frame::preamble().to_vec();
        let mut ends = vec![out.len()];
        for r in records {
            out.extend(frame::encode(r, frame::Effort::Low).unwrap());
            ends.push(out.len());
        }
        (out, ends)
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_was_complete_and_a_warning() {
        let mut records = beginning();
        records.push(Record::Footer(Footer::default()));
        let (all, ends) = bytes(&records);
        for n in 0..=all.len() {
            let read = Profile::from_bytes(&all[..n], Path::new("p.prof"));
            let whole = ends.iter().filter(|&&e| e <= n).count().saturating_sub(1);
            if whole == 0 {
                let text = read.unwrap_err().to_string();
                assert!(
                    text.starts_with("p.prof ") && !text.contains('\n'),
                    "{text}"
                );
                continue;
            }
            let p = read.unwrap();
            assert_eq!(p.modules.len(), usize::from(whole > 1));
            assert_eq!(p.instrs.len(), usize::from(whole > 2));
            assert_eq!(p.footer.is_some(), whole > 3);
            assert_eq!(
                p.warnings().count(),
                usize::from(n < all.len()),
                "cut at {n}"
            );
        }
    }

    #[test]
    fn what_came_through_a_pipe_is_not_looked_for_again() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let mut records = beginning();
        records.push(Record::Footer(Footer::default()));
        let (all, _) = bytes(&records);
        let (from, mut to) = std::io::pipe().unwrap();
        to.write_all(&all[..all.len() - 3]).unwrap();
        drop(to);
        let path = format!("/proc/self/fd/{}", from.as_raw_fd());
        let torn = Profile::read(Path::new(&path)).unwrap();
        assert_eq!((torn.instrs.len(), torn.footer.is_some()), (1, false));
    }

    #[test]
    fn a_process_that_ran_before_is_told_from_one_that_was_started() {
        use crate::profile::example::window;
        let with = |cpu_start_s, start_s| {
            let mut records = beginning();
            records.push(Record::Window(WindowRecord {
                cpu_start_s,
                start_s,
                ..window(0, 1000, Estimate::default())
            }));
            Profile::from_records(records).unwrap().is_attached()
        };
        assert!(with(3.0, 0.01) && !with(0.01, 0.01) && !with(0.4, 0.5));
        assert!(!Profile::from_records(beginning()).unwrap().is_attached());
    }

    #[test]
    fn bad_factors_are_refused_in_one_line() {
        for bad in [-0.5, f64::NAN, f64::INFINITY] {
            let factor = Estimate {
                value: 1.0,
                low: 1.0,
                high: bad,
            };
            let mut records = beginning();
            records.push(Record::Shares(vec![(7, factor)]));
            let (all, _) = bytes(&records);
            let text = Profile::from_bytes(&all, Path::new("p"))
                .unwrap_err()
                .to_string();
            assert_eq!(
                text,
                format!("p is damaged: window 7 stands for {bad} times as much: profile again")
            );
        }
    }

    #[test]
    fn other_files_are_refused_in_one_line() {
        let read = |b: &[u8]| {
            Profile::from_bytes(b, Path::new("x"))
                .unwrap_err()
                .to_string()
        };
        assert!(read(b"hello world, this is text").contains("not a statcache profile"));
        let mut newer = frame::preamble();
        let next = SCHEMA_VERSION + 1;
        newer[frame::MAGIC.len()] = next as u8;
        assert!(read(&newer).contains(&format!(
            "format {next}, this statcache reads formats {OLDEST_SCHEMA_VERSION} to {SCHEMA_VERSION}"
        )));
        let text = Profile::read(Path::new("/nonexistent.prof"))
            .unwrap_err()
            .to_string();
        assert!(text.contains("statcache run PROGRAM"), "{text}");
    }

    #[test]
    fn data_named_later_is_found_too() {
        let mut p = Profile::from_records(beginning()).unwrap();
        p.name_data([
            (0, 0x300, 4, "late".to_owned()),
            (0, 0x100, 4, "early".to_owned()),
        ]);
        let name = |offset| p.data_symbol(0, offset).map(|s| s.name.as_str());
        assert_eq!((name(0x100), name(0x303)), (Some("early"), Some("late")));
        assert!(p.static_data().is_empty());
    }

    #[test]
    fn data_symbols_are_found_by_address() {
        let mut records = beginning();
        let symbol = |start, size, name: &str| (0, start, size, name.to_owned());
        records.push(Record::DataSymbols(vec![
            symbol(0x200, 16, "b"),
            symbol(0x100, 8, "a"),
        ]));
        let p = Profile::from_records(records).unwrap();
        let name = |offset| p.data_symbol(0, offset).map(|s| s.name.as_str());
        assert_eq!(name(0x100), Some("a"));
        assert_eq!(name(0x107), Some("a"));
        assert_eq!(name(0x108), None);
        assert_eq!(name(0x20f), Some("b"));
        assert_eq!(name(0xff), None);
    }
}
