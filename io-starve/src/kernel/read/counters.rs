//! Counters as differences: group rows, histograms, device rows.

use std::collections::BTreeMap;

use io_starve_common::{
    class::Class,
    hist,
    wire::{
        EPOCH_SHIFT, GroupRow, OWNER_OTHER, OWNER_UNKNOWN, STAGES, dev_of_key, dev_row_of_low,
        group_row, hist_row, unpack_max,
    },
};

use super::Tables;
use crate::model::observation::{
    DevId, DeviceSample, GroupDelta, GroupKey, HistDelta, Owner, Stage, StageDelta,
};

/// What was last read.
#[derive(Default)]
pub struct Counters {
    groups: BTreeMap<GroupKey, Sum>,
    hists: BTreeMap<(u32, Class, Stage), [u32; hist::BUCKETS]>,
    devices: BTreeMap<DevId, DeviceSample>,
    at_ns: u64,
}

/// What moved.
pub struct Read {
    pub groups: Vec<GroupDelta>,
    pub hists: Vec<HistDelta>,
    pub devices: Vec<DeviceSample>,
}

/// One group over all of its shards.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    dev_row: u32,
    seen: u64,
    finished: u64,
    merged: u64,
    expired: u64,
    inserts: u64,
    issues: u64,
    requeues: u64,
    bytes: u64,
    stage_ns: [u64; STAGES],
    stage_count: [u64; STAGES],
    max_ns: [u64; STAGES],
    last_issue_ns: u64,
    last_complete_ns: u64,
}

impl Sum {
    fn add(&mut self, row: &GroupRow, since_ns: u64) {
        self.seen += row.inserted + row.direct + row.seeded;
        self.finished += row.finished;
        self.merged += row.merged;
        self.expired += row.expired;
        self.inserts += row.inserted + row.reinserts;
        self.issues += row.issues;
        self.requeues += row.requeues;
        self.bytes += row.bytes;
        let device = row.finished.saturating_sub(row.unissued);
        let stages = [
            (row.admitted, row.admission_ns, row.admission_max),
            (row.queued, row.queued_ns, row.queued_max),
            (device, row.device_ns, row.device_max),
        ];
        for (s, (count, ns, longest)) in stages.into_iter().enumerate() {
            self.stage_ns[s] += ns;
            self.stage_count[s] += count;
            for (epoch, max_ns) in longest.map(unpack_max) {
                // Only epochs that had not ended when the last observation was made can hold something new.
                if (epoch + 1) << EPOCH_SHIFT > since_ns {
                    self.max_ns[s] = self.max_ns[s].max(max_ns);
                }
            }
        }
        self.last_issue_ns = self.last_issue_ns.max(row.last_issue_ns);
        self.last_complete_ns = self.last_complete_ns.max(row.last_complete_ns);
    }

    fn moved(&self, before: &Sum) -> bool {
        let counters = |s: &Sum| {
            let ends = (s.finished, s.merged, s.expired, s.stage_count);
            (s.seen, s.inserts, s.issues, s.requeues, ends)
        };
        counters(self) != counters(before)
    }

    fn delta(&self, key: GroupKey, before: &Sum) -> GroupDelta {
        // Counters only grow; a row read in the middle of an update may be one behind, never negative.
        let d = |now: u64, then: u64| now.saturating_sub(then);
        GroupDelta {
            key,
            seen: d(self.seen, before.seen),
            finished: d(self.finished, before.finished),
            merged: d(self.merged, before.merged),
            expired: d(self.expired, before.expired),
            inserts: d(self.inserts, before.inserts),
            issues: d(self.issues, before.issues),
            requeues: d(self.requeues, before.requeues),
            bytes: d(self.bytes, before.bytes),
            stages: std::array::from_fn(|s| {
                let count = d(self.stage_count[s], before.stage_count[s]);
                StageDelta {
                    count,
                    sum_ns: d(self.stage_ns[s], before.stage_ns[s]),
                    max_ns: if count == 0 { 0 } else { self.max_ns[s] },
                }
            }),
            last_issue_ns: seen_at(self.last_issue_ns),
        }
    }
}

/// A stamp of 0 means that it never happened.
fn seen_at(ns: u64) -> Option<u64> {
    (ns != 0).then_some(ns)
}

