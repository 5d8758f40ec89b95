//! The one profile file that all processes of a run are recorded in, its size, and who finds its names meanwhile.

use super::ProfileConfig;
use super::ahead::Ahead;
use crate::control::Control;
use crate::profile::types::{Instr, Module, ProcessRecord, Record};
use crate::profile::{ProfileError, Replacement, Thinned, Writer, thin};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The file, shared by the recorders of all processes.
#[derive(Clone, Debug)]
pub struct Output(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    writer: Writer,
    /// The process that the last record belongs to.
    current: u32,
    /// Whom to tell of windows.
    control: Option<Arc<Control>>,
    /// Bytes from which on it is thinned. A run observed as a whole is not: its windows continue each
    /// other, and grow with it, so that it stays small by itself.
    limit: Option<u64>,
    most_bytes: u64,
    /// What thins it at present.
    thinning: Option<JoinHandle<()>>,
    /// Processes whose records are to go.
    forgotten: HashSet<u32>,
    /// Windows left out so far.
    dropped: u64,
    seed: u64,
    /// Where allocation sites are looked for: whether any process has what tells them.
    heap_sites: Option<bool>,
    /// Finds names while the session lasts.
    ahead: Option<Ahead>,
}

impl Output {
    /// Records to `writer`, which has its header already.
    pub fn new(writer: Writer, config: &ProfileConfig, control: Option<Arc<Control>>) -> Output {
        Output(Arc::new(Mutex::new(Open {
            writer,
            current: 0,
            control,
            heap_sites: None,
            limit: (!config.full).then_some(config.most_bytes),
            most_bytes: config.most_bytes,
            thinning: None,
            forgotten: HashSet::new(),
            dropped: 0,
            seed: config.seed,
            // In the background nobody waits for the end; a run that is observed as a whole takes all the
            // memory there may be for its code cache, and much longer than names.
            ahead: (!config.background && !config.full)
                .then(Ahead::start)
                .flatten(),
        })))
    }

    /// Says which modules and instructions a process has, the latter new ones, so that their names can be looked up.
    pub fn seen(&self, modules: &[Module], instrs: &[Instr]) {
        if let Some(ahead) = &self.open().ahead {
            ahead.seen(modules, instrs);
        }
    }

    /// Allocation sites are to be looked for from now on.
    pub fn want_heap_sites(&self) {
        self.open().heap_sites = Some(false);
    }

    /// Whether they are.
    pub fn wants_heap_sites(&self) -> bool {
        self.open().heap_sites.is_some()
    }

    /// Some process has what tells them.
    pub fn found_heap_sites(&self) {
        self.open().heap_sites = Some(true);
    }

    /// Whether they were looked for in vain.
    pub fn lacks_heap_sites(&self) -> bool {
        self.open().heap_sites == Some(false)
    }

    /// Who has looked up names so far.
    pub fn take_ahead(&self) -> Option<Ahead> {
        self.open().ahead.take()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a record of process `of`, said to be that process's where the last one was not.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn append(&self, of: &ProcessRecord, record: &Record) -> Result<(), ProfileError> {
        let mut open = self.open();
        if open.current != of.id {
            open.writer.append(&Record::Process(of.clone()))?;
            open.current = of.id;
        }
        open.writer.append(record)?;
        if let Record::Window(window) = record {
            let bytes = open.writer.bytes();
            if let Some(control) = &open.control {
                control.window(window.samples.len(), bytes);
            }
            if open.limit.is_some_and(|limit| bytes > limit) && open.thinning.is_none() {
                self.begin_thinning(&mut open);
            }
        }
        Ok(())
    }

    /// Says that process `of` is another program now.
    ///
    /// # Errors
    /// When the profile cannot be written.
    pub fn renamed(&self, of: &ProcessRecord) -> Result<(), ProfileError> {
        let mut open = self.open();
        open.writer.append(&Record::Process(of.clone()))?;
        open.current = of.id;
        Ok(())
    }

    /// Says that a process that has ended is of no interest any more.
    pub fn forget(&self, id: u32) {
        self.open().forgotten.insert(id);
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.open().writer.bytes()
    }

    /// Whether all that was written has arrived.
    ///
    /// # Errors
    /// When the file system says now that it could not be written.
    pub fn finish(&self) -> Result<(), ProfileError> {
        self.open().writer.finish()
    }

    /// Windows that were left out to keep the profile small.
    pub fn dropped(&self) -> u64 {
        self.open().dropped
    }

    /// Waits for a thinning that is under way, and begins no other: the profile is to be completed.
    pub fn settle(&self) {
        let thinning = {
            let mut open = self.open();
            open.limit = None;
            open.thinning.take()
        };
        if let Some(thinning) = thinning {
            // One that failed has left the profile as it was.
            let _ = thinning.join();
        }
    }

