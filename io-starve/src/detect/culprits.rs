//! Who was served while somebody waited.
//!
//! In: issues by group, tick by tick while a condition is met. Out: owners ranked by them, with their shares. A service that
//! the victim did not get is counted for whoever got it; whether they needed it is not judged.

use std::collections::BTreeMap;

use io_starve_common::class::Class;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::finding::Culprit;
use crate::model::Model;
use crate::model::devices::Device;
use crate::model::observation::Owner;

/// Groups in a tally; when it is full the smallest gives way, so a newcomer's count is a lower bound.
const MAX_TALLY: usize = 128;
/// Culprits of a finding.
const MAX_CULPRITS: usize = 5;
/// Threads named for each.
const MAX_TASKS: usize = 5;

/// Who counts as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Others {
    /// Everybody but this owner's requests of this class.
    ThanGroup(Owner, Class),
    /// Every other class.
    ThanClass(Class),
    /// Writes of everybody.
    Writers,
    /// Everybody but this owner.
    ThanOwner(Owner),
}

impl Others {
    fn contain(self, owner: Owner, class: Class) -> bool {
        match self {
            Others::ThanGroup(o, c) => (owner, class) != (o, c),
            Others::ThanClass(c) => class != c,
            Others::ThanOwner(o) => owner != o,
            Others::Writers => matches!(class, Class::AsyncWrite | Class::SyncWrite),
        }
    }
}

/// Issues of others while a condition was met.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    from_ns: u64,
    until_ns: u64,
    total: u64,
    #[serde_as(as = "Vec<(_, _)>")]
    groups: BTreeMap<(Owner, Class), u64>,
}

impl Tally {
    /// Adds what was issued up to the present tick: since that was last counted, else since `begin_ns` as far as cells reach back.
    pub fn count(&mut self, model: &Model, device: &Device, others: Others, begin_ns: u64) {
        if self.until_ns == 0 {
            self.from_ns = begin_ns;
        }
        let from_ns = begin_ns.max(self.until_ns);
        for ((owner, class), flow) in &device.owners {
            if others.contain(*owner, *class) {
                // A short tick shares its cell with earlier ones, a long one begins before the wait.
                let issues = flow.ring.since(from_ns).issues.max(flow.tick_issues);
                self.add((*owner, *class), issues);
            }
        }
        self.until_ns = model.now_ns();
    }

    fn add(&mut self, group: (Owner, Class), issues: u64) {
        if issues == 0 {
            return;
        }
        self.total = self.total.saturating_add(issues);
        if self.groups.len() >= MAX_TALLY
            && !self.groups.contains_key(&group)
            && let Some((least, _)) = self
                .groups
                .iter()
                .map(|(g, n)| (*g, *n))
                .min_by_key(|(_, n)| *n)
        {
            self.groups.remove(&least);
        }
        let n = self.groups.entry(group).or_default();
        *n = n.saturating_add(issues);
    }

    /// The owners with the most issues, largest first.
    pub fn culprits(&self, device: &Device) -> Vec<Culprit> {
        let mut owners: BTreeMap<Owner, (u64, Class, u64)> = BTreeMap::new();
        for ((owner, class), n) in &self.groups {
            let entry = owners.entry(*owner).or_insert((0, *class, 0));
            entry.0 = entry.0.saturating_add(*n);
            if *n > entry.2 {
                (entry.1, entry.2) = (*class, *n);
            }
        }
        let mut ranked: Vec<_> = owners.into_iter().collect();
        ranked.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(&b.0)));
        ranked.truncate(MAX_CULPRITS);
        ranked
            .into_iter()
            .map(|(owner, (issues, class, _))| Culprit {
                owner,
                class,
                share: issues as f64 / self.total.max(1) as f64,
                issues,
                tasks: self.tasks(device, owner, class),
                delay_ns: None,
                limit: None,
            })
            .collect()
    }

    fn tasks(
        &self,
        device: &Device,
        owner: Owner,
        class: Class,
    ) -> Vec<crate::model::observation::Task> {
        let Some(flow) = device.owners.get(&(owner, class)) else {
            return Vec::new();
        };
        let mut seen: Vec<_> = flow.tasks_since(self.from_ns).collect();
        seen.sort_by(|a, b| b.ticks.cmp(&a.ticks).then_with(|| a.task.cmp(&b.task)));
        seen.truncate(MAX_TASKS);
        seen.into_iter().map(|s| s.task.clone()).collect()
    }
}
