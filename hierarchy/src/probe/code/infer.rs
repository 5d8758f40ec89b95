//! From the instruction side's curves to ways, sizes and lines.

use super::fit::fit;
use super::{STRIDES, Vote};
use crate::finding::{Confidence, Finding, plurality, quantile};

/// (ways, way size in bytes) by a set of curves.
///
/// From the largest stride down the ways stay the same as far as the way size, and are twice as many at half of it. At
/// smaller strides nothing but decoded instructions may be seen to end.
fn geometry(curve: &[(u64, u32, f64)]) -> Option<(u32, u64)> {
    let at = |stride: u64| {
        let of = curve.iter().filter(|c| c.0 == stride);
        fit(&of.map(|c| (c.1, c.2)).collect::<Vec<_>>()).map(|f| f.0)
    };
    let fits: Vec<(u64, Option<u32>)> = STRIDES.into_iter().map(|s| (s, at(s))).collect();
    let ways = fits.last()?.1?;
    let first = fits
        .iter()
        .rposition(|f| f.1 != Some(ways))
        .map_or(0, |i| i + 1);
    let below = first.checked_sub(1).and_then(|i| fits[i].1);
    (first + 1 < fits.len() && below.is_none_or(|h| h >= ways * 3 / 2))
        .then_some((ways, fits[first].0))
}

/// Median of each point over the votes: mispredicted jumps err both ways.
fn pooled(votes: &[Vote]) -> Vec<(u64, u32, f64)> {
    let points = votes.first().map_or(&[][..], |v| &v.curve);
    let median = |stride: u64, n: u32| {
        let of = votes.iter().flat_map(|v| &v.curve);
        let y = of.filter(|c| c.0 == stride && c.1 == n).map(|c| c.2);
        quantile(&y.collect::<Vec<_>>(), 0.5)
    };
    points
        .iter()
        .filter_map(|c| Some((c.0, c.1, median(c.0, c.1)?)))
        .collect()
}

/// Least cycles a jump by which a translation miss is told from none. On one host the first step beyond the entries costs
/// 0.3, and nothing before it 0.1.
const LEAST_TRANSLATION: f64 = 0.15;

/// No instruction cache of the last decades is smaller; an earlier end is that of decoded instructions.
const LEAST_BYTES: u64 = 16 << 10;

impl Vote {
    /// (ways, way size in bytes).
    pub fn geometry(&self) -> Option<(u32, u64)> {
        geometry(&self.curve)
    }
}

/// First-level instruction translations: where a jump's cost first rises above that of as many over fewer pages, and stays there.
fn translations(votes: &[&Vote]) -> Option<(u64, u64)> {
    let counts = votes.first()?.pages.iter().map(|p| p.0);
    // Interference only adds, to either kind.
    let lowest = |n: u64, dear: fn(&(u64, f64, f64)) -> f64| {
        let of = votes.iter().flat_map(|v| &v.pages).filter(|p| p.0 == n);
        of.map(dear).fold(f64::INFINITY, f64::min)
    };
    let extra: Vec<(u64, f64)> = counts
        .map(|n| (n, lowest(n, |p| p.1) - lowest(n, |p| p.2)))
        .collect();
    if extra.len() < 12 {
        return None;
    }
    let first: Vec<f64> = extra.iter().take(8).map(|e| e.1).collect();
    let base = quantile(&first, 0.5)?;
    // A miss here may cost as little as a cycle a jump: what counts is that the sweep's start never showed it.
    let spread = quantile(&first, 0.75)? - quantile(&first, 0.25)?;
    let over = base + (3.0 * spread).max(LEAST_TRANSLATION);
    let at = (8..extra.len() - 3).find(|&i| extra[i..i + 4].iter().all(|e| e.1 > over))?;
    Some((extra[at - 1].0, extra[at].0))
}

/// Footprints of consecutive long blocks and cycles per block, by the lowest figures of all votes: interference only adds.
fn consecutive(votes: &[Vote]) -> Vec<(u64, f64)> {
    let Some(first) = votes.iter().find(|v| !v.footprints.is_empty()) else {
        return Vec::new();
    };
    let lowest = |size: u64| {
        let of = votes.iter().flat_map(|v| &v.footprints);
        of.filter(|f| f.0 == size)
            .map(|f| f.1)
            .fold(f64::INFINITY, f64::min)
    };
    first
        .footprints
        .iter()
        .map(|f| (f.0, lowest(f.0)))
        .collect()
}

