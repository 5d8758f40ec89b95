//! Limits as they are given on the command line: `miss_ratio@1M>+0.5%`.

use super::caches;
use crate::diff::limit::{Limit, Metric, Of, Side};

/// What a refusal shows.
const EXAMPLE: &str =
    "write METRIC[@SIZE]>LIMIT, as 'miss_ratio>+0.5%', 'miss_ratio@1M>5%' or 'misses>+10%'";

/// One limit. `>=` and `<=` are `>` and `<`: a limit is met by whole intervals, and these do not end at it.
pub(super) fn parse(text: &str) -> Result<Limit, String> {
    let at = text.find(['>', '<']).ok_or_else(|| EXAMPLE.to_owned())?;
    let (metric, behind) = text.split_at(at);
    let side = match behind.starts_with('>') {
        true => Side::Above,
        false => Side::Below,
    };
    let behind = &behind[1..];
    let limit = behind.strip_prefix('=').unwrap_or(behind).trim();
    let (metric, size) = match metric.split_once('@') {
        Some((metric, size)) => (metric.trim(), Some(caches::parse(size)?)),
        None => (metric.trim(), None),
    };
    let metric = match metric {
        "miss_ratio" => Metric::MissRatio,
        "misses" => Metric::Misses,
        "accesses" => Metric::Accesses,
        other => {
            return Err(format!(
                "`{other}` is no metric; there are miss_ratio, misses, accesses: {EXAMPLE}"
            ));
        }
    };
    if metric == Metric::Accesses && size.is_some() {
        return Err("accesses are the same in every cache: write 'accesses>+10%'".to_owned());
    }
    let number = limit
        .strip_suffix('%')
        .ok_or_else(|| format!("a limit is in per cent, as +0.5%: {EXAMPLE}"))?
        .trim();
    let signed = number.starts_with(['+', '-']);
    // What `parse` takes besides, `inf` and `1e9`, is no limit.
    let is_plain = number
        .chars()
        .all(|c| c.is_ascii_digit() || "+-.".contains(c));
    let value: f64 = match number.parse() {
        Ok(value) if is_plain => value,
        _ => return Err(format!("`{limit}` is no limit: {EXAMPLE}")),
    };
    let of = match (metric, signed) {
        (_, true) => Of::Change,
        (Metric::MissRatio, false) => Of::After,
        (_, false) => {
            return Err(format!(
                "a change of misses or accesses has a sign, +{number}% or -{number}%: {EXAMPLE}"
            ));
        }
    };
    Ok(Limit {
        text: text.trim().to_owned(),
        metric,
        cache_bytes: size,
        side,
        of,
        at: value / 100.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let read = |text: &str| {
            let limit = parse(text).unwrap();
            assert_eq!(limit.text, text.trim());
            (
                limit.metric,
                limit.cache_bytes,
                limit.side,
                limit.of,
                limit.at,
            )
        };
        use Metric::{Accesses, MissRatio, Misses};
        use Of::{After, Change};
        use Side::{Above, Below};
        for (text, wanted) in [
            ("miss_ratio>+0.5%", (MissRatio, None, Above, Change, 0.005)),
            (
                " miss_ratio @ 1M >= 5 % ",
                (MissRatio, Some(1 << 20), Above, After, 0.05),
            ),
            (
                "miss_ratio@48K<-2%",
                (MissRatio, Some(48 << 10), Below, Change, -0.02),
            ),
            ("misses<=-10%", (Misses, None, Below, Change, -0.1)),
            (
                "misses@32K>+0%",
                (Misses, Some(32 << 10), Above, Change, 0.0),
            ),
            ("accesses>+25%", (Accesses, None, Above, Change, 0.25)),
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_with_an_example() {
        for (text, part) in [
            ("", "miss_ratio>+0.5%"),
            ("miss_ratio", "miss_ratio>+0.5%"),
            ("miss_ratio=5%", "miss_ratio>+0.5%"),
            ("miss_rate>5%", "`miss_rate` is no metric"),
            ("miss_ratio>0.005", "in per cent"),
            ("miss_ratio>%", "`%` is no limit"),
            ("miss_ratio>inf%", "`inf%` is no limit"),
            ("miss_ratio>+-5%", "`+-5%` is no limit"),
            ("miss_ratio>>5%", "`>5%` is no limit"),
            ("misses>10%", "+10% or -10%"),
            ("accesses@1M>+1%", "'accesses>+10%'"),
            ("miss_ratio@lots>5%", "`lots` is not a size"),
            ("miss_ratio@16>5%", "write 16K"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{text}: {error}");
        }
    }
}
