//! From samples with process addresses to profile records with modules and object-file offsets.

use super::heap::Heap;
use super::names::Names;
use super::output::Output;
use super::overlooked::Places;
use super::root::{self, ForeignFiles, PerfMap};
use crate::observe::{
    FirstTouch as Touch, FirstTouches as Found, Outcome as Ended, Remotely, Returns, Sample,
};
use crate::profile::ProfileError;
use crate::profile::types::{
    Estimate, FirstTouch, FirstTouches, Footer, Instr, InstrId, Memory, Module, ModuleId, Outcome,
    ProcessRecord, Record, SampleRecord, Shared, SiteId, TakenSample, Unmet, Warning, WindowRecord,
    sample_flags,
};
use crate::symbols;
use crate::tracee::maps::{Backing, FileId, Mapping, Maps};
use nix::unistd::Pid;
use object::read::elf::ProgramHeader;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::path::Path;

/// Addresses of static data remembered to be named at the end: for some days of samples, no more.
const MOST_TOUCHED: usize = 1 << 20;
/// A C library's own data of a thread behind the thread pointer's target, at most (glibc's are 2.3 KiB), and a page: what the mapping of
/// its stack ends with.
const THREAD: u64 = 0x900;
const PAGE: u64 = 4096;

/// Writes the windows of one process, interning modules and instructions.
#[derive(Debug)]
pub struct Recorder {
    output: Output,
    process: ProcessRecord,
    /// Whether its paths mean other files than ours, and those files.
    foreign: bool,
    files: ForeignFiles,
    modules: Vec<Module>,
    /// Where each of them ends in the process, zeroed data included, where that is known.
    ends: Vec<Option<u64>>,
    module_ids: FxHashMap<(String, u64), ModuleId>,
    instrs: Vec<Instr>,
    instr_ids: FxHashMap<Instr, InstrId>,
    by_ip: FxHashMap<u64, InstrId>,
    /// Where code lay that they are of: start, end, offset in the file, and the file.
    code: Vec<(u64, u64, u64, FileId)>,
    written: (usize, usize),
    between: Places,
    /// Allocation sites and how many of them are written, where they are looked for, and what tells them once it is there.
    sites: Vec<Vec<InstrId>>,
    site_ids: FxHashMap<Vec<InstrId>, SiteId>,
    sites_written: usize,
    heap: Option<Heap>,
    /// Where names of generated code are to be found, once there is any.
    perf_map: Option<PerfMap>,
    /// Instructions whose names are being looked up.
    told: usize,
    touched: FxHashSet<(ModuleId, u64)>,
    /// Threads whose stack is known, and where stacks end, with where the mapping begins that each is in.
    stacks_of: FxHashSet<Pid>,
    stacks: BTreeMap<u64, u64>,
    /// The address space as it was when some address was in none of the maps given, and whether it may be read again.
    newer: Option<Maps>,
    may_read: bool,
}

impl Recorder {
    /// Records `process` to `output`.
    pub fn new(output: Output, process: ProcessRecord) -> Recorder {
        Recorder {
            output,
            foreign: root::is_foreign(Pid::from_raw(process.pid)),
            files: ForeignFiles::default(),
            modules: Vec::new(),
            ends: Vec::new(),
            module_ids: FxHashMap::default(),
            instrs: Vec::new(),
            instr_ids: FxHashMap::default(),
            by_ip: FxHashMap::default(),
            code: Vec::new(),
            written: (0, 0),
            between: Places::default(),
            sites: Vec::new(),
            site_ids: FxHashMap::default(),
            sites_written: 0,
            heap: None,
            perf_map: None,
            told: 0,
            touched: FxHashSet::default(),
            stacks_of: FxHashSet::default(),
            stacks: BTreeMap::new(),
            newer: None,
            may_read: true,
            process,
        }
    }

