use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use super::*;
use crate::kernel::cgroups::Hierarchy;

const S: u64 = 1_000_000_000;
const TICK: u64 = S / 4;
const SDA: DevId = DevId::new(8, 0);
const SDB: DevId = DevId::new(8, 16);

struct Tree {
    dir: tempfile::TempDir,
    cgroups: Cgroups,
    reader: LimitReader,
    now: u64,
}

impl Tree {
    fn new(mode: CgroupMode) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::new(Some(Hierarchy {
            mode,
            root: dir.path().to_owned(),
            id: 0,
        }));
        Tree {
            dir,
            cgroups,
            reader: LimitReader::default(),
            now: 0,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A cgroup that the next walk finds. Ids of this tree do not rise like the kernel's.
    fn make(&self, name: &str) -> u64 {
        fs::create_dir_all(self.path(name)).unwrap();
        fs::metadata(self.path(name)).unwrap().ino()
    }

    fn put(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).unwrap();
    }

    fn walk(&mut self) {
        self.cgroups.walk();
    }

    fn refresh(&mut self) -> Vec<Fact> {
        self.now += TICK;
        self.reader.refresh(&self.cgroups, self.now)
    }

    /// Facts of so many ns.
    fn within(&mut self, ns: u64) -> Vec<Fact> {
        let end = self.now + ns;
        let mut facts = Vec::new();
        while self.now < end {
            facts.extend(self.refresh());
        }
        facts
    }
}

fn fact(id: u64, disks: &[(DevId, Limits)]) -> Fact {
    Fact::Limits(LimitFact {
        id,
        disks: disks.to_vec(),
    })
}

fn wbps(n: u64) -> Limits {
    Limits {
        wbps: Some(n),
        ..Limits::default()
    }
}

#[test]
fn io_max_of_v2() {
    let mut t = Tree::new(CgroupMode::V2);
    let a = t.make("a.slice");
    t.make("a.slice/b");
    t.make("c");
    t.put(
        "a.slice/io.max",
        "8:16 rbps=2097152 wbps=max riops=max wiops=50\n\
         8:0 rbps=max wbps=1048576 riops=max wiops=max new=7\n\
         8:32 rbps=max wbps=max riops=max wiops=max\n\
         (unknown) rbps=5\n",
    );
    t.put("a.slice/b/io.max", "");
    t.walk();
    let sdb = Limits {
        rbps: Some(2_097_152),
        wiops: Some(50),
        ..Limits::default()
    };
    assert_eq!(
        t.refresh(),
        [fact(a, &[(SDA, wbps(1_048_576)), (SDB, sdb)])]
    );
    assert_eq!(t.within(3 * S), []);
}

#[test]
fn four_files_of_v1_are_one_fact() {
    let mut t = Tree::new(CgroupMode::V1);
    let a = t.make("a");
    t.put("a/blkio.throttle.read_bps_device", "8:0 1000\n8:16 2000\n");
    t.put("a/blkio.throttle.write_bps_device", "8:0 1048576\n");
    t.put("a/blkio.throttle.read_iops_device", "");
    t.put(
        "a/blkio.throttle.write_iops_device",
        "8:0 50\nnonsense\n8:16 x\n",
    );
    t.walk();
    let sda = Limits {
        rbps: Some(1_000),
        wbps: Some(1_048_576),
        riops: None,
        wiops: Some(50),
    };
    let sdb = Limits {
        rbps: Some(2_000),
        ..Limits::default()
    };
    assert_eq!(t.refresh(), [fact(a, &[(SDA, sda), (SDB, sdb)])]);
}

#[test]
fn the_root_of_v1_has_limits_too() {
    let mut t = Tree::new(CgroupMode::V1);
    let root = t.make("");
    t.put("blkio.throttle.write_bps_device", "8:0 5\n");
    t.walk();
    assert_eq!(t.refresh(), [fact(root, &[(SDA, wbps(5))])]);
}

