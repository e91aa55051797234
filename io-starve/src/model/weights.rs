//! Weights: what is asked for, who honours it, and which share that makes.
//!
//! In: facts. Out: the share of a disk that each of its active owners is entitled to.
//!
//! Rule (Documentation/admin-guide/cgroup-v2.rst, "Weights"): at each level a child gets its weight's part of the sum of the weights of
//! the children that are active, themselves or below; what is not active takes no part.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Model;
use super::devices::Device;
use super::observation::{DevId, Owner};

/// The weight of whoever has none set: `CGROUP_WEIGHT_DFL`, and `BFQ_WEIGHT_LEGACY_DFL` for BFQ.
pub const DEFAULT_WEIGHT: u32 = 100;
/// How many cgroups' weights are kept, as many as have names.
const MAX_WEIGHTED: usize = 16_384;

/// What weight files of a cgroup say. `None`: there is no such file, or it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFact {
    /// Path of the cgroup below the hierarchy's mount.
    pub path: String,
    /// `io.weight`, which iocost honours; up to 4.20 `blkio.weight` of v1, which CFQ did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<WeightFile>,
    /// `io.bfq.weight`, `blkio.bfq.weight` of v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfq: Option<WeightFile>,
    /// `io.prio.class`, where something is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prio_class: Option<String>,
    /// Targets of `io.latency` by disk, in us.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<(DevId, u64)>,
}

impl WeightFact {
    /// Nothing is known of it, as of a cgroup that is gone.
    pub fn is_empty(&self) -> bool {
        self.io.is_none()
            && self.bfq.is_none()
            && self.prio_class.is_none()
            && self.latency.is_empty()
    }
}

/// One weight file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightFile {
    /// On disks that are not named.
    pub default: u32,
    /// On disks that are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<(DevId, u32)>,
}

impl WeightFile {
    /// The weight on this disk.
    pub fn on(&self, dev: DevId) -> u32 {
        let own = self.disks.iter().find(|(d, _)| *d == dev);
        own.map_or(self.default, |(_, weight)| *weight)
    }

    /// On some disk it is another than the default.
    pub fn is_set(&self) -> bool {
        let all = self.disks.iter().map(|(_, w)| *w).chain([self.default]);
        all.into_iter().any(|w| w != DEFAULT_WEIGHT)
    }
}

/// What honours weights on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcer {
    /// The scheduler BFQ, by io.bfq.weight.
    Bfq,
    /// The iocost controller, by io.weight.
    Iocost,
    /// Nothing.
    Nobody,
}

impl Enforcer {
    /// The name used on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Enforcer::Bfq => "bfq",
            Enforcer::Iocost => "iocost",
            Enforcer::Nobody => "nobody",
        }
    }
}

/// The weight that a cgroup has on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// As whoever set it meant it, in the range of what honours weights on this disk.
    pub value: u32,
    /// It is another than the default.
    pub set: bool,
    /// What honours weights on this disk looks at it.
    pub honoured: bool,
}

/// Weights by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightTable {
    by_path: BTreeMap<String, WeightFact>,
}

impl WeightTable {
    /// Weights of a cgroup were read.
    pub fn learn(&mut self, fact: &WeightFact) {
        if fact.is_empty() {
            self.by_path.remove(&fact.path);
        } else if self.by_path.len() < MAX_WEIGHTED || self.by_path.contains_key(&fact.path) {
            self.by_path.insert(fact.path.clone(), fact.clone());
        }
    }

    /// What is known of the cgroup with this path.
    pub fn get(&self, path: &str) -> Option<&WeightFact> {
        self.by_path.get(path)
    }

    /// The weight of a cgroup on a disk. `None`: not known.
    ///
    /// A weight that nobody looks at is one that somebody asked for all the same: `io.weight` on BFQ, unless `io.bfq.weight` says
    /// something, and either where nobody enforces weights.
    pub fn weight(&self, path: &str, dev: DevId, enforcer: Enforcer) -> Option<Weight> {
        let fact = self.by_path.get(path)?;
        let of = |file: &Option<WeightFile>| file.as_ref().map(|f| f.on(dev));
        let (io, bfq) = (of(&fact.io), of(&fact.bfq));
        let set = |w: &u32| *w != DEFAULT_WEIGHT;
        let (value, honoured) = match enforcer {
            Enforcer::Iocost => (io?, true),
            Enforcer::Bfq => match (bfq, io.filter(set)) {
                (Some(w), None) => (w, true),
                (Some(w), _) if set(&w) => (w, true),
                (_, Some(w)) => (bfq_weight(w), false),
                (None, None) => return None,
            },
            Enforcer::Nobody => (io.filter(set).or(bfq).or(io)?, false),
        };
        Some(Weight {
            value,
            set: value != DEFAULT_WEIGHT,
            honoured,
        })
    }
}

/// A weight of 1 to 10,000 in BFQ's range of 1 to 1,000, both with the default 100: `BFQ_WEIGHT` in systemd's src/basic/cgroup-util.h.
const fn bfq_weight(io: u32) -> u32 {
    if io <= DEFAULT_WEIGHT {
        io
    } else {
        let above = if io > 10_000 { 9_900 } else { io - 100 };
        100 + above * 900 / 9_900
    }
}

/// What honours weights on this disk. `None`: nothing is known of it.
pub fn enforcer(device: &Device) -> Option<Enforcer> {
    let fact = device.fact.as_ref()?;
    Some(if fact.scheduler.as_deref() == Some("bfq") {
        Enforcer::Bfq
    } else if fact.iocost == Some(true) {
        Enforcer::Iocost
    } else {
        Enforcer::Nobody
    })
}

/// A path and those above it, the root left out: it has no weight.
pub fn line_of(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.char_indices().filter(|(i, c)| *c == '/' && *i > 0);
    ends.map(|(i, _)| i)
        .chain([path.len()])
        .map(|end| &path[..end])
        .filter(|p| p.len() > 1)
}

/// The share that each owner is entitled to, 0 to 1: in all 1, unless there is none. An owner with others below it (the root, v1) stands
/// beside its children with the default weight, as does at the top one that has no path.
pub fn entitled(
    active: &BTreeMap<Owner, Option<&str>>,
    weight: &dyn Fn(&str) -> u32,
) -> BTreeMap<Owner, f64> {
    let mut top = Node::default();
    for (owner, path) in active {
        let mut node = &mut top;
        for part in path.iter().flat_map(|p| line_of(p)) {
            node = node.below.entry(part).or_default();
        }
        node.own.push(*owner);
    }
    let mut shares = BTreeMap::new();
    top.divide(1.0, weight, &mut shares);
    shares
}

#[derive(Default)]
struct Node<'a> {
    own: Vec<Owner>,
    below: BTreeMap<&'a str, Node<'a>>,
}

impl Node<'_> {
    fn divide(&self, share: f64, weight: &dyn Fn(&str) -> u32, out: &mut BTreeMap<Owner, f64>) {
        let own = f64::from(DEFAULT_WEIGHT) * self.own.len() as f64;
        let below = self.below.keys().map(|path| f64::from(weight(path).max(1)));
        let sum = own + below.sum::<f64>();
        for owner in &self.own {
            out.insert(*owner, share / sum * f64::from(DEFAULT_WEIGHT));
        }
        for (path, node) in &self.below {
            node.divide(share / sum * f64::from(weight(path).max(1)), weight, out);
        }
    }
}

impl Model {
    /// Weights of cgroups.
    pub fn weights(&self) -> &WeightTable {
        &self.weights
    }
}

#[cfg(test)]
mod tests;
