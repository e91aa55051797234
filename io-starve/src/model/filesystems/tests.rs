use super::super::observation::{CgroupFact, Fact, HostFact, Observation};
use super::*;

const S: u64 = 1_000_000_000;
const SDA: DevId = DevId::new(8, 0);
const SDB: DevId = DevId::new(8, 16);

fn tell(model: &mut Model, at: u64, facts: Vec<Fact>) {
    model.apply(&Observation {
        mono_ns: at,
        facts,
        ..Observation::default()
    });
}

fn mounted(dev: DevId, at: &str) -> FilesystemFact {
    FilesystemFact {
        dev,
        fstype: "ext4".to_owned(),
        mountpoint: at.to_owned(),
        source: "/dev/sda1".to_owned(),
        options: "rw".to_owned(),
        queues: vec![SDA],
    }
}

fn cgroup(id: u64, path: &str) -> Fact {
    Fact::Cgroup(CgroupFact {
        id,
        path: path.to_owned(),
        ..CgroupFact::default()
    })
}

fn limited(id: u64, disks: &[(DevId, Limits)]) -> Fact {
    Fact::Limits(LimitFact {
        id,
        disks: disks.to_vec(),
    })
}

fn write(wbps: u64) -> Limits {
    Limits {
        wbps: Some(wbps),
        ..Limits::default()
    }
}

fn read(riops: u64) -> Limits {
    Limits {
        riops: Some(riops),
        ..Limits::default()
    }
}

#[test]
fn an_unmounted_filesystem_is_known_for_ten_minutes() {
    let mut m = Model::default();
    let (a, b) = (DevId::new(8, 1), DevId::new(8, 2));
    let facts = vec![
        Fact::Filesystem(mounted(a, "/a")),
        Fact::Filesystem(mounted(b, "/b")),
    ];
    tell(&mut m, S, facts);
    tell(&mut m, 2 * S, vec![Fact::FilesystemGone { dev: a }]);
    tell(&mut m, 601 * S, Vec::new());
    assert_eq!(m.filesystem(a), Some(&mounted(a, "/a")));
    assert_eq!(m.filesystems().count(), 1, "only b is mounted");
    tell(&mut m, 602 * S, Vec::new());
    assert_eq!(m.filesystem(a), None);
    tell(&mut m, 603 * S, vec![Fact::FilesystemGone { dev: b }]);
    tell(&mut m, 604 * S, vec![Fact::Filesystem(mounted(b, "/c"))]);
    tell(&mut m, 2_000 * S, Vec::new());
    assert_eq!(m.filesystem(b).unwrap().mountpoint, "/c");
}

#[test]
fn filesystems_are_bounded_and_the_unmounted_go_first() {
    let mut f = Filesystems::default();
    for minor in 0..2_000 {
        f.learn(&mounted(DevId::new(7, minor), "/a"));
    }
    assert_eq!(f.by_dev.len(), MAX_FILESYSTEMS);
    f.gone(DevId::new(7, 5), 2);
    f.gone(DevId::new(7, 6), 1);
    f.learn(&mounted(SDA, "/late"));
    assert_eq!(f.by_dev.len(), MAX_FILESYSTEMS);
    assert!(f.by_dev.contains_key(&SDA) && f.by_dev.contains_key(&DevId::new(7, 5)));
}

#[test]
fn limits_are_bounded_and_lifted_ones_make_room() {
    let mut t = LimitTable::default();
    let fact = |id| LimitFact {
        id,
        disks: vec![(SDA, write(1))],
    };
    for id in 0..20_000 {
        t.learn(&fact(id));
    }
    assert_eq!(t.by_cgroup.len(), MAX_LIMITED);
    t.learn(&LimitFact {
        id: 3,
        disks: Vec::new(),
    });
    t.learn(&fact(1 << 40));
    assert!(t.by_cgroup.contains_key(&(1 << 40)));
    let many = (0..2_000).map(|n| (DevId(n), write(1))).collect();
    t.learn(&LimitFact { id: 4, disks: many });
    assert_eq!(t.by_cgroup[&4].disks.len(), super::super::MAX_DEVICES);
}

/// `/a` limits writes to sda, `/a/b` reads from it, `/a/b/c` writes to sdb.
fn tree() -> Model {
    let mut m = Model::default();
    let facts = vec![
        cgroup(10, "/a"),
        cgroup(11, "/a/b"),
        cgroup(12, "/a/b/c"),
        cgroup(13, "/ab"),
        limited(10, &[(SDA, write(100))]),
        limited(11, &[(SDA, read(20))]),
        limited(12, &[(SDB, write(300))]),
    ];
    tell(&mut m, S, facts);
    m
}

#[test]
fn the_nearest_limit_in_the_direction_and_on_the_disk_counts() {
    let m = tree();
    assert_eq!(m.limit_on(12, SDB), Some(write(300)));
    assert_eq!(m.limit_on(12, SDA), None, "its own only");
    assert_eq!(m.nearest_limit(12, SDA, true), Some((10, write(100))));
    assert_eq!(m.nearest_limit(12, SDA, false), Some((11, read(20))));
    assert_eq!(m.nearest_limit(12, SDB, true), Some((12, write(300))));
    assert_eq!(m.nearest_limit(11, SDB, true), None, "not those below");
    assert_eq!(m.nearest_limit(13, SDA, true), None, "/ab is not in /a");
    assert_eq!(m.nearest_limit(99, SDA, true), None);
}

#[test]
fn all_limits_above_are_told_the_nearest_first() {
    let mut m = tree();
    let facts = vec![
        limited(12, &[(SDA, write(500)), (SDB, write(300))]),
        limited(11, &[(SDA, write(200))]),
        cgroup(1, "/"),
        limited(1, &[(SDA, write(900))]),
    ];
    tell(&mut m, 2 * S, facts);
    let ids = |m: &Model| -> Vec<u64> {
        let all = m.ancestors_with_limit(12, SDA, true);
        all.iter().map(|(id, _)| *id).collect()
    };
    assert_eq!(ids(&m), [12, 11, 10, 1]);
    tell(&mut m, 3 * S, vec![limited(11, &[])]);
    assert_eq!(ids(&m), [12, 10, 1], "lifted");
}

#[test]
fn a_limit_of_a_cgroup_without_a_name_is_its_own() {
    let mut m = Model::default();
    tell(&mut m, S, vec![limited(7, &[(SDA, write(1))])]);
    assert_eq!(m.nearest_limit(7, SDA, true), Some((7, write(1))));
}

#[test]
fn under_v1_nothing_is_inherited() {
    let mut m = tree();
    let host = HostFact {
        cgroups: CgroupMode::V1,
        ..HostFact::default()
    };
    tell(&mut m, 2 * S, vec![Fact::Host(host)]);
    assert_eq!(m.nearest_limit(12, SDA, true), None);
    assert_eq!(m.nearest_limit(10, SDA, true), Some((10, write(100))));
}

#[test]
fn they_are_part_of_the_state_that_a_recording_begins_with() {
    let mut m = tree();
    let dev = DevId::new(8, 1);
    tell(&mut m, 2 * S, vec![Fact::Filesystem(mounted(dev, "/a"))]);
    let text = serde_json::to_string(&m).unwrap();
    let back: Model = serde_json::from_str(&text).unwrap();
    assert_eq!(back, m);
    assert_eq!(back.limits().count(), 3);
}
