//! What is told one by one in an observation: fsyncs, journal commits, holds, handles; and the facts about filesystems and limits
//! that explain them.

use serde::{Deserialize, Serialize};

use super::observation::{DevId, Owner, Task};

/// What a task that syncs, or the thread of a journal, was found to wait for, read from its kernel stack.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SyncWait {
    /// Data of a file: to be submitted, or to be written.
    Data,
    /// A commit of the journal (`jbd2_log_wait_commit`).
    Journal,
    /// Blocks of the journal itself.
    JournalBlocks,
    /// Handles that keep the transaction open (`wait_transaction_locked`, `jbd2_journal_wait_updates`).
    Transaction,
    /// Room in the journal, or a checkpoint that makes some.
    JournalSpace,
    /// A flush of the disk's cache.
    Flush,
    /// Something else.
    Other,
}

/// What a task called that waits.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// fsync, fdatasync, msync, or a write with O_SYNC: followed from its beginning to its end.
    #[default]
    Fsync,
    /// sync_file_range, likewise. It waits for its own data only.
    SyncRange,
    /// open with O_CREAT, mknod, link, symlink; an open alone waits for no journal.
    Create,
    /// mkdir.
    Mkdir,
    /// unlink, rmdir.
    Remove,
    /// rename.
    Rename,
    /// write, truncate, fallocate.
    Write,
    /// umount.
    Umount,
    /// sync, syncfs.
    Sync,
    /// Another one.
    Other,
}

impl Call {
    /// The name used on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Fsync => "fsync",
            Call::SyncRange => "sync_file_range",
            Call::Create => "create",
            Call::Mkdir => "mkdir",
            Call::Remove => "remove",
            Call::Rename => "rename",
            Call::Write => "write",
            Call::Umount => "umount",
            Call::Sync => "sync",
            Call::Other => "a call",
        }
    }
}

/// An fsync (or fdatasync, msync, O_SYNC write) that runs at this moment, or ended since the last one and took long. Or another call
/// that was found waiting for the journal at ticks: its begin is the first of them, its end the first without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fsync {
    /// What was called.
    #[serde(default)]
    pub call: Call,
    /// `s_dev` of the filesystem.
    pub fs: DevId,
    /// Inode number of the file; 0 for a call about no file.
    pub ino: u64,
    /// Last component of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The cgroup that the task's I/O is charged to.
    pub owner: Owner,
    /// Thread id.
    pub tid: u32,
    /// The same with its name.
    pub task: Option<Task>,
    /// When it began. ns, monotonic.
    pub begin_ns: u64,
    /// When it ended; `None` while it runs.
    pub end_ns: Option<u64>,
    /// Only what is needed to read the data back (fdatasync, O_DSYNC).
    pub datasync: bool,
    /// When its own data was written and it began to wait for a commit, where that could be seen.
    pub journal_ns: Option<u64>,
    /// The commit that it waits for.
    pub commit: Option<u32>,
    /// When it began to flush the disk's cache by itself.
    pub flush_ns: Option<u64>,
    /// What its stack says; only for one that runs, and for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<SyncWait>,
    /// 0, or the error it ended with.
    #[serde(default)]
    pub result: i32,
}

/// A commit of a journal that runs at this moment, or ended since the last one and took long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// `s_dev` of the filesystem.
    pub fs: DevId,
    /// Number of the transaction.
    pub commit: u32,
    /// The journal's thread.
    pub tid: u32,
    /// When it began. ns, monotonic.
    pub begin_ns: u64,
    /// When it ended; `None` while it runs.
    pub end_ns: Option<u64>,
    /// When it began to wait for open handles.
    pub locking_ns: Option<u64>,
    /// When it began to write data of ordered files.
    pub flushing_ns: Option<u64>,
    /// When it began to write its blocks. It waits for the data of ordered files after that.
    pub logging_ns: Option<u64>,
    /// The last file whose data it waited for.
    pub waited: Option<InodeWait>,
    /// What the stack of its thread says; only for one that runs, and for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<SyncWait>,
}

