//! A sign on the terminal that something is worked on, where that takes longer than a moment.

use std::env;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Who has to wait no longer than this need not be told why.
const MOMENT: Duration = Duration::from_millis(400);
/// Between two pictures of it.
const TICK: Duration = Duration::from_millis(100);

/// While it lives the terminal says what is worked on. It is gone from there when this is dropped, which is to be before
/// anything is written.
#[derive(Debug)]
pub(super) struct Working {
    /// `None` where nobody watches, or no thread can be had.
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Working {
    /// Says `what`, if both standard output and standard error are terminals.
    pub(super) fn on(what: String) -> Working {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let is_watched = io::stdout().is_terminal() && io::stderr().is_terminal() && !is_dumb;
        let show = || {
            let (done, is_done) = mpsc::channel();
            let shown = thread::Builder::new().spawn(move || {
                if is_done.recv_timeout(MOMENT) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let style = ProgressStyle::with_template("{spinner} {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner());
                let bar = ProgressBar::new_spinner().with_message(what);
                // As every terminal shows them, whatever the locale.
                bar.set_style(style.tick_chars("|/-\\ "));
                while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    bar.tick();
                }
                bar.finish_and_clear();
            });
            Some((done, shown.ok()?))
        };
        Working {
            shown: is_watched.then(show).flatten(),
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.shown.take() {
            drop(done);
            // It only draws: what went wrong there is no loss.
            let _ = thread.join();
        }
    }
}
