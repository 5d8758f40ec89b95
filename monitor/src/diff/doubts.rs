//! What makes two profiles hard to compare.

use std::collections::HashSet;

use crate::analysis::Analysis;
use crate::profile::Profile;
use crate::profile::types::HostCache;

/// One of both profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The first, which changes are counted from.
    Before,
    /// The second.
    After,
}

impl Which {
    /// The word of the views.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// A reason why a change may be of something else than the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// There are no samples in it: nothing can be compared.
    Empty(Which),
    /// The run, or its profile, broke off.
    Incomplete(Which),
    /// It is still recorded.
    Live(Which),
    /// Programs of these names.
    Programs(String, String),
    /// The same program with other arguments.
    Arguments,
    /// Samples were taken by these engines.
    Engines(String, String),
    /// This one was observed whole, the other in windows.
    Whole(Which),
    /// This one was attached to, and may lack the start that the other has.
    Attached(Which),
    /// In this one windows saw several threads, in the other one each.
    Threads(Which),
    /// Caches of these capacities in bytes, nearest first, of the hosts.
    Hosts(Vec<u64>, Vec<u64>),
}

/// All that there are of two profiles, those that matter most first.
#[must_use]
pub fn doubts(before: &Analysis<'_>, after: &Analysis<'_>) -> Vec<Doubt> {
    let (a, b) = (before.profile, after.profile);
    let sides = [(Which::Before, before), (Which::After, after)];
    let mut doubts = Vec::new();
    for (which, analysis) in sides {
        let profile = analysis.profile;
        if analysis.is_empty() {
            doubts.push(Doubt::Empty(which));
        }
        if profile.is_live {
            doubts.push(Doubt::Live(which));
        } else if profile.footer.is_none() || !profile.read_warnings.is_empty() {
            doubts.push(Doubt::Incomplete(which));
        }
    }
    let (program_a, program_b) = (a.header.program(), b.header.program());
    if program_a != program_b {
        doubts.push(Doubt::Programs(program_a.to_owned(), program_b.to_owned()));
    } else if arguments(a) != arguments(b) {
        doubts.push(Doubt::Arguments);
    }
    if a.header.engine != b.header.engine {
        let engines = (a.header.engine.clone(), b.header.engine.clone());
        doubts.push(Doubt::Engines(engines.0, engines.1));
    }
    let differ = |one: bool, other: bool| match (one, other) {
        (true, false) => Some(Which::Before),
        (false, true) => Some(Which::After),
        _ => None,
    };
    let is_measured = !before.is_empty() && !after.is_empty();
    doubts.extend(differ(a.header.full, b.header.full).map(Doubt::Whole));
    if is_measured {
        doubts.extend(differ(a.is_attached(), b.is_attached()).map(Doubt::Attached));
        doubts.extend(differ(before.has_threads(), after.has_threads()).map(Doubt::Threads));
    }
    let bytes = |caches: &[HostCache]| caches.iter().map(|c| c.bytes).collect::<Vec<u64>>();
    let (hosts_a, hosts_b) = (bytes(&a.header.host_caches), bytes(&b.header.host_caches));
    if hosts_a != hosts_b {
        doubts.push(Doubt::Hosts(hosts_a, hosts_b));
    }
    doubts
}

fn arguments(profile: &Profile) -> &[String] {
    profile.header.command.get(1..).unwrap_or(&[])
}

/// File names of the objects that both profiles have, of which the build ids are the same: their code is.
pub(super) fn same_objects<'p>(before: &'p Profile, after: &'p Profile) -> HashSet<&'p str> {
    let builds = |profile: &'p Profile| -> HashSet<(&'p str, &'p str)> {
        let modules = profile.modules.iter().filter(|m| !m.build_id.is_empty());
        modules
            .map(|m| {
                let name = crate::symbols::short_module_name(&m.path);
                (name, m.build_id.as_str())
            })
            .collect()
    };
    let before = builds(before);
    let same = builds(after).into_iter().filter(|b| before.contains(b));
    same.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;
    use crate::profile::types::{Estimate, Footer, Header, Record};

    fn profile(change: impl Fn(&mut Header), ended: bool) -> Profile {
        let mut records = example::beginning();
        let Some(Record::Header(header)) = records.first_mut() else {
            panic!("no header")
        };
        change(header);
        records.push(Record::Window(example::window(
            0,
            1000,
            Estimate::default(),
        )));
        if ended {
            records.push(Record::Footer(Footer::default()));
        }
        Profile::from_records(records).unwrap()
    }

    fn of(change: impl Fn(&mut Header), ended: bool) -> Vec<Doubt> {
        let (before, after) = (profile(|_| {}, true), profile(change, ended));
        let analyses = [&before, &after].map(|p| Analysis::new(p).unwrap());
        let mut found = doubts(&analyses[0], &analyses[1]);
        // The examples have no samples.
        assert_eq!(found[0], Doubt::Empty(Which::Before));
        found.retain(|d| !matches!(d, Doubt::Empty(_)));
        found
    }

    #[test]
    fn what_differs_is_told() {
        assert_eq!(of(|_| {}, true), []);
        assert_eq!(
            of(|_| {}, false)[..],
            [Doubt::Incomplete(Which::After)],
            "no footer"
        );
        let elsewhere = |h: &mut Header| h.command = vec!["/opt/app".into(), "x".into()];
        assert_eq!(of(elsewhere, true), [], "the program of that name");
        let other = |h: &mut Header| h.command = vec!["./other".into(), "x".into()];
        assert_eq!(
            of(other, true),
            [Doubt::Programs("app".into(), "other".into())]
        );
        let arguments = |h: &mut Header| h.command.push("y".into());
        assert_eq!(of(arguments, true), [Doubt::Arguments]);
        let whole = |h: &mut Header| h.full = true;
        assert_eq!(of(whole, true), [Doubt::Whole(Which::After)]);
        let engine = |h: &mut Header| h.engine = "counter".into();
        assert_eq!(
            of(engine, true),
            [Doubt::Engines("translate".into(), "counter".into())]
        );
        let host = |h: &mut Header| h.host_caches.truncate(1);
        let (all, one) = (vec![48 << 10, 2 << 20, 32 << 20], vec![48 << 10]);
        assert_eq!(of(host, true), [Doubt::Hosts(all, one)]);
    }
}
