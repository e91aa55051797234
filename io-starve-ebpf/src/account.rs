//! Group, device and histogram rows: who gets what counted.

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use io_starve_common::{
    hist,
    wire::{
        DevRow, EPOCH_SHIFT, GroupRow, LossKind, NO_ROW, OWNER_OTHER, class_of_low, dev_key,
        dev_row_of_low, group_key, group_low, group_row, hist_row, pack_max,
    },
};

use crate::{
    kernel::{Payer, Ptr, address},
    maps::{COUNTS, DEVS, GROUPS, HISTS, conf, find_or_claim, lost},
};

/// The row of a disk. `None`: there are more disks than rows, or the row has gone.
#[inline(always)]
pub fn device(dev: u32) -> Option<u32> {
    match find_or_claim(&DEVS, conf!(devs_mask), dev_key(dev)) {
        Some((at, _, _)) => Some(at),
        None => {
            lost(LossKind::DevicesFull);
            None
        }
    }
}

/// Device row and class of a group, by its name. `None`: it is [`NO_ROW`].
#[inline(always)]
pub fn low_of(group: u32) -> Option<u64> {
    // SAFETY: a map value.
    GROUPS.get_ptr_mut(group).map(|name| unsafe { (*name).low })
}

/// The low half of an address: enough to tell two queues apart that memory may have served one after the other.
#[inline(always)]
pub fn tag_of(q: Ptr) -> u32 {
    address(q) as u32
}

/// The group for this payer and class on the disk of a queue, given the group that the row had before, and whether that was for
/// the same queue: memory serves the same owner again and again, and then nothing is searched.
///
/// `dev` is asked for only when the queue is another.
#[inline(always)]
pub fn group_for<const PLAIN: bool>(
    had: u32,
    same_queue: bool,
    payer: Payer<PLAIN>,
    class: u8,
    dev: impl Fn() -> u32,
) -> u32 {
    let serial = payer.serial();
    if same_queue
        && serial != 0
        && let Some((row, _)) = counts(had)
    {
        // SAFETY: a map value.
        let same = unsafe { (*row).serial == serial && class_of_low((*row).low) == class };
        if same {
            return had;
        }
    }
    let dev_row = match low_of(had) {
        Some(low) if same_queue => dev_row_of_low(low),
        _ => match device(dev()) {
            Some(row) => row,
            None => return NO_ROW,
        },
    };
    let low = group_low(dev_row, class);
    let (group, serial) = match claim_group(payer.owner(), low) {
        Some(at) => (at, serial),
        // Those that share a row as "other" are not told apart by it.
        None => {
            lost(LossKind::GroupsFull);
            (claim_group(OWNER_OTHER, low).unwrap_or(NO_ROW), 0)
        }
    };
    if let Some((row, _)) = counts(group) {
        // SAFETY: a map value.
        unsafe {
            (*row).serial = serial;
            (*row).low = low;
        }
    }
    group
}

#[inline(always)]
fn claim_group(owner: u64, low: u64) -> Option<u32> {
    let (at, row, new) = find_or_claim(&GROUPS, conf!(groups_mask), group_key(owner, low))?;
    if new {
        // SAFETY: a map value that this program has just claimed.
        unsafe {
            (*row).owner = owner;
            (*row).low = low;
        }
    }
    Some(at)
}

/// Counters and histograms are kept apart by CPU, so that CPUs do not fight for one cache line.
#[inline(always)]
fn shard() -> u32 {
    if conf!(shards_mask) == 0 {
        return 0;
    }
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_smp_processor_id() & conf!(shards_mask) }
}

/// The counters of a group on this CPU, and its shard.
#[inline(always)]
pub fn counts(group: u32) -> Option<(*mut GroupRow, u32)> {
    if group == NO_ROW {
        return None;
    }
    let shard = shard();
    let row = COUNTS.get_ptr_mut(group_row(group, shard, conf!(shards_mask)))?;
    Some((row, shard))
}

#[inline(always)]
pub fn dev_row(at: u32) -> Option<*mut DevRow> {
    DEVS.get_ptr_mut(at)
}

/// Keeps the longest wait of this epoch and of the one before: one of two places by parity, so that a reader that comes four times an
/// epoch misses none and nobody has to reset anything.
///
/// # Safety
///
/// `places` must point to two words of a map value.
#[inline(always)]
pub unsafe fn keep_longest(places: *mut u64, now: u64, ns: u64) {
    let new = pack_max(now, ns);
    let odd = (now >> EPOCH_SHIFT) & 1;
    // SAFETY: the caller's promise.
    unsafe {
        let place = places.add(odd as usize);
        if new > *place {
            *place = new;
        }
    }
}

/// Device row and class of a group, kept with the counters of its ends.
///
/// # Safety
///
/// `row` must point to counters of this group.
#[inline(always)]
pub unsafe fn low_at_end(row: *mut GroupRow, group: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        if (*row).low_of_end == 0 {
            (*row).low_of_end = low_of(group).unwrap_or(0);
        }
        (*row).low_of_end
    }
}

/// The counter of this duration in the fine histogram of a device and class.
#[inline(always)]
pub fn bucket(low: u64, stage: u32, shard: u32, ns: u64) -> Option<*mut u32> {
    let (dev_row, class) = (dev_row_of_low(low), class_of_low(low));
    let at = hist_row(dev_row, class, stage, shard, conf!(shards_mask));
    let row = HISTS.get_ptr_mut(at)?;
    let b = hist::bucket(ns) as usize & (hist::BUCKETS - 1);
    // SAFETY: a map value; the mask keeps the index inside.
    Some(unsafe { (&raw mut (*row).counts).cast::<u32>().add(b) })
}
