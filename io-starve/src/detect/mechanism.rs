//! What keeps a group waiting, by where it waits.

use io_starve_common::class::Class;

use super::finding::{Confidence, Mechanism};
use crate::model::devices::Device;
use crate::model::flow::WAITS_FOR;
use crate::model::observation::{Stage, WaitsFor};

/// Mechanism and how sure it is, for a group of this class that waits in this stage. `stacks` is what the stacks of its
/// oldest waiters said, by tick, in the order of [`WAITS_FOR`].
pub fn of(
    device: &Device,
    class: Class,
    stage: Stage,
    stacks: [u64; 3],
) -> (Mechanism, Confidence) {
    match stage {
        Stage::Queued => match device.scheduler() {
            // Without a scheduler a request is inserted only when the driver would not take it: what is withheld is room below.
            Some("none") => (Mechanism::Device, Confidence::Likely),
            Some(_) => (Mechanism::Scheduler, Confidence::Sure),
            None => (Mechanism::Scheduler, Confidence::Likely),
        },
        Stage::Admission => match most(stacks) {
            Some(WaitsFor::Wbt) => (Mechanism::Wbt, Confidence::Sure),
            Some(WaitsFor::Iocost) => (Mechanism::Iocost, Confidence::Sure),
            Some(WaitsFor::Tags) => (Mechanism::Tags, Confidence::Sure),
            None => (by_facts(device, class), Confidence::Likely),
        },
        Stage::Device => (Mechanism::Device, Confidence::Sure),
    }
}

/// What is configured says what is likely when no stack was read.
fn by_facts(device: &Device, class: Class) -> Mechanism {
    if class == Class::AsyncWrite && wbt_active(device) {
        Mechanism::Wbt
    } else if device.fact.as_ref().is_some_and(|f| f.iocost == Some(true)) {
        Mechanism::Iocost
    } else {
        Mechanism::Tags
    }
}

/// wbt holds back background writes only, and BFQ switches it off although 5.10 goes on showing the old value.
fn wbt_active(device: &Device) -> bool {
    let latency = device
        .tunable("wbt_lat_usec")
        .and_then(|(_, v)| v.parse::<u64>().ok());
    latency.is_some_and(|us| us > 0) && device.scheduler() != Some("bfq")
}

fn most(stacks: [u64; 3]) -> Option<WaitsFor> {
    let most = stacks.iter().copied().max().filter(|n| *n > 0)?;
    WAITS_FOR
        .into_iter()
        .zip(stacks)
        .find(|(_, n)| *n == most)
        .map(|(why, _)| why)
}
