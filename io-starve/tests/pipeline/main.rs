//! The pipeline under input of every shape: no panic, the same changes each time, a checkpoint goes on where it was,
//! memory is bounded.

use io_starve::detect::Change;
use io_starve::detect::settings::Settings;
use io_starve::model::observation::*;
use io_starve::pipeline::Pipeline;
use io_starve_common::{class::Class, wire::LossKind};
use proptest::prelude::*;

mod journals;
mod pauses;
use journals::journals;
use pauses::{looped, pauses};

const SECOND: u64 = 1_000_000_000;

fn dev() -> impl Strategy<Value = DevId> {
    prop_oneof![Just(DevId::new(8, 0)), Just(DevId::new(8, 16))]
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        4 => (1u64..5).prop_map(Owner::Cgroup),
        1 => Just(Owner::Unknown),
        1 => Just(Owner::Other),
    ]
}

fn key() -> impl Strategy<Value = GroupKey> {
    (dev(), owner(), prop::sample::select(&Class::ALL[..]))
        .prop_map(|(dev, owner, class)| GroupKey { dev, owner, class })
}

/// Mostly what a machine does in a tick, sometimes anything at all.
fn count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..200, 1 => any::<u64>()]
}

/// A moment around `now`: mostly of the last 20 s.
fn moment(now: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..20 * SECOND).prop_map(move |ago| now.saturating_sub(ago)),
        1 => any::<u64>(),
    ]
}

fn delta(now: u64) -> impl Strategy<Value = GroupDelta> {
    let stage = (count(), count(), 0..20 * SECOND).prop_map(|(count, sum_ns, max_ns)| StageDelta {
        count,
        sum_ns,
        max_ns,
    });
    let last = prop::option::of(moment(now));
    (
        key(),
        prop::array::uniform8(count()),
        prop::array::uniform3(stage),
        last,
    )
        .prop_map(|(key, n, stages, last)| GroupDelta {
            key,
            seen: n[0],
            finished: n[1],
            merged: n[2],
            expired: n[3] / 100,
            inserts: n[4],
            issues: n[5],
            requeues: n[6],
            bytes: n[7],
            stages,
            last_issue_ns: last,
        })
}

fn waiting(now: u64) -> impl Strategy<Value = Waiting> {
    let oldest = prop::array::uniform3(prop::option::weighted(0.9, moment(now)));
    let three = || prop::array::uniform3(count());
    (key(), three(), three(), oldest, any::<bool>()).prop_map(
        |(key, count, bytes, oldest_ns, idle_prio)| Waiting {
            key,
            count,
            bytes,
            oldest_ns,
            idle_prio,
        },
    )
}

fn waiter(now: u64) -> impl Strategy<Value = Waiter> {
    let why = prop::option::of(prop::sample::select(
        &[WaitsFor::Wbt, WaitsFor::Iocost, WaitsFor::Tags][..],
    ));
    let stage = prop::sample::select(&Stage::ALL[..]);
    (
        key(),
        stage,
        moment(now),
        0u32..40,
        count(),
        why,
        any::<bool>(),
    )
        .prop_map(
            |(key, stage, since_ns, pid, bypasses, waits_for, seeded)| Waiter {
                key,
                stage,
                since_ns,
                task: (pid > 0).then(|| Task {
                    pid,
                    comm: format!("task{pid}"),
                }),
                sector: 0,
                bytes: 4096,
                bypasses,
                seeded,
                waits_for,
            },
        )
}

fn fact() -> impl Strategy<Value = Fact> {
    let device = (
        dev(),
        prop::sample::select(&["none", "mq-deadline", "bfq"][..]),
        any::<bool>(),
    )
        .prop_map(|(dev, scheduler, iocost)| {
            Fact::Device(DeviceFact {
                dev,
                name: format!("sd{}", dev.minor()),
                scheduler: Some(scheduler.to_owned()),
                tunables: vec![
                    ("iosched/writes_starved".to_owned(), "2".to_owned()),
                    ("wbt_lat_usec".to_owned(), "75000".to_owned()),
                ],
                below: Vec::new(),
                rotational: None,
                iocost: Some(iocost),
                backing_file: None,
            })
        });
    prop_oneof![
        4 => device,
        1 => dev().prop_map(|dev| Fact::DeviceGone { dev }),
        2 => (1u64..5).prop_map(|id| Fact::Cgroup(CgroupFact { id, path: format!("/g{id}"), ..CgroupFact::default() })),
        1 => (1u64..5).prop_map(|id| Fact::CgroupGone { id }),
        1 => any::<bool>().prop_map(|refused| Fact::Hooks { hooks: vec![Hook {
            name: "block_rq_insert".to_owned(),
            verdict: if refused { Verdict::Refused { why: "no".to_owned() } } else { Verdict::Absent },
            question: "what waits".to_owned(),
            topic: Topic::Requests,
        }] }),
        1 => (dev(), dev()).prop_map(|(dev, below)| Fact::Filesystem(FilesystemFact {
            dev,
            fstype: "ext4".to_owned(),
            mountpoint: "/srv".to_owned(),
            source: "/dev/sda1".to_owned(),
            options: "rw".to_owned(),
            queues: vec![below],
        })),
        1 => dev().prop_map(|dev| Fact::FilesystemGone { dev }),
        1 => looped(),
        1 => dev().prop_map(|dev| Fact::LoopGone { dev }),
        1 => (1u64..5, prop::option::of((dev(), count()))).prop_map(|(id, limit)| Fact::Limits(LimitFact {
            id,
            disks: limit.into_iter().map(|(dev, n)| (dev, Limits { wbps: Some(n), ..Limits::default() })).collect(),
        })),
    ]
}

