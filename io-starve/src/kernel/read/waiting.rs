//! What is in flight at this moment: how much, how old, and why the oldest wait.

use std::{collections::BTreeMap, path::Path};

use io_starve_common::{
    class::Class,
    request::{F_IDLE_PRIO, F_SEEDED, FREE, ISSUED},
    wire::{B_IDLE_PRIO, RECHECK_NS},
};

use super::{
    super::{
        cgroups::Cgroups,
        stacks::{self, Stack},
        tasks::{self, Names},
    },
    tables::Tables,
};
use crate::model::observation::{
    Backlog, CgroupMode, DevId, DeviceSample, GroupKey, Owner, Pressure, Stage, Task, Waiter,
    Waiting, WaitsFor,
};

/// Waiters told for each group and stage: enough to name who waits and to sample who is served.
const TOLD: usize = 4;
/// Stacks read at a tick at most; the oldest first.
const STACKS: usize = 32;

/// Tells one wait from another: nothing else of this group entered this stage at this moment at this place.
type WaitId = (GroupKey, Stage, u64, u64);

/// What remains between ticks.
#[derive(Default)]
pub struct Scanner {
    /// Bios that were in doubt at the last tick: row, and since when it waits.
    doubt: BTreeMap<u32, u64>,
    /// For each wait that is told: how far its device had come when it was first seen, with those that waited then.
    bases: BTreeMap<WaitId, u64>,
    names: Names,
    /// How far each device had come at the last tick.
    come: BTreeMap<DevId, DeviceSample>,
}

/// What is in flight.
#[derive(Default)]
pub struct Scan {
    pub waiting: Vec<Waiting>,
    pub waiters: Vec<Waiter>,
    /// (row, since) of bios that do not wait any more.
    pub doubtful: Vec<(u32, u64)>,
}

/// Slots that hold something old enough to be checked.
pub fn old_slots(t: &Tables, now: u64) -> Vec<u32> {
    let old = |row: &u32| {
        if t.slots.state(*row) == FREE {
            return false;
        }
        let life = t.slots.read(*row).life;
        let since = if life.state == ISSUED {
            life.issue_ns
        } else {
            life.insert_ns
        };
        now.saturating_sub(since) >= RECHECK_NS
    };
    (0..t.slots.rows()).filter(old).collect()
}

type Groups = BTreeMap<GroupKey, (Waiting, [Vec<Waiter>; 3])>;

/// What the tables say at one moment.
pub struct Look {
    groups: Groups,
    /// Bios in admission, with their rows.
    bios: Vec<(u32, Waiter)>,
}

/// Reads what is in flight. In the order that I/O takes: what moves on meanwhile is found where it was or where it
/// went, so that a group that always has something waiting is never seen without.
pub(super) fn look(t: &Tables, now: u64) -> Look {
    let mut groups = Groups::new();
    let bios = bios(t, now, &mut groups);
    slots(t, now, &mut groups);
    Look { groups, bios }
}

