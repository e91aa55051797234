//! The life of a finding and the figures of a snapshot, tick by tick.

use io_starve::detect::Change;
use io_starve::detect::finding::{CloseReason, Kind, Severity};
use io_starve::detect::settings::Settings;
use io_starve::model::observation::*;
use io_starve::pipeline::Pipeline;
use io_starve_common::class::Class;

const MS: u64 = 1_000_000;
/// Longest queued time, in the lower half of its bucket.
const QUEUED_MAX: u64 = 2_700_000;
const SDA: DevId = DevId::new(8, 0);

/// A disk that is fed by hand, a tick every 250 ms.
struct Disk {
    pipeline: Pipeline,
    now_ms: u64,
    sample: DeviceSample,
}

impl Disk {
    fn new() -> Disk {
        let mut disk = Disk {
            pipeline: Pipeline::new(Settings::default()),
            now_ms: 100_000,
            sample: DeviceSample::new(SDA, 0),
        };
        let facts = vec![
            Fact::Device(DeviceFact {
                dev: SDA,
                name: "sda".to_owned(),
                scheduler: Some("mq-deadline".to_owned()),
                tunables: Vec::new(),
                below: Vec::new(),
                rotational: None,
                iocost: None,
                backing_file: None,
            }),
            Fact::Cgroup(CgroupFact {
                id: 28,
                path: "/backup.service".to_owned(),
                ..CgroupFact::default()
            }),
        ];
        disk.pipeline.feed(&Observation {
            mono_ns: disk.now_ms * MS,
            facts,
            ..Observation::default()
        });
        disk
    }

    /// One tick: requests issued and finished by owner and class, and what waits queued since a moment.
    fn tick(&mut self, issued: &[(u64, Class, u64)], waits: &[(u64, Class, u64)]) -> Vec<Change> {
        self.now_ms += 250;
        let now = self.now_ms * MS;
        let key = |owner: u64, class: Class| GroupKey {
            dev: SDA,
            owner: Owner::Cgroup(owner),
            class,
        };
        let mut o = Observation {
            mono_ns: now,
            ..Observation::default()
        };
        for (owner, class, n) in issued {
            self.sample.issued += n;
            self.sample.completed += n;
            self.sample.last_issue_ns = Some(now);
            self.sample.last_complete_ns = Some(now);
            o.groups.push(GroupDelta {
                key: key(*owner, *class),
                seen: *n,
                finished: *n,
                merged: 0,
                expired: 0,
                inserts: *n,
                issues: *n,
                requeues: 0,
                bytes: n * 4096,
                stages: [
                    StageDelta::default(),
                    StageDelta {
                        count: *n,
                        sum_ns: n * 2 * MS,
                        max_ns: QUEUED_MAX,
                    },
                    StageDelta {
                        count: *n,
                        sum_ns: n * MS,
                        max_ns: MS,
                    },
                ],
                last_issue_ns: Some(now),
            });
            o.hists.push(HistDelta {
                dev: SDA,
                class: *class,
                stage: Stage::Queued,
                buckets: vec![(io_starve_common::hist::bucket(QUEUED_MAX) as u8, *n)],
            });
        }
        o.devices.push(self.sample);
        for (owner, class, since_ms) in waits {
            let key = key(*owner, *class);
            o.waiting.push(Waiting {
                key,
                count: [0, 2, 0],
                bytes: [0, 8192, 0],
                oldest_ns: [None, Some(since_ms * MS), None],
                idle_prio: false,
            });
            o.waiters.push(Waiter {
                key,
                stage: Stage::Queued,
                since_ns: since_ms * MS,
                task: None,
                sector: 0,
                bytes: 4096,
                bypasses: 7,
                seeded: false,
                waits_for: None,
            });
        }
        self.pipeline.feed(&o)
    }
}

const READ: Class = Class::SyncRead;
const ASYNC: Class = Class::AsyncWrite;

