//! Figures: io-starve's accounts against the kernel's trace, the trace against fio.

use std::collections::BTreeMap;

use io_starve_common::class::Class;
use serde_json::Value;

use super::{Report, Truth, stop};
use crate::vm::{
    results::{Alert, Results},
    scenario::{Scenario, class_by_name},
    trace::What,
};

/// fio's direct I/Os = requests allocated + bios merged - bios cut (design, section 8).
pub fn fio_counts(s: &Scenario, r: &Results, t: &Truth, report: &mut Report) {
    let mut by_class: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for f in &s.expect.fio {
        by_class.entry(&f.class).or_default().push(&f.job);
    }
    for (class_name, jobs) in by_class {
        let Some(class) = class_by_name(class_name) else {
            continue;
        };
        let side = if class == Class::SyncRead {
            "read"
        } else {
            "write"
        };
        let mut said = 0;
        for job in &jobs {
            let total: Option<u64> = r.fio.get(*job).and_then(|json| {
                json.get("jobs")?
                    .as_array()?
                    .iter()
                    .map(|j| j.get(side)?.get("total_ios")?.as_u64())
                    .sum()
            });
            match total {
                Some(n) => said += n,
                None => report
                    .problems
                    .push(format!("fio job {job} left no result")),
            }
        }
        let of = |what| {
            t.events
                .iter()
                .filter(|e| e.what == what && e.class == class && !e.marked && e.sectors > 0)
                .count() as u64
        };
        let seen = of(What::GetRq) + of(What::BackMerge) + of(What::FrontMerge) - of(What::Split);
        if seen != said {
            report.problems.push(format!(
                "{class_name}: fio ({}) counts {said} I/Os, the trace {seen}",
                jobs.join(" + ")
            ));
        }
    }
}

/// One row of the accounts in the `stop` event.
pub type Row<'a> = (Class, &'a Value);

/// The rows of a device.
pub fn rows<'a>(alerts: &'a [Alert], device: &str) -> Vec<Row<'a>> {
    stop(alerts)
        .and_then(|a| a.json.get("accounts")?.as_array())
        .map(|rows| {
            rows.iter()
                .filter(|row| row.get("device").and_then(Value::as_str) == Some(device))
                .filter_map(|row| Some((class_by_name(row.get("class")?.as_str()?)?, row)))
                .collect()
        })
        .unwrap_or_default()
}

fn field(row: &Value, name: &str) -> u64 {
    row.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// seen = finished + merged + in flight + expired, and at the end nothing is in flight. No more may be expired than
/// program runs were skipped by the kernel.
pub fn balance(rows: &[Row], skipped: u64, report: &mut Report) {
    if rows.is_empty() {
        report
            .problems
            .push("the stop event has no accounts of the device".to_string());
    }
    for (class, row) in rows {
        let row = *row;
        let parts = ["finished", "merged", "in_flight", "expired"].map(|n| field(row, n));
        if field(row, "seen") != parts.iter().sum::<u64>() {
            report.problems.push(format!(
                "{}: the account does not balance: {row}",
                class.name()
            ));
        }
        if field(row, "in_flight") > 0 || field(row, "expired") > skipped {
            report.problems.push(format!(
                "{}: the device is idle, yet the account has {} in flight and {} expired",
                class.name(),
                field(row, "in_flight"),
                field(row, "expired")
            ));
        }
    }
}

/// Classes that are counted alike on both sides; passthrough commands are not block I/O.
const COUNTED: [Class; 5] = [
    Class::SyncRead,
    Class::SyncWrite,
    Class::AsyncWrite,
    Class::Flush,
    Class::Discard,
];

/// Counts equal those of the trace; where the kernel skipped program runs, they miss no more than were skipped.
pub fn counts(rows: &[Row], t: &Truth, skipped: u64, report: &mut Report) {
    events(rows, &t.counts, skipped, report);
    for class in COUNTED {
        let ours: u64 = rows
            .iter()
            .filter(|(c, _)| *c == class)
            .map(|(_, row)| field(row, "finished"))
            .sum();
        let finished = t.finished.get(&class).copied().unwrap_or_default();
        if differs(ours, finished, skipped) {
            report.problems.push(format!(
                "{}: {ours} finished, the kernel's trace has {finished}",
                class.name()
            ));
        }
    }
}

fn differs(ours: u64, theirs: u64, skipped: u64) -> bool {
    ours > theirs || theirs - ours > skipped
}

/// The same of events only.
pub fn events(
    rows: &[Row],
    counts: &BTreeMap<(What, Class), u64>,
    skipped: u64,
    report: &mut Report,
) {
    for class in COUNTED {
        let ours = |name| {
            rows.iter()
                .filter(|(c, _)| *c == class)
                .map(|(_, row)| field(row, name))
                .sum::<u64>()
        };
        let theirs = |what| counts.get(&(what, class)).copied().unwrap_or_default();
        for (name, what) in [
            ("inserts", What::Insert),
            ("issues", What::Issue),
            ("requeues", What::Requeue),
        ] {
            if differs(ours(name), theirs(what), skipped) {
                report.problems.push(format!(
                    "{}: {} {name}, the kernel's trace has {}",
                    class.name(),
                    ours(name),
                    theirs(what)
                ));
            }
        }
    }
}

/// Longest wait in the queue within 5 %; both stamps are taken within one tracepoint, but the emulator may take the CPU away between
/// them, so ten milliseconds are allowed always.
pub fn longest(rows: &[Row], t: &Truth, late: bool, report: &mut Report) {
    for (class, ns) in &t.longest_queued {
        let theirs = *ns as f64 / 1e6;
        let ours = rows
            .iter()
            .filter(|(c, _)| c == class)
            .filter_map(|(_, row)| row.get("queued_max_ms")?.as_f64())
            .fold(None, |max: Option<f64>, v| {
                Some(max.map_or(v, |m| m.max(v)))
            });
        // A tick that came late is said to have missed the longest before it; none is made up.
        let missed = late && ours.is_some_and(|ours| ours < theirs);
        let fits =
            missed || ours.is_some_and(|ours| (ours - theirs).abs() <= (theirs * 0.05).max(10.0));
        if !fits && COUNTED.contains(class) {
            report.problems.push(format!(
                "{}: longest in the queue {} ms, by the kernel's trace {theirs:.1} ms",
                class.name(),
                ours.map_or("unknown".to_string(), |v| format!("{v:.1}"))
            ));
        }
    }
}
