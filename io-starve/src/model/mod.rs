//! Observations in, figures out. Pure: no clock, no file, no order that depends on a hash.
//!
//! Its whole state can be written and read back, since a recording begins with it. Everything is bounded: at most
//! [`MAX_DEVICES`] disks, [`MAX_FLOWS`] groups over all of them with 10 s of cells each, 4,096 waiters of the present tick.

use std::collections::BTreeMap;

use io_starve_common::wire::LossKind;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

pub mod accounts;
pub mod blame;
pub mod causes;
pub mod cgroups;
pub mod devices;
pub mod dirty;
pub mod filesystems;
pub mod flow;
pub mod host;
pub mod intervals;
pub mod mechanism;
pub mod minute;
pub mod observation;
pub mod pauses;
pub mod shares;
pub mod snapshot;
pub mod spans;
pub mod spent;
pub mod stacks;
pub mod syncs;
pub mod throttled;
pub mod trail;
mod views;
mod views_dirty;
mod views_journal;
mod views_places;
mod views_shares;
pub mod weights;
pub mod windows;

use blame::Blame;
use causes::Scene;
use cgroups::Cgroups;
use devices::Device;
use dirty::Dirty;
use filesystems::{Filesystems, LimitTable};
use flow::{Flow, TickEnd};
use observation::{
    CgroupMode, DevId, Fact, GroupKey, Hook, HostFact, Observation, Owner, Topic, Verdict, Waiter,
};
use shares::Shares;
use spent::Spent;
use syncs::Syncs;
use throttled::Throttled;
use weights::WeightTable;
use windows::{CellClock, Marks};

/// How many disks are followed, those that became known first. A busy one costs about 20 KiB for its histograms. What is not
/// followed counts as [`LossKind::DevicesFull`].
pub const MAX_DEVICES: usize = 512;
/// How many (disk, owner, class) are followed; those beyond are summed as [`Owner::Other`] and
/// count as [`LossKind::GroupsFull`]. A busy one costs 10 KiB at the default interval, at most 20 KiB at shorter ones.
pub const MAX_FLOWS: usize = 2_048;
/// Waiters of one tick that are kept.
const MAX_WAITERS: usize = 4_096;
/// A group that did nothing for this long is forgotten, in ns; its class keeps the totals.
const FORGET_FLOW_NS: u64 = 60_000_000_000;
/// A disk that is gone for this long is forgotten with its accounts, in ns, like the names of cgroups.
const FORGET_DEVICE_NS: u64 = 600_000_000_000;
/// Backlog and pressure that were not told again for this long are no longer believed, in ns.
const STALE_NS: u64 = 10_000_000_000;

/// A pair of PSI averages (some, full) and when it was told, ns monotonic.
type Psi = (f64, f64, u64);

/// Everything that is known at a tick.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    first_ns: Option<u64>,
    clock: CellClock,
    wall_ns: i64,
    host: Option<HostFact>,
    hooks: Vec<Hook>,
    #[serde_as(as = "Vec<(_, _)>")]
    loss: BTreeMap<LossKind, u64>,
    /// What the model itself had no room for.
    #[serde_as(as = "Vec<(_, _)>")]
    own_loss: BTreeMap<LossKind, u64>,
    losses: Marks,
    /// Disks by number.
    #[serde_as(as = "Vec<(_, _)>")]
    pub devices: BTreeMap<DevId, Device>,
    /// Names of owners.
    pub cgroups: Cgroups,
    #[serde(default)]
    filesystems: Filesystems,
    #[serde(default)]
    limits: LimitTable,
    #[serde_as(as = "Vec<(_, _)>")]
    owner_backlog: BTreeMap<Owner, (u64, u64)>,
    #[serde_as(as = "Vec<(_, _)>")]
    pressure: BTreeMap<Option<Owner>, Psi>,
    waiters: Vec<Waiter>,
    syncs: Syncs,
    #[serde(default)]
    dirty: Dirty,
    blame: Blame,
    #[serde(default)]
    throttled: Throttled,
    #[serde(default)]
    weights: WeightTable,
    #[serde(default)]
    shares: Shares,
    flows: usize,
    #[serde(default)]
    spent: Spent,
}

