//! Mounted filesystems, and the disks whose queues lie below them.
//!
//! In: /proc/self/mountinfo, and sysfs for partitions, dm and md. Out: facts, only those that changed. What is mounted in other
//! mount namespaces only is not seen.
//!
//! The kernel tells by poll that the table changed, which costs 0.2 us a tick, while reading it costs 0.6 us for each mount, and
//! container hosts have thousands. So it is read when it changed, at most once a second, and every 5 s: what lies below a
//! filesystem changes without a mount (lvextend, `btrfs device add`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    cgroups::unescape,
    devices::{clean, dev_at, entries, parse_dev, whole_disk},
};
use crate::model::observation::{DevId, Fact, FilesystemFact};

/// How often the table is read at most, in ns: where mounts come and go all the time, it changes at every tick.
const REST_NS: u64 = 1_000_000_000;
/// How often it is read, and sysfs with it, when nothing is known to have changed, in ns.
const READ_EVERY_NS: u64 = 5_000_000_000;
/// A longer table is cut: this is room for 100,000 mounts, as many as the kernel allows (fs.mount-max).
const MAX_TABLE: u64 = 64 << 20;

/// All filesystems on disks, as last read.
pub struct Mounts {
    table: PathBuf,
    sys: PathBuf,
    number_of: fn(&Path) -> Option<DevId>,
    open: Option<File>,
    changed: bool,
    read_ns: Option<u64>,
    known: BTreeMap<DevId, FilesystemFact>,
    /// Numbers of all that is mounted, also of what is on no disk.
    mounted: BTreeSet<DevId>,
}

/// A line of mountinfo (proc_pid_mountinfo(5)).
struct Mount<'a> {
    dev: DevId,
    /// What part of the filesystem is mounted; not `/` for bind mounts and subvolumes.
    root: &'a str,
    mountpoint: &'a str,
    fstype: &'a str,
    source: &'a str,
    options: &'a str,
}

impl Mounts {
    /// Reads nothing yet. `proc_` and `sys` are where procfs and sysfs are mounted; `number_of` tells the number of a block
    /// device's file.
    pub fn new(proc_: &Path, sys: &Path, number_of: fn(&Path) -> Option<DevId>) -> Mounts {
        Mounts {
            table: proc_.join("self/mountinfo"),
            sys: sys.to_owned(),
            number_of,
            open: None,
            changed: false,
            read_ns: None,
            known: BTreeMap::new(),
            mounted: BTreeSet::new(),
        }
    }

    /// False when none of these disks is below a filesystem that is known.
    pub fn may_lie_on(&self, fs: DevId, disks: &[DevId]) -> bool {
        self.known
            .get(&fs)
            .is_none_or(|f| f.queues.iter().any(|q| disks.contains(q)))
    }

    /// True for the number of a mount, on a disk or not.
    pub fn is_mounted(&self, fs: DevId) -> bool {
        self.mounted.contains(&fs)
    }

    /// The disks below this filesystem; none for what is on no disk, or not known.
    pub fn queues(&self, fs: DevId) -> &[DevId] {
        self.known
            .get(&fs)
            .map(|f| f.queues.as_slice())
            .unwrap_or_default()
    }

    /// The btrfs that holds this path. Its subvolumes have numbers of their own, which are in no table.
    pub fn holding(&self, path: &str) -> Option<DevId> {
        self.known
            .values()
            .filter(|f| f.fstype == "btrfs" && Path::new(path).starts_with(&f.mountpoint))
            .max_by_key(|f| f.mountpoint.len())
            .map(|f| f.dev)
    }

    /// Reads the table again if it changed or is old, and says what changed. `now` is ns monotonic.
    pub fn refresh(&mut self, now: u64) -> Vec<Fact> {
        self.changed |= self.table_changed();
        let wait = if self.changed { REST_NS } else { READ_EVERY_NS };
        if self
            .read_ns
            .is_some_and(|last| now.saturating_sub(last) < wait)
        {
            return Vec::new();
        }
        self.read_ns = Some(now);
        // What cannot be read is not known; it is not gone.
        let Ok(table) = self.read_table() else {
            self.open = None;
            return Vec::new();
        };
        self.changed = false;
        self.mounted = table
            .lines()
            .filter_map(Mount::parse)
            .map(|m| m.dev)
            .collect();
        let now = self.filesystems(&table);
        let mut facts = Vec::new();
        for (dev, fact) in &now {
            if self.known.get(dev) != Some(fact) {
                facts.push(Fact::Filesystem(fact.clone()));
            }
        }
        for dev in self.known.keys().filter(|d| !now.contains_key(d)) {
            facts.push(Fact::FilesystemGone { dev: *dev });
        }
        self.known = now;
        facts
    }

