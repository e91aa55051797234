//! Findings about weights in words: the sentence, the table of who got what, what to do.

use super::finding::{Evidence, Finding, Mechanism};
use super::weight_evidence::{Enforcer, OwnerEvidence, WeightEvidence};
use super::words::seconds;
use crate::model::Model;
use crate::model::devices::{Device, display_name, kernel_name};
use crate::model::observation::{CgroupMode, Owner};

/// The finding in one sentence.
pub fn sentence(f: &Finding, model: &Model) -> String {
    let disk = f.device.map_or_else(
        || "a disk".to_owned(),
        |dev| display_name(dev, model.devices.get(&dev)),
    );
    let whose = model.cgroups.name(f.victim);
    let Some((e, victim)) = f
        .evidence
        .weights
        .as_ref()
        .and_then(|e| Some((e, e.owners.first()?)))
    else {
        return format!("{disk}: {whose} gets less than its share");
    };
    let got = format!(
        "{whose} got {} of the device time",
        percent(victim.obtained_share)
    );
    let asked = victim.entitled_share.map_or_else(String::new, |s| {
        format!(" where weights say {}", percent(s))
    });
    match f.mechanism {
        Mechanism::Idling => format!(
            "{disk}: {whose} waits while the disk is idle, {} of {}; {got}",
            seconds(victim.idle_waited_ms.saturating_mul(1_000_000)),
            seconds(e.window_ms.saturating_mul(1_000_000)),
        ),
        Mechanism::NotEnforced => {
            format!("{disk}: {got}{asked}; {}", not_enforced(f, e))
        }
        _ => format!("{disk}: {got}{asked}, with {}", e.enforcer.name()),
    }
}

fn not_enforced(f: &Finding, e: &WeightEvidence) -> String {
    let scheduler = f.evidence.scheduler.as_deref().unwrap_or("no scheduler");
    match e.enforcer {
        Enforcer::Bfq => "bfq does not look at io.weight".to_owned(),
        Enforcer::Iocost => "iocost does not look at io.bfq.weight".to_owned(),
        Enforcer::Nobody if scheduler == "none" => {
            "nothing enforces weights: there is no scheduler".to_owned()
        }
        Enforcer::Nobody => format!("{scheduler} does not enforce weights"),
    }
}

/// Who got what, a line each.
pub fn chain(f: &Finding) -> Vec<String> {
    let owners = f.evidence.weights.iter().flat_map(|e| &e.owners);
    owners.map(owner).collect()
}

fn owner(o: &OwnerEvidence) -> String {
    let ms = |ms: u64| seconds(ms.saturating_mul(1_000_000));
    let weight = o
        .weight
        .map_or_else(|| "weight not known".to_owned(), |w| format!("weight {w}"));
    let entitled = o.entitled_share.map_or_else(
        || "hardly active".to_owned(),
        |s| format!("entitled to {}", percent(s)),
    );
    format!(
        "{}: {weight}, {entitled}, got {} of the device time and {} of the I/Os; {} served, {} in the device, {} group wait",
        o.cgroup,
        percent(o.obtained_share),
        percent(o.served_share),
        o.served,
        ms(o.device_ms),
        ms(o.group_wait_ms),
    )
}

/// The main figures, each in words.
pub fn figures(e: &Evidence) -> Vec<String> {
    let Some(e) = &e.weights else {
        return Vec::new();
    };
    let of = |ms: u64| {
        let s = |ms: u64| seconds(ms.saturating_mul(1_000_000));
        format!("{} of {}", s(ms), s(e.window_ms))
    };
    let mut out = Vec::new();
    if let Some(victim) = e.owners.first() {
        out.push(format!(
            "got {} of the device time",
            percent(victim.obtained_share)
        ));
        out.extend(
            victim
                .entitled_share
                .map(|s| format!("entitled to {}", percent(s))),
        );
        out.push(format!("group wait {}", of(victim.group_wait_ms)));
        if victim.idle_waited_ms > 0 {
            out.push(format!(
                "waited while the disk was idle {}",
                of(victim.idle_waited_ms)
            ));
        }
    }
    out.push(format!("disk busy {}", of(e.busy_ms)));
    out.push(match e.enforcer {
        Enforcer::Nobody => "no weights are enforced".to_owned(),
        by => format!("weights are enforced by {}", by.name()),
    });
    out
}

