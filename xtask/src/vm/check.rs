//! Compares what io-starve said with the kernel's trace, fio and the scenario's expectations. Pure.
//!
//! In: a [`Scenario`] and its [`Results`]. Out: a [`Report`] with everything that does not fit.

mod accounts;
mod verdicts;

use std::collections::BTreeMap;

use anyhow::Result;
use io_starve_common::class::Class;
use serde_json::Value;

use super::{
    queue::{Ended, Queue},
    results::{Alert, Results},
    rule::{self, Limits, Met},
    scenario::{Attach, Scenario},
    trace::{self, Event, What},
};

const MS: u64 = 1_000_000;
/// The observer's tick. ns.
const TICK: u64 = 250 * MS;
/// A condition that lasts shorter than this may fall between two ticks.
const MUST_LAST: u64 = 3 * TICK;

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
        accounts::fio_counts(s, r, t, &mut report);
        disease_shows(s, t, &mut report);
    }
    let Some(alerts) = &r.alerts else {
        report.notes.push("io-starve did not run".to_string());
        return report;
    };
    process(r, alerts, &mut report);
    replay(r, alerts, &mut report);
    accounts::accounts(alerts, &mut report);
    if let Some(t) = &truth {
        if s.attach == Attach::Before {
            accounts::counts(alerts, t, &mut report);
            accounts::longest(alerts, t, &mut report);
        }
        verdicts::verdicts(s, r, alerts, t, &mut report);
    }
    verdicts::expectations(s, alerts, &mut report);
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

#[cfg(test)]
mod tests;
