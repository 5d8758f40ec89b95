//! Changes as people read them.

use crate::diff::change::{Change, Verdict};
use crate::report::format::percent;
use crate::report::style::{Ink, Style};

/// Per cent from which on a change is told as a factor.
const FACTOR: f64 = 9.0;

/// A signed figure in per cent with its decimals; never `-0`.
fn signed(x: f64, decimals: usize) -> String {
    let text = format!("{:+.decimals$}", x * 100.0);
    match text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        true => text,
        false => "0".to_owned(),
    }
}

/// Decimals for ends of an interval that is so wide, in per cent.
fn decimals(width: f64) -> usize {
    match width * 100.0 {
        w if w >= 10.0 => 0,
        w if w >= 0.2 => 1,
        _ => 2,
    }
}

/// A difference of ratios in points: `+2.30`, `-12.4`, `0`.
pub(super) fn points(x: f64) -> String {
    signed(x, if x.abs() < 0.099_95 { 2 } else { 1 })
}

/// Decimals for the ends of a change; as many as it takes, up to two, for an end not to be 0 that is not.
fn decimals_of(change: &Change) -> usize {
    let vanishes =
        |end: f64, decimals| end != 0.0 && end.is_finite() && signed(end, decimals) == "0";
    let least = decimals(change.high - change.low);
    (least..2)
        .find(|&d| !vanishes(change.low, d) && !vanishes(change.high, d))
        .unwrap_or(2)
}

/// Its interval: `-9.1 to +6.0`.
pub(super) fn points_interval(change: &Change) -> String {
    let decimals = decimals_of(change);
    let (low, high) = (signed(change.low, decimals), signed(change.high, decimals));
    format!("{low} to {high}")
}

/// Of both ends, and the value between them: hundredths are worth nothing.
fn relative_decimals(change: &Change) -> usize {
    decimals_of(change).min(1)
}

/// A factor less 1: `-5.0 %`, `x12` from ten times on.
pub(super) fn relative(change: &Change) -> String {
    match change.value {
        x if x.is_infinite() => "from none".to_owned(),
        x if x >= FACTOR => format!("x{:.0}", x + 1.0),
        x => format!(
            "{} %",
            signed(
                x,
                relative_decimals(change).max(usize::from(x.abs() < 0.099_5))
            )
        ),
    }
}

/// Its interval: `-60 to +120 %`; `-60 % or more` without an upper end.
pub(super) fn relative_interval(change: &Change) -> String {
    let decimals = relative_decimals(change);
    if change.low <= -1.0 && change.high.is_infinite() {
        return "unknown".to_owned();
    }
    // Large ones are factors, at either end.
    let end = |x: f64| match x {
        x if x.is_infinite() => None,
        x if x >= FACTOR => Some(format!("x{:.0}", x + 1.0)),
        x => Some(signed(x, decimals)),
    };
    match (end(change.low), end(change.high)) {
        (None, _) => "any".to_owned(),
        (Some(low), None) if change.low >= FACTOR => format!("{low} or more"),
        (Some(low), None) => format!("{low} % or more"),
        (Some(low), Some(high)) if change.low >= FACTOR => format!("{low} to {high}"),
        (Some(low), Some(high)) if change.high >= FACTOR => format!("{low} % to {high}"),
        (Some(low), Some(high)) => format!("{low} to {high} %"),
    }
}

/// How far something fell or rose, and between what: `2.30 points (1.9 to 2.7)`.
pub(super) fn by_points(change: &Change) -> String {
    let decimals = decimals_of(change);
    let ends = [change.low.abs(), change.high.abs()].map(|x| x * 100.0);
    let (least, most) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    format!(
        "{} points ({least:.decimals$} to {most:.decimals$})",
        points(change.value.abs()).trim_start_matches('+')
    )
}

/// As [`by_points`], of a factor less 1.
pub(super) fn by_percent(change: &Change) -> String {
    let told = |x: f64| match x.abs() {
        _ if x.is_infinite() => "any".to_owned(),
        x if x >= FACTOR => format!("a factor of {:.0}", x + 1.0),
        x => percent(x),
    };
    let (least, most) = match change.low.abs() <= change.high.abs() {
        true => (change.low, change.high),
        false => (change.high, change.low),
    };
    format!("{} ({} to {})", told(change.value), told(least), told(most))
}

/// The word for it; none where no difference is seen.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NotSeen => "",
    }
}

pub(super) fn ink(verdict: Verdict) -> Ink {
    match verdict {
        Verdict::Better => Ink::Good,
        Verdict::Worse => Ink::Hot,
        Verdict::NotSeen => Ink::Faint,
    }
}

/// A verdict in its ink, in words where there is room for them.
pub(super) fn judged(of: Verdict, room: usize, style: &Style) -> String {
    const NOT_SEEN: &str = "no difference seen";
    let text = match of {
        Verdict::NotSeen if room >= NOT_SEEN.len() => NOT_SEEN,
        of => verdict(of),
    };
    style.paint(ink(of), text)
}

/// A ratio with its mark.
pub(super) fn marked(weak: bool, x: f64) -> String {
    format!("{}{}", if weak { "~" } else { "" }, percent(x))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The day and minute of a time in seconds since the Unix epoch, in UTC: `2026-11-30 21:06 UTC`.
pub(super) fn date(unix_s: f64) -> String {
    let moment = jiff::Timestamp::from_second(unix_s as i64);
    let text = moment.map(|moment| moment.strftime("%Y-%m-%d %H:%M UTC").to_string());
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_the_digits_they_deserve() {
        let change = |value, low, high| Change { value, low, high };
        for (x, text) in [(0.023, "+2.30"), (-0.124, "-12.4"), (-0.000_01, "0")] {
            assert_eq!(points(x), text);
        }
        assert_eq!(
            points_interval(&change(0.0, -0.001, 0.000_5)),
            "-0.10 to +0.05"
        );
        assert_eq!(points_interval(&change(0.0, -0.091, 0.0)), "-9.1 to 0");
        // Not all of it is above 0, or all is.
        assert_eq!(points_interval(&change(0.1, 0.003, 0.2)), "+0.3 to +20.0");
        assert_eq!(
            by_points(&change(-0.023, -0.027, -0.019)),
            "2.30 points (1.9 to 2.7)"
        );
        for (of, text, span) in [
            (change(-0.05, -0.6, 1.2), "-5.0 %", "-60 to +120 %"),
            (change(11.0, 3.0, 30.0), "x12", "+300 % to x31"),
            (change(0.5, -0.6, f64::INFINITY), "+50 %", "-60 % or more"),
            (change(0.5, -1.0, f64::INFINITY), "+50 %", "unknown"),
            (change(0.001, 0.000_6, 0.002_1), "+0.1 %", "+0.1 to +0.2 %"),
        ] {
            assert_eq!(relative(&of), text);
            assert_eq!(relative_interval(&of), span);
        }
        assert_eq!(
            by_percent(&change(-0.4, -0.5, -0.305)),
            "40.0 % (30.5 % to 50.0 %)"
        );
    }

    #[test]
    fn dates_are_of_the_calendar() {
        for (unix_s, text) in [
            (0.0, "1970-01-01 00:00 UTC"),
            (1_700_000_000.9, "2023-11-14 22:13 UTC"),
            (f64::INFINITY, ""),
        ] {
            assert_eq!(date(unix_s), text);
        }
    }
}
