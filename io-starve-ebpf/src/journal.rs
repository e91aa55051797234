//! Commits of jbd2, what they wait for, and handles that keep a transaction open.
//!
//! jbd2 is a module nearly everywhere, and before 6.1 modules have no type information: the phases come through classic
//! tracepoints, whose record names its members.

use aya_ebpf::{
    EbpfContext as _,
    helpers::{bpf_get_current_pid_tgid, bpf_jiffies64},
    macros::{raw_tracepoint, tracepoint},
    programs::{RawTracePointContext, TracePointContext},
};
use io_starve_common::{
    span::{CommitSpan, HANDLE_JIFFIES, HandleSpan, JOURNAL_ROWS, JournalRow, SpanKind},
    wire::{LossKind, dev_key},
};

use crate::{
    block::now,
    fsync::owner_of_inode,
    kernel::{Ptr, current_owner, dev_of_inode, load},
    maps::{JOURNALS, SPANS, conf, copy, find, find_or_claim, lost},
};

#[inline(always)]
fn dev_of(ctx: &TracePointContext) -> u32 {
    load::<u32, false>(ctx.as_ptr() as Ptr, conf!(off.jbd2_dev))
}

/// The row of a journal whose running commit is being told of.
#[inline(always)]
fn running(ctx: &TracePointContext) -> Option<*mut JournalRow> {
    let (_, row) = find(&JOURNALS, JOURNAL_ROWS - 1, dev_key(dev_of(ctx)))?;
    // SAFETY: a map value.
    unsafe { ((*row).begin_ns != 0).then_some(row) }
}

// fs/jbd2/commit.c jbd2_journal_commit_transaction, in this order; all in the journal's thread.
#[tracepoint]
pub fn tp_jbd2_start_commit(ctx: TracePointContext) -> u32 {
    let Some((_, row, _)) = find_or_claim(&JOURNALS, JOURNAL_ROWS - 1, dev_key(dev_of(&ctx)))
    else {
        lost(LossKind::SpansDropped);
        return 0;
    };
    // SAFETY: a map value that only the journal's thread writes.
    unsafe {
        (*row).claim.tag = bpf_get_current_pid_tgid() as u32;
        (*row).locking_ns = 0;
        (*row).flushing_ns = 0;
        (*row).logging_ns = 0;
        (*row).wait_ns = 0;
        (*row).wait_ino = 0;
        (*row).wait_owner = 0;
        (*row).commit = load::<u32, false>(ctx.as_ptr() as Ptr, conf!(off.jbd2_tid));
        (*row).begin_ns = now();
    }
    0
}

#[tracepoint]
pub fn tp_jbd2_commit_locking(ctx: TracePointContext) -> u32 {
    if let Some(row) = running(&ctx) {
        // SAFETY: as above.
        unsafe { (*row).locking_ns = now() }
    }
    0
}

#[tracepoint]
pub fn tp_jbd2_commit_flushing(ctx: TracePointContext) -> u32 {
    if let Some(row) = running(&ctx) {
        // SAFETY: as above.
        unsafe { (*row).flushing_ns = now() }
    }
    0
}

#[tracepoint]
pub fn tp_jbd2_commit_logging(ctx: TracePointContext) -> u32 {
    if let Some(row) = running(&ctx) {
        // SAFETY: as above.
        unsafe { (*row).logging_ns = now() }
    }
    0
}

#[tracepoint]
pub fn tp_jbd2_end_commit(ctx: TracePointContext) -> u32 {
    let Some(row) = running(&ctx) else {
        return 0;
    };
    let end_ns = now();
    // SAFETY: as above.
    unsafe {
        if end_ns.saturating_sub((*row).begin_ns) >= u64::from(conf!(span_min_ns)) {
            match SPANS.reserve::<CommitSpan>(0) {
                Some(mut entry) => {
                    let span = entry.as_mut_ptr();
                    (*span).kind = SpanKind::Commit as u32;
                    (*span).end_ns = end_ns;
                    copy(row, &raw mut (*span).row);
                    entry.submit(0);
                }
                None => lost(LossKind::SpansDropped),
            }
        }
        (*row).commits += 1;
        (*row).begin_ns = 0;
    }
    0
}