impl Scanner {
    pub(super) fn scan(
        &mut self,
        look: Look,
        devices: &BTreeMap<DevId, DeviceSample>,
        now: u64,
    ) -> Scan {
        let Look {
            groups,
            bios: mut rows,
        } = look;
        rows.sort_by_key(|r| r.1.since_ns);
        let mut doubtful = Vec::new();
        let mut doubt = BTreeMap::new();
        let mut causes = BTreeMap::new();
        let old = rows
            .iter()
            .filter(|(_, w)| now.saturating_sub(w.since_ns) >= RECHECK_NS);
        for (row, waiter) in old.take(STACKS) {
            let Some(task) = &waiter.task else { continue };
            match stacks::stack(Path::new("/proc"), task.pid) {
                Stack::Waits(cause) => {
                    causes.insert((waiter.key, waiter.since_ns, task.pid), cause);
                }
                Stack::Submits | Stack::Unknown => {}
                Stack::Elsewhere | Stack::Gone => {
                    // What a bio waits for in admission it waits for in its task's call of submit_bio. One look may have come just
                    // before the end; at the second, before anything was said of it, it is known that the end was missed.
                    if self.doubt.get(row) == Some(&waiter.since_ns) {
                        doubtful.push((*row, waiter.since_ns));
                    } else {
                        doubt.insert(*row, waiter.since_ns);
                    }
                }
            }
        }
        self.doubt = doubt;
        let mut scan = Scan {
            doubtful,
            ..Scan::default()
        };
        let mut queued: BTreeMap<(DevId, Stage), u64> = BTreeMap::new();
        for (waiting, _) in groups.values() {
            for stage in Stage::ALL {
                *queued.entry((waiting.key.dev, stage)).or_default() +=
                    waiting.count[stage.index()];
            }
        }
        let mut bases = BTreeMap::new();
        for (waiting, waiters) in groups.into_values() {
            scan.waiting.push(waiting);
            for mut w in waiters.into_iter().flatten() {
                w.waits_for = cause(&causes, &w);
                w.task = w.task.and_then(|t| self.names.of(t.pid, now));
                let ahead = queued.get(&(w.key.dev, w.stage)).copied().unwrap_or(0);
                self.count_bypasses(&mut w, devices, ahead, &mut bases);
                scan.waiters.push(w);
            }
        }
        self.names.forget_old(now);
        self.bases = bases;
        self.come.clone_from(devices);
        scan
    }

    /// Whatever left the stage between the first tick of this wait and the last passed it, but for those that may have been
    /// there before it: a lower bound. In admission only sync issues count, whoever made them.
    fn count_bypasses(
        &self,
        w: &mut Waiter,
        devices: &BTreeMap<DevId, DeviceSample>,
        ahead: u64,
        bases: &mut BTreeMap<WaitId, u64>,
    ) {
        let come = |devices: &BTreeMap<DevId, DeviceSample>| {
            let d = devices.get(&w.key.dev)?;
            Some(match w.stage {
                Stage::Admission => d.sync_issued,
                Stage::Queued => d.issued,
                Stage::Device => d.completed,
            })
        };
        let Some(by_now) = come(devices) else { return };
        // The counters are read a moment after the waiters, when this one may have gone: those of the last tick count.
        let before = come(&self.come).unwrap_or(0);
        let ahead = if w.stage == Stage::Admission {
            0
        } else {
            ahead
        };
        let id = (w.key, w.stage, w.since_ns, w.sector);
        let base = self.bases.get(&id).copied().unwrap_or(by_now + ahead);
        bases.insert(id, base);
        w.bypasses = before.saturating_sub(base);
    }
}

fn cause(causes: &BTreeMap<(GroupKey, u64, u32), WaitsFor>, w: &Waiter) -> Option<WaitsFor> {
    let pid = w.task.as_ref()?.pid;
    (w.stage == Stage::Admission)
        .then(|| causes.get(&(w.key, w.since_ns, pid)).copied())
        .flatten()
}

fn slots(t: &Tables, now: u64, groups: &mut Groups) {
    for row in 0..t.slots.rows() {
        if t.slots.state(row) == FREE {
            continue;
        }
        let s = t.slots.read(row);
        let (stage, since_ns) = match s.life.state {
            FREE => continue,
            ISSUED => (Stage::Device, s.life.issue_ns),
            _ => (Stage::Queued, s.life.insert_ns),
        };
        // A slot that is just being written has no time yet; what began after the moment of this observation belongs to
        // the next: the reader may have been held up in between.
        if since_ns == 0 || since_ns > now {
            continue;
        }
        let Some(key) = t.group_key(s.group) else {
            continue;
        };
        let waiter = Waiter {
            key,
            stage,
            since_ns,
            task: task(s.tid),
            sector: s.sector,
            bytes: u64::from(s.life.bytes),
            bypasses: 0,
            seeded: s.life.flags & F_SEEDED != 0,
            waits_for: None,
        };
        put(groups, waiter, s.life.flags & F_IDLE_PRIO != 0);
    }
}

