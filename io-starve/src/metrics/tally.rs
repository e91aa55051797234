//! Counters since the start, from observations. Pure.

use std::collections::{BTreeMap, VecDeque};

use io_starve_common::class::Class;

use super::{
    BUCKETS, bucket_of,
    owners::{Counts, OTHER, Owners},
};
use crate::model::observation::{DevId, Fact, Hold, Observation, Owner, Stage};

/// Series that are there whatever the machine does: findings, mechanisms, losses, hooks, outputs, the process.
const FIXED: usize = 200;
/// Series of an owner with a place.
const PER_OWNER: usize = 7;
/// Series of a stage's histogram.
const PER_HISTOGRAM: usize = BUCKETS + 2;
/// Series that a busy disk is expected to have: three classes with two stages, and its counters.
const PER_DISK: usize = 6 * PER_HISTOGRAM + 18;
/// Series of all disks without a place together, all classes and stages.
const OTHER_DISKS: usize = 18 * PER_HISTOGRAM + 24;
/// Names of filesystems and of backing devices that are told apart.
const NAMES: usize = 32;
/// Cgroups that are gone and whose names are kept, because what they wrote is still on its way.
const DEAD: usize = 1_024;
/// How an owner is called whose path is not known.
const UNNAMED: &str = "unnamed";

/// Requests of a class on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// How many ended.
    pub finished: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Age of the oldest in admission or queued at the last tick, in ns.
    pub oldest_ns: u64,
}

/// How many, and how long together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Nanoseconds.
    pub ns: u64,
}

/// Times of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// By bucket of [`super::upper_bound`].
    pub counts: [u64; BUCKETS],
    /// Sum in ns.
    pub sum_ns: u64,
}

/// What was counted.
#[derive(Debug, Clone)]
pub struct Tally {
    /// By disk, class and stage.
    pub times: BTreeMap<(String, Class, Stage), Times>,
    /// By disk and class.
    pub requests: BTreeMap<(String, Class), Requests>,
    /// Time in which a limit held something, by disk, in ns.
    pub holds: BTreeMap<String, u64>,
    /// Pauses for dirty memory by backing device and worker.
    pub pauses: BTreeMap<(String, String), Sum>,
    /// Ended fsyncs by mount point.
    pub fsyncs: BTreeMap<String, Sum>,
    /// Owners.
    pub owners: Owners,
    /// Age of the oldest in admission or queued at the last tick, of owners with a place, in ns.
    pub oldest: BTreeMap<String, u64>,
    /// Observations taken in.
    pub ticks: u64,
    /// Series that histograms of disks may have.
    disk_series: usize,
    disks: BTreeMap<DevId, Disk>,
    cgroups: BTreeMap<u64, String>,
    dead: VecDeque<u64>,
    mounts: BTreeMap<DevId, String>,
    last_ns: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Disk {
    name: String,
    /// Series of its own; `None` until it had I/O.
    placed: Option<bool>,
}

impl Tally {
    /// Nothing counted, for at most so many series.
    pub fn new(max_series: usize) -> Tally {
        let rest = max_series.saturating_sub(FIXED + NAMES * 6);
        // Disks get what owners leave; a quarter is enough to see who waits.
        let owner_series = rest / 4;
        Tally {
            times: BTreeMap::new(),
            requests: BTreeMap::new(),
            holds: BTreeMap::new(),
            pauses: BTreeMap::new(),
            fsyncs: BTreeMap::new(),
            owners: Owners::new((owner_series / PER_OWNER).saturating_sub(1)),
            oldest: BTreeMap::new(),
            ticks: 0,
            disk_series: (rest - owner_series).saturating_sub(OTHER_DISKS),
            disks: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            dead: VecDeque::new(),
            mounts: BTreeMap::new(),
            last_ns: None,
        }
    }

