//! The detectors' rules, applied to the kernel's trace: what should have been found.
//!
//! In: trace events of one device, samples of the memory that waits behind it. Out: when each rule was met. Written from the
//! design (section 6), not from the detectors. A trace names no cgroup, so the rules are applied to classes.

use std::collections::BTreeMap;

use io_starve_common::class::Class;

use super::{
    queue::{Ended, Queue},
    trace::{Event, What},
};

/// Between two looks at the queue. Short against the observer's tick of 250 ms.
const STEP_NS: u64 = 20_000_000;
const SECOND: u64 = 1_000_000_000;

/// Numbers of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Withheld: issued nothing for so long.
    pub withheld_ns: u64,
    /// Withheld: while so many others were issued.
    pub others: u64,
    /// Crawling: the window.
    pub window_ns: u64,
    /// Crawling: waits for at least this part of it.
    pub waits_share: f64,
    /// Crawling: gets less than this part of the issues.
    pub issue_share: f64,
    /// Crawling: the backlog needs longer than this.
    pub needs_ns: u64,
    /// Stuck: nothing issued or completed for so long.
    pub stuck_ns: u64,
    /// Not met where it is open to doubt that others gain: those served waited a third as long as the group has, or nothing was issued for
    /// the second half of its wait. A detector may stay quiet there.
    pub beyond_doubt: bool,
}

impl Limits {
    /// The design's numbers.
    pub const DESIGN: Limits = Limits {
        withheld_ns: SECOND,
        others: 64,
        window_ns: 5 * SECOND,
        waits_share: 0.8,
        issue_share: 0.15,
        needs_ns: 30 * SECOND,
        stuck_ns: 5 * SECOND,
        beyond_doubt: false,
    };

    /// Met a little earlier and more often. What is not met even so must not be found; before it no alert may come. The observer
    /// reads counters at ticks, so its windows are off by up to a tick in five seconds and its gaps by the time of one read.
    pub const LOOSE: Limits = Limits {
        withheld_ns: SECOND * 9 / 10,
        others: 58,
        window_ns: 5 * SECOND,
        waits_share: 0.7,
        issue_share: 0.18,
        needs_ns: 25 * SECOND,
        stuck_ns: SECOND * 48 / 10,
        beyond_doubt: false,
    };

    /// Met a little later and without doubt. What is met even so for long enough must be found. 8 % of the issues are less than half
    /// of an equal share among six.
    pub const STRICT: Limits = Limits {
        withheld_ns: SECOND,
        others: 70,
        window_ns: 5 * SECOND,
        waits_share: 0.9,
        issue_share: 0.08,
        needs_ns: 36 * SECOND,
        stuck_ns: 5 * SECOND,
        beyond_doubt: true,
    };
}

/// A stretch of time in which a rule was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Met {
    /// `withheld`, `crawling` or `stuck`.
    pub rule: &'static str,
    /// What waited; `None` when it is the whole device.
    pub class: Option<Class>,
    /// First and last look at which it was met. ns, monotonic.
    pub from_ns: u64,
    /// See `from_ns`.
    pub until_ns: u64,
    /// Something waited for admission at its first look.
    pub in_admission: bool,
}

impl Met {
    /// Kind of the finding that it makes.
    pub fn kind(&self) -> &'static str {
        match self.class {
            None => "queue-stuck",
            Some(Class::SyncRead) => "read-starvation",
            Some(Class::SyncWrite) => "sync-write-starvation",
            Some(_) => "async-write-starvation",
        }
    }
}

const CLASSES: [Class; 3] = [Class::SyncRead, Class::SyncWrite, Class::AsyncWrite];

/// Sums since the beginning for one class, at one look.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    looks_waiting: u64,
    issues: u64,
    issues_of_all: u64,
    bytes: u64,
    /// Time in admission and in the queue of what left it.
    waits_ns: u64,
    waits_of_all_ns: u64,
}

#[derive(Debug, Default)]
struct Group {
    now: Sums,
    history: Vec<Sums>,
    waiting_since: Option<u64>,
    last_issue: Option<u64>,
    /// Issues of others when the present gap began.
    others_at_gap: u64,
}

