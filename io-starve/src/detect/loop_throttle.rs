//! Double throttling on loop devices: the writer is paused for what is dirty on the loop device, and the loop device's worker, which
//! writes that to the backing file, is paused for what is dirty below.
//!
//! Kind `loop-double-throttle`. Inputs: pauses ([`crate::model::dirty`]), loop devices with what lies below them, how busy that is.
//!
//! Rule, for each loop device: in 5 s tasks are paused on it for at least 20 % of the wall time, and its worker for at least 10 %. Wall
//! time, not the sum over tasks: ten writers that sleep at once are one brake. 5 s is the window in which the kernel itself learns
//! how fast a device is, and longer than its longest pause (200 ms) by far. 20 % is what a writer notices; the worker's share is half
//! of that, since its pauses stop everybody on the device.
//!
//! `info` when the disk below is at least 80 % busy while both are paused: two brakes, but no harm, the disk is slow. `warning` when it is
//! idle for 20 % of that time and no limit (io.max) holds writes on the way, or when others waited behind the worker for 200 ms (one longest pause) in the window. Others are requests
//! of readers and of writers that sync, whose tasks are hardly paused themselves. A kthread (before 5.14) serves the whole device; a
//! kworker serves one cgroup, so that only requests of the cgroup that writes wait behind it.
//!
//! Of a stack of loop devices the uppermost is told, with all layers.
//!
//! Known false positives: an io_uring write that would have to pause goes back to its caller instead, and is counted as a pause (6.1 and
//! later). How busy a disk is comes from ticks, so times of idleness that are shorter than a tick are told by their share.

use std::collections::BTreeMap;

use io_starve_common::class::Class;

use super::culprits::Others;
use super::dirty_evidence::{Layer, LoopEvidence, LoopVictim};
use super::finding::{Confidence, Evidence, Kind, Place, Severity};
use super::{Context, Detector, Judgement, Key, MS};
use crate::model::devices::kernel_name;
use crate::model::dirty::{Behind, Loop, Stream, StreamKey};
use crate::model::intervals::Intervals;
use crate::model::mechanism::Mechanism;
use crate::model::observation::{DevId, Owner, Task};

/// The window, in ns.
pub const WINDOW_NS: u64 = 5_000_000_000;
/// Part of the time in which the disk must be idle to be no excuse.
const IDLE: f64 = 0.2;
/// A disk that is busy for this part of the window is the limit itself, whatever single ticks say: as writing begins, the first pauses
/// come before it has much to do.
pub(super) const BUSY: f64 = 0.8;
/// How long others must have waited behind the worker in the window, in ns.
const BEHIND_NS: u64 = 200_000_000;
/// Victims and other writers that are named.
const MAX_NAMED: usize = 5;

/// The detector.
pub struct LoopThrottle;

impl Detector for LoopThrottle {
    fn name(&self) -> &'static str {
        "loop-throttle"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::LoopDoubleThrottle]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        if !cx.model.dirty().has_workers() {
            return;
        }
        let loops = cx.model.dirty().loops().iter();
        let met: BTreeMap<DevId, Seen<'_>> = loops
            .filter(|(_, l)| l.gone_ns.is_none())
            .filter_map(|(dev, l)| Some((*dev, Seen::of(cx, *dev, l)?)))
            .collect();
        for (dev, seen) in &met {
            let above = met
                .keys()
                .any(|upper| upper != dev && cx.model.stack(*upper).contains(dev));
            if !(above && seen.only_workers) {
                out.push(seen.judgement(cx));
            }
        }
    }
}

/// A loop device on which both are paused.
struct Seen<'a> {
    dev: DevId,
    known: &'a Loop,
    from_ns: u64,
    upper: Intervals,
    worker: Intervals,
    /// Nobody but workers of other loop devices is paused on it.
    only_workers: bool,
}

/// Pauses of tasks on a disk, or on what lies right above it.
fn is_on(cx: &Context<'_>, dev: DevId, stream: &Stream) -> bool {
    stream
        .dev
        .is_some_and(|upper| cx.model.writes_to(upper, dev))
}

