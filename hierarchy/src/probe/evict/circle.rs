//! Congruent pages of the second level, found by walking in circles: for any replacement policy.
//!
//! Pages that all fit their sets are walked without a miss, whatever the policy; one line too many in a set
//! costs at least one miss every lap. So pages are gathered until one more costs what no equal number of others
//! does. All that it needs for that are the pages of its own set: what can be left out without ending the
//! conflict is a stranger, what cannot is congruent. Every walk is compared with one over as many pages in which a
//! stranger takes the doubtful page's place, so that the first level and translation cost the same in both.
//!
//! It assumes that pages which share a set at one page offset share it at all; [`super::evict`] does without.
//! Source: the removal of groups is that of Vila, Koepf & Morales, S&P 2019; walks with a control instead of a
//! victim are ours.

use super::{BATCHES, TRIALS, Vote, step};
use crate::measure::{Chase, Measure, MeasureError};
use crate::probe::l1::Geometry;
use crate::probe::{PAGE, best, loads_for};
use crate::rng::Rng;

/// Most pages of a congruence class that are worth finding.
const CLASS_LIMIT: usize = 40;

/// Walks over pages of one first-level colour, a few lines in each.
pub(super) struct Walker<'a> {
    pub m: &'a mut dyn Measure,
    pub rng: &'a mut Rng,
    /// Places of the lines within every page.
    offsets: Vec<u64>,
    /// Strangers needed in a walk so that the first level does not hold it.
    ballast: usize,
    /// Cycles per lap that are a miss at half of the offsets.
    bar: f64,
    /// How often a slow answer is asked for before it is believed.
    pub tries: u32,
}

/// What a search came to.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Pages of one set.
    pub class: Vec<u64>,
    /// Pages that are not in it.
    pub strangers: Vec<u64>,
    /// Pages nothing is known of.
    pub unseen: Vec<u64>,
    /// How many of the class fill the set, as the search saw it.
    pub ways: usize,
    /// Pages gathered when the first conflict came.
    pub gathered: usize,
}

impl<'a> Walker<'a> {
    /// `hit` is the level's latency in cycles, as far as it is known.
    pub fn new(m: &'a mut dyn Measure, l1: Geometry, hit: f64, rng: &'a mut Rng) -> Self {
        let base = 128 * rng.below(2);
        let offsets = (0..8).map(|i| i * (PAGE / 8) + base).collect::<Vec<_>>();
        // The least that a further level costs more in practice.
        let gap = (0.8 * hit).max(10.0);
        Walker {
            m,
            bar: 0.5 * offsets.len() as f64 * gap,
            offsets,
            ballast: 2 * l1.ways as usize + 4,
            rng,
            tries: 3,
        }
    }

    /// Lowest cycles of a lap over the pages.
    pub fn lap(&mut self, pages: &[u64]) -> Result<f64, MeasureError> {
        let mut order = pages.to_vec();
        self.rng.shuffle(&mut order);
        let mut places = self.offsets.clone();
        let mut ring = Vec::with_capacity(order.len() * places.len());
        for p in order {
            self.rng.shuffle(&mut places);
            ring.extend(places.iter().map(|o| p * PAGE + o));
        }
        let n = ring.len() as u64;
        // Some laps: a policy that is not LRU needs them until the strangers are out.
        let loads = loads_for(self.m, 10.0).max(2 * n).next_multiple_of(n);
        for _ in 0..3 {
            let w = self.m.chase(&Chase {
                timed: &ring,
                warm: 3 * n,
                loads,
                windows: if n < 1000 { 6 } else { 4 },
                ..Chase::default()
            })?;
            let low = best(&w);
            if low.is_finite() {
                return Ok(low * n as f64);
            }
        }
        Ok(f64::INFINITY)
    }

    /// Cycles per line of `pages`, beside ballast whose own time is taken off.
    fn per_line(&mut self, pages: &[u64], strangers: &[u64]) -> Result<f64, MeasureError> {
        let mut walk = strangers[..self.ballast.min(strangers.len())].to_vec();
        let alone = self.lap(&walk)?;
        walk.extend(pages);
        let lines = (pages.len() * self.offsets.len()) as f64;
        Ok((self.lap(&walk)? - alone) / lines)
    }

