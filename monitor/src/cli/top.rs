//! `statcache top`: a profile on the whole terminal, while it is written or afterwards.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use crossterm::event::{self, Event, KeyEventKind};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal, raise};

use super::disk::Disk;
use super::run::DEFAULT_FILE;
use super::{Exit, Place, terminal};
use crate::control::{self, Status};
use crate::profile::Profile;
use crate::report::{Sources, Style};
use crate::top::{self, Action, Answer, Content, Profiles, Request, State};

/// How long a key is waited for before what the worker says is looked at, ms.
const TICK: u16 = 100;

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
    // Here and in the threads made behind it, so that one alone hears of them.
    let ends = ends();
    ends.thread_block()?;
    let ender = thread::Builder::new().name("signals".to_owned());
    let cannot = "cannot start a thread; raise the limit of processes (ulimit -u)";
    ender.spawn(move || end_by_signal(&ends)).context(cannot)?;
    let worker = thread::Builder::new().name("top".to_owned());
    worker
        .spawn(move || top::work(&found, &asked, &answers))
        .context(cannot)?;
    let screen = ratatui::try_init()
        .inspect_err(|_| ratatui::restore())
        .context("cannot draw on this terminal")?;
    let result = drawn(screen, state, &requests, &told);
    ratatui::restore();
    result
}

/// The signals that end it.
fn ends() -> SigSet {
    let ends = [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ];
    ends.into_iter().collect()
}

/// Waits for one of them, leaves the terminal as it was, and ends as it would have ended. (In a thread of its own: who reads keys from a terminal that
/// is gone may never come back from that.)
fn end_by_signal(ends: &SigSet) {
    let Ok(signal) = ends.wait() else {
        return;
    };
    ratatui::restore();
    // Where it is ignored, or cannot be sent, the end is another one.
    let _ = ends.thread_unblock().and_then(|()| raise(signal));
    std::process::exit(Exit::Failure.code().into());
}

/// Draws until a key ends it.
fn drawn(
    mut screen: ratatui::DefaultTerminal,
    mut state: State,
    requests: &Sender<Request>,
    told: &Receiver<Answer>,
) -> anyhow::Result<Exit> {
    let mut content: Option<Content> = None;
    let mut error: Option<String> = None;
    let mut asked = None;
    loop {
        state.request.style.width = Style::fitting(screen.size()?.width.into());
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
        if !has_input()? {
            continue;
        }
        // All that came at once: what is read but not yet told does not count as input.
        while event::poll(Duration::ZERO)? {
            let action = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    state.key(key, content.as_ref())
                }
                _ => Action::Draw,
            };
            if action == Action::Quit {
                return Ok(Exit::Success);
            }
        }
    }
}

/// Whether there is something to read from the terminal, within a tick.
///
/// # Errors
/// When the terminal is gone: to read from it then is to wait for ever, at full speed.
fn has_input() -> anyhow::Result<bool> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, TICK) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let found = fds[0].revents().unwrap_or(PollFlags::empty());
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    anyhow::ensure!(!found.intersects(gone), "the terminal is gone");
    Ok(!found.is_empty())
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