/// Applies the rules. `backlog` is (time, bytes) in the order of time: memory that waits to be written behind the device.
pub fn apply(events: &[Event], backlog: &[(u64, u64)], limits: &Limits) -> Vec<Met> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return Vec::new();
    };
    let mut queue = Queue::default();
    let mut groups: BTreeMap<Class, Group> =
        CLASSES.iter().map(|c| (*c, Group::default())).collect();
    let mut issues_of_all = 0;
    let mut waits_of_all = 0;
    let mut busy_since: Option<u64> = None;
    let mut last_move = 0;
    let mut met = Vec::new();
    let mut next = 0;
    let mut now = first.ns;
    while now <= last.ns + STEP_NS {
        while let Some(e) = events.get(next).filter(|e| e.ns <= now) {
            next += 1;
            let waited = match queue.step(e) {
                Ended::Admission(_, ns) | Ended::Queued(_, Some(ns)) => ns,
                _ => 0,
            };
            waits_of_all += waited;
            if matches!(e.what, What::Issue | What::Complete) {
                last_move = e.ns;
            }
            if e.what == What::Issue {
                issues_of_all += 1;
            }
            for (class, g) in &mut groups {
                if e.class == *class {
                    g.now.waits_ns += waited;
                }
                if e.what == What::Issue && e.class == *class {
                    g.now.issues += 1;
                    g.now.bytes += e.sectors * 512;
                    g.last_issue = Some(e.ns);
                    g.others_at_gap = issues_of_all - g.now.issues;
                }
                let waits = queue.waits(*class);
                if waits && g.waiting_since.is_none() {
                    g.waiting_since = Some(e.ns);
                    g.others_at_gap = issues_of_all - g.now.issues;
                } else if !waits {
                    g.waiting_since = None;
                }
            }
            if queue.in_flight() == 0 {
                busy_since = None;
            } else if busy_since.is_none() {
                busy_since = Some(e.ns);
            }
        }
        let window = usize::try_from(limits.window_ns / STEP_NS).unwrap_or(usize::MAX);
        for (class, g) in &mut groups {
            g.now.looks_waiting += u64::from(g.waiting_since.is_some());
            g.now.issues_of_all = issues_of_all;
            g.now.waits_of_all_ns = waits_of_all;
            g.history.push(g.now);
            let in_admission = queue.waits_for_admission(*class);
            if withheld(g, now, last_move, window, limits) {
                note(&mut met, "withheld", Some(*class), now, in_admission);
            }
            let behind = if *class == Class::AsyncWrite {
                backlog
                    .iter()
                    .rev()
                    .find(|(at, _)| *at <= now)
                    .map_or(0, |(_, bytes)| *bytes)
            } else {
                queue.waiting_bytes(*class)
            };
            if crawling(g, window, behind, limits) {
                note(&mut met, "crawling", Some(*class), now, in_admission);
            }
        }
        if busy_since.is_some_and(|at| now.saturating_sub(at.max(last_move)) >= limits.stuck_ns) {
            note(&mut met, "stuck", None, now, false);
        }
        now += STEP_NS;
    }
    met
}

/// The same events with marked writes as something else: they are issued beside the others, and no rule is about them.
pub fn without_metadata(events: &[Event]) -> Vec<Event> {
    let write = |e: &Event| matches!(e.class, Class::SyncWrite | Class::AsyncWrite);
    events
        .iter()
        .map(|e| Event {
            class: if e.marked && write(e) {
                Class::Other
            } else {
                e.class
            },
            ..*e
        })
        .collect()
}

fn withheld(g: &Group, now: u64, last_move: u64, window: usize, limits: &Limits) -> bool {
    let Some(since) = g.waiting_since else {
        return false;
    };
    let gap = now.saturating_sub(g.last_issue.map_or(since, |at| at.max(since)));
    let others = g.now.issues_of_all - g.now.issues - g.others_at_gap;
    if gap < limits.withheld_ns || others < limits.others {
        return false;
    }
    if !limits.beyond_doubt {
        return true;
    }
    let then = g
        .history
        .len()
        .checked_sub(window + 1)
        .map_or(Sums::default(), |at| g.history[at]);
    let served = (g.now.issues_of_all - g.now.issues) - (then.issues_of_all - then.issues);
    let waits = (g.now.waits_of_all_ns - g.now.waits_ns) - (then.waits_of_all_ns - then.waits_ns);
    let mean = waits.checked_div(served).unwrap_or_default();
    gap >= mean * 3 && now.saturating_sub(last_move) <= gap / 2
}