#[test]
fn a_known_limit_that_changes_is_seen_within_a_second_among_ten_thousand() {
    let mut t = Tree::new(CgroupMode::V2);
    let a = t.make("a");
    t.put("a/io.max", "8:0 wbps=5\n");
    t.walk();
    for id in 1..10_000 {
        t.cgroups.event(id << 40, 0, false, &format!("/none/{id}"));
    }
    assert_eq!(t.refresh().len(), 1);
    t.put("a/io.max", "8:0 wbps=6\n");
    assert_eq!(t.within(S), [fact(a, &[(SDA, wbps(6))])]);
    t.put("a/io.max", "");
    assert_eq!(t.within(S), [fact(a, &[])], "lifted");
    assert_eq!(t.within(S), []);
    t.put("a/io.max", "8:0 wbps=7\n");
    assert_eq!(t.within(6 * S), [fact(a, &[(SDA, wbps(7))])], "a new one");
}

#[test]
fn a_cgroup_that_goes_away_takes_its_limits_with_it() {
    let mut t = Tree::new(CgroupMode::V2);
    let (a, b) = (t.make("a"), t.make("b"));
    for file in ["a/io.max", "b/io.max"] {
        t.put(file, "8:0 wbps=5\n");
    }
    t.walk();
    assert_eq!(t.refresh().len(), 2);
    t.cgroups.event(a, 0, true, "/a");
    assert_eq!(t.within(S), [fact(a, &[])], "by the kernel's event");
    fs::remove_dir_all(t.path("b")).unwrap();
    assert_eq!(t.within(S), [fact(b, &[])], "by the lack of its file");
    assert_eq!(t.within(S), []);
}

#[test]
fn a_new_cgroup_is_read_at_every_call_at_first() {
    let mut t = Tree::new(CgroupMode::V2);
    t.walk();
    // Enough others that its turn would come late.
    let first = 1 << 60;
    for id in 0..10_000 {
        t.cgroups.event(first + id, 0, false, "/none");
    }
    assert_eq!(t.refresh(), []);
    let young = first + 20_000;
    t.make("young");
    t.cgroups.event(young, 0, false, "/young");
    assert_eq!(t.refresh(), []);
    t.put("young/io.max", "8:0 wbps=5\n");
    assert_eq!(t.refresh(), [fact(young, &[(SDA, wbps(5))])]);
    for id in 0..1_000 {
        t.cgroups.event(young + id + 1, 0, false, "/none");
    }
    t.refresh();
    assert_eq!(t.reader.young.len(), MAX_YOUNG);
    t.within(YOUNG_NS + TICK);
    assert_eq!(t.reader.young.len(), 0);
}

#[test]
fn who_holds_something_is_read_at_once() {
    let mut t = Tree::new(CgroupMode::V2);
    t.walk();
    t.refresh();
    let a = t.make("a");
    t.put("a/io.max", "8:0 wbps=5\n");
    t.walk();
    let told = t.reader.of_holders(&t.cgroups, [a].into_iter());
    assert_eq!(told, [fact(a, &[(SDA, wbps(5))])]);
    assert_eq!(t.reader.of_holders(&t.cgroups, [a, 7].into_iter()), []);
}

#[test]
fn without_a_hierarchy_there_are_no_limits() {
    let mut reader = LimitReader::default();
    let cgroups = Cgroups::new(None);
    assert_eq!(reader.refresh(&cgroups, S), []);
    assert_eq!(reader.of_holders(&cgroups, [1].into_iter()), []);
}

#[test]
fn everybody_has_a_turn_and_a_second_has_an_end() {
    let of: BTreeMap<u64, ()> = (1..=10).map(|id| (id, ())).collect();
    let mut last = 0;
    assert_eq!(take_turn(&of, &mut last, 4), [1, 2, 3, 4]);
    assert_eq!(take_turn(&of, &mut last, 4), [5, 6, 7, 8]);
    assert_eq!(take_turn(&of, &mut last, 4), [9, 10, 1, 2]);
    assert_eq!(take_turn(&of, &mut last, 20).len(), 10, "each once");
    assert!(take_turn(&BTreeMap::<u64, ()>::new(), &mut last, 4).is_empty());

    assert_eq!(turn(0, 2_048, TICK), 0);
    assert_eq!(turn(3, 2_048, TICK), 1);
    assert_eq!(turn(200, 2_048, TICK), 50, "all of them in a second");
    assert_eq!(turn(10_000, 2_048, TICK), 512);
    assert_eq!(turn(10_000, 512, TICK), 128);
    assert_eq!(turn(10_000, 2_048, 60 * S), 2_048, "after a stop");
}
