//! Disks and what goes on in them.
//!
//! In: facts, samples and the groups of a disk. Out: its groups by owner and by class, its issues at a moment, what is
//! in flight in it. Layers are kept apart: the figures of a disk never contain those of the disks below it.

use std::collections::BTreeMap;

use io_starve_common::class::Class;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::flow::Flow;
use super::observation::{DevId, DeviceFact, DeviceSample, Owner, Stage};
use super::windows::{CellClock, HistWindow, Marks};

/// A disk.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What it is, once that was told.
    pub fact: Option<DeviceFact>,
    /// When it went away, ns monotonic.
    pub gone_ns: Option<u64>,
    /// Its counters as last told.
    pub sample: Option<DeviceSample>,
    /// Its issues at the ends of the last cells.
    pub issued: Marks,
    /// How often tasks slept for want of a tag, at the ends of the last cells.
    pub tag_waits: Marks,
    /// By owner and class.
    #[serde_as(as = "Vec<(_, _)>")]
    pub owners: BTreeMap<(Owner, Class), Flow>,
    /// By class, over all owners.
    #[serde_as(as = "Vec<(_, _)>")]
    pub classes: BTreeMap<Class, Flow>,
    /// Times of the last 10 s, by class and stage.
    #[serde_as(as = "Vec<(_, _)>")]
    pub hists: BTreeMap<(Class, Stage), HistWindow>,
    /// Dirty and writeback bytes behind it over all owners, and when that was told (ns monotonic).
    pub backlog: Option<(u64, u64)>,
}

impl Device {
    /// Its issues since attach.
    pub fn issues(&self) -> u64 {
        self.sample.map_or(0, |s| s.issued)
    }

    /// Name for people, `None` before its fact was told.
    pub fn name(&self) -> Option<&str> {
        self.fact.as_ref().map(|f| f.name.as_str())
    }

    /// Active scheduler, `None` when it has none to choose or it is not known.
    pub fn scheduler(&self) -> Option<&str> {
        self.fact.as_ref().and_then(|f| f.scheduler.as_deref())
    }

    /// Value of a tunable by the last part of its name (`writes_starved`), with the name as told.
    pub fn tunable(&self, name: &str) -> Option<(&str, &str)> {
        let tunables = &self.fact.as_ref()?.tunables;
        tunables
            .iter()
            .find(|(file, _)| file.rsplit('/').next() == Some(name))
            .map(|(file, value)| (file.as_str(), value.as_str()))
    }

    /// Tasks slept for want of a tag since this moment, as far as the kernel tells (7.2 and later).
    pub fn lacked_tags_since(&self, ns: u64) -> bool {
        let now = self.sample.map_or(0, |s| s.tag_waits);
        self.tag_waits
            .at_or_before(ns)
            .is_some_and(|then| now > then)
    }

    /// Last issue or completion, ns monotonic; `None` before the first since attach.
    pub fn last_moved_ns(&self) -> Option<u64> {
        self.sample
            .and_then(|s| s.last_issue_ns.max(s.last_complete_ns))
    }

    /// When the oldest in flight, of any class, entered its stage, with that class; ns monotonic.
    pub fn oldest_in_flight(&self) -> Option<(u64, Class)> {
        self.classes
            .iter()
            .filter_map(|(class, f)| f.now.oldest_any_ns().map(|ns| (ns, *class)))
            .min()
    }

    /// In flight at this tick, by stage.
    pub fn in_flight(&self) -> [u64; 3] {
        self.classes.values().fold([0; 3], |mut sum, f| {
            for (total, n) in sum.iter_mut().zip(f.now.count) {
                *total = total.saturating_add(n);
            }
            sum
        })
    }

    /// Takes in its counters.
    pub fn sample(&mut self, s: &DeviceSample) {
        let old = self.sample;
        self.sample = Some(DeviceSample {
            last_issue_ns: s.last_issue_ns.max(old.and_then(|o| o.last_issue_ns)),
            last_complete_ns: s.last_complete_ns.max(old.and_then(|o| o.last_complete_ns)),
            ..*s
        });
    }

    /// Notes its issues at the end of the present cell and forgets old times.
    pub fn end_tick(&mut self, clock: CellClock) {
        self.issued.note(clock, self.issues());
        self.tag_waits
            .note(clock, self.sample.map_or(0, |s| s.tag_waits));
        for hist in self.hists.values_mut() {
            hist.prune(clock.to_ns);
        }
    }
}

/// The name of a disk as a directory of /sys/block: names for people add words behind it.
pub fn kernel_name(name: &str) -> &str {
    name.split_whitespace().next().unwrap_or(name)
}

/// A disk's name for a sentence, its number when it has none.
pub fn display_name(dev: DevId, device: Option<&Device>) -> String {
    device
        .and_then(Device::name)
        .map_or_else(|| dev.to_string(), str::to_owned)
}