impl<'a> Seen<'a> {
    fn of(cx: &Context<'_>, dev: DevId, known: &'a Loop) -> Option<Seen<'a>> {
        let now = cx.model.now_ns();
        let from_ns = now.saturating_sub(WINDOW_NS);
        let dirty = cx.model.dirty();
        let worker = dirty.worker_paused(dev, from_ns, now);
        if share(&worker) < cx.settings.worker_share || worker.is_empty() {
            return None;
        }
        let upper = dirty.paused(from_ns, now, |_, s| is_on(cx, dev, s));
        if share(&upper) < cx.settings.paused_share || upper.is_empty() {
            return None;
        }
        let mut own = dirty.streams().iter().filter(|((_, _, worker), s)| {
            let late = !s.paused.within(from_ns, now).is_empty();
            worker.is_none() && late && is_on(cx, dev, s)
        });
        Some(Seen {
            dev,
            known,
            from_ns,
            only_workers: own.next().is_none(),
            upper,
            worker,
        })
    }

    fn judgement(&self, cx: &Context<'_>) -> Judgement {
        let now = cx.model.now_ns();
        let both = self.upper.common(&self.worker);
        let bottom = cx.model.bottom(self.dev);
        let dirty = cx.model.dirty();
        let busy = bottom
            .iter()
            .filter_map(|d| dirty.busy_share(*d, self.from_ns, now))
            .reduce(f64::max);
        // Of several disks the busiest is the one that all wait for.
        let idle = bottom
            .iter()
            .filter_map(|d| dirty.idle_share(*d, &both))
            .reduce(f64::min);
        let behind = self.behind(cx);
        let stack = cx.model.stack(self.dev);
        let mut holds = cx.model.syncs().holds().iter();
        let limited = holds.any(|h| h.write && stack.contains(&h.dev));
        let is_slow = busy.is_some_and(|share| share >= BUSY);
        let is_idle = !limited && !is_slow && idle.is_some_and(|share| share >= IDLE);
        let (victim, class, task, longest_ns) = match behind.first() {
            Some((owner, class, b)) => (
                *owner,
                Some(*class),
                b.task.clone(),
                b.since(self.from_ns).1,
            ),
            None => self.most_paused(cx),
        };
        Judgement {
            key: Key {
                kind: Kind::LoopDoubleThrottle,
                dev: self.dev,
                victim: Owner::Other,
                class: None,
            },
            victim,
            class,
            severity: if is_idle || !behind.is_empty() {
                Severity::Warning
            } else {
                Severity::Info
            },
            confidence: match busy {
                Some(_) => Confidence::Sure,
                None => Confidence::Likely,
            },
            begin_ns: self.upper.begin().max(self.worker.begin()).unwrap_or(now),
            stage: if behind.is_empty() {
                Place::Dirty
            } else {
                Place::Device
            },
            mechanism: Mechanism::LoopWorker,
            threshold_ns: (WINDOW_NS as f64 * cx.settings.paused_share) as u64,
            longest_ns,
            task,
            evidence: Evidence {
                looped: Some(LoopEvidence {
                    name: self.known.fact.name.clone(),
                    file: self.known.fact.file.clone(),
                    deleted: self.known.fact.deleted,
                    direct_io: self.known.fact.direct_io,
                    paused_ms: self.upper.sum() / MS,
                    worker_paused_ms: self.worker.sum() / MS,
                    both_ms: both.sum() / MS,
                    busy_share: busy,
                    idle_share: idle,
                    limited,
                    layers: layers(cx, self.dev, self.from_ns),
                    victims: self.victims(cx, &behind),
                    other_writers: self.other_writers(cx, &bottom),
                }),
                ..Evidence::default()
            },
            others: Some(Others::Writers),
            sync: None,
        }
    }

    /// Whose tasks are paused longest, with the longest pause.
    fn most_paused(&self, cx: &Context<'_>) -> (Owner, Option<Class>, Option<Task>, u64) {
        let mut worst: Option<(u64, &StreamKey, &Stream)> = None;
        let mut longest = 0;
        for (key, stream) in cx.model.dirty().streams() {
            if !is_on(cx, self.dev, stream) {
                continue;
            }
            longest = longest.max(stream.longest(self.from_ns));
            let (_, sum) = stream.since(self.from_ns);
            if worst.is_none_or(|(most, _, _)| sum > most) {
                worst = Some((sum, key, stream));
            }
        }
        worst.map_or((Owner::Unknown, None, None, longest), |(_, key, s)| {
            let task = s.tasks.first().map(|(task, _)| task.clone());
            (key.1, None, task, longest)
        })
    }

    /// Who waited behind the worker for long, longest first.
    fn behind<'m>(&self, cx: &Context<'m>) -> Vec<(Owner, Class, &'m Behind)> {
        let dirty = cx.model.dirty();
        let pooled = dirty.streams().values().any(|s| {
            let own = |w: &&crate::model::observation::Worker| w.name == self.known.fact.name;
            s.worker.as_ref().filter(own).is_some_and(|w| w.pooled)
        });
        let writers = self.writers(cx);
        let mut behind: Vec<_> = dirty
            .behind(self.dev)
            .filter(|(owner, _, _)| !pooled || writers.contains(owner))
            .filter(|(_, _, b)| b.since(self.from_ns).0 >= BEHIND_NS)
            .collect();
        behind.sort_by_key(|(owner, class, b)| {
            (std::cmp::Reverse(b.since(self.from_ns).0), *owner, *class)
        });
        behind.truncate(MAX_NAMED);
        behind
    }

    /// Owners of the writes that the worker works on. Who writes little has a worker of his own where those are by cgroup.
    fn writers(&self, cx: &Context<'_>) -> Vec<Owner> {
        much_written(cx, &[self.dev], self.from_ns)
    }

    fn victims(&self, cx: &Context<'_>, behind: &[(Owner, Class, &Behind)]) -> Vec<LoopVictim> {
        let of = |(owner, class, b): &(Owner, Class, &Behind)| {
            let flows = cx.model.devices.get(&self.dev).map(|d| &d.owners);
            let flow = flows.and_then(|f| f.get(&(*owner, *class)));
            let ended = flow.map_or(0, |f| f.ring.since(self.from_ns).stages[2].max_ns);
            let (waited, longest) = b.since(self.from_ns);
            LoopVictim {
                cgroup: cx.model.cgroups.name(*owner),
                class: *class,
                task: b.task.clone(),
                behind_ms: waited / MS,
                longest_ms: longest.max(ended) / MS,
            }
        };
        behind.iter().map(of).collect()
    }

    /// Others that write to the disks below, past the loop device: they make the worker's pauses longer.
    fn other_writers(&self, cx: &Context<'_>, bottom: &[DevId]) -> Vec<String> {
        let streams = cx.model.dirty().streams();
        let workers: Vec<Owner> = streams
            .keys()
            .filter(|(_, _, worker)| worker.is_some())
            .map(|(_, owner, _)| *owner)
            .collect();
        let through = self.writers(cx);
        let mut others = much_written(cx, bottom, self.from_ns);
        others.retain(|owner| !workers.contains(owner) && !through.contains(owner));
        others.truncate(MAX_NAMED);
        let name = |owner: &Owner| cx.model.cgroups.name(*owner);
        others.iter().map(name).collect()
    }
}

