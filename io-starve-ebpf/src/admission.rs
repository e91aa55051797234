//! Bios that wait for admission: between block_bio_queue, which follows the limits of blk-throttle, and block_getrq,
//! which follows wbt, iocost and the tag; or the merge that spares a request.

use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use io_starve_common::wire::{Claim, LossKind, STAGE_ADMISSION};

use crate::{
    account::{Whose, dev_row, device, group, group_row, shard, stage_ended},
    block::now,
    hook::hook,
    kernel::{
        Ptr, address, allowed, class_of, dev_of_disk, disk_of_bio, is_idle, load, owner_of_bio,
    },
    maps::{BIOS, add, conf, find, find_or_claim, lost, release},
};

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
    let Some(dev_at) = device(dev) else { return };
    let Some((_, slot, _)) = find_or_claim(&BIOS, conf!(bios_mask), address(bio)) else {
        lost(LossKind::BiosFull);
        return;
    };
    let owner = owner_of_bio::<PLAIN>(bio);
    let class = class_of(load::<u32, PLAIN>(bio, conf!(off.bio_opf))) as u8;
    // SAFETY: a claimed map value; a bio is submitted by one thread at a time.
    unsafe {
        (*slot).owner = owner;
        (*slot).dev = dev;
        (*slot).dev_row = dev_at;
        (*slot).class = class;
        (*slot).shard = shard();
        (*slot).group = group(dev_at, owner, class, (*slot).shard);
        (*slot).idle_prio = u8::from(is_idle(load::<u16, PLAIN>(bio, conf!(off.bio_ioprio))));
        (*slot).sector = load::<u64, PLAIN>(bio, conf!(off.bio_sector));
        (*slot).bytes = load::<u32, PLAIN>(bio, conf!(off.bio_size)) as u64;
        (*slot).tid = bpf_get_current_pid_tgid() as u32;
        (*slot).comm = bpf_get_current_comm().unwrap_or([0; 16]);
        (*slot).since_ns = now();
    }
}

/// The bio got its request, or became part of one. One that is not known was split off from another: its time is in
/// that of the rest.
#[inline(always)]
fn on_admitted<const PLAIN: bool>(bio: Ptr) {
    let Some((_, slot)) = find(&BIOS, conf!(bios_mask), address(bio)) else {
        return;
    };
    // SAFETY: a claimed map value.
    unsafe {
        let t = now();
        if let Some(row) = group_row((*slot).group) {
            match t.checked_sub((*slot).since_ns) {
                Some(ns) => {
                    let whose = Whose {
                        dev_row: (*slot).dev_row,
                        class: (*slot).class,
                        shard: (*slot).shard,
                    };
                    stage_ended(row, whose, STAGE_ADMISSION, t, ns);
                }
                None => lost(LossKind::ClockBackwards),
            }
        }
        (*slot).since_ns = 0;
        release(slot.cast::<Claim>());
    }
}

/// block_bio_complete: the bio ended without ever getting a request.
#[inline(always)]
fn on_bio_failed<const PLAIN: bool>(bio: Ptr) {
    if let Some((_, slot)) = find(&BIOS, conf!(bios_mask), address(bio)) {
        // SAFETY: a claimed map value.
        unsafe {
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
