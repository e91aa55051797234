//! Compares what io-starve said with the kernel's trace, fio and the scenario's expectations. Pure.
//!
//! In: a [`Scenario`] and its [`Results`]. Out: a [`Report`] with everything that does not fit.

use std::collections::BTreeMap;

use anyhow::Result;
use io_starve_common::class::Class;
use serde_json::Value;

use super::{
    queue::{Ended, Queue},
    results::{Alert, Results},
    rule::{self, Limits, Met},
    scenario::{Attach, ExpectedFinding, KINDS, Scenario, class_by_name},
    trace::{self, Event, What},
};

const MS: u64 = 1_000_000;
/// The observer's tick. ns.
const TICK: u64 = 250 * MS;
/// From condition to alert, in ticks (design, section 9).
const LATE_TICKS: u32 = 2;
/// Under emulation, with other guests' loads on the same two CPUs, a tick itself may come one tick late.
const SLACK: u64 = TICK;
/// A condition that lasts shorter than this may fall between two ticks.
const MUST_LAST: u64 = 3 * TICK;
/// Attached in the middle of it, a starvation is found within this time.
const FOUND_AFTER_ATTACH: u64 = 2_000 * MS;
/// Default of `--hold-down`.
const HOLD_DOWN: u64 = 10_000 * MS;

