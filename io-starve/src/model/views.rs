//! The figures that every front end shows, computed once a tick.
//!
//! Rates and shares are over the last 5 s (less just after the start), times of stages over the last 10 s, so that a p99 of a
//! slow disk has some samples under it.

use std::collections::{BTreeMap, BTreeSet};

use io_starve_common::{class::Class, hist};

use super::Model;
use super::devices::Device;
use super::flow::Flow;
use super::observation::{DevId, Owner, Stage, Waiter};
use super::snapshot::{ClassView, DeviceView, Dist, OwnerView, Snapshot, WaiterView};
use super::trail::{self, ROWS};
use super::views_places::{has_queue, in_device};
use super::windows::{Cell, KEEP_NS};
use crate::detect::finding::Finding;

/// Window of rates and shares, in ns.
const RATES_NS: u64 = 5_000_000_000;

/// What a rate is taken over.
#[derive(Clone, Copy)]
struct Window {
    from_ns: u64,
    seconds: f64,
}

impl Window {
    fn rate(self, n: u64) -> f64 {
        if self.seconds > 0.0 {
            n as f64 / self.seconds
        } else {
            0.0
        }
    }
}

impl Model {
    /// The state of the machine at this tick. `findings` are shown as they come.
    pub fn snapshot(&self, findings: Vec<Finding>, verdict: String) -> Snapshot {
        let oldest = self.oldest_waiting();
        let mut devices: Vec<DeviceView> = self
            .devices
            .iter()
            .filter(|(_, d)| d.gone_ns.is_none() && !d.classes.is_empty())
            .map(|(dev, d)| self.device_view(*dev, d, &oldest))
            .collect();
        devices.sort_by(|a, b| a.name.cmp(&b.name).then(a.dev.cmp(&b.dev)));
        let mut owners = BTreeSet::new();
        for device in &devices {
            owners.extend(device.owners.iter().map(|o| o.owner));
            let classes = device.classes.iter().filter_map(|c| c.oldest.as_ref());
            owners.extend(device.oldest.iter().chain(classes).map(|w| w.owner));
            owners.extend(device.waiters.iter().map(|w| w.owner));
        }
        for finding in &findings {
            owners.insert(finding.victim);
            owners.extend(finding.culprits.iter().map(|c| c.owner));
            owners.extend(
                finding
                    .culprits
                    .iter()
                    .filter_map(|c| c.limit)
                    .map(|l| l.group),
            );
        }
        let fsyncs = self.fsync_views();
        let syncers = self.syncer_views();
        let holds = self.hold_views();
        let blame = self.blame().rows();
        let paused = self.paused_views();
        self.add_before_the_disk(&mut devices, &holds, &paused);
        owners.extend(paused.iter().map(|p| p.owner));
        owners.extend(fsyncs.iter().map(|f| f.owner));
        owners.extend(
            fsyncs
                .iter()
                .filter_map(|f| f.waits)
                .flat_map(|w| [w.culprit, w.limit])
                .flatten(),
        );
        owners.extend(syncers.iter().map(|s| s.owner));
        owners.extend(holds.iter().flat_map(|h| [h.group, h.owner]));
        owners.extend(blame.iter().flat_map(|b| [b.edge.victim, b.edge.culprit]));
        Snapshot {
            fsyncs,
            syncers,
            holds,
            blame,
            bdis: self.bdi_views(),
            paused,
            loops: self.loop_views(),
            shares: self.share_views(),
            mono_ns: self.now_ns(),
            wall_ns: self.wall_ns,
            elapsed_ns: self.now_ns() - self.first_ns(),
            host: self.host.clone(),
            hooks: self.hooks.clone(),
            loss: self.loss(),
            requests_seen: self.requests_seen(),
            devices,
            findings,
            verdict,
            owners: owners.into_iter().map(|o| self.owner_name(o)).collect(),
            pressure: self.psi(None),
            own_cpu: self.spent.share(),
        }
    }

    /// Lives begun since attach, on all disks.
    pub fn requests_seen(&self) -> u64 {
        self.devices
            .values()
            .flat_map(|d| d.classes.values())
            .fold(0, |sum, f| sum.saturating_add(f.totals.seen))
    }

    pub(super) fn psi(&self, owner: Option<Owner>) -> Option<(f64, f64)> {
        self.pressure
            .get(&owner)
            .map(|(some, full, _)| (*some, *full))
    }

    /// The window of the rates: 5 s, or what there is.
    fn window(&self, device: &Device) -> Window {
        let now = self.now_ns();
        let from_ns = device
            .issued
            .window_start(now, RATES_NS)
            .unwrap_or_else(|| self.first_ns().max(now.saturating_sub(RATES_NS)));
        Window {
            from_ns,
            seconds: (now - from_ns) as f64 / 1e9,
        }
    }

    /// The oldest in admission or queued, by disk and class.
    fn oldest_waiting(&self) -> BTreeMap<(DevId, Class), &Waiter> {
        let mut oldest: BTreeMap<(DevId, Class), &Waiter> = BTreeMap::new();
        for w in self.waiters().iter().filter(|w| w.stage != Stage::Device) {
            let entry = oldest.entry((w.key.dev, w.key.class)).or_insert(w);
            if w.since_ns < entry.since_ns {
                *entry = w;
            }
        }
        oldest
    }

