//! What is in flight at a tick: how much, how old, and who was passed.
//!
//! The rules are those of a live run (kernel/read/waiting.rs), because the detectors are made for them: a few of the oldest are told for
//! each group and stage, and bypasses are counted from the first tick at which one was told, as a lower bound.

use std::collections::BTreeMap;

use io_starve_common::request::{F_IDLE_PRIO, F_SEEDED};

use super::{
    event::Comm,
    requests::{Disk, Requests},
};
use crate::model::{
    flow::earlier,
    observation::{GroupKey, Observation, Stage, Task, Waiter, Waiting},
};

/// Waiters told for each group and stage, as in a live run.
const TOLD: usize = 4;

/// Tells one wait from another: group, stage, since when, where.
type WaitId = (GroupKey, Stage, u64, u64);

/// What remains between ticks.
#[derive(Debug, Default)]
pub struct Look {
    /// For each wait that is told: how far its disk had come when it was first told, with those that waited then.
    bases: BTreeMap<WaitId, u64>,
}

/// One in flight, of whichever kind.
struct InFlight {
    key: GroupKey,
    stage: Stage,
    since_ns: u64,
    sector: u64,
    bytes: u64,
    idle_prio: bool,
    seeded: bool,
    tid: u32,
    comm: Comm,
}

impl Look {
    /// Adds what is in flight to an observation.
    pub fn at(&mut self, requests: &Requests, o: &mut Observation) {
        let mut bases = BTreeMap::new();
        for disk in requests.disks.values().filter(|d| d.has_requests()) {
            let mut all = in_flight(disk);
            all.sort_by_key(|i| (i.key, i.stage, i.since_ns, i.sector));
            let mut there = [0u64; 3];
            for i in &all {
                there[i.stage.index()] += 1;
            }
            for group in all.chunk_by(|a, b| a.key == b.key) {
                o.waiting.push(sum(group));
                for stage in group.chunk_by(|a, b| a.stage == b.stage) {
                    for i in stage.iter().take(TOLD) {
                        // In admission sync issues count, whoever makes them; elsewhere those that waited before it do not.
                        let (come, ahead) = match i.stage {
                            Stage::Admission => (disk.sync_issued, 0),
                            Stage::Queued => (disk.left_queue, there[1]),
                            Stage::Device => (disk.completed, there[2]),
                        };
                        let id = (i.key, i.stage, i.since_ns, i.sector);
                        let base = self.bases.get(&id).copied().unwrap_or(come + ahead);
                        bases.insert(id, base);
                        o.waiters.push(i.waiter(come.saturating_sub(base)));
                    }
                }
            }
        }
        self.bases = bases;
        o.waiting.sort_by_key(|w| w.key);
    }
}

fn in_flight(disk: &Disk) -> Vec<InFlight> {
    let mut all = Vec::with_capacity(disk.queued.len() + disk.issued.len());
    for ((sector, _), bio) in disk.bios.waiting() {
        all.push(InFlight {
            key: bio.key,
            stage: Stage::Admission,
            since_ns: bio.since_ns,
            sector: *sector,
            bytes: bio.sectors.saturating_mul(512),
            idle_prio: bio.idle_prio,
            seeded: false,
            tid: bio.tid,
            comm: bio.comm,
        });
    }
    for (stage, places) in [(Stage::Queued, &disk.queued), (Stage::Device, &disk.issued)] {
        for r in places.values() {
            let since_ns = match stage {
                // One whose insert was not seen waits since it was issued, before it was given back.
                Stage::Queued if r.life.insert_ns != 0 => r.life.insert_ns,
                _ => r.life.issue_ns,
            };
            all.push(InFlight {
                key: r.key,
                stage,
                since_ns,
                sector: r.sector,
                bytes: r.sectors.saturating_mul(512),
                idle_prio: r.life.flags & F_IDLE_PRIO != 0,
                seeded: r.life.flags & F_SEEDED != 0,
                tid: r.tid,
                comm: r.comm,
            });
        }
    }
    all
}

impl InFlight {
    fn waiter(&self, bypasses: u64) -> Waiter {
        Waiter {
            key: self.key,
            stage: self.stage,
            since_ns: self.since_ns,
            task: (self.tid != 0).then(|| Task {
                pid: self.tid,
                comm: self.comm.text(),
            }),
            sector: self.sector,
            bytes: self.bytes,
            bypasses,
            seeded: self.seeded,
            waits_for: None,
        }
    }
}

fn sum(group: &[InFlight]) -> Waiting {
    let mut w = Waiting {
        key: group[0].key,
        count: [0; 3],
        bytes: [0; 3],
        oldest_ns: [None; 3],
        idle_prio: true,
    };
    for i in group {
        let s = i.stage.index();
        w.count[s] += 1;
        w.bytes[s] = w.bytes[s].saturating_add(i.bytes);
        w.oldest_ns[s] = earlier(w.oldest_ns[s], Some(i.since_ns));
        if i.stage != Stage::Device {
            w.idle_prio &= i.idle_prio;
        }
    }
    w
}
