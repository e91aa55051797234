//! The layout of pauses in balance_dirty_pages.
//!
//! Each pause is told through the ring of spans when it begins; rows keep sums, so that pauses for which there was no room still count.

use crate::wire::Claim;

/// Bytes of a backing device's name that are kept: `8:0`, `btrfs-1`, `0:52`.
pub const BDI_NAME: usize = 32;
/// Bytes of a worker's name that are kept: `loop0`, `nfsd`; `TASK_COMM_LEN`.
pub const WORKER_NAME: usize = 16;

/// Pauses of one owner, or of one worker, on one backing device, cumulative.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct PauseRow {
    /// Claimed by backing device, owner and worker.
    pub claim: Claim,
    /// `backing_dev_info.id`: never given twice.
    pub bdi: u64,
    /// The cgroup that the task's I/O is charged to.
    pub owner: u64,
    /// See [`PauseSpan::worker`].
    pub worker: [u64; WORKER_NAME / 8],
    /// `backing_dev_info.dev_name`, NUL padded; a longer one is cut.
    pub name: [u64; BDI_NAME / 8],
    /// Pauses.
    pub count: u64,
    /// Sum of their announced lengths, in jiffies. Tasks that pause at once are added.
    pub jiffies: u64,
    /// Until when the pauses that were told reach, by the kernel's count of jiffies.
    pub until: u64,
    /// The 2^28 ns in which pauses were last told.
    pub epoch: u64,
    /// How many were told in it.
    pub told: u64,
}

/// What the kernel knew of dirty memory when it paused a task. Pages; rates in pages a second.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct PauseFigures {
    /// Dirty pages above which all writers are stopped (`thresh`): of the machine, or of the task's memory cgroup.
    pub limit: u64,
    /// Dirty pages above which the flusher threads write (`bg_thresh`).
    pub background: u64,
    /// Dirty pages, those under writeback among them.
    pub dirty: u64,
    /// The share of `limit` that this backing device gets, by how fast it is.
    pub bdi_limit: u64,
    /// Dirty pages for this backing device.
    pub bdi_dirty: u64,
    /// The rate to which all writers of this backing device are held.
    pub bdi_rate: u64,
    /// The rate to which this task is held.
    pub task_rate: u64,
}

/// A pause that begins.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PauseSpan {
    /// [`crate::span::SpanKind::Pause`].
    pub kind: u32,
    /// How long it will be, as the kernel announced it. The task may sleep up to a jiffy longer, and ends early only when it is killed.
    pub jiffies: u32,
    /// When it begins. ns, monotonic.
    pub begin_ns: u64,
    /// The thread.
    pub tid: u32,
    /// 1 for a thread of a workqueue, which does other work too.
    pub pooled: u32,
    /// `backing_dev_info.id`.
    pub bdi: u64,
    /// The cgroup that the task's I/O is charged to.
    pub owner: u64,
    /// Name of a kernel thread that is throttled less since it writes for others (PF_LOCAL_THROTTLE): `loop0`, `nfsd`; else 0.
    pub worker: [u64; WORKER_NAME / 8],
    /// `backing_dev_info.dev_name`.
    pub name: [u64; BDI_NAME / 8],
    /// Dirty memory.
    pub figures: PauseFigures,
}

/// Rows of pauses; a power of two.
pub const PAUSE_ROWS: u32 = 1024;
/// Pauses of one row that are told in about a quarter of a second. A pause is 10 ms and more in nearly all cases, so that they are
/// more only where many tasks pause at once.
pub const PAUSES_PER_EPOCH: u64 = 32;
/// Beyond them a pause is told when it reaches so many jiffies further than those told, so that the time in which somebody was paused
/// stays right.
pub const PAUSE_STEP: u64 = 4;

const _: () = {
    assert!(size_of::<PauseRow>() == 120);
    assert!(size_of::<PauseFigures>() == 56);
    assert!(size_of::<PauseSpan>() == 144);
};
