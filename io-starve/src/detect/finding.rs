//! What a detector says.

use io_starve_common::class::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::dirty_evidence::{DirtyEvidence, LoopEvidence};
pub use super::weight_evidence::WeightEvidence;
pub use crate::model::mechanism::Mechanism;
use crate::model::observation::{Call, DevId, Limits, Owner, Stage, Task};

/// Which disease.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Background writes wait while others are served.
    AsyncWriteStarvation,
    /// Sync writes wait while others are served.
    SyncWriteStarvation,
    /// Reads wait while others are served.
    ReadStarvation,
    /// The device itself keeps one request back while it completes others.
    DeviceStall,
    /// Everything waits, nothing moves.
    QueueStuck,
    /// An fsync waits for I/O of another owner.
    FsyncSerialization,
    /// A create, mkdir, write or umount waits for the journal, and that for I/O of another owner.
    JournalStall,
    /// Writers to a loop device are paused, and so is its worker.
    LoopDoubleThrottle,
    /// Writers of one disk are paused because another holds the dirty memory.
    DirtyThrottle,
    /// Somebody gets less of a disk than the weights say, or waits while it is idle.
    WeightUnfairness,
}

impl Kind {
    /// Every kind, in the order of the list above.
    pub const ALL: [Kind; 10] = [
        Kind::AsyncWriteStarvation,
        Kind::SyncWriteStarvation,
        Kind::ReadStarvation,
        Kind::DeviceStall,
        Kind::QueueStuck,
        Kind::FsyncSerialization,
        Kind::JournalStall,
        Kind::LoopDoubleThrottle,
        Kind::DirtyThrottle,
        Kind::WeightUnfairness,
    ];

    /// The name used on screen, in JSON and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::AsyncWriteStarvation => "async-write-starvation",
            Kind::SyncWriteStarvation => "sync-write-starvation",
            Kind::ReadStarvation => "read-starvation",
            Kind::DeviceStall => "device-stall",
            Kind::QueueStuck => "queue-stuck",
            Kind::FsyncSerialization => "fsync-serialization",
            Kind::JournalStall => "journal-stall",
            Kind::LoopDoubleThrottle => "loop-double-throttle",
            Kind::DirtyThrottle => "dirty-throttle",
            Kind::WeightUnfairness => "weight-unfairness",
        }
    }
}

/// How bad it is.
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
    JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; asked for, or self-inflicted.
    Info,
    /// Somebody waits much longer than they should.
    Warning,
    /// Somebody has all but stopped.
    Critical,
}

impl Severity {
    /// The name used on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// How sure the detector is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The mechanism was seen at work.
    Sure,
    /// Only circumstances point to it, or evidence was lost.
    Likely,
}

/// Where the victim waits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// blk-throttle holds it, or what it waits for.
    Held,
    /// Submitted, kept back by wbt, iocost or for want of a tag.
    Admission,
    /// Inserted, not yet issued.
    Queued,
    /// Issued, not yet completed.
    Device,
    /// In the journal of a filesystem.
    Journal,
    /// The writer itself is paused in balance_dirty_pages.
    Dirty,
}

impl Place {
    /// The name used on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Place::Held => "held",
            Place::Admission => "admission",
            Place::Queued => "queued",
            Place::Device => "device",
            Place::Journal => "journal",
            Place::Dirty => "dirty",
        }
    }
}

impl From<Stage> for Place {
    fn from(stage: Stage) -> Place {
        match stage {
            Stage::Admission => Place::Admission,
            Stage::Queued => Place::Queued,
            Stage::Device => Place::Device,
        }
    }
}

/// Which rule was met.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Issued nothing for a while, as others were.
    Withheld,
    /// Issued so little that its backlog needs very long.
    Crawling,
    /// Passed inside the device.
    Overtaken,
    /// Nothing moves.
    Stuck,
}

/// Who else was served meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    /// Who pays for it.
    pub owner: Owner,
    /// The class that most of its issues had.
    pub class: Class,
    /// Its part of all issues of others during the wait, 0 to 1.
    pub share: f64,
    /// Its issues during the wait.
    pub issues: u64,
    /// Threads of it seen in flight at ticks: a sample, most often seen first.
    pub tasks: Vec<Task>,
    /// For how long the victim waited for it, in ns; `None` where issues are what counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// The limit that held its I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitHit>,
}

/// A limit of blk-throttle that bites.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LimitHit {
    /// The cgroup that has the limit: the one that pays, or an ancestor.
    pub group: Owner,
    /// The disk.
    pub dev: DevId,
    /// What is set there, as far as it is known.
    pub limits: Limits,
    /// How much of that is used of late: 1 is all. `None`: not known.
    #[serde(default)]
    pub used: Option<f64>,
    /// For which part of the last minute it held something, 0 to 1.
    #[serde(default)]
    pub held_share: f64,
}

