//! Callgrind's format: costs at instructions and lines, which KCachegrind and `callgrind_annotate` open.
//!
//! Source: Valgrind manual, "Callgrind Format Specification", version 1. Events are line references and the misses in each cache. There
//! are no calls in it, as who called whom was not seen; what was inlined is marked by `fi=` and `fe=`, as Callgrind does.

use std::collections::BTreeMap;
use std::io::Write;

use super::flat::{self, HOMELESS, Levels};
use super::{ExportError, Exporter, Options};
use crate::analysis::{Analysis, Apart, Costs};

/// What the format calls a file, an object or a function that is not known.
const UNKNOWN: &str = "???";

pub(super) struct Callgrind;

/// Lines of one function: by file, line and address.
type Lines = BTreeMap<(String, u32, u64), Vec<f64>>;
/// By object, file and function.
type Functions = BTreeMap<(String, String, String), Lines>;

impl Exporter for Callgrind {
    fn export(
        &self,
        analysis: &Analysis<'_>,
        options: &Options,
        out: &mut dyn Write,
    ) -> Result<(), ExportError> {
        let levels = Levels::new(analysis, options)?;
        let mut functions = Functions::new();
        let mut commands = Vec::new();
        flat::each_process(analysis, options, |analysis| {
            commands.push(analysis.profile.header.command.join(" "));
            let costs = analysis.costs(&levels.sizes, Apart::Nothing)?;
            add(&mut functions, analysis, &costs);
            Ok(())
        })?;
        let header = &analysis.profile.header;
        writeln!(out, "# callgrind format\nversion: 1")?;
        writeln!(out, "creator: statcache {}", header.statcache_version)?;
        writeln!(out, "pid: {}\ncmd: {}", header.pid, line(&commands[0]))?;
        for other in &commands[1..] {
            writeln!(out, "desc: Process: {}", line(other))?;
        }
        let labels = levels.labels(header);
        writeln!(out, "positions: instr line")?;
        writeln!(out, "event: Refs : References to lines of 64 bytes")?;
        for label in &labels {
            writeln!(out, "event: {} : Misses in {label}", event(label))?;
        }
        let events = labels.iter().map(|label| event(label));
        let events: Vec<String> = ["Refs".to_owned()].into_iter().chain(events).collect();
        writeln!(out, "events: {}", events.join(" "))?;
        let mut sums = vec![0; events.len()];
        for lines in functions.values().flat_map(BTreeMap::values) {
            for (sum, &cost) in sums.iter_mut().zip(lines) {
                *sum += flat::count(cost);
            }
        }
        let sums: Vec<String> = sums.iter().map(u64::to_string).collect();
        writeln!(out, "summary: {}", sums.join(" "))?;
        write_functions(&functions, out)?;
        writeln!(out, "\ntotals: {}", sums.join(" "))?;
        Ok(())
    }
}

/// Adds the costs of one process.
fn add(functions: &mut Functions, analysis: &Analysis<'_>, costs: &Costs) {
    let profile = analysis.profile;
    for place in &costs.places {
        let frames = flat::frames(profile, place.instr);
        let (inner, outer) = (&frames[0], &frames[frames.len() - 1]);
        let object = flat::object(profile, place.instr).unwrap_or_default();
        let function = [object, &outer.file, &outer.function].map(str::to_owned);
        let lines = functions.entry(function.into()).or_default();
        let offset = profile.instrs[place.instr as usize].offset;
        let line = (inner.file.clone(), inner.line, offset);
        let costs = std::iter::once(place.references).chain(place.misses.iter().copied());
        let so_far = lines
            .entry(line)
            .or_insert_with(|| vec![0.0; 1 + place.misses.len()]);
        for (sum, cost) in so_far.iter_mut().zip(costs) {
            *sum += cost;
        }
    }
    let (references, misses) = costs.homeless();
    let function = [String::new(), String::new(), HOMELESS.to_owned()];
    let lines = functions.entry(function.into()).or_default();
    let so_far = lines
        .entry((String::new(), 0, 0))
        .or_insert_with(|| vec![0.0; 1 + misses.len()]);
    let costs = std::iter::once(references).chain(misses);
    so_far
        .iter_mut()
        .zip(costs)
        .for_each(|(sum, cost)| *sum += cost);
}

fn write_functions(functions: &Functions, out: &mut dyn Write) -> Result<(), ExportError> {
    let known = |name: &str| match name {
        "" => UNKNOWN.to_owned(),
        name => line(name),
    };
    let counts = |costs: &[f64]| costs.iter().any(|&cost| flat::count(cost) > 0);
    for ((object, file, function), lines) in functions {
        if !lines.values().any(|costs| counts(costs)) {
            continue;
        }
        writeln!(out, "\nob={}\nfl={}", known(object), known(file))?;
        writeln!(out, "fn={}", known(function))?;
        let mut now = file;
        for ((of, line, offset), costs) in lines.iter().filter(|(_, costs)| counts(costs)) {
            if of != now {
                let back = if of == file { "fe" } else { "fi" };
                writeln!(out, "{back}={}", known(of))?;
                now = of;
            }
            let costs = costs.iter().map(|&cost| flat::count(cost).to_string());
            let costs: Vec<String> = costs.collect();
            writeln!(out, "{offset:#x} {line} {}", costs.join(" "))?;
        }
    }
    Ok(())
}

/// Names of events are words of letters and digits.
fn event(label: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = label.split(|c| !plain(c)).filter(|word| !word.is_empty());
    format!("Miss_{}", words.collect::<Vec<_>>().join("_"))
}

/// A name ends with its line, and one that begins with a number in parentheses is the number of a name.
fn line(name: &str) -> String {
    let name = name.replace(['\n', '\r'], " ");
    let number = name.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    match number.is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit())) {
        true => format!(" {name}"),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{event, line};

    #[test]
    fn names_of_events_are_words() {
        assert_eq!(event("L1 32K"), "Miss_L1_32K");
        assert_eq!(event("1.5M"), "Miss_1_5M");
    }

    #[test]
    fn names_stay_names() {
        assert_eq!(line("a\nb"), "a b");
        assert_eq!(line("(1).c"), " (1).c");
        assert_eq!(line("(anonymous namespace)::f"), "(anonymous namespace)::f");
    }
}
