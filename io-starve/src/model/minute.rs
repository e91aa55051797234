//! Time that is summed over the last minute, in a few steps.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How far back it goes, in ns.
pub const KEEP_NS: u64 = 60_000_000_000;
/// Length of a step, in ns.
const STEP_NS: u64 = 5_000_000_000;

/// Sums by step, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Minute(VecDeque<(u64, u64)>);

impl Minute {
    /// Adds `ns` that ended now.
    pub fn add(&mut self, now: u64, ns: u64) {
        let step = now / STEP_NS;
        match self.0.back_mut() {
            Some((at, sum)) if *at == step => *sum = sum.saturating_add(ns),
            _ => self.0.push_back((step, ns)),
        }
    }

    /// Forgets what is older than a minute. True when nothing is left.
    pub fn prune(&mut self, now: u64) -> bool {
        let oldest = now.saturating_sub(KEEP_NS) / STEP_NS;
        self.0.retain(|(at, _)| *at >= oldest);
        self.0.is_empty()
    }

    /// Sum of what is kept, in ns.
    pub fn total(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }
}
