use io_starve_common::class::Class;

use super::*;
use crate::model::observation::{DevId, GroupKey, Owner, StageDelta};

const MS: u64 = 1_000_000;
const KEY: GroupKey = GroupKey {
    dev: DevId::new(8, 0),
    owner: Owner::Cgroup(28),
    class: Class::AsyncWrite,
};

fn waiting(count: [u64; 3], oldest_ms: u64) -> Waiting {
    Waiting {
        key: KEY,
        count,
        bytes: [0; 3],
        oldest_ns: count.map(|n| (n > 0).then_some(oldest_ms * MS)),
        idle_prio: false,
    }
}

fn moved() -> GroupDelta {
    GroupDelta {
        key: KEY,
        seen: 0,
        finished: 0,
        merged: 0,
        expired: 0,
        inserts: 0,
        issues: 0,
        requeues: 0,
        bytes: 0,
        stages: [StageDelta::default(); 3],
        last_issue_ns: None,
    }
}

/// Ticks every 250 ms, the first at 1 s; the device issues one request a ms.
struct Ticks {
    flow: Flow,
    clock: CellClock,
}

impl Ticks {
    fn new() -> Ticks {
        Ticks {
            flow: Flow::default(),
            clock: CellClock {
                from_ns: 750 * MS,
                to_ns: 750 * MS,
            },
        }
    }

    fn tick(&mut self, delta: Option<GroupDelta>, waits: Option<Waiting>) -> Option<Wait> {
        let now = self.clock.to_ns + 250 * MS;
        let was_in_device = self.flow.now.count[2];
        self.clock.advance(now);
        self.flow.begin_tick();
        if let Some(d) = delta {
            self.flow.add(&d, self.clock, was_in_device);
        }
        if let Some(w) = waits {
            self.flow.add_waiting(&w, self.clock);
        }
        let tick = TickEnd {
            clock: self.clock,
            dt_ns: 250 * MS,
            first_ns: 1_000 * MS,
        };
        self.flow.end_tick(tick, |ns| ns.div_ceil(MS));
        self.flow.wait
    }
}

#[test]
fn a_wait_goes_on_when_its_oldest_request_was_merged_away() {
    let mut t = Ticks::new();
    let w = t.tick(None, Some(waiting([0, 2, 0], 900))).unwrap();
    assert_eq!((w.begin_ns, w.observed_from_ns), (900 * MS, 1_000 * MS));
    assert_eq!(
        w.device_issues, 1_000,
        "nobody looked before the first observation"
    );
    let merged = GroupDelta {
        merged: 1,
        ..moved()
    };
    let w = t
        .tick(Some(merged), Some(waiting([0, 1, 0], 1_100)))
        .unwrap();
    assert_eq!((w.begin_ns, w.device_issues), (900 * MS, 1_000));
    assert_eq!(w.present_ns, [0, 250 * MS]);
    assert_eq!(t.tick(None, None), None);
}

#[test]
fn an_issue_ends_a_wait_and_a_later_one_begins_with_its_own_request() {
    let mut t = Ticks::new();
    t.tick(None, Some(waiting([0, 2, 0], 900)));
    let issued = GroupDelta {
        issues: 2,
        last_issue_ns: Some(1_050 * MS),
        ..moved()
    };
    // Both were issued; what waits now came after an empty queue.
    let w = t
        .tick(Some(issued), Some(waiting([0, 1, 2], 1_200)))
        .unwrap();
    assert_eq!((w.begin_ns, w.own_issues), (1_200 * MS, 2));
    let again = GroupDelta {
        issues: 1,
        last_issue_ns: Some(1_300 * MS),
        ..moved()
    };
    // One was issued and an older one was left.
    let w = t
        .tick(Some(again), Some(waiting([0, 1, 0], 1_200)))
        .unwrap();
    assert_eq!((w.begin_ns, w.device_issues), (1_300 * MS, 1_300));
}

#[test]
fn a_request_that_was_no_more_there_proves_nothing_about_the_next() {
    for gone in [
        GroupDelta {
            expired: 1,
            ..moved()
        },
        // Ended by the block layer without having been issued.
        GroupDelta {
            finished: 1,
            ..moved()
        },
    ] {
        let mut t = Ticks::new();
        t.tick(None, Some(waiting([0, 1, 0], 900)));
        let w = t.tick(Some(gone), Some(waiting([0, 1, 0], 1_200))).unwrap();
        assert_eq!(w.begin_ns, 1_200 * MS);
    }
    let mut t = Ticks::new();
    t.tick(None, Some(waiting([0, 1, 1], 900)));
    let from_device = GroupDelta {
        finished: 1,
        ..moved()
    };
    let w = t
        .tick(Some(from_device), Some(waiting([0, 1, 0], 1_200)))
        .unwrap();
    assert_eq!(w.begin_ns, 900 * MS);
}

#[test]
fn idle_is_what_all_that_waits_has() {
    let mut now = InFlight::default();
    let group = |idle_prio, count| Waiting {
        idle_prio,
        ..waiting(count, 5)
    };
    now.add(&group(false, [0, 0, 9]));
    assert!(!now.idle_prio(), "nothing waits");
    now.add(&group(true, [0, 3, 0]));
    assert!(now.idle_prio(), "what is in the device does not wait here");
    now.add(&group(false, [1, 0, 0]));
    assert!(!now.idle_prio());
}

#[test]
fn the_tasks_most_often_seen_are_kept() {
    let mut f = Flow::default();
    let mut clock = CellClock::default();
    let see = |f: &mut Flow, clock, pid| {
        let w = Waiter {
            key: KEY,
            stage: Stage::Queued,
            since_ns: 0,
            task: Some(Task {
                pid,
                comm: "t".to_owned(),
            }),
            sector: 0,
            bytes: 0,
            bypasses: 0,
            seeded: false,
            waits_for: None,
        };
        f.see(&w, clock);
    };
    for tick in 1..=20u32 {
        clock.advance(u64::from(tick) * 250 * MS);
        see(&mut f, clock, 1);
        see(&mut f, clock, 1);
        see(&mut f, clock, 100 + tick);
    }
    assert_eq!(f.tasks.len(), MAX_TASKS);
    let most = f.tasks.iter().max_by_key(|t| t.ticks).unwrap();
    assert_eq!((most.task.pid, most.ticks), (1, 20), "once a tick");
    assert_eq!(f.tasks_since(clock.to_ns).count(), 2);
}
