//! Disks as /sys tells them: names, topology, scheduler and the tunables that advice is about.
//!
//! In: the root of sysfs (a fixture in tests). Out: facts, only those that changed. A file that cannot be read leaves its
//! value unknown.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::model::observation::{DevId, DeviceFact, Fact};

/// Files below queue/ that detectors show or advise on; those of queue/iosched/ are all taken.
const TUNABLES: [&str; 5] = [
    "logical_block_size",
    "nr_requests",
    "wbt_lat_usec",
    "async_depth",
    "max_sectors_kb",
];
/// Schedulers have up to a dozen tunables; more would be something else.
const MAX_TUNABLES: usize = 32;

/// All disks, as last read.
pub struct Devices {
    sys: PathBuf,
    cost_qos: Option<PathBuf>,
    known: BTreeMap<DevId, DeviceFact>,
}

impl Devices {
    /// Reads nothing yet. `sys` is where sysfs is mounted; `cost_qos` is the root's io.cost.qos of cgroup v2.
    pub fn new(sys: &Path, cost_qos: Option<PathBuf>) -> Devices {
        Devices {
            sys: sys.to_owned(),
            cost_qos,
            known: BTreeMap::new(),
        }
    }

    /// Gives the path of io.cost.qos back.
    pub fn into_cost_qos(self) -> Option<PathBuf> {
        self.cost_qos
    }

    /// Reads all disks again and says what changed.
    pub fn refresh(&mut self) -> Vec<Fact> {
        let now = self.read_all();
        let mut facts = Vec::new();
        for (dev, fact) in &now {
            if self.known.get(dev) != Some(fact) {
                facts.push(Fact::Device(fact.clone()));
            }
        }
        for dev in self.known.keys().filter(|d| !now.contains_key(d)) {
            facts.push(Fact::DeviceGone { dev: *dev });
        }
        self.known = now;
        facts
    }

    /// True when this disk was there at the last refresh.
    pub fn knows(&self, dev: DevId) -> bool {
        self.known.contains_key(&dev)
    }

    /// True when something on this disk honours weights: BFQ or iocost.
    pub fn enforces_weights(&self, dev: DevId) -> bool {
        self.known
            .get(&dev)
            .is_some_and(|d| d.scheduler.as_deref() == Some("bfq") || d.iocost == Some(true))
    }

    /// The disks below this one (dm, md).
    pub fn below(&self, dev: DevId) -> &[DevId] {
        self.known
            .get(&dev)
            .map(|d| d.below.as_slice())
            .unwrap_or_default()
    }

    /// What this disk is called.
    pub fn name(&self, dev: DevId) -> Option<&str> {
        self.known.get(&dev).map(|d| d.name.as_str())
    }

    /// Every disk of the last refresh.
    pub fn all(&self) -> impl Iterator<Item = &DeviceFact> {
        self.known.values()
    }

    /// True when some disk can keep bios back before they become requests.
    pub fn need_admission(&self) -> bool {
        self.known.values().any(|d| {
            let scheduled = d.scheduler.as_deref().is_some_and(|s| s != "none");
            let wbt = d
                .tunables
                .iter()
                .any(|(k, v)| k == "wbt_lat_usec" && v.parse::<u64>().is_ok_and(|n| n > 0));
            scheduled || wbt || d.iocost == Some(true)
        })
    }

    /// (disks, request tags of all their queues, scheduler and driver tags together).
    pub fn tags(&self) -> (u32, u32) {
        let mut tags = 0u32;
        for disk in self.known.values() {
            let base = self.block(kernel_name(&disk.name));
            let queues = entries(&base.join("mq"));
            let depth = number(&base.join("queue/nr_requests")).unwrap_or(0);
            for queue in queues {
                let driver = number(&queue.join("nr_tags")).unwrap_or(depth);
                tags = tags.saturating_add(depth).saturating_add(driver);
            }
        }
        (self.known.len() as u32, tags)
    }

    fn block(&self, name: &str) -> PathBuf {
        self.sys.join("block").join(name)
    }

    fn read_all(&self) -> BTreeMap<DevId, DeviceFact> {
        let iocost = self.cost_qos.as_deref().and_then(iocost_devices);
        entries(&self.sys.join("block"))
            .iter()
            .filter_map(|p| self.read(p, iocost.as_deref()))
            .map(|d| (d.dev, d))
            .collect()
    }

    fn read(&self, path: &Path, iocost: Option<&[DevId]>) -> Option<DeviceFact> {
        let dev = dev_at(path)?;
        let kernel_name = path.file_name()?.to_string_lossy().into_owned();
        let queue = path.join("queue");
        let mut tunables: Vec<(String, String)> = TUNABLES
            .iter()
            .filter_map(|f| Some(((*f).to_owned(), text(&queue.join(f))?)))
            .collect();
        for file in entries(&queue.join("iosched")) {
            if let (Some(name), Some(value)) = (file.file_name(), text(&file)) {
                tunables.push((format!("iosched/{}", name.to_string_lossy()), value));
            }
        }
        tunables.sort();
        tunables.truncate(MAX_TUNABLES);
        let backing_file = fs::read(path.join("loop/backing_file"))
            .ok()
            .map(|b| clean(&String::from_utf8_lossy(&b)));
        let below = entries(&path.join("slaves"))
            .iter()
            .filter_map(|p| dev_at(&whole_disk(p)?))
            .collect();
        let alias = text(&path.join("dm/name"));
        Some(DeviceFact {
            dev,
            name: alias.map_or_else(
                || kernel_name.clone(),
                |a| format!("{kernel_name} ({})", clean(&a)),
            ),
            scheduler: text(&queue.join("scheduler")).and_then(|s| active_scheduler(&s)),
            tunables,
            below,
            rotational: text(&queue.join("rotational")).map(|s| s == "1"),
            iocost: iocost.map(|devs| devs.contains(&dev)),
            backing_file,
        })
    }
}

