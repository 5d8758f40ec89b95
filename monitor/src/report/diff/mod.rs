//! Two profiles compared, as text: what changed, how surely, and where.
//!
//! Pure text from a [`Diff`]; reads no environment and no file.

mod head;
mod limits;
mod sizes;
mod subjects;
mod words;

use crate::analysis::Analysis;
use crate::diff::Diff;
use crate::profile::Profile;

use super::style::{Style, wrap};

pub use limits::{met, not_sure, unknown};

/// One of the two profiles.
#[derive(Debug)]
pub struct Side<'a> {
    /// The file, as it was named.
    pub file: String,
    /// The profile with all its processes.
    pub whole: &'a Profile,
    /// The process that is compared.
    pub analysis: &'a Analysis<'a>,
}

/// The whole comparison; `top` subjects at most.
#[must_use]
pub fn render(
    before: &Side<'_>,
    after: &Side<'_>,
    diff: &Diff,
    top: usize,
    style: &Style,
) -> String {
    let mut out = head::head([before, after], diff, style);
    if diff.is_empty() {
        return out;
    }
    let header = &after.analysis.profile.header;
    out.push('\n');
    out.push_str(&sizes::ratios(diff, header, style));
    out.push('\n');
    let alone = before.whole.others.is_empty() && after.whole.others.is_empty();
    let of_what = if alone {
        "of the whole runs"
    } else {
        "of this process in the whole runs"
    };
    out.push_str(&sizes::counts(diff, header, of_what, style));
    out.push('\n');
    out.push_str(&subjects::table(diff, header, top, style));
    out.push('\n');
    out.push_str(&wrap(&sizes::summary(diff, header), style.width, 0));
    out
}