/// The part of a tick for which the victim waited. `None`: this is not about weights.
pub fn waited_share(e: &Evidence) -> Option<f64> {
    let e = e.weights.as_ref()?;
    let waited = e.owners.first().map_or(0, |o| o.unsatisfied_ms);
    Some((waited as f64 / e.window_ms.max(1) as f64).min(1.0))
}

/// What to do, best first.
pub fn advice(f: &Finding, model: &Model) -> Vec<String> {
    let Some(dev) = f.device else {
        return Vec::new();
    };
    let device = model.devices.get(&dev);
    let name = display_name(dev, device);
    let disk = kernel_name(&name);
    let limit = f.culprits.first().and_then(|c| limit(f, c.owner, model));
    let mut out = Vec::new();
    let enforcer = f.evidence.weights.as_ref().map(|e| e.enforcer);
    match (f.mechanism, enforcer) {
        (Mechanism::NotEnforced, Some(Enforcer::Bfq)) => out.push(
            "set io.bfq.weight (1 to 1,000) beside io.weight: BFQ looks at nothing else; systemd's IOWeight sets both"
                .to_owned(),
        ),
        (Mechanism::NotEnforced, Some(Enforcer::Iocost)) => {
            out.push("set io.weight (1 to 10,000): iocost looks at nothing else".to_owned());
        }
        (Mechanism::NotEnforced, _) => {
            let file = match model.host().map(|h| h.cgroups) {
                Some(CgroupMode::V1) => "blkio.bfq.weight",
                _ => "io.bfq.weight",
            };
            out.push(format!(
                "echo bfq > /sys/block/{disk}/queue/scheduler: BFQ enforces {file}; fast disks pay for it with IOPS"
            ));
            if file == "io.bfq.weight" {
                out.push(format!(
                    "or enable iocost, which enforces io.weight: echo \"{dev} enable=1\" > /sys/fs/cgroup/io.cost.qos, and a model of the disk in io.cost.model"
                ));
            }
        }
        (Mechanism::Idling, _) => {
            out.extend(device.and_then(|d| slice_idle(d, disk)));
            out.extend(device.and_then(|d| on(d, disk, "strict_guarantees", "to 0")));
        }
        (_, Some(Enforcer::Iocost)) => out.push(
            "compare io.cost.model with the disk (tools/cgroup/iocost_coef_gen.py of the kernel) and look at vrate in io.stat of the root: a model that is off lets the wrong one go first"
                .to_owned(),
        ),
        _ => {
            out.extend(device.and_then(|d| on(d, disk, "low_latency", "to 0: it prefers interactive and new tasks, whatever their weights")));
            out.push("BFQ guarantees shares to owners that always have something queued; one that waits for each of its requests loses its turn: more requests at once help".to_owned());
        }
    }
    out.extend(limit);
    out
}

fn slice_idle(d: &Device, disk: &str) -> Option<String> {
    on(
        d,
        disk,
        "slice_idle",
        "to 0: the disk no longer waits for the next request of whoever it served last, who then gets less",
    )
}

/// A tunable that is not 0, with what to do about it.
fn on(d: &Device, disk: &str, name: &str, what: &str) -> Option<String> {
    let (file, value) = d.tunable(name)?;
    (value != "0").then(|| format!("set /sys/block/{disk}/queue/{file} (now {value}) {what}"))
}

fn limit(f: &Finding, culprit: Owner, model: &Model) -> Option<String> {
    let path = model.cgroups.path(culprit).filter(|p| *p != "/")?;
    (culprit != f.victim).then(|| {
        format!("or limit {path} (io.max), which holds also where nobody else wants the disk")
    })
}

/// `38 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