fn bios(t: &Tables, now: u64, groups: &mut Groups) -> Vec<(u32, Waiter)> {
    let mut rows = Vec::new();
    for row in 0..t.bios.rows() {
        if t.bios.key(row) == 0 {
            continue;
        }
        let b = t.bios.read(row);
        if b.since_ns == 0 || b.since_ns > now {
            continue;
        }
        let Some(key) = t.group_key(b.group) else {
            continue;
        };
        let waiter = Waiter {
            key,
            stage: Stage::Admission,
            since_ns: b.since_ns,
            task: task(b.tid),
            sector: b.sector,
            bytes: u64::from(b.bytes),
            bypasses: 0,
            seeded: false,
            waits_for: None,
        };
        put(groups, waiter.clone(), b.flags & B_IDLE_PRIO != 0);
        rows.push((row, waiter));
    }
    rows
}

fn put(groups: &mut Groups, waiter: Waiter, idle_prio: bool) {
    let s = waiter.stage.index();
    let (waiting, told) = groups.entry(waiter.key).or_insert_with(|| {
        let none = Waiting {
            key: waiter.key,
            count: [0; 3],
            bytes: [0; 3],
            oldest_ns: [None; 3],
            idle_prio: true,
        };
        (none, Default::default())
    });
    waiting.count[s] += 1;
    waiting.bytes[s] += waiter.bytes;
    let oldest = waiting.oldest_ns[s].map_or(waiter.since_ns, |o| o.min(waiter.since_ns));
    waiting.oldest_ns[s] = Some(oldest);
    if waiter.stage != Stage::Device {
        waiting.idle_prio &= idle_prio;
    }
    let list = &mut told[s];
    let at = list.partition_point(|w| w.since_ns <= waiter.since_ns);
    if at < TOLD {
        list.insert(at, waiter);
        list.truncate(TOLD);
    }
}

/// The idle task submits nothing: tid 0 means that the submitter was not seen. The name is found when it is to be told.
fn task(tid: u32) -> Option<Task> {
    (tid != 0).then(|| Task {
        pid: tid,
        comm: String::new(),
    })
}

/// Dirty and writeback memory behind each disk that async writes wait for, and of each owner of such writes.
pub fn backlog(waiting: &[Waiting], cgroups: &Cgroups) -> Vec<Backlog> {
    let mut all = BTreeMap::new();
    let by_cgroup = cgroups.hierarchy().map(|h| h.mode) == Some(CgroupMode::V2);
    let async_writes = waiting.iter().filter(|w| w.key.class == Class::AsyncWrite);
    for w in async_writes {
        let (dev, who) = (w.key.dev, w.key.owner);
        if let Some((dirty, writeback)) =
            tasks::disk_backlog("/sys/kernel/debug".as_ref(), &dev.to_string(), by_cgroup)
        {
            all.insert((Some(dev), None), (dirty, writeback));
        }
        if let (Owner::Cgroup(id), Some(CgroupMode::V2)) =
            (who, cgroups.hierarchy().map(|h| h.mode))
            && let Some((dirty, writeback)) =
                cgroups.dir(id).and_then(|d| tasks::cgroup_backlog(&d))
        {
            all.insert((None, Some(who)), (dirty, writeback));
        }
    }
    all.into_iter()
        .map(|((dev, owner), (dirty, writeback))| Backlog {
            dev,
            owner,
            dirty,
            writeback,
        })
        .collect()
}

/// PSI of the host and of each owner that waits.
pub fn pressure(waiting: &[Waiting], cgroups: &Cgroups) -> Vec<Pressure> {
    let mut all = Vec::new();
    if let Some((some, full)) = tasks::pressure("/proc/pressure/io".as_ref()) {
        all.push(Pressure {
            owner: None,
            some_avg10: some,
            full_avg10: full,
        });
    }
    let mut ids: Vec<u64> = waiting
        .iter()
        .filter_map(|w| match w.key.owner {
            Owner::Cgroup(id) => Some(id),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        if let Some(dir) = cgroups.dir(id)
            && let Some((some, full)) = tasks::pressure(&dir.join("io.pressure"))
        {
            all.push(Pressure {
                owner: Some(Owner::Cgroup(id)),
                some_avg10: some,
                full_avg10: full,
            });
        }
    }
    all
}