impl Model {
    /// The present tick, ns monotonic; 0 before the first observation.
    pub fn now_ns(&self) -> u64 {
        self.clock.to_ns
    }

    /// The first observation, ns monotonic; the present tick before there was one.
    pub fn first_ns(&self) -> u64 {
        self.first_ns.unwrap_or(self.clock.to_ns)
    }

    /// The oldest in flight at this tick, a few for each group and stage.
    pub fn waiters(&self) -> &[Waiter] {
        &self.waiters
    }

    /// Losses since attach, only kinds above 0.
    pub fn loss(&self) -> Vec<(LossKind, u64)> {
        let of = |kind: LossKind| {
            let count = |from: &BTreeMap<LossKind, u64>| from.get(&kind).copied().unwrap_or(0);
            (
                kind,
                count(&self.loss).saturating_add(count(&self.own_loss)),
            )
        };
        LossKind::ALL
            .into_iter()
            .map(of)
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Sum of all losses since attach.
    pub fn loss_total(&self) -> u64 {
        self.loss()
            .iter()
            .fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Sum of all losses at a moment of the last 10 s, or at the oldest one known after it.
    pub fn loss_at(&self, ns: u64) -> u64 {
        self.losses.at_or_before(ns).unwrap_or(0)
    }

    /// Every hook with its verdict.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Questions that nobody can answer because a hook was refused. A hook that this kernel does not have, or that nothing
    /// needs, takes no answer away: another hook gives it.
    pub fn missing_questions(&self, topic: Topic) -> Vec<String> {
        self.hooks
            .iter()
            .filter(|h| h.topic == topic || h.topic == Topic::Requests)
            .filter(|h| matches!(h.verdict, Verdict::Refused { .. }) && !h.question.is_empty())
            .map(|h| h.question.clone())
            .collect()
    }

    /// Dirty and writeback bytes of an owner over all disks, where that was told of late.
    pub fn owner_backlog(&self, owner: Owner) -> Option<u64> {
        self.fresh(self.owner_backlog.get(&owner).copied())
    }

    /// Dirty and writeback bytes behind a disk, where that was told of late.
    pub fn device_backlog(&self, device: &Device) -> Option<u64> {
        self.fresh(device.backlog)
    }

    fn fresh(&self, told: Option<(u64, u64)>) -> Option<u64> {
        told.filter(|(_, at)| self.now_ns().saturating_sub(*at) <= STALE_NS)
            .map(|(bytes, _)| bytes)
    }

    /// The host, once its fact was seen.
    pub fn host(&self) -> Option<&HostFact> {
        self.host.as_ref()
    }

    /// fsyncs and journals.
    pub fn syncs(&self) -> &Syncs {
        &self.syncs
    }

    /// Pauses for dirty memory, and loop devices.
    pub fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// Who kept whom waiting in the last minute.
    pub fn blame(&self) -> &Blame {
        &self.blame
    }

    /// The same, for whoever finds more of it.
    pub fn blame_mut(&mut self) -> &mut Blame {
        &mut self.blame
    }

    /// Takes in one observation. One that is not later than the last only adds its counters: time never runs backwards here.
    pub fn apply(&mut self, o: &Observation) {
        let before = self.clock.to_ns;
        let now = o.mono_ns.max(before);
        let dt_ns = match self.first_ns {
            Some(_) => now - before,
            None => {
                self.first_ns = Some(now);
                self.clock = CellClock {
                    from_ns: now,
                    to_ns: now,
                };
                0
            }
        };
        self.clock.advance(now);
        self.wall_ns = o.wall_ns;
        for fact in &o.facts {
            self.learn(fact);
        }
        self.take_counters(o);
        self.take_in_flight(o);
        self.end_tick(dt_ns);
        self.take_waiters(o);
        self.throttled.take(&o.holds, self.now_ns(), dt_ns);
        for hold in &o.holds {
            if let Some(device) = self.devices.get_mut(&hold.dev) {
                device.trail.wait(now, now.saturating_sub(hold.since_ns));
            }
        }
        self.take_syncs(o);
        self.take_dirty(o, before, now);
        if dt_ns > 0 {
            self.shares.take(o, before, now);
        }
        self.spent.take(now, o.own_cpu_ns);
        self.forget();
    }

    fn learn(&mut self, fact: &Fact) {
        let now = self.now_ns();
        match fact {
            Fact::Host(host) => self.host = Some(host.clone()),
            Fact::Hooks { hooks } => self.hooks.clone_from(hooks),
            Fact::Device(fact) => {
                if let Some(device) = self.device_mut(fact.dev) {
                    device.fact = Some(fact.clone());
                    device.gone_ns = None;
                }
            }
            Fact::DeviceGone { dev } => {
                if let Some(device) = self.devices.get_mut(dev) {
                    device.gone_ns.get_or_insert(now);
                }
            }
            Fact::Cgroup(fact) => self.cgroups.learn(fact),
            Fact::CgroupGone { id } => self.cgroups.gone(*id, now),
            Fact::Filesystem(fact) => self.filesystems.learn(fact),
            Fact::Partition { dev, disk } => self.filesystems.learn_partition(*dev, *disk),
            Fact::FilesystemGone { dev } => self.filesystems.gone(*dev, now),
            Fact::Limits(fact) => self.limits.learn(fact),
            Fact::Weights(fact) => self.weights.learn(fact),
            Fact::Loop(fact) => self.dirty.learn_loop(fact),
            Fact::LoopGone { dev } => self.dirty.loop_gone(*dev, now),
        }
    }

    fn device_mut(&mut self, dev: DevId) -> Option<&mut Device> {
        if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&dev) {
            return None;
        }
        Some(self.devices.entry(dev).or_default())
    }

    /// The owner's and the class's flow of a group.
    fn flows_mut(&mut self, key: GroupKey) -> Option<(&mut Flow, &mut Flow)> {
        if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&key.dev) {
            *self.own_loss.entry(LossKind::DevicesFull).or_default() += 1;
            return None;
        }
        let device = self.devices.entry(key.dev).or_default();
        let mut id = (key.owner, key.class);
        if !device.owners.contains_key(&id) {
            if self.flows >= MAX_FLOWS && key.owner != Owner::Other {
                *self.own_loss.entry(LossKind::GroupsFull).or_default() += 1;
                id.0 = Owner::Other;
            }
            if !device.owners.contains_key(&id) {
                self.flows += 1;
            }
        }
        let owner = device.owners.entry(id).or_default();
        Some((owner, device.classes.entry(key.class).or_default()))
    }

