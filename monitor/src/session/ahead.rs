//! Names found while the program runs, so that nobody waits for them when it has ended.
//!
//! A thread of low priority learns of instructions as windows are recorded. It reads each module when it is first
//! seen and keeps it open, within a bound of memory; what it did not get to, and what is too large, is left to the end
//! (`names`), which gives the same names. Whoever tells it of instructions never waits for it, and its CPU time is nobody's
//! cost: windows are booked by the clock of the tracing thread (`cost`). At the end, when it is waited for, it has the priority of others again; where that is
//! not allowed nobody waits for long, and what it has not said by then is looked up as what it did not get to.

use crate::profile::types::{Instr, Module};
use crate::symbols::{Found, Resolver, Wanted};
use crate::tracee::procinfo;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::gettid;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most bytes of modules kept open, of the 256 MiB that the monitor may take. (The C library takes 12 MiB with its debug information, CPython 19.)
const MOST_OPEN: u64 = 48 << 20;
/// Where its priority stays low it is waited for as long as it works for this share of each such time: on a busy machine it may come to nothing for
/// seconds.
const PATIENCE: Duration = Duration::from_millis(50);
const WORKS: f64 = 0.3;
/// Most instructions whose names are remembered, at some hundred bytes each.
const MOST_KNOWN: usize = 1 << 16;
/// What is added to its nice value: next to a thread of the program that wants the same processor it gets a tenth.
const NICE: i32 = 10;

/// What tells modules apart: path and build id.
pub type Key = (String, String);

/// The key of a module.
pub fn key(module: &Module) -> Key {
    (module.path.clone(), module.build_id.clone())
}

enum Message {
    /// Instructions that were seen.
    Seen(Module, Vec<u64>),
    /// What is wanted of modules that it has taken on; it ends with the answer.
    Name(Vec<(Key, Wanted)>, Sender<Vec<(Key, Found)>>),
}

/// What the end may ask for.
#[derive(Debug, Default)]
struct Taken {
    keys: FxHashSet<Key>,
    /// No more is taken on.
    over: bool,
}

/// The thread that looks up names ahead.
#[derive(Debug)]
pub struct Ahead {
    messages: Sender<Message>,
    taken: Arc<Mutex<Taken>>,
    thread: JoinHandle<()>,
    /// Its id, and the nice value that it would have.
    told: Receiver<(Pid, i32)>,
}

impl Ahead {
    /// Starts the thread, where it can have a processor that the program does not need.
    pub fn start() -> Option<Ahead> {
        if procinfo::processors(nix::unistd::Pid::from_raw(0)) < 2 {
            return None;
        }
        let (messages, received) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let taken = Arc::new(Mutex::new(Taken::default()));
        let shared = Arc::clone(&taken);
        let work = move || {
            // Of this thread alone (setpriority(2), "C library/kernel differences").
            let usual = getpriority_process(None).unwrap_or(0);
            let _ = setpriority_process(None, usual + NICE);
            let _ = tell.send((gettid(), usual));
            Worker::default().serve(&received, &shared);
        };
        let builder = std::thread::Builder::new().name("names".to_owned());
        let thread = builder.spawn(work).ok()?;
        Some(Ahead {
            messages,
            taken,
            thread,
            told,
        })
    }

    /// Says that instructions were seen. They refer to `modules`.
    pub fn seen(&self, modules: &[Module], instrs: &[Instr]) {
        let mut by_module: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        for instr in instrs {
            if let Some(module) = instr.module {
                by_module.entry(module).or_default().push(instr.offset);
            }
        }
        for (module, offsets) in by_module {
            if let Some(module) = modules.get(module as usize) {
                // A thread that is gone leaves all to the end.
                let _ = self.messages.send(Message::Seen(module.clone(), offsets));
            }
        }
    }

    /// Takes on nothing more; gives what was taken on.
    pub fn close(&self) -> FxHashSet<Key> {
        let mut taken = open(&self.taken);
        taken.over = true;
        std::mem::take(&mut taken.keys)
    }

    /// Names what is wanted of modules that [`Ahead::close`] gave, while `meanwhile` is done. Modules that it
    /// could not keep are missing from the answer.
    pub fn name<T>(
        self,
        wanted: Vec<(Key, Wanted)>,
        meanwhile: impl FnOnce() -> T,
    ) -> (Vec<(Key, Found)>, T) {
        let (answer, answered) = mpsc::channel();
        let usual = |(id, nice)| setpriority_process(Some(id), nice).is_ok();
        let told = self.told.recv_timeout(PATIENCE);
        let is_usual = told.is_ok_and(usual);
        let sent = self.messages.send(Message::Name(wanted, answer));
        let other = meanwhile();
        let found = sent.ok().and_then(|()| match (is_usual, told) {
            (true, _) => answered.recv().ok(),
            (false, Ok((id, _))) => wait_while_it_works(&answered, id),
            (false, Err(_)) => None,
        });
        drop(self.messages);
        if found.is_some() {
            // One that panicked has said so.
            let _ = self.thread.join();
        }
        (found.unwrap_or_default(), other)
    }
}

