//! Reads profiles and works out what is asked of them, beside the screen.
//!
//! A profile that is being written is read again as it grows: no sooner than a second after the last time, and for no more than a fifth of
//! the time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::content::{Content, Request, content};
use crate::analysis::Analysis;
use crate::control::Status;
use crate::profile::Profile;
use crate::report::{Sources, processes};

/// How long what was worked out of a live profile is good for.
const FRESH: Duration = Duration::from_secs(1);
/// Time from one look to the next, in times of what one takes.
const REST: u32 = 4;
/// How long it waits for a request where nothing changes.
const LONG: Duration = Duration::from_secs(3600);

/// Where profiles come from.
pub trait Profiles {
    /// Reads the one that is named.
    ///
    /// # Errors
    /// What there is to say, in one line.
    fn load(&self, request: &Request) -> Result<Profile, String>;
    /// The sources of a process's program.
    fn sources<'p>(&self, of: &'p Profile) -> Box<dyn Sources + 'p>;
    /// All live profiles.
    fn live(&self) -> Vec<Status>;
}

/// What the worker says.
#[derive(Debug)]
pub enum Answer {
    /// What was asked for.
    Content(Box<Content>),
    /// Why there is none.
    Failed(String),
}

/// What is left to do with a profile.
enum Loaded {
    /// To read it, or another one, again.
    Again,
    /// To look at another of its processes.
    Other,
    /// Nobody asks any more.
    Over,
}

/// Answers requests until nobody makes any.
pub fn work(profiles: &dyn Profiles, requests: &Receiver<Request>, answers: &Sender<Answer>) {
    let Ok(mut request) = requests.recv() else {
        return;
    };
    loop {
        let begun = Instant::now();
        let profile = match profiles.load(&request) {
            Ok(profile) => profile,
            Err(error) => {
                // It may have been looked at too early, or at a bad moment.
                let told = answers.send(Answer::Failed(error)).is_ok();
                match requests.recv_timeout(FRESH) {
                    Ok(next) => request = next,
                    Err(RecvTimeoutError::Timeout) if told => {}
                    Err(_) => return,
                }
                continue;
            }
        };
        let others = profiles.live();
        let reading = begun.elapsed();
        loop {
            let shown = request.process.and_then(|pid| {
                let mut all = std::iter::once(&profile).chain(&profile.others);
                all.find(|p| p.header.pid == pid)
            });
            let shown = shown.unwrap_or_else(|| processes::default(&profile));
            let desk = Desk {
                profile: &profile,
                shown,
                others: &others,
                sources: profiles.sources(shown),
                reading,
            };
            match desk.serve(&mut request, requests, answers) {
                Loaded::Again => break,
                Loaded::Other => {}
                Loaded::Over => return,
            }
        }
    }
}

/// One process of a profile that was read.
struct Desk<'p> {
    profile: &'p Profile,
    shown: &'p Profile,
    others: &'p [Status],
    sources: Box<dyn Sources + 'p>,
    /// What it took to read the profile.
    reading: Duration,
}

impl Desk<'_> {
    /// Answers what is asked of it.
    fn serve(
        &self,
        request: &mut Request,
        requests: &Receiver<Request>,
        answers: &Sender<Answer>,
    ) -> Loaded {
        let fail = |error: &dyn std::error::Error| {
            let told = answers.send(Answer::Failed(error.to_string()));
            told.is_ok()
        };
        let analysis = match Analysis::new(self.shown) {
            Ok(analysis) => Some(analysis),
            Err(error) if fail(&error) => None,
            Err(_) => return Loaded::Over,
        };
        let begun = Instant::now();
        let mut deadline = None;
        loop {
            if let Some(analysis) = &analysis {
                let sources = &*self.sources;
                let worked = content(self.profile, analysis, self.others, request, sources);
                let told = match worked {
                    Ok(content) => answers.send(Answer::Content(Box::new(content))).is_ok(),
                    Err(error) => fail(&error),
                };
                if !told {
                    return Loaded::Over;
                }
            }
            // Of the reading and of the first answer.
            let deadline = *deadline.get_or_insert_with(|| {
                let took = self.reading + begun.elapsed();
                match self.profile.is_live {
                    true => Instant::now() + FRESH.max(REST * took),
                    false => Instant::now() + LONG,
                }
            });
            let patience = deadline.saturating_duration_since(Instant::now());
            let next = match requests.recv_timeout(patience) {
                // Of several that came meanwhile the last counts.
                Ok(next) => requests.try_iter().last().unwrap_or(next),
                Err(RecvTimeoutError::Timeout) => return Loaded::Again,
                Err(RecvTimeoutError::Disconnected) => return Loaded::Over,
            };
            let before = std::mem::replace(request, next);
            if before.profile != request.profile {
                return Loaded::Again;
            }
            if before.process != request.process {
                return Loaded::Other;
            }
        }
    }
}