fn crawling(g: &Group, window: usize, backlog: u64, limits: &Limits) -> bool {
    let Some(at) = g.history.len().checked_sub(window + 1) else {
        return false;
    };
    let (then, now) = (g.history[at], g.now);
    let waits = (now.looks_waiting - then.looks_waiting) as f64 / window as f64;
    let all = now.issues_of_all - then.issues_of_all;
    if waits < limits.waits_share || all == 0 {
        return false;
    }
    let share = (now.issues - then.issues) as f64 / all as f64;
    let bytes = (now.bytes - then.bytes) as f64;
    // Nothing issued at all: the backlog needs for ever.
    let needs_ns = if bytes > 0.0 {
        backlog as f64 / bytes * limits.window_ns as f64
    } else {
        f64::INFINITY
    };
    share < limits.issue_share && backlog > 0 && needs_ns > limits.needs_ns as f64
}

fn note(
    met: &mut Vec<Met>,
    rule: &'static str,
    class: Option<Class>,
    now: u64,
    in_admission: bool,
) {
    let open = met
        .iter_mut()
        .find(|m| m.rule == rule && m.class == class && now - m.until_ns <= STEP_NS);
    match open {
        Some(m) => m.until_ns = now,
        None => met.push(Met {
            rule,
            class,
            from_ns: now,
            until_ns: now,
            in_admission,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ev(ms: u64, what: What, class: Class, sector: u64) -> Event {
        Event {
            ns: ms * 1_000_000,
            what,
            class,
            marked: false,
            sector,
            sectors: 8,
        }
    }

    /// Reads inserted, issued and completed every 10 ms from 0 to `until` ms.
    fn readers(until: u64) -> Vec<Event> {
        (0..until / 10)
            .flat_map(|i| {
                let at = i * 10;
                [
                    ev(at, What::Insert, Class::SyncRead, 1_000_000 + i * 8),
                    ev(at + 3, What::Issue, Class::SyncRead, 1_000_000 + i * 8),
                    ev(at + 6, What::Complete, Class::SyncRead, 1_000_000 + i * 8),
                ]
            })
            .collect()
    }

    fn with(mut events: Vec<Event>, more: &[Event]) -> Vec<Event> {
        events.extend_from_slice(more);
        events.sort_by_key(|e| e.ns);
        events
    }

    fn rules(met: &[Met]) -> Vec<(&'static str, &'static str, u64)> {
        met.iter()
            .map(|m| (m.kind(), m.rule, m.from_ns / 1_000_000))
            .collect()
    }

    #[test]
    fn a_write_passed_over_for_a_second_is_withheld() {
        let w = |ms, what| ev(ms, what, Class::AsyncWrite, 8);
        let events = with(
            readers(4_000),
            &[
                w(1_000, What::Insert),
                w(3_500, What::Issue),
                w(3_510, What::Complete),
            ],
        );
        let met = apply(&events, &[], &Limits::DESIGN);
        assert_eq!(rules(&met), [("async-write-starvation", "withheld", 2_000)]);
        assert_eq!(met[0].until_ns / 1_000_000, 3_480);
    }

    #[test]
    fn metadata_hides_no_data_that_waits() {
        let w = |ms, what| ev(ms, what, Class::AsyncWrite, 8);
        let metadata = |ms, what| Event {
            marked: true,
            ..ev(ms, what, Class::AsyncWrite, 512)
        };
        let events = with(
            readers(4_000),
            &[
                w(1_000, What::Insert),
                metadata(1_600, What::Insert),
                metadata(1_610, What::Issue),
                metadata(1_620, What::Complete),
                w(2_400, What::Issue),
            ],
        );
        assert_eq!(rules(&apply(&events, &[], &Limits::DESIGN)), []);
        let data = without_metadata(&events);
        assert_eq!(
            rules(&apply(&data, &[], &Limits::DESIGN)),
            [("async-write-starvation", "withheld", 2_000)]
        );
    }

    #[test]
    fn a_wait_in_which_few_others_were_issued_is_not() {
        let w = |ms, what| ev(ms, what, Class::AsyncWrite, 8);
        // Readers stop at 1,500 ms: 50 of their requests passed it, and a slow device is nobody's fault.
        let events = with(
            readers(1_500),
            &[
                w(1_000, What::Insert),
                w(3_500, What::Issue),
                w(3_510, What::Complete),
            ],
        );
        assert_eq!(rules(&apply(&events, &[], &Limits::DESIGN)), []);
    }

    #[test]
    fn a_bio_kept_back_before_its_request_counts_as_waiting() {
        let w = |ms, what| ev(ms, what, Class::AsyncWrite, 8);
        let events = with(
            readers(4_000),
            &[w(1_000, What::BioQueue), w(3_500, What::GetRq)],
        );
        let met = apply(&events, &[], &Limits::DESIGN);
        assert_eq!(rules(&met), [("async-write-starvation", "withheld", 2_000)]);
        assert!(met[0].in_admission);
    }

    #[test]
    fn a_trickle_before_a_large_backlog_crawls() {
        // One write of 4 KiB every 500 ms beside 100 reads a second; another write always waits.
        let trickle: Vec<Event> = (0..20)
            .flat_map(|i| {
                [
                    ev(i * 500, What::Insert, Class::AsyncWrite, i * 8),
                    ev(i * 500 + 499, What::Issue, Class::AsyncWrite, i * 8),
                    ev(i * 500 + 505, What::Complete, Class::AsyncWrite, i * 8),
                ]
            })
            .collect();
        let events = with(readers(10_000), &trickle);
        let met = apply(&events, &[(0, 1 << 20)], &Limits::DESIGN);
        assert_eq!(rules(&met), [("async-write-starvation", "crawling", 5_000)]);
        // 64 KiB at 8 KiB/s are 8 s.
        assert_eq!(
            rules(&apply(&events, &[(0, 64 << 10)], &Limits::DESIGN)),
            []
        );
    }

    #[test]
    fn nothing_moving_for_five_seconds_is_stuck_and_not_starvation() {
        let events = [
            ev(0, What::Issue, Class::SyncRead, 0),
            ev(1, What::Insert, Class::AsyncWrite, 64),
            ev(8_000, What::Complete, Class::SyncRead, 0),
            ev(8_001, What::Issue, Class::AsyncWrite, 64),
            ev(8_002, What::Complete, Class::AsyncWrite, 64),
        ];
        assert_eq!(
            rules(&apply(&events, &[], &Limits::DESIGN)),
            [("queue-stuck", "stuck", 5_000)]
        );
    }

    #[test]
    fn a_wait_like_that_of_those_served_is_open_to_doubt() {
        // A deep queue: each read waits for 2 s in it, and so does the write.
        let reads: Vec<Event> = (0..600)
            .flat_map(|i| {
                let read = |at, what| ev(at, what, Class::SyncRead, 1_000_000 + i * 8);
                [
                    read(i * 10, What::Insert),
                    read(i * 10 + 2_000, What::Issue),
                    read(i * 10 + 2_005, What::Complete),
                ]
            })
            .collect();
        let w = |ms, what| ev(ms, what, Class::AsyncWrite, 8);
        let events = with(reads, &[w(3_000, What::Insert), w(5_000, What::Issue)]);
        assert_eq!(
            rules(&apply(&events, &[], &Limits::DESIGN)),
            [("async-write-starvation", "withheld", 4_000)]
        );
        assert_eq!(rules(&apply(&events, &[], &Limits::STRICT)), []);
    }

    #[test]
    fn loose_is_met_wherever_strict_is() {
        let w = |ms, what| ev(ms, what, Class::AsyncWrite, 8);
        let events = with(
            readers(4_000),
            &[w(1_000, What::Insert), w(3_500, What::Issue)],
        );
        let first = |l: &Limits| apply(&events, &[], l).first().map(|m| m.from_ns);
        assert!(first(&Limits::LOOSE) < first(&Limits::DESIGN));
        assert!(first(&Limits::DESIGN) <= first(&Limits::STRICT));
        assert!(first(&Limits::STRICT).is_some());
    }
}