    fn take_counters(&mut self, o: &Observation) {
        // In flight is that of the previous tick until it is told anew.
        let clock = self.clock;
        let mut was_in_device = Vec::with_capacity(o.groups.len());
        for d in &o.groups {
            let device = self.devices.get(&d.key.dev);
            let owner = device.and_then(|v| v.owners.get(&(d.key.owner, d.key.class)));
            let class = device.and_then(|v| v.classes.get(&d.key.class));
            was_in_device.push([owner, class].map(|f| f.map_or(0, |f| f.now.count[2])));
        }
        for device in self.devices.values_mut() {
            device.owners.values_mut().for_each(Flow::begin_tick);
            device.classes.values_mut().for_each(Flow::begin_tick);
        }
        for (d, was) in o.groups.iter().zip(was_in_device) {
            if let Some((owner, class)) = self.flows_mut(d.key) {
                owner.add(d, clock, was[0]);
                class.add(d, clock, was[1]);
            }
        }
        for h in &o.hists {
            if let Some(device) = self.device_mut(h.dev) {
                let window = device.hists.entry((h.class, h.stage)).or_default();
                window.add(clock.to_ns, &h.buckets);
                device.trail.add(clock.to_ns, h.stage, &h.buckets);
            }
        }
        for s in &o.devices {
            if let Some(device) = self.device_mut(s.dev) {
                device.sample(s);
            }
        }
        for (kind, total) in &o.loss {
            self.loss.insert(*kind, *total);
        }
        let total = self.loss_total();
        self.losses.note(clock, total);
        for b in &o.backlog {
            let bytes = b.dirty.saturating_add(b.writeback);
            match (b.dev, b.owner) {
                (Some(dev), None) => {
                    if let Some(device) = self.device_mut(dev) {
                        device.backlog = Some((bytes, clock.to_ns));
                    }
                }
                (_, Some(owner)) => {
                    if self.owner_backlog.len() < MAX_FLOWS
                        || self.owner_backlog.contains_key(&owner)
                    {
                        self.owner_backlog.insert(owner, (bytes, clock.to_ns));
                    }
                }
                (None, None) => {}
            }
        }
        for p in &o.pressure {
            if self.pressure.len() < MAX_FLOWS || self.pressure.contains_key(&p.owner) {
                self.pressure
                    .insert(p.owner, (p.some_avg10, p.full_avg10, clock.to_ns));
            }
        }
    }

