//! Pauses in balance_dirty_pages: writers, and workers that write for others, stopped for dirty memory.
//!
//! The tracepoint fires before the task sleeps, and nothing fires when it wakes: a hook on the scheduler would cost everybody. So a
//! pause is told when it begins, with the length that the kernel announces. Events without a pause are left at once.

use aya_ebpf::{
    helpers::{
        bpf_get_current_pid_tgid, bpf_jiffies64,
        generated::{bpf_get_current_task, bpf_probe_read_kernel},
    },
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};
use io_starve_common::{
    config::ABSENT,
    dirty::{
        BDI_NAME, PAUSE_ROWS, PAUSE_STEP, PAUSES_PER_EPOCH, PauseFigures, PauseRow, PauseSpan,
        WORKER_NAME,
    },
    span::{PF_KTHREAD, SPAN_EPOCH_SHIFT, SpanKind},
    wire::{LossKind, group_key},
};

use crate::{
    block::now,
    kernel::{Ptr, address, current_owner, load},
    maps::{PAUSES, SPANS, add, conf, find_or_claim, lost},
};

/// Flags of a task that have had these values from 5.10 to 7.3 (include/linux/sched.h), and no type information.
const PF_WQ_WORKER: u32 = 0x20;
const PF_LOCAL_THROTTLE: u32 = 0x10_0000;

type WorkerName = [u64; WORKER_NAME / 8];
type BdiName = [u64; BDI_NAME / 8];

/// Fills words with what lies at a kernel address; zeroes when it cannot be read.
#[inline(always)]
fn read<const N: usize>(from: u64) -> [u64; N] {
    let mut words = [0u64; N];
    // SAFETY: a helper that writes at most what it is given room for.
    unsafe {
        bpf_probe_read_kernel(
            words.as_mut_ptr().cast(),
            size_of::<[u64; N]>() as u32,
            from as *const _,
        );
    }
    words
}

/// The name of the running task's kind when it is a kernel thread that writes for others: the workqueue of a kworker (loop from
/// 5.14 on), else that of the thread (loop before, nfsd).
#[inline(always)]
fn worker() -> (WorkerName, bool) {
    if conf!(off.task_flags) == ABSENT || conf!(off.task_comm) == ABSENT {
        return ([0; 2], false);
    }
    // SAFETY: a helper without arguments.
    let task = unsafe { bpf_get_current_task() } as Ptr;
    let flags = load::<u32, false>(task, conf!(off.task_flags));
    if flags & (PF_KTHREAD | PF_LOCAL_THROTTLE) != PF_KTHREAD | PF_LOCAL_THROTTLE {
        return ([0; 2], false);
    }
    let pooled = flags & PF_WQ_WORKER != 0;
    if !pooled
        || conf!(off.task_kthread) == ABSENT
        || conf!(off.kthread_data) == ABSENT
        || conf!(off.worker_desc) == ABSENT
    {
        return (read(task as u64 + u64::from(conf!(off.task_comm))), pooled);
    }
    let kthread = load::<Ptr, false>(task, conf!(off.task_kthread));
    let worker = load::<u64, false>(kthread, conf!(off.kthread_data));
    (read(worker + u64::from(conf!(off.worker_desc))), pooled)
}

#[inline(always)]
fn on_pause<const PLAIN: bool>(wb: Ptr, pause: u64, figures: PauseFigures) {
    if conf!(off.wb_bdi) == ABSENT || conf!(off.bdi_id) == ABSENT {
        return;
    }
    let bdi = load::<Ptr, PLAIN>(wb, conf!(off.wb_bdi));
    let id = load::<u64, PLAIN>(bdi, conf!(off.bdi_id));
    let name: BdiName = match conf!(off.bdi_name) {
        ABSENT => [0; BDI_NAME / 8],
        at => read(address(bdi) + u64::from(at)),
    };
    let (owner, (worker, pooled)) = (current_owner(), worker());
    let low = id.rotate_left(8) ^ worker[0] ^ worker[1].rotate_left(17);
    let Some((_, row, new)) = find_or_claim(&PAUSES, PAUSE_ROWS - 1, group_key(owner, low)) else {
        lost(LossKind::SpansDropped);
        return;
    };
    // SAFETY: a helper without arguments.
    let until = unsafe { bpf_jiffies64() } + pause;
    let begin_ns = now();
    // SAFETY: a map value; who is named in it does not change once the row is claimed.
    unsafe {
        if new {
            (*row).bdi = id;
            (*row).owner = owner;
            (*row).worker = worker;
            (*row).name = name;
        }
        add(&raw mut (*row).count, 1);
        add(&raw mut (*row).jiffies, pause);
        if !may_tell(row, begin_ns, until) {
            return;
        }
    }
    let Some(mut entry) = SPANS.reserve::<PauseSpan>(0) else {
        lost(LossKind::SpansDropped);
        return;
    };
    entry.write(PauseSpan {
        kind: SpanKind::Pause as u32,
        jiffies: pause as u32,
        begin_ns,
        tid: bpf_get_current_pid_tgid() as u32,
        pooled: u32::from(pooled),
        bdi: id,
        owner,
        worker,
        name,
        figures,
    });
    entry.submit(0);
}

