//! Loop devices: the file behind each, the filesystem that holds it, the disks below.
//!
//! In: sysfs, the loop device's own ioctl, the mounts. Out: facts, only those that changed. A path may lead nowhere: the file was
//! deleted, or it was attached in another mount namespace. So the loop device is asked for the filesystem of its file first.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{
    devices::{clean, dev_at, entries, whole_disk},
    mounts::Mounts,
};
use crate::model::observation::{DevId, Fact, LoopFact};

/// What the kernel puts behind the path of a file that has no name any more (fs/d_path.c).
const DELETED: &[u8] = b" (deleted)";

/// All loop devices, as last read.
pub struct Loops {
    sys: PathBuf,
    /// Asks a loop device for its file: (filesystem, inode).
    ask: fn(&str) -> Option<(DevId, u64)>,
    known: BTreeMap<DevId, (Vec<u8>, LoopFact)>,
}

impl Loops {
    /// Reads nothing yet. `sys` is where sysfs is mounted; `ask` asks a loop device for its file.
    pub fn new(sys: &Path, ask: fn(&str) -> Option<(DevId, u64)>) -> Loops {
        Loops {
            sys: sys.to_owned(),
            ask,
            known: BTreeMap::new(),
        }
    }

    /// Reads all of them again and says what changed.
    pub fn refresh(&mut self, mounts: &Mounts) -> Vec<Fact> {
        let now: BTreeMap<DevId, (Vec<u8>, LoopFact)> = entries(&self.sys.join("block"))
            .iter()
            .filter_map(|path| self.read(path, mounts))
            .map(|(path, fact)| (fact.dev, (path, fact)))
            .collect();
        let mut facts = Vec::new();
        for (dev, (_, fact)) in &now {
            if self.known.get(dev).map(|(_, old)| old) != Some(fact) {
                facts.push(Fact::Loop(fact.clone()));
            }
        }
        for dev in self.known.keys().filter(|d| !now.contains_key(d)) {
            facts.push(Fact::LoopGone { dev: *dev });
        }
        self.known = now;
        facts
    }

    /// The disks right below this loop device.
    pub fn below(&self, dev: DevId) -> &[DevId] {
        self.known
            .get(&dev)
            .map(|(_, fact)| fact.below.as_slice())
            .unwrap_or_default()
    }

    /// The loop device with this kernel name.
    pub fn named(&self, name: &str) -> Option<DevId> {
        self.known
            .values()
            .find(|(_, fact)| fact.name == name)
            .map(|(_, fact)| fact.dev)
    }

    /// `None` for what is no loop device, or has no file.
    fn read(&self, path: &Path, mounts: &Mounts) -> Option<(Vec<u8>, LoopFact)> {
        let dir = path.join("loop");
        let mut file = fs::read(dir.join("backing_file")).ok()?;
        // drivers/block/loop.c loop_attr_backing_file_show adds one line end; the path may have others.
        file.pop_if(|b| *b == b'\n');
        let dev = dev_at(path)?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        let direct_io = match fs::read(dir.join("dio")).ok().as_deref() {
            Some([b'1', ..]) => Some(true),
            Some([b'0', ..]) => Some(false),
            _ => None,
        };
        let offset = fs::read_to_string(dir.join("offset")).ok();
        let offset = offset.and_then(|s| s.trim().parse().ok());
        let before = self.known.get(&dev).filter(|(path, _)| *path == file);
        // Which filesystem holds a file does not change; that is asked once.
        let held = match before {
            Some((_, old)) if old.fs.is_some() => old.fs.map(|fs| (fs, None)),
            _ => (self.ask)(&name).map(|(fs, ino)| (fs, Some(ino))),
        };
        let full = Path::new(OsStr::from_bytes(&file));
        let (shown, deleted) = match (before, file.strip_suffix(DELETED)) {
            (Some((_, old)), _) => (old.file.clone(), old.deleted),
            (None, Some(name)) if !is_there(full, held) => (text(name), true),
            (None, _) => (text(&file), false),
        };
        let stated = || Some(number(fs::metadata(full).ok()?.dev()));
        let fs = held.map(|(fs, _)| fs).or_else(stated);
        // btrfs gives each subvolume a number of its own, which no mount has.
        let fs = match fs {
            Some(fs) if fs.major() == 0 && !mounts.is_mounted(fs) => {
                mounts.holding(&shown).or(Some(fs))
            }
            fs => fs,
        };
        let below = fs
            .map(|fs| self.disks_below(fs, mounts))
            .unwrap_or_default();
        let fact = LoopFact {
            dev,
            name,
            file: shown,
            deleted,
            fs,
            below,
            direct_io,
            offset,
        };
        Some((file, fact))
    }