    fn take_in_flight(&mut self, o: &Observation) {
        let clock = self.clock;
        for w in &o.waiting {
            if let Some((owner, class)) = self.flows_mut(w.key) {
                owner.add_waiting(w, clock);
                class.add_waiting(w, clock);
            }
        }
    }

    fn end_tick(&mut self, dt_ns: u64) {
        let tick = TickEnd {
            clock: self.clock,
            dt_ns,
            first_ns: self.first_ns(),
        };
        for device in self.devices.values_mut() {
            device.end_tick(tick.clock);
            let (issued, issues) = (&device.issued, device.sample.map_or(0, |s| s.issued));
            let since = |ns| issued.at_or_after(ns).unwrap_or(issues);
            for flow in device
                .owners
                .values_mut()
                .chain(device.classes.values_mut())
            {
                flow.end_tick(tick, since);
            }
        }
    }

    fn take_waiters(&mut self, o: &Observation) {
        let clock = self.clock;
        for w in &o.waiters {
            let Some(device) = self.devices.get_mut(&w.key.dev) else {
                continue;
            };
            if let Some(flow) = device.owners.get_mut(&(w.key.owner, w.key.class)) {
                flow.see(w, clock);
            }
            if let Some(flow) = device.classes.get_mut(&w.key.class) {
                flow.see(w, clock);
            }
        }
        self.waiters.clear();
        self.waiters
            .extend(o.waiters.iter().take(MAX_WAITERS).cloned());
    }

    fn take_syncs(&mut self, o: &Observation) {
        let now = self.now_ns();
        self.syncs.take_journals(o);
        self.blame.prune(now);
        if o.fsyncs.is_empty() {
            self.syncs.nobody_syncs();
            return;
        }
        let phases = self.hooks.iter().any(|h| {
            h.name == "jbd2_log_wait_commit" && matches!(h.verdict, Verdict::Attached { .. })
        });
        let scene = Scene {
            now,
            devices: &self.devices,
            filesystems: &self.filesystems,
            commits: self.syncs.commits().clone(),
            holds: self.syncs.holds().to_vec(),
            handles: self.syncs.handles().cloned().collect(),
            checkpoints: &o.checkpoints,
            holders: &o.holders,
            fsyncs: &o.fsyncs,
            waiters: &self.waiters,
            phases,
            v1: self
                .host
                .as_ref()
                .is_some_and(|h| h.cgroups == CgroupMode::V1),
        };
        for (edge, ns) in self.syncs.take_fsyncs(&o.fsyncs, &scene, now) {
            self.blame.add(now, edge, ns);
        }
    }

    fn forget(&mut self) {
        let now = self.now_ns();
        self.cgroups.prune(now);
        self.filesystems.prune(now);
        self.devices.retain(|_, d| {
            d.gone_ns
                .is_none_or(|gone| now.saturating_sub(gone) < FORGET_DEVICE_NS)
        });
        for device in self.devices.values_mut() {
            device
                .owners
                .retain(|_, f| !f.idle_for(now, FORGET_FLOW_NS));
        }
        self.flows = self.devices.values().map(|d| d.owners.len()).sum();
        self.owner_backlog
            .retain(|_, (_, at)| now.saturating_sub(*at) <= STALE_NS);
        self.pressure
            .retain(|_, (_, _, at)| now.saturating_sub(*at) <= STALE_NS);
    }
}

#[cfg(test)]
mod tests;
