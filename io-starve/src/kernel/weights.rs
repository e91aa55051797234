//! Weights, by cgroup.
//!
//! In: the files of those who do I/O, and of all above them. Out: facts, only those that changed. A file that is not there or cannot be
//! read tells nothing.
//!
//! Only who does I/O takes part in dividing a disk, so nobody else's files are read: at once when they are new, then in turn. One file
//! costs some 4 us of CPU and a cgroup has up to four, so a second has room for [`CGROUPS_PER_S`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::{
    cgroups::Cgroups,
    devices::{clean, parse_dev},
};
use crate::model::{
    observation::{CgroupMode, DevId, Fact, WeightFact, WeightFile},
    weights::line_of,
};

/// How many cgroups are read again in a second at most: all within 2 s where 1,024 do I/O, 6 ms of CPU.
const CGROUPS_PER_S: u64 = 512;

/// All weights, as last read.
#[derive(Debug, Default)]
pub struct WeightReader {
    known: BTreeMap<String, WeightFact>,
    last: String,
    last_ns: u64,
}

impl WeightReader {
    /// Reads those of `new` owners and of all above them, and others whose turn it is. `now` is ns monotonic.
    pub fn refresh(
        &mut self,
        cgroups: &Cgroups,
        new: impl Iterator<Item = u64>,
        now: u64,
    ) -> Vec<Fact> {
        let Some(hierarchy) = cgroups.hierarchy() else {
            return Vec::new();
        };
        let mut due: BTreeSet<String> = BTreeSet::new();
        for path in new.filter_map(|id| cgroups.alive().get(&id)) {
            let unread = line_of(path).filter(|p| !self.known.contains_key(*p));
            due.extend(unread.map(str::to_owned));
        }
        let since = now.saturating_sub(self.last_ns).min(1_000_000_000);
        self.last_ns = now;
        let turn = (CGROUPS_PER_S.min(self.known.len() as u64) * since).div_ceil(1_000_000_000);
        let behind = self.known.range::<String, _>((
            std::ops::Bound::Excluded(&self.last),
            std::ops::Bound::Unbounded,
        ));
        let turn: Vec<String> = behind
            .chain(self.known.iter())
            .take(turn as usize)
            .map(|(path, _)| path.clone())
            .collect();
        if let Some(last) = turn.last() {
            self.last.clone_from(last);
        }
        due.extend(turn);
        let mut facts = Vec::new();
        for path in due {
            let dir = hierarchy.root.join(path.trim_start_matches('/'));
            let (fact, before) = if dir.exists() {
                let fact = read(&dir, &path, hierarchy.mode);
                (fact.clone(), self.known.insert(path, fact))
            } else {
                let before = self.known.remove(&path);
                let gone = WeightFact {
                    path,
                    ..WeightFact::default()
                };
                (gone, before)
            };
            if before.as_ref() != Some(&fact) && !(before.is_none() && fact.is_empty()) {
                facts.push(Fact::Weights(fact));
            }
        }
        facts
    }

    /// Somebody who does I/O, or a cgroup above one, has another weight than the default on this disk.
    pub fn set_on(&self, dev: DevId) -> bool {
        let files = self.known.values().flat_map(|f| [&f.io, &f.bfq]);
        files
            .flatten()
            .any(|f| f.on(dev) != crate::model::weights::DEFAULT_WEIGHT)
    }
}

fn read(dir: &Path, path: &str, mode: CgroupMode) -> WeightFact {
    let text = |file: &str| fs::read_to_string(dir.join(file)).ok();
    let v1 = |names: [&str; 2], by_disk: [&str; 2]| {
        let default = names.iter().find_map(|n| text(n))?;
        let disks = by_disk.iter().find_map(|n| text(n)).unwrap_or_default();
        weight_file(&format!("{default}\n{disks}"))
    };
    if mode == CgroupMode::V1 {
        return WeightFact {
            path: path.to_owned(),
            io: v1(["blkio.weight"; 2], ["blkio.weight_device"; 2]),
            // Both names are in use, by version.
            bfq: v1(
                ["blkio.bfq.weight", "blkio.weight"],
                ["blkio.bfq.weight_device", "blkio.weight_device"],
            ),
            ..WeightFact::default()
        };
    }
    let latency = text("io.latency").unwrap_or_default();
    WeightFact {
        path: path.to_owned(),
        io: text("io.weight").and_then(|t| weight_file(&t)),
        bfq: text("io.bfq.weight").and_then(|t| weight_file(&t)),
        prio_class: text("io.prio.class")
            .map(|t| clean(&t))
            .filter(|class| class != "no-change"),
        latency: latency
            .lines()
            .filter_map(|l| {
                let (dev, rest) = l.split_once(' ')?;
                let target = rest
                    .split_whitespace()
                    .find_map(|w| w.strip_prefix("target="))?;
                Some((parse_dev(dev)?, target.parse().ok()?))
            })
            .collect(),
    }
}