/// The directory of the disk that a link leads to; a partition's disk is the directory above it.
pub fn whole_disk(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    if real.join("partition").exists() {
        real.parent().map(Path::to_owned)
    } else {
        Some(real)
    }
}

/// Number of the disk or partition with this directory.
pub fn dev_at(path: &Path) -> Option<DevId> {
    parse_dev(&text(&path.join("dev"))?)
}

/// `sda` of `dm-3 (vg-root)` and the like.
pub fn kernel_name(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// Disks for which iocost is enabled: lines `8:0 enable=1 ...` of io.cost.qos. `None`: not readable.
fn iocost_devices(path: &Path) -> Option<Vec<DevId>> {
    let all = fs::read_to_string(path).ok()?;
    Some(
        all.lines()
            .filter(|l| l.split_whitespace().any(|w| w == "enable=1"))
            .filter_map(|l| parse_dev(l.split_whitespace().next()?))
            .collect(),
    )
}

/// `[mq-deadline] kyber bfq none` -> `mq-deadline`. Bio-based disks say `none` without brackets.
fn active_scheduler(all: &str) -> Option<String> {
    let words: Vec<&str> = all.split_whitespace().collect();
    if let [only] = words[..] {
        return Some(only.trim_matches(['[', ']']).to_owned());
    }
    let active = words.iter().find(|w| w.starts_with('['))?;
    Some(active.trim_matches(['[', ']']).to_owned())
}

/// `8:16` -> its number.
pub fn parse_dev(s: &str) -> Option<DevId> {
    let (major, minor) = s.trim().split_once(':')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then(|| DevId::new(major, minor))
}

/// Names come from anybody: control characters, line ends among them, become spaces' visible stand-in.
pub fn clean(s: &str) -> String {
    s.trim_end_matches('\n')
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

fn number(path: &Path) -> Option<u32> {
    text(path)?.parse().ok()
}

/// Entries of a directory in the order of their names; none when it is not there.
pub fn entries(path: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, file: &str, content: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn fixture() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let r = dir.path();
        put(r, "block/sda/dev", "8:0\n");
        put(r, "block/sda/queue/scheduler", "none [mq-deadline] bfq\n");
        put(r, "block/sda/queue/nr_requests", "64\n");
        put(r, "block/sda/queue/wbt_lat_usec", "75000\n");
        put(r, "block/sda/queue/rotational", "1\n");
        put(r, "block/sda/queue/iosched/writes_starved", "2\n");
        put(r, "block/sda/mq/0/nr_tags", "32\n");
        put(r, "block/sda/sda1/dev", "8:1\n");
        put(r, "block/sda/sda1/partition", "1\n");
        put(r, "block/dm-0/dev", "254:0\n");
        put(r, "block/dm-0/dm/name", "vg-root\n");
        put(r, "block/dm-0/queue/scheduler", "none\n");
        fs::create_dir_all(r.join("block/dm-0/slaves")).unwrap();
        std::os::unix::fs::symlink(r.join("block/sda/sda1"), r.join("block/dm-0/slaves/sda1"))
            .unwrap();
        put(r, "block/loop0/dev", "7:0\n");
        put(r, "block/loop0/loop/backing_file", "/var/a\nb c.img\n");
        put(r, "cost.qos", "8:0 enable=1 ctrl=auto\n");
        dir
    }

    #[test]
    fn names_topology_and_tunables() {
        let dir = fixture();
        let mut d = Devices::new(dir.path(), Some(dir.path().join("cost.qos")));
        assert_eq!(d.refresh().len(), 3);
        let sda = &d.known[&DevId::new(8, 0)];
        assert_eq!(sda.scheduler.as_deref(), Some("mq-deadline"));
        assert!(
            sda.tunables
                .contains(&("iosched/writes_starved".to_owned(), "2".to_owned()))
        );
        assert_eq!(sda.iocost, Some(true));
        let dm = &d.known[&DevId::new(254, 0)];
        assert_eq!(dm.name, "dm-0 (vg-root)");
        assert_eq!(dm.below, [DevId::new(8, 0)], "the partition's disk");
        assert_eq!(dm.scheduler.as_deref(), Some("none"));
        let lo = &d.known[&DevId::new(7, 0)];
        assert_eq!(lo.backing_file.as_deref(), Some("/var/a\u{fffd}b c.img"));
        assert_eq!(lo.rotational, None, "unknown is not false");
        assert!(d.need_admission());
        assert_eq!(d.tags(), (3, 96));
    }

    #[test]
    fn only_changes_are_facts() {
        let dir = fixture();
        let mut d = Devices::new(dir.path(), None);
        d.refresh();
        assert_eq!(d.refresh(), []);
        put(
            dir.path(),
            "block/sda/queue/scheduler",
            "none mq-deadline [bfq]\n",
        );
        fs::remove_dir_all(dir.path().join("block/loop0")).unwrap();
        let facts = d.refresh();
        assert_eq!(facts.len(), 2);
        assert!(
            matches!(&facts[0], Fact::Device(f) if f.scheduler.as_deref() == Some("bfq") && f.iocost.is_none())
        );
        assert_eq!(
            facts[1],
            Fact::DeviceGone {
                dev: DevId::new(7, 0)
            }
        );
    }

    #[test]
    fn numbers_out_of_range_are_no_device() {
        assert_eq!(parse_dev("8"), None);
        assert_eq!(parse_dev("5000:0"), None);
        assert_eq!(parse_dev("8:1048576"), None);
        assert_eq!(parse_dev("259:7"), Some(DevId::new(259, 7)));
    }
}