    /// Cycles per line of `fits` after many lines at other page offsets: slow when the index mixes page-offset bits
    /// with higher ones.
    fn crossed(
        &mut self,
        fits: &[u64],
        strangers: &[u64],
        pool: &[u64],
    ) -> Result<Option<f64>, MeasureError> {
        let mut prep = Vec::new();
        for &o in &self.offsets {
            prep.extend(fits.iter().map(|p| p * PAGE + o));
        }
        for o in &self.offsets {
            let at = (o + 192) % PAGE;
            prep.extend(
                pool.iter()
                    .filter(|p| !fits.contains(p))
                    .map(|p| p * PAGE + at),
            );
            let ballast = &strangers[..self.ballast.min(strangers.len())];
            prep.extend(ballast.iter().map(|p| p * PAGE + o));
        }
        let timed: Vec<u64> = (self.offsets.iter())
            .flat_map(|o| fits.iter().map(move |p| p * PAGE + o + 8))
            .collect();
        // Translations come back through lines that are not timed.
        prep.extend(
            fits.iter()
                .map(|p| p * PAGE + (self.offsets[0] + 64) % PAGE),
        );
        let w = self.m.chase(&Chase {
            prep: &prep,
            timed: &timed,
            windows: 12,
            ..Chase::default()
        })?;
        Ok(Some(best(&w)).filter(|c| c.is_finite()))
    }

