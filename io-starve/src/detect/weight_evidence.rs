//! Figures behind findings about weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::model::weights::Enforcer;

/// A disk on which somebody got less than the weights say, over the last 15 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WeightEvidence {
    /// What honours weights on this disk.
    pub enforcer: Enforcer,
    /// A weight that is set is not one that it looks at.
    pub ignored: bool,
    /// How long the figures are for, in ms.
    pub window_ms: u64,
    /// Something was in the device, in ms.
    pub busy_ms: u64,
    /// Nothing was in the device while somebody waited, in ms.
    pub idle_waited_ms: u64,
    /// The victim first, then the others by device time.
    pub owners: Vec<OwnerEvidence>,
}

/// One of those that use the disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerEvidence {
    /// Path of the cgroup that pays.
    pub cgroup: String,
    /// Its own weight on this disk; null when not known.
    pub weight: Option<u32>,
    /// Requests that completed: `io_serviced` of CFQ.
    pub served: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time in the device, in ms; time that several shared is divided equally among their requests.
    pub device_ms: u64,
    /// Something waited and nothing of it was in the device, in ms: `group_wait_time` of CFQ.
    pub group_wait_ms: u64,
    /// Something was in admission or queued, in ms.
    pub unsatisfied_ms: u64,
    /// Something waited while the device was idle, in ms.
    pub idle_waited_ms: u64,
    /// The part of the device that its weight entitles it to among those that are active, level by level, 0 to 1; null when it was hardly
    /// active.
    pub entitled_share: Option<f64>,
    /// Its part of the device time, 0 to 1.
    pub obtained_share: f64,
    /// Its part of the requests that completed, 0 to 1.
    pub served_share: f64,
}