    fn device_view(
        &self,
        dev: DevId,
        device: &Device,
        oldest: &BTreeMap<(DevId, Class), &Waiter>,
    ) -> DeviceView {
        let window = self.window(device);
        let mut all = Cell::default();
        for flow in device.classes.values() {
            all.add(&flow.ring.since(window.from_ns));
        }
        let classes: Vec<ClassView> = device
            .classes
            .iter()
            .map(|(class, flow)| {
                self.class_view(
                    device,
                    *class,
                    flow,
                    window,
                    all.issues,
                    oldest.get(&(dev, *class)),
                )
            })
            .collect();
        let oldest = classes
            .iter()
            .filter_map(|c| c.oldest.as_ref())
            .max_by_key(|w| w.age_ns)
            .cloned();
        DeviceView {
            dev,
            name: super::devices::display_name(dev, Some(device)),
            scheduler: device.scheduler().map(str::to_owned),
            tunables: device
                .fact
                .as_ref()
                .map(|f| f.tunables.clone())
                .unwrap_or_default(),
            iops: window.rate(all.issues),
            bytes_per_s: window.rate(all.bytes),
            waiting: device.in_flight(),
            places: self.places(device),
            classes,
            owners: self.owner_views(device, window),
            oldest,
            oldest_ns: device
                .oldest_in_flight()
                .map(|(since, _)| self.now_ns().saturating_sub(since)),
            waiters: self.oldest_views(dev),
            trail: device.trail.steps(self.now_ns()),
            instead: (!has_queue(device)).then(|| in_device(device, self.now_ns())),
        }
    }

    fn class_view(
        &self,
        device: &Device,
        class: Class,
        flow: &Flow,
        window: Window,
        device_issues: u64,
        oldest: Option<&&Waiter>,
    ) -> ClassView {
        let recent = flow.ring.since(window.from_ns);
        let long = flow.ring.since(self.now_ns().saturating_sub(KEEP_NS));
        ClassView {
            class,
            iops: window.rate(recent.issues),
            bytes_per_s: window.rate(recent.bytes),
            share: if device_issues > 0 {
                recent.issues as f64 / device_issues as f64
            } else {
                0.0
            },
            stages: Stage::ALL.map(|stage| dist(device, class, stage, &long)),
            waiting: flow.now.count,
            oldest: oldest.map(|w| self.waiter_view(w)),
        }
    }

    pub(super) fn waiter_view(&self, w: &Waiter) -> WaiterView {
        WaiterView {
            owner: w.key.owner,
            class: w.key.class,
            stage: w.stage,
            age_ns: self.now_ns().saturating_sub(w.since_ns),
            task: w.task.clone(),
            bypasses: w.bypasses,
            waits_for: w.waits_for,
        }
    }

    fn owner_views(&self, device: &Device, window: Window) -> Vec<OwnerView> {
        let mut views: Vec<(u64, OwnerView)> = Vec::new();
        for ((owner, class), flow) in &device.owners {
            let recent = flow.ring.since(window.from_ns);
            let moved = recent.issues > 0 || recent.finished > 0 || recent.waited_ns > 0;
            if !moved && flow.now.total() == 0 {
                continue;
            }
            let waited = recent.weight[0].saturating_add(recent.weight[1]);
            let view = OwnerView {
                owner: *owner,
                class: *class,
                iops: window.rate(recent.issues),
                bytes_per_s: window.rate(recent.bytes),
                waiting: flow.now.count,
                mean_ns: recent.stages.map(|s| s.sum_ns.checked_div(s.count)),
                oldest_ns: flow
                    .now
                    .oldest_waiting_ns()
                    .map(|since| self.now_ns().saturating_sub(since)),
                pressure: self.psi(Some(*owner)),
            };
            views.push((waited, view));
        }
        views.sort_by(|(a, va), (b, vb)| {
            b.cmp(a)
                .then((va.owner, va.class).cmp(&(vb.owner, vb.class)))
        });
        views.into_iter().map(|(_, view)| view).collect()
    }
}

fn dist(device: &Device, class: Class, stage: Stage, long: &Cell) -> Dist {
    let told = long.stages[stage.index()];
    let counts = device.hists.get(&(class, stage)).map(|h| h.counts());
    let rows = counts.map_or([0; ROWS], |c| trail::coarse(&c));
    let in_hist = counts.map_or(0, |c| c.iter().fold(0u64, |sum, n| sum.saturating_add(*n)));
    let count = if in_hist > 0 { in_hist } else { told.count };
    let max_ns = (told.count > 0).then_some(told.max_ns);
    // A bucket's middle may lie above the longest that was in it.
    let at = |permille| {
        let p = hist::percentile(&counts?, permille)?;
        Some(max_ns.map_or(p, |max| p.min(max)))
    };
    Dist {
        count,
        p50_ns: at(500),
        p99_ns: at(990),
        max_ns: if count > 0 { max_ns } else { None },
        rows,
    }
}
