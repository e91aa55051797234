//! What every front end shows: figures are computed here, once, and never while drawing.

use io_starve_common::{class::Class, wire::LossKind};
use serde::{Deserialize, Serialize};

use super::blame::Blamed;
use super::cgroups::nameless;
use super::mechanism::Mechanism;
use super::observation::{
    Call, CgroupFact, DevId, Hook, HostFact, Limits, Owner, Stage, Task, Verdict, WaitsFor,
};
use super::syncs::Split;
use super::trail::{ROWS, Step};
pub use super::views_dirty::{BdiView, LoopView, PausedView};
pub use super::views_shares::{ShareRow, ShareView};
use crate::detect::finding::Finding;

/// The state of the machine at one tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// CLOCK_MONOTONIC in ns.
    pub mono_ns: u64,
    /// Wall clock, ns since 1970.
    pub wall_ns: i64,
    /// Time since the first observation, in ns.
    pub elapsed_ns: u64,
    /// The host, once its fact was seen.
    pub host: Option<HostFact>,
    /// Every hook with its verdict.
    pub hooks: Vec<Hook>,
    /// Losses since attach, only kinds above 0.
    pub loss: Vec<(LossKind, u64)>,
    /// Requests seen since attach.
    pub requests_seen: u64,
    /// Disks that had I/O, by name.
    pub devices: Vec<DeviceView>,
    /// Open findings first (worst first), then closed ones (latest first).
    pub findings: Vec<Finding>,
    /// The state in words, healthy or not: one line.
    pub verdict: String,
    /// Names of every owner that appears above.
    pub owners: Vec<OwnerName>,
    /// PSI of the whole host, (some, full) avg10 in per cent.
    pub pressure: Option<(f64, f64)>,
    /// CPU time of this program by time over the last 5 s, 1 is all of one core; `None` when it is not known.
    pub own_cpu: Option<f64>,
    /// fsyncs that run for 20 ms and more, longest first, then slow ones that ended, latest first.
    pub fsyncs: Vec<FsyncView>,
    /// fsyncs by filesystem and owner, most time first.
    pub syncers: Vec<SyncerView>,
    /// What limits hold at this tick.
    pub holds: Vec<HoldView>,
    /// Who kept whom waiting in the last minute, most delay first.
    pub blame: Vec<Blamed>,
    /// Backing devices for which somebody was paused in the last 5 s, most paused first.
    pub bdis: Vec<BdiView>,
    /// Who was paused, longest first.
    pub paused: Vec<PausedView>,
    /// Loop devices, each with what lies below it.
    pub loops: Vec<LoopView>,
    /// Who got which share of disks on which device time is counted, in the last 5 s.
    pub shares: Vec<ShareView>,
}

/// fsyncs that have taken less are not worth a line, in ns.
pub const FSYNC_SHOWN_NS: u64 = 20_000_000;

/// One fsync, or another call that waits for the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FsyncView {
    /// What was called.
    pub call: Call,
    /// Where the filesystem is mounted, its number when that is not known.
    pub filesystem: String,
    /// Who syncs.
    pub owner: Owner,
    /// The thread.
    pub task: Option<Task>,
    /// Last part of the file's path.
    pub file: Option<String>,
    /// When it began, ns monotonic.
    pub begin_ns: u64,
    /// How long it has taken, in ns.
    pub took_ns: u64,
    /// It still runs.
    pub running: bool,
    /// 0, or the error it ended with.
    pub result: i32,
    /// Where the time went.
    pub split: Split,
    /// Whom it waited for most, through what, and for how long (ns); the owner itself when its own limit held it.
    pub waits: Option<WaitView>,
}

impl FsyncView {
    /// The file that is synced, or what else was called.
    pub fn what(&self) -> &str {
        match (&self.file, self.call) {
            (Some(file), _) => file,
            (None, Call::Fsync | Call::SyncRange) => "a file",
            (None, call) => call.name(),
        }
    }
}

