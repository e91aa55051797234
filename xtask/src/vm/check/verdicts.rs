//! Findings: against the rule applied to the kernel's trace, and against what the scenario expects.

use super::{LATE_TICK, MS, MUST_LAST, Report, SKIPPED_RUNS, TICK, Truth, loss};
use crate::vm::{
    results::{Alert, Observed},
    rule::Limits,
    scenario::{Attach, ExpectedFinding, KINDS, Scenario, class_by_name},
};

/// Kinds for which no rule can be applied to the block trace: it does not show the inside of a device, nor fsyncs, nor who
/// is paused, nor whose a request is.
pub const WITHOUT_RULE: [&str; 6] = [
    "device-stall",
    "fsync-serialization",
    "journal-stall",
    "loop-double-throttle",
    "dirty-throttle",
    "weight-unfairness",
];
/// From condition to alert, in ticks (design, section 9).
const LATE_TICKS: u32 = 2;
/// Under emulation, with other guests' loads on the same two CPUs, a tick itself may come one tick late.
const SLACK: u64 = TICK;
/// The same when ticks are known to have come late: the longest seen between two was 1.4 s.
const LATE_SLACK: u64 = 6 * TICK;
/// Attached in the middle of it, a starvation is found within this time.
const FOUND_AFTER_ATTACH: u64 = 2_000 * MS;
/// Default of `--hold-down`.
const HOLD_DOWN: u64 = 10_000 * MS;

