//! Names of owners.
//!
//! In: facts about cgroups. Out: the name of an owner, also for a while after its cgroup is gone, since a write that waits may
//! outlive who wrote it.

use serde::{Deserialize, Serialize};
use serde_with::serde_as;
use std::collections::BTreeMap;

use super::observation::{CgroupFact, Owner};
use super::snapshot::OwnerName;

/// How long the name of a removed cgroup is kept, in ns: longer than the longest wait that was reported (300 s).
const KEEP_GONE_NS: u64 = 600_000_000_000;
/// How many cgroups keep a name: four times the owners that the kernel side can tell apart. Those beyond are named by their id.
const MAX_CGROUPS: usize = 16_384;

/// What is known of every cgroup.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    #[serde_as(as = "Vec<(_, _)>")]
    by_id: BTreeMap<u64, Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    fact: CgroupFact,
    gone_ns: Option<u64>,
}

impl Cgroups {
    /// A cgroup became known or changed its name.
    pub fn learn(&mut self, fact: &CgroupFact) {
        if self.by_id.len() >= MAX_CGROUPS
            && !self.by_id.contains_key(&fact.id)
            && !self.drop_longest_gone()
        {
            return;
        }
        let known = Known {
            fact: fact.clone(),
            gone_ns: None,
        };
        self.by_id.insert(fact.id, known);
    }

    /// A cgroup was removed.
    pub fn gone(&mut self, id: u64, now: u64) {
        if let Some(known) = self.by_id.get_mut(&id) {
            known.gone_ns.get_or_insert(now);
        }
    }

    /// Forgets those that are gone for long.
    pub fn prune(&mut self, now: u64) {
        self.by_id.retain(|_, k| {
            k.gone_ns
                .is_none_or(|gone| now.saturating_sub(gone) < KEEP_GONE_NS)
        });
    }

    /// Everything known of this owner; `path` is never empty.
    pub fn owner(&self, owner: Owner) -> OwnerName {
        let known = match owner {
            Owner::Cgroup(id) => self.by_id.get(&id),
            Owner::Unknown | Owner::Task(_) | Owner::Other => None,
        };
        match known {
            Some(k) => OwnerName {
                owner,
                cgroup: k.fact.clone(),
                gone: k.gone_ns.is_some(),
                pressure: None,
            },
            None => OwnerName {
                owner,
                cgroup: CgroupFact {
                    id: match owner {
                        Owner::Cgroup(id) => id,
                        Owner::Unknown | Owner::Task(_) | Owner::Other => 0,
                    },
                    path: nameless(owner),
                    ..CgroupFact::default()
                },
                gone: false,
                pressure: None,
            },
        }
    }

    /// What an owner is called in a sentence.
    pub fn name(&self, owner: Owner) -> String {
        self.path(owner)
            .map_or_else(|| nameless(owner), str::to_owned)
    }

    /// The path of an owner's cgroup, `None` when it has none or it is not known.
    pub fn path(&self, owner: Owner) -> Option<&str> {
        match owner {
            Owner::Cgroup(id) => self
                .by_id
                .get(&id)
                .map(|k| k.fact.path.as_str())
                .filter(|p| !p.is_empty()),
            Owner::Unknown | Owner::Task(_) | Owner::Other => None,
        }
    }

    /// Makes room: an eighth of the dead at once, those gone for longest, so that a flood of short-lived cgroups does not
    /// search all of them for each.
    fn drop_longest_gone(&mut self) -> bool {
        let mut gone: Vec<(u64, u64)> = self
            .by_id
            .iter()
            .filter_map(|(id, k)| k.gone_ns.map(|gone| (gone, *id)))
            .collect();
        gone.sort_unstable();
        for (_, id) in &gone[..gone.len().div_ceil(8)] {
            self.by_id.remove(id);
        }
        !gone.is_empty()
    }
}

/// The words for an owner without a path.
pub fn nameless(owner: Owner) -> String {
    match owner {
        Owner::Cgroup(id) => format!("cgroup {id}"),
        Owner::Unknown => "unknown owner".to_owned(),
        Owner::Task(tid) => format!("thread {tid}"),
        Owner::Other => "several owners".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(id: u64, path: &str) -> CgroupFact {
        CgroupFact {
            id,
            path: path.to_owned(),
            ..CgroupFact::default()
        }
    }

    #[test]
    fn the_dead_keep_their_names_for_ten_minutes() {
        let mut c = Cgroups::default();
        c.learn(&fact(28, "/backup.service"));
        c.gone(28, 5);
        c.prune(KEEP_GONE_NS);
        assert_eq!(c.name(Owner::Cgroup(28)), "/backup.service");
        assert!(c.owner(Owner::Cgroup(28)).gone);
        c.prune(KEEP_GONE_NS + 5);
        assert_eq!(c.name(Owner::Cgroup(28)), "cgroup 28");
        assert_eq!(c.owner(Owner::Unknown).cgroup.path, "unknown owner");
    }

    #[test]
    fn their_number_is_bounded_and_the_dead_go_first() {
        let mut c = Cgroups::default();
        for id in 0..MAX_CGROUPS as u64 {
            c.learn(&fact(id, "/a"));
        }
        c.learn(&fact(1 << 40, "/late"));
        assert_eq!(c.path(Owner::Cgroup(1 << 40)), None);
        c.gone(7, 1);
        c.learn(&fact(1 << 40, "/late"));
        assert_eq!(c.path(Owner::Cgroup(1 << 40)), Some("/late"));
        assert_eq!(c.path(Owner::Cgroup(7)), None);
        assert_eq!(c.by_id.len(), MAX_CGROUPS);
    }
}
