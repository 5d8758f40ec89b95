//! What our output streams can show, asked of the environment once.

use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use crate::report::{Style, Terminal};

/// The style of standard output.
#[must_use]
pub fn stdout() -> Style {
    style(&io::stdout())
}

/// The style of standard error, where `run` writes its summary.
#[must_use]
pub fn stderr() -> Style {
    style(&io::stderr())
}

fn style(stream: &(impl IsTerminal + AsFd)) -> Style {
    let variable = |name| env::var(name).ok();
    let no_color = variable("NO_COLOR");
    let force = variable("CLICOLOR_FORCE");
    let term = variable("TERM");
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| variable(name).filter(|v| !v.is_empty()));
    Style::of_terminal(&Terminal {
        is_terminal: stream.is_terminal(),
        columns: terminal_size::terminal_size_of(stream).map(|(w, _)| usize::from(w.0)),
        no_color: no_color.as_deref(),
        force_color: force.as_deref(),
        term: term.as_deref(),
        locale: locale.as_deref(),
        columns_variable: variable("COLUMNS").as_deref(),
    })
}
