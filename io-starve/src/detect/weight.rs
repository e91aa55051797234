//! Somebody got less of a disk than the weights say, or waits while the disk is idle.
//!
//! Kind `weight-unfairness`. Inputs: device time and waits by owner ([`crate::model::shares`]), weights and what honours them
//! ([`crate::model::weights`]).
//!
//! Rule, for each disk and owner, in each of three windows of 5 s, one after the other: the owner has something in admission or queued
//! for at least half of the window; it obtained less than 0.75 of the device time that it is entitled to among those that are active;
//! another active owner obtained more than its own share; and a weight other than the default is set on one of them, or above. Three
//! windows, since BFQ serves one owner at a time and a window ends somewhere in its slice; 0.75, since on a disk of 300 IOPS five
//! runs of BFQ with 500 : 100 gave the smaller share 0.08 to 0.25 where 0.17 was asked for.
//!
//! By itself, weights or not: in each of them the device was idle for a fifth of the time while the owner waited, and another owner was
//! active. A single owner waits for its own requests. Of several the one that waited longest is told. Not with iocost: it holds I/O back
//! for what the disk is worth by its model, and an idle disk is what a low rate looks like.
//!
//! `not-enforced`: neither BFQ nor iocost is active on the disk, or what is set is not what the active one looks at. `idling`: the device
//! was idle as above. `misallocated`: the rest.
//!
//! An owner is active when it has something in flight for a tenth of the window. Below that it takes no part, and one that only asks for
//! little does not wait for half of the time.
//!
//! Known false positives: an owner that asks for little, one request after another, and waits for each longer than it thinks. Bios that
//! a limit holds are not counted as waiting; they come one by one, and an owner with a low limit may look as one that asks for little.

use super::culprits::Others;
use super::finding::{Confidence, Evidence, Kind, Mechanism, Place, Severity};
use super::weight_evidence::{OwnerEvidence, WeightEvidence};
use super::{Context, Detector, Judgement, Key, MS, advice};
use crate::model::Model;
use crate::model::observation::{DevId, Owner};
use crate::model::shares::{Judged, OwnerShare};
use crate::model::weights::Enforcer;

/// Length of a window, in ns.
const WINDOW_NS: u64 = 5_000_000_000;
/// How many must be met, one after the other.
const WINDOWS: u64 = 3;
/// The part of a window that must have been counted: ticks come late, and cells are a second long.
const COUNTED: f64 = 0.75;
/// The part of a window in which an owner must wait.
const UNSATISFIED: f64 = 0.5;
/// Owners that are told beside the victim.
const MAX_TOLD: usize = 8;

/// The detector.
pub struct WeightUnfairness;

impl Detector for WeightUnfairness {
    fn name(&self) -> &'static str {
        "weight"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::WeightUnfairness]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        for dev in cx.model.shares().disks() {
            if let Some(windows) = windows(cx.model, dev) {
                judge_disk(cx, dev, &windows, out);
            }
        }
    }
}

/// The last windows, latest first; `None` when one of them was not counted.
fn windows(model: &Model, dev: DevId) -> Option<Vec<Judged>> {
    let now = model.now_ns();
    (0..WINDOWS)
        .map(|k| {
            let to = now.checked_sub(k * WINDOW_NS)?;
            let judged = model.judged(dev, to.checked_sub(WINDOW_NS)?, to)?;
            (judged.window.ns as f64 >= WINDOW_NS as f64 * COUNTED).then_some(judged)
        })
        .collect()
}

fn judge_disk(cx: &Context<'_>, dev: DevId, windows: &[Judged], out: &mut Vec<Judgement>) {
    let Some(last) = windows.first() else { return };
    let idles = last
        .owners
        .iter()
        .filter(|o| windows.iter().all(|w| is_idled(cx, w, o.owner)))
        .max_by_key(|o| {
            let open = cx.open.contains(&key(dev, o.owner));
            (open, o.service.times.idle_waited_ns)
        })
        .map(|o| o.owner);
    for victim in &last.owners {
        let owner = victim.owner;
        let unfair = windows.iter().all(|w| is_unfair(cx, w, owner));
        let idled = windows.iter().all(|w| is_idled(cx, w, owner));
        let ignored = last.enforcer == Enforcer::Nobody || last.ignored;
        let mechanism = match (unfair, idled) {
            (true, _) if ignored => Mechanism::NotEnforced,
            (true, true) => Mechanism::Idling,
            (true, false) => Mechanism::Misallocated,
            (false, _) if idles == Some(owner) => Mechanism::Idling,
            (false, _) => continue,
        };
        out.push(judgement(cx.model, dev, windows, victim, mechanism));
    }
}

const fn key(dev: DevId, victim: Owner) -> Key {
    Key {
        kind: Kind::WeightUnfairness,
        dev,
        victim,
        class: None,
    }
}

