//! Text from outside, and numbers, as the page has them.

use std::borrow::Cow;

use crate::report::format::{interval, percent};

/// Text of a profile or a source with nothing in it that acts instead of being read: control characters become their pictures, and
/// characters that turn the direction of writing their names, as they would show code in another order than it has.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            // The pictures of Unicode's block "Control Pictures".
            '\u{7f}' => out.push('\u{2421}'),
            c if acts(c) && c < ' ' => {
                out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'));
            }
            c if acts(c) => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn acts(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A ratio or share, marked where it is weak.
pub(super) fn figure(ratio: f64, weak: bool) -> String {
    format!("{}{}", if weak { "~" } else { "" }, percent(ratio))
}

/// An interval as its column has it, and as tips do.
pub(super) fn span(low: f64, high: f64) -> String {
    interval(low, high, "–")
}

/// A number for the script: to a millionth, short.
pub(super) fn number(x: f64) -> String {
    let rounded = round(x);
    match rounded == 0.0 {
        true => "0".to_owned(),
        false => rounded.to_string(),
    }
}

/// A ratio to a millionth: more digits than anything shows.
pub(super) fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

/// A coordinate in a drawing, to a tenth of its unit.
pub(super) fn coordinate(x: f64) -> String {
    let tenths = (x * 10.0).round() / 10.0;
    match tenths == 0.0 {
        true => "0".to_owned(),
        false => tenths.to_string(),
    }
}

/// What is put into a `script` element as data: JSON in which nothing ends the element.
pub(super) fn embedded(value: &serde_json::Value) -> String {
    // Only strings can hold these, where JSON has escapes for them.
    let json = value.to_string();
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_shown() {
        assert_eq!(shown("a\tb<c>"), "a\tb<c>");
        assert_eq!(shown("a\nb\0\x7f\u{9b}"), "a␊b␀␡<U+009B>");
        assert_eq!(shown("x\u{202e}y"), "x<U+202E>y");
    }

    #[test]
    fn embedded_data_ends_no_element() {
        let value = serde_json::json!({"x": "</script><!--&"});
        let text = embedded(&value);
        assert!(!text.contains(['<', '>', '&']), "{text}");
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, value);
    }

    #[test]
    fn numbers_are_short_and_never_minus_zero() {
        assert_eq!(number(0.123_456_78), "0.123457");
        assert_eq!([number(0.5), number(-1e-9)], ["0.5", "0"]);
        assert_eq!([coordinate(12.04), coordinate(-0.01)], ["12", "0"]);
    }
}