    /// True when a mount came or went since the last call, or the table was not open before.
    fn table_changed(&mut self) -> bool {
        let Some(file) = &self.open else {
            self.open = File::open(&self.table).ok();
            return true;
        };
        let mut fds = [PollFd::new(file, PollFlags::PRI)];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).is_ok()
            && fds
                .iter()
                .any(|f| f.revents().intersects(PollFlags::PRI | PollFlags::ERR))
    }

    fn read_table(&mut self) -> io::Result<String> {
        let file = self.open.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.rewind()?;
        let mut table = Vec::new();
        file.take(MAX_TABLE).read_to_end(&mut table)?;
        Ok(String::from_utf8_lossy(&table).into_owned())
    }

    fn filesystems(&self, table: &str) -> BTreeMap<DevId, FilesystemFact> {
        let mut first: BTreeMap<DevId, Mount<'_>> = BTreeMap::new();
        for mount in table.lines().filter_map(Mount::parse) {
            match first.get(&mount.dev) {
                Some(known) if known.root == "/" || mount.root != "/" => {}
                _ => {
                    first.insert(mount.dev, mount);
                }
            }
        }
        first
            .values()
            .filter_map(|m| Some((m.dev, self.describe(m)?)))
            .collect()
    }

    /// `None` for what is on no disk.
    fn describe(&self, mount: &Mount<'_>) -> Option<FilesystemFact> {
        let source = unescape(mount.source);
        let below = if mount.dev.major() == 0 {
            // An anonymous number: of btrfs, or of what is on no disk. Only files in /dev are asked: to look at any other name
            // may take for ever (NFS).
            let path = Path::new(&source);
            let dev = path
                .starts_with("/dev")
                .then(|| (self.number_of)(path))
                .flatten()?;
            self.btrfs_devices(dev)
        } else {
            vec![self.block(mount.dev)]
        };
        Some(FilesystemFact {
            dev: mount.dev,
            fstype: clean(&unescape(mount.fstype)),
            mountpoint: clean(&unescape(mount.mountpoint)),
            source: clean(&source),
            options: clean(&unescape(mount.options)),
            queues: queues_below(below),
        })
    }

    fn block(&self, dev: DevId) -> PathBuf {
        self.sys.join("dev/block").join(dev.to_string())
    }

    /// All devices of the btrfs that this one belongs to; mountinfo names only one of them.
    fn btrfs_devices(&self, dev: DevId) -> Vec<PathBuf> {
        entries(&self.sys.join("fs/btrfs"))
            .iter()
            .map(|fs| entries(&fs.join("devices")))
            .find(|devices| devices.iter().any(|d| dev_at(d) == Some(dev)))
            .unwrap_or_else(|| vec![self.block(dev)])
    }
}

impl Mount<'_> {
    fn parse(line: &str) -> Option<Mount<'_>> {
        // Optional fields, any number of them, end with a dash. Blanks within a field are escaped.
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let mut kind = kind.split(' ');
        Some(Mount {
            dev: parse_dev(place.next()?)?,
            root: place.next()?,
            mountpoint: place.next()?,
            fstype: kind.next()?,
            source: kind.next()?,
            options: kind.next()?,
        })
    }
}

/// The disks at the bottom: those that have no disks below themselves. A loop device is one; its file is not followed.
pub(super) fn queues_below(mut todo: Vec<PathBuf>) -> Vec<DevId> {
    let mut seen = BTreeSet::new();
    let mut leaves = BTreeSet::new();
    while let Some(path) = todo.pop() {
        let Some(disk) = whole_disk(&path) else {
            continue;
        };
        let slaves = entries(&disk.join("slaves"));
        if slaves.is_empty() {
            leaves.extend(dev_at(&disk));
        }
        if seen.insert(disk) {
            todo.extend(slaves);
        }
    }
    leaves.into_iter().collect()
}

/// Number of a block device's file, `None` for other files.
pub fn number_of(path: &Path) -> Option<DevId> {
    let meta = fs::metadata(path).ok()?;
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    meta.file_type()
        .is_block_device()
        .then(|| DevId::new(major, minor))
}

#[cfg(test)]
mod tests;
