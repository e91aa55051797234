//! The layout of what is told one by one: fsyncs, journal commits, handles that hold a transaction, bios held by blk-throttle.
//!
//! What is in flight lies in rows that user space reads at its ticks; what ended and took long goes through a ring.

use crate::wire::Claim;

/// Bytes of a file's name that are kept, with its NUL.
pub const NAME: usize = 56;

/// An fsync in flight, or the last one of this thread. Written by that thread only.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SyncSlot {
    /// Claimed by [`task_key`]; `tag` is the process.
    pub claim: Claim,
    /// When it began; 0 when none is in flight. ns, monotonic.
    pub begin_ns: u64,
    /// Inode number of the file.
    pub ino: u64,
    /// The cgroup that the thread's I/O is charged to.
    pub owner: u64,
    /// When it began to wait for a commit; 0 when that was not seen.
    pub journal_ns: u64,
    /// When it began to flush the disk's cache; 0 when that was not seen.
    pub flush_ns: u64,
    /// `s_dev` of the filesystem.
    pub fs: u32,
    /// `SYNC_` bits.
    pub flags: u32,
    /// The commit it waits for; valid with `journal_ns`.
    pub commit: u32,
    /// Row of [`SyncTotals`], or [`crate::wire::NO_ROW`].
    pub totals: u32,
    /// Last component of the file's path, NUL padded; a longer one is cut.
    pub name: [u8; NAME],
}

/// fdatasync or O_DSYNC.
pub const SYNC_DATA: u32 = 1;
/// An fsync of XFS.
pub const SYNC_XFS: u32 = 2;
/// An fsync of btrfs.
pub const SYNC_BTRFS: u32 = 4;
/// sync_file_range, on any filesystem.
pub const SYNC_RANGE: u32 = 8;
/// Those that end with the return of a function.
pub const SYNC_BY_RETURN: u32 = SYNC_XFS | SYNC_BTRFS | SYNC_RANGE;

/// fsyncs of one owner on one filesystem, cumulative.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct SyncTotals {
    /// Claimed by the owner and the filesystem.
    pub claim: Claim,
    /// The cgroup.
    pub owner: u64,
    /// fsyncs that ended.
    pub count: u64,
    /// Sum of their durations in ns.
    pub sum_ns: u64,
    /// `s_dev` of the filesystem.
    pub fs: u32,
    /// Explicit padding.
    pub pad: u32,
    /// The 2^28 ns in which spans were last told, and how many of them were.
    pub epoch: u64,
    /// See `epoch`.
    pub told: u64,
}

/// Spans of one owner that are told in about a quarter of a second; the rest is counted as lost.
pub const SPANS_PER_EPOCH: u64 = 64;
/// See [`SyncTotals::epoch`].
pub const SPAN_EPOCH_SHIFT: u32 = 28;

/// The journal of one filesystem and its running commit. Written by the journal's thread, but for the checkpoint.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct JournalRow {
    /// Claimed by the filesystem's device; `tag` is the journal's thread.
    pub claim: Claim,
    /// When the running commit began; 0 when none runs. ns, monotonic.
    pub begin_ns: u64,
    /// When it began to wait for open handles.
    pub locking_ns: u64,
    /// When it began to write the data of ordered files.
    pub flushing_ns: u64,
    /// When it began to write the journal's blocks; waiting for ordered data comes after.
    pub logging_ns: u64,
    /// When it began to wait for data of `wait_ino`; 0 when it did not yet.
    pub wait_ns: u64,
    /// The file whose data it waits or waited for last.
    pub wait_ino: u64,
    /// The cgroup that pays for that file's writeback, 0 when not known.
    pub wait_owner: u64,
    /// Commits that ended.
    pub commits: u64,
    /// The running or last commit (`tid_t`).
    pub commit: u32,
    /// The thread that makes, or last made, room in the journal.
    pub checkpoint_tid: u32,
    /// When that last began on another transaction; 0: never since attach.
    pub checkpoint_ns: u64,
    /// The cgroup that its I/O is charged to.
    pub checkpoint_owner: u64,
    /// Explicit padding.
    pub pad: [u32; 6],
}

/// First word of each record in the ring of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SpanKind {
    /// A [`SyncSpan`].
    Sync = 1,
    /// A [`CommitSpan`].
    Commit = 2,
    /// A [`HandleSpan`].
    Handle = 3,
    /// A [`crate::dirty::PauseSpan`].
    Pause = 4,
}

