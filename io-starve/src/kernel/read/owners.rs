//! Who the owners are: names as cgroups come and go, and weights.

use std::collections::{BTreeMap, BTreeSet};

use io_starve_common::wire::CgroupEvent;

use super::{super::cgroups::Cgroups, Attached, services};
use crate::model::observation::Fact;

/// How often the cgroup hierarchy is walked at most because of an unknown id, in ns.
const WALK_EVERY_NS: u64 = 1_000_000_000;

impl Attached {
    pub(super) fn read_cgroup_events(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while let Some(item) = ring.next() {
            if item.len() < size_of::<CgroupEvent>() {
                continue;
            }
            // SAFETY: long enough, integers only, and read unaligned.
            let e: CgroupEvent = unsafe { item.as_ptr().cast::<CgroupEvent>().read_unaligned() };
            let end = e.path.iter().position(|b| *b == 0).unwrap_or(e.path.len());
            let path = String::from_utf8_lossy(e.path.get(..end).unwrap_or_default());
            self.cgroups.event(e.id, e.hierarchy, e.gone != 0, &path);
        }
    }

    /// Facts about owners that are seen for the first time, and about those that went away.
    pub(super) fn name_owners(&mut self, seen: &BTreeSet<u64>, now: u64) -> Vec<Fact> {
        let unknown = |c: &Cgroups, told: &BTreeMap<u64, bool>| {
            seen.iter()
                .any(|id| !told.contains_key(id) && c.lookup(*id).is_none())
        };
        if unknown(&self.cgroups, &self.told) && now >= self.walked_ns + WALK_EVERY_NS {
            self.walked_ns = now;
            self.cgroups.walk();
        }
        let mut facts = Vec::new();
        for id in seen {
            if !self.told.contains_key(id)
                && let Some((fact, _)) = self.cgroups.lookup(*id)
            {
                facts.push(Fact::Cgroup(fact));
                self.told.insert(*id, false);
            }
        }
        for (id, gone_told) in &mut self.told {
            if !*gone_told && self.cgroups.lookup(*id).is_none_or(|(_, gone)| gone) {
                facts.push(Fact::CgroupGone { id: *id });
                *gone_told = true;
            }
        }
        self.told
            .retain(|id, gone| !*gone || self.cgroups.lookup(*id).is_some());
        facts
    }

    /// Weights of those who do I/O; and where they matter, device time is counted from here on.
    pub(super) fn refresh_weights(&mut self, owners: &BTreeSet<u64>, now: u64) -> Vec<Fact> {
        let facts = self
            .weights
            .refresh(&self.cgroups, owners.iter().copied(), now);
        services::switch(&self.tables, |dev| {
            self.devices.enforces_weights(dev) || self.weights.set_on(dev)
        });
        facts
    }
}