/// Whom an fsync waited for most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WaitView {
    /// By whom; `None` when that was not seen.
    pub culprit: Option<Owner>,
    /// Through what.
    pub mechanism: Mechanism,
    /// For how long, in ns.
    pub ns: u64,
    /// The cgroup whose limit held it.
    pub limit: Option<Owner>,
    /// Each link was seen.
    pub sure: bool,
}

/// fsyncs of one owner on one filesystem since attach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SyncerView {
    /// Where the filesystem is mounted, its number when that is not known.
    pub filesystem: String,
    /// Who syncs.
    pub owner: Owner,
    /// How many ended.
    pub count: u64,
    /// Their mean duration in ns.
    pub mean_ns: u64,
}

/// Bios that a limit holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldView {
    /// Name of the disk.
    pub device: String,
    /// The cgroup whose limit it is.
    pub group: Owner,
    /// Who pays for the first of them.
    pub owner: Owner,
    /// Writes, else reads.
    pub write: bool,
    /// How many.
    pub count: u64,
    /// Since how long something is held without a pause, in ns.
    pub age_ns: u64,
    /// What is set.
    pub limits: Limits,
    /// How much of that is used of late: 1 is all. `None`: not known.
    pub used: Option<f64>,
    /// For which part of the last minute it held something, 0 to 1.
    pub held_share: f64,
}

impl Snapshot {
    /// How an owner is called on screen: its path, or a word for those that have none.
    pub fn owner_name(&self, owner: Owner) -> String {
        match owner {
            Owner::Unknown | Owner::Task(_) | Owner::Other => nameless(owner),
            Owner::Cgroup(_) => match self.owners.binary_search_by_key(&owner, |o| o.owner) {
                Ok(i) => self.owners[i].cgroup.path.clone(),
                Err(_) => nameless(owner),
            },
        }
    }

    /// PSI of an owner, (some, full) avg10 in per cent, where it was told of late.
    pub fn pressure_of(&self, owner: Owner) -> Option<(f64, f64)> {
        let at = self.owners.binary_search_by_key(&owner, |o| o.owner).ok()?;
        self.owners[at].pressure
    }

    /// What a disk is called on screen.
    pub fn device_name(&self, dev: DevId) -> String {
        self.devices
            .iter()
            .find(|d| d.dev == dev)
            .map_or_else(|| dev.to_string(), |d| d.name.clone())
    }

    /// (attached, wanted): hooks that run, of those that this kernel should have and this machine needs.
    pub fn hooks_attached(&self) -> (usize, usize) {
        hooks_attached(&self.hooks)
    }

    /// Sum of all losses.
    pub fn loss_total(&self) -> u64 {
        self.loss.iter().map(|(_, n)| n).sum()
    }
}

/// (attached, wanted): hooks that run, of those that this kernel should have and this machine needs.
pub fn hooks_attached(hooks: &[Hook]) -> (usize, usize) {
    let count = |is: fn(&Verdict) -> bool| hooks.iter().filter(|h| is(&h.verdict)).count();
    let attached = count(|v| matches!(v, Verdict::Attached { .. }));
    (
        attached,
        attached + count(|v| matches!(v, Verdict::Refused { .. })),
    )
}

