//! Group, device and histogram rows: who gets what counted.

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use io_starve_common::{
    hist,
    wire::{
        DevRow, EPOCH_SHIFT, GroupRow, LossKind, NO_ROW, OWNER_OTHER, STAGE_ADMISSION,
        STAGE_QUEUED, dev_key, group_key, group_low, hist_row,
    },
};

use crate::maps::{DEVS, GROUPS, HISTS, add, add32, conf, find_or_claim, lost};

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

/// The row of a (device, owner, class) on this CPU's shard, or that of "other" owners when there is no room.
#[inline(always)]
pub fn group(dev_row: u32, owner: u64, class: u8, shard: u8) -> u32 {
    let low = group_low(dev_row, class, shard as u32);
    if let Some(at) = claim_group(owner, low) {
        return at;
    }
    lost(LossKind::GroupsFull);
    claim_group(OWNER_OTHER, low).unwrap_or(NO_ROW)
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

/// Histograms and groups are kept apart by CPU, so that many CPUs do not fight for one cache line.
#[inline(always)]
pub fn shard() -> u8 {
    if conf!(shards_mask) == 0 {
        return 0;
    }
    // SAFETY: a helper without arguments.
    (unsafe { bpf_get_smp_processor_id() } & conf!(shards_mask)) as u8
}

#[inline(always)]
pub fn group_row(at: u32) -> Option<*mut GroupRow> {
    GROUPS.get_ptr_mut(at)
}

#[inline(always)]
pub fn dev_row(at: u32) -> Option<*mut DevRow> {
    DEVS.get_ptr_mut(at)
}

/// Which histogram a stage belongs to.
#[derive(Clone, Copy)]
pub struct Whose {
    pub dev_row: u32,
    pub class: u8,
    pub shard: u8,
}

/// Adds one finished stage to the group and to the fine histogram of its device and class.
///
/// # Safety
///
/// `row` must point to a group row.
#[inline(always)]
pub unsafe fn stage_ended(row: *mut GroupRow, whose: Whose, stage: u32, now: u64, ns: u64) {
    let s = stage as usize;
    // SAFETY: the caller's promise; the indices are constants below their bounds.
    unsafe {
        add(&raw mut (*row).stage_ns[s], ns);
        let epoch = now >> EPOCH_SHIFT;
        let max = if epoch & 1 == 0 {
            &raw mut (*row).stage_max[s][0]
        } else {
            &raw mut (*row).stage_max[s][1]
        };
        if (*max).epoch != epoch {
            (*max).epoch = epoch;
            (*max).max_ns = ns;
        } else if ns > (*max).max_ns {
            (*max).max_ns = ns;
        }
        if stage == STAGE_QUEUED {
            let b = hist::coarse_bucket(ns) as usize & (hist::COARSE - 1);
            add32((&raw mut (*row).queued).cast::<u32>().add(b), 1);
        } else if stage == STAGE_ADMISSION {
            add(&raw mut (*row).admitted, 1);
        }
    }
    let mask = conf!(shards_mask);
    let at = hist_row(whose.dev_row, whose.class, stage, whose.shard as u32, mask);
    if let Some(h) = HISTS.get_ptr_mut(at) {
        let b = hist::bucket(ns) as usize & (hist::BUCKETS - 1);
        // SAFETY: a map value; the mask keeps the index inside.
        unsafe { add32((&raw mut (*h).counts).cast::<u32>().add(b), 1) }
    }
}
