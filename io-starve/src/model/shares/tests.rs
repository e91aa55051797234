use io_starve_common::class::Class;

use super::*;
use crate::model::observation::{DeviceFact, Fact, GroupDelta, GroupKey, StageDelta, WeightFact};
use crate::model::weights::WeightFile;

const SDA: DevId = DevId::new(8, 0);
const S: u64 = 1_000_000_000;
const A: Owner = Owner::Cgroup(1);
const B: Owner = Owner::Cgroup(2);

fn clock(busy_ns: u64, idle_ns: u64) -> ClockDelta {
    ClockDelta {
        dev: SDA,
        busy_ns,
        idle_ns,
        idle_waited_ns: 0,
        missed: 0,
    }
}

fn service(owner: Owner, device_ns: u64, active_ns: u64) -> ServiceDelta {
    ServiceDelta {
        dev: SDA,
        owner,
        times: Times {
            device_ns,
            active_ns,
            ..Times::default()
        },
    }
}

fn served(owner: Owner, finished: u64) -> GroupDelta {
    GroupDelta {
        key: GroupKey {
            dev: SDA,
            owner,
            class: Class::SyncRead,
        },
        seen: finished,
        finished,
        merged: 0,
        expired: 0,
        inserts: finished,
        issues: finished,
        requeues: 0,
        bytes: 4_096 * finished,
        stages: [StageDelta::default(); 3],
        last_issue_ns: None,
    }
}

/// A second in which A had three quarters of the disk and B the rest.
fn second(at: u64) -> Observation {
    Observation {
        mono_ns: at * S,
        clocks: vec![clock(S, 0)],
        services: vec![service(A, S / 4 * 3, S), service(B, S / 4, S)],
        groups: vec![served(A, 30), served(B, 10)],
        ..Observation::default()
    }
}

#[test]
fn windows_are_sums_of_their_own_time_and_totals_of_all() {
    let mut shares = Shares::default();
    for at in 1..=40 {
        shares.take(&second(at), (at - 1) * S, at * S);
    }
    let last = shares.window(SDA, 35 * S, 40 * S).unwrap();
    assert_eq!((last.from_ns, last.to_ns, last.ns), (35 * S, 40 * S, 5 * S));
    assert_eq!(last.device_ns(), last.busy_ns);
    assert_eq!((last.owners[&A].served, last.owners[&B].served), (150, 50));
    assert!(shares.window(SDA, 10 * S, 20 * S).is_none(), "forgotten");
    assert!(shares.window(SDA, 40 * S, 45 * S).is_none(), "not yet");
    let (_, total, _) = shares.totals().next().unwrap();
    assert_eq!((total.ns, total.owners[&A].served), (40 * S, 1_200));
    // Nothing for long: only the totals are kept.
    shares.take(&Observation::default(), 40 * S, 80 * S);
    assert_eq!(shares.disks().count(), 0);
    assert_eq!(shares.totals().count(), 1);
}

#[test]
fn short_ticks_share_a_cell_and_a_pause_begins_a_new_one() {
    let mut shares = Shares::default();
    let tick = |shares: &mut Shares, from: u64, to: u64| {
        let o = Observation {
            clocks: vec![clock(to - from, 0)],
            ..Observation::default()
        };
        shares.take(&o, from, to);
    };
    for i in 0..8 {
        tick(&mut shares, i * S / 4, (i + 1) * S / 4);
    }
    assert_eq!(shares.disks[&SDA].len(), 2);
    tick(&mut shares, 5 * S, 5 * S + S / 4);
    assert_eq!(shares.disks[&SDA].len(), 3);
    let all = shares.window(SDA, 0, 6 * S).unwrap();
    assert_eq!(all.ns, 2 * S + S / 4, "the pause was not counted");
}

#[test]
fn owners_without_room_are_summed() {
    let mut shares = Shares::default();
    let many = 2 * MAX_OWNERS as u64;
    let o = Observation {
        clocks: vec![clock(many, 0)],
        services: (0..many)
            .map(|id| service(Owner::Cgroup(id), 1, 1))
            .collect(),
        ..Observation::default()
    };
    shares.take(&o, 0, S);
    let window = shares.window(SDA, 0, S).unwrap();
    assert_eq!(window.owners.len(), MAX_OWNERS + 1);
    assert_eq!(window.device_ns(), many);
}

fn model(facts: Vec<Fact>) -> Model {
    let mut model = Model::default();
    let device = DeviceFact {
        dev: SDA,
        name: "sda".to_owned(),
        scheduler: Some("bfq".to_owned()),
        tunables: Vec::new(),
        below: Vec::new(),
        rotational: None,
        iocost: None,
        backing_file: None,
    };
    let cgroup = |id, path: &str| {
        Fact::Cgroup(crate::model::observation::CgroupFact {
            id,
            path: path.to_owned(),
            ..Default::default()
        })
    };
    let mut all = vec![Fact::Device(device), cgroup(1, "/p/a"), cgroup(2, "/b")];
    all.extend(facts);
    model.apply(&Observation {
        mono_ns: 0,
        facts: all,
        ..Observation::default()
    });
    model
}

#[test]
fn obtained_and_entitled_stand_side_by_side() {
    let weight = |path: &str, bfq| {
        Fact::Weights(WeightFact {
            path: path.to_owned(),
            bfq: Some(WeightFile {
                default: bfq,
                disks: Vec::new(),
            }),
            ..WeightFact::default()
        })
    };
    let mut m = model(vec![weight("/p", 300), weight("/p/a", 100)]);
    for at in 1..=5 {
        m.apply(&second(at));
    }
    let judged = m.judged(SDA, 0, 5 * S).unwrap();
    assert_eq!(judged.enforcer, Enforcer::Bfq);
    let (a, b) = (judged.owner(A).unwrap(), judged.owner(B).unwrap());
    assert_eq!((a.obtained, a.entitled), (0.75, Some(0.75)));
    assert!(a.set, "by what is set above it");
    assert_eq!(a.weight.map(|w| w.value), Some(100));
    assert_eq!((b.weight, b.set), (None, false), "nothing was told of it");
    // Device time is the same though the second has hardly anything in flight: it takes no part.
    let mut quiet = second(6);
    quiet.services[1].times.active_ns = S / 20;
    m.apply(&quiet);
    let judged = m.judged(SDA, 5 * S, 6 * S).unwrap();
    assert_eq!(judged.owner(A).unwrap().entitled, Some(1.0));
    assert_eq!(judged.owner(B).unwrap().entitled, None);
    assert_eq!(judged.owner(B).unwrap().part(), None);
}

#[test]
fn what_the_screen_shows_is_a_tree_with_sums() {
    let mut m = model(Vec::new());
    for at in 1..=5 {
        m.apply(&second(at));
    }
    let view = &m.snapshot(Vec::new(), String::new()).shares[0];
    let rows: Vec<_> = view
        .rows
        .iter()
        .map(|r| (r.depth, r.path.as_str(), r.owner, r.obtained))
        .collect();
    // B got half of its share, so it comes first.
    let want = [
        (0, "/b", Some(B), 0.25),
        (0, "/p", None, 0.75),
        (1, "/p/a", Some(A), 0.75),
    ];
    assert_eq!(rows, want);
    assert_eq!(view.rows[0].served_per_s, 10.0);
    assert_eq!(view.busy_share, 1.0);
}