#[test]
fn two_equal_culprits_do_not_take_turns_in_the_log() {
    let mut d = Disk::new();
    let mut changes = Vec::new();
    for i in 0..32u64 {
        // One is ahead at even ticks, the other at odd ones.
        let (a, b) = if i % 2 == 0 { (50, 30) } else { (29, 52) };
        changes.extend(d.tick(&[(1, READ, a), (2, READ, b)], &[(28, ASYNC, 100_100)]));
    }
    assert!(matches!(changes[..], [Change::Open(_)]), "{changes:#?}");
    // The other leads clearly in the end: told once.
    for _ in 0..8 {
        changes.extend(d.tick(&[(1, READ, 200)], &[(28, ASYNC, 100_100)]));
    }
    let [Change::Open(first), Change::Update(second)] = &changes[..] else {
        panic!("{changes:#?}");
    };
    assert_eq!(first.culprits[0].owner, Owner::Cgroup(2));
    assert_eq!(second.culprits[0].owner, Owner::Cgroup(1));
    assert_eq!(second.severity, Severity::Warning);
}

#[test]
fn an_open_finding_is_told_again_every_ten_seconds_and_when_it_grows_worse() {
    let mut d = Disk::new();
    let mut told = Vec::new();
    for _ in 0..140 {
        for change in d.tick(&[(1, READ, 75)], &[(28, ASYNC, 100_000)]) {
            let f = change.finding();
            told.push(((f.last_met_ns / MS - 100_000), f.severity));
        }
    }
    let (w, c) = (Severity::Warning, Severity::Critical);
    assert_eq!(told, [(1_000, w), (10_000, c), (20_000, c), (30_000, c)]);
}

#[test]
fn a_wait_that_outlives_its_finding_opens_another_with_its_own_id() {
    let mut d = Disk::new();
    let mut changes = Vec::new();
    let begin = d.now_ms + 250;
    let mut run = |d: &mut Disk, ticks: u64, issues: u64| {
        for _ in 0..ticks {
            changes.extend(d.tick(
                &[(1, READ, issues)][..usize::from(issues > 0)],
                &[(28, ASYNC, begin)],
            ));
        }
    };
    run(&mut d, 12, 75);
    // Stuck: nobody gains, so the starvation ends after its hold-down, though the write still waits.
    run(&mut d, 80, 0);
    run(&mut d, 80, 75);
    let of = |kind| changes.iter().filter(move |c| c.finding().kind == kind);
    let opened: Vec<_> = of(Kind::AsyncWriteStarvation)
        .filter_map(|c| match c {
            Change::Open(f) => Some(f),
            _ => None,
        })
        .collect();
    let closed: Vec<_> = of(Kind::AsyncWriteStarvation)
        .filter_map(|c| match c {
            Change::Close(f) => f.closed,
            _ => None,
        })
        .collect();
    assert_eq!((opened.len(), closed.len()), (2, 1), "{changes:#?}");
    assert_eq!(opened[0].since_ns, begin * MS);
    assert_eq!(opened[1].since_ns, closed[0].0);
    assert_ne!(opened[0].id, opened[1].id);
    assert_eq!(
        of(Kind::QueueStuck).count(),
        2 + 1,
        "open, told once more, close"
    );
}

#[test]
fn the_observer_that_goes_away_closes_what_is_open() {
    let mut d = Disk::new();
    for _ in 0..8 {
        d.tick(&[(1, READ, 75)], &[(28, ASYNC, 100_000)]);
    }
    let closed = d.pipeline.detach();
    assert_eq!(closed.len(), 1);
    let at = d.now_ms * MS;
    assert_eq!(
        closed[0].finding().closed,
        Some((at, CloseReason::Detached))
    );
    assert_eq!(d.pipeline.detach(), []);
}

#[test]
fn more_starving_owners_than_findings_are_counted() {
    let mut d = Disk::new();
    let waits: Vec<_> = (1_000..1_300)
        .map(|owner| (owner, ASYNC, 100_000))
        .collect();
    let mut opened = 0;
    for _ in 0..8 {
        opened += d.tick(&[(1, READ, 75)], &waits).len();
    }
    assert_eq!(opened, 256);
    let verdict = d.pipeline.snapshot().verdict;
    assert!(verdict.ends_with("; 299 more findings"), "{verdict}");
}

