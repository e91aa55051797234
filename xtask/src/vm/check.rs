//! Compares what io-starve said with the kernel's trace, fio and the scenario's expectations. Pure.
//!
//! In: a [`Scenario`] and its [`Results`]. Out: a [`Report`] with everything that does not fit.

mod accounts;
mod commands;
mod dirty;
mod fsync;
mod imported;
mod verdicts;
mod weights;

use std::collections::BTreeMap;

use anyhow::Result;
use io_starve_common::class::Class;

pub use commands::check_commands;
pub use weights::io_ms;

use super::{
    queue::{Ended, Queue},
    results::{Alert, Observed, Results},
    rule::{self, Limits, Met},
    scenario::{Attach, Scenario},
    trace::{self, Event, What},
};

const MS: u64 = 1_000_000;
/// The observer's tick. ns.
const TICK: u64 = 250 * MS;
/// Name of the loss of a tick that came late.
const LATE_TICK: &str = "late-tick";
/// Name of the loss of program runs that the kernel itself left out, and what follows from them in io-starve's accounts.
const SKIPPED_RUNS: &str = "skipped-runs";
const FOLLOW_UPS: [&str; 4] = [
    "lost-completion",
    "expired",
    "unmatched-completion",
    "admission-expired",
];
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

impl Report {
    /// A report of one problem.
    pub fn problem(text: String) -> Report {
        Report {
            problems: vec![text],
            notes: Vec::new(),
        }
    }
}

/// What the trace says about the whole run.
struct Truth {
    events: Vec<Event>,
    counts: BTreeMap<(What, Class), u64>,
    finished: BTreeMap<Class, u64>,
    parts: u64,
    longest_queued: BTreeMap<Class, u64>,
    loose: Vec<Met>,
    design: Vec<Met>,
    strict: Vec<Met>,
}

/// Compares what concerns one scenario. `observed` is `None` when io-starve did not run.
pub fn check(s: &Scenario, r: &Results, observed: Option<&Observed>) -> Report {
    let mut report = Report::default();
    report
        .problems
        .extend(r.errors.iter().map(|e| format!("guest: {e}")));
    let truth = if s.trace {
        let stopped = observed.and_then(|o| o.marks.get("stop").copied());
        match truth(r, stopped.unwrap_or(u64::MAX), &mut report) {
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
    let Some(observed) = observed else {
        return report;
    };
    let rows = accounts::rows(&observed.alerts, &r.device.0);
    let skipped = loss(observed, SKIPPED_RUNS);
    accounts::balance(&rows, skipped, &mut report);
    // Attached later, it has not seen what the trace has.
    if let Some(t) = truth.as_ref().filter(|_| s.attach == Attach::Before) {
        accounts::counts(&rows, t, skipped, &mut report);
        // Without some of the events a request can look younger or older than it was.
        if skipped == 0 {
            accounts::longest(&rows, t, loss(observed, LATE_TICK) > 0, &mut report);
        }
    }
    let alerts = of_device(&observed.alerts, &r.device.1);
    if let Some(t) = &truth {
        verdicts::verdicts(s, observed, &alerts, t, &mut report);
        verdicts::measured(s, observed, &alerts, t, &mut report);
        fsync::own_data(s, &alerts, &t.events, &mut report);
        if !r.imported.is_empty() {
            imported::check(s, r, t, &alerts, &mut report);
        }
    }
    verdicts::expectations(s, &alerts, &mut report);
    fsync::check(s, r, observed, &alerts, &mut report);
    dirty::check(s, r, observed, &alerts, &mut report);
    weights::check(s, r, observed, &alerts, &mut report);
    report
}

/// Compares what concerns the observer of a batch as a whole: how it ended, what it lost, its recording.
pub fn check_observer(o: &Observed) -> Report {
    let mut report = Report::default();
    report
        .problems
        .extend(o.errors.iter().map(|e| format!("guest: {e}")));
    process(o, &mut report);
    replay(o, &mut report);
    report
}

/// Alerts of findings on a device.
fn of_device<'a>(alerts: &'a [Alert], number: &str) -> Vec<&'a Alert> {
    let on_it = |a: &&Alert| {
        let (major, minor) = (a.number("/device/major"), a.number("/device/minor"));
        major
            .zip(minor)
            .is_some_and(|(major, minor)| format!("{major}:{minor}") == number)
    };
    alerts
        .iter()
        .filter(|a| a.is_finding())
        .filter(on_it)
        .collect()
}

