//! What explains a wait that no queue shows: filesystems with the disks below them, and limits of cgroups.
//!
//! In: facts. Out: the filesystem with a number, also for a while after it was unmounted, and the limits that an owner is under.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::Model;
use super::observation::{CgroupMode, DevId, FilesystemFact, LimitFact, Limits, Owner};

/// How long a filesystem that was unmounted is kept, in ns, like disks.
const KEEP_GONE_NS: u64 = super::FORGET_DEVICE_NS;
/// How many filesystems are followed: twice the disks.
const MAX_FILESYSTEMS: usize = 1_024;
/// How many cgroups with limits are followed, as many as have names.
const MAX_LIMITED: usize = 16_384;

/// Filesystems by `s_dev`.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystems {
    #[serde_as(as = "Vec<(_, _)>")]
    by_dev: BTreeMap<DevId, Known>,
    /// Disks of partitions whose filesystem was not told.
    #[serde_as(as = "Vec<(_, _)>")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    partitions: BTreeMap<DevId, DevId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    fact: FilesystemFact,
    gone_ns: Option<u64>,
}

impl Filesystems {
    /// One was mounted, or changed.
    pub fn learn(&mut self, fact: &FilesystemFact) {
        if self.by_dev.len() >= MAX_FILESYSTEMS
            && !self.by_dev.contains_key(&fact.dev)
            && !self.drop_longest_gone()
        {
            return;
        }
        let known = Known {
            fact: fact.clone(),
            gone_ns: None,
        };
        self.by_dev.insert(fact.dev, known);
    }

    /// The one with this number.
    pub fn get(&self, dev: DevId) -> Option<&FilesystemFact> {
        self.by_dev.get(&dev).map(|k| &k.fact)
    }

    /// A partition is on this disk.
    pub fn learn_partition(&mut self, dev: DevId, disk: DevId) {
        if self.partitions.len() < MAX_FILESYSTEMS || self.partitions.contains_key(&dev) {
            self.partitions.insert(dev, disk);
        }
    }

    /// The disks below a filesystem. One that was not told of lies on its partition's disk, or on the whole disk of that number if there is
    /// one.
    pub fn queues(&self, dev: DevId, is_disk: impl Fn(DevId) -> bool) -> Vec<DevId> {
        match (self.get(dev), self.partitions.get(&dev)) {
            (Some(f), _) => f.queues.clone(),
            (None, Some(disk)) => vec![*disk],
            (None, None) if is_disk(dev) => vec![dev],
            (None, None) => Vec::new(),
        }
    }

    /// One was unmounted.
    pub fn gone(&mut self, dev: DevId, now: u64) {
        if let Some(known) = self.by_dev.get_mut(&dev) {
            known.gone_ns.get_or_insert(now);
        }
    }

    /// Forgets those that are gone for long.
    pub fn prune(&mut self, now: u64) {
        self.by_dev.retain(|_, k| {
            k.gone_ns
                .is_none_or(|gone| now.saturating_sub(gone) < KEEP_GONE_NS)
        });
    }

    fn drop_longest_gone(&mut self) -> bool {
        let gone = self
            .by_dev
            .iter()
            .filter_map(|(d, k)| Some((k.gone_ns?, *d)));
        gone.min()
            .is_some_and(|(_, dev)| self.by_dev.remove(&dev).is_some())
    }
}

/// Limits by cgroup; those without any are not in it.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitTable {
    #[serde_as(as = "Vec<(_, _)>")]
    by_cgroup: BTreeMap<u64, LimitFact>,
}

impl LimitTable {
    /// Limits were set, changed or lifted.
    pub fn learn(&mut self, fact: &LimitFact) {
        if fact.disks.is_empty() {
            self.by_cgroup.remove(&fact.id);
        } else if self.by_cgroup.len() < MAX_LIMITED || self.by_cgroup.contains_key(&fact.id) {
            let mut fact = fact.clone();
            fact.disks.truncate(super::MAX_DEVICES);
            self.by_cgroup.insert(fact.id, fact);
        }
    }
}

fn on(fact: &LimitFact, dev: DevId) -> Option<Limits> {
    fact.disks
        .iter()
        .find(|(d, _)| *d == dev)
        .map(|(_, limits)| *limits)
}

impl Model {
    /// The filesystem with this `s_dev`, also one that was unmounted in the last ten minutes.
    pub fn filesystem(&self, dev: DevId) -> Option<&FilesystemFact> {
        self.filesystems.get(dev)
    }

    /// The disks below the filesystem with this `s_dev`, as far as they are known.
    pub fn queues(&self, fs: DevId) -> Vec<DevId> {
        self.filesystems
            .queues(fs, |dev| self.devices.contains_key(&dev))
    }

    /// Those that are mounted.
    pub fn filesystems(&self) -> impl Iterator<Item = &FilesystemFact> {
        self.filesystems
            .by_dev
            .values()
            .filter(|k| k.gone_ns.is_none())
            .map(|k| &k.fact)
    }

    /// Limits of all cgroups that have some.
    pub fn limits(&self) -> impl Iterator<Item = &LimitFact> {
        self.limits.by_cgroup.values()
    }

    /// Limits of this cgroup itself on a disk.
    pub fn limit_on(&self, cgroup: u64, dev: DevId) -> Option<Limits> {
        on(self.limits.by_cgroup.get(&cgroup)?, dev)
    }

    /// The cgroups whose limits an owner's writes (else reads) on a disk are under, the nearest first: itself and those above.
    /// Each counts: the one that bites need not be the nearest. Under v1 nothing is inherited (`throtl_pd_init`), so it is
    /// only the owner itself. Which are above is told by paths, so one without a name has only its own limit.
    pub fn ancestors_with_limit(&self, owner: u64, dev: DevId, write: bool) -> Vec<(u64, Limits)> {
        let bites = |fact: &LimitFact| on(fact, dev).filter(|l| l.limit(write));
        let own = self.limits.by_cgroup.get(&owner).and_then(bites);
        let mut found: Vec<(usize, u64, Limits)> = own
            .map(|limits| (usize::MAX, owner, limits))
            .into_iter()
            .collect();
        let v1 = self
            .host
            .as_ref()
            .is_some_and(|h| h.cgroups == CgroupMode::V1);
        let path = self.cgroups.path(Owner::Cgroup(owner)).filter(|_| !v1);
        if let Some(path) = path {
            for (id, fact) in &self.limits.by_cgroup {
                if let Some(limits) = bites(fact)
                    && let Some(above) = self.cgroups.path(Owner::Cgroup(*id))
                    && is_above(above, path)
                {
                    found.push((above.len(), *id, limits));
                }
            }
        }
        found.sort_by_key(|(depth, id, _)| std::cmp::Reverse((*depth, *id)));
        found
            .into_iter()
            .map(|(_, id, limits)| (id, limits))
            .collect()
    }

    /// True for the group itself and all below it, as far as paths are known.
    pub fn is_within(&self, owner: Owner, group: Owner) -> bool {
        let path = |o| self.cgroups.path(o);
        owner == group
            || path(group)
                .zip(path(owner))
                .is_some_and(|(above, path)| is_above(above, path))
    }

    /// The first of [`Model::ancestors_with_limit`].
    pub fn nearest_limit(&self, owner: u64, dev: DevId, write: bool) -> Option<(u64, Limits)> {
        self.ancestors_with_limit(owner, dev, write)
            .into_iter()
            .next()
    }
}

/// True when a cgroup with the first path contains one with the second, and is another.
fn is_above(above: &str, path: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/'))
        .is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