// fs/jbd2/checkpoint.c jbd2_log_do_checkpoint: a task makes room in the journal itself. Those who wait for that come after it.
#[tracepoint]
pub fn tp_jbd2_checkpoint(ctx: TracePointContext) -> u32 {
    let Some((_, row, _)) = find_or_claim(&JOURNALS, JOURNAL_ROWS - 1, dev_key(dev_of(&ctx)))
    else {
        lost(LossKind::SpansDropped);
        return 0;
    };
    // SAFETY: a map value; `j_checkpoint_mutex` lets one thread come here at a time.
    unsafe {
        (*row).checkpoint_tid = bpf_get_current_pid_tgid() as u32;
        (*row).checkpoint_owner = current_owner();
        (*row).checkpoint_ns = now();
    }
    0
}

/// A task is about to sleep until a page is written. Only the wait of a commit for the data of ordered files matters here.
#[inline(always)]
fn on_wait(mapping: Ptr) {
    let inode = load::<Ptr, false>(mapping, conf!(off.mapping_host));
    if inode.is_null() {
        return;
    }
    let key = dev_key(dev_of_inode(inode));
    let Some((_, row)) = find(&JOURNALS, JOURNAL_ROWS - 1, key) else {
        return;
    };
    // SAFETY: as above; this is the journal's thread when its number is.
    unsafe {
        if (*row).begin_ns == 0 || (*row).claim.tag != bpf_get_current_pid_tgid() as u32 {
            return;
        }
        let ino = load::<u64, false>(inode, conf!(off.inode_ino));
        if (*row).wait_ino != ino || (*row).wait_ns == 0 {
            (*row).wait_owner = owner_of_inode(inode);
            (*row).wait_ino = ino;
            (*row).wait_ns = now();
        }
    }
}

// mm/page-writeback.c folio_wait_writeback: TP_PROTO(struct folio *folio, struct address_space *mapping).
#[raw_tracepoint(tracepoint = "folio_wait_writeback")]
pub fn raw_folio_wait(ctx: RawTracePointContext) -> i32 {
    on_wait(ctx.arg::<Ptr>(1));
    0
}

// The same up to 5.17: TP_PROTO(struct page *page, struct address_space *mapping).
#[raw_tracepoint(tracepoint = "wait_on_page_writeback")]
pub fn raw_page_wait(ctx: RawTracePointContext) -> i32 {
    on_wait(ctx.arg::<Ptr>(1));
    0
}

// fs/jbd2/transaction.c jbd2_journal_stop: TP_PROTO(dev_t dev, tid_t tid, unsigned int type, unsigned int line_no,
// int interval, int sync, int requested_blocks, int dirtied_blocks).
#[raw_tracepoint(tracepoint = "jbd2_handle_stats")]
pub fn raw_jbd2_handle(ctx: RawTracePointContext) -> i32 {
    let jiffies = ctx.arg::<u32>(4);
    if jiffies < HANDLE_JIFFIES {
        return 0;
    }
    match SPANS.reserve::<HandleSpan>(0) {
        Some(mut entry) => {
            entry.write(HandleSpan {
                kind: SpanKind::Handle as u32,
                fs: ctx.arg::<u32>(0),
                end_ns: now(),
                owner: current_owner(),
                commit: ctx.arg::<u32>(1),
                jiffies,
                tid: bpf_get_current_pid_tgid() as u32,
                pad: 0,
            });
            entry.submit(0);
        }
        None => lost(LossKind::SpansDropped),
    }
    0
}

/// Run on demand: the kernel's clock tick count, by which user space learns how long one is.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
pub fn jiffies(_ctx: *mut core::ffi::c_void) -> i32 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_jiffies64() as i32 }
}
