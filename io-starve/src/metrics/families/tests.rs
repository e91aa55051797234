use io_starve_common::class::Class;

use super::*;
use crate::model::observation::{
    CgroupFact, DevId, DeviceFact, Fact, GroupDelta, GroupKey, HistDelta, Observation, Owner,
    StageDelta,
};

/// 100 disks and 5,000 cgroups, all of which do everything.
fn crowd(tick: u64) -> Observation {
    let dev = |i: u64| DevId::new(8, i as u32);
    let mut o = Observation {
        mono_ns: (tick + 1) * 250_000_000,
        ..Observation::default()
    };
    for i in (0..100).filter(|_| tick == 0) {
        o.facts.push(Fact::Device(DeviceFact {
            dev: dev(i),
            name: format!("sd{i}"),
            scheduler: None,
            tunables: Vec::new(),
            below: Vec::new(),
            rotational: None,
            iocost: None,
            backing_file: None,
        }));
    }
    for id in 0..5_000 {
        if tick == 0 {
            o.facts.push(Fact::Cgroup(CgroupFact {
                id,
                path: format!("/c{id}"),
                ..CgroupFact::default()
            }));
        }
        // Each tick somebody else waits most.
        let ns = if id % 97 == tick {
            id * 1_000_000
        } else {
            1_000
        };
        let stage = StageDelta {
            count: 1,
            sum_ns: ns,
            max_ns: ns,
        };
        let class = Class::ALL[(id % 6) as usize];
        o.groups.push(GroupDelta {
            key: GroupKey {
                dev: dev(id % 100),
                owner: Owner::Cgroup(id),
                class,
            },
            seen: 1,
            finished: 1,
            merged: 0,
            expired: 0,
            inserts: 1,
            issues: 1,
            requeues: 0,
            bytes: 4_096,
            stages: [stage; 3],
            last_issue_ns: None,
        });
        o.hists.extend(Stage::ALL.map(|stage| HistDelta {
            dev: dev(id % 100),
            class,
            stage,
            buckets: vec![((id % 128) as u8, 1)],
        }));
    }
    o
}

/// Name, labels and value of everything that may only grow.
fn counters(all: &[Family]) -> BTreeMap<String, f64> {
    let text = crate::metrics::text::render(all, crate::metrics::text::Notation::Prometheus);
    let grows = |l: &&str| {
        let name = l.split(['{', ' ']).next().unwrap();
        ["_total", "_bucket", "_count"]
            .iter()
            .any(|s| name.ends_with(s))
    };
    let lines = text.lines().filter(|l| !l.starts_with('#')).filter(grows);
    lines
        .map(|l| {
            let (series, value) = l.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn series_are_bounded_counters_only_grow_and_nothing_is_left_out() {
    for max_series in [1_000, 2_000, 5_000] {
        let mut tally = Tally::new(max_series);
        let mut before = BTreeMap::new();
        for tick in 0..20 {
            tally.take(&crowd(tick));
            tally.settle();
            let all = families(&tally, &Snapshot::default(), &Own::default());
            let series: usize = all.iter().map(Family::series).sum();
            assert!(series <= max_series, "{series} of {max_series}");
            let now = counters(&all);
            for (series, value) in &now {
                assert!(
                    value >= before.get(series).unwrap_or(&0.0),
                    "{series} shrank"
                );
            }
            before = now;
        }
        let requests: f64 = before
            .iter()
            .filter(|(s, _)| s.starts_with("io_starve_requests_total"))
            .map(|(_, n)| n)
            .sum();
        assert_eq!(requests, 20.0 * 5_000.0, "of {max_series}");
    }
}

#[test]
fn no_two_samples_have_the_same_labels() {
    for snapshot in crate::tui::fixtures::all().map(|(_, s)| s) {
        let mut tally = Tally::new(2_000);
        tally.take(&crowd(0));
        for family in families(&tally, &snapshot, &Own::default()) {
            let mut labels: Vec<_> = family.samples.iter().map(|s| &s.labels).collect();
            let all = labels.len();
            labels.sort();
            labels.dedup();
            assert_eq!(labels.len(), all, "{}", family.name);
        }
    }
}
