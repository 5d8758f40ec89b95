//! What became of samples, in columns.

use super::Column;
use crate::profile::types::{InstrId, Outcome, SampleRecord, Shared, remote_flags};
use crate::varint::{difference, narrow, sum, unzigzag, zigzag};

/// The columns of outcomes: kinds, distance, trigger.
type OutcomeColumns = [Column; 3];
pub(super) const OWN: OutcomeColumns = [Column::OutcomeKinds, Column::Distance, Column::Trigger];
const ALL: OutcomeColumns = [Column::AllKinds, Column::AllDistance, Column::AllTrigger];

/// Bits of [`Column::Shared`].
const SHARED: u8 = 1;
/// Some flag of [`Shared::remote`] is set, and all are stored.
const REMOTE_BIT: u8 = 2;
/// The writer is stored.
const WRITER_BIT: u8 = 4;

/// Kinds of an outcome, with the bits beside them.
const REUSED: u8 = 0;
const CENSORED: u8 = 1;
const NEVER: u8 = 2;
const NOT_FOLLOWED: u8 = 3;
const STORE_BIT: u8 = 4;
/// The trigger is the one of the line size before (the usual case).
const SAME_TRIGGER_BIT: u8 = 8;

/// The kind at a line size that most follow the one before with.
fn usual_after(kind: u8) -> u8 {
    match kind & 3 {
        REUSED => kind | SAME_TRIGGER_BIT,
        _ => kind,
    }
}

/// Kinds of five outcomes in one number, small where all are as usual.
pub(super) fn join_kinds(kinds: [u8; 5]) -> u64 {
    let mut joined = u64::from(kinds[0]);
    for (i, pair) in kinds.windows(2).enumerate() {
        joined |= u64::from(pair[1] ^ usual_after(pair[0])) << (4 + 4 * i);
    }
    joined
}

/// Undoes [`join_kinds`].
pub(super) fn part_kinds(joined: u64) -> Result<[u8; 5], String> {
    if joined >> 20 != 0 {
        return Err(format!("outcome kinds {joined:#x}"));
    }
    let mut kinds = [joined as u8 & 15; 5];
    for i in 1..5 {
        kinds[i] = usual_after(kinds[i - 1]) ^ ((joined >> (4 * i)) as u8 & 15);
    }
    Ok(kinds)
}

/// Appends the outcomes at the five line sizes, each relative to the one before.
pub(super) fn put_outcomes(
    put: &mut impl FnMut(Column, u64),
    [kinds, distances, triggers]: OutcomeColumns,
    ip: InstrId,
    outcomes: &[Outcome; 5],
) {
    let mut trigger_before = ip;
    let mut distance_before = 0;
    let mut all = [0; 5];
    for (outcome, kind_of) in outcomes.iter().zip(&mut all) {
        let (kind, distance) = match *outcome {
            Outcome::Reused {
                distance,
                trigger,
                store,
            } => {
                let mut kind = REUSED | if store { STORE_BIT } else { 0 };
                if trigger == trigger_before {
                    kind |= SAME_TRIGGER_BIT;
                } else {
                    put(triggers, u64::from(trigger));
                    trigger_before = trigger;
                }
                (kind, Some(distance))
            }
            Outcome::Censored { at } => (CENSORED, Some(at)),
            Outcome::NeverReused { at } => (NEVER, Some(at)),
            Outcome::NotFollowed => (NOT_FOLLOWED, None),
        };
        *kind_of = kind;
        if let Some(d) = distance {
            put(distances, difference(d, &mut distance_before));
        }
    }
    put(kinds, join_kinds(all));
}

/// Undoes [`put_outcomes`].
pub(super) fn get_outcomes(
    get: &mut impl FnMut(Column) -> Result<u64, String>,
    [kinds, distances, triggers]: OutcomeColumns,
    one_by_one: Option<Column>,
    ip: InstrId,
) -> Result<[Outcome; 5], String> {
    let mut outcomes = [Outcome::NotFollowed; 5];
    let mut trigger = ip;
    let mut distance_before = 0;
    let joined = match one_by_one {
        None => part_kinds(get(kinds)?)?,
        Some(_) => [0; 5],
    };
    for (outcome, kind) in outcomes.iter_mut().zip(joined) {
        let kind: u8 = match one_by_one {
            None => kind,
            Some(column) => narrow(get(column)?)?,
        };
        if kind == NOT_FOLLOWED {
            continue;
        }
        if kind & 3 == REUSED && kind & SAME_TRIGGER_BIT == 0 {
            trigger = narrow(get(triggers)?)?;
        }
        let distance = sum(get(distances)?, &mut distance_before);
        *outcome = match kind & 3 {
            REUSED => Outcome::Reused {
                distance,
                trigger,
                store: kind & STORE_BIT != 0,
            },
            CENSORED => Outcome::Censored { at: distance },
            NEVER => Outcome::NeverReused { at: distance },
            _ => return Err(format!("outcome kind {kind}")),
        };
    }
    Ok(outcomes)
}

/// Appends what other threads did to the line of `sample`.
pub(super) fn put_shared(
    put: &mut impl FnMut(Column, u64),
    window_tid: i32,
    sample: &SampleRecord,
) {
    let Some(shared) = &sample.shared else {
        put(Column::Shared, 0);
        return;
    };
    let remote = shared.remote.iter().any(|&flags| flags != 0);
    let mut has = SHARED;
    if remote {
        has |= REMOTE_BIT;
    }
    if shared.writer.is_some() {
        has |= WRITER_BIT;
    }
    put(Column::Shared, u64::from(has));
    put_outcomes(put, ALL, sample.ip, &shared.all);
    if remote {
        for &flags in &shared.remote {
            put(Column::Remote, u64::from(flags));
        }
    }
    if let Some((instr, tid)) = shared.writer {
        put(Column::WriterInstr, u64::from(instr));
        let tid = i64::from(tid) - i64::from(window_tid);
        put(Column::WriterTid, zigzag(tid));
    }
}

/// Undoes [`put_shared`].
pub(super) fn get_shared(
    get: &mut impl FnMut(Column) -> Result<u64, String>,
    window_tid: i32,
    one_by_one: Option<Column>,
    ip: InstrId,
) -> Result<Option<Box<Shared>>, String> {
    const KNOWN: u8 = remote_flags::READ | remote_flags::WRITTEN | remote_flags::DISJOINT;
    let has: u8 = narrow(get(Column::Shared)?)?;
    if has == 0 {
        return Ok(None);
    }
    if has & SHARED == 0 || has > SHARED | REMOTE_BIT | WRITER_BIT {
        return Err(format!("what other threads did: {has}"));
    }
    let all = get_outcomes(get, ALL, one_by_one, ip)?;
    let mut remote = [0; 5];
    if has & REMOTE_BIT != 0 {
        for flags in &mut remote {
            *flags = narrow(get(Column::Remote)?)?;
            if *flags > KNOWN {
                return Err(format!("remote accesses of kind {flags}"));
            }
        }
    }
    let writer = if has & WRITER_BIT != 0 {
        let instr = narrow(get(Column::WriterInstr)?)?;
        let tid = unzigzag(get(Column::WriterTid)?);
        Some((instr, narrow(i64::from(window_tid).wrapping_add(tid))?))
    } else {
        None
    };
    Ok(Some(Box::new(Shared {
        all,
        remote,
        writer,
    })))
}