/// An fsync that ended.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SyncSpan {
    /// [`SpanKind::Sync`].
    pub kind: u32,
    /// What it returned: 0 or a negative error.
    pub result: i32,
    /// When it ended.
    pub end_ns: u64,
    /// What is known of it.
    pub sync: SyncSlot,
}

/// A journal commit that ended.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CommitSpan {
    /// [`SpanKind::Commit`].
    pub kind: u32,
    /// Explicit padding; not written.
    pub zero: u32,
    /// When it ended.
    pub end_ns: u64,
    /// What is known of it.
    pub row: JournalRow,
}

/// A handle that kept a transaction open for long; it has ended.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HandleSpan {
    /// [`SpanKind::Handle`].
    pub kind: u32,
    /// `s_dev` of the filesystem.
    pub fs: u32,
    /// When it ended.
    pub end_ns: u64,
    /// The cgroup that the thread's I/O is charged to.
    pub owner: u64,
    /// The transaction (`tid_t`).
    pub commit: u32,
    /// How long it was open, in jiffies.
    pub jiffies: u32,
    /// The thread.
    pub tid: u32,
    /// Explicit padding.
    pub pad: u32,
}

/// Bios that one cgroup's limit holds at this moment, in one direction on one disk. Written by a program run on demand.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct HeldRow {
    /// The cgroup whose limit holds them.
    pub group: u64,
    /// The cgroup that pays for the first of them: `group` or one below it.
    pub owner: u64,
    /// The file of the first of them, 0 when it is not known.
    pub ino: u64,
    /// `s_dev` of that file's filesystem.
    pub fs: u32,
    /// How many are held.
    pub count: u32,
    /// The disk.
    pub dev: u32,
    /// 1 for writes, 0 for reads.
    pub write: u32,
}

/// A task in uninterruptible sleep. Written by an iterator that user space reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SleepingTask {
    /// The cgroup that its I/O is charged to.
    pub owner: u64,
    /// How often it has gone to sleep (`nvcsw`).
    pub switches: u64,
    /// Thread id, as the first pid namespace has it.
    pub tid: u32,
    /// 1 when it has a handle of a journal open (`journal_info`).
    pub handle: u32,
}

/// `TASK_UNINTERRUPTIBLE` (include/linux/sched.h), on 5.10 to 7.3.
pub const TASK_UNINTERRUPTIBLE: u32 = 2;
/// `TASK_NOLOAD`: an idle worker, which waits for nothing.
pub const TASK_NOLOAD: u32 = 0x400;
/// `PF_KTHREAD` (include/linux/sched.h), on 5.10 to 7.3.
pub const PF_KTHREAD: u32 = 0x0020_0000;

/// Rows for what is held at a tick.
pub const HELD_ROWS: u32 = 256;
/// Index into the array of the walk through a queue's groups: the list node to go on from, 0 at the end.
pub const WALK_CURSOR: u32 = 0;
/// How many rows are filled.
pub const WALK_FILLED: u32 = 1;
/// Entries of that array.
pub const WALK_COUNT: u32 = 2;

/// Rows of the tables of fsyncs, of their totals, of journals; powers of two.
pub const SYNC_ROWS: u32 = 1024;
/// See [`SYNC_ROWS`].
pub const TOTALS_ROWS: u32 = 1024;
/// See [`SYNC_ROWS`].
pub const JOURNAL_ROWS: u32 = 128;
/// Size of the ring of spans in bytes.
pub const SPAN_RING_BYTES: u32 = 256 * 1024;

/// Handles that are shorter are not told. Jiffies: 100 ms where HZ is 250.
pub const HANDLE_JIFFIES: u32 = 25;

/// The key of a thread's row: never 0.
#[inline(always)]
pub const fn task_key(tid: u32) -> u64 {
    tid as u64 | 1 << 32
}

const _: () = {
    assert!(size_of::<SyncSlot>() == 128);
    assert!(size_of::<SyncTotals>() == 64);
    assert!(size_of::<JournalRow>() == 128);
    assert!(size_of::<SyncSpan>() == 144);
    assert!(size_of::<CommitSpan>() == 144);
    assert!(size_of::<HandleSpan>() == 40);
    assert!(size_of::<HeldRow>() == 40);
    assert!(size_of::<SleepingTask>() == 24);
};
