//! Accounts of requests by disk and class, which must balance.

use io_starve_common::class::Class;
use serde::{Deserialize, Serialize};

use super::Model;
use super::devices::display_name;
use super::observation::{DevId, Stage};
use super::shares::{Service, Window};
use super::weights::{self, Enforcer};

/// What became of the requests of one class on one disk since attach. When nothing moves between two reads,
/// `seen` is `finished` + `merged` + `expired` + `in_flight`; under load it differs by what moved in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The disk.
    pub device: DevId,
    /// The class.
    pub class: Class,
    /// Lives begun.
    pub seen: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives given up because their end was missed.
    pub expired: u64,
    /// Queued or in the device at the last tick; bios in admission are not yet lives.
    pub in_flight: u64,
    /// Insert events.
    pub inserts: u64,
    /// Issue events.
    pub issues: u64,
    /// Requeue events.
    pub requeues: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// Longest queued stage that ended, in ns; `None` when none did.
    pub queued_max_ns: Option<u64>,
}

/// Pauses for dirty memory since attach, on one backing device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseTotal {
    /// Name of the backing device.
    pub bdi: String,
    /// Name of the disk, where it is one and known.
    pub device: Option<String>,
    /// Name of the worker, `None` for tasks that write for themselves.
    pub worker: Option<String>,
    /// How many began.
    pub count: u64,
    /// Sum of their announced lengths in ns.
    pub sum_ns: u64,
}

/// Who used a disk since attach.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareTotal {
    /// Name of the disk.
    pub device: String,
    /// What honours weights on it.
    pub enforcer: Option<Enforcer>,
    /// Something was in the device, in ns.
    pub busy_ns: u64,
    /// Nothing was, while somebody waited, in ns.
    pub idle_waited_ns: u64,
    /// How often the time up to an event went to the next one.
    pub missed: u64,
    /// Names of owners, and what they did.
    pub owners: Vec<(String, Service)>,
}

impl Model {
    /// Who used which part of a disk, by disk.
    pub fn share_totals(&self) -> Vec<ShareTotal> {
        let total = |(dev, w, missed): (DevId, &Window, u64)| {
            let device = self.devices.get(&dev);
            let owners = w.owners.iter();
            ShareTotal {
                device: display_name(dev, device),
                enforcer: device.and_then(weights::enforcer),
                busy_ns: w.busy_ns,
                idle_waited_ns: w.idle_waited_ns,
                missed,
                owners: owners.map(|(o, s)| (self.cgroups.name(*o), *s)).collect(),
            }
        };
        self.shares.totals().map(total).collect()
    }

    /// Pauses by backing device and worker, sorted.
    pub fn pause_totals(&self) -> Vec<PauseTotal> {
        let of_name = |bdi: &str| {
            let mut named = self
                .devices
                .iter()
                .filter(|(dev, _)| dev.to_string() == bdi);
            named.next().and_then(|(_, d)| d.name().map(str::to_owned))
        };
        let totals = self.dirty.totals().iter();
        totals
            .map(|((bdi, worker), (count, sum_ns))| PauseTotal {
                device: of_name(bdi),
                bdi: bdi.clone(),
                worker: worker.clone(),
                count: *count,
                sum_ns: *sum_ns,
            })
            .collect()
    }

    /// Every (disk, class) seen since attach, sorted.
    pub fn accounts(&self) -> Vec<Account> {
        let mut accounts = Vec::new();
        for (dev, device) in &self.devices {
            for (class, flow) in &device.classes {
                let t = &flow.totals;
                accounts.push(Account {
                    device: *dev,
                    class: *class,
                    seen: t.seen,
                    finished: t.finished,
                    merged: t.merged,
                    expired: t.expired,
                    in_flight: flow.now.count[Stage::Queued.index()]
                        .saturating_add(flow.now.count[Stage::Device.index()]),
                    inserts: t.inserts,
                    issues: t.issues,
                    requeues: t.requeues,
                    bytes: t.bytes,
                    queued_max_ns: t.queued_max_ns,
                });
            }
        }
        accounts
    }
}
