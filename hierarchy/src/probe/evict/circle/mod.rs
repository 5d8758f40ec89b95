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

mod walk;

use super::{BATCHES, TRIALS, Vote, step};
use crate::measure::{Measure, MeasureError};
use crate::probe::PAGE;
use crate::probe::l1::Geometry;
use crate::rng::Rng;
use walk::Walker;

/// Most pages of a congruence class that are worth finding.
const CLASS_LIMIT: usize = 40;

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

impl Walker<'_> {
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
        if !(1..=40).contains(&ways) || strangers.len() < self.ballast + 2 {
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
        // A random policy needs many laps until what was there before is out.
        w.warm = if attempts % 2 == 1 { 3 } else { 12 };
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
    // Small batches say little each.
    let wanted = if ways < 8 { 3 * BATCHES } else { BATCHES };
    while done < wanted && (done % 8 > 0 || w.m.now_ns() < deadline_ns) {
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
