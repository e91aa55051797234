//! Queue stuck: everything on a disk waits, and nothing moves.
//!
//! Kind `queue-stuck`. Inputs: last issue and last completion of the disk, what is in flight in any stage.
//!
//! Rule: something is in flight and nothing was issued or completed for 5 s. A healthy disk completes something within
//! milliseconds, a disk that spins up or recovers within a few seconds. Critical from 60 s: that is past the 30 s after which the
//! SCSI and NVMe drivers give up on a command, so their own recovery did not help either.
//!
//! Nobody gains, so there is no culprit, and while it holds no starvation is found on that disk: stacks in `wbt_wait` or
//! `blk_mq_get_tag` are then only where the queue ends.
//!
//! Known false positives: a discard, an erase or a passthrough command (format, self-test) may keep a disk silent for minutes; while
//! nothing else is in flight these are not counted. A loop device whose disk moves is slow, not stuck. A disk that is suspended on purpose (dm-suspend, fsfreeze below) is stuck indeed.

use io_starve_common::class::Class;

use super::finding::{Confidence, Evidence, Kind, Mechanism, Rule, Severity};
use super::{Context, Detector, Judgement, Key, MS, advice, ms};
use crate::model::devices::Device;
use crate::model::flow::Flow;
use crate::model::observation::{DevId, Owner, Stage, Waiter};

/// From when on it is critical, in ns.
const CRITICAL_NS: u64 = 60_000_000_000;

/// The detector.
pub struct QueueStuck;

impl Detector for QueueStuck {
    fn name(&self) -> &'static str {
        "queue-stuck"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::QueueStuck]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        for (dev, device) in &cx.model.devices {
            let Some(begin_ns) = holds(cx, *dev, device) else {
                continue;
            };
            let now = cx.model.now_ns();
            let lasts = now.saturating_sub(begin_ns);
            let in_flight = device.in_flight();
            let oldest = cx
                .model
                .waiters()
                .iter()
                .filter(|w| w.key.dev == *dev)
                .min_by_key(|w| w.since_ns);
            let oldest_ns = oldest_in_flight_ns(device).map(|since| now.saturating_sub(since));
            let critical = lasts >= CRITICAL_NS;
            out.push(Judgement {
                key: Key {
                    kind: Kind::QueueStuck,
                    dev: *dev,
                    // Who waits may change while it is stuck; the finding is the disk's.
                    victim: Owner::Other,
                    class: None,
                },
                victim: only(&mut owners(device)).unwrap_or(Owner::Other),
                class: only(&mut classes(device)),
                severity: if critical {
                    Severity::Critical
                } else {
                    Severity::Warning
                },
                // A request that was issued and does not come back was seen; a queue that issues nothing may have many reasons.
                confidence: if in_flight[Stage::Device.index()] > 0 {
                    Confidence::Sure
                } else {
                    Confidence::Likely
                },
                begin_ns,
                stage: stage(in_flight, oldest).into(),
                mechanism: Mechanism::Device,
                threshold_ns: if critical {
                    CRITICAL_NS
                } else {
                    ms(cx.settings.stuck_ms)
                },
                longest_ns: lasts,
                task: oldest.and_then(|w| w.task.clone()),
                evidence: Evidence {
                    rule: Some(Rule::Stuck),
                    scheduler: device.scheduler().map(str::to_owned),
                    tunables: advice::relevant(device, Mechanism::Device),
                    oldest_ms: oldest_ns.map(|ns| ns / MS),
                    waiting: Some(in_flight.iter().fold(0, |sum, n| sum.saturating_add(*n))),
                    gap_ms: Some(lasts / MS),
                    issues: Some(0),
                    issues_of_others: Some(0),
                    bypasses: oldest.map(|w| w.bypasses),
                    before_attach: oldest
                        .is_some_and(|w| w.seeded || w.since_ns < cx.model.first_ns()),
                    ..Evidence::default()
                },
                others: None,
                sync: None,
            });
        }
    }
}

/// Since when nothing moves on this disk although something is in flight, when that is longer than the threshold. ns, monotonic.
pub fn holds(cx: &Context<'_>, dev: DevId, device: &Device) -> Option<u64> {
    let oldest = oldest_in_flight_ns(device)?;
    // Before the first observation nobody looked.
    let begin = oldest
        .max(cx.model.first_ns())
        .max(device.last_moved_ns().unwrap_or(0));
    let long = cx.model.now_ns().saturating_sub(begin) >= ms(cx.settings.stuck_ms);
    (long && !moves_below(cx, dev, begin)).then_some(begin)
}

/// A flush of a loop device is an fsync of its file: on a slow disk it takes long, and that disk moves meanwhile.
fn moves_below(cx: &Context<'_>, dev: DevId, since: u64) -> bool {
    let model = cx.model;
    let moved = |below: &DevId| {
        let device = model.devices.get(below);
        device
            .and_then(Device::last_moved_ns)
            .is_some_and(|at| at > since)
    };
    model.dirty().loops().contains_key(&dev)
        && model.stack(dev).iter().filter(|d| **d != dev).any(moved)
}

/// Since when the oldest is in flight, unless only commands that may take minutes are.
fn oldest_in_flight_ns(device: &Device) -> Option<u64> {
    let in_flight = || device.classes.iter().filter(|(_, f)| f.now.total() > 0);
    if in_flight().all(|(class, _)| matches!(class, Class::Discard | Class::Other)) {
        return None;
    }
    in_flight()
        .filter_map(|(_, f): (_, &Flow)| f.now.oldest_any_ns())
        .min()
}

/// Owners with something in flight.
fn owners(device: &Device) -> impl Iterator<Item = Owner> {
    let mut last = None;
    let in_flight = device.owners.iter().filter(|(_, f)| f.now.total() > 0);
    in_flight
        .map(|((owner, _), _)| *owner)
        .filter(move |o| last.replace(*o) != Some(*o))
}

/// Classes with something in flight.
fn classes(device: &Device) -> impl Iterator<Item = Class> {
    let in_flight = device.classes.iter().filter(|(_, f)| f.now.total() > 0);
    in_flight.map(|(class, _)| *class)
}

/// The only one, `None` for none or several.
fn only<T>(all: &mut impl Iterator<Item = T>) -> Option<T> {
    match (all.next(), all.next()) {
        (one, None) => one,
        _ => None,
    }
}

/// Where the oldest is, else the stage nearest to the disk that holds something.
fn stage(in_flight: [u64; 3], oldest: Option<&Waiter>) -> Stage {
    oldest.map(|w| w.stage).unwrap_or_else(|| {
        Stage::ALL
            .into_iter()
            .rev()
            .find(|s| in_flight[s.index()] > 0)
            .unwrap_or(Stage::Queued)
    })
}
