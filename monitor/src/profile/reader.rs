//! Reading a profile: the records folded into tables, every reference checked.
//!
//! A file that ends inside a record (the monitor was killed, the disk was full) is read up to
//! there and says so in its warnings; a file of something else is refused.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::error::ProfileError;
use super::frame::{self, Decoded, PREAMBLE, Preamble};
use super::types::{
    Estimate, Footer, Frame, Header, Instr, InstrId, Memory, Module, ModuleId, Outcome, Record,
    Warning, WindowRecord,
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
    /// Source positions by [`InstrId`], innermost first; shorter than `instrs` where a run broke
    /// off before names were resolved.
    pub symbols: Vec<Vec<Frame>>,
    /// Static objects, sorted by module and start.
    pub data_symbols: Vec<DataSymbol>,
    /// How the run ended; `None` when it broke off or still goes on.
    pub footer: Option<Footer>,
    /// What was found wrong with the file itself.
    pub read_warnings: Vec<Warning>,
    /// The other processes of the run, in the order of their first windows; each a profile of its
    /// own, with its process id and command in the header.
    pub others: Vec<Profile>,
}

/// How long a write of a record may take to be seen as a whole, and how often one is waited for.
const WRITING: Duration = Duration::from_millis(5);
const LOOKS: u32 = 20;

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
        // A reader may see half of what a live monitor is just writing.
        for _ in 0..LOOKS {
            if fold.torn.is_none() {
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

/// The order in which [`Profile::data_symbol`] searches.
fn in_order(symbols: &mut [DataSymbol]) {
    symbols.sort_by_key(|a| (a.module, a.start, a.size));
}

/// A profile under construction.
#[derive(Default)]
struct Fold {
    /// Tables by process, the first process's first.
    processes: Vec<Tables>,
    /// Position of a process number in `processes`.
    places: HashMap<u32, usize>,
    current: usize,
    /// Where the file stops making sense, and its length.
    torn: Option<(usize, usize)>,
}

impl Fold {
    /// Every whole record.
    fn of_bytes(bytes: &[u8], path: &Path) -> Result<Fold, ProfileError> {
        let path = || path.to_owned();
        match frame::check_preamble(bytes) {
            Preamble::Ours => {}
            Preamble::Version(found) => {
                return Err(ProfileError::Version {
                    path: path(),
                    found,
                });
            }
            Preamble::Foreign => return Err(ProfileError::Foreign { path: path() }),
            Preamble::Short => {
                let what = "it ends inside its first bytes";
                return Err(ProfileError::Empty { path: path(), what });
            }
        }
        let mut fold = Fold::default();
        let mut at = PREAMBLE;
        while at < bytes.len() {
            match frame::decode(&bytes[at..]) {
                Decoded::Record(record, used) => {
                    fold.add(*record)
                        .map_err(|what| ProfileError::Damaged { path: path(), what })?;
                    at += used;
                }
                Decoded::Torn => {
                    fold.torn = Some((at, bytes.len()));
                    break;
                }
                Decoded::Damaged(what) => {
                    let what = format!("at byte {at}: {what}");
                    return Err(ProfileError::Damaged { path: path(), what });
                }
            }
        }
        Ok(fold)
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        if self.processes.is_empty() != matches!(record, Record::Header(_)) {
            return Err("its header is not the first record".to_owned());
        }
        match record {
            Record::Header(header) => {
                self.places.insert(0, 0);
                self.processes.push(Tables::new(header));
            }
            Record::Process(process) => {
                let next = self.processes.len();
                self.current = *self.places.entry(process.id).or_insert(next);
                if self.current == next {
                    let header = self.processes[0].header.clone();
                    self.processes.push(Tables::new(header));
                }
                // What was run is what the user typed.
                if self.current > 0 {
                    let header = &mut self.processes[self.current].header;
                    header.pid = process.pid;
                    header.ppid = process.ppid;
                    header.command = process.command;
                }
            }
            record => self.processes[self.current].add(record)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<Profile, &'static str> {
        let torn = self.torn;
        let mut profiles = self.processes.into_iter().map(|tables| tables.finish(torn));
        let first = profiles.next().ok_or("no header")?;
        Ok(Profile {
            others: profiles.collect(),
            ..first
        })
    }
}

/// What is known of one process.
struct Tables {
    header: Header,
    modules: Vec<Module>,
    instrs: Vec<Instr>,
    windows: Vec<WindowRecord>,
    by_index: HashMap<u32, usize>,
    symbols: Vec<Vec<Frame>>,
    data_symbols: Vec<DataSymbol>,
    footer: Option<Footer>,
    /// Whether windows stand for what was known at the end.
    shared_out: bool,
}

impl Tables {
    fn new(header: Header) -> Self {
        Self {
            header,
            modules: Vec::new(),
            instrs: Vec::new(),
            windows: Vec::new(),
            by_index: HashMap::new(),
            symbols: Vec::new(),
            data_symbols: Vec::new(),
            footer: None,
            shared_out: false,
        }
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Header(_) | Record::Process(_) => {
                return Err("it has two headers".to_owned());
            }
            Record::Modules(m) => self.modules.extend(m),
            Record::Instrs(instrs) => {
                for i in instrs.iter().filter_map(|i| i.module) {
                    self.module(i)?;
                }
                self.instrs.extend(instrs);
            }
            Record::Window(w) => self.window(w)?,
            Record::Symbols(s) => {
                self.symbols.extend(s);
                if self.symbols.len() > self.instrs.len() {
                    return Err("it names more instructions than it has".to_owned());
                }
            }
            Record::DataSymbols(list) => {
                for (module, start, size, name) in list {
                    self.module(module)?;
                    let size = size.max(1);
                    self.data_symbols.push(DataSymbol {
                        module,
                        start,
                        size,
                        name,
                    });
                }
            }
            Record::Shares(factors) => self.share(&factors)?,
            Record::Footer(f) => self.footer = Some(f),
        }
        Ok(())
    }

    fn window(&mut self, window: WindowRecord) -> Result<(), String> {
        if self
            .by_index
            .insert(window.index, self.windows.len())
            .is_some()
        {
            return Err(format!("it has two windows {}", window.index));
        }
        for taken in &window.samples {
            // A sample may be written with a later window than it was taken in, never an earlier.
            if taken.taken_in > window.index {
                return Err(format!(
                    "window {} holds a sample of window {}",
                    window.index, taken.taken_in
                ));
            }
            self.instr(taken.sample.ip)?;
            if let Memory::Static { module, .. } = taken.sample.memory {
                self.module(module)?;
            }
            let shared = taken.sample.shared.as_deref();
            let all = shared.map_or(&[][..], |shared| &shared.all);
            for outcome in taken.sample.own.iter().chain(all) {
                if let Outcome::Reused { trigger, .. } = *outcome {
                    self.instr(trigger)?;
                }
            }
            if let Some((writer, _)) = shared.and_then(|shared| shared.writer) {
                self.instr(writer)?;
            }
        }
        self.windows.push(window);
        Ok(())
    }

    /// Thinning may have left windows out: others stand for them, drawn so that factors hold on average.
    fn share(&mut self, factors: &[(u32, Estimate)]) -> Result<(), String> {
        self.shared_out = true;
        for &(index, factor) in factors {
            let sensible = |factor: f64| factor.is_finite() && factor >= 0.0;
            if ![factor.low, factor.value, factor.high]
                .into_iter()
                .all(sensible)
            {
                return Err(format!(
                    "window {index} stands for {factor:?} times as much"
                ));
            }
            if let Some(&at) = self.by_index.get(&index) {
                let stands_for = &mut self.windows[at].stands_for;
                stands_for.value *= factor.value;
                stands_for.low *= factor.low;
                stands_for.high *= factor.high;
                // One that others were left out for stands for them by its own factors.
                stands_for.low = stands_for.low.min(stands_for.value);
                stands_for.high = stands_for.high.max(stands_for.value);
            }
        }
        Ok(())
    }

    fn module(&self, id: ModuleId) -> Result<(), String> {
        if (id as usize) < self.modules.len() {
            Ok(())
        } else {
            Err(format!("module {id} of {}", self.modules.len()))
        }
    }

    fn instr(&self, id: InstrId) -> Result<(), String> {
        if (id as usize) < self.instrs.len() {
            Ok(())
        } else {
            Err(format!("instruction {id} of {}", self.instrs.len()))
        }
    }

    /// Windows that were left out stood for their part too.
    fn make_up(&mut self) {
        let Some(footer) = self.footer.as_ref().filter(|_| self.shared_out) else {
            return;
        };
        let total: f64 = self.windows.iter().map(|w| w.stands_for.value).sum();
        let factor = footer.accesses_estimated.value / total;
        if factor.is_finite() && factor > 0.0 {
            for window in &mut self.windows {
                window.stands_for = window.stands_for.times(factor);
            }
        }
    }

    fn finish(mut self, torn: Option<(usize, usize)>) -> Profile {
        self.make_up();
        in_order(&mut self.data_symbols);
        let mut read_warnings = Vec::new();
        if let Some((at, length)) = torn {
            read_warnings.push(Warning {
                what: format!(
                    "the profile is cut off or damaged behind byte {at} of {length}; \
                     the {} complete windows before it are used",
                    self.windows.len()
                ),
                remedy: "profile again for the whole run; check for a full disk".to_owned(),
            });
        } else if self.footer.is_none() {
            read_warnings.push(Warning {
                what: format!(
                    "the profile has no end: the profiler still runs, was killed or could \
                     not write on; the {} windows written so far are used",
                    self.windows.len()
                ),
                remedy: "wait for the run to end, or profile again".to_owned(),
            });
        }
        Profile {
            header: self.header,
            modules: self.modules,
            instrs: self.instrs,
            windows: self.windows,
            symbols: self.symbols,
            data_symbols: self.data_symbols,
            footer: self.footer,
            read_warnings,
            others: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::types::{OLDEST_SCHEMA_VERSION, ProcessRecord, SCHEMA_VERSION};

    fn base() -> Vec<Record> {
        vec![
            Record::Header(Header::example(&["./app", "x"])),
            Record::Modules(vec![Module {
                path: "/bin/app".to_owned(),
                bias: 0x1000,
                build_id: "ab".to_owned(),
            }]),
            Record::Instrs(vec![Instr {
                module: Some(0),
                offset: 16,
            }]),
        ]
    }

    fn bytes(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
        let mut out = frame::preamble().to_vec();
        let mut ends = vec![out.len()];
        for r in records {
            out.extend(frame::encode(r).unwrap());
            ends.push(out.len());
        }
        (out, ends)
    }

    #[test]
    fn a_file_cut_anywhere_gives_what_was_complete_and_a_warning() {
        let mut records = base();
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
    fn each_process_has_its_own_tables() {
        let process = |id, name: &str| {
            Record::Process(ProcessRecord {
                id,
                pid: 100 + id as i32,
                ppid: 4242,
                command: vec![name.to_owned()],
            })
        };
        let footer = |status| {
            Record::Footer(Footer {
                exit_status: Some(status),
                ..Footer::default()
            })
        };
        let mut records = base();
        records.extend([process(7, "sh"), base()[1].clone(), process(3, "ls")]);
        records.extend([
            process(7, "cc"),
            footer(5),
            process(0, "ignored"),
            footer(6),
        ]);
        let (all, _) = bytes(&records);
        let p = Profile::from_bytes(&all, Path::new("p")).unwrap();
        assert_eq!((p.header.command[0].as_str(), p.instrs.len()), ("./app", 1));
        assert_eq!(p.footer.as_ref().unwrap().exit_status, Some(6));
        let [seven, three] = &p.others[..] else {
            panic!("{:?}", p.others)
        };
        assert_eq!(
            (seven.header.pid, seven.header.command[0].as_str()),
            (107, "cc")
        );
        assert_eq!((seven.modules.len(), seven.instrs.len()), (1, 0));
        assert_eq!(seven.footer.as_ref().unwrap().exit_status, Some(5));
        assert_eq!((three.header.pid, three.modules.len()), (103, 0));
        assert_eq!((three.read_warnings.len(), p.read_warnings.len()), (1, 0));
    }

    #[test]
    fn references_to_nothing_are_damage() {
        let mut records = base();
        records.push(Record::Instrs(vec![Instr {
            module: Some(1),
            offset: 0,
        }]));
        let (all, _) = bytes(&records);
        let text = Profile::from_bytes(&all, Path::new("p"))
            .unwrap_err()
            .to_string();
        assert_eq!(text, "p is damaged: module 1 of 1: profile again");
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
        newer[frame::MAGIC.len()] = 9;
        assert!(read(&newer).contains(&format!(
            "format 9, this statcache reads formats {OLDEST_SCHEMA_VERSION} to {SCHEMA_VERSION}"
        )));
        let text = Profile::read(Path::new("/nonexistent.prof"))
            .unwrap_err()
            .to_string();
        assert!(text.contains("statcache run PROGRAM"), "{text}");
    }

    #[test]
    fn data_named_later_is_found_too() {
        let mut p = Profile::from_records(base()).unwrap();
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
        let mut records = base();
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