    /// The first walk has misses that the second one, over as many pages, has not.
    ///
    /// Asked in pairs, each in a fresh order: a first level that is not LRU likes some orders better. Two fast
    /// answers refute it; one may be a disturbed control.
    pub fn conflicts(&mut self, group: &[u64], control: &[u64]) -> Result<bool, MeasureError> {
        let (mut slow, mut fast) = (0, 0);
        while slow < self.tries {
            let (with, without) = (self.lap(group)?, self.lap(control)?);
            let extra = with - without;
            if extra >= self.bar && with.is_finite() {
                // All lines of a set, as with LRU, say it at once.
                slow += if extra > 4.0 * self.bar { 2 } else { 1 };
            } else if extra.abs() < 0.5 * self.bar {
                return Ok(false);
            } else {
                fast += 1;
                if fast == 2 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The difference grows with the lines walked in each page, as that of a cache does; that of a translation buffer's
    /// full set does not.
    fn by_lines(&mut self, group: &[u64], control: &[u64]) -> Result<bool, MeasureError> {
        let all = self.offsets.clone();
        let mut extra = [0.0; 2];
        for (n, extra) in [all.len(), all.len() / 4].into_iter().zip(&mut extra) {
            self.offsets.truncate(n);
            let mut low = [f64::INFINITY; 2];
            for _ in 0..3 {
                low[0] = low[0].min(self.lap(group)?);
                low[1] = low[1].min(self.lap(control)?);
            }
            *extra = low[0] - low[1];
        }
        self.offsets = all;
        Ok(extra[1] < 0.6 * extra[0])
    }

    /// Some of the strangers, as many as `n`, none of them in `without`.
    fn some(&mut self, strangers: &[u64], n: usize) -> Vec<u64> {
        let mut s = strangers.to_vec();
        for i in 0..n.min(s.len()) {
            let j = i + self.rng.below((s.len() - i) as u64) as usize;
            s.swap(i, j);
        }
        s.truncate(n);
        s
    }

    /// Do `pages` have a line too many in their sets, beside enough strangers to keep them out of the first level?
    pub fn overfull(&mut self, pages: &[u64], strangers: &[u64]) -> Result<bool, MeasureError> {
        let s = self.some(strangers, pages.len() + self.ballast);
        if s.len() < pages.len() + self.ballast {
            return Ok(false);
        }
        let (ballast, instead) = s.split_at(self.ballast);
        let group: Vec<u64> = pages.iter().chain(ballast).copied().collect();
        let control: Vec<u64> = instead.iter().chain(ballast).copied().collect();
        self.conflicts(&group, &control)
    }

    /// Do `known` and `more` have one, where `known` alone has none? The control keeps `known`.
    pub fn joins(
        &mut self,
        known: &[u64],
        more: &[u64],
        strangers: &[u64],
    ) -> Result<bool, MeasureError> {
        let s = self.some(strangers, more.len() + self.ballast);
        if s.len() < more.len() + self.ballast {
            return Ok(false);
        }
        let (ballast, instead) = s.split_at(self.ballast);
        let with =
            |x: &[u64]| -> Vec<u64> { known.iter().chain(ballast).chain(x).copied().collect() };
        let (group, control) = (with(more), with(instead));
        self.conflicts(&group, &control)
    }

    /// Gathers pages until one does not fit, reduces them to its set, and adds to that set as many pages as later
    /// probes want: twice what it, or the level `above` it, holds.
    ///
    /// The text says why there is no result.
    pub fn find(
        &mut self,
        pool: &[u64],
        above: usize,
        deadline_ns: u64,
    ) -> Result<Result<Found, String>, MeasureError> {
        let late = |w: &Self| w.m.now_ns() > deadline_ns;
        let mut s: Vec<u64> = pool[..self.ballast.min(pool.len())].to_vec();
        let mut next = s.len();
        let (victim, stranger) = loop {
            if s.len() > 1000 || next + 3 > pool.len() {
                return Ok(Err(format!("{} pages do not fill any set", s.len())));
            }
            if late(self) {
                return Ok(Err("out of time while gathering pages".into()));
            }
            let size = (s.len() / 32).clamp(1, (pool.len() - next) / 3);
            let batches: Vec<&[u64]> = pool[next..next + 3 * size].chunks(size).collect();
            next += 3 * size;
            let with = |b: &[u64]| -> Vec<u64> { s.iter().chain(b).copied().collect() };
            let laps = batches
                .iter()
                .map(|b| self.lap(&with(b)))
                .collect::<Result<Vec<f64>, _>>()?;
            let least = (0..3)
                .min_by(|a, b| laps[*a].total_cmp(&laps[*b]))
                .unwrap_or(0);
            let control = with(batches[least]);
            let mut hit = None;
            for (i, b) in batches.iter().enumerate() {
                if i == least || laps[i] - laps[least] < self.bar {
                    continue;
                }
                if !self.conflicts(&with(b), &control)? {
                    continue;
                }
                // Which of the batch; the least batch's first page is the stranger.
                let spare = with(&batches[least][..1]);
                for p in b.iter() {
                    if self.conflicts(&with(&[*p]), &spare)?
                        && self.by_lines(&with(&[*p]), &spare)?
                    {
                        hit = Some((*p, batches[least][0]));
                        break;
                    }
                }
                if hit.is_some() {
                    break;
                }
            }
            match hit {
                Some(h) => break h,
                None => batches.iter().for_each(|b| s.extend(*b)),
            }
        };
        let gathered = s.len();
        let mut strangers: Vec<u64> = vec![stranger];
        // Leave out groups of shrinking size; what the conflict does not need is a stranger.
        let mut size = (s.len() / 8).max(1);
        loop {
            let mut at = 0;
            while at < s.len() {
                if late(self) {
                    return Ok(Err("out of time while leaving pages out".into()));
                }
                let to = (at + size).min(s.len());
                let mut rest: Vec<u64> = s[..at].iter().chain(&s[to..]).copied().collect();
                let missing = self.ballast.saturating_sub(rest.len());
                let ballast: Vec<u64> =
                    strangers[1..].iter().rev().take(missing).copied().collect();
                rest.extend(ballast);
                let with = |x: u64| -> Vec<u64> {
                    rest.iter().copied().chain(std::iter::once(x)).collect()
                };
                let (group, control) = (with(victim), with(stranger));
                if self.conflicts(&group, &control)? {
                    strangers.extend(s.drain(at..to));
                } else {
                    at = to;
                }
            }
            if size == 1 {
                break;
            }
            size = (size / 2).max(1);
        }
        let ways = s.len();
        if !(1..=40).contains(&ways) || strangers.len() < 2 * self.ballast {
            return Ok(Err(format!("{ways} pages were left, which is no set")));
        }
        if !self.joins(&s, &[victim], &strangers)? {
            return Ok(Err("disturbed: the pages left do not conflict again".into()));
        }
        // Of two sets that the victim overfilled at once, a cache's and a translation buffer's, either may be left.
        let beside = strangers[1..=self.ballast].iter().chain(&s).copied();
        let with = |x: u64| -> Vec<u64> { beside.clone().chain(std::iter::once(x)).collect() };
        if !self.by_lines(&with(victim), &with(stranger))? {
            return Ok(Err("the pages left conflict in translation".into()));
        }
        let mut found = Found {
            class: s.clone(),
            strangers,
            unseen: Vec::new(),
            ways,
            gathered,
        };
        found.class.push(victim);
        let mut rest = pool[next..].to_vec();
        self.rng.shuffle(&mut rest);
        let most = (ways.max(above) * 11 / 5 + 5).min(CLASS_LIMIT);
        self.extend(&mut found, &s, rest, most, deadline_ns)?;
        Ok(Ok(found))
    }

    /// Adds members to the class: those that conflict with the full set.
    fn extend(
        &mut self,
        found: &mut Found,
        full: &[u64],
        mut rest: Vec<u64>,
        most: usize,
        deadline_ns: u64,
    ) -> Result<(), MeasureError> {
        self.tries = 2;
        while found.class.len() < most && !rest.is_empty() && self.m.now_ns() < deadline_ns {
            let size = (found.gathered / found.ways.max(1))
                .clamp(2, 48)
                .min(found.strangers.len().saturating_sub(self.ballast + 1))
                .min(rest.len());
            if size == 0 {
                break;
            }
            let batch = rest.split_off(rest.len() - size);
            if !self.joins(full, &batch, &found.strangers)? {
                found.strangers.extend(batch);
                continue;
            }
            let (mut no, mut yes) = (0, size);
            while yes - no > 1 {
                let middle = (no + yes) / 2;
                if self.joins(full, &batch[..middle], &found.strangers)? {
                    yes = middle
                } else {
                    no = middle
                }
            }
            self.tries = 4;
            let member = self.joins(full, &batch[yes - 1..yes], &found.strangers)?;
            self.tries = 2;
            if member {
                found.class.push(batch[yes - 1]);
                found.strangers.extend(&batch[..yes - 1]);
            }
            rest.extend(&batch[yes..]);
        }
        found.unseen = rest;
        self.tries = 3;
        Ok(())
    }
}

/// One vote by walks.
///
/// # Errors
/// What the backend reports.
pub(super) fn collect(
    m: &mut dyn Measure,
    l1: Geometry,
    hit: Option<f64>,
    pool_pages: u64,
    deadline_ns: u64,
    rng: &mut Rng,
) -> Result<Vote, MeasureError> {
    let mut vote = Vote {
        at_ns: m.now_ns(),
        walked: true,
        ..Vote::default()
    };
    let colours = l1.colours();
    let limit = (m.facts().memory_bytes / 2 / PAGE).min(pool_pages * colours) / colours;
    let colour = rng.below(colours);
    let mut pool: Vec<u64> = (0..limit).map(|i| i * colours + colour).collect();
    rng.shuffle(&mut pool);
    let mut w = Walker::new(m, l1, hit.unwrap_or(14.0), rng);
    let mut attempts = 0;
    let found = loop {
        attempts += 1;
        match w.find(&pool, l1.ways as usize, deadline_ns)? {
            Ok(found) => break found,
            Err(_) if attempts < 4 && w.m.now_ns() < deadline_ns => w.rng.shuffle(&mut pool),
            Err(why) => {
                vote.gave_up = Some(why);
                return Ok(vote);
            }
        }
    };
    vote.prefix = found.gathered as u32;
    let (class, strangers) = (found.class, found.strangers);
    // The walks' own levels: what fits beside its ballast, and a class far too large.
    let fits = &class[..found.ways.saturating_sub(1).max(1)];
    let low = w.per_line(fits, &strangers)?;
    let over = (found.ways + 6).min(class.len());
    let high = w.per_line(&class[..over], &strangers)?;
    // Now that a miss's cost is seen the bar can be higher, which keeps the first level's whims out.
    let gap = (high - low).min(4.0 * low);
    w.bar = w.bar.max(0.4 * w.offsets.len() as f64 * gap);
    vote.levels = (low, high);
    if class.len() < found.ways + 2 {
        vote.gave_up = Some(format!("only {} congruent pages", class.len()));
        return Ok(vote);
    }
    // Enough to fill every set if the index mixed, and not so much that a further level overflows.
    let walked = (8 * found.gathered).max(512).min(pool.len());
    vote.crossed = w.crossed(fits, &strangers, &pool[..walked])?;
    if vote.crossed.is_some_and(|c| c > low + 0.3 * (high - low)) {
        vote.gave_up = Some("lines at other page offsets evict".into());
        return Ok(vote);
    }
    // The step, by random subsets in rounds over all sizes, so that no burst of noise hits one size alone.
    let from = found.ways.saturating_sub(2).max(1);
    let sizes: Vec<usize> = (from..=(found.ways + 3).min(class.len())).collect();
    let mut counts = vec![0; sizes.len()];
    w.tries = 4;
    for _ in 0..TRIALS {
        for (count, &k) in counts.iter_mut().zip(&sizes) {
            let subset = w.some(&class, k);
            *count += u32::from(w.overfull(&subset, &strangers)?);
        }
    }
    // A set that k pages overfill is one that k - 1 of them evict the last from.
    vote.curve = sizes
        .iter()
        .zip(&counts)
        .map(|(&k, &n)| (k as u32 - 1, n, TRIALS))
        .collect();
    if let Some(ways) = step(&vote.curve) {
        w.tries = 2;
        let known = (&class[..], ways as usize);
        count(
            &mut w,
            known,
            &found.unseen,
            &strangers,
            found.gathered,
            deadline_ns,
            &mut vote,
        )?;
    }
    (vote.class, vote.others) = (class, strangers);
    Ok(vote)
}

/// How rare congruent pages are: batches of pages never looked at, beside a full set.
///
/// A batch of 1.6 times the colours says most: the variance of the logarithm of the share after n batches is
/// `(e^x - 1) / (n x^2)`, with x congruent pages expected in a batch.
fn count(
    w: &mut Walker<'_>,
    (class, ways): (&[u64], usize),
    unseen: &[u64],
    strangers: &[u64],
    gathered: usize,
    deadline_ns: u64,
    vote: &mut Vote,
) -> Result<(), MeasureError> {
    vote.pool = unseen.len() as u32;
    // Half of the lines will do for so many walks.
    w.offsets.truncate(w.offsets.len() / 2);
    w.bar *= 0.5;
    let most = strangers.len().saturating_sub(w.ballast) / 2;
    // The first conflict comes when sets are half full on average, or somewhat later. Sets of few ways overflow by
    // themselves when many strangers come together.
    let share = if ways < 8 { 0.6 } else { 2.0 };
    let size = ((gathered as f64 * share) as usize / ways.max(1)).clamp(4, most.max(4));
    if size > most || size * 4 > unseen.len() {
        return Ok(());
    }
    let (mut hits, mut done) = (0, 0);
    let (full, spare) = class.split_at(ways);
    while done < BATCHES && (done % 8 > 0 || w.m.now_ns() < deadline_ns) {
        let batch = w.some(unseen, size);
        hits += u32::from(w.joins(full, &batch, strangers)?);
        done += 1;
        if done % 3 == 0 {
            let known = w.some(strangers, size);
            let others: Vec<u64> = strangers
                .iter()
                .copied()
                .filter(|s| !known.contains(s))
                .collect();
            vote.control.0 += u32::from(w.joins(full, &known, &others)?);
            vote.control.1 += 1;
            // The same with a member among them must be noticed.
            let mut with = known[1..].to_vec();
            with.extend(w.some(spare, 1));
            vote.noticed.0 += u32::from(w.joins(full, &with, &others)?);
            vote.noticed.1 += 1;
        }
    }
    if done >= 16 {
        vote.batches.push((size as u32, hits, done));
    }
    Ok(())
}
