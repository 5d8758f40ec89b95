//! Numbers as people read them.

/// A share or ratio: `41.2 %`, `4.12 %`, `0.05 %`, `<0.01 %`, `0 %`.
#[must_use]
pub fn percent(x: f64) -> String {
    let p = x * 100.0;
    if p == 0.0 {
        "0 %".to_owned()
    } else if p < 0.01 {
        "<0.01 %".to_owned()
    } else if p < 9.995 {
        format!("{p:.2} %")
    } else if p < 99.95 {
        format!("{p:.1} %")
    } else {
        format!("{p:.0} %")
    }
}

/// A share in words and lists, where decimals are noise: `72 %`, `<1 %`.
#[must_use]
pub fn whole_percent(x: f64) -> String {
    let p = x * 100.0;
    if p > 0.0 && p < 1.0 {
        "<1 %".to_owned()
    } else {
        format!("{p:.0} %")
    }
}

/// Both ends of an interval of a ratio, in per cent with as many decimals as its width deserves.
#[must_use]
pub fn interval(low: f64, high: f64, dash: &str) -> String {
    let (low, high) = (low * 100.0, high * 100.0);
    let decimals = match high - low {
        w if w >= 10.0 => 0,
        w if w >= 0.2 => 1,
        _ => 2,
    };
    format!("{low:.decimals$}{dash}{high:.decimals$}")
}

/// A count: `9,987` below a million, `45.2 G` above.
#[must_use]
pub fn count(n: f64) -> String {
    if !n.is_finite() {
        return "unknown".to_owned();
    }
    if n < 999_999.5 {
        return thousands(n.round() as u64);
    }
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M")] {
        if n >= 0.9995 * unit {
            let v = n / unit;
            let decimals = if v < 9.995 { 2 } else { usize::from(v < 99.95) };
            return format!("{v:.decimals$} {name}");
        }
    }
    thousands(n.round() as u64)
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A duration: `340 us`, `12.3 ms`, `2.16 s`, `3 min 20 s`.
#[must_use]
pub fn seconds(s: f64) -> String {
    if s < 1e-3 {
        format!("{:.0} us", s * 1e6)
    } else if s < 1.0 {
        format!("{:.1} ms", s * 1e3)
    } else if s < 60.0 {
        format!("{s:.2} s")
    } else {
        format!("{:.0} min {:.0} s", (s / 60.0).floor(), (s % 60.0).floor())
    }
}

/// A rate of bytes, in decimal units: `350 kB/s`, `1.20 GB/s`.
#[must_use]
pub fn bytes_per_second(rate: f64) -> String {
    let mut value = rate / 1e3;
    for unit in ["kB/s", "MB/s", "GB/s"] {
        if value < 999.5 || unit == "GB/s" {
            let decimals = if value < 9.995 {
                2
            } else {
                usize::from(value < 99.95)
            };
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1e3;
    }
    format!("{value:.0} TB/s")
}

/// A plural by its count: `1 window`, `8 windows`.
#[must_use]
pub fn plural(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n as f64), if n == 1 { "" } else { "s" })
}

/// A function's name short enough for a column: template arguments and parameters emptied when it
/// is longer than `room`.
#[must_use]
pub fn short_function(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let no_parameters = elide(name, '(', ')');
    if no_parameters.chars().count() <= room {
        return no_parameters;
    }
    elide(&no_parameters, '<', '>')
}

/// Replaces the contents of outermost brackets by `..`; those of `operator<` and the like are no brackets.
pub(super) fn elide(name: &str, open: char, close: char) -> String {
    const OPERATOR: &str = "operator";
    // Longer ones first; those without brackets or arrows matter to nobody here.
    const SIGNS: [&str; 13] = [
        "()", "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">", "==",
    ];
    let mut out = String::new();
    let mut depth = 0usize;
    let mut before = ' ';
    // Where the name of an operator ends.
    let mut over = 0;
    for (at, c) in name.char_indices() {
        let is_word = !before.is_alphanumeric() && before != '_';
        if is_word && let Some(behind) = name[at..].strip_prefix(OPERATOR) {
            let sign = SIGNS.iter().find(|sign| behind.starts_with(**sign));
            over = at + OPERATOR.len() + sign.map_or(0, |sign| sign.len());
        }
        if at < over {
            if depth == 0 {
                out.push(c);
            }
        } else if c == open {
            if depth == 0 {
                out.push(open);
                out.push_str("..");
            }
            depth += 1;
        } else if c == close && depth > 0 && before != '-' {
            depth -= 1;
            if depth == 0 {
                out.push(close);
            }
        } else if depth == 0 {
            out.push(c);
        }
        before = c;
    }
    out.replace(
        &format!("{open}..{close}"),
        if open == '(' { "()" } else { "<..>" },
    )
}

/// The part of a path that tells it apart in a column: its last component.
#[must_use]
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_they_deserve() {
        for (x, text) in [
            (0.0, "0 %"),
            (0.000_05, "<0.01 %"),
            (0.0005, "0.05 %"),
            (0.0412, "4.12 %"),
            (0.099_96, "10.0 %"),
            (0.412, "41.2 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(x), text);
        }
        assert_eq!(interval(0.112, 0.129, "-"), "11.2-12.9");
        assert_eq!(interval(0.1, 0.9, "-"), "10-90");
        assert_eq!(interval(0.0, 0.001, "-"), "0.00-0.10");
        for (n, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (98_231.0, "98,231"),
            (999_999.9, "1.00 M"),
            (45.2e9, "45.2 G"),
            (3e14, "300 T"),
            (f64::INFINITY, "unknown"),
        ] {
            assert_eq!(count(n), text);
        }
        assert_eq!(bytes_per_second(1.2e9), "1.20 GB/s");
        assert_eq!(bytes_per_second(999_900.0), "1.00 MB/s");
        assert_eq!(bytes_per_second(0.0), "0.00 kB/s");
        assert_eq!(seconds(200.4), "3 min 20 s");
        assert_eq!(seconds(0.0123), "12.3 ms");
    }

    #[test]
    fn long_names_lose_what_tells_least() {
        let name = "std::vector<int, std::allocator<int> >::push_back(int&&)";
        assert_eq!(short_function(name, 80), name);
        assert_eq!(
            short_function(name, 52),
            "std::vector<int, std::allocator<int> >::push_back()"
        );
        assert_eq!(short_function(name, 30), "std::vector<..>::push_back()");
        let name = "std::operator==<char, std::less<char> >(A<int>)";
        assert_eq!(short_function(name, 10), "std::operator==<..>()");
        assert_eq!(
            short_function("bool operator<(A const&, B const&)", 10),
            "bool operator<()"
        );
    }
}
