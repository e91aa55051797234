//! Where I/O of a disk is at a tick, from the pause of the writer to the device, and what stands in for a queue where there is none.

use io_starve_common::hist;

use super::Model;
use super::devices::Device;
use super::observation::{DevId, Owner, Stage, Topic, Verdict, Waiter};
use super::snapshot::{DeviceView, Dist, HoldView, OwnerName, PausedView, Places, WaiterView};
use super::trail;
use super::windows::KEEP_NS;

/// How many of the oldest waiters a disk tells.
const WAITERS: usize = 10;

/// False for a disk that is known to insert nothing: it has no scheduler, and nothing left or is in a queue.
pub(super) fn has_queue(device: &Device) -> bool {
    device.scheduler() != Some("none")
        || device.in_flight()[Stage::Queued.index()] > 0
        || device.hists.iter().any(|((_, stage), hist)| {
            *stage == Stage::Queued && hist.counts().iter().any(|n| *n > 0)
        })
}

/// Times in the device over all classes, of the last 10 s.
pub(super) fn in_device(device: &Device, now: u64) -> Dist {
    let from = now.saturating_sub(KEEP_NS);
    let told = device.classes.values().map(|flow| flow.ring.since(from));
    let told = told.map(|cell| cell.stages[Stage::Device.index()]);
    let max_ns = told.filter(|s| s.count > 0).map(|s| s.max_ns).max();
    let mut counts = [0u64; hist::BUCKETS];
    for ((_, stage), window) in &device.hists {
        if *stage == Stage::Device {
            for (sum, n) in counts.iter_mut().zip(window.counts()) {
                *sum = sum.saturating_add(n);
            }
        }
    }
    // A bucket's middle may lie above the longest that was in it.
    let at = |permille| {
        let p = hist::percentile(&counts, permille)?;
        Some(max_ns.map_or(p, |max| p.min(max)))
    };
    Dist {
        count: counts.iter().fold(0, |sum, n| sum.saturating_add(*n)),
        p50_ns: at(500),
        p99_ns: at(990),
        max_ns,
        rows: trail::coarse(&counts),
    }
}

impl Model {
    fn has_hook(&self, is: impl Fn(&super::observation::Hook) -> bool) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|h| matches!(h.verdict, Verdict::Attached { .. }) && is(h))
    }

    /// How many are in each stage; what comes before the first of them is added later.
    pub(super) fn places(&self, device: &Device) -> Places {
        let [admission, queued, in_device] = device.in_flight();
        let told = self.has_hook(|h| h.name == "block_bio_queue");
        Places {
            dirty: None,
            held: None,
            admission: (told || admission > 0).then_some(admission),
            queued: has_queue(device).then_some(queued),
            device: Some(in_device),
        }
    }

    /// Adds the tasks paused behind each disk and the bios that limits hold before it.
    pub(super) fn add_before_the_disk(
        &self,
        devices: &mut [DeviceView],
        holds: &[HoldView],
        paused: &[PausedView],
    ) {
        let dirty_told = self.has_hook(|h| h.topic == Topic::Dirty);
        // Holds are read where the journal is followed: both need programs that are run on demand.
        let held_told = self.has_hook(|h| h.topic == Topic::Journal);
        for device in devices {
            let held = holds.iter().filter(|h| h.device == device.name);
            let held = held.fold(0u64, |sum, h| sum.saturating_add(h.count));
            let tasks = paused.iter().filter(|p| p.name == device.name);
            let tasks: usize = tasks.map(|p| p.now.len()).sum();
            let of_holds = holds.iter().filter(|h| h.device == device.name);
            let held_ns = of_holds.map(|h| h.age_ns).max();
            device.oldest_ns = device.oldest_ns.max(held_ns);
            let known = |told: bool, n: u64| (told || n > 0).then_some(n);
            device.places.held = known(held_told, held);
            device.places.dirty = known(dirty_told, tasks as u64);
        }
    }

    /// The oldest in flight on a disk, in any stage, oldest first.
    pub(super) fn oldest_views(&self, dev: DevId) -> Vec<WaiterView> {
        let mut oldest: Vec<&Waiter> = self.waiters().iter().filter(|w| w.key.dev == dev).collect();
        oldest.sort_by_key(|w| (w.since_ns, w.key.owner, w.key.class));
        oldest.truncate(WAITERS);
        oldest.into_iter().map(|w| self.waiter_view(w)).collect()
    }

    /// An owner's names, with its pressure.
    pub(super) fn owner_name(&self, owner: Owner) -> OwnerName {
        OwnerName {
            pressure: self.psi(Some(owner)),
            ..self.cgroups.owner(owner)
        }
    }
}
