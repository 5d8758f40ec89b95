//! The monitor's own signals: news of its children, and the user's wish to end.
//!
//! Unsafe invariant: each pointer is null, or to a live local or field of the type the kernel
//! writes or reads, which is plain bits and initialised before; signals are sent by number.

use crate::control::Control;
use crate::tracee::{Event, Result, Running, hub, launch, procinfo};
use nix::unistd::Pid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Signals the monitor takes synchronously; blocked while a session lasts.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
    /// Those that ask for the end where they are not ignored, as these were when we were started.
    ignored: Vec<i32>,
    /// When we are to stop, as the program is stopped by then.
    halts: Option<Instant>,
    /// The user asked for the profile to end.
    pub end_wanted: bool,
    /// When a signal told us so that the program got as well.
    pub shared_end: Option<Instant>,
    /// Who is to get the signals that we got: the program we have started.
    pub program: Option<Pid>,
    /// Its status as a shell sees it, once that is known.
    pub status: Option<i32>,
    /// Through which `statcache stop` asks for an end.
    pub control: Option<Arc<Control>>,
    /// It has asked: we leave, even a program that we have started.
    pub leave: bool,
}

/// What a wait gave.
#[derive(Debug)]
pub enum Wait {
    /// Something happened to the thread.
    Event(Event),
    /// The user asked for an end, for the first time.
    End(Running),
    /// The deadline passed.
    Timeout(Running),
}

/// News of children, and the wish to end.
const NEWS: [i32; 4] = [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// Those that whoever has started the program sends to it and means nothing to us: it is we whose process id they know.
const MEANT: [i32; 4] = [libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];

/// How long the program has to come to its stop once its terminal has asked for one (SIGTSTP): each of its threads passes by us.
const HALTING: Duration = Duration::from_millis(50);

/// How long a thread is waited for before it is looked at whether it sleeps: longer than a lap, as a look costs caches and the processor.
pub const NAP: Duration = Duration::from_millis(2);
/// The same where it was seen to run, again and again.
const LONGEST_NAP: Duration = Duration::from_millis(100);
/// How long a thread has to come out of the cache by itself once the user has asked for an end: where it does, what it did is observed up to there.
const ENDING: Duration = Duration::from_millis(100);

impl Signals {
    /// Blocks the signals in this thread and those it starts. The program is to get the mask
    /// [`Signals::before`]. `halts`: the engine's waits hear of a stop from the terminal; those that do not are stopped at once, as any program is.
    pub fn block(halts: bool) -> Signals {
        // SAFETY: sigset_t is plain bits, initialised by sigemptyset; all pointers are to locals.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in NEWS.into_iter().chain(MEANT) {
                libc::sigaddset(&raw mut set, signal);
            }
            if halts {
                libc::sigaddset(&raw mut set, libc::SIGTSTP);
                libc::sigaddset(&raw mut set, libc::SIGCONT);
            }
            let ends = NEWS.into_iter().filter(|&signal| signal != libc::SIGCHLD);
            let ignored = ends.filter(|&signal| is_ignored(signal)).collect();
            launch::hear_of_children();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            Signals {
                set,
                before,
                ignored,
                halts: None,
                end_wanted: false,
                shared_end: None,
                program: None,
                status: None,
                control: None,
                leave: false,
            }
        }
    }

    /// The mask from before.
    pub fn before(&self) -> &libc::sigset_t {
        &self.before
    }

    /// Takes one pending signal, waiting up to `timeout` for it. News of children need no more
    /// than the waking; what the program did not get is passed on to it.
    pub fn take(&mut self, timeout: Duration) -> Option<i32> {
        let halts = self
            .halts
            .map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = halts.map_or(timeout, |halts| halts.min(timeout));
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
        };
        // SAFETY: siginfo_t is plain bits; it, the set and the timeout live here.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let set = &raw const self.set;
            let signal = libc::sigtimedwait(set, &raw mut info, &raw const timeout);
            (signal, info)
        };
        match signal {
            // Who started us meant us to go on, as the program does: it has been started so, too. (What is blocked is queued although it is ignored.)
            // Scripts start what runs beside them with SIGINT ignored, but may well send it.
            libc::SIGINT
                if self.ignored.contains(&signal)
                    && (info.si_code == libc::SI_KERNEL || is_theirs(&info)) => {}
            libc::SIGTERM | libc::SIGHUP if self.ignored.contains(&signal) => {
                self.pass_on(signal, &info);
            }
            libc::SIGINT => {
                self.end_by(info.si_code == libc::SI_KERNEL);
            }
            libc::SIGTERM | libc::SIGHUP => {
                self.end_by(true);
                self.pass_on(signal, &info);
            }
            // Nobody's but ours, where we have started none.
            libc::SIGQUIT if self.program.is_none() => {
                self.end_wanted = true;
            }
            signal if MEANT.contains(&signal) => self.pass_on(signal, &info),
            // Were we stopped, who is attached to would wait for us.
            libc::SIGTSTP if self.program.is_some() => {
                self.pass_on(signal, &info);
                self.halts = Some(Instant::now() + HALTING);
            }
            // It goes on already.
            libc::SIGCONT => self.halts = None,
            _ => {}
        }
        if self.halts.is_some_and(|at| Instant::now() >= at) {
            self.halts = None;
            halt();
        }
        if self.control.as_ref().is_some_and(|c| c.stop_wanted()) {
            self.end_wanted = true;
            self.leave = true;
        }
        (signal > 0).then_some(signal)
    }

    /// A signal asks for the end, which the program got as well or did not.
    fn end_by(&mut self, shared: bool) {
        if shared && !self.end_wanted {
            self.shared_end = Some(Instant::now());
        }
        self.end_wanted = true;
    }

    /// Of what went to the whole process group the program has its own: what a terminal sends, and what comes from one of the processes
    /// that we follow, which do not mean us.
    fn pass_on(&self, signal: i32, info: &libc::siginfo_t) {
        let terminal = info.si_code == libc::SI_KERNEL && signal != libc::SIGALRM;
        if let (Some(program), false) = (self.program, terminal || is_theirs(info)) {
            // SAFETY: plain numbers. The program may be gone already.
            unsafe { libc::kill(program.as_raw(), signal) };
        }
    }

    /// Whether the user asked for an end, now or before.
    pub fn poll_end(&mut self) -> bool {
        while self.take(Duration::ZERO).is_some() {}
        self.end_wanted
    }

    /// The status of the program, our child, as a shell sees it, once it has ended; it is traced no more. `None` where somebody else
    /// has been told.
    pub fn wait_for_program(&mut self, program: Pid) -> Option<i32> {
        while self.status.is_none() {
            match exited(program) {
                Ok(None) => _ = self.take(Duration::from_secs(3600)),
                Ok(status) => self.status = status,
                Err(nix::Error::EINTR) => {}
                Err(_) => return None,
            }
        }
        self.status
    }

    /// Waits for the thread until `deadline`, or for ever.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn wait(&mut self, mut running: Running, deadline: Option<Instant>) -> Result<Wait> {
        let wanted_before = self.end_wanted;
        loop {
            running = match running.poll()? {
                Ok(event) => return Ok(Wait::Event(event)),
                Err(running) => running,
            };
            let timeout = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if timeout.is_zero() {
                return Ok(Wait::Timeout(running));
            }
            self.take(timeout);
            if self.end_wanted && !wanted_before {
                return Ok(Wait::End(running));
            }
        }
    }

    /// Waits for a thread that runs, as code in the cache does; gives it back when it sleeps, when it is `late` (asked after each nap, of which `nap`
    /// is the first), and when the user has asked for an end: a loop without accesses comes out by itself when it is over, and not before.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn wait_awake(
        &mut self,
        mut running: Running,
        mut nap: Duration,
        late: impl Fn() -> bool,
    ) -> Result<std::result::Result<Event, Running>> {
        let begun = Instant::now();
        loop {
            running = match self.wait(running, Some(Instant::now() + nap))? {
                Wait::Event(event) => return Ok(Ok(event)),
                Wait::End(running) => running,
                Wait::Timeout(running) if late() || procinfo::sleeps(running.tid()) => {
                    return Ok(Err(running));
                }
                Wait::Timeout(running) => running,
            };
            if self.end_wanted && begun.elapsed() > ENDING {
                return Ok(Err(running));
            }
            nap = match self.end_wanted {
                true => NAP,
                false => (4 * nap).min(LONGEST_NAP),
            };
        }
    }
}

