//! Which subject of one profile is which of the other.
//!
//! Paths of a program and of its sources may differ between two builds, so of both only the last
//! component counts, the program itself is the same whatever its file is called, and so is a function that is in one source file before
//! and in one of another name behind. Lines are known by object, file,
//! function and number. Where an object's build id shows that it is the same file, numbers are the same, too. Else
//! lines of a function may have moved together: they are taken to have done so where that makes far more of both
//! profiles' references meet than leaving them where they are. Behind an edit in a function lines may have moved that before it have
//! not; those left over are matched by their number, and then by one more move that several of them share. What is left is in one profile
//! only. A line that was itself rewritten may so become another's, but never one of another function; functions are known by name alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::change::Figure;
use crate::analysis::Subject;
use crate::profile::Profile;

/// A move of a function's lines must make so many times as many references meet as none does. (Chosen: lines of few
/// samples come and go between two profiles.)
const FAR_MORE: f64 = 1.5;
/// So many lines left over must share a second move.
const SHARED_BY: usize = 2;
/// Stacks are called by the ids of their threads, which are other ones in each run.
const THREAD_STACK: &str = "stack of thread ";

/// A subject of one profile.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) subject: Subject,
    /// Its misses as a part of all line references of its run.
    pub(super) misses: Figure,
    /// Its share of the line references, 0 to 1.
    pub(super) share: f64,
    /// Whether its figures are not to be leaned on.
    pub(super) weak: bool,
}

/// What a subject is known by, but for its line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    object: String,
    file: String,
    function: String,
    name: String,
    callers: Vec<String>,
}

/// Those of one place, by line.
type Lines = BTreeMap<u32, Piece>;

/// A subject in both profiles, or in one.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) before: Option<Piece>,
    pub(super) after: Option<Piece>,
    /// Whether its object is the same file in both: then it is in one of them only because it was not met in the other.
    pub(super) is_same_code: bool,
}

/// Matches the subjects of two profiles, in no particular order but always the same.
pub(super) fn pairs(
    before: (&Profile, Vec<Piece>),
    after: (&Profile, Vec<Piece>),
    same_objects: &HashSet<&str>,
) -> Vec<Pair> {
    let mut places = BTreeMap::<Place, [Lines; 2]>::new();
    let mut same: HashMap<Place, bool> = HashMap::new();
    for (side, (profile, pieces)) in [before, after].into_iter().enumerate() {
        for piece in pieces {
            let object = match piece.subject.object.as_str() {
                // Of a block of the heap: the call lies in the program, most likely.
                "" => profile.header.program(),
                object => object,
            };
            let is_same = same_objects.contains(object);
            let place = place_of(&piece.subject, profile.header.program());
            let of_place = same.entry(place.clone()).or_insert(true);
            *of_place &= is_same;
            let lines = &mut places.entry(place).or_default()[side];
            match lines.get_mut(&piece.subject.line) {
                Some(there) => there.add(piece),
                None => {
                    lines.insert(piece.subject.line, piece);
                }
            }
        }
    }
    let mut pairs = Vec::new();
    for (place, [before, after]) in renamed(places) {
        let is_same_code = same.get(&place).copied().unwrap_or(false);
        match_lines(before, after, is_same_code, &mut pairs);
    }
    pairs
}

/// Joins places that differ by their source file alone, where each is in one of the profiles only and there are no more of them.
fn renamed(places: BTreeMap<Place, [Lines; 2]>) -> Vec<(Place, [Lines; 2])> {
    let mut joined = Vec::new();
    let mut alone: BTreeMap<Place, Vec<(Place, [Lines; 2])>> = BTreeMap::new();
    for (place, sides) in places {
        let is_function = !place.function.is_empty();
        match is_function && sides.iter().any(BTreeMap::is_empty) {
            false => joined.push((place, sides)),
            true => {
                let anywhere = Place {
                    file: String::new(),
                    ..place.clone()
                };
                alone.entry(anywhere).or_default().push((place, sides));
            }
        }
    }
    for mut of in alone.into_values() {
        of.sort_by_key(|(_, [before, _])| before.is_empty());
        match <[_; 2]>::try_from(of) {
            Ok([(_, [before, none]), (place, [no, after])]) if none.is_empty() && no.is_empty() => {
                joined.push((place, [before, after]));
            }
            Ok(both) => joined.extend(both),
            Err(of) => joined.extend(of),
        }
    }
    joined
}

impl Piece {
    /// Takes another of the same name and line to it.
    fn add(&mut self, other: Piece) {
        self.misses = self.misses.plus(other.misses);
        self.weak |= other.weak;
        self.share += other.share;
    }
}