    /// Takes in an observation.
    pub fn take(&mut self, o: &Observation) {
        self.ticks += 1;
        let dt_ns = self
            .last_ns
            .map_or(0, |last| o.mono_ns.saturating_sub(last));
        self.last_ns = Some(o.mono_ns);
        for fact in &o.facts {
            self.learn(fact);
        }
        let mut owners: BTreeMap<Owner, (Counts, u64)> = BTreeMap::new();
        self.take_groups(o, dt_ns, &mut owners);
        self.take_holds(&o.holds, dt_ns, &mut owners);
        for p in &o.pause_counts {
            let bdi = self.disk_named(&p.bdi);
            let worker = p.worker.clone().unwrap_or_default();
            let key = known_or_other(
                &self.pauses,
                (bdi, worker),
                (OTHER.to_owned(), String::new()),
            );
            add(self.pauses.entry(key).or_default(), p.count, p.sum_ns);
            owners.entry(p.owner).or_default().0.pause_ns += p.sum_ns;
        }
        for f in &o.fsync_counts {
            let mount = self.mounts.get(&f.fs).cloned();
            let mount = mount.unwrap_or_else(|| UNNAMED.to_owned());
            let key = known_or_other(&self.fsyncs, mount, OTHER.to_owned());
            add(self.fsyncs.entry(key).or_default(), f.count, f.sum_ns);
        }
        for (owner, (counts, waited_ns)) in owners {
            let name = self.owner_name(owner);
            self.owners.add(&name, &counts, waited_ns);
        }
        self.take_oldest(o);
    }

    /// Lets owners that wait more have series of their own; to be called now and then.
    pub fn settle(&mut self) {
        self.owners.settle(self.last_ns.unwrap_or(0));
    }

    fn take_groups(
        &mut self,
        o: &Observation,
        dt_ns: u64,
        owners: &mut BTreeMap<Owner, (Counts, u64)>,
    ) {
        for g in &o.groups {
            let disk = self.disk(g.key.dev);
            let requests = self
                .requests
                .entry((disk.clone(), g.key.class))
                .or_default();
            requests.finished = requests.finished.saturating_add(g.finished);
            requests.bytes = requests.bytes.saturating_add(g.bytes);
            let (counts, waited_ns) = owners.entry(g.key.owner).or_default();
            let [admission, queued, _] = g.stages.map(|s| s.sum_ns);
            counts.finished += g.finished;
            counts.bytes += g.bytes;
            counts.admission_ns = counts.admission_ns.saturating_add(admission);
            counts.queued_ns = counts.queued_ns.saturating_add(queued);
            *waited_ns = waited_ns.saturating_add(admission).saturating_add(queued);
            for stage in Stage::ALL {
                let delta = g.stages[stage.index()];
                if delta.count > 0 {
                    let times = self.times_of(&disk, g.key.class, stage);
                    times.sum_ns = times.sum_ns.saturating_add(delta.sum_ns);
                }
            }
        }
        // What never ends must count too, or the one that starves has waited for nothing.
        for w in &o.waiting {
            let waits = w.count[Stage::Admission.index()] + w.count[Stage::Queued.index()];
            let (_, waited_ns) = owners.entry(w.key.owner).or_default();
            *waited_ns = waited_ns.saturating_add(waits.saturating_mul(dt_ns));
        }
        for h in &o.hists {
            let disk = self.disk(h.dev);
            let times = self.times_of(&disk, h.class, h.stage);
            for (fine, n) in &h.buckets {
                let count = &mut times.counts[bucket_of(*fine)];
                *count = count.saturating_add(*n);
            }
        }
    }

    fn take_holds(
        &mut self,
        holds: &[Hold],
        dt_ns: u64,
        owners: &mut BTreeMap<Owner, (Counts, u64)>,
    ) {
        let mut disks: Vec<DevId> = holds.iter().map(|h| h.dev).collect();
        disks.dedup();
        for dev in disks {
            let disk = self.disk(dev);
            *self.holds.entry(disk).or_default() += dt_ns;
        }
        let mut groups: Vec<Owner> = holds.iter().map(|h| h.group).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            owners.entry(group).or_default().0.hold_ns += dt_ns;
        }
    }

