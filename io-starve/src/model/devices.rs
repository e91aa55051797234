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
use super::trail::Trail;
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
    /// The best rates of the last minute or so.
    #[serde(default)]
    pub peak: Peak,
    /// Its last minute by the second.
    #[serde(default)]
    pub trail: Trail,
    /// Dirty and writeback bytes behind it over all owners, and when that was told (ns monotonic).
    pub backlog: Option<(u64, u64)>,
}

/// Rates that a disk has reached, by which waits are judged: it can do at least so much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Completions a second.
    pub iops: u64,
    /// Completed bytes a second.
    pub bytes_per_s: u64,
    /// Shortest mean time in the device, in ns; 0 before anything completed. On an idle disk, which reaches no rate, it says what
    /// the disk can do.
    pub service_ns: u64,
}

/// Rates are taken over this long, in ns: a burst that a cache takes does not last so long.
const PEAK_NS: u64 = 1_000_000_000;
/// A peak that is not reached again fades by this part a tick: in a minute to a third.
const PEAK_FADES: u64 = 220;

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

    /// Requests go to the driver without being inserted, so there is no scheduler: each of them inserts all but flushes
    /// (block/blk-mq.c `blk_mq_submit_bio`). Without one, only what the driver would not take is.
    pub fn issues_directly(&self) -> bool {
        const ENOUGH: u64 = 64;
        let inserts_and_issues = self
            .owners
            .iter()
            .filter(|((_, class), _)| *class != Class::Flush)
            .fold((0u64, 0u64), |(inserts, issues), (_, flow)| {
                (
                    inserts.saturating_add(flow.totals.inserts),
                    issues.saturating_add(flow.totals.issues),
                )
            });
        let (inserts, issues) = inserts_and_issues;
        issues >= ENOUGH && inserts < issues / 2
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
        self.end_peak(clock.to_ns);
        let now = clock.to_ns;
        let oldest = self.oldest_in_flight();
        let age = oldest.map(|(since, _)| now.saturating_sub(since));
        self.trail.end_tick(now, age);
    }
}

impl Device {
    fn end_peak(&mut self, now: u64) {
        let Some(from) = self.issued.window_start(now, PEAK_NS) else {
            return;
        };
        let (mut finished, mut bytes, mut device_ns) = (0u64, 0u64, 0u64);
        for flow in self.classes.values() {
            let cell = flow.ring.since(from);
            finished = finished.saturating_add(cell.finished);
            bytes = bytes.saturating_add(cell.bytes);
            device_ns = device_ns.saturating_add(cell.stages[Stage::Device.index()].sum_ns);
        }
        let per_s = |n: u64| {
            let rate = u128::from(n) * 1_000_000_000 / u128::from((now - from).max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let mean = device_ns.checked_div(finished);
        let grown = self.peak.service_ns + self.peak.service_ns / PEAK_FADES;
        let service_ns = match (self.peak.service_ns, mean) {
            (0, mean) => mean.unwrap_or(0),
            (_, Some(mean)) if mean > 0 => grown.min(mean),
            _ => grown,
        };
        let fade = |peak: u64| peak - peak / PEAK_FADES;
        self.peak = Peak {
            iops: fade(self.peak.iops).max(per_s(finished)),
            bytes_per_s: fade(self.peak.bytes_per_s).max(per_s(bytes)),
            service_ns,
        };
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