/// Owners of at least a tenth of what is written to some disks, in bytes finished and in flight: that is no small matter. Most first.
fn much_written(cx: &Context<'_>, disks: &[DevId], from_ns: u64) -> Vec<Owner> {
    let mut bytes: BTreeMap<Owner, u64> = BTreeMap::new();
    for device in disks.iter().filter_map(|d| cx.model.devices.get(d)) {
        for ((owner, class), flow) in &device.owners {
            if matches!(class, Class::AsyncWrite | Class::SyncWrite) {
                let sum = bytes.entry(*owner).or_default();
                *sum = sum.saturating_add(flow.moved_since(from_ns));
            }
        }
    }
    let all = bytes.values().fold(0u64, |sum, n| sum.saturating_add(*n));
    let mut much: Vec<(u64, Owner)> = bytes
        .into_iter()
        .filter(|(_, n)| *n > 0 && n.saturating_mul(10) >= all)
        .map(|(owner, n)| (n, owner))
        .collect();
    much.sort_by_key(|(n, owner)| (std::cmp::Reverse(*n), *owner));
    much.into_iter().map(|(_, owner)| owner).collect()
}

/// Part of the window.
fn share(times: &Intervals) -> f64 {
    times.sum() as f64 / WINDOW_NS as f64
}

/// A disk and all below it, upper ones first.
fn layers(cx: &Context<'_>, dev: DevId, from_ns: u64) -> Vec<Layer> {
    let stack = cx.model.stack(dev);
    stack.into_iter().map(|d| layer(cx, d, from_ns)).collect()
}

