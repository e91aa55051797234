//! What tasks are called, and how much memory waits to be written. Looked at only at ticks.

use std::{collections::BTreeMap, fs, path::Path};

use super::devices::clean;
use crate::model::observation::Task;

/// A name is read again when it is older than this, in ns: a thread takes another one with exec or prctl.
const FRESH_NS: u64 = 1_000_000_000;
/// A name that nobody asked for in this time is forgotten, in ns.
const KEEP_NS: u64 = 10_000_000_000;
/// Names read at a tick at most, so that thousands of threads cost what some do.
const READS: usize = 64;

/// Names of threads, read when there is something to tell of them and kept for a while.
#[derive(Debug, Default)]
pub struct Names {
    known: BTreeMap<u32, Known>,
    /// Reads made at this moment.
    reads: (u64, usize),
}

#[derive(Debug)]
struct Known {
    comm: String,
    read_ns: u64,
    asked_ns: u64,
}

impl Names {
    /// The thread with its name. `None`: it has gone before anybody asked for its name, or too many were asked for.
    pub fn of(&mut self, tid: u32, now: u64) -> Option<Task> {
        self.from("/proc".as_ref(), tid, now)
    }

    fn from(&mut self, proc_: &Path, tid: u32, now: u64) -> Option<Task> {
        if self.reads.0 != now {
            self.reads = (now, 0);
        }
        let fresh = |k: &Known| now.saturating_sub(k.read_ns) < FRESH_NS;
        if !self.known.get(&tid).is_some_and(fresh) && self.reads.1 < READS {
            self.reads.1 += 1;
            // The number of one that is gone may soon be another's; until then it keeps its name.
            if let Ok(text) = fs::read_to_string(proc_.join(tid.to_string()).join("comm")) {
                let known = Known {
                    comm: clean(text.trim_end_matches('\n')),
                    read_ns: now,
                    asked_ns: now,
                };
                self.known.insert(tid, known);
            }
        }
        let known = self.known.get_mut(&tid)?;
        known.asked_ns = now;
        Some(Task {
            pid: tid,
            comm: known.comm.clone(),
        })
    }

    /// Lets go of names that nobody asked for of late.
    pub fn forget_old(&mut self, now: u64) {
        self.known
            .retain(|_, k| now.saturating_sub(k.asked_ns) < KEEP_NS);
    }
}

/// True where numbers of tasks are the kernel's own. In another namespace the same number is another task.
pub fn sees_the_kernels_tids(proc_: &Path) -> bool {
    // PROC_PID_INIT_INO, include/linux/proc_ns.h.
    let first = "pid:[4026531836]";
    fs::read_link(proc_.join("self/ns/pid")).is_ok_and(|ns| ns.as_os_str() == first)
}

/// (dirty, writeback) bytes behind a disk, from debugfs bdi/MAJ:MIN/stats (mm/backing-dev.c). Until the file wb_stats
/// came beside it, `stats` told the root cgroup's part only: with writeback by cgroup that is not the disk's.
pub fn disk_backlog(debugfs: &Path, dev: &str, by_cgroup: bool) -> Option<(u64, u64)> {
    let dir = debugfs.join("bdi").join(dev);
    if by_cgroup && !dir.join("wb_stats").exists() {
        return None;
    }
    let text = fs::read_to_string(dir.join("stats")).ok()?;
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace()
            .nth(1)?
            .parse::<u64>()
            .ok()
            .map(|n| n * 1024)
    };
    Some((kib("BdiReclaimable:")?, kib("BdiWriteback:")?))
}

/// (dirty, writeback) bytes of a cgroup over all disks, from memory.stat of cgroup v2.
pub fn cgroup_backlog(dir: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(dir.join("memory.stat")).ok()?;
    let field = |name: &str| -> Option<u64> {
        text.lines()
            .find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    Some((field("file_dirty")?, field("file_writeback")?))
}

/// (some, full) avg10 of a PSI file. A torn or foreign file is unknown.
pub fn pressure(file: &Path) -> Option<(f64, f64)> {
    let text = fs::read_to_string(file).ok()?;
    let avg10 = |kind: &str| -> Option<f64> {
        let line = text.lines().find(|l| l.starts_with(kind))?;
        line.split_whitespace()
            .find_map(|w| w.strip_prefix("avg10="))?
            .parse()
            .ok()
    };
    Some((avg10("some ")?, avg10("full ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_once_a_second_and_outlives_its_thread() {
        let dir = tempfile::tempdir().unwrap();
        let rename = |name: &str| {
            fs::create_dir_all(dir.path().join("7")).unwrap();
            fs::write(dir.path().join("7/comm"), format!("{name}\n")).unwrap();
        };
        let mut names = Names::default();
        let mut of = |tid, now| names.from(dir.path(), tid, now).map(|t| t.comm);
        rename("bash");
        assert_eq!(of(7, 1).as_deref(), Some("bash"));
        rename("dd");
        assert_eq!(of(7, 2).as_deref(), Some("bash"));
        assert_eq!(of(7, 1 + FRESH_NS).as_deref(), Some("dd"));
        fs::remove_dir_all(dir.path().join("7")).unwrap();
        assert_eq!(of(7, 1 + 3 * FRESH_NS).as_deref(), Some("dd"));
        assert_eq!(of(8, 1), None, "never seen");
        names.forget_old(1 + 3 * FRESH_NS + KEEP_NS);
        assert!(names.known.is_empty());
    }

    #[test]
    fn many_threads_are_named_over_several_ticks() {
        let dir = tempfile::tempdir().unwrap();
        for tid in 1..=100 {
            fs::create_dir(dir.path().join(tid.to_string())).unwrap();
            fs::write(dir.path().join(format!("{tid}/comm")), "x\n").unwrap();
        }
        let mut names = Names::default();
        let mut named = |now| {
            let of = |tid| names.from(dir.path(), tid, now);
            (1..=100).filter_map(of).count()
        };
        assert_eq!(named(1), READS);
        assert_eq!(named(2), 100);
    }

    #[test]
    fn torn_files_are_unknown() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("bdi/8:0")).unwrap();
        let stats = dir.path().join("bdi/8:0/stats");
        fs::write(&stats, "BdiWriteback:  12 kB\nBdiReclaimable:  3 kB\n").unwrap();
        assert_eq!(disk_backlog(dir.path(), "8:0", false), Some((3072, 12288)));
        fs::write(&stats, "BdiWriteback:  12 kB\nBdiRecl").unwrap();
        assert_eq!(disk_backlog(dir.path(), "8:0", false), None, "cut");
        fs::write(&stats, "BdiWriteback: 0 kB\nBdiReclaimable: 0 kB\n").unwrap();
        assert_eq!(
            disk_backlog(dir.path(), "8:0", true),
            None,
            "the root's only"
        );
        fs::write(dir.path().join("bdi/8:0/wb_stats"), "").unwrap();
        assert_eq!(disk_backlog(dir.path(), "8:0", true), Some((0, 0)));
        let psi = dir.path().join("io.pressure");
        fs::write(
            &psi,
            "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0\n",
        )
        .unwrap();
        assert_eq!(pressure(&psi), Some((1.5, 0.25)));
        fs::write(&psi, "some avg10=1.5").unwrap();
        assert_eq!(pressure(&psi), None);
        fs::write(
            dir.path().join("memory.stat"),
            "anon 1\nfile_dirty 4096\nfile_writeback 0\n",
        )
        .unwrap();
        assert_eq!(cgroup_backlog(dir.path()), Some((4096, 0)));
    }
}
