//! First touches in columns.

use super::{ALLOCATED, Column, memory_kind, memory_of_kind};
use crate::profile::types::{FirstTouch, FirstTouches, Memory, Since};
use crate::varint::{difference, narrow, sum, unzigzag, zigzag};

/// Appends first touches.
pub(super) fn put_first(put: &mut impl FnMut(Column, u64), window_tid: i32, first: &FirstTouches) {
    put(Column::FirstSeen, first.seen);
    put(Column::FirstSeen, u64::from(first.one_in));
    put(Column::FirstSeen, first.touches.len() as u64);
    let whole = !first.epochs.is_empty();
    if whole {
        put(Column::Epoch, first.epochs.len() as u64);
        for &epoch in &first.epochs {
            put(Column::Epoch, epoch);
        }
    }
    let (mut position, mut offset, mut first_ended) = (0, 0, None);
    for touch in &first.touches {
        put(Column::FirstIp, u64::from(touch.ip));
        put(
            Column::FirstPosition,
            difference(touch.position, &mut position),
        );
        put(Column::FirstMemoryKind, memory_kind(&touch.memory));
        if let Memory::Static { module, offset: at } = touch.memory {
            put(Column::FirstMemoryModule, u64::from(module));
            put(Column::FirstMemoryOffset, difference(at, &mut offset));
        }
        if let Memory::Allocated { site } = touch.memory {
            put(Column::FirstMemoryModule, u64::from(site));
        }
        let thread = zigzag(i64::from(touch.tid) - i64::from(window_tid));
        put(Column::FirstThread, thread << 1 | u64::from(!touch.of_all));
        if whole {
            let (least, width) = match touch.since {
                Since::AtLeast(least) => (least, 0),
                // Never 0: the last touch was not this one.
                Since::Between(least, most) => (least, most.saturating_sub(least).max(1)),
            };
            // Since the end of an epoch, which many have in common.
            let ended = touch.position.wrapping_sub(least);
            let mut from = first_ended.unwrap_or(0);
            first_ended.get_or_insert(ended);
            put(Column::FirstEnded, difference(ended, &mut from));
            put(Column::FirstEnded, width);
        }
    }
}

/// Undoes [`put_first`].
pub(super) fn get_first(
    get: &mut impl FnMut(Column) -> Result<u64, String>,
    window_tid: i32,
    whole: bool,
    old: bool,
) -> Result<FirstTouches, String> {
    let seen = get(Column::FirstSeen)?;
    let one_in = narrow(get(Column::FirstSeen)?)?;
    let count = get(Column::FirstSeen)?;
    let mut epochs = Vec::new();
    if whole {
        for _ in 0..get(Column::Epoch)? {
            epochs.push(get(Column::Epoch)?);
        }
    }
    let (mut before, mut offset, mut first_ended) = (0, 0, None);
    let mut touches = Vec::new();
    for _ in 0..count {
        let (ip, position) = (get(Column::FirstIp)?, get(Column::FirstPosition)?);
        let memory = match get(Column::FirstMemoryKind)? {
            0 => Memory::Static {
                module: narrow(get(Column::FirstMemoryModule)?)?,
                offset: sum(get(Column::FirstMemoryOffset)?, &mut offset),
            },
            ALLOCATED => Memory::Allocated {
                site: narrow(get(Column::FirstMemoryModule)?)?,
            },
            kind => memory_of_kind(kind)?,
        };
        let thread = get(Column::FirstThread)?;
        let position = sum(position, &mut before);
        let since = match whole {
            true if old => (get(Column::FirstSince)?, get(Column::FirstSince)?),
            true => {
                let mut from = first_ended.unwrap_or(0);
                let ended = sum(get(Column::FirstEnded)?, &mut from);
                first_ended.get_or_insert(ended);
                (position.wrapping_sub(ended), get(Column::FirstEnded)?)
            }
            false => (0, 0),
        };
        touches.push(FirstTouch {
            ip: narrow(ip)?,
            position,
            memory,
            tid: narrow(i64::from(window_tid).wrapping_add(unzigzag(thread >> 1)))?,
            of_all: thread & 1 == 0,
            since: match since {
                (least, 0) => Since::AtLeast(least),
                (least, width) => Since::Between(least, least.saturating_add(width)),
            },
        });
    }
    Ok(FirstTouches {
        touches,
        seen,
        one_in,
        epochs,
    })
}
