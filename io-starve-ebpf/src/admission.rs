//! Bios that wait for admission: between block_bio_queue, which follows the limits of blk-throttle, and block_getrq,
//! which follows wbt, iocost and the tag; or the merge that spares a request.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, maps::Array};
use io_starve_common::wire::{
    B_IDLE_PRIO, BioSlot, Claim, LossKind, PROBES, STAGE_ADMISSION, probe_start,
};

use crate::{
    account::{bucket, counts, dev_row, device, group_for, keep_longest, low_at_end, tag_of},
    block::now,
    hook::hook,
    kernel::{Payer, Ptr, address, allowed, class_of, dev_of_disk, disk_of_bio, is_idle, load},
    maps::{BIOS, add, add32, claim, conf, lock, lost, release},
    service,
};

/// The row of this key that `wanted` takes.
#[inline(always)]
fn row_of(key: u64, wanted: impl Fn(*mut BioSlot) -> bool) -> Option<*mut BioSlot> {
    let table: &Array<BioSlot> = &BIOS;
    let start = probe_start(key, conf!(bios_mask));
    for i in 0..PROBES {
        let row = table.get_ptr_mut((start + i) & conf!(bios_mask))?;
        // SAFETY: a map value.
        if unsafe { core::ptr::read_volatile(&raw const (*row).claim.key) } == key && wanted(row) {
            return Some(row);
        }
    }
    None
}

/// Locks the row that this memory had last, or any that is free. One in which it waits still is taken as it is: memory waits
/// once at a time, so the end of that wait was missed.
#[inline(always)]
fn take(key: u64) -> Option<*mut BioSlot> {
    // SAFETY: map values. A thief that was faster has changed the key.
    let had = row_of(key, |row| unsafe {
        if (*row).since_ns != 0 {
            return true;
        }
        let mine = lock(row.cast::<Claim>());
        if mine && core::ptr::read_volatile(&raw const (*row).claim.key) != key {
            release(row.cast::<Claim>());
            return false;
        }
        mine
    });
    had.or_else(|| claim(&BIOS, conf!(bios_mask), key).map(|(_, row)| row))
}

/// The row in which this bio waits. One with its key and no time is left over from an earlier bio.
#[inline(always)]
fn waiting(key: u64) -> Option<*mut BioSlot> {
    // SAFETY: a map value.
    row_of(key, |row| unsafe { (*row).since_ns != 0 })
}

#[inline(always)]
fn on_queue<const PLAIN: bool>(bio: Ptr) {
    let disk = disk_of_bio::<PLAIN>(bio);
    let q = load::<Ptr, PLAIN>(disk, conf!(off.disk_queue));
    // A bio-based device (dm, md) never takes a request for it; what it sends below is seen there.
    if load::<u64, PLAIN>(q, conf!(off.q_mq_ops)) == 0 {
        return;
    }
    let dev = dev_of_disk::<PLAIN>(disk);
    if !allowed(dev) {
        return;
    }
    let Some(slot) = take(address(bio)) else {
        lost(LossKind::BiosFull);
        return;
    };
    let class = class_of(load::<u32, PLAIN>(bio, conf!(off.bio_opf))) as u8;
    // SAFETY: a locked map value; a bio is submitted by one thread at a time.
    unsafe {
        let t = now();
        if (*slot).since_ns != 0 {
            service::bio_left(slot, t);
            lost(LossKind::AdmissionExpired);
        }
        let tag = tag_of(q);
        let same_queue = (*slot).claim.tag == tag;
        (*slot).group =
            group_for::<PLAIN>((*slot).group, same_queue, Payer::of(bio), class, || dev);
        (*slot).claim.tag = tag;
        (*slot).flags = if is_idle(load::<u16, PLAIN>(bio, conf!(off.bio_ioprio))) {
            B_IDLE_PRIO
        } else {
            0
        };
        (*slot).sector = load::<u64, PLAIN>(bio, conf!(off.bio_sector));
        (*slot).bytes = load::<u32, PLAIN>(bio, conf!(off.bio_size));
        (*slot).tid = bpf_get_current_pid_tgid() as u32;
        (*slot).since_ns = t;
        service::bio_waits(slot, t);
    }
}

