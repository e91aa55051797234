//! All families, from what was counted and from the state of the machine. Pure.

use std::collections::BTreeMap;

use io_starve_common::wire::LossKind;

use super::{Family, Sample, Type, Value, owners::Counts, tally::Tally};
use crate::{
    detect::finding::{Kind, Severity},
    model::{
        mechanism::Mechanism,
        observation::{Stage, Verdict},
        snapshot::Snapshot,
    },
    source::recording::VERSION,
};

/// Open findings that are told one by one, worst first.
const FINDINGS: usize = 50;

/// What neither observations nor the snapshot tell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Own {
    /// CPU time of the process in seconds; `None` when it cannot be read.
    pub cpu_seconds: Option<f64>,
    /// Resident memory of the process in bytes; `None` when it cannot be read.
    pub rss_bytes: Option<u64>,
    /// Findings told, by kind.
    pub told: BTreeMap<Kind, u64>,
    /// Findings folded.
    pub folded: u64,
    /// (where to, written, lost) of each output.
    pub outputs: Vec<(String, u64, u64)>,
    /// Delay by mechanism since the start, in ns.
    pub blame: BTreeMap<Mechanism, u64>,
}

/// Everything.
pub fn families(tally: &Tally, snapshot: &Snapshot, own: &Own) -> Vec<Family> {
    let mut all = machine(snapshot, own);
    all.extend(disks(tally));
    all.extend(waits(tally));
    all.extend(owners(tally));
    all.extend(process(tally, own));
    all
}

fn family(
    name: &'static str,
    unit: &'static str,
    kind: Type,
    help: &'static str,
    samples: Vec<Sample>,
) -> Family {
    Family {
        name,
        unit,
        help,
        kind,
        samples,
    }
}

