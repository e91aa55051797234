//! ext4 on a disk, who writes and syncs there in a cgroup of its own, and what a recording says of that.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    endings::Group,
    machine::{Disk, io_hierarchy, output, until},
};

/// ext4 with a journal, mounted.
pub struct Ext4(TempDir);

impl Ext4 {
    pub fn new(disk: &Disk, options: &str) -> Ext4 {
        Ext4::made(disk, &[], options)
    }

    /// With further arguments for mkfs.
    pub fn made(disk: &Disk, mkfs: &[&str], options: &str) -> Ext4 {
        // What mkfs leaves for later is written by a thread of the kernel while the test runs.
        let now = "lazy_itable_init=0,lazy_journal_init=0";
        let mut make = Command::new("mkfs.ext4");
        output(make.args(["-q", "-E", now]).args(mkfs).arg(disk.path()));
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", options, disk.path()]);
        output(mount.arg(dir.path()));
        Ext4(dir)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        until("the filesystem can be unmounted", || {
            let umount = Command::new("umount").arg(self.0.path()).status();
            umount.unwrap().success().then_some(())
        });
    }
}

impl Disk {
    /// From now on it has no room for what was never written.
    pub fn fill_up(&self) {
        until("no room is left", || {
            let tmpfs = rustix::fs::statvfs(self.tmpfs.path()).unwrap();
            let used = tmpfs.f_blocks - tmpfs.f_bfree;
            let room = format!("remount,nr_blocks={used}");
            let mut mount = Command::new("mount");
            mount.args(["-o", &room]).arg(self.tmpfs.path());
            mount.status().unwrap().success().then_some(())
        });
    }
}

impl Group {
    /// Lets it write so many bytes a second to a disk; `None`: as many as it can.
    pub fn limit_writes(&self, disk: &Disk, bytes: Option<u64>) {
        self.limit(disk, ("write_bps", "wbps"), bytes);
    }

    /// The same in writes.
    pub fn limit_write_count(&self, disk: &Disk, writes: Option<u64>) {
        self.limit(disk, ("write_iops", "wiops"), writes);
    }

    fn limit(&self, disk: &Disk, (v1, v2): (&str, &str), limit: Option<u64>) {
        let dev = disk.dev().replace(',', ":");
        let v1 = self.dir().join(format!("blkio.throttle.{v1}_device"));
        if v1.exists() {
            fs::write(v1, format!("{dev} {}", limit.unwrap_or(0))).unwrap();
        } else {
            let limit = limit.map_or("max".to_owned(), |n| n.to_string());
            fs::write(self.dir().join("io.max"), format!("{dev} {v2}={limit}")).unwrap();
        }
    }

    /// Its path, as findings have it.
    pub fn path(&self) -> String {
        format!("/{}", self.name())
    }
}

/// The I/O controller is that of cgroup v1.
pub fn v1() -> bool {
    io_hierarchy().is_some_and(|root| root.ends_with("blkio"))
}

/// fio that appends blocks and syncs each, with a clock of its own.
pub struct Appender {
    child: Child,
    said: PathBuf,
    _dir: TempDir,
}

impl Appender {
    /// `pause` lies between two of its blocks.
    pub fn start(group: &Group, file: &Path, block: &str, pause: &str, seconds: u32) -> Appender {
        let dir = tempfile::tempdir().unwrap();
        let said = dir.path().join("fio.json");
        // What is allocated before is written as unwritten extents, which no commit waits for.
        let fio = group.shell(&format!(
            "fio --name=appender --output-format=json --output={} --filename={} --rw=write --bs={block} --fsync=1 \
             --fallocate=none --ioengine=psync --thinktime={pause} --thread --size=64m --time_based --runtime={seconds}",
            said.display(),
            file.display()
        ));
        let child = Command::new("sh").args(["-c", &fio]).spawn().unwrap();
        Appender {
            child,
            said,
            _dir: dir,
        }
    }

    /// Waits for its end. How many times it synced, and the longest of them in ms.
    pub fn end(mut self) -> Syncs {
        assert!(self.child.wait().unwrap().success());
        let text = fs::read_to_string(&self.said).unwrap();
        let json = text.find('{').map_or("", |at| &text[at..]);
        let all: Value = serde_json::from_str(json).unwrap();
        let sync = &all["jobs"][0]["sync"];
        Syncs {
            count: sync["total_ios"].as_u64().unwrap(),
            longest_ms: sync["lat_ns"]["max"].as_f64().unwrap() / 1e6,
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program saw of its own fsyncs.
#[derive(Debug, Clone, Copy)]
pub struct Syncs {
    pub count: u64,
    pub longest_ms: f64,
}

/// The observations of a recording.
pub struct Recording(Vec<Value>);

impl Recording {
    pub fn read(file: &Path) -> Recording {
        let text = zstd::decode_all(fs::File::open(file).unwrap()).unwrap();
        let lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        let observations = lines.filter_map(|line| {
            let mut line: Value = serde_json::from_slice(line).unwrap();
            line.get_mut("observation").map(Value::take)
        });
        Recording(observations.collect())
    }

    /// (when it was looked at, the fsync) for each that was told, running or ended, at each tick.
    pub fn fsyncs(&self) -> impl DoubleEndedIterator<Item = (u64, &Value)> {
        self.0.iter().flat_map(|o| {
            let now = o["mono_ns"].as_u64().unwrap();
            let all = o["fsyncs"].as_array().map_or(&[][..], Vec::as_slice);
            all.iter().map(move |f| (now, f))
        })
    }

    /// fsyncs of this thread that run at the last tick.
    pub fn left_running(&self, tid: u32) -> usize {
        let last = self.0.last().unwrap()["mono_ns"].as_u64().unwrap();
        self.fsyncs()
            .filter(|(now, f)| *now == last && f["tid"] == tid && f["end_ns"].is_null())
            .count()
    }

    /// fsyncs of a cgroup that ended, however short, by filesystem.
    pub fn counted(&self, group: &Group) -> Vec<(u64, u64)> {
        let facts = self.0.iter().flat_map(|o| o["facts"].as_array());
        let id = facts
            .flatten()
            .find(|f| f["fact"] == "cgroup" && f["path"] == group.path().as_str())
            .map(|f| f["id"].as_u64().unwrap());
        let counts = self.0.iter().flat_map(|o| o["fsync_counts"].as_array());
        counts
            .flatten()
            .filter(|c| id.is_some() && c["owner"]["cgroup"].as_u64() == id)
            .map(|c| (c["fs"].as_u64().unwrap(), c["count"].as_u64().unwrap()))
            .collect()
    }
}
