//! Device time by owner, on disks for which user space has switched it on. The sums are those of `io_starve_common::service`.
//!
//! What was counted when it began is counted until it ends, also when accounting is switched off meanwhile: a flag of the request or bio
//! says so. What waited when it was switched on counts from its issue on.

use core::arch::asm;

use io_starve_common::{
    request::{Effects, F_ACCOUNTED, ISSUED, Life},
    service::{OwnerClock, advance, settle},
    wire::{
        B_ACCOUNTED, BioSlot, CTRL_ACCOUNTING, GroupName, LossKind, Slot, dev_row_of_low,
        group_key, group_low,
    },
};

use crate::{
    account::low_of,
    block::now,
    maps::{ACCOUNTED, CLOCKS, CTRL, GROUPS, OWNERS, add, add32, conf, find_or_claim, lost},
};

/// How often a lock is tried for. Whoever has it needs some 50 ns; only one that was interrupted on this CPU keeps it for longer.
const TRIES: u32 = 32;

/// Whether device time is counted on the disk of this group. Where it is counted nowhere, that is one look at memory that nobody
/// writes.
#[inline(always)]
fn is_on(group: u32) -> bool {
    if CTRL.get(CTRL_ACCOUNTING).is_none_or(|on| *on == 0) {
        return false;
    }
    low_of(group)
        .and_then(|low| ACCOUNTED.get(dev_row_of_low(low)))
        .is_some_and(|on| *on != 0)
}

/// A request begins, queued or issued.
///
/// # Safety
///
/// `slot` must point to a claimed slot.
#[inline(always)]
pub unsafe fn begin(slot: *mut Slot, t: u64, state: u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if is_on((*slot).group) {
            (*slot).life.flags |= F_ACCOUNTED;
            let inside = i64::from(state == ISSUED);
            shift((*slot).group, t, 1 - inside, inside);
        }
    }
}

/// A request that was queued was issued.
///
/// # Safety
///
/// As above.
#[inline(always)]
pub unsafe fn issued(slot: *mut Slot, t: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*slot).life.flags & F_ACCOUNTED != 0 {
            shift((*slot).group, t, -1, 1);
        } else {
            begin(slot, t, ISSUED);
        }
    }
}

/// The driver gave a request back.
///
/// # Safety
///
/// As above.
#[inline(always)]
pub unsafe fn went_back(slot: *mut Slot) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*slot).life.flags & F_ACCOUNTED != 0 {
            shift((*slot).group, now(), 1, -1);
        }
    }
}

/// A life with these flags ended.
#[inline(always)]
pub fn ended(group: u32, flags: u8, fx: &Effects, t: u64) {
    if flags & F_ACCOUNTED != 0 {
        let (waiting, inside) = (i64::from(fx.left_queue), i64::from(fx.left_device));
        shift(group, t, -waiting, -inside);
    }
}

/// A life was given up as it is.
#[inline(always)]
pub fn expired(group: u32, life: &Life, t: u64) {
    if life.flags & F_ACCOUNTED != 0 {
        let inside = i64::from(life.state == ISSUED);
        shift(group, t, inside - 1, -inside);
    }
}

/// A bio waits for admission.
///
/// # Safety
///
/// `bio` must point to a locked map value.
#[inline(always)]
pub unsafe fn bio_waits(bio: *mut BioSlot, t: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if is_on((*bio).group) {
            (*bio).flags |= B_ACCOUNTED;
            shift((*bio).group, t, 1, 0);
        }
    }
}

/// A bio waits no longer.
///
/// # Safety
///
/// As above.
#[inline(always)]
pub unsafe fn bio_left(bio: *mut BioSlot, t: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if (*bio).flags & B_ACCOUNTED != 0 {
            (*bio).flags &= !B_ACCOUNTED;
            shift((*bio).group, t, -1, 0);
        }
    }
}

/// The row of this group's owner on its disk.
#[inline(always)]
fn owner_row(name: *mut GroupName, dev_row: u32) -> Option<*mut OwnerClock> {
    // SAFETY: a map value.
    unsafe {
        if let Some(at) = (*name).claim.tag.checked_sub(1) {
            return OWNERS.get_ptr_mut(at);
        }
        let key = group_key((*name).owner, group_low(dev_row, 0));
        let Some((at, row, new)) = find_or_claim(&OWNERS, conf!(owners_mask), key) else {
            lost(LossKind::GroupsFull);
            return None;
        };
        if new {
            (*row).owner = (*name).owner;
            (*row).dev_row = u64::from(dev_row) + 1;
        }
        (*name).claim.tag = at + 1;
        Some(row)
    }
}

/// Keeps the compiler from moving accesses across. LLVM's BPF backend knows no fence of its own (`compiler_fence` ends it with "Cannot
/// select"); an empty piece of assembly that may touch any memory is one.
#[inline(always)]
fn barrier() {
    // SAFETY: no instruction.
    unsafe { asm!("") }
}

/// Requests and bios of a group come into a stage or leave it. A function of its own for the verifier and the instruction cache: each
/// program has several of these.
///
/// Who does not get the lock moves the counts only; the time up to then goes to the next event.
#[inline(never)]
fn shift(group: u32, t: u64, waiting: i64, inside: i64) {
    let Some(name) = GROUPS.get_ptr_mut(group) else {
        return;
    };
    // SAFETY: map values. The clock is written under its lock, counts by atomic additions.
    unsafe {
        let dev_row = dev_row_of_low((*name).low);
        let Some(device) = CLOCKS.get_ptr_mut(dev_row) else {
            return;
        };
        let Some(owner) = owner_row(name, dev_row) else {
            return;
        };
        let lock = &raw mut (*device).lock;
        let mut mine = false;
        for _ in 0..TRIES {
            if core::ptr::read_volatile(lock) == 0 {
                add32(lock, 1);
                if core::ptr::read_volatile(lock) == 1 {
                    mine = true;
                    break;
                }
                add32(lock, u32::MAX);
            }
        }
        barrier();
        if mine {
            advance(&mut *device, t);
        } else {
            add32(&raw mut (*device).missed, 1);
        }
        settle(&mut *owner, &*device);
        if waiting != 0 {
            add(&raw mut (*device).waiting, waiting as u64);
            add(&raw mut (*owner).waiting, waiting as u64);
        }
        if inside != 0 {
            add(&raw mut (*device).in_device, inside as u64);
            add(&raw mut (*owner).in_device, inside as u64);
        }
        barrier();
        if mine {
            add32(lock, u32::MAX);
        }
    }
}