/// Footprint of consecutive long blocks after which they slow down for good.
fn knee(votes: &[Vote]) -> Option<u64> {
    let curve = consecutive(votes);
    let y: Vec<f64> = curve.iter().map(|c| c.1).collect();
    let base = quantile(&y[..y.len().min(5)], 0.5)?;
    let high = quantile(&y, 0.9)?;
    let slow = base + 0.2 * (high - base);
    let at = y.iter().position(|f| *f > slow)?;
    (high > 1.05 * base && at > 0 && y[at..].iter().all(|t| *t > slow)).then(|| curve[at - 1].0)
}

/// Consecutive blocks slow down anew right where `bytes` end, after a stretch in which they did not: misses that set in
/// at a smaller size become more slowly as the size grows, so a cache that ends there is the only thing to explain it.
fn breaks_at(votes: &[Vote], bytes: u64) -> bool {
    let curve = consecutive(votes);
    let upto = |limit: f64| curve.iter().rev().find(|c| c.0 as f64 <= limit);
    let beyond = curve.iter().find(|c| c.0 as f64 >= 1.2 * bytes as f64);
    let (Some(early), Some(end), Some(after)) =
        (upto(0.76 * bytes as f64), upto(bytes as f64), beyond)
    else {
        return false;
    };
    let slope = |a: &(u64, f64), b: &(u64, f64)| (b.1 - a.1) / (b.0 as f64 / a.0 as f64).ln();
    after.1 > 1.06 * end.1 && slope(end, after) > 2.0 * slope(early, end).max(0.0)
}

/// Ways and way size of the instruction cache, by the votes' medians; the votes for it count as agreeing.
pub fn infer(votes: &[Vote]) -> Finding<(u32, u64)> {
    let with: Vec<Vote> = votes
        .iter()
        .filter(|v| !v.curve.is_empty())
        .cloned()
        .collect();
    let alone = plurality(&with.iter().map(Vote::geometry).collect::<Vec<_>>());
    if with.len() < 3 {
        return match alone.value {
            Some(_) => Finding::refused("too few votes came to a result"),
            None => alone,
        };
    }
    let Some((ways, way_bytes)) = geometry(&pooled(&with)) else {
        let mut f = Finding::refused("no number of ways explains the curves");
        f.votes = alone.votes;
        return f;
    };
    let mut found = alone;
    let alike = with
        .iter()
        .filter(|v| v.geometry() == Some((ways, way_bytes)));
    found.agree = alike.count() as u32;
    found.value = Some((ways, way_bytes));
    if found.confidence != Confidence::High {
        found.confidence = if found.agree >= 2 {
            Confidence::Medium
        } else {
            Confidence::Low
        };
        found.reason = "by the median of all votes".into();
    }
    // Consecutive blocks must slow down where the product says, and not before.
    let bytes = u64::from(ways) * way_bytes;
    if bytes < LEAST_BYTES {
        let mut f = Finding::refused(format!(
            "an end at {} is that of decoded instructions; behind it none was seen",
            crate::report::bytes(bytes)
        ));
        f.votes = found.votes;
        return f;
    }
    if let Some(k) = knee(votes)
        && (k as f64 / bytes as f64).ln().abs() > 0.3
    {
        if k < bytes && breaks_at(votes, bytes) {
            let before = format!(
                "consecutive code slows down beyond {} already: something besides the cache, such as decoded instructions, ends there",
                crate::report::bytes(k)
            );
            return found.at_most(Confidence::Medium, &before);
        }
        let mut f = Finding::refused(format!(
            "{ways} ways of {way_bytes} bytes found, but consecutive code slows down beyond {}",
            crate::report::bytes(k)
        ));
        f.votes = found.votes;
        return f;
    }
    found
}