fn place_of(subject: &Subject, program: &str) -> Place {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    // No file is called so.
    let object = match subject.object == program {
        true => "/".to_owned(),
        false => subject.object.clone(),
    };
    let name = match subject.name.as_str() {
        name if name.starts_with(THREAD_STACK) => THREAD_STACK.to_owned(),
        // What is called by its line is known by its function.
        _ if subject.line > 0 => String::new(),
        name => match name.strip_suffix(program) {
            Some("data of ") => "data of /".to_owned(),
            _ => name.to_owned(),
        },
    };
    // What has no symbol is called by its object: `app+0x1130`.
    let of_object = subject.function.strip_prefix(program);
    let function = match of_object.filter(|rest| rest.starts_with("+0x")) {
        Some(rest) => rest.to_owned(),
        None => subject.function.clone(),
    };
    Place {
        object,
        file: base(&subject.file),
        function,
        name,
        callers: subject.callers.clone(),
    }
}

fn match_lines(mut before: Lines, mut after: Lines, is_same_code: bool, pairs: &mut Vec<Pair>) {
    let mut matched: Vec<(u32, u32)> = Vec::new();
    let mut meet = |before: &mut Lines, after: &mut Lines, by: i64| {
        for (from, to) in meeting(before, after, by) {
            // An edit moves lines, and hardly ever past each other.
            let in_order = |&(a, b): &(u32, u32)| (a < from) == (b < to);
            if !matched.iter().all(in_order) {
                continue;
            }
            if let (Some(a), Some(b)) = (before.remove(&from), after.remove(&to)) {
                matched.push((from, to));
                pairs.push(Pair {
                    before: Some(a),
                    after: Some(b),
                    is_same_code,
                });
            }
        }
    };
    if !is_same_code
        && let Some(by) = best_move(&before, &after)
        && met(&before, &after, by) > FAR_MORE * met(&before, &after, 0)
    {
        meet(&mut before, &mut after, by);
    }
    meet(&mut before, &mut after, 0);
    if !is_same_code
        && let Some(by) = best_move(&before, &after)
        && meeting(&before, &after, by).len() >= SHARED_BY
    {
        meet(&mut before, &mut after, by);
    }
    let alone = |before, after| Pair {
        before,
        after,
        is_same_code,
    };
    pairs.extend(before.into_values().map(|piece| alone(Some(piece), None)));
    pairs.extend(after.into_values().map(|piece| alone(None, Some(piece))));
}

/// Lines of both that meet when those of the first are moved by so many.
fn meeting(before: &Lines, after: &Lines, by: i64) -> Vec<(u32, u32)> {
    let moved = |&line: &u32| {
        let to = u32::try_from(i64::from(line) + by).ok()?;
        // Where there is no line number, none can move.
        let numbered = by == 0 || (line > 0 && to > 0);
        (numbered && after.contains_key(&to)).then_some((line, to))
    };
    before.keys().filter_map(moved).collect()
}

/// Share of the references that both have at lines that meet.
fn met(before: &Lines, after: &Lines, by: i64) -> f64 {
    let common = |(from, to)| before[&from].share.min(after[&to].share);
    meeting(before, after, by).into_iter().map(common).sum()
}

