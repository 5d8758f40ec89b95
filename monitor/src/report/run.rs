//! What was run, how it was observed, and how sure the result is.

use std::fmt::Write;
use std::path::Path;

use statcache_model::CurvePoint;

use super::format::{count, percent, plural, seconds};
use super::style::{Ink, Style, fit, wrap};
use crate::analysis::{Analysis, Totals};
use crate::profile::Profile;
use crate::profile::types::{ENDED_EARLY, Footer, Header};
use crate::sizes::format_size;

/// Exit statuses of who was ended by a signal (signal(7) has 64).
const SIGNALLED: std::ops::RangeInclusive<i32> = 129..=192;

/// The first block of a report.
pub(super) fn block(analysis: &Analysis<'_>, curve: &[CurvePoint], style: &Style) -> String {
    let mut out = String::new();
    let command = command(&analysis.profile.header);
    let _ = writeln!(
        out,
        "{}",
        style.paint(Ink::Strong, &fit(&command, style.width, style))
    );
    let facts = ending(analysis.profile);
    let line = fit(&facts.join(style.glyph(" · ", ", ")), style.width, style);
    let _ = writeln!(out, "{}\n", style.paint(Ink::Faint, &line));
    out.push_str(&observation(analysis, curve, style));
    out
}

/// The command line, as a shell would need it.
pub(crate) fn command(header: &Header) -> String {
    let words: Vec<String> = header.command.iter().map(|a| shell_word(a)).collect();
    words.join(" ")
}

/// How long it ran, how it ended, and on which processor.
pub(crate) fn ending(profile: &Profile) -> Vec<String> {
    let header = &profile.header;
    let mut facts = Vec::new();
    match &profile.footer {
        Some(footer) => {
            facts.push(format!(
                "{} wall, {} CPU",
                seconds(footer.wall_s),
                seconds(footer.cpu_s)
            ));
            facts.push(match footer.exit_status {
                Some(status) if SIGNALLED.contains(&status) => {
                    format!("exit status {status} (128 + signal {})", status - 128)
                }
                Some(status) => format!("exit status {status}"),
                None => "went on after it was detached".to_owned(),
            });
        }
        None if profile.is_live => facts.push("still recorded".to_owned()),
        None => facts.push("no end recorded".to_owned()),
    }
    if !header.host_cpu.is_empty() {
        facts.push(header.host_cpu.clone());
    }
    facts
}

/// How the run was observed and how sure the result is.
pub(super) fn observation(analysis: &Analysis<'_>, curve: &[CurvePoint], style: &Style) -> String {
    let facts = facts(analysis, curve, style);
    let facts = facts.iter().map(|(name, text)| fact(name, text, style));
    facts.collect()
}

/// The same as names and texts.
pub(crate) fn facts(
    analysis: &Analysis<'_>,
    curve: &[CurvePoint],
    style: &Style,
) -> Vec<(&'static str, String)> {
    let totals = analysis.totals();
    let mut facts = vec![("observed", observed(analysis, &totals))];
    if totals.windows > 0 {
        let certainty = certainty(curve, &totals, analysis, style);
        facts.extend([("samples", samples(&totals)), ("certainty", certainty)]);
    }
    facts
}

/// A named fact, wrapped beside its name.
pub(super) fn fact(name: &str, text: &str, style: &Style) -> String {
    let text = wrap(text, style.width, 11);
    format!(
        "{}{}",
        style.paint(Ink::Faint, &format!("{name:<11}")),
        text.trim_start()
    )
}

/// How it comes that there is no window, and what to do.
pub(crate) fn without_windows(analysis: &Analysis<'_>) -> (&'static str, &'static str) {
    match analysis.profile.footer.as_ref().map(|f| f.exit_status) {
        Some(Some(_)) => (
            "the program ended before the first window",
            "the run was over before its first window, or no sample was taken in one. Profile it again with --full, which observes the whole run.",
        ),
        Some(None) => (
            "no window was opened while it was watched",
            "no window was opened while it was watched, or no sample was taken in one. Watch it for longer while it works, or those of its children that work.",
        ),
        None => (
            "no window so far",
            "there is no window in this profile so far, or no sample in one.",
        ),
    }
}

fn observed(analysis: &Analysis<'_>, totals: &Totals) -> String {
    let header = &analysis.profile.header;
    let seen = totals.accesses_observed as f64;
    let all = totals.accesses_estimated;
    if totals.windows == 0 {
        return format!("nothing: {}", without_windows(analysis).0);
    }
    let how = format!("engine {}, seed {}", header.engine, header.seed);
    let mut windows = plural(totals.windows, "window");
    if analysis.has_threads() {
        let most = analysis
            .profile
            .windows
            .iter()
            .map(|w| w.threads.len())
            .max();
        let _ = write!(windows, " of up to {} threads", most.unwrap_or(1));
    }
    if header.full {
        let ended = |footer: &Footer| {
            footer.exit_status.is_some() && footer.warnings.iter().all(|w| w.what != ENDED_EARLY)
        };
        let ended = analysis.profile.footer.as_ref().is_some_and(ended);
        let what = match (analysis.profile.is_attached(), ended) {
            (false, true) => "the whole run",
            (false, false) => "the run until the profile ended",
            (true, _) => "all from where it was attached to",
        };
        return format!("{what}, {} accesses in {windows}; {how}", count(seen));
    }
    let span = if all.high > all.low {
        format!(" ({} to {})", count(all.low), count(all.high))
    } else {
        String::new()
    };
    let share = if all.value > 0.0 {
        format!(", {}", percent((seen / all.value).min(1.0)))
    } else {
        String::new()
    };
    format!(
        "{} of about {}{span} accesses{share}, in {windows}; {how}",
        count(seen),
        count(all.value)
    )
}