/// The bio got its request, or became part of one. One that is not known was split off from another: its time is in
/// that of the rest.
#[inline(always)]
fn on_admitted<const PLAIN: bool>(bio: Ptr) {
    let Some(slot) = waiting(address(bio)) else {
        return;
    };
    // SAFETY: a locked map value.
    unsafe {
        let t = now();
        if let Some((row, shard)) = counts((*slot).group) {
            match t.checked_sub((*slot).since_ns) {
                Some(ns) => {
                    // Three programs come here, and one may interrupt another.
                    add(&raw mut (*row).admitted, 1);
                    add(&raw mut (*row).admission_ns, ns);
                    keep_longest((&raw mut (*row).admission_max).cast(), t, ns);
                    let low = low_at_end(row, (*slot).group);
                    if let Some(b) = bucket(low, STAGE_ADMISSION, shard, ns) {
                        add32(b, 1);
                    }
                }
                None => lost(LossKind::ClockBackwards),
            }
        }
        service::bio_left(slot, t);
        (*slot).since_ns = 0;
        release(slot.cast::<Claim>());
    }
}

/// block_bio_complete: the bio ended without ever getting a request.
#[inline(always)]
fn on_bio_failed<const PLAIN: bool>(bio: Ptr) {
    if let Some(slot) = waiting(address(bio)) {
        // SAFETY: a locked map value.
        unsafe {
            service::bio_left(slot, now());
            (*slot).since_ns = 0;
            release(slot.cast::<Claim>());
        }
    }
}

/// A task goes to sleep for want of a tag. `q` is its queue.
#[inline(always)]
fn on_tag_wait<const PLAIN: bool>(q: Ptr) {
    let disk = load::<Ptr, PLAIN>(q, conf!(off.q_disk));
    if disk.is_null() {
        return;
    }
    let dev = dev_of_disk::<PLAIN>(disk);
    if !allowed(dev) {
        return;
    }
    if let Some(d) = device(dev).and_then(dev_row) {
        // SAFETY: a map value.
        unsafe { add(&raw mut (*d).tag_waits, 1) }
    }
}

// block/blk-core.c and blk-mq.c: TP_PROTO(struct bio *bio); in 5.10 the queue comes first, and for merges the request second.
hook!(on_queue, btf_bio_queue, raw_bio_queue, "block_bio_queue", 0;
    btf_bio_queue_q, raw_bio_queue_q, "block_bio_queue", 1);
hook!(on_admitted, btf_getrq, raw_getrq, "block_getrq", 0;
    btf_getrq_q, raw_getrq_q, "block_getrq", 1);
hook!(on_admitted, btf_backmerge, raw_backmerge, "block_bio_backmerge", 0;
    btf_backmerge_q, raw_backmerge_q, "block_bio_backmerge", 2);
hook!(on_admitted, btf_frontmerge, raw_frontmerge, "block_bio_frontmerge", 0;
    btf_frontmerge_q, raw_frontmerge_q, "block_bio_frontmerge", 2);
// block/bio.c bio_endio: TP_PROTO(struct request_queue *q, struct bio *bio).
hook!(
    on_bio_failed,
    btf_bio_complete,
    raw_bio_complete,
    "block_bio_complete",
    1
);
// block/blk-mq-tag.c blk_mq_get_tag, 7.2 and later: TP_PROTO(struct request_queue *q, struct blk_mq_hw_ctx *hctx, bool, unsigned int).
hook!(
    on_tag_wait,
    btf_tag_wait,
    raw_tag_wait,
    "block_rq_tag_wait",
    0
);