/// `default 100`, or `100` alone (v1), then a line for each disk with a weight of its own.
fn weight_file(text: &str) -> Option<WeightFile> {
    let mut default = None;
    let mut disks = Vec::new();
    for line in text.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["default", weight] | [weight] => default = weight.parse().ok(),
            [dev, weight] => {
                if let (Some(dev), Ok(weight)) = (parse_dev(dev), weight.parse()) {
                    disks.push((dev, weight));
                }
            }
            _ => {}
        }
    }
    disks.sort();
    Some(WeightFile {
        default: default?,
        disks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cgroups::Hierarchy;

    fn put(dir: &Path, file: &str, content: &str) {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn cgroups(dir: &Path, mode: CgroupMode) -> Cgroups {
        let mut c = Cgroups::new(Some(Hierarchy {
            mode,
            root: dir.to_owned(),
            id: 0,
        }));
        c.walk();
        c
    }

    fn ids(c: &Cgroups, paths: &[&str]) -> Vec<u64> {
        let of = |p: &&str| {
            c.alive()
                .iter()
                .find(|(_, path)| path == p)
                .map(|(id, _)| *id)
        };
        paths.iter().filter_map(of).collect()
    }

    fn told(facts: Vec<Fact>) -> Vec<WeightFact> {
        let weights = |f| match f {
            Fact::Weights(w) => Some(w),
            _ => None,
        };
        facts.into_iter().filter_map(weights).collect()
    }

    #[test]
    fn files_of_who_does_io_and_of_those_above_are_read_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let r = dir.path();
        put(r, "a/io.weight", "default 100\n");
        put(r, "a/b/io.weight", "default 500\n8:0 200\n");
        put(r, "a/b/io.bfq.weight", "default 300\n");
        put(r, "a/b/io.prio.class", "idle\n");
        put(r, "a/b/io.latency", "8:16 target=75000\n");
        put(r, "other/io.weight", "default 900\n");
        let c = cgroups(r, CgroupMode::V2);
        let mut w = WeightReader::default();
        let facts = told(w.refresh(&c, ids(&c, &["/a/b"]).into_iter(), 1));
        let paths: Vec<&str> = facts.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["/a", "/a/b"], "nobody asks for the other");
        let (sda, sdb) = (DevId::new(8, 0), DevId::new(8, 16));
        let b = &facts[1];
        assert_eq!(b.io.as_ref().unwrap().on(sda), 200);
        assert_eq!(b.io.as_ref().unwrap().on(sdb), 500);
        assert_eq!(b.bfq.as_ref().unwrap().default, 300);
        assert_eq!(b.prio_class.as_deref(), Some("idle"));
        assert_eq!(b.latency, [(sdb, 75_000)]);
        assert!(w.set_on(sda));

        assert_eq!(told(w.refresh(&c, [].into_iter(), 2_000_000_000)), []);
        put(r, "a/b/io.weight", "default 100\n");
        put(r, "a/b/io.bfq.weight", "default 100\n");
        let facts = told(w.refresh(&c, [].into_iter(), 4_000_000_000));
        assert_eq!(facts.len(), 1);
        assert!(!w.set_on(sda));
        fs::remove_dir_all(r.join("a/b")).unwrap();
        let facts = told(w.refresh(&c, [].into_iter(), 6_000_000_000));
        assert!(facts.len() == 1 && facts[0].is_empty(), "gone: {facts:?}");
    }

    #[test]
    fn weights_of_v1_are_those_of_bfq() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a/blkio.bfq.weight", "500\n");
        put(dir.path(), "a/blkio.bfq.weight_device", "8:0 700\n");
        put(dir.path(), "b/blkio.throttle.read_bps_device", "");
        let c = cgroups(dir.path(), CgroupMode::V1);
        let mut w = WeightReader::default();
        let facts = told(w.refresh(&c, ids(&c, &["/a", "/b"]).into_iter(), 1));
        assert_eq!(facts.len(), 1, "what has no file tells nothing");
        let bfq = facts[0].bfq.as_ref().unwrap();
        assert_eq!((bfq.default, bfq.on(DevId::new(8, 0))), (500, 700));
        assert_eq!(facts[0].io, None);
    }

    #[test]
    fn no_number_is_no_weight() {
        assert_eq!(weight_file("default high\n"), None);
        assert_eq!(weight_file(""), None);
        let odd = weight_file("default 100\nfoo 3\n8:0 default\n").unwrap();
        assert_eq!(odd.disks, []);
    }
}
