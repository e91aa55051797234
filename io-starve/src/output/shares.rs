//! Who used which part of a disk since attach, as `status` and `stop` tell it. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::detect::weight_evidence::Enforcer;
use crate::model::accounts::ShareTotal;

/// Owners of one disk that are told.
const MAX_TOLD: usize = 64;
const NS_PER_MS: u64 = 1_000_000;

/// Who used a disk.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Shares {
    /// Name of the disk.
    pub device: String,
    /// What honours weights on it; null when that is not known.
    pub enforcer: Option<Enforcer>,
    /// Something was in the device, in ms.
    pub busy_ms: u64,
    /// Nothing was, while somebody waited, in ms.
    pub idle_waited_ms: u64,
    /// How often the time up to an event went to the next one, since two came at once.
    pub missed: u64,
    /// Who used it, most device time first, 64 at most.
    pub owners: Vec<Served>,
}

/// What one of those who used a disk had of it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Served {
    /// Path of the cgroup that pays.
    pub cgroup: String,
    /// Requests that completed.
    pub served: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time in the device, in ms; time that several shared is divided equally among their requests.
    pub device_ms: u64,
    /// Something waited and nothing of it was in the device, in ms.
    pub group_wait_ms: u64,
    /// Something was in admission, queued or in the device, in ms.
    pub active_ms: u64,
    /// Something was in admission or queued, in ms.
    pub unsatisfied_ms: u64,
    /// Something waited while the device was idle, in ms.
    pub idle_waited_ms: u64,
}

impl From<ShareTotal> for Shares {
    fn from(total: ShareTotal) -> Shares {
        let mut owners = total.owners;
        owners.sort_by(|a, b| {
            let (a_ns, b_ns) = (a.1.times.device_ns, b.1.times.device_ns);
            b_ns.cmp(&a_ns).then_with(|| a.0.cmp(&b.0))
        });
        owners.truncate(MAX_TOLD);
        Shares {
            device: total.device,
            enforcer: total.enforcer,
            busy_ms: total.busy_ns / NS_PER_MS,
            idle_waited_ms: total.idle_waited_ns / NS_PER_MS,
            missed: total.missed,
            owners: owners
                .into_iter()
                .map(|(cgroup, s)| Served {
                    cgroup,
                    served: s.served,
                    bytes: s.bytes,
                    device_ms: s.times.device_ns / NS_PER_MS,
                    group_wait_ms: s.times.group_wait_ns / NS_PER_MS,
                    active_ms: s.times.active_ns / NS_PER_MS,
                    unsatisfied_ms: s.times.unsatisfied_ns / NS_PER_MS,
                    idle_waited_ms: s.times.idle_waited_ns / NS_PER_MS,
                })
                .collect(),
        }
    }
}