/// Stops us like any program that its terminal stops, until somebody lets us go on; not where nobody could (signal(7): process groups that
/// are orphaned are not stopped).
fn halt() {
    // SAFETY: sigset_t is plain bits, initialised by sigemptyset; all pointers are null or to locals.
    unsafe {
        let mut stop: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut stop);
        libc::sigaddset(&raw mut stop, libc::SIGTSTP);
        libc::raise(libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const stop, std::ptr::null_mut());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const stop, std::ptr::null_mut());
    }
}

/// Whether a signal comes from one of the processes that we follow.
fn is_theirs(info: &libc::siginfo_t) -> bool {
    // SAFETY: siginfo_t is plain bits; where there is no sender its number is that of none that we follow.
    let sender = Pid::from_raw(unsafe { info.si_pid() });
    info.si_code <= 0 && hub::process(sender).is_some()
}

/// Whether we were started with this signal ignored, as by nohup(1) or in a shell's background.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain bits; sigaction(2) writes nothing else.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The status as a shell sees it of a child that has ended; of any signal (nix knows only those of its enum).
fn exited(child: Pid) -> nix::Result<Option<i32>> {
    let how = libc::WEXITED | libc::WNOHANG;
    // SAFETY: siginfo_t is plain bits; waitid(2) writes nothing else, and its pid stays zero where nothing has happened. The fields
    // read are those of SIGCHLD.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let got = libc::waitid(libc::P_PID, child.as_raw() as u32, &raw mut info, how);
        nix::Error::result(got)?;
        Ok(match (info.si_pid(), info.si_code) {
            (0, _) => None,
            (_, libc::CLD_EXITED) => Some(info.si_status()),
            _ => Some(128 + info.si_status()),
        })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // What came too late to mean anything would end us, before the program's status is told.
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: set and timeout live here, and nothing is told of the signals; the mask is the one saved by `block`.
        unsafe {
            while libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const now) > 0
            {
            }
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}