    /// Thins the file on another thread: the one that traces must not be kept from its tracees.
    fn begin_thinning(&self, open: &mut Open) {
        let (output, end) = (self.clone(), open.writer.bytes());
        let (forgotten, most) = (open.forgotten.clone(), open.most_bytes);
        let (seed, path) = (open.seed ^ open.dropped, open.writer.path().to_owned());
        // Whatever comes of it: not at every window again.
        open.limit = Some(end + most / 4);
        let Some(file) = open.writer.reopen() else {
            return;
        };
        let Ok(mode) = file.metadata().map(|there| there.permissions()) else {
            return;
        };
        let work = move || {
            let thinned = read_and_thin(file, end, most, &forgotten, seed).and_then(|thinned| {
                let newer =
                    Replacement::write(&path, mode, &thinned.bytes).map_err(|e| e.to_string())?;
                Ok((newer, thinned.dropped))
            });
            output.end_thinning(end, thinned, &forgotten);
        };
        let builder = std::thread::Builder::new().name("thinning".to_owned());
        open.thinning = builder.spawn(work).ok();
    }

    /// Only what has been written meanwhile is copied while a window may wait for us.
    fn end_thinning(
        &self,
        end: u64,
        thinned: Result<(Replacement, u64), String>,
        forgotten: &HashSet<u32>,
    ) {
        let mut open = self.open();
        if open.limit.is_some() {
            open.thinning = None;
        }
        let (newer, dropped) = match thinned {
            Ok(thinned) => thinned,
            Err(error) => {
                tracing::debug!(error, "profile not thinned");
                return;
            }
        };
        if let Err(error) = open.writer.replace(newer, end) {
            tracing::debug!(%error, "profile not thinned");
            return;
        }
        open.dropped += dropped;
        open.forgotten.retain(|id| !forgotten.contains(id));
        let most = open.most_bytes;
        let next = most.max(open.writer.bytes() + most / 4);
        if let Some(limit) = &mut open.limit {
            *limit = next;
        }
    }
}

fn read_and_thin(
    file: File,
    end: u64,
    most: u64,
    forgotten: &HashSet<u32>,
    seed: u64,
) -> Result<Thinned, String> {
    let mut bytes = Vec::new();
    file.take(end)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    let mut random = SmallRng::seed_from_u64(seed);
    thin(&bytes, most as usize / 2, forgotten, &mut random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::types::{
        Estimate, Header, Memory, Outcome, SampleRecord, TakenSample, WindowRecord,
    };
    use crate::profile::{Profile, example};
    use crate::session::EngineChoice;

    fn process(id: u32) -> ProcessRecord {
        ProcessRecord {
            id,
            pid: 100 + id as i32,
            ppid: 1,
            command: vec!["worker".to_owned()],
        }
    }

    fn window(index: u32) -> Record {
        let sample = |i: u64| TakenSample {
            taken_in: index,
            sample: SampleRecord {
                ip: 0,
                address: i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                size: 8,
                flags: 2,
                tid: 1,
                position: i,
                memory: Memory::Heap,
                own: [Outcome::Censored { at: i * 37 % 1001 }; 5],
                shared: None,
            },
        };
        let stands_for = Estimate {
            value: 1e6,
            low: 1e6,
            high: 1e6,
        };
        Record::Window(WindowRecord {
            samples: (0..100).map(sample).collect(),
            ..example::window(index, 100_000, stands_for)
        })
    }

    /// Days of a server that starts a process for each client, in seconds: neither the file nor the
    /// number of processes in it grows with the windows.
    #[test]
    fn a_run_without_end_stays_within_its_limit() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("p");
        let config = ProfileConfig {
            output: path.clone(),
            engine: EngineChoice::Auto,
            overhead_percent: 10.0,
            full: false,
            seed: 1,
            follow: true,
            background: true,
            most_bytes: 200_000,
            kept: true,
        };
        let mut writer = Writer::create(&path).unwrap();
        writer
            .append(&Record::Header(Header::example(&["server"])))
            .unwrap();
        let output = Output::new(writer, &config, None);
        let instr = Instr {
            module: None,
            offset: 1,
        };
        output
            .append(&process(0), &Record::Instrs(vec![instr]))
            .unwrap();
        let (mut largest, mut indices) = (0, [0u32; 300]);
        for turn in 0..6000u32 {
            // Every other window is of a child, which has a dozen and ends.
            let id = if turn % 2 == 0 { 0 } else { 1 + turn / 24 };
            if turn % 24 == 1 {
                output
                    .append(&process(id), &Record::Instrs(vec![instr]))
                    .unwrap();
                if id > 4 {
                    output.forget(id - 4);
                }
            }
            let index = &mut indices[id as usize];
            output.append(&process(id), &window(*index)).unwrap();
            *index += 1;
            largest = largest.max(std::fs::metadata(&path).unwrap().len());
            // Windows do not come in microseconds.
            while output
                .open()
                .thinning
                .as_ref()
                .is_some_and(|t| !t.is_finished())
            {
                std::thread::yield_now();
            }
        }
        output.settle();
        assert!(largest < 300_000, "{largest}");
        let profile = Profile::read(&path).unwrap();
        let sum: f64 = profile.windows.iter().map(|w| w.stands_for.value).sum();
        assert!((sum / 3000e6 - 1.0).abs() < 1e-9, "{sum}");
        let newest = profile.windows.iter().filter(|w| w.index >= 2980);
        assert_eq!(newest.count(), 20);
        assert!(profile.others.len() < 60, "{}", profile.others.len());
        assert!(output.dropped() > 2000);
    }
}