fn is_unfair(cx: &Context<'_>, w: &Judged, owner: Owner) -> bool {
    let Some(victim) = w.owner(owner) else {
        return false;
    };
    let waited = victim.service.times.unsatisfied_ns as f64;
    let short = victim.part().is_some_and(|p| p < cx.settings.unfair_share);
    let mut active = w.owners.iter().filter(|o| o.entitled.is_some());
    let gained = |o: &OwnerShare| o.owner != owner && o.part().is_some_and(|p| p > 1.0);
    short
        && waited >= w.window.ns as f64 * UNSATISFIED
        && active.clone().any(gained)
        && active.any(|o| o.set)
}

fn is_idled(cx: &Context<'_>, w: &Judged, owner: Owner) -> bool {
    let idle = w.owner(owner).map_or(0, |o| o.service.times.idle_waited_ns);
    w.enforcer != Enforcer::Iocost
        && idle > 0
        && idle as f64 >= w.window.ns as f64 * cx.settings.idle_share
        && w.owners
            .iter()
            .any(|o| o.owner != owner && o.entitled.is_some())
}

fn judgement(
    model: &Model,
    dev: DevId,
    windows: &[Judged],
    victim: &OwnerShare,
    mechanism: Mechanism,
) -> Judgement {
    let now = model.now_ns();
    let from_ns = now.saturating_sub(WINDOWS * WINDOW_NS);
    let device = model.devices.get(&dev);
    let owner = victim.owner;
    let mut waiting = [0u64; 2];
    let flows = device.into_iter().flat_map(|d| &d.owners);
    for (_, flow) in flows.filter(|((o, _), _)| *o == owner) {
        waiting[0] = waiting[0].saturating_add(flow.now.count[0]);
        waiting[1] = waiting[1].saturating_add(flow.now.count[1]);
    }
    let named = |o: &OwnerShare| model.cgroups.path(o.owner).is_some() && o.weight.is_some();
    let guessed = windows.iter().flat_map(|w| &w.owners).any(|o| {
        let is_root = model.cgroups.path(o.owner) == Some("/");
        o.entitled.is_some() && !named(o) && !is_root
    });
    let missed = mechanism != Mechanism::Idling && guessed;
    Judgement {
        key: key(dev, owner),
        victim: owner,
        class: None,
        severity: Severity::Warning,
        confidence: if missed {
            Confidence::Likely
        } else {
            Confidence::Sure
        },
        begin_ns: windows.last().map_or(from_ns, |w| w.window.from_ns),
        stage: if waiting[0] > waiting[1] {
            Place::Admission
        } else {
            Place::Queued
        },
        mechanism,
        threshold_ns: WINDOWS * WINDOW_NS,
        longest_ns: 0,
        task: None,
        evidence: Evidence {
            scheduler: device.and_then(|d| d.scheduler()).map(str::to_owned),
            tunables: device.map_or_else(Vec::new, |d| advice::relevant(d, mechanism)),
            waiting: Some(waiting[0].saturating_add(waiting[1])),
            weights: model
                .judged(dev, from_ns, now)
                .map(|all| evidence(model, &all, owner)),
            ..Evidence::default()
        },
        others: Some(Others::ThanOwner(owner)),
        sync: None,
    }
}

/// Figures of all windows together: the victim first, then those with most device time.
fn evidence(model: &Model, all: &Judged, victim: Owner) -> WeightEvidence {
    let served = all
        .owners
        .iter()
        .fold(0, |n: u64, o| n.saturating_add(o.service.served));
    let mut owners: Vec<&OwnerShare> = all.owners.iter().collect();
    owners.sort_by_key(|o| {
        let most = std::cmp::Reverse(o.service.times.device_ns);
        (o.owner != victim, most, o.owner)
    });
    owners.truncate(MAX_TOLD + 1);
    WeightEvidence {
        enforcer: all.enforcer,
        ignored: all.ignored,
        window_ms: all.window.ns / MS,
        busy_ms: all.window.busy_ns / MS,
        idle_waited_ms: all.window.idle_waited_ns / MS,
        owners: owners
            .into_iter()
            .map(|o| OwnerEvidence {
                cgroup: model.cgroups.name(o.owner),
                weight: o.weight.map(|w| w.value),
                served: o.service.served,
                bytes: o.service.bytes,
                device_ms: o.service.times.device_ns / MS,
                group_wait_ms: o.service.times.group_wait_ns / MS,
                unsatisfied_ms: o.service.times.unsatisfied_ns / MS,
                idle_waited_ms: o.service.times.idle_waited_ns / MS,
                entitled_share: o.entitled,
                obtained_share: o.obtained,
                served_share: o.service.served as f64 / served.max(1) as f64,
            })
            .collect(),
    }
}