impl Counters {
    pub(super) fn read(&mut self, t: &Tables, mono_ns: u64) -> Read {
        let now = sums(t, self.at_ns);
        self.at_ns = mono_ns;
        let mut groups = Vec::new();
        let mut hists = Vec::new();
        let mut touched = BTreeMap::new();
        for (key, sum) in &now {
            let before = self.groups.get(key).copied().unwrap_or_default();
            if sum.moved(&before) {
                groups.push(sum.delta(*key, &before));
                touched.insert((sum.dev_row, key.class), key.dev);
            }
        }
        self.groups = now;
        for ((dev_row, class), dev) in touched {
            for stage in Stage::ALL {
                let buckets = self.hist(t, dev_row, class, stage);
                if !buckets.is_empty() {
                    hists.push(HistDelta {
                        dev,
                        class,
                        stage,
                        buckets,
                    });
                }
            }
        }
        hists.sort_by_key(|h| (h.dev, h.class, h.stage));
        Read {
            groups,
            hists,
            devices: self.devices(t),
        }
    }

    fn hist(&mut self, t: &Tables, dev_row: u32, class: Class, stage: Stage) -> Vec<(u8, u64)> {
        let shards = t.hists.rows() / (t.devs.rows() * Class::COUNT as u32 * STAGES as u32);
        let mut sum = [0u32; hist::BUCKETS];
        for shard in 0..shards {
            let at = hist_row(
                dev_row,
                class as u8,
                stage.index() as u32,
                shard,
                shards - 1,
            );
            for (to, from) in sum.iter_mut().zip(t.hists.read(at).counts) {
                *to = to.wrapping_add(from);
            }
        }
        let before = self
            .hists
            .entry((dev_row, class, stage))
            .or_insert([0; hist::BUCKETS]);
        let buckets = (0u8..)
            .zip(sum.iter().zip(before.iter()))
            .map(|(i, (now, then))| (i, u64::from(now.wrapping_sub(*then))))
            .filter(|(_, n)| *n > 0)
            .collect();
        *before = sum;
        buckets
    }

    /// A device's counters are the sums of its groups.
    fn devices(&mut self, t: &Tables) -> Vec<DeviceSample> {
        let mut now: BTreeMap<DevId, DeviceSample> = BTreeMap::new();
        for row in 0..t.devs.rows() {
            let key = t.devs.key(row);
            if key != 0 {
                let dev = DevId(dev_of_key(key));
                let tag_waits = t.devs.read(row).tag_waits;
                now.insert(dev, DeviceSample::new(dev, tag_waits));
            }
        }
        for (key, sum) in &self.groups {
            let Some(d) = now.get_mut(&key.dev) else {
                continue;
            };
            d.issued += sum.issues;
            if key.class.is_sync() {
                d.sync_issued += sum.issues;
            }
            d.completed += sum.finished;
            d.last_issue_ns = d.last_issue_ns.max(seen_at(sum.last_issue_ns));
            d.last_complete_ns = d.last_complete_ns.max(seen_at(sum.last_complete_ns));
        }
        let moved = now
            .iter()
            .filter(|(dev, sample)| self.devices.get(dev) != Some(*sample))
            .map(|(_, sample)| *sample)
            .collect();
        self.devices = now;
        moved
    }

    /// The last sample of every disk.
    pub fn samples(&self) -> &BTreeMap<DevId, DeviceSample> {
        &self.devices
    }
}

fn sums(t: &Tables, since_ns: u64) -> BTreeMap<GroupKey, Sum> {
    let mut sums: BTreeMap<GroupKey, Sum> = BTreeMap::new();
    let shards = t.counts.rows() / t.groups.rows().max(1);
    for at in 0..t.groups.rows() {
        let Some(key) = t.group_key(at) else {
            continue;
        };
        let sum = sums.entry(key).or_default();
        sum.dev_row = dev_row_of_low(t.groups.read(at).low);
        for shard in 0..shards {
            let row = t.counts.read(group_row(at, shard, shards - 1));
            sum.add(&row, since_ns);
        }
    }
    sums
}

/// Id of the cgroup, when it is one.
pub fn cgroup(owner: Owner) -> Option<u64> {
    match owner {
        Owner::Cgroup(id) => Some(id),
        _ => None,
    }
}

/// The owner that a number in a row stands for.
pub fn owner(n: u64) -> Owner {
    match n {
        OWNER_UNKNOWN => Owner::Unknown,
        OWNER_OTHER => Owner::Other,
        id => Owner::Cgroup(id),
    }
}
