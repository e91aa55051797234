//! Detectors: the model in, findings out.
//!
//! A detector judges one tick: which conditions are met now, and on what evidence. The [`engine`] makes findings of that:
//! it opens them, keeps them while their condition pauses for less than the hold-down, counts whom the others served, and
//! closes them. A new detector is a file here and a line in [`DETECTORS`].

use std::collections::BTreeSet;

use io_starve_common::class::Class;
use serde::{Deserialize, Serialize};

pub mod advice;
pub mod culprits;
pub mod dirty_evidence;
pub mod dirty_throttle;
pub mod dirty_words;
pub mod engine;
mod explain;
mod explain_dirty;
mod explain_weight;
pub mod finding;
pub mod fsync;
pub mod fsync_words;
pub mod loop_throttle;
mod mechanism;
pub mod settings;
pub mod stall;
pub mod starvation;
pub mod stuck;
pub mod weight;
pub mod weight_evidence;
pub mod weight_words;
pub mod words;

use crate::model::Model;
use crate::model::observation::{DevId, Owner, Task};
use culprits::Others;
use finding::{Confidence, Evidence, Finding, Kind, Mechanism, Place, Severity, SyncNote};
use settings::Settings;

pub use explain::explain;

/// What became of a finding at a tick.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Its condition is met for the first time.
    Open(Finding),
    /// Its severity, culprits or figures moved in a way worth telling.
    Update(Finding),
    /// It ended.
    Close(Finding),
}

impl Change {
    /// The finding as it is after the change.
    pub fn finding(&self) -> &Finding {
        match self {
            Change::Open(f) | Change::Update(f) | Change::Close(f) => f,
        }
    }
}

/// What makes two judgements the same finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Which disease.
    pub kind: Kind,
    /// On which disk, or filesystem.
    pub dev: DevId,
    /// Who waits; [`Owner::Other`] for several.
    pub victim: Owner,
    /// What waits; `None` for several classes.
    pub class: Option<Class>,
}

/// A condition that is met at a tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Which finding it belongs to.
    pub key: Key,
    /// Who waits at this tick; [`Owner::Other`] for several.
    pub victim: Owner,
    /// What waits at this tick; `None` for several classes.
    pub class: Option<Class>,
    /// How bad it is now.
    pub severity: Severity,
    /// How sure the mechanism is; losses may still lower it.
    pub confidence: Confidence,
    /// Since when the condition holds, ns monotonic.
    pub begin_ns: u64,
    /// Where it waits.
    pub stage: Place,
    /// What keeps it waiting.
    pub mechanism: Mechanism,
    /// The limit that was passed, in ns.
    pub threshold_ns: u64,
    /// Longest single wait or gap that is known now, in ns.
    pub longest_ns: u64,
    /// The thread of the oldest that waits.
    pub task: Option<Task>,
    /// Figures.
    pub evidence: Evidence,
    /// Who may be a culprit; `None` when nobody gains, or they are told in `sync`.
    pub others: Option<Others>,
    /// Of an fsync.
    pub sync: Option<Box<SyncNote>>,
}

/// What a detector may look at.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The state of the machine.
    pub model: &'a Model,
    /// Thresholds.
    pub settings: &'a Settings,
    /// Findings that are open.
    pub open: &'a BTreeSet<Key>,
}

/// A rule that finds a disease.
pub trait Detector: Sync {
    /// Its name in the design and in the names of its scenario files.
    fn name(&self) -> &'static str;
    /// The kinds of finding that it makes.
    fn kinds(&self) -> &'static [Kind];
    /// Adds every condition that is met now.
    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>);
}

/// Every detector.
pub static DETECTORS: [&dyn Detector; 7] = [
    &starvation::Starvation,
    &stall::DeviceStall,
    &stuck::QueueStuck,
    &fsync::FsyncSerialization,
    &loop_throttle::LoopThrottle,
    &dirty_throttle::DirtyThrottle,
    &weight::WeightUnfairness,
];

/// ns in a ms.
const MS: u64 = 1_000_000;

/// Thresholds are in ms and may be anything that a user types.
fn ms(n: u64) -> u64 {
    n.saturating_mul(MS)
}
