use super::*;
use io_starve_common::class::Class;
use observation::{GroupDelta, StageDelta};

#[test]
fn a_group_that_did_nothing_for_a_minute_leaves_only_its_totals() {
    let mut model = Model::default();
    let key = GroupKey {
        dev: DevId::new(8, 0),
        owner: Owner::Cgroup(28),
        class: Class::SyncRead,
    };
    let at = |s: u64, groups| Observation {
        mono_ns: s * 1_000_000_000,
        groups,
        ..Observation::default()
    };
    let moved = GroupDelta {
        key,
        seen: 3,
        finished: 3,
        merged: 0,
        expired: 0,
        inserts: 3,
        issues: 3,
        requeues: 0,
        bytes: 1,
        stages: [StageDelta::default(); 3],
        last_issue_ns: None,
    };
    model.apply(&at(100, vec![moved]));
    model.apply(&at(160, Vec::new()));
    assert_eq!(model.devices[&key.dev].owners.len(), 1);
    model.apply(&at(161, Vec::new()));
    assert_eq!(model.devices[&key.dev].owners.len(), 0);
    assert_eq!((model.flows, model.requests_seen()), (0, 3));
}
