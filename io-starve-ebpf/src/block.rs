//! The life of requests. Each handler exists twice: as tp_btf with plain loads, and as a raw tracepoint for kernels
//! that refuse tp_btf. 5.10.0 to 5.10.136 pass the queue first (changed by 5.10.137): those have programs of their own.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use io_starve_common::{
    config::ABSENT,
    request::{Effects, Event, F_IDLE_PRIO, ISSUED, QUEUED, step},
    wire::{CTRL_ARMED, LossKind, STAGE_DEVICE, STAGE_QUEUED, Slot},
};

use crate::{
    account::{bucket, counts, group_for, keep_longest, low_at_end, tag_of},
    hook::hook,
    kernel::{Payer, Ptr, address, allowed, class_of, dev_of_disk, disk_of_request, is_idle, load},
    maps::{CTRL, HCTXS, SLOTS, add, claim, conf, count, count32, find, find_or_claim, lost},
    service,
};

#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// The slot of a request, claimed if it has none. `None`: not followed, or no room (counted).
#[inline(always)]
fn slot_of<const PLAIN: bool>(rq: Ptr) -> Option<*mut Slot> {
    let key = address(rq);
    let filters = conf!(filtered) != 0;
    if let Some((_, slot)) = find(&SLOTS, conf!(slots_mask), key) {
        // What is queued was let in then, and so was memory that served this queue before.
        // SAFETY: a map value.
        if filters && unsafe { (*slot).life.state } != QUEUED {
            let q = load::<Ptr, PLAIN>(rq, conf!(off.rq_q));
            if unsafe { (*slot).claim.tag } != tag_of(q) && filtered_out::<PLAIN>(rq, q) {
                return None;
            }
        }
        return Some(slot);
    }
    if filters && filtered_out::<PLAIN>(rq, load::<Ptr, PLAIN>(rq, conf!(off.rq_q))) {
        return None;
    }
    let Some((_, slot)) = claim(&SLOTS, conf!(slots_mask), key) else {
        lost(LossKind::SlotsFull);
        return None;
    };
    // A request that was never seen may belong to a hardware queue that was never seen: user space walks its tags.
    let hctx = load::<Ptr, PLAIN>(rq, conf!(off.rq_hctx));
    if !hctx.is_null() {
        if let Some((_, row, true)) = find_or_claim(&HCTXS, conf!(hctxs_mask), address(hctx)) {
            let q = load::<Ptr, PLAIN>(rq, conf!(off.rq_q));
            // SAFETY: a map value that this program has just claimed.
            unsafe { (*row).claim.tag = tag_of(q) }
        }
    }
    Some(slot)
}

/// Begins a life: reads owner, class and place, and settles what the old life left, whose flags were `had`.
///
/// # Safety
///
/// `slot` must point to a claimed slot on which [`step`] has just returned `fx`.
#[inline(always)]
pub unsafe fn first_sight<const PLAIN: bool>(
    slot: *mut Slot,
    rq: Ptr,
    fx: &Effects,
    had: u8,
    t: u64,
) {
    let q = load::<Ptr, PLAIN>(rq, conf!(off.rq_q));
    // SAFETY: the caller's promise.
    unsafe {
        if fx.lost {
            lost(LossKind::LostCompletion);
            service::ended((*slot).group, had, fx, t);
            give_up(slot);
        }
        let bio = load::<Ptr, PLAIN>(rq, conf!(off.rq_bio));
        let ioprio = if conf!(off.rq_ioprio) != ABSENT {
            load::<u16, PLAIN>(rq, conf!(off.rq_ioprio))
        } else if bio.is_null() {
            0
        } else {
            load::<u16, PLAIN>(bio, conf!(off.bio_ioprio))
        };
        if is_idle(ioprio) {
            (*slot).life.flags |= F_IDLE_PRIO;
        }
        (*slot).sector = load::<u64, PLAIN>(rq, conf!(off.rq_sector));
        (*slot).life.bytes = load::<u32, PLAIN>(rq, conf!(off.rq_len));
        let tag = tag_of(q);
        let same_queue = (*slot).claim.tag == tag;
        let class = class_of(load::<u32, PLAIN>(rq, conf!(off.rq_cmd_flags))) as u8;
        let dev = || dev_of_disk::<PLAIN>(disk_of_request::<PLAIN>(rq, q));
        (*slot).group = group_for::<PLAIN>((*slot).group, same_queue, Payer::of(bio), class, dev);
        (*slot).claim.tag = tag;
    }
}