    /// The process has executed another program: addresses may mean other code than before.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn new_image(&mut self, command: Vec<String>) -> Result<(), ProfileError> {
        self.by_ip.clear();
        self.newer = None;
        self.heap = None;
        self.stacks_of.clear();
        self.stacks.clear();
        // It may have got mounts of its own, or another user, just before.
        self.foreign = root::is_foreign(Pid::from_raw(self.process.pid));
        self.perf_map = None;
        if self.process.command == command {
            return Ok(());
        }
        self.process.command = command;
        self.output.renamed(&self.process)
    }

    /// Whether it is known what the stack of this thread is.
    pub fn knows_stack_of(&self, tid: Pid) -> bool {
        self.stacks_of.contains(&tid)
    }

    /// A thread has these stack pointer and thread pointer. C libraries map a thread's stack and what it has for itself, the thread pointer's
    /// target among it, together (pthread_create(3), tls); where a language has stacks in its heap, the two lie apart.
    pub fn runs_on(&mut self, tid: Pid, stack: u64, thread: u64, maps: &Maps) {
        let Some(mapping) = maps.find(stack) else {
            return;
        };
        let holds = (mapping.start..mapping.end).contains(&thread);
        if holds && matches!(mapping.path, Backing::Anonymous) {
            // What was mapped before it may lie right behind, and the kernel merges the two.
            let end = (thread + THREAD).next_multiple_of(PAGE).min(mapping.end);
            self.stacks.insert(end, mapping.start);
        }
        // Elsewhere it may be on a stack for signals, or of a coroutine, for now.
        if holds || matches!(mapping.path, Backing::Stack) {
            self.stacks_of.insert(tid);
        }
    }

    /// The thread has ended; another may get its id, and what is mapped where its stack was has another beginning as a rule.
    pub fn thread_ended(&mut self, tid: Pid) {
        self.stacks_of.remove(&tid);
    }

    /// Whether an address in this mapping lies in the stack of a thread, or what it has for itself beside.
    fn is_in_stack(&self, address: u64, mapping: &Mapping) -> bool {
        let above = self.stacks.range(address + 1..).next();
        above.is_some_and(|(_, &start)| start == mapping.start)
    }

    /// Turns samples into records, as the address space is now.
    pub fn samples(
        &mut self,
        samples: Vec<Sample>,
        tid: i32,
        first_ref: &dyn Fn(u32) -> u64,
        maps: &Maps,
    ) -> Vec<TakenSample> {
        self.may_read = true;
        self.look_at_code(maps);
        self.look_at_heap(maps);
        let taken = samples
            .into_iter()
            .map(|sample| {
                let own = sample.outcomes.map(|outcome| self.outcome(outcome, maps));
                let access = sample.access;
                let flags = if access.store { sample_flags::STORE } else { 0 }
                    | if access.load { sample_flags::LOAD } else { 0 }
                    | if sample.given_up {
                        sample_flags::GIVEN_UP
                    } else {
                        0
                    };
                let record = SampleRecord {
                    ip: self.instr(access.ip, maps),
                    address: access.address,
                    size: access.size as u16,
                    flags,
                    tid: sample.remotely.as_ref().map_or(tid, |r| r.tid),
                    position: sample.position.saturating_sub(first_ref(sample.window)),
                    memory: self.memory(access.address, maps),
                    own,
                    shared: sample.remotely.map(|r| Box::new(self.shared(&r, maps))),
                };
                TakenSample {
                    taken_in: sample.window,
                    sample: record,
                }
            })
            .collect();
        if !self.foreign && self.told < self.instrs.len() {
            self.output.seen(&self.modules, &self.instrs[self.told..]);
            self.told = self.instrs.len();
        }
        taken
    }

    /// Turns first touches into records, as the address space is now; `begun`: references before their window, which was opened for `tid`.
    pub fn first_touches(
        &mut self,
        found: Found,
        tid: i32,
        begun: u64,
        maps: &Maps,
    ) -> FirstTouches {
        FirstTouches {
            touches: self.touches(&found.kept, tid, begun, maps),
            seen: found.seen.round() as u64,
            one_in: Found::ONE_IN,
            epochs: Vec::new(),
        }
    }

    /// The same of returns to drawn lines.
    pub fn returns(&mut self, found: &Returns, tid: i32, begun: u64, maps: &Maps) -> FirstTouches {
        let epochs = found.begins.iter().map(|at| at.saturating_sub(begun));
        FirstTouches {
            touches: self.touches(&found.kept, tid, begun, maps),
            seen: u64::from(found.seen),
            one_in: found.one_in,
            epochs: epochs.collect(),
        }
    }

    /// Where one library was, another may have been loaded since.
    fn look_at_code(&mut self, maps: &Maps) {
        let of_files = || maps.0.iter().filter(|m| m.is_stable_code());
        let place = |m: &Mapping| (m.start, m.end, m.offset, m.file);
        if !of_files().map(place).eq(self.code.iter().copied()) {
            self.code = of_files().map(place).collect();
            self.by_ip.clear();
        }
    }

    fn touches(&mut self, found: &[Touch], tid: i32, begun: u64, maps: &Maps) -> Vec<FirstTouch> {
        self.look_at_code(maps);
        self.look_at_heap(maps);
        let touches = found.iter().map(|touch| FirstTouch {
            ip: self.instr(touch.ip, maps),
            position: touch.position.saturating_sub(begun),
            memory: self.memory(touch.address, maps),
            tid: touch.tid.unwrap_or(tid),
            of_all: touch.of_all,
            since: touch.since,
        });
        touches.collect()
    }

    fn outcome(&mut self, outcome: Ended, maps: &Maps) -> Outcome {
        match outcome {
            Ended::Reused {
                distance,
                trigger,
                store,
            } => Outcome::Reused {
                distance,
                trigger: self.instr(trigger, maps),
                store,
            },
            Ended::Censored(at) => Outcome::Censored { at },
            Ended::NeverReused(at) => Outcome::NeverReused { at },
            Ended::NotFollowed => Outcome::NotFollowed,
        }
    }

    fn shared(&mut self, remotely: &Remotely, maps: &Maps) -> Shared {
        Shared {
            all: remotely.all.map(|outcome| self.outcome(outcome, maps)),
            remote: remotely.remote,
            writer: remotely.writer.map(|(ip, tid)| (self.instr(ip, maps), tid)),
        }
    }

    fn instr(&mut self, ip: u64, maps: &Maps) -> InstrId {
        if let Some(&id) = self.by_ip.get(&ip) {
            return id;
        }
        let mapping = maps.find(ip);
        if mapping.is_none_or(Mapping::is_changing_code) && self.perf_map.is_none() {
            self.perf_map = PerfMap::of(Pid::from_raw(self.process.pid));
        }
        let module = mapping.and_then(|m| self.module(m, maps));
        let instr = match module {
            Some(module) => Instr {
                module: Some(module),
                offset: ip.wrapping_sub(self.modules[module as usize].bias),
            },
            None => Instr {
                module: None,
                offset: ip,
            },
        };
        let next = self.instrs.len() as InstrId;
        let id = *self.instr_ids.entry(instr).or_insert(next);
        if id == next {
            self.instrs.push(instr);
        }
        self.by_ip.insert(ip, id);
        id
    }

    /// What the compiler of generated code calls the functions at these addresses, if it has left that anywhere.
    pub fn generated_names(&self, addresses: &[u64]) -> Option<Vec<Option<String>>> {
        self.perf_map.as_ref()?.names(addresses)
    }

    fn module(&mut self, mapping: &Mapping, maps: &Maps) -> Option<ModuleId> {
        let (path, start) = match &mapping.path {
            Backing::File(path) => (path.clone(), maps.file_start(mapping)),
            Backing::Vdso => ("[vdso]".to_owned(), mapping.start),
            _ => return None,
        };
        if let Some(&id) = self.module_ids.get(&(path.clone(), start)) {
            return Some(id);
        }
        let id = self.modules.len() as ModuleId;
        if self.foreign {
            self.files.add(Pid::from_raw(self.process.pid), &path);
        }
        let place = self.files.find(&path);
        let (bias, end, build_id) = describe(&place, start).unwrap_or((start, None, String::new()));
        self.ends.push(end);
        self.modules.push(Module {
            path: path.clone(),
            bias,
            build_id,
        });
        self.module_ids.insert((path, start), id);
        Some(id)
    }

    /// Before several addresses are asked about: finds what tells allocation sites, and has it be looked at anew.
    fn look_at_heap(&mut self, maps: &Maps) {
        match &mut self.heap {
            Some(heap) => heap.look_again(),
            None if self.output.wants_heap_sites() => {
                self.heap = Heap::find(Pid::from_raw(self.process.pid), maps);
                if self.heap.is_some() {
                    self.output.found_heap_sites();
                }
            }
            None => {}
        }
    }

    /// What is known of an address in the heap.
    fn heap(&mut self, address: u64, maps: &Maps) -> Memory {
        let Some(returns) = self.heap.as_mut().and_then(|heap| heap.site(address)) else {
            return Memory::Heap;
        };
        // In the call, not behind it.
        let calls: Vec<u64> = returns.iter().map(|at| at - 1).collect();
        let calls: Vec<InstrId> = calls.into_iter().map(|ip| self.instr(ip, maps)).collect();
        let next = self.sites.len() as SiteId;
        let site = *self.site_ids.entry(calls).or_insert_with_key(|calls| {
            self.sites.push(calls.clone());
            next
        });
        Memory::Allocated { site }
    }

    /// What an address lies in: by `maps`, or where it was mapped since those were read, by newer ones.
    fn memory(&mut self, address: u64, maps: &Maps) -> Memory {
        if maps.find(address).is_some() {
            return self.memory_by(address, maps);
        }
        if self
            .newer
            .as_ref()
            .is_none_or(|newer| newer.find(address).is_none())
            && self.may_read
        {
            // Once for all that is recorded together.
            self.may_read = false;
            let read = Maps::read(Pid::from_raw(self.process.pid)).ok();
            // Those of a program that it has executed meanwhile say nothing of this one's.
            let read = read.filter(|read| maps.share_code(read));
            self.newer = read.or(self.newer.take());
        }
        let Some(newer) = self.newer.take() else {
            return Memory::Mapping;
        };
        let memory = self.memory_by(address, &newer);
        self.newer = Some(newer);
        memory
    }

    fn memory_by(&mut self, address: u64, maps: &Maps) -> Memory {
        let Some(mapping) = maps.find(address) else {
            return Memory::Mapping;
        };
        let module = match mapping.path {
            Backing::Stack => return Memory::Stack,
            Backing::Heap => return self.heap(address, maps),
            // What is shared with others has no file as a rule where it is called a device.
            Backing::File(ref path) if mapping.shared && is_device(path) => None,
            Backing::File(_) => self.module(mapping, maps),
            Backing::Anonymous if self.is_in_stack(address, mapping) => return Memory::Stack,
            Backing::Anonymous => {
                let module = bss_of(mapping, maps).and_then(|data| self.module(data, maps));
                // The kernel merges anonymous memory that happens to lie behind it.
                match module.filter(|&m| self.ends[m as usize].is_none_or(|end| address < end)) {
                    Some(module) => Some(module),
                    None => return self.heap(address, maps),
                }
            }
            _ => None,
        };
        match module {
            Some(module) => {
                let offset = address.wrapping_sub(self.modules[module as usize].bias);
                if self.touched.len() < MOST_TOUCHED {
                    self.touched.insert((module, offset));
                }
                Memory::Static { module, offset }
            }
            None => Memory::Mapping,
        }
    }

    /// Writes a window, with the tables it refers to.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn window(&mut self, window: WindowRecord) -> Result<(), ProfileError> {
        self.write_tables()?;
        self.append(&Record::Window(window))
    }

    /// Notes where the program was seen between windows, and how often, when all of them are written.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn between(&mut self, places: Vec<(u64, u32)>, maps: &Maps) -> Result<(), ProfileError> {
        self.look_at_code(maps);
        self.between.first = self.instrs.len() as InstrId;
        self.between.all = places.iter().map(|(_, n)| n).sum();
        // Code whose accesses are nobody's is in no window.
        let uncounted = maps.uncounted();
        let counts = |ip: &u64| !uncounted.iter().any(|code| code.contains(ip));
        let looks = places.into_iter().filter(|(ip, _)| counts(ip));
        self.between.looks = looks.map(|(ip, n)| (self.instr(ip, maps), n)).collect();
        self.write_tables()
    }

    /// What code was seen there and in no window, by the names of all.
    pub fn overlooked(&self, names: &Names) -> Option<Warning> {
        self.between.overlooked(&names.frames)
    }

    fn write_tables(&mut self) -> Result<(), ProfileError> {
        if self.written.0 < self.modules.len() {
            let modules = self.modules[self.written.0..].to_vec();
            self.append(&Record::Modules(modules))?;
            // Written again they would have other numbers: each on its own, should the disk be full before the next.
            self.written.0 = self.modules.len();
        }
        if self.written.1 < self.instrs.len() {
            let instrs = self.instrs[self.written.1..].to_vec();
            self.append(&Record::Instrs(instrs))?;
            self.written.1 = self.instrs.len();
        }
        if self.sites_written < self.sites.len() {
            let sites = self.sites[self.sites_written..].to_vec();
            self.append(&Record::Sites(sites))?;
            self.sites_written = self.sites.len();
        }
        Ok(())
    }

    /// Writes by what factors windows stand for more or less of the run than they were said to.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn shares(&self, factors: Vec<(u32, Estimate)>) -> Result<(), ProfileError> {
        self.append(&Record::Shares(factors))
    }

    /// Writes how many looks at the program between windows each window stands for.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn looks(&self, looks: Vec<(u32, f64)>) -> Result<(), ProfileError> {
        self.append(&Record::Looks(looks))
    }

    /// Writes what looks tell of code that no window began with.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn unmet(&self, unmet: Unmet) -> Result<(), ProfileError> {
        self.append(&Record::Unmet(unmet))
    }

    /// Where an instruction is in the process.
    pub fn address(&self, id: InstrId) -> Option<u64> {
        let instr = self.instrs.get(id as usize)?;
        Some(match instr.module {
            Some(module) => instr
                .offset
                .wrapping_add(self.modules[module as usize].bias),
            None => instr.offset,
        })
    }

    fn append(&self, record: &Record) -> Result<(), ProfileError> {
        self.output.append(&self.process, record)
    }

    /// Whether it is of the first process of the run.
    pub fn is_first(&self) -> bool {
        self.process.id == 0
    }

    /// Modules so far.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The files of the modules that are not ours.
    pub fn files(&self) -> &ForeignFiles {
        &self.files
    }

    /// Instructions so far.
    pub fn instrs(&self) -> &[Instr] {
        &self.instrs
    }

    /// Static data touched by samples.
    pub fn touched(&self) -> impl Iterator<Item = (ModuleId, u64)> {
        self.touched.iter().copied()
    }

    /// Writes names and the footer.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn finish(self, names: Names, footer: Footer) -> Result<(), ProfileError> {
        self.append(&Record::Symbols(names.frames))?;
        self.append(&Record::DataSymbols(names.data))?;
        self.append(&Record::Footer(footer))
    }
}