fn samples(t: &Totals) -> String {
    let mut text = format!(
        "{}: {} touched again",
        count(t.samples as f64),
        count(t.reused as f64)
    );
    for (n, what) in [
        (t.never_reused, "never again"),
        (t.censored, "cut off by us"),
    ] {
        if n > 0 {
            let share = percent(n as f64 / t.samples as f64);
            let _ = write!(text, ", {} {what} ({share})", count(n as f64));
        }
    }
    if t.declined > 0 {
        let _ = write!(
            text,
            "; {} not observed (declined)",
            plural(t.declined, "unit")
        );
    }
    text
}

/// What gives more samples than a run of this kind.
pub(crate) fn cure(header: &Header) -> &'static str {
    match header.full {
        true => "longer run",
        false => "longer run, higher --overhead, or --full",
    }
}

/// One sentence on how far the curve can be trusted.
fn certainty(
    curve: &[CurvePoint],
    totals: &Totals,
    analysis: &Analysis<'_>,
    style: &Style,
) -> String {
    if curve.is_empty() {
        return "none: there are no samples".to_owned();
    }
    let mut half: Vec<f64> = curve.iter().map(|p| (p.high - p.low) / 2.0).collect();
    half.sort_by(f64::total_cmp);
    let median = half[half.len() / 2] * 100.0;
    let worst = half[half.len() - 1] * 100.0;
    let pm = style.glyph("±", "+-");
    let mut text = format!(
        "curve known to {pm}{median:.2} points at the median size, {pm}{worst:.2} at the worst"
    );
    if let Some(sizes) = undecided(curve) {
        let _ = write!(
            text,
            "; undecided {sizes}, where the windows end before such a cache would have evicted ({})",
            match analysis.profile.header.full {
                true => "longer run",
                false => "higher --overhead, or --full",
            }
        );
    }
    let weak: Vec<_> = curve
        .iter()
        .filter_map(|p| p.weak.map(|w| (p, w)))
        .collect();
    if let Some((_, w)) = weak.iter().max_by_key(|(_, w)| w.needed) {
        // Where windows differ, more of them would do, whatever samples they have.
        let differ = w.samples >= ENOUGH && w.needed > MOST_TOLD.saturating_mul(w.samples);
        let enough = match differ {
            true => "what is in the windows differs too much".to_owned(),
            false => format!(
                "about {} samples would do, {} were taken",
                count(rough(w.needed)),
                count(totals.samples as f64)
            ),
        };
        let _ = write!(
            text,
            "; weak at {} of {} sizes: {enough} ({})",
            weak.len(),
            curve.len(),
            cure(&analysis.profile.header)
        );
    }
    let (before, before_s) = analysis.before_first();
    if before > UNKNOWN_START * totals.accesses_estimated.value {
        let _ = write!(
            text,
            "; not seen is the start, the {} before the first window, which may hold up to {} accesses more (--full)",
            seconds(before_s),
            count(before)
        );
    }
    text
}

/// At which sizes watches ended too early; `None` where they tell of all.
fn undecided(curve: &[CurvePoint]) -> Option<String> {
    let first = curve.iter().position(CurvePoint::is_undecided)?;
    let last = curve.iter().rposition(CurvePoint::is_undecided)?;
    let size = |at: usize| format_size(curve[at].cache_bytes);
    Some(match last {
        _ if last == curve.len() - 1 => format!("from {} on", size(first)),
        _ if last == first => format!("at {}", size(first)),
        _ => format!("from {} to {}", size(first), size(last)),
    })
}

/// Part of all accesses from which on those that may have been made before the first window are told.
const UNKNOWN_START: f64 = 0.1;
/// So many times the samples that were taken are not told: that many would hardly be of the same windows.
const MOST_TOLD: u64 = 30;
/// Samples that are enough where windows are alike.
const ENOUGH: u64 = 1000;

/// Two significant digits: more would claim to know.
fn rough(n: u64) -> f64 {
    let unit = 10f64.powi((n.max(1) as f64).log10() as i32 - 1).max(1.0);
    (n as f64 / unit).round() * unit
}

/// A file to be named behind a command's options, as a shell would need it.
#[must_use]
pub fn shell_file(path: &Path) -> String {
    let name = path.to_string_lossy();
    let at = if name.starts_with('-') { "./" } else { "" };
    shell_word(&format!("{at}{name}"))
}

/// An argument as a shell would need it.
pub(super) fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if !word.chars().any(char::is_control) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    // The way of bash(1), "QUOTING", which other shells have taken over: lines stay one line, and nothing reaches the terminal.
    let escape = |c: char| match c {
        '\n' => "\\n".to_owned(),
        '\t' => "\\t".to_owned(),
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", word.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{Path, rough, shell_file, shell_word};

    #[test]
    fn estimates_are_round() {
        assert_eq!(rough(466_916), 470_000.0);
        assert_eq!(rough(99), 99.0);
        assert_eq!(rough(0), 0.0);
    }

    #[test]
    fn arguments_are_quoted_where_a_shell_needs_it() {
        assert_eq!(shell_word("--size=1"), "--size=1");
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_file(Path::new("-o")), "./-o");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word("bell\u{7}"), "$'bell\\u0007'");
        assert_eq!(shell_word("it's\n\ta\\b"), "$'it\\'s\\n\\ta\\\\b'");
    }
}
