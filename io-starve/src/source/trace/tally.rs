//! What happened in a tick, counted as a live run counts it.

use std::collections::BTreeMap;

use io_starve_common::{class::Class, hist, wire::LossKind};

use crate::model::observation::{
    DevId, DeviceSample, GroupDelta, GroupKey, HistDelta, Observation, Owner, Stage, StageDelta,
};

/// Groups that are told apart; those beyond are summed as other owners. Only traces with owners have many.
const MAX_GROUPS: usize = 16_384;

/// Counters: groups and histograms of the present tick, disks and losses of the whole trace.
#[derive(Debug, Default)]
pub struct Tally {
    groups: BTreeMap<GroupKey, GroupDelta>,
    hists: BTreeMap<(DevId, Class, Stage), BTreeMap<u8, u64>>,
    /// When each group was last issued.
    issued: BTreeMap<GroupKey, Option<u64>>,
    devices: BTreeMap<DevId, DeviceSample>,
    moved: BTreeMap<DevId, ()>,
    loss: BTreeMap<LossKind, u64>,
}

impl Tally {
    /// The key under which a group is counted: its own while there is room.
    pub fn key(&mut self, key: GroupKey) -> GroupKey {
        if self.issued.contains_key(&key) {
            return key;
        }
        if self.issued.len() < MAX_GROUPS {
            self.issued.insert(key, None);
            return key;
        }
        self.lost(LossKind::GroupsFull, 1);
        GroupKey {
            owner: Owner::Other,
            ..key
        }
    }

    /// Counters of a group in this tick.
    pub fn group(&mut self, key: GroupKey) -> &mut GroupDelta {
        self.groups.entry(key).or_insert_with(|| GroupDelta {
            key,
            seen: 0,
            finished: 0,
            merged: 0,
            expired: 0,
            inserts: 0,
            issues: 0,
            requeues: 0,
            bytes: 0,
            stages: [StageDelta::default(); 3],
            last_issue_ns: None,
        })
    }

    /// A request was issued.
    pub fn issue(&mut self, key: GroupKey, ns: u64) {
        self.group(key).issues += 1;
        let last = self.issued.entry(key).or_default();
        *last = (*last).max(Some(ns));
        let d = self.device(key.dev);
        d.issued += 1;
        d.sync_issued += u64::from(key.class.is_sync());
        d.last_issue_ns = d.last_issue_ns.max(Some(ns));
    }

    /// A request completed, whole.
    pub fn finish(&mut self, key: GroupKey, ns: u64, bytes: u64) {
        let group = self.group(key);
        group.finished += 1;
        group.bytes = group.bytes.saturating_add(bytes);
        let d = self.device(key.dev);
        d.completed += 1;
        d.last_complete_ns = d.last_complete_ns.max(Some(ns));
    }

    /// A stage ended after so long.
    pub fn stage(&mut self, key: GroupKey, stage: Stage, ns: u64) {
        let s = &mut self.group(key).stages[stage.index()];
        s.count += 1;
        s.sum_ns = s.sum_ns.saturating_add(ns);
        s.max_ns = s.max_ns.max(ns);
        let hist = self.hists.entry((key.dev, key.class, stage)).or_default();
        *hist.entry(hist::bucket(ns) as u8).or_default() += 1;
    }

    /// Something was not seen.
    pub fn lost(&mut self, kind: LossKind, n: u64) {
        let count = self.loss.entry(kind).or_default();
        *count = count.saturating_add(n);
    }

    /// Puts the tick into an observation and begins the next one.
    pub fn drain(&mut self, o: &mut Observation) {
        for (key, mut delta) in std::mem::take(&mut self.groups) {
            delta.last_issue_ns = self.issued.get(&key).copied().flatten();
            o.groups.push(delta);
        }
        for ((dev, class, stage), buckets) in std::mem::take(&mut self.hists) {
            o.hists.push(HistDelta {
                dev,
                class,
                stage,
                buckets: buckets.into_iter().collect(),
            });
        }
        let moved = std::mem::take(&mut self.moved);
        o.devices
            .extend(moved.keys().filter_map(|dev| self.devices.get(dev)));
        o.loss = self.loss.iter().map(|(kind, n)| (*kind, *n)).collect();
    }

    fn device(&mut self, dev: DevId) -> &mut DeviceSample {
        self.moved.insert(dev, ());
        self.devices
            .entry(dev)
            .or_insert_with(|| DeviceSample::new(dev, 0))
    }
}