/// One tick at about this moment.
fn observation(now: u64) -> impl Strategy<Value = Observation> {
    let sample = (
        dev(),
        count(),
        prop::option::of(moment(now)),
        prop::option::of(moment(now)),
    )
        .prop_map(
            move |(dev, issued, last_issue_ns, last_complete_ns)| DeviceSample {
                dev,
                tag_waits: issued,
                // Mostly a counter that rises with time.
                issued: issued.saturating_add(now / (SECOND / 1_000)),
                sync_issued: 0,
                completed: issued,
                last_issue_ns,
                last_complete_ns,
            },
        );
    let hist =
        (dev(), prop::collection::vec((any::<u8>(), count()), 0..4)).prop_map(|(dev, buckets)| {
            HistDelta {
                dev,
                class: Class::SyncRead,
                stage: Stage::Queued,
                buckets,
            }
        });
    let backlog = (prop::option::of(dev()), prop::option::of(owner()), count()).prop_map(
        |(dev, owner, n)| Backlog {
            dev,
            owner,
            dirty: n << 20,
            writeback: n,
        },
    );
    let pressure = (prop::option::of(owner()), 0.0..100.0).prop_map(|(owner, p)| Pressure {
        owner,
        some_avg10: p,
        full_avg10: p / 3.0,
    });
    let loss = (prop::sample::select(&LossKind::ALL[..]), 0u64..3);
    (
        prop::collection::vec(fact(), 0..2),
        prop::collection::vec(delta(now), 0..6),
        prop::collection::vec(hist, 0..2),
        prop::collection::vec(sample, 0..2),
        prop::collection::vec(waiting(now), 0..6),
        prop::collection::vec(waiter(now), 0..8),
        prop::collection::vec(backlog, 0..2),
        prop::collection::vec(pressure, 0..2),
        prop::collection::vec(loss, 0..2),
        (journals(now), pauses(now)),
    )
        .prop_map(
            move |(
                facts,
                groups,
                hists,
                devices,
                waiting,
                waiters,
                backlog,
                pressure,
                loss,
                (journals, paused),
            )| {
                Observation {
                    mono_ns: now,
                    wall_ns: now as i64,
                    facts,
                    groups,
                    hists,
                    devices,
                    waiting,
                    waiters,
                    backlog,
                    pressure,
                    loss,
                    pauses: paused.pauses,
                    pause_counts: paused.pause_counts,
                    busy: paused.busy,
                    ..journals
                }
            },
        )
}

/// A run of ticks of any length, some of which come twice or run backwards.
fn run() -> impl Strategy<Value = Vec<Observation>> {
    let step = prop_oneof![8 => 200_000_000..300_000_000i64, 1 => 0..40_000_000i64, 1 => -(SECOND as i64)..5 * SECOND as i64];
    prop::collection::vec(step, 1..60).prop_flat_map(|steps| {
        let mut now = 100 * SECOND as i64;
        steps
            .into_iter()
            .map(|step| {
                now += step;
                observation(now as u64)
            })
            .collect::<Vec<_>>()
    })
}