/// What came of a scenario.
#[derive(Debug, Default)]
pub struct Report {
    /// What does not fit.
    pub problems: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// What the trace says about the whole run.
struct Truth {
    events: Vec<Event>,
    counts: BTreeMap<(What, Class), u64>,
    finished: BTreeMap<Class, u64>,
    longest_queued: BTreeMap<Class, u64>,
    loose: Vec<Met>,
    design: Vec<Met>,
    strict: Vec<Met>,
}

/// Makes all comparisons.
pub fn check(s: &Scenario, r: &Results) -> Report {
    let mut report = Report::default();
    report
        .problems
        .extend(r.errors.iter().map(|e| format!("guest: {e}")));
    let truth = if s.trace {
        match truth(r, &mut report) {
            Ok(truth) => Some(truth),
            Err(e) => {
                report.problems.push(format!("{e:#}"));
                None
            }
        }
    } else {
        None
    };
    if let Some(t) = &truth {
        fio_counts(s, r, t, &mut report);
        disease_shows(s, t, &mut report);
    }
    let Some(alerts) = &r.alerts else {
        report.notes.push("io-starve did not run".to_string());
        return report;
    };
    process(r, alerts, &mut report);
    replay(r, alerts, &mut report);
    accounts(alerts, &mut report);
    if let Some(t) = &truth {
        if s.attach == Attach::Before {
            counts(alerts, t, &mut report);
            longest(alerts, t, &mut report);
        }
        verdicts(s, r, alerts, t, &mut report);
    }
    expectations(s, alerts, &mut report);
    report
}

fn truth(r: &Results, report: &mut Report) -> Result<Truth> {
    let events = trace::parse(&r.trace)?;
    if r.trace_lost > 0 {
        report.problems.push(format!(
            "the trace lost {} events; make its buffer larger",
            r.trace_lost
        ));
    }
    let mut queue = Queue::default();
    let mut finished = BTreeMap::new();
    let mut longest_queued = BTreeMap::new();
    let mut unmatched = 0_u64;
    for e in &events {
        match queue.step(e) {
            Ended::Queued(class, Some(ns)) => {
                let longest: &mut u64 = longest_queued.entry(class).or_default();
                *longest = ns.max(*longest);
            }
            Ended::Finished(class) => *finished.entry(class).or_default() += 1,
            Ended::Unmatched => unmatched += 1,
            Ended::Queued(_, None) | Ended::Nothing => {}
        }
    }
    if unmatched > 0 || queue.in_flight() > 0 {
        report.problems.push(format!(
            "the trace does not add up: {unmatched} events without a beginning; left: {}",
            queue.left()
        ));
    }
    let apply = |limits| rule::apply(&events, &r.backlog, limits);
    let (loose, design, strict) = (
        apply(&Limits::LOOSE),
        apply(&Limits::DESIGN),
        apply(&Limits::STRICT),
    );
    for (class, ns) in &longest_queued {
        report
            .notes
            .push(format!("{}: longest queued {} ms", class.name(), ns / MS));
    }
    for m in &design {
        report.notes.push(format!(
            "rule: {} ({}) from {:.2} s for {} ms{}",
            m.kind(),
            m.rule,
            m.from_ns as f64 / 1e9,
            (m.until_ns - m.from_ns) / MS,
            if m.in_admission { ", in admission" } else { "" }
        ));
    }
    Ok(Truth {
        counts: trace::count(&events),
        events,
        finished,
        longest_queued,
        loose,
        design,
        strict,
    })
}

/// fio's direct I/Os = requests allocated + bios merged - bios cut (design, section 8).
fn fio_counts(s: &Scenario, r: &Results, t: &Truth, report: &mut Report) {
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

/// An expected disease must be there by the trace, whatever io-starve says.
fn disease_shows(s: &Scenario, t: &Truth, report: &mut Report) {
    for f in &s.expect.findings {
        let by_rule =
            |m: &&Met| m.kind() == f.kind && f.rule.as_deref().is_none_or(|r| r == m.rule);
        if f.kind != "device-stall" && !t.strict.iter().filter(by_rule).any(lasts) {
            report.problems.push(format!(
                "the disease did not show: by the kernel's trace the rule of {} was not met for {} ms",
                f.kind,
                MUST_LAST / MS
            ));
        }
    }
}

fn lasts(m: &Met) -> bool {
    m.until_ns - m.from_ns >= MUST_LAST
}

fn process(r: &Results, alerts: &[Alert], report: &mut Report) {
    for name in ["watch", "replay"] {
        match r.codes.get(name).map(String::as_str) {
            Some("0") => {}
            Some(code) => report
                .problems
                .push(format!("io-starve {name} ended with {code}")),
            None => report
                .problems
                .push(format!("io-starve {name} left no exit code")),
        }
    }
    for line in r.stderr.lines() {
        if line.contains("panicked at") || line.contains("verifier") || line.contains("refused") {
            report.problems.push(format!("io-starve said: {line}"));
        }
    }
    for event in ["start", "stop"] {
        if alerts.iter().filter(|a| a.event() == event).count() != 1 {
            report
                .problems
                .push(format!("not exactly one {event} event"));
        }
    }
    let lost = stop(alerts).and_then(|a| a.number("/loss/events"));
    if lost != Some(0) {
        let loss = stop(alerts)
            .and_then(|a| a.json.get("loss"))
            .map(Value::to_string);
        report
            .problems
            .push(format!("events were lost: {}", loss.unwrap_or_default()));
    }
}

fn replay(r: &Results, alerts: &[Alert], report: &mut Report) {
    let live: Vec<&str> = alerts
        .iter()
        .filter(|a| a.is_finding())
        .map(|a| a.line.as_str())
        .collect();
    let again: Vec<&str> = r
        .replay
        .iter()
        .filter(|a| a.is_finding())
        .map(|a| a.line.as_str())
        .collect();
    if live == again {
        return;
    }
    let at = live.iter().zip(&again).take_while(|(a, b)| a == b).count();
    report.problems.push(format!(
        "the replay differs from the live run at finding line {}:\n      live   {}\n      replay {}",
        at + 1,
        live.get(at).unwrap_or(&"(ended)"),
        again.get(at).unwrap_or(&"(ended)")
    ));
}

fn stop(alerts: &[Alert]) -> Option<&Alert> {
    alerts.iter().rfind(|a| a.event() == "stop")
}

/// The accounts of the `stop` event: class -> fields.
fn account_rows(alerts: &[Alert]) -> Vec<(Class, &Value)> {
    stop(alerts)
        .and_then(|a| a.json.get("accounts")?.as_array())
        .map(|rows| {
            rows.iter()
                .filter_map(|row| Some((class_by_name(row.get("class")?.as_str()?)?, row)))
                .collect()
        })
        .unwrap_or_default()
}

fn field(row: &Value, name: &str) -> u64 {
    row.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// seen = finished + merged + in flight + expired, and at the end nothing is in flight.
fn accounts(alerts: &[Alert], report: &mut Report) {
    let rows = account_rows(alerts);
    if rows.is_empty() {
        report
            .problems
            .push("the stop event has no accounts".to_string());
    }
    for (class, row) in rows {
        let parts = ["finished", "merged", "in_flight", "expired"].map(|n| field(row, n));
        if field(row, "seen") != parts.iter().sum::<u64>() {
            report.problems.push(format!(
                "{}: the account does not balance: {row}",
                class.name()
            ));
        }
        if field(row, "in_flight") > 0 || field(row, "expired") > 0 {
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

fn counts(alerts: &[Alert], t: &Truth, report: &mut Report) {
    let rows = account_rows(alerts);
    for class in COUNTED {
        let ours = |name| {
            rows.iter()
                .filter(|(c, _)| *c == class)
                .map(|(_, row)| field(row, name))
                .sum::<u64>()
        };
        let theirs = |what| t.counts.get(&(what, class)).copied().unwrap_or_default();
        for (name, what) in [
            ("inserts", What::Insert),
            ("issues", What::Issue),
            ("requeues", What::Requeue),
        ] {
            if ours(name) != theirs(what) {
                report.problems.push(format!(
                    "{}: {} {name}, the kernel's trace has {}",
                    class.name(),
                    ours(name),
                    theirs(what)
                ));
            }
        }
        let finished = t.finished.get(&class).copied().unwrap_or_default();
        if ours("finished") != finished {
            report.problems.push(format!(
                "{}: {} finished, the kernel's trace has {finished}",
                class.name(),
                ours("finished")
            ));
        }
    }
}

/// Longest wait in the queue within 5 %; the trace rounds to microseconds and is stamped a moment later, so a millisecond is allowed always.
fn longest(alerts: &[Alert], t: &Truth, report: &mut Report) {
    let rows = account_rows(alerts);
    for (class, ns) in &t.longest_queued {
        let theirs = *ns as f64 / 1e6;
        let ours = rows
            .iter()
            .filter(|(c, _)| c == class)
            .filter_map(|(_, row)| row.get("queued_max_ms")?.as_f64())
            .fold(None, |max: Option<f64>, v| {
                Some(max.map_or(v, |m| m.max(v)))
            });
        let fits = ours.is_some_and(|ours| (ours - theirs).abs() <= (theirs * 0.05).max(1.0));
        if !fits && COUNTED.contains(class) {
            report.problems.push(format!(
                "{}: longest in the queue {} ms, by the kernel's trace {theirs:.1} ms",
                class.name(),
                ours.map_or("unknown".to_string(), |v| format!("{v:.1}"))
            ));
        }
    }
}

/// Findings against the rule applied to the trace: the same verdict, and in time.
fn verdicts(s: &Scenario, r: &Results, alerts: &[Alert], t: &Truth, report: &mut Report) {
    let attached = r.marks.get("attached").copied().unwrap_or_default();
    let stopped = r.marks.get("stop").copied().unwrap_or(u64::MAX);
    for kind in KINDS.iter().filter(|k| **k != "device-stall") {
        let opened: Vec<&Alert> = alerts
            .iter()
            .filter(|a| a.event() == "open" && a.text("/kind") == *kind)
            .collect();
        let may = t
            .loose
            .iter()
            .find(|m| m.kind() == *kind && m.until_ns > attached);
        // The part of it that the observer could see must last.
        let must = t.strict.iter().find(|m| {
            m.kind() == *kind
                && m.until_ns
                    .min(stopped)
                    .saturating_sub(m.from_ns.max(attached))
                    >= MUST_LAST
        });
        let first = opened.iter().filter_map(|a| a.number("/mono_ns")).min();
        match (first, may, must) {
            (None, _, Some(m)) => report.problems.push(format!(
                "{kind} was not found, though by the kernel's trace its rule ({}) was met from {:.2} s for {} ms",
                m.rule,
                m.from_ns as f64 / 1e9,
                (m.until_ns - m.from_ns) / MS
            )),
            (Some(at), None, _) => report.problems.push(format!(
                "{kind} was found at {:.2} s, though by the kernel's trace its rule was never met",
                at as f64 / 1e9
            )),
            (Some(at), Some(may), must) => {
                let late = s.expect.max_late_ticks.unwrap_or(LATE_TICKS);
                let latest = must.map(|m| match s.attach {
                    Attach::Before => m.from_ns + u64::from(late) * TICK + SLACK,
                    Attach::After(_) => m.from_ns.max(attached) + FOUND_AFTER_ATTACH,
                });
                if s.attach == Attach::Before && at < may.from_ns {
                    report.problems.push(format!(
                        "{kind} was found {} ms before its rule was met by the kernel's trace",
                        (may.from_ns - at) / MS
                    ));
                }
                if let Some(latest) = latest.filter(|l| at > *l) {
                    report
                        .problems
                        .push(format!("{kind} was found {} ms later than allowed", (at - latest) / MS));
                }
                report.notes.push(format!(
                    "{kind}: rule met at {}, found at {:.2} s",
                    t.design
                        .iter()
                        .find(|m| m.kind() == *kind)
                        .map_or("no time".to_string(), |m| format!("{:.2} s", m.from_ns as f64 / 1e9)),
                    at as f64 / 1e9
                ));
            }
            (None, _, None) => {}
        }
    }
}

fn expectations(s: &Scenario, alerts: &[Alert], report: &mut Report) {
    let of =
        |event: &str| -> Vec<&Alert> { alerts.iter().filter(|a| a.event() == event).collect() };
    let opened = of("open");
    for f in &s.expect.findings {
        let misses: Vec<Vec<String>> = opened
            .iter()
            .filter(|a| a.text("/kind") == f.kind)
            .map(|a| misses(s, f, a, alerts))
            .collect();
        match misses.iter().min_by_key(|m| m.len()) {
            None => report.problems.push(format!("{} did not open", f.kind)),
            Some(m) if !m.is_empty() => {
                report
                    .problems
                    .push(format!("{} opened, but {}", f.kind, m.join(", ")))
            }
            Some(_) => {}
        }
    }
    for a in &opened {
        let kind = a.text("/kind");
        let never = s.expect.never.iter().any(|k| k == kind);
        let strange = s.look_alike && !s.expect.as_rule.iter().any(|k| k == kind);
        if never || strange {
            report
                .problems
                .push(format!("{kind} must not open: {}", a.line));
        }
    }
    if s.expect.must_close {
        for a in &opened {
            let id = a.text("/id");
            let close = alerts
                .iter()
                .find(|c| c.event() == "close" && c.text("/id") == id);
            match close {
                Some(c) if c.text("/reason") == "resolved" => held_down(a, c, report),
                Some(c) => report
                    .problems
                    .push(format!("{id} closed as {}", c.text("/reason"))),
                None => report.problems.push(format!("{id} did not close")),
            }
        }
    }
}

/// A finding closes a hold-down after it was last met, so never sooner than that after it opened.
fn held_down(open: &Alert, close: &Alert, report: &mut Report) {
    let (Some(from), Some(to)) = (open.number("/mono_ns"), close.number("/mono_ns")) else {
        report.problems.push("an alert without mono_ns".to_string());
        return;
    };
    if to.saturating_sub(from) < HOLD_DOWN {
        report.problems.push(format!(
            "{} closed {} ms after it opened, sooner than its hold-down",
            close.text("/id"),
            to.saturating_sub(from) / MS
        ));
    }
}

/// What of an expectation an opened finding, with all that was said of it later, does not meet.
fn misses(s: &Scenario, f: &ExpectedFinding, open: &Alert, alerts: &[Alert]) -> Vec<String> {
    let id = open.text("/id");
    let said: Vec<&Alert> = alerts
        .iter()
        .filter(|a| a.is_finding() && a.text("/id") == id)
        .collect();
    let cgroup = |below: &str| {
        let below = below.trim_end_matches('/');
        if below.is_empty() {
            "/".to_string()
        } else {
            format!("/{}{below}", s.name)
        }
    };
    let wanted = [
        ("/evidence/rule", f.rule.clone()),
        ("/mechanism", f.mechanism.clone()),
        ("/victim/class", f.victim_class.clone()),
        (
            "/victim/cgroup/path",
            f.victim_cgroup.as_deref().map(cgroup),
        ),
        (
            "/culprits/0/cgroup/path",
            f.top_culprit_cgroup.as_deref().map(cgroup),
        ),
    ];
    wanted
        .iter()
        .filter_map(|(pointer, want)| {
            let want = want.as_ref()?;
            if said.iter().any(|a| a.text(pointer) == want) {
                return None;
            }
            Some(format!(
                "{pointer} is {:?} and not {want:?}",
                open.text(pointer)
            ))
        })
        .collect()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
