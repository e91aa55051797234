//! Who kept whom waiting, through what, for how long: the edges of all detectors, summed over the last minute and since attach.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::mechanism::Mechanism;
use super::minute::Minute;
use super::observation::Owner;

/// Edges that are kept; beyond that the one with the least delay gives way.
const MAX_EDGES: usize = 512;

/// A delay of one owner by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Edge {
    /// Who waited.
    pub victim: Owner,
    /// Whom for.
    pub culprit: Owner,
    /// Through what.
    pub mechanism: Mechanism,
}

/// An edge with its delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blamed {
    /// Who, by whom, through what.
    pub edge: Edge,
    /// Delay in the last minute, or since attach, in ns. Waits that overlap are added.
    pub ns: u64,
}

/// The table.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blame {
    #[serde_as(as = "Vec<(_, _)>")]
    edges: BTreeMap<Edge, Minute>,
    /// Since attach, in ns; past the bound the least are forgotten.
    #[serde_as(as = "Vec<(_, _)>")]
    #[serde(default)]
    total: BTreeMap<Edge, u64>,
    /// The same by mechanism; nothing is forgotten here.
    #[serde(default)]
    by_mechanism: BTreeMap<Mechanism, u64>,
}

impl Blame {
    /// Adds a delay that was seen now.
    pub fn add(&mut self, now: u64, edge: Edge, ns: u64) {
        if ns == 0 {
            return;
        }
        if self.total.len() >= MAX_EDGES && !self.total.contains_key(&edge) {
            let least = self.total.iter().min_by_key(|(_, ns)| **ns);
            if let Some(edge) = least.map(|(e, _)| *e) {
                self.total.remove(&edge);
            }
        }
        let total = self.total.entry(edge).or_default();
        *total = total.saturating_add(ns);
        if self.edges.len() >= MAX_EDGES && !self.edges.contains_key(&edge) {
            let least = self.edges.iter().min_by_key(|(_, delay)| delay.total());
            if let Some(edge) = least.map(|(e, _)| *e) {
                self.edges.remove(&edge);
            }
        }
        self.edges.entry(edge).or_default().add(now, ns);
        let total = self.by_mechanism.entry(edge.mechanism).or_default();
        *total = total.saturating_add(ns);
    }

    /// Delay by mechanism since attach, in ns. Waits that overlap are added.
    pub fn by_mechanism(&self) -> &BTreeMap<Mechanism, u64> {
        &self.by_mechanism
    }

    /// Forgets what is older than a minute.
    pub fn prune(&mut self, now: u64) {
        self.edges.retain(|_, delay| !delay.prune(now));
    }

    /// All edges of the last minute, most delay first.
    pub fn rows(&self) -> Vec<Blamed> {
        most_first(self.edges.iter().map(|(edge, ns)| (*edge, ns.total())))
    }

    /// All edges since attach, most delay first.
    pub fn totals(&self) -> Vec<Blamed> {
        most_first(self.total.iter().map(|(edge, ns)| (*edge, *ns)))
    }
}

fn most_first(edges: impl Iterator<Item = (Edge, u64)>) -> Vec<Blamed> {
    let mut rows: Vec<Blamed> = edges.map(|(edge, ns)| Blamed { edge, ns }).collect();
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.edge.cmp(&b.edge)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(victim: u64, culprit: u64) -> Edge {
        Edge {
            victim: Owner::Cgroup(victim),
            culprit: Owner::Cgroup(culprit),
            mechanism: Mechanism::JournalData,
        }
    }

    #[test]
    fn a_minute_is_summed_and_what_is_older_forgotten() {
        let mut blame = Blame::default();
        let s = 1_000_000_000;
        blame.add(100 * s, edge(2, 3), 5 * s);
        blame.add(101 * s, edge(2, 3), s);
        blame.add(130 * s, edge(4, 3), 7 * s);
        let rows = |b: &Blame| b.rows().iter().map(|r| (r.edge, r.ns)).collect::<Vec<_>>();
        assert_eq!(rows(&blame), [(edge(4, 3), 7 * s), (edge(2, 3), 6 * s)]);
        blame.prune(160 * s);
        assert_eq!(blame.rows().len(), 2);
        blame.prune(166 * s);
        assert_eq!(rows(&blame), [(edge(4, 3), 7 * s)]);
        blame.prune(300 * s);
        assert_eq!(rows(&blame), []);
        let totals: Vec<_> = blame.totals().iter().map(|r| (r.edge, r.ns)).collect();
        assert_eq!(totals, [(edge(4, 3), 7 * s), (edge(2, 3), 6 * s)]);
        let by_mechanism: Vec<_> = blame.by_mechanism().iter().collect();
        assert_eq!(by_mechanism, [(&Mechanism::JournalData, &(13 * s))]);
    }

    #[test]
    fn the_least_gives_way() {
        let mut blame = Blame::default();
        for i in 0..MAX_EDGES as u64 {
            blame.add(1, edge(i, 1), 10 + i);
        }
        blame.add(1, edge(9_999, 1), 1_000);
        let rows = blame.rows();
        assert_eq!(rows.len(), MAX_EDGES);
        assert_eq!(rows[0].edge, edge(9_999, 1));
        assert!(rows.iter().all(|r| r.edge != edge(0, 1)));
    }
}