    fn take_oldest(&mut self, o: &Observation) {
        self.oldest.clear();
        for requests in self.requests.values_mut() {
            requests.oldest_ns = 0;
        }
        for w in &o.waiting {
            let since = w.oldest_ns[..2].iter().flatten().min();
            let Some(age) = since.map(|since| o.mono_ns.saturating_sub(*since)) else {
                continue;
            };
            let disk = self.disk(w.key.dev);
            let requests = self.requests.entry((disk, w.key.class)).or_default();
            requests.oldest_ns = requests.oldest_ns.max(age);
            let name = self.owner_name(w.key.owner);
            if self.owners.has(&name) {
                let oldest = self.oldest.entry(name).or_default();
                *oldest = age.max(*oldest);
            }
        }
    }

    fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Device(d) => self
                .disks
                .entry(d.dev)
                .or_default()
                .name
                .clone_from(&d.name),
            Fact::DeviceGone { dev } => {
                if let Some(disk) = self.disks.remove(dev) {
                    self.times.retain(|(name, ..), _| *name != disk.name);
                    self.requests.retain(|(name, _), _| *name != disk.name);
                    self.holds.remove(&disk.name);
                }
            }
            Fact::Cgroup(c) => {
                self.cgroups.insert(c.id, c.path.clone());
            }
            Fact::CgroupGone { id } => {
                self.dead.push_back(*id);
                while self.dead.len() > DEAD {
                    if let Some(id) = self.dead.pop_front() {
                        self.cgroups.remove(&id);
                    }
                }
            }
            Fact::Filesystem(f) => {
                self.mounts.insert(f.dev, f.mountpoint.clone());
            }
            Fact::FilesystemGone { dev } => {
                self.mounts.remove(dev);
            }
            Fact::Host(_)
            | Fact::Hooks { .. }
            | Fact::Limits(_)
            | Fact::Loop(_)
            | Fact::LoopGone { .. }
            | Fact::Partition { .. }
            | Fact::Weights(_) => {}
        }
    }

    /// The histogram of a stage, that of all other disks when a disk turns out to do more than was expected of it.
    fn times_of(&mut self, disk: &str, class: Class, stage: Stage) -> &mut Times {
        let mut key = (disk.to_owned(), class, stage);
        let used = (self.times.len() + 1) * PER_HISTOGRAM + self.requests.len() * 3;
        if used > self.disk_series && !self.times.contains_key(&key) {
            OTHER.clone_into(&mut key.0);
        }
        self.times.entry(key).or_default()
    }

    /// What a disk is called in labels. The first disks with I/O have series of their own, as far as there are any left.
    fn disk(&mut self, dev: DevId) -> String {
        let used = self.times.len() * PER_HISTOGRAM + self.requests.len() * 3;
        let places = self
            .disks
            .values()
            .filter(|d| d.placed == Some(true))
            .count();
        let fits = used.max(places * PER_DISK) + PER_DISK <= self.disk_series;
        let disk = self.disks.entry(dev).or_default();
        if disk.name.is_empty() {
            disk.name = UNNAMED.to_owned();
        }
        match *disk.placed.get_or_insert(fits) {
            true => disk.name.clone(),
            false => OTHER.to_owned(),
        }
    }

    /// A backing device by the name of its disk, where it is one.
    fn disk_named(&self, bdi: &str) -> String {
        let named = self.disks.iter().find(|(dev, _)| dev.to_string() == bdi);
        named.map_or_else(|| bdi.to_owned(), |(_, disk)| disk.name.clone())
    }

    fn owner_name(&self, owner: Owner) -> String {
        let name = match owner {
            Owner::Cgroup(id) => self.cgroups.get(&id).map_or(UNNAMED, String::as_str),
            Owner::Task(_) | Owner::Unknown => "unknown",
            Owner::Other => OTHER,
        };
        name.to_owned()
    }
}

fn add(sum: &mut Sum, count: u64, ns: u64) {
    sum.count = sum.count.saturating_add(count);
    sum.ns = sum.ns.saturating_add(ns);
}

/// A key that is there or for which there is room, else that of all others.
fn known_or_other<K: Ord, V>(map: &BTreeMap<K, V>, key: K, other: K) -> K {
    match map.contains_key(&key) || map.len() < NAMES {
        true => key,
        false => other,
    }
}
