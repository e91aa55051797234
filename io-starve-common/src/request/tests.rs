use super::*;
use proptest::prelude::*;
use std::vec::Vec;

const START: u64 = 100;

fn insert(now: u64) -> Event {
    Event::Insert {
        now,
        start_ns: START,
    }
}
fn issue(now: u64) -> Event {
    Event::Issue {
        now,
        start_ns: START,
        bytes: 4096,
    }
}
fn complete(now: u64) -> Event {
    Event::Complete {
        now,
        done: 4096,
        left: 4096,
    }
}
fn run(life: &mut Life, events: &[Event]) -> Effects {
    events.iter().map(|e| step(life, *e)).last().unwrap()
}

#[test]
fn a_plain_life_has_both_stages() {
    let mut l = Life::default();
    let fx = run(&mut l, &[insert(110), issue(150), complete(300)]);
    assert_eq!((fx.queued_ns, fx.device_ns), (Some(40), Some(150)));
    assert!(fx.finished && l.state == FREE);
}

#[test]
fn never_inserted_is_not_queued_for_zero() {
    let mut l = Life::default();
    let fx = run(&mut l, &[issue(150), complete(300)]);
    assert_eq!((fx.queued_ns, fx.device_ns), (None, Some(150)));
}

#[test]
fn a_requeue_keeps_the_first_insert_and_the_last_issue() {
    let mut l = Life::default();
    let fx = run(
        &mut l,
        &[
            insert(110),
            issue(150),
            Event::Requeue,
            insert(160),
            issue(400),
            complete(500),
        ],
    );
    assert_eq!((fx.queued_ns, fx.device_ns), (Some(290), Some(100)));
    assert_eq!(l.requeues, 1);
}

#[test]
fn parts_finish_once() {
    let mut l = Life::default();
    run(&mut l, &[insert(110), issue(150)]);
    let part = step(
        &mut l,
        Event::Complete {
            now: 200,
            done: 1024,
            left: 4096,
        },
    );
    assert!(part.partial && !part.finished && part.device_ns.is_none());
    let end = step(
        &mut l,
        Event::Complete {
            now: 300,
            done: 3072,
            left: 3072,
        },
    );
    assert!(end.finished);
    assert_eq!(end.device_ns, Some(150));
}

#[test]
fn a_merge_ends_the_life_without_a_completion() {
    let mut l = Life::default();
    let fx = run(&mut l, &[insert(110), Event::Merge]);
    assert!(fx.merged && fx.left_queue && l.state == FREE);
    assert!(step(&mut l, complete(500)).unmatched);
}

#[test]
fn a_missed_completion_begins_a_new_life_and_is_counted() {
    let mut l = Life::default();
    run(&mut l, &[insert(110), issue(150)]);
    let fx = step(
        &mut l,
        Event::Insert {
            now: 900,
            start_ns: 880,
        },
    );
    assert!(fx.first_sight && fx.lost && fx.left_device);
    let fx = run(
        &mut l,
        &[
            Event::Issue {
                now: 950,
                start_ns: 880,
                bytes: 512,
            },
            complete(960),
        ],
    );
    assert_eq!((fx.queued_ns, fx.device_ns), (Some(50), Some(10)));
}

#[test]
fn a_merge_that_lowers_the_start_of_the_survivor_is_not_a_new_life() {
    let mut l = Life::default();
    let earlier = Event::Issue {
        now: 400,
        start_ns: START - 50,
        bytes: 8192,
    };
    let fx = run(&mut l, &[insert(110), earlier]);
    assert!(!fx.first_sight && fx.left_queue);
    let fx = step(&mut l, complete(500));
    assert_eq!((fx.queued_ns, fx.device_ns), (Some(290), Some(100)));
}

#[test]
fn an_issue_on_an_issued_slot_is_a_new_life() {
    let mut l = Life::default();
    run(&mut l, &[issue(150)]);
    let fx = step(
        &mut l,
        Event::Issue {
            now: 700,
            start_ns: 690,
            bytes: 1,
        },
    );
    assert!(fx.first_sight && fx.lost);
}

#[test]
fn a_seed_waits_since_the_requests_own_start_and_yields_to_the_living() {
    let mut l = Life::default();
    assert!(step(&mut l, Event::Seed { start_ns: START }).first_sight);
    assert_eq!(l.flags & F_SEEDED, F_SEEDED);
    let fx = run(&mut l, &[issue(1100), complete(1200)]);
    assert_eq!(fx.queued_ns, Some(1000));

    run(&mut l, &[insert(1300)]);
    let fx = step(&mut l, Event::Seed { start_ns: START });
    assert!(!fx.first_sight, "a known request is not seeded again");
}

#[test]
fn a_clock_that_runs_backwards_gives_no_time_and_says_so() {
    let mut l = Life::default();
    let fx = run(&mut l, &[insert(110), issue(100), complete(90)]);
    assert!(fx.backwards && fx.finished);
    assert_eq!((fx.queued_ns, fx.device_ns), (None, None));
}

/// A slow and obvious model: the list of all events of the present life.
#[derive(Default)]
struct Slow {
    events: Vec<Event>,
}

impl Slow {
    fn alive(&self) -> bool {
        !self.events.is_empty()
    }
    fn queued(&self) -> bool {
        let last = self
            .events
            .iter()
            .rev()
            .find(|e| !matches!(e, Event::Complete { .. }));
        matches!(
            last,
            Some(Event::Insert { .. } | Event::Requeue | Event::Seed { .. })
        )
    }
}

fn any_event() -> impl Strategy<Value = (u8, bool)> {
    (0u8..5, any::<bool>())
}

proptest! {
    /// Lives are conserved, and no stage is invented, under any order of events, lost ones included.
    #[test]
    fn lives_are_conserved(script in proptest::collection::vec(any_event(), 1..60)) {
        let mut life = Life::default();
        let mut slow = Slow::default();
        let (mut seen, mut ended) = (0u32, 0u32);
        let mut start = 0;
        for (i, (kind, fresh)) in script.into_iter().enumerate() {
            let now = 1_000 + i as u64 * 10;
            if fresh {
                start = now - 5;
            }
            let event = match kind {
                0 => Event::Insert { now, start_ns: start },
                1 => Event::Issue { now, start_ns: start, bytes: 8 },
                2 => Event::Requeue,
                3 => Event::Merge,
                _ => Event::Complete { now, done: 8, left: 8 },
            };
            let was_alive = slow.alive();
            let was_queued = slow.queued();
            let fx = step(&mut life, event);
            seen += u32::from(fx.first_sight);
            ended += u32::from(fx.finished) + u32::from(fx.merged) + u32::from(fx.lost);
            if fx.first_sight {
                prop_assert_eq!(fx.lost, was_alive);
                slow.events.clear();
                slow.events.push(event);
            } else if fx.finished || fx.merged {
                prop_assert!(was_alive);
                slow.events.clear();
            } else if fx.unmatched {
                prop_assert!(!was_alive);
            } else if was_alive && !(matches!(event, Event::Requeue) && was_queued) {
                slow.events.push(event);
            }
            prop_assert_eq!(life.state != FREE, slow.alive());
            prop_assert_eq!(life.state == QUEUED, slow.alive() && slow.queued());
            prop_assert_eq!(seen, ended + u32::from(slow.alive()));
            if let Some(q) = fx.queued_ns {
                prop_assert!(q <= now);
            }
        }
    }
}