/// One disk.
fn layer(cx: &Context<'_>, dev: DevId, from_ns: u64) -> Layer {
    let (model, dirty) = (cx.model, cx.model.dirty());
    let now = model.now_ns();
    let on: Vec<&Stream> = dirty
        .streams()
        .values()
        .filter(|s| s.dev == Some(dev))
        .collect();
    let paused = dirty.paused(from_ns, now, |_, s| s.dev == Some(dev));
    let figures = || on.iter().filter_map(|s| s.figures_since(from_ns));
    let middle = from_ns + (now - from_ns) / 2;
    let lengths = |from: u64, to: u64| -> Option<u64> {
        let of = on.iter().flat_map(|s| &s.lengths);
        let (n, sum) = of
            .filter(|l| from <= l.begin_ns && l.begin_ns < to)
            .fold((0u64, 0u64), |sum, l| {
                (sum.0 + 1, sum.1.saturating_add(l.ns))
            });
        sum.checked_div(n)
    };
    let device = model.devices.get(&dev);
    let bytes = device.map(|d| {
        let writes = [Class::AsyncWrite, Class::SyncWrite];
        let flows = writes.iter().filter_map(|c| d.classes.get(c));
        flows.fold(0u64, |sum, f| {
            sum.saturating_add(f.ring.since(from_ns).bytes)
        })
    });
    let window = (now - from_ns).max(1);
    let per_s = |n: u64| (u128::from(n) * 1_000_000_000 / u128::from(window)) as u64;
    let known = dirty.loops().get(&dev);
    let mount = model.filesystems().find(|f| f.dev == dev);
    Layer {
        name: device
            .and_then(|d| d.name())
            .map_or_else(|| dev.to_string(), |n| kernel_name(n).to_owned()),
        file: known.map(|l| l.fact.file.clone()),
        filesystem: mount.map(|f| f.fstype.clone()),
        mountpoint: mount.map(|f| f.mountpoint.clone()),
        paused_ms: paused.sum() / MS,
        pauses: on
            .iter()
            .fold(0, |sum, s| s.since(from_ns).0.saturating_add(sum)),
        longest_ms: on.iter().map(|s| s.longest(from_ns)).max().unwrap_or(0) / MS,
        mean_before_ms: lengths(from_ns, middle).map(|ns| ns / MS),
        mean_after_ms: lengths(middle, now).map(|ns| ns / MS),
        dirty_bytes: figures().map(|f| f.bdi_dirty).reduce(u64::saturating_add),
        limit_bytes: figures().map(|f| f.bdi_limit).max(),
        setpoint_bytes: figures().map(|f| f.setpoint()).max(),
        rate_bytes_per_s: figures().map(|f| f.bdi_rate).max(),
        written_bytes_per_s: bytes.map(per_s),
        busy_share: dirty.busy_share(dev, from_ns, now),
    }
}