fn truth(r: &Results, until_ns: u64, report: &mut Report) -> Result<Truth> {
    let mut events = trace::parse(&r.trace)?;
    // The device was idle as io-starve was told to stop; what the file system wrote later it could not see.
    events.retain(|e| e.ns <= until_ns);
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
    let mut parts = 0_u64;
    for e in &events {
        match queue.step(e) {
            Ended::Queued(class, Some(ns)) => {
                let longest: &mut u64 = longest_queued.entry(class).or_default();
                *longest = ns.max(*longest);
            }
            Ended::Finished(class) => *finished.entry(class).or_default() += 1,
            Ended::Part => parts += 1,
            Ended::Unmatched => unmatched += 1,
            Ended::Queued(_, None) | Ended::Admission(..) | Ended::Nothing => {}
        }
    }
    if unmatched > 0 || queue.in_flight() > 0 {
        report.problems.push(format!(
            "the trace does not add up: {unmatched} events without a beginning; left: {}",
            queue.left()
        ));
    }
    // A trace names no cgroup, but the file system's own writes, which are the root's, are marked: the rules look at
    // classes as a whole and at what is left without those.
    let data = rule::without_metadata(&events);
    let apply = |limits| {
        let mut met = rule::apply(&events, &r.backlog, limits);
        for m in rule::apply(&data, &r.backlog, limits) {
            if !met.contains(&m) {
                met.push(m);
            }
        }
        met.sort_by_key(|m| m.from_ns);
        met
    };
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
        parts,
        longest_queued,
        loose,
        design,
        strict,
    })
}

/// An expected disease must be there by the trace, whatever io-starve says.
fn disease_shows(s: &Scenario, t: &Truth, report: &mut Report) {
    let of = |what| -> u64 {
        let counts = t.counts.iter().filter(|((w, _), _)| *w == what);
        counts.map(|(_, n)| n).sum()
    };
    for (what, seen, least) in [
        ("requeues", of(What::Requeue), s.expect.requeues),
        ("completions of a part", t.parts, s.expect.parts),
    ] {
        if least > 0 {
            report.notes.push(format!("{seen} {what}"));
        }
        if seen < least {
            report
                .problems
                .push(format!("the load made {seen} {what}, and not {least}"));
        }
    }
    for f in &s.expect.findings {
        let by_rule =
            |m: &&Met| m.kind() == f.kind && f.rule.as_deref().is_none_or(|r| r == m.rule);
        if !verdicts::WITHOUT_RULE.contains(&f.kind.as_str())
            && !t.strict.iter().filter(by_rule).any(lasts)
        {
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

fn process(o: &Observed, report: &mut Report) {
    for name in ["watch", "replay"] {
        match o.codes.get(name).map(String::as_str) {
            Some("0") => {}
            Some(code) => report
                .problems
                .push(format!("io-starve {name} ended with {code}")),
            None => report
                .problems
                .push(format!("io-starve {name} left no exit code")),
        }
    }
    for line in o.stderr.lines() {
        if line.contains("panicked at") || line.contains("verifier") || line.contains("refused") {
            report.problems.push(format!("io-starve said: {line}"));
        }
    }
    for event in ["start", "stop"] {
        if o.alerts.iter().filter(|a| a.event() == event).count() != 1 {
            report
                .problems
                .push(format!("not exactly one {event} event"));
        }
    }
    let kinds = stop(&o.alerts).and_then(|a| a.json.pointer("/loss/kinds")?.as_object());
    let Some(kinds) = kinds else {
        report
            .problems
            .push("the stop event says nothing about losses".to_string());
        return;
    };
    for (kind, n) in kinds {
        // The emulated CPU may be slower than the tick; that is the lab's fault, and nothing of the accounts is lost by it.
        // From 7.x on programs can be pre-empted, and whatever nests meanwhile on that CPU is left out: an emulated CPU, slow as
        // it is, meets that often. io-starve must say so, and what follows from it must not be more.
        let follows = FOLLOW_UPS.contains(&kind.as_str())
            && n.as_u64().is_some_and(|n| n <= loss(o, SKIPPED_RUNS));
        if kind == LATE_TICK {
            report.notes.push(format!("{n} ticks came late"));
        } else if kind == SKIPPED_RUNS || follows {
            report.notes.push(format!("{n} events were lost: {kind}"));
        } else {
            report
                .problems
                .push(format!("{n} events were lost: {kind}"));
        }
    }
}

/// How many events of a kind the observer lost, by its own account.
fn loss(o: &Observed, kind: &str) -> u64 {
    stop(&o.alerts)
        .and_then(|a| a.number(&format!("/loss/kinds/{kind}")))
        .unwrap_or_default()
}

fn replay(o: &Observed, report: &mut Report) {
    let lines = |alerts: &[Alert]| -> Vec<String> {
        alerts
            .iter()
            .filter(|a| a.is_finding())
            .map(|a| a.line.clone())
            .collect()
    };
    let (live, again) = (lines(&o.alerts), lines(&o.replay));
    if live == again {
        report.notes.push(format!(
            "{} finding lines, the same in the replay",
            live.len()
        ));
        return;
    }
    let at = live.iter().zip(&again).take_while(|(a, b)| a == b).count();
    let line = |lines: &[String]| lines.get(at).map_or("(ended)".to_string(), Clone::clone);
    report.problems.push(format!(
        "the replay differs from the live run at finding line {}:\n      live   {}\n      replay {}",
        at + 1,
        line(&live),
        line(&again)
    ));
}

fn stop(alerts: &[Alert]) -> Option<&Alert> {
    alerts.iter().rfind(|a| a.event() == "stop")
}

#[cfg(test)]
mod tests;