/// Counts a life whose end was missed.
///
/// # Safety
///
/// `slot` must still hold the group of that life.
#[inline(always)]
pub unsafe fn give_up(slot: *mut Slot) {
    if let Some((row, _)) = counts(unsafe { (*slot).group }) {
        // SAFETY: a map value.
        unsafe { add(&raw mut (*row).expired, 1) }
    }
}

#[inline(always)]
fn on_insert<const PLAIN: bool>(rq: Ptr) {
    let Some(slot) = slot_of::<PLAIN>(rq) else {
        return;
    };
    let start_ns = load::<u64, PLAIN>(rq, conf!(off.rq_start));
    let t = now();
    // SAFETY: a claimed map value; events of one request do not overlap.
    unsafe {
        let life = &mut (*slot).life;
        let had = life.flags;
        let fx = step(life, Event::Insert { now: t, start_ns });
        if fx.first_sight {
            first_sight::<PLAIN>(slot, rq, &fx, had, t);
            service::begin(slot, t, QUEUED);
            (*slot).tid = bpf_get_current_pid_tgid() as u32;
        }
        if let Some((row, _)) = counts((*slot).group) {
            let counter = if fx.first_sight {
                &raw mut (*row).inserted
            } else {
                &raw mut (*row).reinserts
            };
            count(counter, 1);
        }
    }
}

#[inline(always)]
fn on_issue<const PLAIN: bool>(rq: Ptr) {
    let Some(slot) = slot_of::<PLAIN>(rq) else {
        return;
    };
    let t = now();
    let event = Event::Issue {
        now: t,
        start_ns: load::<u64, PLAIN>(rq, conf!(off.rq_start)),
        bytes: load::<u32, PLAIN>(rq, conf!(off.rq_len)),
    };
    // SAFETY: as above.
    unsafe {
        let had = (*slot).life.flags;
        let fx = step(&mut (*slot).life, event);
        if fx.first_sight {
            first_sight::<PLAIN>(slot, rq, &fx, had, t);
            service::begin(slot, t, ISSUED);
            (*slot).tid = bpf_get_current_pid_tgid() as u32;
        } else {
            service::issued(slot, t);
        }
        if let Some((row, _)) = counts((*slot).group) {
            if fx.first_sight {
                count(&raw mut (*row).direct, 1);
            }
            count(&raw mut (*row).issues, 1);
            (*row).last_issue_ns = (*slot).life.issue_ns;
        }
    }
}

/// A driver may refuse a request before it counts as issued, and so one that was never seen: that begins no life.
#[inline(always)]
fn on_requeue<const PLAIN: bool>(rq: Ptr) {
    let Some(slot) = slot_of::<PLAIN>(rq) else {
        return;
    };
    // SAFETY: as above.
    unsafe {
        let fx = step(&mut (*slot).life, Event::Requeue);
        if fx.unmatched {
            first_sight::<PLAIN>(slot, rq, &fx, 0, 0);
        } else if fx.went_back {
            service::went_back(slot);
        }
        if let Some((row, _)) = counts((*slot).group) {
            count(&raw mut (*row).requeues, 1);
        }
    }
}

/// block_rq_merge hands over the request that disappears. One that was never inserted (merged on its way from the
/// plug) has no slot and is no loss.
#[inline(always)]
fn on_merge<const PLAIN: bool>(rq: Ptr) {
    let Some((_, slot)) = find(&SLOTS, conf!(slots_mask), address(rq)) else {
        return;
    };
    // SAFETY: as above.
    unsafe {
        let fx = step(&mut (*slot).life, Event::Merge);
        if fx.merged {
            service::ended((*slot).group, (*slot).life.flags, &fx, now());
        }
        if let (true, Some((row, _))) = (fx.merged, counts((*slot).group)) {
            count(&raw mut (*row).merged, 1);
        }
    }
}