fn sample(labels: &[(&'static str, &str)], value: Value) -> Sample {
    Sample {
        labels: labels.iter().map(|(n, v)| (*n, (*v).to_owned())).collect(),
        value,
    }
}

fn seconds(ns: u64) -> Value {
    Value::Number(ns as f64 / 1e9)
}

fn machine(snapshot: &Snapshot, own: &Own) -> Vec<Family> {
    let open = || snapshot.findings.iter().filter(|f| f.closed.is_none());
    let mut by_kind = Vec::new();
    for kind in Kind::ALL {
        for severity in [Severity::Info, Severity::Warning, Severity::Critical] {
            let n = open()
                .filter(|f| (f.kind, f.severity) == (kind, severity))
                .count();
            let labels = [("kind", kind.name()), ("severity", severity.name())];
            by_kind.push(sample(&labels, Value::Count(n as u64)));
        }
    }
    let mut one_by_one: BTreeMap<[String; 4], u64> = BTreeMap::new();
    for f in open().take(FINDINGS) {
        let device = f
            .device
            .map_or_else(String::new, |d| snapshot.device_name(d));
        let victim = match snapshot.owners.iter().find(|o| o.owner == f.victim) {
            Some(o) => o.cgroup.path.clone(),
            None => "other".to_owned(),
        };
        let key = [
            f.kind.name().to_owned(),
            f.severity.name().to_owned(),
            device,
            victim,
        ];
        let longest = one_by_one.entry(key).or_default();
        *longest = f.duration_ns.max(*longest);
    }
    let durations = one_by_one
        .iter()
        .map(|([kind, severity, device, victim], ns)| {
            let labels = [
                ("kind", kind.as_str()),
                ("severity", severity),
                ("device", device),
                ("cgroup", victim),
            ];
            sample(&labels, seconds(*ns))
        });
    let told = |kind: &Kind| own.told.get(kind).copied().unwrap_or(0);
    let told = Kind::ALL.map(|k| sample(&[("kind", k.name())], Value::Count(told(&k))));
    let blame = Mechanism::ALL.map(|m| {
        let ns = own.blame.get(&m).copied().unwrap_or(0);
        sample(&[("mechanism", m.name())], seconds(ns))
    });
    let verdict = |v: &Verdict| match v {
        Verdict::Attached { .. } => "attached",
        Verdict::Absent => "absent",
        Verdict::Refused { .. } => "refused",
        Verdict::NotNeeded => "not-needed",
        Verdict::Waits => "waits",
    };
    let hooks = ["attached", "absent", "refused", "not-needed", "waits"].map(|name| {
        let of = snapshot
            .hooks
            .iter()
            .filter(|h| verdict(&h.verdict) == name);
        sample(&[("verdict", name)], Value::Count(of.count() as u64))
    });
    let loss = LossKind::ALL.map(|kind| {
        let n = snapshot
            .loss
            .iter()
            .find(|(k, _)| *k == kind)
            .map_or(0, |(_, n)| *n);
        sample(&[("kind", kind.name())], Value::Count(n))
    });
    vec![
        family(
            "io_starve_findings_open",
            "",
            Type::Gauge,
            "Findings that are open.",
            by_kind,
        ),
        family(
            "io_starve_finding_duration_seconds",
            "seconds",
            Type::Gauge,
            "For how long the condition of an open finding has lasted.",
            durations.collect(),
        ),
        family(
            "io_starve_findings_told",
            "",
            Type::Counter,
            "Findings that were told as alerts.",
            told.into(),
        ),
        family(
            "io_starve_findings_folded",
            "",
            Type::Counter,
            "Findings that were not told because too many of their kind and victim came at once.",
            vec![sample(&[], Value::Count(own.folded))],
        ),
        family(
            "io_starve_blame_seconds",
            "seconds",
            Type::Counter,
            "Delay of one owner by another, by what kept it waiting.",
            blame.into(),
        ),
        family(
            "io_starve_hooks",
            "",
            Type::Gauge,
            "Hooks by what became of them.",
            hooks.into(),
        ),
        family(
            "io_starve_loss_events",
            "",
            Type::Counter,
            "What was not seen.",
            loss.into(),
        ),
    ]
}

fn disks(tally: &Tally) -> Vec<Family> {
    let times = tally.times.iter().map(|((disk, class, stage), t)| {
        let labels = [
            ("device", disk.as_str()),
            ("class", class.name()),
            ("stage", stage.name()),
        ];
        sample(&labels, Value::Histogram(t.counts, t.sum_ns as f64 / 1e9))
    });
    let requests = |value: fn(&super::tally::Requests) -> Value| {
        let rows = tally.requests.iter();
        rows.map(|((disk, class), r)| {
            sample(
                &[("device", disk.as_str()), ("class", class.name())],
                value(r),
            )
        })
        .collect()
    };
    vec![
        family(
            "io_starve_stage_duration_seconds",
            "seconds",
            Type::Histogram,
            "Time of requests in a stage that they have left.",
            times.collect(),
        ),
        family(
            "io_starve_requests",
            "",
            Type::Counter,
            "Requests that ended.",
            requests(|r| Value::Count(r.finished)),
        ),
        family(
            "io_starve_request_bytes",
            "bytes",
            Type::Counter,
            "Bytes of requests that ended.",
            requests(|r| Value::Count(r.bytes)),
        ),
        family(
            "io_starve_oldest_wait_seconds",
            "seconds",
            Type::Gauge,
            "Age of the oldest request that is not issued yet.",
            requests(|r| seconds(r.oldest_ns)),
        ),
    ]
}

fn waits(tally: &Tally) -> Vec<Family> {
    let holds = tally.holds.iter();
    let holds = holds.map(|(disk, ns)| sample(&[("device", disk)], seconds(*ns)));
    let pauses = |value: fn(&super::tally::Sum) -> Value| {
        let rows = tally.pauses.iter();
        rows.map(|((device, worker), sum)| {
            sample(
                &[("device", device.as_str()), ("worker", worker)],
                value(sum),
            )
        })
        .collect()
    };
    let fsyncs = |value: fn(&super::tally::Sum) -> Value| {
        let rows = tally.fsyncs.iter();
        rows.map(|(mount, sum)| sample(&[("mountpoint", mount)], value(sum)))
            .collect()
    };
    vec![
        family(
            "io_starve_hold_seconds",
            "seconds",
            Type::Counter,
            "Time in which limits of blk-throttle held something.",
            holds.collect(),
        ),
        family(
            "io_starve_pause_seconds",
            "seconds",
            Type::Counter,
            "Pauses of writers for dirty memory, added up over tasks.",
            pauses(|s| seconds(s.ns)),
        ),
        family(
            "io_starve_pauses",
            "",
            Type::Counter,
            "How many pauses of writers for dirty memory began.",
            pauses(|s| Value::Count(s.count)),
        ),
        family(
            "io_starve_fsync_seconds",
            "seconds",
            Type::Counter,
            "Time of fsyncs that ended, added up.",
            fsyncs(|s| seconds(s.ns)),
        ),
        family(
            "io_starve_fsyncs",
            "",
            Type::Counter,
            "How many fsyncs ended.",
            fsyncs(|s| Value::Count(s.count)),
        ),
    ]
}

fn owners(tally: &Tally) -> Vec<Family> {
    let rows = |value: fn(&Counts) -> Value| {
        let rows = tally.owners.rows();
        rows.map(|(path, counts)| sample(&[("cgroup", path)], value(counts)))
            .collect()
    };
    let mut waits = Vec::new();
    for (path, counts) in tally.owners.rows() {
        for (stage, ns) in [
            (Stage::Admission, counts.admission_ns),
            (Stage::Queued, counts.queued_ns),
        ] {
            waits.push(sample(
                &[("cgroup", path), ("stage", stage.name())],
                seconds(ns),
            ));
        }
    }
    let oldest = tally.oldest.iter();
    let oldest = oldest.map(|(path, ns)| sample(&[("cgroup", path)], seconds(*ns)));
    vec![
        family(
            "io_starve_owner_wait_seconds",
            "seconds",
            Type::Counter,
            "Time of requests before they were issued, added up, by who pays for them; those that wait most.",
            waits,
        ),
        family(
            "io_starve_owner_oldest_wait_seconds",
            "seconds",
            Type::Gauge,
            "Age of the oldest request of an owner that is not issued yet.",
            oldest.collect(),
        ),
        family(
            "io_starve_owner_requests",
            "",
            Type::Counter,
            "Requests of an owner that ended.",
            rows(|c| Value::Count(c.finished)),
        ),
        family(
            "io_starve_owner_request_bytes",
            "bytes",
            Type::Counter,
            "Bytes of requests of an owner that ended.",
            rows(|c| Value::Count(c.bytes)),
        ),
        family(
            "io_starve_owner_hold_seconds",
            "seconds",
            Type::Counter,
            "Time in which a limit of this cgroup held something.",
            rows(|c| seconds(c.hold_ns)),
        ),
        family(
            "io_starve_owner_pause_seconds",
            "seconds",
            Type::Counter,
            "Pauses of an owner's tasks for dirty memory, added up.",
            rows(|c| seconds(c.pause_ns)),
        ),
    ]
}

fn process(tally: &Tally, own: &Own) -> Vec<Family> {
    let outputs = |value: fn(&(String, u64, u64)) -> u64| {
        let rows = own.outputs.iter();
        rows.map(|o| sample(&[("output", o.0.as_str())], Value::Count(value(o))))
            .collect()
    };
    let one = |value: Option<Value>| value.map(|v| sample(&[], v)).into_iter().collect();
    vec![
        family(
            "io_starve_lines_written",
            "",
            Type::Counter,
            "Alerts and other lines that an output took.",
            outputs(|o| o.1),
        ),
        family(
            "io_starve_lines_lost",
            "",
            Type::Counter,
            "Alerts and other lines that an output did not take.",
            outputs(|o| o.2),
        ),
        family(
            "io_starve_ticks",
            "",
            Type::Counter,
            "How often the kernel was read.",
            one(Some(Value::Count(tally.ticks))),
        ),
        family(
            "io_starve_build_info",
            "",
            Type::Gauge,
            "Always 1; the version is a label.",
            vec![sample(&[("version", VERSION)], Value::Count(1))],
        ),
        family(
            "process_cpu_seconds",
            "seconds",
            Type::Counter,
            "CPU time of io-starve itself.",
            one(own.cpu_seconds.map(Value::Number)),
        ),
        family(
            "process_resident_memory_bytes",
            "bytes",
            Type::Gauge,
            "Resident memory of io-starve itself.",
            one(own.rss_bytes.map(Value::Count)),
        ),
    ]
}

#[cfg(test)]
mod tests;
