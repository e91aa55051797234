//! Programs that user space runs itself (BPF_PROG_TEST_RUN of raw tracepoint programs, 5.10 and later): they are
//! attached to nothing, and cost nothing between the runs. Their entries are written by hand, since aya's macro for raw
//! tracepoints returns 0 whatever the function says.

use core::ffi::c_void;

use aya_ebpf::programs::RawTracePointContext;
use io_starve_common::{
    request::{Event, FREE, ISSUED, QUEUED, same_life, step},
    wire::{Claim, LossKind, RECHECK_NS},
};

use crate::{
    account::counts,
    block::{first_sight, give_up, now},
    kernel::{Ptr, address, allowed, dev_of_disk, disk_of_request, load},
    maps::{BIOS, SLOTS, add, conf, find_or_claim, lost, release},
    service,
};

/// `MQ_RQ_IDLE` of `enum mq_rq_state` (include/linux/blk-mq.h): allocated, not started.
const MQ_RQ_IDLE: u32 = 0;

/// Believes an old slot only when the request itself agrees: one whose end was missed must not look like one that
/// starves for ever. Argument: the slot. Returns 1 when it was given up.
///
/// One slot a run: a loop around it took 48,000 verifier steps, which emulated machines feel.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
pub fn sweep(ctx: *mut c_void) -> i32 {
    let ctx = RawTracePointContext::new(ctx);
    let Some(slot) = SLOTS.get_ptr_mut(ctx.arg::<u64>(0) as u32) else {
        return 0;
    };
    let t = now();
    // SAFETY: a map value.
    unsafe {
        let life = (*slot).life;
        let since = match life.state {
            FREE => return 0,
            ISSUED => life.issue_ns,
            _ => life.insert_ns,
        };
        if t.saturating_sub(since) < RECHECK_NS {
            return 0;
        }
        let rq = (*slot).claim.key as Ptr;
        let refs = load::<u32, false>(rq, conf!(off.rq_ref));
        let start_ns = load::<u64, false>(rq, conf!(off.rq_start));
        let state = load::<u32, false>(rq, conf!(off.rq_state));
        let alive = refs != 0
            && same_life(&life, start_ns)
            && (life.state == ISSUED || state == MQ_RQ_IDLE);
        // The request may have moved on while it was looked at.
        if alive || (*slot).life != life {
            return 0;
        }
        (*slot).life.state = FREE;
        lost(LossKind::Expired);
        service::expired((*slot).group, &life, t);
        give_up(slot);
    }
    1
}

/// Gives up a bio whose task was seen not to wait for admission. Arguments: row, and when it was submitted.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
pub fn expire_bio(ctx: *mut c_void) -> i32 {
    let ctx = RawTracePointContext::new(ctx);
    let Some(slot) = BIOS.get_ptr_mut(ctx.arg::<u64>(0) as u32) else {
        return 0;
    };
    // SAFETY: a map value.
    unsafe {
        if (*slot).since_ns == 0 || (*slot).since_ns != ctx.arg::<u64>(1) {
            return 0;
        }
        service::bio_left(slot, now());
        (*slot).since_ns = 0;
        release(slot.cast::<Claim>());
    }
    lost(LossKind::AdmissionExpired);
    1
}

/// Finds a request that was inserted before the programs were attached, by its scheduler tag. Arguments: address of
/// the `blk_mq_hw_ctx`, tag. Returns 1 while there are more tags. One tag a run: a loop around it took 730,000
/// verifier steps of the million that are allowed.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
pub fn seed(ctx: *mut c_void) -> i32 {
    let ctx = RawTracePointContext::new(ctx);
    let hctx = ctx.arg::<Ptr>(0);
    let tag = ctx.arg::<u64>(1) as u32;
    let q = load::<Ptr, false>(hctx, conf!(off.hctx_queue));
    // Only a scheduler keeps requests that were not issued; without one there is nothing to find.
    let tags = load::<Ptr, false>(hctx, conf!(off.hctx_sched_tags));
    if tags.is_null() || tag >= load::<u32, false>(tags, conf!(off.tags_nr)) {
        return 0;
    }
    let table = load::<Ptr, false>(tags, conf!(off.tags_static));
    let rq = load::<Ptr, false>(table, tag * size_of::<Ptr>() as u32);
    if !rq.is_null() && load::<Ptr, false>(rq, conf!(off.rq_q)) == q {
        seed_request(rq, q);
    }
    1
}

#[inline(always)]
fn seed_request(rq: Ptr, q: Ptr) {
    let start_ns = load::<u64, false>(rq, conf!(off.rq_start));
    let waits = still_waits(rq, start_ns)
        // Without a bio it is only kept ready in a plug (blk_plug.cached_rqs), and gets another start when it is used.
        && !load::<Ptr, false>(rq, conf!(off.rq_bio)).is_null()
        // Waiting for a flush, not for the scheduler.
        && load::<u32, false>(rq, conf!(off.rq_flags)) & conf!(flush_seq) == 0;
    if !waits || !allowed(dev_of_disk::<false>(disk_of_request::<false>(rq, q))) {
        return;
    }
    let Some((_, slot, _)) = find_or_claim(&SLOTS, conf!(slots_mask), address(rq)) else {
        lost(LossKind::SlotsFull);
        return;
    };
    // SAFETY: a claimed map value.
    unsafe {
        let t = now();
        let had = (*slot).life.flags;
        let fx = step(&mut (*slot).life, Event::Seed { start_ns });
        if fx.first_sight {
            first_sight::<false>(slot, rq, &fx, had, t);
            (*slot).tid = 0;
            let seeded = (*slot).life;
            // It may have been issued and completed before its slot was there to notice.
            if !still_waits(rq, start_ns) && (*slot).life == seeded {
                (*slot).life.state = FREE;
            } else {
                if (*slot).life == seeded {
                    service::begin(slot, t, QUEUED);
                }
                if let Some((row, _)) = counts((*slot).group) {
                    add(&raw mut (*row).seeded, 1);
                }
            }
        }
    }
}

#[inline(always)]
fn still_waits(rq: Ptr, start_ns: u64) -> bool {
    load::<u32, false>(rq, conf!(off.rq_ref)) != 0
        && load::<u32, false>(rq, conf!(off.rq_state)) == MQ_RQ_IDLE
        && load::<u64, false>(rq, conf!(off.rq_start)) == start_ns
}
