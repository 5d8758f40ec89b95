//! Which curves a report draws: both policies; where threads were seen together, both for a cache of
//! each thread and for one of all.

use statcache_model::{CurvePoint, Policy, Stream};

use super::{Report, ReportError, threads};
use crate::analysis::sizes::curve_sizes;

/// The curves of an overview.
pub(super) struct Drawn {
    pub(super) main: Vec<CurvePoint>,
    /// The other policy's; where threads were seen together the other stream's.
    pub(super) other: Vec<CurvePoint>,
    pub(super) by_stream: Option<threads::ByStream>,
}

impl Report<'_> {
    /// The curves at all sizes that plot and table show.
    pub(super) fn curves(&self) -> Result<Drawn, ReportError> {
        let mut sizes = curve_sizes(&self.analysis.profile.header);
        sizes.extend(self.marks());
        sizes.sort_unstable();
        sizes.dedup();
        sizes.retain(|&s| s >= u64::from(self.options.line_bytes));
        let line = self.options.line_bytes;
        let other = match self.options.policy {
            Policy::Random { .. } => Policy::LRU,
            Policy::Lru { .. } => Policy::RANDOM,
        };
        let curve = |policy, stream| self.analysis.curve(line, policy, stream, &sizes);
        if !self.analysis.has_threads() {
            let (main, other) = rayon::join(
                || curve(self.options.policy, Stream::Own),
                || curve(other, Stream::Own),
            );
            return Ok(Drawn {
                main: main?,
                other: other?,
                by_stream: None,
            });
        }
        let both = |stream| {
            rayon::join(
                || curve(self.options.policy, stream),
                || curve(other, stream),
            )
        };
        let own = match self.options.stream {
            Some(Stream::Own) => Stream::Own,
            _ => Stream::Private,
        };
        let ((main, main_other), (all, all_other)) =
            rayon::join(|| both(own), || both(Stream::All));
        let by_stream = threads::ByStream {
            stream: own,
            own: main?,
            own_other: main_other?,
            all: all?,
            all_other: all_other?,
        };
        let (main, other) = match self.options.stream {
            Some(Stream::All) => (&by_stream.all, &by_stream.own),
            _ => (&by_stream.own, &by_stream.all),
        };
        Ok(Drawn {
            main: main.clone(),
            other: other.clone(),
            by_stream: Some(by_stream),
        })
    }

    /// What the plot calls the chosen stream, and the one it marks beside it.
    pub(super) fn stream_names(&self) -> (&'static str, &'static str) {
        const ALL: &str = "one cache for all threads";
        match self.options.stream {
            Some(Stream::All) => (ALL, "one a thread"),
            Some(Stream::Own) => ("one cache a thread, without coherence misses", ALL),
            _ => ("one cache a thread", ALL),
        }
    }
}
