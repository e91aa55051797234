//! fsyncs: of ext4 from ext4_sync_file_enter to _exit, of XFS and btrfs, and sync_file_range, from the call of their functions to the
//! return. fdatasync, msync and O_SYNC writes pass there too. Nothing here runs unless somebody syncs.

use core::ffi::c_void;

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel_str_bytes},
    macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use io_starve_common::{
    config::ABSENT,
    span::{
        NAME, SPAN_EPOCH_SHIFT, SPANS_PER_EPOCH, SYNC_BTRFS, SYNC_DATA, SYNC_RANGE, SYNC_ROWS,
        SYNC_XFS, SpanKind, SyncSlot, SyncSpan, SyncTotals, TOTALS_ROWS, task_key,
    },
    wire::{Claim, LossKind, NO_ROW, dev_key, group_key},
};

use crate::{
    block::now,
    kernel::{Ptr, current_owner, dev_of_inode, load},
    maps::{
        SPANS, SYNCS, TOTALS, add, claim, conf, copy, find, find_or_claim, lock, lost, release,
    },
};

/// The row of this key, or any other in which nothing is in flight.
#[inline(always)]
fn take(key: u64) -> Option<*mut SyncSlot> {
    // SAFETY: map values; a thread is in one fsync at a time, so one that is in flight here has ended unseen.
    if let Some((_, row)) = find(&SYNCS, SYNC_ROWS - 1, key) {
        unsafe {
            if (*row).begin_ns != 0 {
                return Some(row);
            }
            let mine = lock(row.cast::<Claim>());
            if mine && core::ptr::read_volatile(&raw const (*row).claim.key) == key {
                return Some(row);
            }
            if mine {
                release(row.cast::<Claim>());
            }
        }
    }
    claim(&SYNCS, SYNC_ROWS - 1, key).map(|(_, row)| row)
}

/// The row of the fsync in which the running thread is.
#[inline(always)]
fn running() -> Option<*mut SyncSlot> {
    let tid = bpf_get_current_pid_tgid() as u32;
    let (_, row) = find(&SYNCS, SYNC_ROWS - 1, task_key(tid))?;
    // SAFETY: a map value.
    unsafe { ((*row).begin_ns != 0).then_some(row) }
}

#[inline(always)]
fn totals_of(owner: u64, fs: u32) -> u32 {
    let key = group_key(owner, dev_key(fs));
    match find_or_claim(&TOTALS, TOTALS_ROWS - 1, key) {
        Some((at, row, new)) => {
            if new {
                // SAFETY: a map value that this program has just claimed.
                unsafe {
                    (*row).fs = fs;
                    (*row).owner = owner;
                }
            }
            at
        }
        None => NO_ROW,
    }
}

/// The running thread begins to sync this file.
#[inline(always)]
fn begin(file: Ptr, flags: u32) {
    let id = bpf_get_current_pid_tgid();
    let Some(slot) = take(task_key(id as u32)) else {
        lost(LossKind::SpansDropped);
        return;
    };
    let inode = load::<Ptr, false>(file, conf!(off.file_inode));
    let dentry = load::<Ptr, false>(file, conf!(off.file_dentry));
    let name = load::<Ptr, false>(dentry, conf!(off.dentry_name));
    // SAFETY: a locked map value of the running thread.
    unsafe {
        (*slot).claim.tag = (id >> 32) as u32;
        (*slot).ino = load::<u64, false>(inode, conf!(off.inode_ino));
        (*slot).fs = dev_of_inode(inode);
        (*slot).owner = current_owner();
        (*slot).journal_ns = 0;
        (*slot).flush_ns = 0;
        (*slot).commit = 0;
        (*slot).flags = flags;
        (*slot).totals = totals_of((*slot).owner, (*slot).fs);
        (&raw mut (*slot).name).write([0; NAME]);
        let _ = bpf_probe_read_kernel_str_bytes(name, &mut (*slot).name);
        (*slot).begin_ns = now();
    }
}

/// The running thread has synced.
#[inline(always)]
fn end(result: i32) {
    let Some(slot) = running() else {
        return;
    };
    let end_ns = now();
    // SAFETY: a locked map value of the running thread.
    unsafe {
        let took = end_ns.saturating_sub((*slot).begin_ns);
        let may_tell = match TOTALS.get_ptr_mut((*slot).totals) {
            Some(totals) => {
                add(&raw mut (*totals).count, 1);
                add(&raw mut (*totals).sum_ns, took);
                took >= u64::from(conf!(span_min_ns)) && may_tell(totals, end_ns)
            }
            None => took >= u64::from(conf!(span_min_ns)),
        };
        if may_tell {
            match SPANS.reserve::<SyncSpan>(0) {
                Some(mut entry) => {
                    let span = entry.as_mut_ptr();
                    (*span).kind = SpanKind::Sync as u32;
                    (*span).result = result;
                    (*span).end_ns = end_ns;
                    copy(slot, &raw mut (*span).sync);
                    entry.submit(0);
                }
                None => lost(LossKind::SpansDropped),
            }
        }
        (*slot).begin_ns = 0;
        release(slot.cast::<Claim>());
    }
}