/// The file's data segment that an anonymous mapping right behind it continues.
fn bss_of<'a>(mapping: &Mapping, maps: &'a Maps) -> Option<&'a Mapping> {
    let before = maps.find(mapping.start.checked_sub(1)?)?;
    let data = matches!(before.path, Backing::File(_)) && before.write && !before.shared;
    (data && before.end == mapping.start).then_some(before)
}

/// Whether a mapped path names a device, or memory called one: `/dev/zero` where anonymous memory is shared (mmap(2)); not POSIX shared memory
/// (shm_overview(7)).
fn is_device(path: &str) -> bool {
    path.starts_with("/dev/") && !path.starts_with("/dev/shm/")
}

/// Load bias, end and build id of the object at `path`, whose first byte is mapped at `start`.
fn describe(path: &Path, start: u64) -> Option<(u64, Option<u64>, String)> {
    if path == Path::new("[vdso]") {
        return Some((start, None, String::new()));
    }
    let file = symbols::open_regular(path)?;
    let cache = object::ReadCache::new(file);
    let elf = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&cache).ok()?;
    use object::Object;
    let endian = elf.endian();
    const PT_LOAD: u32 = 1;
    const PAGE: u64 = 4096;
    let first = elf
        .elf_program_headers()
        .iter()
        .find(|p| p.p_type(endian) == PT_LOAD)?;
    // Address the object file gives to its own first byte.
    let base =
        (first.p_vaddr(endian) & !(PAGE - 1)).wrapping_sub(first.p_offset(endian) & !(PAGE - 1));
    let segments = elf.elf_program_headers().iter();
    let ends = segments
        .filter(|p| p.p_type(endian) == PT_LOAD)
        .map(|p| p.p_vaddr(endian).saturating_add(p.p_memsz(endian)));
    let bias = start.wrapping_sub(base);
    let end = ends.max().map(|end| bias.wrapping_add(end));
    let build_id = elf.build_id().ok().flatten().unwrap_or_default();
    let hex = build_id.iter().map(|b| format!("{b:02x}")).collect();
    Some((bias, end, hex))
}