#[test]
fn figures_of_a_snapshot() {
    let mut d = Disk::new();
    for _ in 0..60 {
        d.tick(&[(1, READ, 75), (28, ASYNC, 25)], &[(28, ASYNC, d_since())]);
    }
    let s = d.pipeline.snapshot();
    assert_eq!(s.requests_seen, 6_000);
    assert_eq!(s.elapsed_ns, 15_000 * MS);
    let [sda] = &s.devices[..] else {
        panic!("{:?}", s.devices);
    };
    assert_eq!(sda.name, "sda");
    assert!((sda.iops - 400.0).abs() < 0.01, "{}", sda.iops);
    assert!((sda.bytes_per_s - 400.0 * 4096.0).abs() < 1.0);
    assert_eq!(sda.waiting, [0, 2, 0]);
    let [reads, writes] = &sda.classes[..] else {
        panic!("{:?}", sda.classes);
    };
    assert!((reads.share - 0.75).abs() < 1e-9 && (writes.share - 0.25).abs() < 1e-9);
    let [admission, queued, device] = reads.stages;
    // Nothing was ever in admission: no time is not a time of 0.
    assert_eq!(
        (admission.count, admission.p50_ns, admission.max_ns),
        (0, None, None)
    );
    assert_eq!(queued.count, 75 * 36, "9 s of the histogram's slots");
    assert_eq!(
        (queued.p50_ns, queued.max_ns),
        (Some(QUEUED_MAX), Some(QUEUED_MAX)),
        "no percentile above the longest"
    );
    assert_eq!(
        (device.count, device.p50_ns, device.max_ns),
        (75 * 40, None, Some(MS)),
        "10 s of cells"
    );
    let oldest = sda.oldest.as_ref().unwrap();
    assert_eq!((oldest.owner, oldest.bypasses), (Owner::Cgroup(28), 7));
    assert_eq!(oldest.age_ns, (d.now_ms - d_since()) * MS);
    // Most waiting time first; both had I/O.
    let owners: Vec<_> = sda.owners.iter().map(|o| (o.owner, o.class)).collect();
    assert_eq!(
        owners,
        [(Owner::Cgroup(28), ASYNC), (Owner::Cgroup(1), READ)]
    );
    assert_eq!(sda.owners[1].mean_ns, [None, Some(2 * MS), Some(MS)]);
    assert_eq!(s.owner_name(Owner::Cgroup(28)), "/backup.service");
    assert_eq!(s.owner_name(Owner::Cgroup(1)), "cgroup 1");
    assert_eq!(
        s.verdict,
        "no findings; 6,000 requests seen, hooks 0 of 0, nothing lost"
    );
    let accounts = d.pipeline.accounts();
    assert_eq!(accounts.len(), 2);
    assert_eq!(
        (accounts[0].class, accounts[0].seen, accounts[0].finished),
        (READ, 4_500, 4_500)
    );
    assert_eq!(
        (accounts[1].in_flight, accounts[1].queued_max_ns),
        (2, Some(QUEUED_MAX))
    );
}

/// Since when the figures' write waits.
fn d_since() -> u64 {
    114_000
}

#[test]
fn what_did_nothing_for_long_is_not_shown() {
    let mut d = Disk::new();
    d.tick(&[(1, READ, 75), (28, ASYNC, 25)], &[]);
    for _ in 0..40 {
        d.tick(&[(1, READ, 75)], &[]);
    }
    let s = d.pipeline.snapshot();
    let owners: Vec<_> = s.devices[0].owners.iter().map(|o| o.owner).collect();
    assert_eq!(owners, [Owner::Cgroup(1)]);
    // The class stays, with what is known of it.
    assert_eq!(s.devices[0].classes[1].class, ASYNC);
    assert_eq!(s.devices[0].classes[1].iops, 0.0);
}
