//! All figures of a process that the page shows, worked out at once.

use rayon::prelude::*;
use statcache_model::{CurvePoint, ModelError, Policy, Stream};

use crate::analysis::sizes::curve_sizes;
use crate::analysis::{Analysis, By, Caches, DEFAULT_LINE_BYTES, Ranking, SharingFigures};
use crate::profile::types::LINE_SIZES;

/// The lists, in the order of their tabs.
const LISTS: [By; 5] = [
    By::Line,
    By::Function,
    By::Data,
    By::Instruction,
    By::Object,
];

/// The curves of one line size and stream, both at [`Gathered::sizes`].
pub(super) struct Curves {
    pub(super) line_bytes: u32,
    pub(super) stream: Stream,
    pub(super) random: Vec<CurvePoint>,
    pub(super) lru: Vec<CurvePoint>,
}

impl Curves {
    /// What tells it from the others in the page.
    pub(super) fn key(&self) -> String {
        format!("{}-{}", stream_key(self.stream), self.line_bytes)
    }

    /// Whether it is the one that is shown first.
    pub(super) fn is_first(&self) -> bool {
        self.line_bytes == DEFAULT_LINE_BYTES && self.stream != Stream::All
    }
}

/// `own` for a cache a thread, `all` for one of all.
pub(super) fn stream_key(stream: Stream) -> &'static str {
    match stream {
        Stream::All => "all",
        Stream::Own | Stream::Private => "own",
    }
}

/// A process's figures.
pub(super) struct Gathered<'a> {
    pub(super) analysis: &'a Analysis<'a>,
    /// Its number in the page.
    pub(super) number: usize,
    /// What the lists are about.
    pub(super) caches: Caches,
    /// Of the curves.
    pub(super) sizes: Vec<u64>,
    /// Every line size; of several threads, both streams. Empty where nothing was measured.
    pub(super) curves: Vec<Curves>,
    /// In the order of their tabs. Empty where nothing was measured.
    pub(super) lists: Vec<Ranking>,
    /// By line, what libraries do in a line of the program counted to it.
    pub(super) own_lines: Option<Ranking>,
    pub(super) windows: Option<Ranking>,
    pub(super) sharing: Option<SharingFigures>,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(
        number: usize,
        analysis: &'a Analysis<'a>,
        asked: Option<&[u64]>,
    ) -> Result<Self, ModelError> {
        let policy = Policy::RANDOM;
        let (shown, primary) = analysis.sizes_shown(asked, DEFAULT_LINE_BYTES, policy)?;
        let header = &analysis.profile.header;
        // As a report's, so that both say the same of how sure the curve is.
        let mut sizes = curve_sizes(header);
        sizes.extend(header.host_caches.iter().map(|c| c.bytes));
        sizes.extend(&shown);
        sizes.sort_unstable();
        sizes.dedup();
        sizes.retain(|&s| s >= u64::from(LINE_SIZES[LINE_SIZES.len() - 1]));
        let caches = Caches {
            sizes: shown,
            line_bytes: DEFAULT_LINE_BYTES,
            policy,
            stream: None,
            primary: Some(primary),
        };
        let mut gathered = Self {
            analysis,
            number,
            caches,
            sizes,
            curves: Vec::new(),
            lists: Vec::new(),
            own_lines: None,
            windows: None,
            sharing: None,
        };
        if analysis.is_empty() {
            return Ok(gathered);
        }
        let caches = &gathered.caches;
        let sizes = &gathered.sizes;
        let kinds = LISTS.into_iter().chain([By::OwnLine, By::Window]);
        let kinds: Vec<By> = kinds.collect();
        let (curves, lists) = rayon::join(
            || curves(analysis, sizes),
            || -> Result<Vec<Ranking>, ModelError> {
                let kinds = kinds.into_par_iter();
                kinds.map(|by| analysis.ranking(by, caches)).collect()
            },
        );
        let mut lists = lists?;
        gathered.windows = lists.pop();
        gathered.own_lines = lists.pop();
        gathered.lists = lists;
        gathered.curves = curves?;
        gathered.sharing = analysis.sharing()?;
        Ok(gathered)
    }

    /// Index of the size that ranks.
    pub(super) fn primary(&self) -> usize {
        self.caches.primary.unwrap_or(0)
    }

    /// The curves that are shown first.
    pub(super) fn first(&self) -> Option<&Curves> {
        self.curves.iter().find(|c| c.is_first())
    }

    /// The sizes that are named in curve and table: the host's and those asked for.
    pub(super) fn marks(&self) -> Vec<u64> {
        let host = &self.analysis.profile.header.host_caches;
        let mut marks: Vec<u64> = host.iter().map(|c| c.bytes).collect();
        marks.extend(&self.caches.sizes);
        marks.sort_unstable();
        marks.dedup();
        marks.retain(|mark| self.sizes.contains(mark));
        marks
    }

    /// An identifier in the page.
    pub(super) fn id(&self, of: &str) -> String {
        format!("p{}-{of}", self.number)
    }
}

fn curves(analysis: &Analysis<'_>, sizes: &[u64]) -> Result<Vec<Curves>, ModelError> {
    let streams: &[Stream] = match analysis.has_threads() {
        true => &[Stream::Private, Stream::All],
        false => &[Stream::Own],
    };
    let kinds: Vec<(Stream, u32)> = streams
        .iter()
        .flat_map(|&stream| LINE_SIZES.map(|line| (stream, line)))
        .collect();
    kinds
        .into_par_iter()
        .map(|(stream, line_bytes)| {
            let of = |policy| analysis.curve(line_bytes, policy, stream, sizes);
            let (random, lru) = rayon::join(|| of(Policy::RANDOM), || of(Policy::LRU));
            Ok(Curves {
                line_bytes,
                stream,
                random: random?,
                lru: lru?,
            })
        })
        .collect()
}
