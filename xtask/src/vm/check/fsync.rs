//! Findings about fsyncs, and other calls that wait for a journal: against the clock of the program that calls.

use super::{LATE_TICK, MS, Report, SKIPPED_RUNS, TICK, loss};
use std::collections::BTreeMap;

use io_starve_common::class::Class;

use crate::vm::{
    results::{Alert, Observed, Results},
    scenario::Scenario,
    trace::{Event, What},
};

/// Defaults of `--fsync-ms`, `--fsync-factor` and `--journal-ms`.
const FSYNC_MS: u64 = 200;
const FSYNC_FACTOR: u64 = 5;
const JOURNAL_MS: u64 = 1_000;
/// From condition to alert, in ticks, and one that emulation may make late.
const LATE_TICKS: u64 = 3;

/// Compares each finding that names the job it is about.
pub fn check(
    s: &Scenario,
    r: &Results,
    observed: &Observed,
    alerts: &[&Alert],
    report: &mut Report,
) {
    for a in alerts
        .iter()
        .filter(|a| ["fsync-serialization", "journal-stall"].contains(&a.text("/kind")))
    {
        let nameless = a
            .json
            .pointer("/culprits")
            .and_then(|c| c.as_array())
            .is_some_and(|culprits| {
                culprits.iter().any(|c| {
                    c.get("owner").is_some_and(|o| o == "cgroup")
                        && c.pointer("/cgroup/path").is_none_or(|p| p.is_null())
                })
            });
        if nameless {
            report
                .problems
                .push(format!("a culprit without a name: {}", a.line));
        }
    }
    if s.expect.closes_in_load {
        let loaded = r.marks.get("loaded").copied().unwrap_or_default();
        let late = alerts
            .iter()
            .filter(|a| a.event() == "close" && a.number("/mono_ns").is_none_or(|at| at > loaded));
        for a in late {
            report
                .problems
                .push(format!("{} closed after the load only", a.text("/id")));
        }
    }
    for f in &s.expect.findings {
        let (job, max_at, warning_ms, ticks) = match (&f.fsync_job, &f.call_job) {
            (Some(job), _) => (job, "/jobs/0/sync/lat_ns/max", FSYNC_MS, 0),
            // It is seen at the first tick in it, and no longer at the first after it.
            (None, Some(job)) => (job, "/jobs/0/read/clat_ns/max", JOURNAL_MS, 1),
            (None, None) => continue,
        };
        let victim = format!(
            "/{}{}",
            s.name,
            f.victim_cgroup.as_deref().unwrap_or_default()
        );
        let of_it =
            |a: &&&Alert| a.text("/kind") == f.kind && a.text("/victim/cgroup/path") == victim;
        let Some(open) = alerts.iter().find(|a| a.event() == "open" && of_it(a)) else {
            // Said elsewhere.
            continue;
        };
        let max_ns = r
            .fio
            .get(job)
            .and_then(|json| json.pointer(max_at).and_then(serde_json::Value::as_u64));
        let longest = alerts
            .iter()
            .filter(of_it)
            .filter_map(|a| a.number("/longest_ms"))
            .max();
        let (Some(max_ns), Some(longest)) = (max_ns, longest) else {
            report
                .problems
                .push(format!("{job}: no call to compare with"));
            continue;
        };
        report.notes.push(format!(
            "{victim}: longest call {longest} ms, by fio {} ms; found after {} ms",
            max_ns / MS,
            open.number("/duration_ms").unwrap_or_default()
        ));
        let partly_seen = loss(observed, SKIPPED_RUNS) > 0;
        // Between fio's clock and the file system lies the emulated system call. Behind a queue only some of the fsyncs meet the rule, and
        // fio's longest need not be one of them.
        let alike = ["journal-data", "checkpoint"]
            .map(Some)
            .contains(&f.mechanism.as_deref());
        let told = longest * MS;
        let slack = (max_ns / 20).max(10 * MS) + ticks * TICK;
        if !partly_seen && (told > max_ns + slack || alike && told + slack < max_ns) {
            report.problems.push(format!(
                "{victim}: the longest call took {} ms by fio, and is told as {longest} ms",
                max_ns / MS
            ));
        }
        let alone = open.number("/evidence/fsync/alone_ms").unwrap_or_default();
        let met = warning_ms.max(alone * FSYNC_FACTOR);
        let late = if loss(observed, LATE_TICK) > 0 { 6 } else { 0 };
        let latest = met + (LATE_TICKS + late) * TICK / MS;
        let found = open.number("/duration_ms").unwrap_or(u64::MAX);
        if !partly_seen && found > latest {
            report.problems.push(format!(
                "{victim}: found when its call had waited for {found} ms, the rule was met at {met} ms"
            ));
        }
    }
}

