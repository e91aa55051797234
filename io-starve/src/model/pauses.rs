//! What an observation tells of writers that the kernel pauses for dirty memory, and the facts about loop devices that explain
//! them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::observation::{DevId, Owner, Task};

/// A task that balance_dirty_pages put to sleep: one for each sleep, told once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Name of the backing device: `8:0` for a disk, `btrfs-1`, `0:52`.
    pub bdi: String,
    /// The disk of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<DevId>,
    /// The cgroup that the task's I/O is charged to.
    pub owner: Owner,
    /// Thread id.
    pub tid: u32,
    /// The same with its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Set for a kernel thread that writes for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// When it began. ns, monotonic.
    pub begin_ns: u64,
    /// When it ends, by what the kernel announced: the task wakes up to a jiffy later. ns, monotonic.
    pub end_ns: u64,
    /// Dirty memory as the kernel saw it then; `None` where its figures cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<DirtyFigures>,
}

/// A kernel thread with PF_LOCAL_THROTTLE: it is throttled less, since it writes what others have written before.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Worker {
    /// `loop0`, `nfsd`.
    pub name: String,
    /// It is one of several of a workqueue (loop since 5.14): then it serves one cgroup, and not the whole device.
    pub pooled: bool,
}

/// Dirty memory and the rates to which writers are held, at a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyFigures {
    /// Bytes of dirty memory above which all writers are stopped: of the machine, or of the task's memory cgroup.
    pub limit: u64,
    /// Bytes above which the flusher threads write.
    pub background: u64,
    /// Dirty bytes, those under writeback among them.
    pub dirty: u64,
    /// The part of the limit that this backing device gets, by how fast it is.
    pub bdi_limit: u64,
    /// Dirty bytes for this backing device.
    pub bdi_dirty: u64,
    /// Bytes a second to which all writers of this backing device are held.
    pub bdi_rate: u64,
    /// Bytes a second to which this task is held.
    pub task_rate: u64,
}

impl DirtyFigures {
    /// Below this nobody is paused for the limit that all share (`dirty_freerun_ceiling`, mm/page-writeback.c).
    pub const fn free_run(&self) -> u64 {
        self.limit / 2 + self.background / 2
    }

    /// Where the kernel tries to hold dirty memory (`dirty_setpoint`, mm/page-writeback.c).
    pub const fn setpoint(&self) -> u64 {
        self.limit / 2 + self.free_run() / 2
    }
}

/// Pauses of one owner, or of one worker, on one backing device since the last observation: also those that are not told one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseDelta {
    /// Name of the backing device.
    pub bdi: String,
    /// The cgroup.
    pub owner: Owner,
    /// Name of the worker, `None` for a task that writes for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How many began.
    pub count: u64,
    /// Sum of their announced lengths in ns; of tasks that pause at once, each counts.
    pub sum_ns: u64,
}

/// How long a disk has been busy, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    /// The disk.
    pub dev: DevId,
    /// Time in which at least one request was in the disk, in ms since boot (`io_ticks`).
    pub busy_ms: u64,
}

/// A loop device that has a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoopFact {
    /// Its number.
    #[schemars(with = "u32")]
    pub dev: DevId,
    /// `loop0`.
    pub name: String,
    /// Path of the backing file, as the kernel had it when it was attached; control characters replaced.
    pub file: String,
    /// That file has no name any more.
    pub deleted: bool,
    /// `s_dev` of the filesystem that holds it.
    #[schemars(with = "Option<u32>")]
    pub fs: Option<DevId>,
    /// The disks right below that filesystem; empty for one in memory.
    #[schemars(with = "Vec<u32>")]
    pub below: Vec<DevId>,
    /// It reads and writes its file past the page cache. `None`: not known.
    pub direct_io: Option<bool>,
    /// Where in the file it begins, in bytes. `None`: not known.
    #[serde(default)]
    pub offset: Option<u64>,
}
