//! Writers of one disk are paused because another, slow disk holds the dirty memory.
//!
//! Kind `dirty-throttle`. Inputs: pauses with the kernel's figures ([`crate::model::dirty`]), how busy the disks are.
//!
//! Rule, for each owner and disk: in 5 s its tasks are paused for at least 20 % of the wall time; dirty memory of all disks is above the
//! point from which writers are held back, so that it is not a limit of that disk alone; at most a fifth of it is for that disk, and at
//! least half for another that is neither below nor above it; and that disk was busy for less than 80 % of the time, so that it could
//! take more. A fifth and a half keep out two slow disks that hold alike. `info` when the owner writes to the slow disk too, and nobody
//! else does: it did that to itself.
//!
//! How much is dirty for a disk is told by the pauses of its own writers; a slow disk whose writers are not paused is not found.
//!
//! Known false positives: figures are of the last pause, so that a slow disk that was written out a moment ago may still be blamed.

use std::collections::{BTreeMap, BTreeSet};

use super::culprits::Others;
use super::dirty_evidence::DirtyEvidence;
use super::finding::{Confidence, Evidence, Kind, Place, Severity};
use super::loop_throttle::{BUSY, WINDOW_NS};
use super::{Context, Detector, Judgement, Key, MS};
use crate::model::devices::{display_name, kernel_name};
use crate::model::dirty::Stream;
use crate::model::mechanism::Mechanism;
use crate::model::observation::{DevId, DirtyFigures, Owner};

/// The detector.
pub struct DirtyThrottle;

impl Detector for DirtyThrottle {
    fn name(&self) -> &'static str {
        "dirty-throttle"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::DirtyThrottle]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        let from_ns = cx.model.now_ns().saturating_sub(WINDOW_NS);
        let disks = held(cx, from_ns);
        let mut worst: BTreeMap<(DevId, Owner), Judgement> = BTreeMap::new();
        for ((_, owner, worker), stream) in cx.model.dirty().streams() {
            if worker.is_some() {
                continue;
            }
            let Some(judgement) = one(cx, &disks, *owner, stream, from_ns) else {
                continue;
            };
            let key = (judgement.key.dev, *owner);
            match worst.get(&key) {
                Some(other) if paused(other) >= paused(&judgement) => {}
                _ => {
                    worst.insert(key, judgement);
                }
            }
        }
        out.extend(worst.into_values());
    }
}

fn paused(j: &Judgement) -> u64 {
    j.evidence.dirty.as_ref().map_or(0, |d| d.paused_ms)
}

/// What is dirty for a disk, and who was paused for it.
#[derive(Default)]
struct Held {
    bytes: u64,
    rate: Option<u64>,
    writers: BTreeSet<Owner>,
}

/// By disk. Each owner has dirty memory of its own where the kernel counts it so; a worker's is that of its disk.
fn held(cx: &Context<'_>, from_ns: u64) -> BTreeMap<DevId, Held> {
    let mut disks: BTreeMap<DevId, Held> = BTreeMap::new();
    for ((_, owner, worker), stream) in cx.model.dirty().streams() {
        let (Some(dev), Some(f)) = (stream.dev, stream.figures_since(from_ns)) else {
            continue;
        };
        let held = disks.entry(dev).or_default();
        held.bytes = held.bytes.max(f.bdi_dirty);
        held.rate = held.rate.max(Some(f.bdi_rate));
        if worker.is_none() {
            held.writers.insert(*owner);
        }
    }
    disks
}

fn one(
    cx: &Context<'_>,
    disks: &BTreeMap<DevId, Held>,
    owner: Owner,
    stream: &Stream,
    from_ns: u64,
) -> Option<Judgement> {
    let (model, dirty) = (cx.model, cx.model.dirty());
    let now = model.now_ns();
    let times = stream.paused.within(from_ns, now);
    if (times.sum() as f64) < WINDOW_NS as f64 * cx.settings.paused_share || times.is_empty() {
        return None;
    }
    let (dev, figures) = (stream.dev?, stream.figures_since(from_ns)?);
    if !is_shared(&figures) {
        return None;
    }
    let related =
        |other: DevId| model.stack(dev).contains(&other) || model.stack(other).contains(&dev);
    let own = disks.get(&dev).map_or(figures.bdi_dirty, |h| h.bytes);
    let (slow, most) = disks
        .iter()
        .filter(|(other, _)| !related(**other))
        .max_by_key(|(_, h)| h.bytes)?;
    if own.saturating_mul(5) > figures.dirty || most.bytes.saturating_mul(2) < figures.dirty {
        return None;
    }
    let busy = dirty.busy_share(dev, from_ns, now);
    if busy.is_some_and(|share| share >= BUSY) {
        return None;
    }
    let alone = most.writers.iter().all(|w| *w == owner) && !most.writers.is_empty();
    let name = display_name(dev, model.devices.get(&dev));
    Some(Judgement {
        key: Key {
            kind: Kind::DirtyThrottle,
            dev: *slow,
            victim: owner,
            class: None,
        },
        victim: owner,
        class: None,
        severity: if alone {
            Severity::Info
        } else {
            Severity::Warning
        },
        confidence: match busy {
            Some(_) => Confidence::Sure,
            None => Confidence::Likely,
        },
        begin_ns: times.begin().unwrap_or(now),
        stage: Place::Dirty,
        mechanism: Mechanism::DirtyLimit,
        threshold_ns: (WINDOW_NS as f64 * cx.settings.paused_share) as u64,
        longest_ns: stream.longest(from_ns),
        task: stream.tasks.first().map(|(task, _)| task.clone()),
        evidence: Evidence {
            dirty: Some(DirtyEvidence {
                disk: kernel_name(&name).to_owned(),
                paused_ms: times.sum() / MS,
                pauses: stream.since(from_ns).0,
                dirty_bytes: figures.dirty,
                limit_bytes: figures.limit,
                own_dirty_bytes: own,
                slow_dirty_bytes: most.bytes,
                busy_share: busy,
                slow_busy_share: dirty.busy_share(*slow, from_ns, now),
                slow_rate_bytes_per_s: most.rate,
            }),
            ..Evidence::default()
        },
        others: Some(Others::Writers),
        sync: None,
    })
}

/// The limit that all share holds the writer back, and not one of its disk alone (strict_limit).
const fn is_shared(f: &DirtyFigures) -> bool {
    f.dirty > f.free_run()
}