/// Compares the part of an fsync's own data with the requests of its class that are no file system's own.
pub fn own_data(s: &Scenario, alerts: &[&Alert], events: &[Event], report: &mut Report) {
    let took = submitted_to_completed(events);
    for f in s.expect.findings.iter().filter(|f| f.own_data) {
        let victim = format!(
            "/{}{}",
            s.name,
            f.victim_cgroup.as_deref().unwrap_or_default()
        );
        let ended = alerts.iter().filter(|a| {
            a.event() == "close"
                && a.text("/kind") == f.kind
                && a.text("/victim/cgroup/path") == victim
                && a.json.pointer("/evidence/fsync/exact") == Some(&true.into())
        });
        let mut compared = 0;
        for a in ended {
            let own = a.number("/evidence/fsync/own_data_ms").unwrap_or_default() * MS;
            let Some(nearest) = took.iter().min_by_key(|ns| ns.abs_diff(own)) else {
                continue;
            };
            compared += 1;
            report.notes.push(format!(
                "{victim}: own data took {} ms, a request of it {} ms by the trace",
                own / MS,
                nearest / MS
            ));
            if nearest.abs_diff(own) > (own / 20).max(10 * MS) {
                report.problems.push(format!(
                    "{victim}: its own data took {} ms, and no request of it took so long",
                    own / MS
                ));
            }
        }
        if compared == 0 {
            report
                .problems
                .push(format!("{victim}: no time of its own data to compare with"));
        }
    }
}

/// How long each sync write of data took, in ns.
fn submitted_to_completed(events: &[Event]) -> Vec<u64> {
    let mut since = BTreeMap::new();
    let mut took = Vec::new();
    let data = events
        .iter()
        .filter(|e| e.class == Class::SyncWrite && !e.marked && e.sectors > 0);
    for e in data {
        match e.what {
            What::BioQueue => {
                since.entry(e.sector).or_insert(e.ns);
            }
            What::Complete => {
                took.extend(since.remove(&e.sector).map(|at| e.ns.saturating_sub(at)));
            }
            _ => {}
        }
    }
    took
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::{scenario::Scenario, trace};

    const TRACE: &str = "\
        fio-1 [000] ..... 1.000000: block_bio_queue: 8,0 WS 100 + 8 [fio]\n\
        jbd2-2 [000] ..... 1.100000: block_bio_queue: 8,0 WSM 500 + 8 [jbd2]\n\
        kworker-3 [000] ..... 1.200000: block_bio_queue: 8,0 W 900 + 8 [kworker]\n\
        x-0 [000] ..s.. 2.500000: block_rq_complete: 8,0 WS () 100 + 8 be,0,4 [0]\n\
        x-0 [000] ..s.. 9.000000: block_rq_complete: 8,0 WSM () 500 + 8 be,0,4 [0]\n\
        x-0 [000] ..s.. 9.000000: block_rq_complete: 8,0 W () 900 + 8 be,0,4 [0]\n";

    #[test]
    fn own_data_is_compared_with_requests_of_data_only() {
        let events = trace::parse(TRACE).unwrap();
        assert_eq!(submitted_to_completed(&events), [1_500_000_000]);
        let s = Scenario::parse(
            "x",
            "title = \"t\"\nreproduces = \"r\"\nload_limit_s = 1\n[[disk]]\nsize_mib = 1\nqueue_depth = 1\nscheduler = \"none\"\n\
             [script]\nload = \"true\"\n[[expect.finding]]\nkind = \"fsync-serialization\"\nvictim_cgroup = \"/v\"\nown_data = true\n",
        )
        .unwrap();
        let problems = |own_ms: u64| {
            let line = format!(
                r#"{{"event":"close","kind":"fsync-serialization","victim":{{"cgroup":{{"path":"/x/v"}}}},"evidence":{{"fsync":{{"exact":true,"own_data_ms":{own_ms}}}}}}}"#
            );
            let alert = Alert {
                json: serde_json::from_str(&line).unwrap(),
                line,
            };
            let mut report = Report::default();
            own_data(&s, &[&alert], &events, &mut report);
            report.problems.len()
        };
        assert_eq!(problems(1_530), 0);
        assert_eq!(problems(1_700), 1, "no request took so long");
        let mut report = Report::default();
        own_data(&s, &[], &events, &mut report);
        assert_eq!(report.problems.len(), 1, "nothing was compared");
    }
}