/// The move by which most references meet, the least of those; `None` where none can.
fn best_move(before: &Lines, after: &Lines) -> Option<i64> {
    let moves: HashSet<i64> = before
        .keys()
        .flat_map(|&from| after.keys().map(move |&to| i64::from(to) - i64::from(from)))
        .collect();
    let mut moves: Vec<i64> = moves.into_iter().collect();
    moves.sort_by_key(|by| (by.abs(), *by));
    let scored = moves.into_iter().map(|by| (by, met(before, after, by)));
    let best = scored
        .filter(|(_, score)| *score > 0.0)
        .reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(by, _)| by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::example;

    fn piece(function: &str, line: u32, share: f64) -> Piece {
        Piece {
            subject: Subject {
                file: "/here/a.c".to_owned(),
                line,
                function: function.to_owned(),
                object: "app".to_owned(),
                ..Subject::default()
            },
            misses: Figure::default(),
            share,
            weak: false,
        }
    }

    /// Lines of both, 0 for none, in the order of the first's.
    fn matched(before: &[(u32, f64)], after: &[(u32, f64)], is_same: bool) -> Vec<(u32, u32)> {
        let profile = crate::profile::Profile::from_records(example::beginning()).unwrap();
        let pieces = |of: &[(u32, f64)]| of.iter().map(|&(l, s)| piece("f", l, s)).collect();
        let same = if is_same { vec!["app"] } else { Vec::new() };
        let pairs = pairs(
            (&profile, pieces(before)),
            (&profile, pieces(after)),
            &same.into_iter().collect(),
        );
        let line = |of: &Option<Piece>| of.as_ref().map_or(0, |p| p.subject.line);
        let mut lines: Vec<(u32, u32)> = pairs
            .iter()
            .map(|p| (line(&p.before), line(&p.after)))
            .collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn lines_that_moved_together_are_matched() {
        let before = [(10, 0.3), (11, 0.1), (14, 0.2)];
        let moved = [(12, 0.25), (13, 0.1), (16, 0.2)];
        let still = [(10, 0.25), (11, 0.1), (14, 0.2)];
        assert_eq!(
            matched(&before, &moved, false),
            [(10, 12), (11, 13), (14, 16)]
        );
        assert_eq!(
            matched(&before, &still, false),
            [(10, 10), (11, 11), (14, 14)]
        );
        // By one: some fall upon each other's old numbers.
        let by_one = [(11, 0.3), (12, 0.1), (15, 0.2)];
        assert_eq!(
            matched(&before, &by_one, false),
            [(10, 11), (11, 12), (14, 15)]
        );
        // The same file: nothing can have moved, and what was not met was not met.
        assert_eq!(
            matched(&before, &by_one, true),
            [(0, 12), (0, 15), (10, 0), (11, 11), (14, 0)]
        );
    }

    #[test]
    fn an_edit_within_a_function_moves_what_is_behind_it() {
        let before = [(10, 0.4), (20, 0.2), (22, 0.1)];
        let after = [(10, 0.4), (15, 0.1), (25, 0.2), (27, 0.1)];
        assert_eq!(
            matched(&before, &after, false),
            [(0, 15), (10, 10), (20, 25), (22, 27)]
        );
        // What is behind it weighs more.
        let after = [(10, 0.1), (25, 0.4), (27, 0.1)];
        let before = [(10, 0.1), (20, 0.4), (22, 0.1)];
        assert_eq!(
            matched(&before, &after, false),
            [(10, 10), (20, 25), (22, 27)]
        );
    }

    #[test]
    fn lines_do_not_move_past_each_other() {
        let (before, after) = ([(10, 0.4), (12, 0.1)], [(12, 0.1), (14, 0.4)]);
        assert_eq!(
            matched(&before, &after, false),
            [(0, 12), (10, 14), (12, 0)]
        );
    }

    #[test]
    fn lines_of_few_samples_that_come_and_go_have_not_moved() {
        let before = [(10, 0.5), (12, 0.001)];
        let after = [(10, 0.5), (19, 0.001)];
        assert_eq!(
            matched(&before, &after, false),
            [(0, 19), (10, 10), (12, 0)]
        );
    }

    #[test]
    fn a_function_in_a_file_of_another_name_is_found() {
        let profile = crate::profile::Profile::from_records(example::beginning()).unwrap();
        let of = |files: &[&str]| -> Vec<Piece> {
            let named = |file: &&str| {
                let mut piece = piece("f", 7, 0.5);
                piece.subject.file = (*file).to_owned();
                piece
            };
            files.iter().map(named).collect()
        };
        let matched = |before: &[&str], after: &[&str]| {
            let pairs = pairs(
                (&profile, of(before)),
                (&profile, of(after)),
                &HashSet::new(),
            );
            let both = |p: &&Pair| p.before.is_some() && p.after.is_some();
            (pairs.len(), pairs.iter().filter(both).count())
        };
        assert_eq!(matched(&["/a/x.c"], &["/a/y.c"]), (1, 1));
        // Which of them it is, nobody knows.
        assert_eq!(matched(&["/a/x.c", "/a/z.c"], &["/a/y.c"]), (3, 0));
        assert_eq!(matched(&["/a/x.c"], &["/a/x.c", "/a/y.c"]), (2, 1));
        assert_eq!(matched(&["/a/x.c", "/a/y.c"], &[]), (2, 0));
    }

    #[test]
    fn another_path_is_no_other_place() {
        let subject = |object: &str, file: &str, name: &str| Subject {
            object: object.to_owned(),
            file: file.to_owned(),
            function: format!("{object}+0x10"),
            name: name.to_owned(),
            ..Subject::default()
        };
        let old = place_of(&subject("old", "/a/x.c", "stack of thread 7"), "old");
        let new = place_of(&subject("new", "/b/x.c", "stack of thread 9"), "new");
        assert_eq!(old, new);
        let site = |line| Subject {
            line,
            ..subject("app", "/a/x.c", &format!("heap of f (x.c:{line})"))
        };
        assert_eq!(place_of(&site(7), "app"), place_of(&site(8), "app"));
        let library = place_of(&subject("old", "/a/x.c", "stack of thread 7"), "new");
        assert_ne!(library, new);
    }
}
