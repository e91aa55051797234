//! The scenario's own trace, replayed by io-starve: it must come to the counts of the trace and to the findings of the live run.
//!
//! Both read the same events, one in the kernel and by address, the other from text and by sector. A trace names no cgroup, no limit and no
//! stack, so findings that need these are left out, and those about fsyncs and pauses, which it tells in part, are only noted. One that only the text shows is a note: the emulator's live
//! ticks come late, the text's never do. So is one that only the live run shows where the rule, a little stricter, is not met: there a
//! tick's place decides.

use super::{Report, TICK, Truth, accounts, lasts, verdicts::WITHOUT_RULE};
use crate::vm::{
    results::{Alert, Results},
    scenario::Scenario,
    trace,
};

/// Kinds that a trace can tell.
const KINDS: [&str; 5] = [
    "async-write-starvation",
    "sync-write-starvation",
    "read-starvation",
    "device-stall",
    "queue-stuck",
];
/// Kinds that it can tell in part.
const IN_PART: [&str; 2] = ["fsync-serialization", "dirty-throttle"];
/// Mechanisms that show in the queue and not in a task's stack.
const MECHANISMS: [&str; 2] = ["scheduler", "device"];
/// The rule that weighs dirty memory.
const BY_MEMORY: &str = "crawling";

/// When something was found, in ns of the guest's clock.
struct Found<'a> {
    open: &'a Alert,
    begin_ns: u64,
    opened_ns: u64,
    until_ns: u64,
}

/// Compares; `live` is what io-starve said about the device in the guest.
pub fn check(s: &Scenario, r: &Results, truth: &Truth, live: &[&Alert], report: &mut Report) {
    let rows = accounts::rows(&r.imported, &r.device.1);
    let mut of_text = Report::default();
    accounts::balance(&rows, 0, &mut of_text);
    match trace::parse(&r.trace) {
        Ok(events) => accounts::events(&rows, &trace::count(&events), 0, &mut of_text),
        Err(e) => of_text.problems.push(format!("{e:#}")),
    }
    report.problems.extend(
        of_text
            .problems
            .iter()
            .map(|p| format!("the trace, replayed: {p}")),
    );
    let imported: Vec<&Alert> = r.imported.iter().filter(|a| a.is_finding()).collect();
    let in_text = found(&imported);
    for l in found(live) {
        let (kind, rule) = (l.open.text("/kind"), l.open.text("/evidence/rule"));
        let by_owner = s.expect.by_owner.iter().any(|k| k == kind);
        let in_part = IN_PART.contains(&kind) && l.open.text("/severity") != "info";
        if !(KINDS.contains(&kind) || in_part) || by_owner || rule == BY_MEMORY {
            continue;
        }
        let same = |t: &&Found| {
            let alike = |at| t.open.text(at) == l.open.text(at);
            let shows = in_part || MECHANISMS.contains(&l.open.text("/mechanism"));
            let mechanism = !shows || alike("/mechanism");
            alike("/kind") && alike("/victim/class") && mechanism
        };
        let covers =
            |t: &&Found| t.begin_ns <= l.begin_ns + TICK && t.until_ns + TICK >= l.opened_ns;
        match in_text.iter().filter(same).find(covers) {
            Some(t) => report.notes.push(format!(
                "{kind} since {:.3} s, by the text since {:.3} s",
                l.begin_ns as f64 / 1e9,
                t.begin_ns as f64 / 1e9
            )),
            None => {
                let said = format!(
                    "the trace, replayed, does not show {kind} since {:.3} s",
                    l.begin_ns as f64 / 1e9
                );
                if !in_part && l.must_show(truth) {
                    report.problems.push(said);
                } else {
                    report.notes.push(said);
                }
            }
        }
    }
    let kinds: Vec<&str> = live.iter().map(|a| a.text("/kind")).collect();
    for t in in_text
        .iter()
        .filter(|t| !kinds.contains(&t.open.text("/kind")))
    {
        report.notes.push(format!(
            "only the text shows {} since {:.3} s",
            t.open.text("/kind"),
            t.begin_ns as f64 / 1e9
        ));
    }
}

impl Found<'_> {
    /// By the strict rule, or by a kind that has none, it was there while the live run found it.
    fn must_show(&self, truth: &Truth) -> bool {
        let kind = self.open.text("/kind");
        WITHOUT_RULE.contains(&kind)
            || truth.strict.iter().any(|m| {
                m.kind() == kind
                    && lasts(m)
                    && m.from_ns <= self.until_ns
                    && m.until_ns >= self.begin_ns
            })
    }
}

fn found<'a>(alerts: &[&'a Alert]) -> Vec<Found<'a>> {
    let duration = |a: &Alert| a.number("/duration_ms").unwrap_or_default() * 1_000_000;
    let time = |a: &Alert| a.number("/mono_ns").unwrap_or_default();
    alerts
        .iter()
        .filter(|a| a.event() == "open")
        .map(|open| {
            let begin_ns = time(open).saturating_sub(duration(open));
            let last = alerts
                .iter()
                .rev()
                .find(|a| a.text("/id") == open.text("/id"));
            Found {
                open,
                begin_ns,
                opened_ns: time(open),
                until_ns: begin_ns + last.map_or(0, |a| duration(a)),
            }
        })
        .collect()
}