/// Whether this pause is among the first of late, or reaches further than those told.
///
/// # Safety
///
/// `row` must point to a map value.
#[inline(always)]
unsafe fn may_tell(row: *mut PauseRow, now: u64, until: u64) -> bool {
    let epoch = now >> SPAN_EPOCH_SHIFT;
    // SAFETY: the caller's promise. Tasks that race here tell a few more.
    unsafe {
        if (*row).epoch != epoch {
            (*row).epoch = epoch;
            (*row).told = 0;
        }
        if (*row).told >= PAUSES_PER_EPOCH && until < (*row).until + PAUSE_STEP {
            return false;
        }
        (*row).told += 1;
        if until > (*row).until {
            (*row).until = until;
        }
        true
    }
}

/// The list with the figures one by one. A macro, since both sorts of context have the same method and no trait for it.
macro_rules! figures {
    ($ctx:ident) => {
        PauseFigures {
            limit: $ctx.arg(1),
            background: $ctx.arg(2),
            dirty: $ctx.arg(3),
            bdi_limit: $ctx.arg(4),
            bdi_dirty: $ctx.arg(5),
            bdi_rate: $ctx.arg(6),
            task_rate: $ctx.arg(7),
        }
    };
}

#[inline(always)]
fn figures_of<const PLAIN: bool>(dtc: Ptr, bdi_rate: u64, task_rate: u64) -> PauseFigures {
    let at = |offset: u32| match offset {
        ABSENT => 0,
        offset => load::<u64, PLAIN>(dtc, offset),
    };
    PauseFigures {
        limit: at(conf!(off.dtc_limit)),
        background: at(conf!(off.dtc_background)),
        dirty: at(conf!(off.dtc_dirty)),
        bdi_limit: at(conf!(off.dtc_bdi_limit)),
        bdi_dirty: at(conf!(off.dtc_bdi_dirty)),
        bdi_rate,
        task_rate,
    }
}

// mm/page-writeback.c balance_dirty_pages, up to 6.12: TP_PROTO(struct bdi_writeback *wb, unsigned long thresh, unsigned long
// bg_thresh, unsigned long dirty, unsigned long bdi_thresh, unsigned long bdi_dirty, unsigned long dirty_ratelimit, unsigned long
// task_ratelimit, unsigned long dirtied, unsigned long period, long pause, unsigned long start_time). It fires also when the task
// goes on, with a pause of 0 or less.
#[btf_tracepoint(function = "balance_dirty_pages")]
pub fn btf_dirty_pause(ctx: BtfTracePointContext) -> i32 {
    let pause: i64 = ctx.arg(10);
    if pause > 0 {
        on_pause::<true>(ctx.arg(0), pause as u64, figures!(ctx));
    }
    0
}

#[raw_tracepoint(tracepoint = "balance_dirty_pages")]
pub fn raw_dirty_pause(ctx: RawTracePointContext) -> i32 {
    let pause: i64 = ctx.arg(10);
    if pause > 0 {
        on_pause::<false>(ctx.arg(0), pause as u64, figures!(ctx));
    }
    0
}

// The same later: TP_PROTO(struct bdi_writeback *wb, struct dirty_throttle_control *dtc, unsigned long dirty_ratelimit, unsigned
// long task_ratelimit, unsigned long dirtied, unsigned long period, long pause, unsigned long start_time).
#[btf_tracepoint(function = "balance_dirty_pages")]
pub fn btf_dirty_pause_dtc(ctx: BtfTracePointContext) -> i32 {
    let pause: i64 = ctx.arg(6);
    if pause > 0 {
        let figures = figures_of::<true>(ctx.arg(1), ctx.arg(2), ctx.arg(3));
        on_pause::<true>(ctx.arg(0), pause as u64, figures);
    }
    0
}

#[raw_tracepoint(tracepoint = "balance_dirty_pages")]
pub fn raw_dirty_pause_dtc(ctx: RawTracePointContext) -> i32 {
    let pause: i64 = ctx.arg(6);
    if pause > 0 {
        let figures = figures_of::<false>(ctx.arg(1), ctx.arg(2), ctx.arg(3));
        on_pause::<false>(ctx.arg(0), pause as u64, figures);
    }
    0
}
