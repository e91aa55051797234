//! Figures behind findings about dirty memory.

use io_starve_common::class::Class;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::observation::Task;

/// A loop device on which both the writers and the worker are paused, over the last 5 s.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopEvidence {
    /// `loop0`.
    pub name: String,
    /// Its backing file, as the kernel had the path when it was attached.
    pub file: String,
    /// That file has no name any more.
    pub deleted: bool,
    /// Whether it goes past the page cache; null when not known.
    pub direct_io: Option<bool>,
    /// Wall time in which tasks were paused on it, in ms.
    pub paused_ms: u64,
    /// Wall time in which its worker was paused, in ms.
    pub worker_paused_ms: u64,
    /// Wall time in which both were, in ms.
    pub both_ms: u64,
    /// Part of the time in which the disk at the bottom was busy, 0 to 1; null when the kernel does not count it.
    pub busy_share: Option<f64>,
    /// Part of the time in which both were paused and that disk was idle, 0 to 1.
    pub idle_share: Option<f64>,
    /// A limit of blk-throttle holds writes on one of its layers now.
    #[serde(default)]
    pub limited: bool,
    /// The loop device and all that is below it, upper ones first.
    pub layers: Vec<Layer>,
    /// Who waited behind the worker's pauses, longest first.
    pub victims: Vec<LoopVictim>,
    /// Cgroups that write to the disk at the bottom past the loop device, most first.
    pub other_writers: Vec<String>,
}

/// A disk in a stack, over the last 5 s.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// `loop0`, `dm-1`, `sda`.
    pub name: String,
    /// The file behind it, of a loop device.
    pub file: Option<String>,
    /// Type of the filesystem that is mounted from it; null when none is.
    pub filesystem: Option<String>,
    /// Where that is mounted.
    pub mountpoint: Option<String>,
    /// Wall time in which somebody was paused for what is dirty on it, in ms.
    pub paused_ms: u64,
    /// Pauses that began.
    pub pauses: u64,
    /// The longest of those that were told one by one, in ms.
    pub longest_ms: u64,
    /// Their mean length in the first half of the time, in ms; null when there was none.
    pub mean_before_ms: Option<u64>,
    /// The same in the second half.
    pub mean_after_ms: Option<u64>,
    /// Dirty bytes for it, at the last pause.
    pub dirty_bytes: Option<u64>,
    /// Its part of the dirty limit.
    pub limit_bytes: Option<u64>,
    /// Where the kernel tries to hold all dirty memory.
    pub setpoint_bytes: Option<u64>,
    /// Bytes a second to which its writers are held.
    pub rate_bytes_per_s: Option<u64>,
    /// Bytes a second written to it; null when no request of it was seen.
    pub written_bytes_per_s: Option<u64>,
    /// Part of the time in which it was busy, 0 to 1; null when the kernel does not count it.
    pub busy_share: Option<f64>,
}

/// Somebody who waited behind the worker of a loop device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopVictim {
    /// Path of the cgroup that pays.
    pub cgroup: String,
    /// What waited.
    pub class: Class,
    /// The thread that submitted the last one.
    pub task: Option<Task>,
    /// Time in the worker's pauses, as far as ticks saw it, in ms.
    pub behind_ms: u64,
    /// The longest request, in ms.
    pub longest_ms: u64,
}

/// Writers of one disk that are paused because another holds the dirty memory, over the last 5 s.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirtyEvidence {
    /// The disk to which the victim writes.
    pub disk: String,
    /// Wall time in which the victim was paused, in ms.
    pub paused_ms: u64,
    /// Pauses of the victim that began.
    pub pauses: u64,
    /// Dirty bytes of all disks, at the victim's last pause.
    pub dirty_bytes: u64,
    /// Above this all writers are stopped.
    pub limit_bytes: u64,
    /// Dirty bytes for the victim's disk.
    pub own_dirty_bytes: u64,
    /// Dirty bytes for the slow disk.
    pub slow_dirty_bytes: u64,
    /// Part of the time in which the victim's disk was busy, 0 to 1.
    pub busy_share: Option<f64>,
    /// The same of the slow disk.
    pub slow_busy_share: Option<f64>,
    /// Bytes a second to which writers of the slow disk are held.
    pub slow_rate_bytes_per_s: Option<u64>,
}
