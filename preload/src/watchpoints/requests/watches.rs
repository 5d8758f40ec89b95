//! The requests: to arm a watch and to drop it, to begin and to end.

use super::others::{everyone_inside, in_use};
use crate::watchpoints::pages;
use crate::watchpoints::state::{Held, lock};
use crate::watchpoints::threads::READY;
use statcache_abi::{PAGE_BYTES, Request, ended, result};

pub(super) fn arm(request: &Request) -> i32 {
    let bytes = u64::from(request.length);
    let sound = bytes.is_power_of_two() && (16..=256).contains(&bytes);
    if !sound || !request.address.is_multiple_of(bytes) {
        return result::INVALID;
    }
    lock().arming += 1;
    let answer = match everyone_inside(READY) {
        true => arm_here(request),
        false => result::BUSY,
    };
    lock().arming -= 1;
    answer
}

pub(super) fn begin(held: &mut Held) {
    held.leaving = false;
    held.rings = true;
    held.begun += 1;
    held.arming += 1;
}

pub(super) fn end() -> i32 {
    {
        let mut held = lock();
        if held.begun > 0 {
            held.begun -= 1;
            held.arming = held.arming.saturating_sub(1);
        }
    }
    disarm(None)
}

pub(super) fn arm_here(request: &Request) -> i32 {
    let page = request.address & !(PAGE_BYTES - 1);
    let mut held = lock();
    let protection = match held.find_page(page).and_then(|at| held.pages.get(at)) {
        Some(page) => page.protection,
        None => {
            let protection = crate::watchpoints::maps::protection(page);
            let Some(protection) = protection else {
                return result::UNSUITABLE;
            };
            if pages::reserved(page) {
                return result::UNSUITABLE;
            }
            if in_use(page) {
                return result::BUSY;
            }
            protection
        }
    };
    pages::arm(
        &mut held,
        request.address,
        request.length,
        request.id,
        request.flags,
        protection,
    )
}

pub(super) fn disarm(id: Option<u32>) -> i32 {
    let mut held: Held = lock();
    pages::disarm(&mut held, ended::DISARMED, |watch| {
        id.is_none_or(|id| id == watch.id)
    });
    result::OK
}