/// Figures behind a finding. Each is `None` when it is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Which rule was met.
    pub rule: Option<Rule>,
    /// Active scheduler of the device.
    pub scheduler: Option<String>,
    /// Tunables of the device that matter here: file below /sys/block/NAME/queue, value.
    pub tunables: Vec<(String, String)>,
    /// Age of the oldest that waits, in ms.
    pub oldest_ms: Option<u64>,
    /// How many wait now, in admission and queued.
    pub waiting: Option<u64>,
    /// Bytes that wait to be written or read (dirty and writeback memory for async writes).
    pub backlog_bytes: Option<u64>,
    /// How long the backlog needs at the present rate, in ms.
    pub backlog_needs_ms: Option<u64>,
    /// Longest time without an issue, in ms.
    pub gap_ms: Option<u64>,
    /// Issues of the victim during the wait or window.
    pub issues: Option<u64>,
    /// Issues of others during the wait or window.
    pub issues_of_others: Option<u64>,
    /// The victim's part of the issues, 0 to 1.
    pub issue_share: Option<f64>,
    /// Part of the window in which it waited, 0 to 1.
    pub waited_share: Option<f64>,
    /// How often the oldest was passed, a lower bound.
    pub bypasses: Option<u64>,
    /// The oldest was waiting before the programs were attached.
    pub before_attach: bool,
    /// Of an fsync.
    #[serde(default)]
    pub fsync: Option<FsyncEvidence>,
    /// Of a loop device.
    #[serde(default)]
    pub looped: Option<LoopEvidence>,
    /// Of dirty memory that a slow disk holds.
    #[serde(default)]
    pub dirty: Option<DirtyEvidence>,
    /// Of shares and weights.
    #[serde(default)]
    pub weights: Option<WeightEvidence>,
}

/// Figures of the fsync, or other call, that a finding is about: the one that waits, or waited, longest at that moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FsyncEvidence {
    /// What was called.
    #[serde(default)]
    pub call: Call,
    /// How long it has taken, in ms.
    pub took_ms: u64,
    /// What it would have taken alone, estimated, in ms.
    pub alone_ms: u64,
    /// Time for its own data, in ms.
    pub own_data_ms: u64,
    /// Time for the journal, in ms.
    pub journal_ms: u64,
    /// Time for flushing the disk's cache by itself, in ms.
    pub flush_ms: u64,
    /// Time that could not be told apart, in ms.
    pub unseen_ms: u64,
    /// The borders between them were seen as they happened, and not only at ticks.
    pub exact: bool,
    /// The commit that it waits for.
    pub commit: Option<u32>,
    /// Inode number of the file whose data is waited for.
    pub inode: Option<u64>,
    /// Links between the victim and the culprit that could not be seen.
    pub not_seen: Vec<String>,
}

/// What a finding about an fsync says beside its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncNote {
    /// The disk where the wait is.
    pub device: Option<DevId>,
    /// The filesystem.
    pub fs: DevId,
    /// Its type.
    pub fstype: Option<String>,
    /// Where it is mounted.
    pub mountpoint: Option<String>,
    /// The file that is synced: the last part of its path.
    pub file: Option<String>,
    /// When that fsync ended, ns monotonic; `None` while it waits.
    pub ended_ns: Option<u64>,
    /// Who is waited for, most delay first.
    pub culprits: Vec<Culprit>,
}

/// What could not be seen while the finding was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossNote {
    /// Events known to be lost since the condition began.
    pub events: u64,
    /// Questions that could not be asked, in words.
    pub missing: Vec<String>,
}

/// Why a finding closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CloseReason {
    /// Its condition was not met for the hold-down time.
    Resolved,
    /// The observer went away first.
    Detached,
}

/// A detector's verdict with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Unique in a run and the same in its replay.
    pub id: String,
    /// Which disease.
    pub kind: Kind,
    /// Worst so far.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// When the condition began. ns, monotonic.
    pub since_ns: u64,
    /// When the finding opened. ns, monotonic.
    pub opened_ns: u64,
    /// When its condition was last met. ns, monotonic.
    pub last_met_ns: u64,
    /// When and why it closed.
    pub closed: Option<(u64, CloseReason)>,
    /// The disk.
    pub device: Option<DevId>,
    /// Who waits; `Owner::Other` when it is a class over several owners.
    pub victim: Owner,
    /// What waits.
    pub class: Option<Class>,
    /// The thread of the oldest that waits.
    pub task: Option<Task>,
    /// Who was served, largest share first.
    pub culprits: Vec<Culprit>,
    /// What keeps it waiting.
    pub mechanism: Mechanism,
    /// Where it waits.
    pub stage: Place,
    /// How long the condition has lasted, in ns.
    pub duration_ns: u64,
    /// Longest single wait or gap so far, in ns.
    pub longest_ns: u64,
    /// The limit that was passed, in ns.
    pub threshold_ns: u64,
    /// Figures.
    pub evidence: Evidence,
    /// What to do about it, best first.
    pub advice: Vec<String>,
    /// What was not seen.
    pub loss: LossNote,
    /// Of one about an fsync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Box<SyncNote>>,
}