// fs/ext4/fsync.c ext4_sync_file: TP_PROTO(struct file *file, int datasync).
#[raw_tracepoint(tracepoint = "ext4_sync_file_enter")]
pub fn raw_ext4_sync_enter(ctx: RawTracePointContext) -> i32 {
    let flags = if ctx.arg::<i32>(1) != 0 { SYNC_DATA } else { 0 };
    begin(ctx.arg::<Ptr>(0), flags);
    0
}

// The same: TP_PROTO(struct inode *inode, int ret).
#[raw_tracepoint(tracepoint = "ext4_sync_file_exit")]
pub fn raw_ext4_sync_exit(ctx: RawTracePointContext) -> i32 {
    end(ctx.arg::<i32>(1));
    0
}

/// Whether this owner has not yet told its share of spans of late.
///
/// # Safety
///
/// `totals` must point to a map value.
#[inline(always)]
unsafe fn may_tell(totals: *mut SyncTotals, now: u64) -> bool {
    let epoch = now >> SPAN_EPOCH_SHIFT;
    // SAFETY: the caller's promise. Threads of one owner that race here tell a few more.
    unsafe {
        if (*totals).epoch != epoch {
            (*totals).epoch = epoch;
            (*totals).told = 0;
        }
        if (*totals).told >= SPANS_PER_EPOCH {
            lost(LossKind::SpansDropped);
            return false;
        }
        (*totals).told += 1;
        true
    }
}

// The entries of kprobes are written by hand: which register holds an argument is known from BTF, not from the machine that
// compiled this.

/// int fsync(struct file *file, loff_t start, loff_t end, int datasync), as struct file_operations has it.
#[inline(always)]
fn begin_by_call(ctx: *mut c_void, fs: u32) {
    let datasync = load::<u64, false>(ctx as Ptr, conf!(off.regs_fourth)) as u32 != 0;
    let file = load::<Ptr, false>(ctx as Ptr, conf!(off.regs_first));
    begin(file, if datasync { fs | SYNC_DATA } else { fs });
}

/// fs/xfs/xfs_file.c xfs_file_fsync.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kprobe")]
pub fn kprobe_xfs_fsync(ctx: *mut c_void) -> u32 {
    begin_by_call(ctx, SYNC_XFS);
    0
}

/// fs/btrfs/file.c btrfs_sync_file.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kprobe")]
pub fn kprobe_btrfs_fsync(ctx: *mut c_void) -> u32 {
    begin_by_call(ctx, SYNC_BTRFS);
    0
}

/// fs/sync.c sync_file_range(struct file *, loff_t, loff_t, unsigned int flags), which the system call and io_uring come to.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kprobe")]
pub fn kprobe_sync_range(ctx: *mut c_void) -> u32 {
    let file = load::<Ptr, false>(ctx as Ptr, conf!(off.regs_first));
    begin(file, SYNC_RANGE);
    0
}

/// One of these has returned. Attached to each of them.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kretprobe")]
pub fn kretprobe_sync(ctx: *mut c_void) -> u32 {
    end(load::<u64, false>(ctx as Ptr, conf!(off.regs_result)) as i32);
    0
}

/// fs/jbd2/journal.c jbd2_log_wait_commit(journal_t *, tid_t): the data of the file is written, now the journal is waited for.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kprobe")]
pub fn kprobe_log_wait_commit(ctx: *mut c_void) -> u32 {
    let Some(slot) = running() else {
        return 0;
    };
    // SAFETY: a map value of the running thread.
    unsafe {
        if (*slot).journal_ns == 0 {
            (*slot).commit = load::<u64, false>(ctx as Ptr, conf!(off.regs_second)) as u32;
            (*slot).journal_ns = now();
        }
    }
    0
}

/// block/blk-flush.c blkdev_issue_flush: the journal did not flush the disk's cache for it.
#[unsafe(no_mangle)]
#[unsafe(link_section = "kprobe")]
pub fn kprobe_issue_flush(_ctx: *mut c_void) -> u32 {
    let Some(slot) = running() else {
        return 0;
    };
    // SAFETY: a map value of the running thread.
    unsafe {
        if (*slot).flush_ns == 0 {
            (*slot).flush_ns = now();
        }
    }
    0
}

/// The cgroup that pays for the writeback of an inode, 0 when that is not known.
#[inline(always)]
pub fn owner_of_inode(inode: Ptr) -> u64 {
    if conf!(off.inode_wb) == ABSENT {
        return 0;
    }
    let wb = load::<Ptr, false>(inode, conf!(off.inode_wb));
    if wb.is_null() {
        return 0;
    }
    let css = load::<Ptr, false>(wb, conf!(off.wb_css));
    if css.is_null() {
        return 0;
    }
    crate::kernel::cgroup_id::<false>(load::<Ptr, false>(css, conf!(off.css_cgroup)))
}
