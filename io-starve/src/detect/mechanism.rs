//! What keeps a group waiting, by where it waits.

use io_starve_common::class::Class;

use super::finding::Confidence;
use crate::model::devices::Device;
use crate::model::flow::WAITS_FOR;
use crate::model::mechanism::Mechanism;
use crate::model::observation::{Stage, WaitsFor};

/// Mechanism and how sure it is, for a group of this class that waits in this stage. `stacks` is what the stacks of its
/// oldest waiters said since `since_ns`, by tick, in the order of [`WAITS_FOR`].
pub fn of(
    device: &Device,
    class: Class,
    stage: Stage,
    stacks: [u64; 3],
    since_ns: u64,
) -> (Mechanism, Confidence) {
    match stage {
        Stage::Queued => match device.scheduler() {
            // Without a scheduler a request is inserted only when the driver would not take it: what is withheld is room below.
            Some("none") => (Mechanism::Device, Confidence::Likely),
            Some(_) => (Mechanism::Scheduler, Confidence::Sure),
            None if device.issues_directly() => (Mechanism::Device, Confidence::Likely),
            None => (Mechanism::Scheduler, Confidence::Likely),
        },
        Stage::Admission => match most(stacks) {
            Some(WaitsFor::Wbt) => (Mechanism::Wbt, Confidence::Sure),
            Some(WaitsFor::Iocost) => (Mechanism::Iocost, Confidence::Sure),
            Some(WaitsFor::Tags) => (Mechanism::Tags, Confidence::Sure),
            None => (by_facts(device, class, since_ns), Confidence::Likely),
        },
        Stage::Device => (Mechanism::Device, Confidence::Sure),
    }
}

/// What else was seen, or is configured, says what is likely when no stack was read.
fn by_facts(device: &Device, class: Class, since_ns: u64) -> Mechanism {
    if device.lacked_tags_since(since_ns) {
        Mechanism::Tags
    } else if class == Class::AsyncWrite && wbt_active(device) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observation::{DevId, DeviceFact, Owner};

    fn disk(scheduler: Option<&str>, wbt: &str, iocost: Option<bool>) -> Device {
        Device {
            fact: Some(DeviceFact {
                dev: DevId::new(8, 0),
                name: "sda".to_owned(),
                scheduler: scheduler.map(str::to_owned),
                tunables: vec![("wbt_lat_usec".to_owned(), wbt.to_owned())],
                below: Vec::new(),
                rotational: None,
                iocost,
                backing_file: None,
            }),
            ..Device::default()
        }
    }

    #[test]
    fn in_admission_stacks_are_sure_and_facts_are_likely() {
        use Confidence::{Likely, Sure};
        use Mechanism::{Iocost, Tags, Wbt};
        let aw = Class::AsyncWrite;
        let none = [0; 3];
        for (scheduler, wbt, iocost, class, stacks, expected) in [
            ("mq-deadline", "75000", None, aw, [1, 0, 3], (Tags, Sure)),
            ("mq-deadline", "75000", None, aw, [2, 1, 1], (Wbt, Sure)),
            ("mq-deadline", "0", None, aw, [0, 2, 0], (Iocost, Sure)),
            ("mq-deadline", "75000", Some(true), aw, none, (Wbt, Likely)),
            (
                "mq-deadline",
                "75000",
                Some(true),
                Class::SyncRead,
                none,
                (Iocost, Likely),
            ),
            (
                "mq-deadline",
                "75000",
                Some(false),
                Class::SyncWrite,
                none,
                (Tags, Likely),
            ),
            ("mq-deadline", "0", None, aw, none, (Tags, Likely)),
            // BFQ switches wbt off; 5.10 shows the old value all the same.
            ("bfq", "75000", None, aw, none, (Tags, Likely)),
        ] {
            let device = disk(Some(scheduler), wbt, iocost);
            let found = of(&device, class, Stage::Admission, stacks, 0);
            assert_eq!(
                found, expected,
                "{scheduler} {wbt} {iocost:?} {class:?} {stacks:?}"
            );
        }
    }

    #[test]
    fn queued_without_a_scheduler_is_not_the_schedulers_doing() {
        let queued = |scheduler| {
            of(
                &disk(scheduler, "0", None),
                Class::SyncRead,
                Stage::Queued,
                [0; 3],
                0,
            )
        };
        assert_eq!(
            queued(Some("bfq")),
            (Mechanism::Scheduler, Confidence::Sure)
        );
        assert_eq!(
            queued(Some("none")),
            (Mechanism::Device, Confidence::Likely)
        );
        assert_eq!(queued(None), (Mechanism::Scheduler, Confidence::Likely));
    }

    #[test]
    fn a_disk_of_unknown_scheduler_that_inserts_little_has_none() {
        let queued = |inserts, issues, class| {
            let mut device = disk(None, "0", None);
            let flow = device.owners.entry((Owner::Unknown, class)).or_default();
            (flow.totals.inserts, flow.totals.issues) = (inserts, issues);
            of(&device, Class::SyncWrite, Stage::Queued, [0; 3], 0).0
        };
        assert_eq!(queued(7, 300, Class::SyncRead), Mechanism::Device);
        assert_eq!(queued(300, 300, Class::SyncRead), Mechanism::Scheduler);
        // What was inserted before the trace began.
        assert_eq!(queued(0, 10, Class::SyncRead), Mechanism::Scheduler);
        // Flushes pass every scheduler.
        assert_eq!(queued(0, 300, Class::Flush), Mechanism::Scheduler);
    }
}
