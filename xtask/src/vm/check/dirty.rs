//! Pauses for dirty memory: against the kernel's own trace events, and findings about them against fio's clock.

use std::collections::BTreeMap;

use super::{LATE_TICK, MS, Report, TICK, loss, stop};
use crate::vm::{
    results::{Alert, Observed, Results},
    scenario::Scenario,
};

/// Compares what was told of pauses.
pub fn check(
    s: &Scenario,
    r: &Results,
    observed: &Observed,
    alerts: &[&Alert],
    report: &mut Report,
) {
    if s.pauses {
        totals(r, observed, report);
    }
    for f in &s.expect.findings {
        if let Some(job) = &f.behind_job {
            behind(r, observed, &f.kind, job, alerts, report);
        }
    }
}

/// Sums by backing device agree with the trace within 5 %, counts alike.
fn totals(r: &Results, observed: &Observed, report: &mut Report) {
    let Some(trace) = &r.pauses else {
        report.problems.push("the guest left no pauses".to_string());
        return;
    };
    if trace.lost > 0 {
        report
            .problems
            .push(format!("the trace of pauses lost {} events", trace.lost));
    }
    let mark = |name: &str| observed.marks.get(name).copied();
    let (Some(from), Some(to)) = (mark("attached"), mark("stop")) else {
        // Said elsewhere.
        return;
    };
    let mut by_trace: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (at, bdi, ms) in &trace.events {
        if (from..=to).contains(at) {
            let sum = by_trace.entry(bdi).or_default();
            sum.0 += 1;
            sum.1 += ms;
        }
    }
    let told = stop(&observed.alerts).and_then(|a| a.json.pointer("/pauses")?.as_array());
    let mut by_us: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for p in told.into_iter().flatten() {
        let number = |name: &str| p.get(name).and_then(serde_json::Value::as_u64);
        let bdi = p.get("bdi").and_then(serde_json::Value::as_str);
        let sum = by_us.entry(bdi.unwrap_or_default()).or_default();
        sum.0 += number("pauses").unwrap_or_default();
        sum.1 += number("paused_ms").unwrap_or_default();
    }
    if by_trace.is_empty() {
        report
            .problems
            .push("nobody was paused, by the kernel's trace".to_string());
    }
    let bdis: std::collections::BTreeSet<&str> =
        by_trace.keys().chain(by_us.keys()).copied().collect();
    for bdi in bdis {
        let (trace, us) = (
            by_trace.get(bdi).copied().unwrap_or_default(),
            by_us.get(bdi).copied().unwrap_or_default(),
        );
        let line = format!(
            "pauses behind {bdi}: {} for {} ms, by the kernel's trace {} for {} ms",
            us.0, us.1, trace.0, trace.1
        );
        let off = |a: u64, b: u64, least: u64| a.abs_diff(b) > (b / 20).max(least);
        // The mark and the moment of attaching differ by some ms: one pause may lie between them.
        if off(us.1, trace.1, 200) || off(us.0, trace.0, 1) {
            report.problems.push(line);
        } else {
            report.notes.push(line);
        }
    }
}

/// The longest wait behind the worker is no longer than fio's longest I/O, and not much shorter than half of it: ticks see a part.
fn behind(
    r: &Results,
    observed: &Observed,
    kind: &str,
    job: &str,
    alerts: &[&Alert],
    report: &mut Report,
) {
    let longest = |json: &serde_json::Value| -> Option<u64> {
        let of = |p: &str| json.pointer(p).and_then(serde_json::Value::as_u64);
        of("/jobs/0/read/clat_ns/max").max(of("/jobs/0/sync/lat_ns/max"))
    };
    let by_fio = r.fio.get(job).and_then(longest).filter(|ns| *ns > 0);
    let told = alerts
        .iter()
        .filter(|a| a.text("/kind") == kind)
        .flat_map(|a| a.json.pointer("/evidence/looped/victims"))
        .filter_map(|v| v.as_array())
        .flatten()
        .filter_map(|v| v.get("longest_ms")?.as_u64())
        .max();
    let (Some(by_fio), Some(told)) = (by_fio, told) else {
        report
            .problems
            .push(format!("{job}: no wait behind the worker to compare with"));
        return;
    };
    let line = format!(
        "{job}: longest wait behind the worker {told} ms, by fio {} ms",
        by_fio / MS
    );
    let slack = (by_fio / 10).max(TICK);
    let late = loss(observed, LATE_TICK) > 0;
    if told * MS > by_fio + slack || !late && told * MS + slack < by_fio / 2 {
        report.problems.push(line);
    } else {
        report.notes.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::results::{Pauses, parse_alerts};

    fn run(told: &str, events: &[(u64, &str, u64)], lost: u64) -> Report {
        let told = told.replace('\n', "");
        let line = format!("{{\"event\":\"stop\",\"pauses\":{told}}}\n");
        let observed = Observed {
            alerts: parse_alerts(&line).unwrap(),
            marks: BTreeMap::from([("attached".to_string(), 100), ("stop".to_string(), 900)]),
            ..Observed::default()
        };
        let events = events
            .iter()
            .map(|(at, bdi, ms)| (*at, (*bdi).to_string(), *ms));
        let results = Results {
            pauses: Some(Pauses {
                events: events.collect(),
                lost,
            }),
            ..Results::default()
        };
        let mut report = Report::default();
        totals(&results, &observed, &mut report);
        report
    }

    #[test]
    fn sums_of_tasks_and_workers_agree_with_the_trace_of_the_same_time() {
        let told = r#"[{"bdi":"7:0","worker":null,"pauses":20,"paused_ms":4000},
            {"bdi":"8:0","worker":"loop0","pauses":10,"paused_ms":2000},
            {"bdi":"8:0","worker":null,"pauses":10,"paused_ms":2000}]"#;
        let mut events: Vec<(u64, &str, u64)> = Vec::new();
        for at in 0..20 {
            events.push((200 + at, "7:0", 200));
            events.push((200 + at, "8:0", 200));
        }
        // Before io-starve was attached.
        events.push((50, "7:0", 9_000));
        let good = run(told, &events, 0);
        assert_eq!(good.problems, Vec::<String>::new());
        assert_eq!(good.notes.len(), 2);
        assert_eq!(run(told, &events, 3).problems.len(), 1, "events were lost");
        // A tenth is missing on one of them.
        events.retain(|(at, bdi, _)| *bdi != "8:0" || *at > 201);
        assert_eq!(run(told, &events, 0).problems.len(), 1);
        // A backing device that only one of the two has.
        events.push((300, "0:52", 500));
        events.push((301, "0:52", 500));
        assert_eq!(run(told, &events, 0).problems.len(), 2);
        assert_eq!(run("[]", &[], 0).problems.len(), 1, "nothing happened");
    }
}