/// An owner and its names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnerName {
    /// Who.
    pub owner: Owner,
    /// Path, unit, container, pod; `path` is never empty.
    pub cgroup: CgroupFact,
    /// The cgroup is gone.
    pub gone: bool,
    /// Its PSI of I/O, (some, full) avg10 in per cent, where it was told of late.
    #[serde(default)]
    pub pressure: Option<(f64, f64)>,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its number.
    pub dev: DevId,
    /// Name for people.
    pub name: String,
    /// Active scheduler, `None` when it has none to choose or it is not known.
    pub scheduler: Option<String>,
    /// (file, value) of its tunables.
    pub tunables: Vec<(String, String)>,
    /// Issues a second over the last window.
    pub iops: f64,
    /// Completed bytes a second over the last window.
    pub bytes_per_s: f64,
    /// Requests in flight by stage at this tick.
    pub waiting: [u64; 3],
    /// Where I/O is at this tick, the pauses and holds before the first stage included.
    pub places: Places,
    /// By class, only classes seen since attach.
    pub classes: Vec<ClassView>,
    /// By owner and class, those with I/O in the last window or waiting, most waiting time first.
    pub owners: Vec<OwnerView>,
    /// The longest in admission or queued at this tick.
    pub oldest: Option<WaiterView>,
    /// Age of the oldest that is in any stage or held by a limit, in ns.
    pub oldest_ns: Option<u64>,
    /// The oldest in flight at this tick in any stage, oldest first, a few.
    pub waiters: Vec<WaiterView>,
    /// The last minute by the second, oldest first, the present second last.
    pub trail: Vec<Step>,
    /// What takes the place of the queue's times on a disk that has no queue: those in the device, over all classes.
    pub instead: Option<Dist>,
}

/// How many wait at each place at a tick. `None` is not known, or there is no such place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Tasks that are paused for dirty memory behind this disk.
    pub dirty: Option<u64>,
    /// Bios that limits hold.
    pub held: Option<u64>,
    /// Bios kept back by wbt, iocost or for want of a tag.
    pub admission: Option<u64>,
    /// Requests inserted and not issued; `None` on a disk without a scheduler, which inserts none.
    pub queued: Option<u64>,
    /// Requests issued and not completed.
    pub device: Option<u64>,
}

impl Places {
    /// Every place in the order of the way through them, with its name.
    pub const fn all(&self) -> [(&'static str, Option<u64>); 5] {
        [
            ("dirty", self.dirty),
            ("held", self.held),
            ("admission", self.admission),
            ("queued", self.queued),
            ("device", self.device),
        ]
    }
}

/// Times of one stage over the last window; `None` where nothing left the stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dist {
    /// How many left it.
    pub count: u64,
    /// Median in ns.
    pub p50_ns: Option<u64>,
    /// 99th percentile in ns.
    pub p99_ns: Option<u64>,
    /// Longest in ns.
    pub max_ns: Option<u64>,
    /// How many by coarse row, see `trail::row_begins_ns`.
    pub rows: [u64; ROWS],
}

/// One class on one disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassView {
    /// Which.
    pub class: Class,
    /// Issues a second over the last window.
    pub iops: f64,
    /// Completed bytes a second over the last window.
    pub bytes_per_s: f64,
    /// Part of the disk's issues in the last window, 0 to 1.
    pub share: f64,
    /// By stage: admission, queued, device.
    pub stages: [Dist; 3],
    /// In flight by stage at this tick.
    pub waiting: [u64; 3],
    /// The longest in admission or queued at this tick.
    pub oldest: Option<WaiterView>,
}

/// One owner's requests of one class on one disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnerView {
    /// Who.
    pub owner: Owner,
    /// What.
    pub class: Class,
    /// Issues a second over the last window.
    pub iops: f64,
    /// Completed bytes a second over the last window.
    pub bytes_per_s: f64,
    /// In flight by stage at this tick.
    pub waiting: [u64; 3],
    /// Mean of each stage over the last window in ns, `None` where nothing left it.
    pub mean_ns: [Option<u64>; 3],
    /// Age of the oldest in admission or queued, in ns.
    pub oldest_ns: Option<u64>,
    /// PSI, (some, full) avg10 in per cent.
    pub pressure: Option<(f64, f64)>,
}

/// One I/O in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaiterView {
    /// Who pays.
    pub owner: Owner,
    /// What kind.
    pub class: Class,
    /// Where it waits.
    pub stage: Stage,
    /// Since how long, in ns.
    pub age_ns: u64,
    /// Who submitted it.
    pub task: Option<Task>,
    /// How many passed it, a lower bound.
    pub bypasses: u64,
    /// What its task waits for, where the stack was read.
    pub waits_for: Option<WaitsFor>,
}
