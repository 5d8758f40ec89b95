//! One page for a browser: what was run, the curves, the lists, the source with its figures.
//!
//! The page is whole in itself: style, script and figures are inside, nothing is fetched, and a policy in its head has the browser
//! refuse what would be. Without its script it shows the same, unsorted. All that comes from a profile is escaped by `maud`
//! and goes through [`text::shown`]. Wording is the report's, figures are [`Analysis`]'s.

mod axis;
mod curve;
mod gathered;
mod names;
mod page;
mod sharing;
mod source;
mod tables;
mod text;
mod windows;

use std::io::Write;

use rayon::prelude::*;
use statcache_model::ModelError;

use super::{ExportError, Exporter, Options};
use crate::analysis::Analysis;
use crate::profile::Profile;
use crate::report::{Style, processes};
use gathered::Gathered;

/// Processes with figures of their own; the others are named. (Chosen: a page of so many is read and loaded with ease.)
const PROCESSES: usize = 8;
/// How the report's texts are written here: nothing is wrapped or cut.
const STYLE: Style = Style {
    width: usize::MAX / 4,
    colour: false,
    unicode: true,
};

pub(super) struct Html;

impl Exporter for Html {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options<'_>,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let profile = analysis.profile;
        let (shown, others) = match options.alone {
            true => (vec![profile], Vec::new()),
            false => chosen(profile),
        };
        let asked = options.caches.as_deref();
        // Each is worked out by all threads; of several, several at once.
        let analyses = shown
            .par_iter()
            .filter(|process| !std::ptr::eq(**process, profile))
            .map(|process| Analysis::new(process))
            .collect::<Result<Vec<_>, ModelError>>()?;
        let mut rest = analyses.iter();
        let each: Vec<&Analysis<'_>> = shown
            .iter()
            .filter_map(|process| match std::ptr::eq(*process, profile) {
                true => Some(analysis),
                false => rest.next(),
            })
            .collect();
        let gathered = each
            .into_par_iter()
            .enumerate()
            .map(|(number, analysis)| Gathered::new(number, analysis, asked))
            .collect::<Result<Vec<_>, ModelError>>()?;
        let page = page::page(profile, &gathered, &others, options.sources);
        out.write_all(page.into_string().as_bytes())?;
        Ok(())
    }
}

/// The processes that have figures, the one that a report shows first and then the busiest, and those that are only named.
fn chosen(profile: &Profile) -> (Vec<&Profile>, Vec<&Profile>) {
    let default = processes::default(profile);
    let mut shown = vec![default];
    let mut others = Vec::new();
    for process in processes::busiest_first(profile) {
        if std::ptr::eq(process, default) {
            continue;
        }
        let seen = process.windows.iter().any(|w| !w.samples.is_empty());
        match seen && shown.len() < PROCESSES {
            true => shown.push(process),
            false => others.push(process),
        }
    }
    (shown, others)
}