#[inline(always)]
fn on_complete<const PLAIN: bool>(rq: Ptr, done: u32) {
    let left = load::<u32, PLAIN>(rq, conf!(off.rq_len));
    let Some((_, slot)) = find(&SLOTS, conf!(slots_mask), address(rq)) else {
        unmatched_completion::<PLAIN>(rq, left);
        return;
    };
    let t = now();
    // SAFETY: as above.
    unsafe {
        let fx = step(&mut (*slot).life, Event::Complete { now: t, done, left });
        if fx.unmatched {
            unmatched_completion::<PLAIN>(rq, left);
            return;
        }
        if fx.backwards {
            lost(LossKind::ClockBackwards);
        }
        if fx.finished {
            service::ended((*slot).group, (*slot).life.flags, &fx, t);
        }
        let Some((row, shard)) = counts((*slot).group) else {
            return;
        };
        if fx.partial {
            count(&raw mut (*row).partial, 1);
            return;
        }
        count(&raw mut (*row).finished, 1);
        count(&raw mut (*row).bytes, (*slot).life.bytes as u64);
        (*row).last_complete_ns = t;
        let low = low_at_end(row, (*slot).group);
        if let Some(ns) = fx.queued_ns {
            count(&raw mut (*row).queued_ns, ns);
            keep_longest((&raw mut (*row).queued_max).cast(), t, ns);
            count(&raw mut (*row).queued, 1);
            if let Some(b) = bucket(low, STAGE_QUEUED, shard, ns) {
                count32(b, 1);
            }
        }
        match fx.device_ns {
            Some(ns) => {
                count(&raw mut (*row).device_ns, ns);
                keep_longest((&raw mut (*row).device_max).cast(), t, ns);
                if let Some(b) = bucket(low, STAGE_DEVICE, shard, ns) {
                    count32(b, 1);
                }
            }
            None if fx.backwards => {}
            None => count(&raw mut (*row).unissued, 1),
        }
    }
}

/// The flush machinery completes requests that were never inserted or issued, without data; anything else that is
/// younger than the attachment is a loss.
#[inline(always)]
fn unmatched_completion<const PLAIN: bool>(rq: Ptr, left: u32) {
    if left != 0 && ours::<PLAIN>(rq) {
        lost(LossKind::UnmatchedCompletion);
    }
}

/// True when this request began after everything was attached, on a disk that is followed.
#[inline(always)]
fn ours<const PLAIN: bool>(rq: Ptr) -> bool {
    let armed = CTRL.get(CTRL_ARMED).map_or(0, |t| *t);
    if armed == 0 || load::<u64, PLAIN>(rq, conf!(off.rq_start)) < armed {
        return false;
    }
    !filtered_out::<PLAIN>(rq, load::<Ptr, PLAIN>(rq, conf!(off.rq_q)))
}

#[inline(always)]
fn filtered_out<const PLAIN: bool>(rq: Ptr, q: Ptr) -> bool {
    conf!(filtered) != 0 && !allowed(dev_of_disk::<PLAIN>(disk_of_request::<PLAIN>(rq, q)))
}

// block/blk-mq.c, block/mq-deadline.c and its kin: TP_PROTO(struct request *rq); with a queue before it up to 5.10.136.
hook!(on_insert, btf_rq_insert, raw_rq_insert, "block_rq_insert", 0;
    btf_rq_insert_q, raw_rq_insert_q, "block_rq_insert", 1);
hook!(on_issue, btf_rq_issue, raw_rq_issue, "block_rq_issue", 0;
    btf_rq_issue_q, raw_rq_issue_q, "block_rq_issue", 1);
hook!(on_requeue, btf_rq_requeue, raw_rq_requeue, "block_rq_requeue", 0;
    btf_rq_requeue_q, raw_rq_requeue_q, "block_rq_requeue", 1);
hook!(on_merge, btf_rq_merge, raw_rq_merge, "block_rq_merge", 0;
    btf_rq_merge_q, raw_rq_merge_q, "block_rq_merge", 1);

// block/blk-mq.c blk_update_request: TP_PROTO(struct request *rq, blk_status_t or int error, unsigned int nr_bytes).
#[btf_tracepoint(function = "block_rq_complete")]
pub fn btf_rq_complete(ctx: BtfTracePointContext) -> i32 {
    on_complete::<true>(ctx.arg::<Ptr>(0), ctx.arg::<u32>(2));
    0
}

#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn raw_rq_complete(ctx: RawTracePointContext) -> i32 {
    on_complete::<false>(ctx.arg::<Ptr>(0), ctx.arg::<u32>(2));
    0
}
