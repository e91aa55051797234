use proptest::prelude::*;

use super::*;

fn shares(active: &[(u64, &str)], weights: &[(&str, u32)]) -> Vec<f64> {
    let active = active
        .iter()
        .map(|(id, path)| (Owner::Cgroup(*id), Some(*path)))
        .collect();
    let weights: BTreeMap<&str, u32> = weights.iter().copied().collect();
    let all = entitled(&active, &|path| weights.get(path).copied().unwrap_or(100));
    all.into_values()
        .map(|s| (s * 1_000.0).round() / 10.0)
        .collect()
}

#[test]
fn each_level_divides_what_it_got() {
    let weights = [("/a/x", 300)];
    let all = [(1, "/a/x"), (2, "/a/y"), (3, "/b")];
    assert_eq!(shares(&all, &weights), [37.5, 12.5, 50.0]);
    // The first child is idle: its sibling gets all of the parent's.
    assert_eq!(shares(&all[1..], &weights), [50.0, 50.0]);
    // Both are: the parent takes no part.
    assert_eq!(shares(&all[2..], &weights), [100.0]);
    assert_eq!(shares(&[], &weights), [0.0; 0]);
}

#[test]
fn an_owner_above_others_stands_beside_its_children() {
    let all = [(1, "/"), (2, "/a"), (3, "/a/x")];
    assert_eq!(shares(&all, &[("/a/x", 300)]), [50.0, 12.5, 37.5]);
    let nameless = BTreeMap::from([(Owner::Unknown, None), (Owner::Cgroup(1), Some("/a"))]);
    let share = entitled(&nameless, &|_| 300);
    assert_eq!(share[&Owner::Unknown], 0.25);
}

proptest! {
    #[test]
    fn shares_are_parts_of_one(
        paths in prop::collection::btree_map(any::<u64>(), "(/[a-c]){1,4}", 1..12),
        weight in 1u32..10_000,
    ) {
        let active: BTreeMap<Owner, Option<&str>> = paths
            .iter()
            .map(|(id, path)| (Owner::Cgroup(*id), Some(path.as_str())))
            .collect();
        let all = entitled(&active, &|path| if path.ends_with('a') { weight } else { 100 });
        prop_assert_eq!(all.len(), paths.len());
        prop_assert!((all.values().sum::<f64>() - 1.0).abs() < 1e-9);
        prop_assert!(all.values().all(|s| *s > 0.0));
    }
}

fn file(default: u32, disks: &[(DevId, u32)]) -> Option<WeightFile> {
    Some(WeightFile {
        default,
        disks: disks.to_vec(),
    })
}

#[test]
fn the_file_that_the_enforcer_reads_counts() {
    let (sda, sdb) = (DevId::new(8, 0), DevId::new(8, 16));
    let mut t = WeightTable::default();
    let mut learn = |io, bfq| {
        t.learn(&WeightFact {
            path: "/a".to_owned(),
            io,
            bfq,
            ..WeightFact::default()
        });
        let of = |dev, enforcer| {
            t.weight("/a", dev, enforcer)
                .map(|w| (w.value, w.set, w.honoured))
        };
        [
            of(sda, Enforcer::Iocost),
            of(sda, Enforcer::Bfq),
            of(sdb, Enforcer::Nobody),
        ]
    };
    let both = learn(file(200, &[(sda, 500)]), file(300, &[]));
    let is = |value, honoured| Some((value, value != 100, honoured));
    assert_eq!(both, [is(500, true), is(300, true), is(200, false)]);
    // BFQ does not look at io.weight; what was meant by it is 100 + 400 / 9,900 of 900.
    let io = learn(file(100, &[(sda, 500)]), file(100, &[]));
    assert_eq!(io, [is(500, true), is(136, false), is(100, false)]);
    let bfq = learn(None, file(700, &[]));
    assert_eq!(bfq, [None, is(700, true), is(700, false)]);
    assert_eq!(learn(None, None), [None; 3]);
    assert_eq!(t, WeightTable::default(), "a cgroup that is gone");
}

#[test]
fn weights_map_as_systemd_maps_them() {
    assert_eq!([1, 100, 500, 10_000].map(bfq_weight), [1, 100, 136, 1_000]);
}

#[test]
fn a_path_is_below_all_that_begin_it() {
    let of = |path| line_of(path).collect::<Vec<_>>();
    assert_eq!(
        of("/a/b.service/c"),
        ["/a", "/a/b.service", "/a/b.service/c"]
    );
    assert_eq!(of("/"), [""; 0]);
}
