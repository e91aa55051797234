//! What the model reads: the only way in.
//!
//! A live run, a recording and an importer all produce this one type. Everything in it is data: no clock, no
//! handle. Lists are sorted by their key, so that equal observations are equal bytes.

use io_starve_common::{class::Class, wire::LossKind};
use serde::{Deserialize, Serialize};

pub use super::host::{CgroupMode, Hook, HostFact, Topic, Verdict};
pub use super::pauses::{Busy, DirtyFigures, LoopFact, Pause, PauseDelta, Worker};
pub use super::shares::{ClockDelta, ServiceDelta, Times};
pub use super::spans::{
    Call, Checkpoint, Commit, FilesystemFact, Fsync, FsyncDelta, Handle, Hold, Holder, InodeWait,
    LimitFact, Limits, SyncWait,
};
pub use super::weights::{WeightFact, WeightFile};

/// Kernel `dev_t` of a whole disk: major << 20 | minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DevId(pub u32);

impl DevId {
    /// Puts a major and a minor number together.
    pub const fn new(major: u32, minor: u32) -> DevId {
        DevId(major << 20 | minor)
    }
    /// Major number.
    pub const fn major(self) -> u32 {
        self.0 >> 20
    }
    /// Minor number.
    pub const fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }
}

impl std::fmt::Display for DevId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major(), self.minor())
    }
}

/// Who pays for an I/O: the cgroup that its bio is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The cgroup with this id (inode number of its directory).
    Cgroup(u64),
    /// Not known: the request carried no blkg, or the input cannot tell.
    Unknown,
    /// A thread, by its id, that stands for its owner where the input knows no cgroups: one that syncs, or is paused, in a trace of another
    /// program. Two of them may belong together.
    Task(u32),
    /// Owners for whom no row was left, summed.
    Other,
}

/// Where an I/O waits.
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
pub enum Stage {
    /// Submitted, kept back by wbt, iocost or for want of a tag.
    Admission,
    /// Inserted, not yet issued.
    Queued,
    /// Issued, not yet completed.
    Device,
}

impl Stage {
    /// Every stage that has figures, in the order that an I/O goes through them.
    pub const ALL: [Stage; 3] = [Stage::Admission, Stage::Queued, Stage::Device];

    /// Index into arrays by stage.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name used on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Admission => "admission",
            Stage::Queued => "queued",
            Stage::Device => "device",
        }
    }
}

/// One accountable group of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKey {
    /// The disk.
    pub dev: DevId,
    /// Who pays.
    pub owner: Owner,
    /// What kind of request.
    pub class: Class,
}

/// Everything that became known since the previous observation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When the counters were read: CLOCK_MONOTONIC in ns.
    pub mono_ns: u64,
    /// The same moment by the wall clock, ns since 1970; may be set back, so it only labels.
    pub wall_ns: i64,
    /// Facts that changed; the first observation carries all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// Counters of groups that moved, as differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupDelta>,
    /// Histograms that moved, as differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hists: Vec<HistDelta>,
    /// Disks that moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceSample>,
    /// Groups that have something in flight at this moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// The oldest in flight, a few for each group and stage, oldest first within them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiters: Vec<Waiter>,
    /// Memory of each disk or cgroup that waits to be written, where the kernel tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backlog: Vec<Backlog>,
    /// PSI of the owners that have something in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<Pressure>,
    /// fsyncs that run, and those that ended and took long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fsyncs: Vec<Fsync>,
    /// How many fsyncs ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fsync_counts: Vec<FsyncDelta>,
    /// Journal commits that run, and those that ended and took long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<Commit>,
    /// Bios that limits hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Handles that kept a transaction open for long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handles: Vec<Handle>,
    /// Tasks that make room in a journal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<Checkpoint>,
    /// Tasks that sleep with a handle open while a commit takes long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// Pauses for dirty memory that began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// How many pauses began, by owner and backing device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pause_counts: Vec<PauseDelta>,
    /// How busy disks are behind which somebody was paused of late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<Busy>,
    /// Disks on which device time is counted, where something was in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<ClockDelta>,
    /// Device time and waits of owners on those disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceDelta>,
    /// Losses, cumulative since attach, only kinds above 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss: Vec<(LossKind, u64)>,
    /// CPU time of this process so far, all threads, user and system, in ns; `None` where nobody told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_cpu_ns: Option<u64>,
}

/// How the counters of a group moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GroupDelta {
    /// Which group.
    pub key: GroupKey,
    /// Lives begun.
    pub seen: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Lives ended by a merge.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// Lives given up because their end was missed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expired: u64,
    /// Insert events.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inserts: u64,
    /// Issue events.
    pub issues: u64,
    /// Requeue events.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub requeues: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// Time of the stages that ended, by stage.
    pub stages: [StageDelta; 3],
    /// When a request of the group was last issued, `None` when never since attach. ns, monotonic.
    pub last_issue_ns: Option<u64>,
}

/// Time of one stage of requests that left it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageDelta {
    /// How many left it.
    pub count: u64,
    /// Sum of their times in ns.
    pub sum_ns: u64,
    /// The longest in about the last second, in ns; 0 with a count of 0 means nothing left.
    pub max_ns: u64,
}

/// How a histogram moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistDelta {
    /// The disk.
    pub dev: DevId,
    /// The class.
    pub class: Class,
    /// The stage.
    pub stage: Stage,
    /// (bucket, count) of the buckets that moved; bounds by `io_starve_common::hist`.
    pub buckets: Vec<(u8, u64)>,
}