/// The answer of thread `id` of ours, where it works for it.
fn wait_while_it_works<T>(answered: &Receiver<T>, id: Pid) -> Option<T> {
    let tid = nix::unistd::Pid::from_raw(id.as_raw_pid());
    let cpu_s = || procinfo::thread_cpu_s(nix::unistd::Pid::this(), tid).unwrap_or(0.0);
    let mut before = cpu_s();
    loop {
        match answered.recv_timeout(PATIENCE) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                let now = cpu_s();
                if now - before < WORKS * PATIENCE.as_secs_f64() {
                    return None;
                }
                before = now;
            }
        }
    }
}

fn open(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Worker {
    resolvers: FxHashMap<Key, Resolver>,
    /// Not to be tried again.
    too_large: FxHashSet<Key>,
    bytes: u64,
    known: usize,
}

impl Worker {
    fn serve(mut self, messages: &Receiver<Message>, taken: &Mutex<Taken>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Seen(module, instrs) => self.learn(&module, &instrs, taken),
                Message::Name(wanted, answer) => {
                    // One may have turned out to be too large since the end was told of it.
                    let named = wanted.into_iter().filter_map(|(key, wanted)| {
                        let resolver = self.resolvers.get_mut(&key)?;
                        Some((key, resolver.name(wanted)))
                    });
                    let _ = answer.send(named.collect());
                    return;
                }
            }
        }
    }

    fn learn(&mut self, module: &Module, instrs: &[u64], taken: &Mutex<Taken>) {
        let key = key(module);
        if self.too_large.contains(&key) {
            return;
        }
        if !self.resolvers.contains_key(&key) {
            {
                let mut taken = open(taken);
                if taken.over {
                    return;
                }
                taken.keys.insert(key.clone());
            }
            match Resolver::open(module, MOST_OPEN - self.bytes) {
                Ok((resolver, bytes)) => {
                    tracing::debug!(path = %key.0, bytes, "names are looked up ahead");
                    self.bytes += bytes;
                    self.resolvers.insert(key.clone(), resolver);
                }
                Err(_) => {
                    open(taken).keys.remove(&key);
                    self.too_large.insert(key);
                    return;
                }
            }
        }
        if open(taken).over || self.known + instrs.len() > MOST_KNOWN {
            return;
        }
        if let Some(resolver) = self.resolvers.get_mut(&key) {
            self.known += resolver.learn(instrs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_module() -> Module {
        let path = std::env::current_exe().unwrap();
        Module {
            path: path.to_str().unwrap().to_owned(),
            bias: 0,
            build_id: String::new(),
        }
    }

    /// One that is not there is as good as any: it is "read" in no time.
    fn module(path: &str) -> Module {
        Module {
            path: path.to_owned(),
            bias: 0,
            build_id: String::new(),
        }
    }

    #[test]
    fn what_was_taken_on_is_answered_and_nothing_else() {
        let Some(ahead) = Ahead::start() else {
            println!("SKIP what_was_taken_on_is_answered_and_nothing_else: one processor");
            return;
        };
        let modules = [module("/nowhere/a"), module("/nowhere/b")];
        let instr = |module, offset| Instr {
            module: Some(module),
            offset,
        };
        ahead.seen(&modules, &[instr(0, 16), instr(1, 32), instr(0, 48)]);
        while open(&ahead.taken).keys.len() < 2 {
            std::thread::yield_now();
        }
        let taken = ahead.close();
        assert!(modules.iter().all(|m| taken.contains(&key(m))));
        // Too late.
        ahead.seen(&[module("/nowhere/c")], &[instr(0, 16)]);
        let wanted = Wanted {
            instrs: vec![48, 64],
            touched: Vec::new(),
        };
        let asked = ["/nowhere/a", "/nowhere/c"].map(|p| (key(&module(p)), wanted.clone()));
        let (found, other) = ahead.name(asked.into(), || 7);
        assert_eq!((found.len(), other), (1, 7));
        assert_eq!(found[0].0.0, "/nowhere/a");
        assert_eq!(found[0].1.frames[0][0].function, "a+0x30");
        assert_eq!(found[0].1.frames[1][0].function, "a+0x40");
    }

    #[test]
    fn a_module_too_large_is_given_back() {
        let mut worker = Worker {
            bytes: MOST_OPEN,
            ..Worker::default()
        };
        let taken = Mutex::new(Taken::default());
        worker.learn(&own_module(), &[1], &taken);
        assert!(worker.resolvers.is_empty() && open(&taken).keys.is_empty());
        assert_eq!(worker.too_large.len(), 1);
    }
}