fn feed(pipeline: &mut Pipeline, run: &[Observation]) -> Vec<Change> {
    run.iter().flat_map(|o| pipeline.feed(o)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_checkpoint_in_the_middle_changes_nothing(run in run(), at in 0usize..60) {
        let mut whole = Pipeline::new(Settings::default());
        let mut expected = feed(&mut whole, &run);

        let (first, second) = run.split_at(at.min(run.len()));
        let mut before = Pipeline::new(Settings::default());
        let mut changes = feed(&mut before, first);
        let checkpoint = serde_json::to_string(&before).unwrap();
        let mut after: Pipeline = serde_json::from_str(&checkpoint).unwrap();
        prop_assert_eq!(&after, &before);
        changes.extend(feed(&mut after, second));
        prop_assert_eq!(after.snapshot(), whole.snapshot());
        prop_assert_eq!(after.accounts(), whole.accounts());
        changes.extend(after.detach());
        expected.extend(whole.detach());
        prop_assert_eq!(changes, expected);
    }

    #[test]
    fn every_finding_opens_once_closes_once_and_keeps_its_id(run in run()) {
        let mut pipeline = Pipeline::new(Settings { hold_down: 2_000, ..Settings::default() });
        let mut changes = feed(&mut pipeline, &run);
        changes.extend(pipeline.detach());
        let mut open = std::collections::BTreeSet::new();
        let mut seen = std::collections::BTreeSet::new();
        for change in &changes {
            let f = change.finding();
            prop_assert!(f.since_ns <= f.opened_ns && f.opened_ns <= f.last_met_ns);
            prop_assert!(f.culprits.iter().all(|c| c.share > 0.0 && c.share <= 1.0));
            prop_assert!(f.culprits.is_sorted_by(|a, b| a.issues >= b.issues));
            match change {
                Change::Open(_) => {
                    prop_assert!(seen.insert(f.id.clone()), "{} twice", f.id);
                    open.insert(f.id.clone());
                }
                Change::Update(_) => prop_assert!(open.contains(&f.id)),
                Change::Close(_) => prop_assert!(f.closed.is_some() && open.remove(&f.id)),
            }
        }
        prop_assert!(open.is_empty());
        prop_assert!(pipeline.snapshot().findings.iter().all(|f| f.closed.is_some()));
    }
}

/// An owner that nobody saw before, waiting or moving.
fn crowd(tick: u64, n: u64) -> Observation {
    let now = (100 * SECOND) + tick * SECOND / 4;
    let mut o = Observation {
        mono_ns: now,
        ..Observation::default()
    };
    for i in 0..n {
        let id = tick * n + i;
        let key = GroupKey {
            dev: DevId::new(8 + (id % 3_000) as u32, 0),
            owner: Owner::Cgroup(id),
            class: Class::ALL[(id % 6) as usize],
        };
        o.facts.push(Fact::Cgroup(CgroupFact {
            id,
            path: format!("/g{id}"),
            ..CgroupFact::default()
        }));
        o.facts.push(Fact::CgroupGone { id });
        o.hists.push(HistDelta {
            dev: key.dev,
            class: key.class,
            stage: Stage::Queued,
            buckets: (0..8).map(|b| (b * 16, 1)).collect(),
        });
        o.groups.push(GroupDelta {
            key,
            seen: 1,
            finished: 1,
            merged: 0,
            expired: 0,
            inserts: 1,
            issues: 1,
            requeues: 0,
            bytes: 4096,
            stages: [StageDelta {
                count: 1,
                sum_ns: 5,
                max_ns: 5,
            }; 3],
            last_issue_ns: Some(now),
        });
        o.waiters.push(Waiter {
            key,
            stage: Stage::Queued,
            since_ns: now,
            task: Some(Task {
                pid: id as u32,
                comm: "crowd".to_owned(),
            }),
            sector: 0,
            bytes: 4096,
            bypasses: 0,
            seeded: false,
            waits_for: None,
        });
        o.pressure.push(Pressure {
            owner: Some(key.owner),
            some_avg10: 1.0,
            full_avg10: 1.0,
        });
        o.backlog.push(Backlog {
            dev: None,
            owner: Some(key.owner),
            dirty: 1,
            writeback: 1,
        });
    }
    o
}

#[test]
fn ever_new_owners_and_disks_do_not_make_it_grow() {
    let mut pipeline = Pipeline::new(Settings::default());
    let mut feed = |from: u64, to: u64| {
        for tick in from..to {
            pipeline.feed(&crowd(tick, 400));
        }
        serde_json::to_string(&pipeline).unwrap().len()
    };
    let full = feed(0, 80);
    let later = feed(80, 120);
    assert!(later < full + full / 5, "{full} bytes, then {later}");
    assert!(later < 16 << 20, "{later}");
    let told = pipeline.snapshot().loss;
    assert_eq!(
        told.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        [LossKind::GroupsFull, LossKind::DevicesFull]
    );
}

#[test]
fn settings_that_a_user_may_type_do_not_overflow() {
    for n in [0, u64::MAX] {
        let mut pipeline = Pipeline::new(Settings {
            withheld_ms: n,
            withheld_critical_ms: n,
            withheld_others: n,
            crawling_ms: n,
            crawling_critical_ms: n,
            crawling_share: 0.0,
            stuck_ms: n,
            fsync_ms: n,
            fsync_critical_ms: n,
            fsync_factor: n,
            journal_ms: n,
            journal_critical_ms: n,
            paused_share: 0.0,
            worker_share: 0.0,
            unfair_share: 0.0,
            idle_share: 0.0,
            hold_down: n,
        });
        for tick in 0..60 {
            pipeline.feed(&crowd(tick, 3));
        }
        pipeline.detach();
    }
}