/// A wait for the data of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeWait {
    /// Inode number.
    pub ino: u64,
    /// Who pays for the writeback of that file; `Unknown` where the kernel does not say (cgroup v1).
    pub owner: Owner,
    /// When the wait began. ns, monotonic.
    pub since_ns: u64,
}

/// A task that makes room in a journal at this moment (`jbd2_log_do_checkpoint`). All others that need room wait until it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Checkpoint {
    /// `s_dev` of the filesystem.
    pub fs: DevId,
    /// The cgroup that the task's I/O is charged to: what it writes is written on its account.
    pub owner: Owner,
    /// The thread.
    pub tid: u32,
    /// When it began with the oldest transaction that is left. ns, monotonic.
    pub begin_ns: u64,
}

/// A task that has a handle of a journal open and sleeps for something else than the journal: as long as it does, no commit that
/// waits for handles goes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// The cgroup that the task's I/O is charged to.
    pub owner: Owner,
    /// The thread.
    pub task: Task,
}

/// Bios that one cgroup's limit holds at this moment, in one direction on one disk (blk-throttle).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hold {
    /// The disk.
    pub dev: DevId,
    /// The cgroup whose limit holds them.
    pub group: Owner,
    /// Writes, else reads.
    pub write: bool,
    /// Who pays for the first of them: `group`, or a cgroup below it.
    pub owner: Owner,
    /// How many are held.
    pub count: u64,
    /// (filesystem, inode) of the first of them, where its memory tells.
    pub file: Option<(DevId, u64)>,
    /// Since when something is held without a pause, as far as ticks tell. ns, monotonic.
    pub since_ns: u64,
}

/// A handle that kept a transaction open for long, and has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// `s_dev` of the filesystem.
    pub fs: DevId,
    /// The transaction.
    pub commit: u32,
    /// The cgroup that the task's I/O is charged to.
    pub owner: Owner,
    /// The thread.
    pub task: Option<Task>,
    /// When it began, by the kernel's coarse clock. ns, monotonic.
    pub begin_ns: u64,
    /// When it ended. ns, monotonic.
    pub end_ns: u64,
}

/// How many fsyncs of one owner ended on one filesystem since the last observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsyncDelta {
    /// `s_dev` of the filesystem.
    pub fs: DevId,
    /// The cgroup.
    pub owner: Owner,
    /// How many.
    pub count: u64,
    /// Sum of their durations in ns.
    pub sum_ns: u64,
}

/// A mounted filesystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesystemFact {
    /// `s_dev`, as /proc/self/mountinfo has it.
    pub dev: DevId,
    /// `ext4`, `xfs`, ...
    pub fstype: String,
    /// Where it is mounted; the first place when there are several.
    pub mountpoint: String,
    /// What it lies on, e.g. `/dev/sda1`.
    pub source: String,
    /// Options of the superblock, as the kernel prints them.
    pub options: String,
    /// The disks with request queues below it, through partitions, dm, md.
    pub queues: Vec<DevId>,
}

/// Limits of blk-throttle for one cgroup on one disk; `None`: no limit.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Limits {
    /// Bytes a second to be read.
    pub rbps: Option<u64>,
    /// Bytes a second to be written.
    pub wbps: Option<u64>,
    /// Reads a second.
    pub riops: Option<u64>,
    /// Writes a second.
    pub wiops: Option<u64>,
}

impl Limits {
    /// True when nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }

    /// True when writes (else reads) are limited.
    pub fn limit(&self, write: bool) -> bool {
        let (bytes, requests) = if write {
            (self.wbps, self.wiops)
        } else {
            (self.rbps, self.riops)
        };
        bytes.is_some() || requests.is_some()
    }
}

/// Limits of a cgroup (io.max, or blkio.throttle of v1). A disk that is not in the list is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitFact {
    /// Id of the cgroup.
    pub id: u64,
    /// By disk, sorted.
    pub disks: Vec<(DevId, Limits)>,
}
