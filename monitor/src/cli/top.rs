//! `statcache top`: a profile on the whole terminal, while it is written or afterwards.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use crossterm::event::{self, Event, KeyEventKind};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::disk::Disk;
use super::run::DEFAULT_FILE;
use super::{Exit, Place, terminal};
use crate::control::{self, Status};
use crate::profile::Profile;
use crate::report::{Sources, Style};
use crate::top::{self, Action, Answer, Content, Profiles, Request, State};

/// How long a key is waited for before what the worker says is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Raw options of `top`.
#[derive(Clone, Debug, Args)]
pub(super) struct TopArgs {
    /// The process id of a live profile, or a file (default: the newest live profile, or else
    /// statcache.prof).
    #[arg(value_name = "PID|FILE")]
    profile: Option<PathBuf>,
}

pub(super) fn execute(args: &TopArgs) -> anyhow::Result<Exit> {
    anyhow::ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "top needs a terminal to draw on and to read keys from; 'statcache report' writes the same as text"
    );
    let profile = match &args.profile {
        Some(profile) => profile.clone(),
        None => {
            let live = control::live().into_iter().flatten();
            let newest = live.max_by(|a, b| a.start_unix_s.total_cmp(&b.start_unix_s));
            newest.map_or_else(|| DEFAULT_FILE.into(), |s| s.pid.to_string().into())
        }
    };
    // Whether it is there is said before the screen is taken.
    let found = Found::default();
    found.place(&profile)?;
    let state = State::new(profile, terminal::stdout());
    let (requests, asked) = mpsc::channel();
    let (answers, told) = mpsc::channel();
    // In the worker, too, which is made behind it: a signal is to end the drawing, not the process in the midst of it.
    let ends = Ends::new()?;
    let worker = thread::Builder::new().name("top".to_owned());
    worker
        .spawn(move || top::work(&found, &asked, &answers))
        .context("cannot start a thread; raise the limit of processes (ulimit -u)")?;
    let screen = ratatui::try_init()
        .inspect_err(|_| ratatui::restore())
        .context("cannot draw on this terminal")?;
    let result = drawn(screen, state, &requests, &told, &ends);
    ratatui::restore();
    match result? {
        None => Ok(Exit::Success),
        // As it would have ended.
        Some(signal) => {
            ends.signals.thread_unblock()?;
            raise(signal)?;
            Ok(Exit::Failure)
        }
    }
}

/// The signals that end it, once the terminal is as it was.
struct Ends {
    signals: SigSet,
    arrived: SignalFd,
}

impl Ends {
    fn new() -> anyhow::Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
        ] {
            signals.add(signal);
        }
        signals.thread_block()?;
        let arrived =
            SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { signals, arrived })
    }

    fn arrived(&self) -> anyhow::Result<Option<Signal>> {
        let found = self.arrived.read_signal()?;
        Ok(found.and_then(|found| Signal::try_from(found.ssi_signo as i32).ok()))
    }
}

/// Draws until a key ends it, or a signal: that one.
fn drawn(
    mut screen: ratatui::DefaultTerminal,
    mut state: State,
    requests: &Sender<Request>,
    told: &Receiver<Answer>,
    ends: &Ends,
) -> anyhow::Result<Option<Signal>> {
    let mut content: Option<Content> = None;
    let mut error: Option<String> = None;
    state.request.style.width = Style::fitting(screen.size()?.width.into());
    let mut asked = None;
    loop {
        if asked.as_ref() != Some(&state.request) {
            state.is_waiting = true;
            requests.send(state.request.clone()).ok();
            asked = Some(state.request.clone());
        }
        loop {
            match told.try_recv() {
                Ok(Answer::Content(new)) => {
                    state.answered(&new);
                    (content, error) = (Some(*new), None);
                }
                Ok(Answer::Failed(new)) => {
                    state.is_waiting = false;
                    error = Some(new);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => anyhow::bail!("the worker of top has ended"),
            }
        }
        let shown = match &error {
            Some(error) => Err(error.as_str()),
            None => Ok(content.as_ref()),
        };
        screen.draw(|frame| top::draw(frame, &mut state, shown))?;
        if let Some(signal) = ends.arrived()? {
            return Ok(Some(signal));
        }
        if !event::poll(TICK)? {
            continue;
        }
        let action = match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                state.key(key, content.as_ref())
            }
            Event::Resize(width, _) => {
                state.request.style.width = Style::fitting(width.into());
                Action::Ask
            }
            _ => Action::Draw,
        };
        if action == Action::Quit {
            return Ok(None);
        }
    }
}

/// Profiles as they are found by their names. One that was live is where it was once it is complete.
#[derive(Default)]
struct Found {
    places: RefCell<Vec<(PathBuf, PathBuf)>>,
}

impl Found {
    fn place(&self, named: &Path) -> anyhow::Result<Place> {
        let place = super::find(named);
        let mut places = self.places.borrow_mut();
        match (place, places.iter().find(|(name, _)| name == named)) {
            (Ok(place), None) => {
                places.push((named.to_owned(), place.path.clone()));
                Ok(place)
            }
            (Err(_), Some((_, path))) => Ok(Place {
                path: path.clone(),
                is_live: false,
            }),
            (place, _) => place,
        }
    }
}

impl Profiles for Found {
    fn load(&self, request: &Request) -> Result<Profile, String> {
        let load = || super::load(&self.place(&request.profile)?);
        load().map_err(|error| super::line(&error))
    }

    fn sources<'p>(&self, of: &'p Profile) -> Box<dyn Sources + 'p> {
        Box::new(Disk { profile: of })
    }

    fn live(&self) -> Vec<Status> {
        control::live().into_iter().flatten().collect()
    }
}