/// Findings against the rule applied to the trace: the same verdict, and in time.
pub fn verdicts(
    s: &Scenario,
    observed: &Observed,
    alerts: &[&Alert],
    t: &Truth,
    report: &mut Report,
) {
    let marks = &observed.marks;
    // A tick that came late cannot have told in time; how late, the alerts do not say.
    let slack = if loss(observed, LATE_TICK) > 0 {
        LATE_SLACK
    } else {
        SLACK
    };
    // What the kernel did not run cannot be judged to the tick: then only what the scenario expects must be found.
    let partly_seen = loss(observed, SKIPPED_RUNS) > 0;
    let attached = marks.get("attached").copied().unwrap_or_default();
    let stopped = marks.get("stop").copied().unwrap_or(u64::MAX);
    for kind in KINDS.iter().filter(|k| !WITHOUT_RULE.contains(k)) {
        let opened: Vec<&Alert> = alerts
            .iter()
            .copied()
            .filter(|a| a.event() == "open" && a.text("/kind") == *kind)
            .collect();
        let may = t
            .loose
            .iter()
            .find(|m| m.kind() == *kind && m.until_ns > attached);
        // The part of it that the observer could see must last.
        let must = t.strict.iter().find(|m| {
            let (from, until) = (m.from_ns.max(attached), m.until_ns.min(stopped));
            let looks = observed.ticks.iter().filter(|t| (from..=until).contains(t));
            m.kind() == *kind
                && until.saturating_sub(from) >= MUST_LAST
                && (observed.ticks.is_empty() || looks.count() as u64 * TICK >= MUST_LAST)
        });
        let first = opened.iter().filter_map(|a| a.number("/mono_ns")).min();
        // The rule is for classes: it cannot refute a finding about one of several owners.
        let refutes = !s.expect.by_owner.iter().any(|k| k == kind);
        match (first, may, must) {
            (None, _, Some(_)) if partly_seen => {}
            (None, _, Some(m)) => report.problems.push(format!(
                "{kind} was not found, though by the kernel's trace its rule ({}) was met from {:.2} s for {} ms",
                m.rule,
                m.from_ns as f64 / 1e9,
                (m.until_ns - m.from_ns) / MS
            )),
            (Some(at), None, _) if refutes => report.problems.push(format!(
                "{kind} was found at {:.2} s, though by the kernel's trace its rule was never met",
                at as f64 / 1e9
            )),
            (Some(at), Some(may), must) => {
                let late = s.expect.max_late_ticks.unwrap_or(LATE_TICKS);
                let latest = must.map(|m| match s.attach {
                    Attach::Before => nth_tick(observed, m.from_ns, late as usize, slack),
                    Attach::After(_) => m.from_ns.max(attached) + FOUND_AFTER_ATTACH + slack,
                });
                let to_the_tick = !partly_seen;
                if to_the_tick && refutes && s.attach == Attach::Before && at < may.from_ns {
                    report.problems.push(format!(
                        "{kind} was found {} ms before its rule was met by the kernel's trace",
                        (may.from_ns - at) / MS
                    ));
                }
                if let Some(latest) = latest.filter(|l| to_the_tick && at > *l) {
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
            (Some(_), None, _) | (None, _, None) => {}
        }
    }
}

/// The tick at which a finding must be there when its rule is met from this moment on: one tick belongs to the reader, who may have
/// looked at the windows just before. Ticks that come late under emulation are no fault of the detector.
fn nth_tick(observed: &Observed, from_ns: u64, ticks: usize, slack: u64) -> u64 {
    let after = observed.ticks.iter().filter(|t| **t >= from_ns);
    let by_ticks = after.copied().nth(ticks);
    by_ticks.unwrap_or(from_ns + ticks as u64 * TICK + slack)
}

/// What the alerts of an expected finding say of its time, against the trace.
pub fn measured(
    s: &Scenario,
    observed: &Observed,
    alerts: &[&Alert],
    t: &Truth,
    report: &mut Report,
) {
    let slack = if loss(observed, LATE_TICK) > 0 {
        LATE_SLACK
    } else {
        SLACK
    };
    for f in s.expect.findings.iter().filter(|f| f.measured) {
        let closed = alerts
            .iter()
            .find(|a| a.event() == "close" && a.text("/kind") == f.kind);
        let met = || t.design.iter().filter(|m| m.kind() == f.kind);
        let (Some(closed), Some(from), Some(until)) = (
            closed,
            met().map(|m| m.from_ns).min(),
            met().map(|m| m.until_ns).max(),
        ) else {
            // Said elsewhere.
            continue;
        };
        // The rule is met a second after the wait began, which is where the finding begins.
        let began = from - Limits::DESIGN.withheld_ns;
        let longest = class_by_name(closed.text("/victim/class"))
            .and_then(|c| t.longest_queued.get(&c).copied());
        for (what, said, truth) in [
            (
                "duration_ms",
                closed.number("/duration_ms"),
                Some(until - began),
            ),
            ("longest_ms", closed.number("/longest_ms"), longest),
        ] {
            let (Some(said), Some(truth)) = (said.map(|ms| ms * MS), truth) else {
                report
                    .problems
                    .push(format!("{}: no {what} to compare", f.kind));
                continue;
            };
            report.notes.push(format!(
                "{}: {what} {}, by the trace {}",
                f.kind,
                said / MS,
                truth / MS
            ));
            if said.abs_diff(truth) > truth / 20 + TICK + slack {
                report.problems.push(format!(
                    "{}: {what} is {}, by the kernel's trace {}",
                    f.kind,
                    said / MS,
                    truth / MS
                ));
            }
        }
        let latest = until + HOLD_DOWN + u64::from(LATE_TICKS) * TICK + slack;
        if closed.number("/mono_ns").is_none_or(|at| at > latest) {
            report
                .problems
                .push(format!("{} closed later than its hold-down allows", f.kind));
        }
    }
}

pub fn expectations(s: &Scenario, alerts: &[&Alert], report: &mut Report) {
    let of = |event: &str| -> Vec<&Alert> {
        alerts
            .iter()
            .copied()
            .filter(|a| a.event() == event)
            .collect()
    };
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
        let info = s.expect.at_most_info.iter().any(|k| k == kind);
        let too_much = info && a.text("/severity") != "info";
        let strange = s.look_alike && !info && !s.expect.as_rule.iter().any(|k| k == kind);
        if never || strange || too_much {
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
fn misses(s: &Scenario, f: &ExpectedFinding, open: &Alert, alerts: &[&Alert]) -> Vec<String> {
    let id = open.text("/id");
    let said: Vec<&Alert> = alerts
        .iter()
        .copied()
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
        ("/severity", f.severity.clone()),
        ("/confidence", f.confidence.clone()),
        ("/stage", f.stage.clone()),
        ("/filesystem", f.filesystem.clone()),
        (
            "/culprits/0/limit/cgroup/path",
            f.limit_cgroup.as_deref().map(cgroup),
        ),
        (
            "/victim/cgroup/path",
            f.victim_cgroup.as_deref().map(cgroup),
        ),
        (
            "/culprits/0/cgroup/path",
            f.top_culprit_cgroup.as_deref().map(cgroup),
        ),
    ];
    let mut misses: Vec<String> = wanted
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
        .collect();
    let order: Vec<String> = f.culprit_cgroups.iter().map(|c| cgroup(c)).collect();
    let culprits = |a: &Alert| -> Vec<String> {
        let path = |i| a.text(&format!("/culprits/{i}/cgroup/path")).to_string();
        (0..order.len()).map(path).collect()
    };
    if !said.iter().any(|a| culprits(a) == order) {
        misses.push(format!("its culprits are {:?}", culprits(open)));
    }
    for (name, want) in [("wbps", f.limit_wbps), ("wiops", f.limit_wiops)] {
        let at = format!("/culprits/0/limit/{name}");
        if want.is_some() && !said.iter().any(|a| a.number(&at) == want) {
            misses.push(format!("its limit is not {name}={}", want.unwrap_or(0)));
        }
    }
    if let Some(want) = f.layers {
        let layers = |a: &Alert| {
            let list = a.json.pointer("/evidence/looped/layers");
            list.and_then(|l| l.as_array())
                .is_some_and(|l| l.len() as u64 == want)
        };
        if !said.iter().any(|a| layers(a)) {
            misses.push(format!("its stack has not {want} layers"));
        }
    }
    if let Some(want) = f.beside_cgroup.as_deref().map(cgroup) {
        let beside = |a: &Alert| {
            let list = a.json.pointer("/evidence/looped/other_writers");
            list.and_then(|l| l.as_array())
                .is_some_and(|l| l.iter().any(|w| *w == want))
        };
        if !said.iter().any(|a| beside(a)) {
            misses.push(format!("{want} is not told to write beside it"));
        }
    }
    if let Some(want) = f.before_attach
        && open.json.pointer("/evidence/before_attach") != Some(&want.into())
    {
        misses.push(format!("before_attach is not {want}"));
    }
    misses
}