/// Line size of the instruction cache: the least shift that ends the conflict, by the votes' medians.
pub fn infer_line(votes: &[Vote]) -> Finding<u64> {
    let at = |shift: u64| {
        let of = votes.iter().flat_map(|v| &v.shifts);
        quantile(
            &of.filter(|s| s.2 == shift).map(|s| s.3).collect::<Vec<_>>(),
            0.5,
        )
    };
    let tried = votes.iter().filter(|v| !v.shifts.is_empty()).count() as u32;
    let shifts = [16, 32, 64, 128];
    let medians: Vec<f64> = shifts.iter().filter_map(|&s| at(s)).collect();
    if tried < 3 || medians.len() < shifts.len() {
        return Finding::refused(if tried == 0 {
            "not measured"
        } else {
            "too few votes"
        });
    }
    // No instruction cache has lines of 16 bytes or less any more: what that shift costs is the conflict.
    // Of two shifts that cannot both end it the dearer one: single points err both ways.
    let whole = medians[0].max(medians[1]);
    let first = medians.iter().position(|d| *d < 0.55 * whole);
    match first {
        Some(i) if whole >= 2.0 && medians[i..].iter().all(|d| *d < 0.55 * whole) => {
            let mut f = Finding::new(shifts[i], Confidence::Medium, "by the median of all votes");
            (f.votes, f.agree) = (tried, tried);
            if medians[i] > 0.45 * whole || medians[i - 1] < 0.7 * whole {
                f = f.at_most(Confidence::Low, "the conflict ends gradually");
            }
            f
        }
        _ => {
            let mut f = Finding::refused("no shift ends the conflict of lines in one set");
            f.votes = tried;
            f
        }
    }
}

/// First-level instruction translation buffer: bounds on the entries, by all votes together; those that say about the same
/// alone count as agreeing.
pub fn infer_translations(votes: &[Vote]) -> Finding<(u64, u64)> {
    let with: Vec<&Vote> = votes.iter().filter(|v| !v.pages.is_empty()).collect();
    let Some(value) = translations(&with) else {
        let mut f = Finding::refused(if with.is_empty() {
            "not measured"
        } else {
            "no lasting rise within the sweep"
        });
        f.votes = with.len() as u32;
        return f;
    };
    let near = |v: &&&Vote| {
        let alone = translations(&[**v]);
        alone.is_some_and(|a| a.0.abs_diff(value.0) * 4 <= value.0)
    };
    let agree = with.iter().filter(near).count() as u32;
    let sure = if agree >= 3 && agree * 2 > with.len() as u32 {
        Confidence::Medium
    } else {
        Confidence::Low
    };
    let mut f = Finding::new(value, sure, "read off a curve");
    (f.votes, f.agree) = (with.len() as u32, agree);
    f
}

#[cfg(test)]
mod tests {
    use super::super::COUNTS;
    use super::super::fit::shuffled_misses;
    use super::*;

    /// One vote of 16 ways of 4 KiB, with a curve of consecutive blocks.
    fn sixteen_ways(footprints: &[(u64, f64)]) -> Vote {
        let curve = STRIDES.iter().flat_map(|&stride| {
            let ways = if stride >= 4096 { 16 } else { 32 };
            let point = move |&n: &u32| (stride, n, 11.0 * shuffled_misses(ways, n));
            COUNTS.iter().map(point).collect::<Vec<_>>()
        });
        Vote {
            curve: curve.collect(),
            footprints: footprints.iter().map(|f| (f.0 << 10, f.1)).collect(),
            ..Vote::default()
        }
    }

    #[test]
    fn an_earlier_knee_is_no_contradiction_where_another_follows_at_the_size_itself() {
        // As measured on a host with 64 KiB of 16 ways whose branch targets end at 32 KiB.
        let two = [
            (8, 23.0),
            (12, 24.0),
            (16, 23.0),
            (20, 23.5),
            (24, 23.6),
            (28, 24.2),
            (32, 26.7),
            (36, 27.9),
            (40, 30.1),
            (48, 33.2),
            (56, 34.1),
            (64, 34.5),
            (80, 40.6),
            (96, 44.3),
            (128, 48.5),
        ];
        let found = infer(&vec![sixteen_ways(&two); 4]);
        assert_eq!(found.value, Some((16, 4096)), "{found:?}");
        assert!(found.confidence <= Confidence::Medium);
        // 32 KiB that end in misses of a random order: what looked like 64 KiB of 16 ways was something else.
        let one = two.map(|(k, _)| (k, 24.0 + 26.0 * shuffled_misses(8, k as u32 / 4)));
        assert_eq!(infer(&vec![sixteen_ways(&one); 4]).value, None);
    }
}