    fn disks_below(&self, fs: DevId, mounts: &Mounts) -> Vec<DevId> {
        if fs.major() == 0 {
            return mounts.queues(fs).to_vec();
        }
        let link = self.sys.join("dev/block").join(fs.to_string());
        whole_disk(&link)
            .and_then(|d| dev_at(&d))
            .into_iter()
            .collect()
    }
}

fn text(path: &[u8]) -> String {
    clean_all(&String::from_utf8_lossy(path))
}

/// Like [`clean`], but a line end at the end belongs to the name.
fn clean_all(s: &str) -> String {
    let ends = s.len() - s.trim_end_matches('\n').len();
    clean(s) + &"\u{fffd}".repeat(ends)
}

/// True when a file with this very name is the one that is meant: its name ends in the words for a deleted one.
fn is_there(path: &Path, held: Option<(DevId, Option<u64>)>) -> bool {
    let Ok(meta) = fs::metadata(path) else {
        return false;
    };
    held.is_none_or(|(fs, ino)| number(meta.dev()) == fs && ino.is_none_or(|ino| ino == meta.ino()))
}

/// The kernel's number in what stat and the loop driver tell.
fn number(dev: u64) -> DevId {
    DevId::new(rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// Asks /dev/NAME which file it has: LOOP_GET_STATUS64 (include/uapi/linux/loop.h).
pub fn status(name: &str) -> Option<(DevId, u64)> {
    /// `struct loop_info64`.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct LoopInfo64 {
        device: u64,
        inode: u64,
        rest: [u64; 27],
    }
    const _: () = assert!(size_of::<LoopInfo64>() == 232);
    const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4c05;
    let node = File::open(Path::new("/dev").join(name)).ok()?;
    // SAFETY: the kernel fills a `loop_info64`, which is integers and bytes only.
    let info = unsafe {
        let get = rustix::ioctl::Getter::<LOOP_GET_STATUS64, LoopInfo64>::new();
        rustix::ioctl::ioctl(&node, get).ok()?
    };
    Some((number(info.device), info.inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn put(root: &Path, file: &str, content: &[u8]) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn fixture() -> (tempfile::TempDir, Mounts) {
        let dir = tempfile::tempdir().unwrap();
        let r = dir.path();
        put(r, "block/sda/dev", b"8:0\n");
        put(r, "block/sda/sda1/dev", b"8:1\n");
        put(r, "block/sda/sda1/partition", b"1\n");
        put(r, "block/loop0/dev", b"7:0\n");
        put(r, "block/loop0/loop/backing_file", b"/srv/a.img\n");
        put(r, "block/loop0/loop/dio", b"0\n");
        put(r, "block/loop0/loop/offset", b"1048576\n");
        put(r, "block/loop1/dev", b"7:1\n");
        fs::create_dir_all(r.join("dev/block")).unwrap();
        symlink(r.join("block/sda/sda1"), r.join("dev/block/8:1")).unwrap();
        symlink(r.join("block/loop0"), r.join("dev/block/7:0")).unwrap();
        let table = "1 0 8:1 / /srv rw - ext4 /dev/sda1 rw\n2 0 7:0 / /srv/in rw - xfs /dev/loop0 rw\n\
                     3 0 0:40 / /pool rw - btrfs /dev/sda1 rw\n4 3 0:41 / /pool/tmp rw - tmpfs tmp rw\n";
        put(r, "self/mountinfo", table.as_bytes());
        let mut mounts = Mounts::new(r, r, |_| Some(DevId::new(8, 1)));
        mounts.refresh(1);
        (dir, mounts)
    }

    fn only(facts: Vec<Fact>) -> LoopFact {
        match &facts[..] {
            [Fact::Loop(f)] => f.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_disk_below_is_that_of_the_filesystem_that_holds_the_file() {
        let (dir, mounts) = fixture();
        let mut loops = Loops::new(dir.path(), |_| Some((DevId::new(8, 1), 12)));
        let fact = only(loops.refresh(&mounts));
        assert_eq!(fact.file, "/srv/a.img");
        assert_eq!(fact.fs, Some(DevId::new(8, 1)));
        assert_eq!(fact.below, [DevId::new(8, 0)], "the partition's disk");
        assert_eq!((fact.direct_io, fact.deleted), (Some(false), false));
        assert_eq!(fact.offset, Some(1 << 20));
        assert_eq!(loops.refresh(&mounts), [], "only changes are facts");
        assert_eq!(loops.named("loop0"), Some(DevId::new(7, 0)));
        put(dir.path(), "block/loop0/loop/dio", b"1\n");
        assert_eq!(only(loops.refresh(&mounts)).direct_io, Some(true));
        fs::remove_dir_all(dir.path().join("block/loop0/loop")).unwrap();
        let dev = DevId::new(7, 0);
        assert_eq!(loops.refresh(&mounts), [Fact::LoopGone { dev }]);
    }

    #[test]
    fn a_loop_on_a_loop_has_that_below() {
        let (dir, mounts) = fixture();
        put(
            dir.path(),
            "block/loop1/loop/backing_file",
            b"/srv/in/b.img\n",
        );
        let mut loops = Loops::new(dir.path(), |name| match name {
            "loop0" => Some((DevId::new(8, 1), 12)),
            _ => Some((DevId::new(7, 0), 13)),
        });
        loops.refresh(&mounts);
        assert_eq!(loops.below(DevId::new(7, 1)), [DevId::new(7, 0)]);
        assert_eq!(loops.below(DevId::new(7, 0)), [DevId::new(8, 0)]);
    }

    #[test]
    fn a_deleted_file_keeps_its_name_and_odd_names_stay_whole() {
        let (dir, mounts) = fixture();
        let path = "block/loop0/loop/backing_file";
        let file = |content: &[u8]| {
            put(dir.path(), path, content);
            let mut loops = Loops::new(dir.path(), |_| Some((DevId::new(8, 1), 12)));
            let fact = only(loops.refresh(&mounts));
            (fact.file, fact.deleted)
        };
        assert_eq!(
            file(b"/srv/a b\n c.img\n (deleted)\n"),
            ("/srv/a b\u{fffd} c.img\u{fffd}".to_owned(), true)
        );
        assert_eq!(file(b"/srv/x\n\n"), ("/srv/x\u{fffd}".to_owned(), false));
        // A file that has such a name and is there.
        let odd = dir.path().join("x (deleted)");
        fs::write(&odd, "").unwrap();
        put(dir.path(), path, format!("{}\n", odd.display()).as_bytes());
        let mut loops = Loops::new(dir.path(), |_| None);
        let fact = only(loops.refresh(&mounts));
        assert_eq!(
            (fact.file, fact.deleted),
            (odd.display().to_string(), false)
        );
    }

    #[test]
    fn in_memory_there_is_no_disk_and_on_btrfs_the_mount_tells_it() {
        let (dir, mounts) = fixture();
        let path = "block/loop0/loop/backing_file";
        let fact = |file: &[u8], minor: u32| {
            put(dir.path(), path, file);
            let ask: fn(&str) -> Option<(DevId, u64)> = match minor {
                41 => |_| Some((DevId::new(0, 41), 12)),
                _ => |_| Some((DevId::new(0, 99), 12)),
            };
            let fact = only(Loops::new(dir.path(), ask).refresh(&mounts));
            (fact.fs, fact.below)
        };
        let pool = (Some(DevId::new(0, 40)), vec![DevId::new(8, 0)]);
        assert_eq!(fact(b"/pool/sub/a.img\n", 99), pool, "a subvolume");
        let memory = (Some(DevId::new(0, 41)), Vec::new());
        assert_eq!(fact(b"/pool/tmp/a.img\n", 41), memory, "tmpfs below it");
        let unseen = (Some(DevId::new(0, 99)), Vec::new());
        assert_eq!(fact(b"/srv/a.img\n", 99), unseen);
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_not_known() {
        assert_eq!(status("no-such-loop"), None);
        assert_eq!(status("null"), None, "no loop device");
        let (dir, mounts) = fixture();
        fs::remove_file(dir.path().join("block/loop0/loop/dio")).unwrap();
        let mut loops = Loops::new(dir.path(), |_| None);
        let fact = only(loops.refresh(&mounts));
        assert_eq!(
            (fact.fs, fact.below, fact.direct_io),
            (None, Vec::new(), None)
        );
    }
}
