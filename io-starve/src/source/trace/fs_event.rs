//! What traces tell besides block events: fsyncs, journals, and pauses for dirty memory.

use super::event::Comm;
use crate::model::observation::DevId;

/// The tracepoints that are read, as system and name. Those of system calls are for filesystems without events of their own.
pub const FS_TRACEPOINTS: &[(&str, &str)] = &[
    ("ext4", "ext4_sync_file_enter"),
    ("ext4", "ext4_sync_file_exit"),
    ("jbd2", "jbd2_start_commit"),
    ("jbd2", "jbd2_commit_locking"),
    ("jbd2", "jbd2_commit_flushing"),
    ("jbd2", "jbd2_commit_logging"),
    ("jbd2", "jbd2_end_commit"),
    ("jbd2", "jbd2_run_stats"),
    ("jbd2", "jbd2_handle_stats"),
    ("jbd2", "jbd2_checkpoint"),
    ("jbd2", "jbd2_checkpoint_stats"),
    ("writeback", "balance_dirty_pages"),
    ("syscalls", "sys_enter_fsync"),
    ("syscalls", "sys_exit_fsync"),
    ("syscalls", "sys_enter_fdatasync"),
    ("syscalls", "sys_exit_fdatasync"),
];

/// An event of a filesystem, its journal or of writeback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsEvent {
    /// When, by the clock of the trace. ns.
    pub ns: u64,
    /// The thread that ran; 0 where it is not told.
    pub tid: u32,
    /// Its name.
    pub comm: Comm,
    /// What.
    pub what: FsWhat,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsWhat {
    /// `ext4_sync_file_enter` (include/trace/events/ext4.h).
    SyncEnter {
        /// `s_dev` of the filesystem.
        fs: DevId,
        /// Inode number.
        ino: u64,
        /// fdatasync.
        datasync: bool,
    },
    /// `ext4_sync_file_exit`, with 0 or an error.
    SyncExit(i32),
    /// A system call that syncs began: of which filesystem is not told.
    CallEnter {
        /// fdatasync.
        datasync: bool,
    },
    /// It returned, with 0 or an error.
    CallExit(i32),
    /// A commit of a journal entered a part of it (include/trace/events/jbd2.h).
    Commit {
        /// `s_dev` of the filesystem.
        fs: DevId,
        /// Number of the transaction.
        commit: u32,
        /// Which part.
        step: CommitStep,
    },
    /// `jbd2_handle_stats`: a handle ended.
    Handle {
        /// `s_dev` of the filesystem.
        fs: DevId,
        /// Number of the transaction.
        commit: u32,
        /// How long it was open, in jiffies; how long those are is not told.
        jiffies: u32,
    },
    /// `jbd2_checkpoint`: this thread makes room in a journal.
    Checkpoint(DevId),
    /// `jbd2_checkpoint_stats`: a transaction is out of the journal.
    CheckpointDone(DevId),
    /// `balance_dirty_pages` (include/trace/events/writeback.h) with a pause above 0.
    Pause(PauseEvent),
}

/// Where a commit is. In the order of `jbd2_journal_commit_transaction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitStep {
    /// `jbd2_start_commit`.
    Start,
    /// `jbd2_commit_locking`: it waits for open handles.
    Locking,
    /// `jbd2_commit_flushing`: it writes data of ordered files.
    Flushing,
    /// `jbd2_commit_logging`: it writes its blocks.
    Logging,
    /// `jbd2_run_stats` or `jbd2_end_commit`.
    End,
}

/// A pause for dirty memory with the kernel's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PauseEvent {
    /// Name of the backing device: 15 bytes of it.
    pub bdi: Comm,
    /// How long, as announced. ms.
    pub pause_ms: u32,
    /// Inode number of the writer's memory cgroup; `None` where that is not told, or the root, as on cgroup v1 always.
    pub cgroup: Option<u64>,
    /// Pages above which all writers are stopped.
    pub limit: u64,
    /// Pages at which the kernel tries to hold all dirty memory.
    pub setpoint: u64,
    /// Dirty pages.
    pub dirty: u64,
    /// This device's part of the setpoint.
    pub bdi_setpoint: u64,
    /// Dirty pages of this device.
    pub bdi_dirty: u64,
    /// KiB a second to which its writers are held.
    pub bdi_rate: u64,
    /// KiB a second to which this task is held.
    pub task_rate: u64,
}

impl FsWhat {
    /// Index of the question that this event answers, see [`super::questions`].
    pub const fn subject(&self) -> FsSubject {
        match self {
            FsWhat::SyncEnter { .. }
            | FsWhat::SyncExit(_)
            | FsWhat::CallEnter { .. }
            | FsWhat::CallExit(_) => FsSubject::Syncs,
            FsWhat::Commit { .. }
            | FsWhat::Handle { .. }
            | FsWhat::Checkpoint(_)
            | FsWhat::CheckpointDone(_) => FsSubject::Journals,
            FsWhat::Pause(_) => FsSubject::Pauses,
        }
    }
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsSubject {
    /// Who syncs.
    Syncs,
    /// What journals do.
    Journals,
    /// Who is paused for dirty memory.
    Pauses,
}
