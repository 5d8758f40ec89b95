//! What threads take from each other, as exported.

use statcache_model::Sharing;

use super::dto::{DataName, LineSizeOut, PairOut, RowSharingOut, SharingOut};
use super::fill::named;
use crate::analysis::{RowSharing, SharingFigures};

/// At most so many pairs are listed.
const PAIRS: usize = 1000;

pub(super) fn document(figures: &SharingFigures) -> SharingOut {
    let c = &figures.at_64;
    let list = &figures.subjects.list;
    SharingOut {
        threads: figures.threads,
        reuses: c.reuses,
        lost: c.lost,
        private: c.private,
        shared: c.shared,
        coherence: c.coherence,
        coherence_low: c.interval.0,
        coherence_high: c.interval.1,
        coherence_miss_ratio: c.miss_ratio,
        coherence_miss_low: c.miss_interval.0,
        coherence_miss_high: c.miss_interval.1,
        disjoint: c.disjoint,
        weak: c.weak.is_some(),
        by_line_size: figures
            .by_line
            .iter()
            .map(|(line_size, c)| LineSizeOut {
                line_size: *line_size,
                coherence_miss_ratio: c.miss_ratio,
                low: c.miss_interval.0,
                high: c.miss_interval.1,
                weak: c.weak.is_some(),
            })
            .collect(),
        pairs: figures
            .pairs
            .iter()
            .take(PAIRS)
            .map(|p| PairOut {
                line: named(&list[p.first as usize]),
                writer: p.second.map(|second| named(&list[second as usize])),
                verdict: verdict(p.verdict),
                lost: p.lost,
                share: p.share,
                share_low: p.low,
                share_high: p.high,
                line_share: p.first_share,
                coherence_miss_ratio: p.miss_ratio,
                disjoint: p.disjoint,
                data: DataName {
                    kind: p.data.data.map_or("mapping", |kind| kind.name()),
                    name: p.data.name.clone(),
                    object: p.data.object.clone(),
                },
                weak: p.verdict == Sharing::NoVerdict,
            })
            .collect(),
    }
}

pub(super) fn of_row(s: &RowSharing) -> RowSharingOut {
    RowSharingOut {
        reuses: s.reuses,
        private: s.private,
        shared: s.shared,
        coherence: s.coherence,
        coherence_low: s.low,
        coherence_high: s.high,
        verdict: verdict(s.verdict),
    }
}

fn verdict(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::NoVerdict => "none",
        Sharing::True => "true",
        Sharing::False => "false",
        Sharing::Mixed => "mixed",
    }
}