/// Counters of a disk at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// The disk.
    pub dev: DevId,
    /// Issues since attach.
    pub issued: u64,
    /// Issues of sync classes since attach.
    pub sync_issued: u64,
    /// Completed lives since attach.
    pub completed: u64,
    /// Last issue, `None` before the first. ns, monotonic.
    pub last_issue_ns: Option<u64>,
    /// Last completion, `None` before the first. ns, monotonic.
    pub last_complete_ns: Option<u64>,
    /// How often tasks slept for want of a tag since attach; only kernels from 7.2 tell.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tag_waits: u64,
}

impl DeviceSample {
    /// A disk that has done nothing yet.
    pub const fn new(dev: DevId, tag_waits: u64) -> DeviceSample {
        DeviceSample {
            dev,
            issued: 0,
            sync_issued: 0,
            completed: 0,
            last_issue_ns: None,
            last_complete_ns: None,
            tag_waits,
        }
    }
}

/// How much of a group is in flight at this moment, by stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Which group.
    pub key: GroupKey,
    /// Requests (bios in admission) in each stage.
    pub count: [u64; 3],
    /// Bytes in each stage.
    pub bytes: [u64; 3],
    /// When the oldest of each stage entered it. ns, monotonic.
    pub oldest_ns: [Option<u64>; 3],
    /// True when all that wait in admission or queued have I/O priority idle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_prio: bool,
}

/// A thread as it was named when it submitted.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Task {
    /// Thread id; `pid` in the kernel's sense.
    pub pid: u32,
    /// Name of the thread, control characters replaced.
    pub comm: String,
}

/// What a waiting task was found to wait for, read from its kernel stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// `wbt_wait`.
    Wbt,
    /// `ioc_rqos_throttle`.
    Iocost,
    /// `blk_mq_get_tag`.
    Tags,
}

/// One I/O that is in flight at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Its group.
    pub key: GroupKey,
    /// Where it waits.
    pub stage: Stage,
    /// When it entered this stage. ns, monotonic.
    pub since_ns: u64,
    /// Who submitted it.
    pub task: Option<Task>,
    /// First sector, 512 bytes each.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// How many others passed it, a lower bound.
    pub bypasses: u64,
    /// It was waiting before the programs were attached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seeded: bool,
    /// What its task's stack says, where it was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
}

/// Memory that still has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    /// The disk; `None` when it is the owner's over all disks.
    pub dev: Option<DevId>,
    /// The owner; `None` when it is the disk's over all owners.
    pub owner: Option<Owner>,
    /// Dirty bytes.
    pub dirty: u64,
    /// Bytes under writeback.
    pub writeback: u64,
}

/// PSI of one cgroup: share of the last 10 s, in per cent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Whose; `None` for the whole host.
    pub owner: Option<Owner>,
    /// Some task waited for I/O.
    pub some_avg10: f64,
    /// All tasks waited for I/O.
    pub full_avg10: f64,
}

/// What the machine is configured to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "kebab-case")]
pub enum Fact {
    /// The host.
    Host(HostFact),
    /// The hooks and what became of them; always the whole list.
    Hooks {
        /// One for each hook of the program, in its order.
        hooks: Vec<Hook>,
    },
    /// A disk appeared or changed.
    Device(DeviceFact),
    /// A disk went away.
    DeviceGone {
        /// Which.
        dev: DevId,
    },
    /// A cgroup became known.
    Cgroup(CgroupFact),
    /// A cgroup was removed; its name stays known for a while.
    CgroupGone {
        /// Its id.
        id: u64,
    },
    /// A filesystem was mounted, or changed.
    Filesystem(FilesystemFact),
    /// A filesystem is no longer mounted.
    FilesystemGone {
        /// Its `s_dev`.
        dev: DevId,
    },
    /// A partition is on this disk: told where no filesystem is, so that what is known of its device finds the queue.
    Partition {
        /// The partition.
        dev: DevId,
        /// The disk.
        disk: DevId,
    },
    /// Limits of a cgroup were set, changed or lifted.
    Limits(LimitFact),
    /// Weights of a cgroup were set, changed or are gone.
    Weights(WeightFact),
    /// A loop device got a file, or something about it changed.
    Loop(LoopFact),
    /// A loop device has no file any more.
    LoopGone {
        /// Which.
        dev: DevId,
    },
}

/// What a disk is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFact {
    /// Its number.
    pub dev: DevId,
    /// Name for people: `sda`, `nvme0n1`, `dm-3 (vg-root)`, `loop0`.
    pub name: String,
    /// Active scheduler; `None` when the queue has no scheduler file (bio-based).
    pub scheduler: Option<String>,
    /// Tunables of queue/ and queue/iosched/ that the detectors advise on, (file, value), sorted.
    pub tunables: Vec<(String, String)>,
    /// Disks below it (dm, md, loop's backing disk).
    pub below: Vec<DevId>,
    /// Rotational flag of the queue.
    pub rotational: Option<bool>,
    /// True when iocost is enabled for it (io.cost.qos), `None` when that could not be read.
    pub iocost: Option<bool>,
    /// File behind a loop device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
}

/// What a cgroup is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupFact {
    /// Its id: inode number of its directory.
    pub id: u64,
    /// Path below the hierarchy's mount, beginning with `/`.
    pub path: String,
    /// systemd unit, from the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Container id, from the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Kubernetes pod uid, from the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
