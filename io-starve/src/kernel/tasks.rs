//! Why a task waits, from its kernel stack, and how much memory waits to be written.
//!
//! Looked at only at ticks and only for tasks whose I/O waits for long: no hook on the scheduler's path.

use std::{collections::BTreeMap, fs, path::Path};

use super::devices::clean;
use crate::model::observation::{SyncWait, Task, WaitsFor};

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

/// What a stack says about a bio that waits for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// It waits there, for this.
    Waits(WaitsFor),
    /// It is somewhere in the block layer's submission, for a reason that has no name here.
    Submits,
    /// It does something else.
    Elsewhere,
    /// The task is gone.
    Gone,
    /// The stack cannot be read.
    Unknown,
}

/// Functions that submission goes through on 5.10 to 7.3; a bio on current->bio_list waits below any of them.
const SUBMISSION: [&str; 6] = [
    "blk_mq_submit_bio",
    "submit_bio",
    "rq_qos_wait",
    "__rq_qos_throttle",
    "blk_mq_get_request",
    "__blk_mq_alloc_requests",
];

/// Reads /proc/TID/stack.
pub fn stack(proc_: &Path, tid: u32) -> Stack {
    match fs::read_to_string(proc_.join(tid.to_string()).join("stack")) {
        Ok(text) => classify(&text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Stack::Gone,
        // ESRCH: it ended between open and read.
        Err(e) if e.raw_os_error() == Some(3) => Stack::Gone,
        Err(_) => Stack::Unknown,
    }
}

/// Function names, innermost first. Lines are `[<0>] function+0x12/0x34`; an empty file is a task that is running.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|l| l.split_whitespace().nth(1)?.split('+').next())
}

/// What is known of a task in fsync, or of the thread of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncStack {
    /// What it waits for. `None`: it runs, is gone, or its stack cannot be read.
    pub wait: Option<SyncWait>,
    /// It is gone, or in no fsync of ext4: that is called by its address, so that it has a line of its own in each stack.
    pub elsewhere: bool,
}

/// Reads /proc/TID/stack of one of them.
pub fn sync_stack(proc_: &Path, tid: u32) -> SyncStack {
    let task = proc_.join(tid.to_string());
    match fs::read_to_string(task.join("stack")) {
        Ok(text) => SyncStack {
            wait: sync_wait(&text),
            elsewhere: elsewhere(&text),
        },
        // Some kernels have no stacks at all.
        Err(_) => SyncStack {
            wait: None,
            elsewhere: !task.exists(),
        },
    }
}

fn elsewhere(text: &str) -> bool {
    let mut functions = functions(text).peekable();
    functions.peek().is_some() && !functions.any(|f| f.starts_with("ext4_sync_file"))
}

/// True where numbers of tasks are the kernel's own. In another namespace the same number is another task.
pub fn sees_the_kernels_tids(proc_: &Path) -> bool {
    // PROC_PID_INIT_INO, include/linux/proc_ns.h.
    let first = "pid:[4026531836]";
    fs::read_link(proc_.join("self/ns/pid")).is_ok_and(|ns| ns.as_os_str() == first)
}

fn sync_wait(text: &str) -> Option<SyncWait> {
    let mut any = false;
    for f in functions(text) {
        any = true;
        // A compiler may have split a function: `wait_transaction_locked.isra.0`.
        let wait = match f.split('.').next().unwrap_or(f) {
            "__jbd2_log_wait_for_space" | "jbd2_log_do_checkpoint" => SyncWait::JournalSpace,
            "wait_transaction_locked"
            | "wait_transaction_switching"
            | "add_transaction_credits"
            | "do_get_write_access"
            | "start_this_handle"
            | "jbd2_journal_wait_updates" => SyncWait::Transaction,
            "jbd2_log_wait_commit" | "jbd2_fc_begin_commit" => SyncWait::Journal,
            "blkdev_issue_flush" => SyncWait::Flush,
            "folio_wait_writeback"
            | "wait_on_page_writeback"
            | "__filemap_fdatawait_range"
            | "jbd2_journal_finish_inode_data_buffers"
            | "ext4_journal_finish_inode_data_buffers"
            | "do_writepages"
            | "ext4_writepages" => SyncWait::Data,
            "jbd2_journal_commit_transaction" => SyncWait::JournalBlocks,
            _ => continue,
        };
        return Some(wait);
    }
    any.then_some(SyncWait::Other)
}

fn classify(text: &str) -> Stack {
    let mut functions = functions(text);
    let mut submits = false;
    for f in functions.by_ref() {
        match f {
            "wbt_wait" => return Stack::Waits(WaitsFor::Wbt),
            "ioc_rqos_throttle" => return Stack::Waits(WaitsFor::Iocost),
            "blk_mq_get_tag" => return Stack::Waits(WaitsFor::Tags),
            _ => submits |= SUBMISSION.iter().any(|s| f.starts_with(s)),
        }
    }
    if submits {
        Stack::Submits
    } else {
        Stack::Elsewhere
    }
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
    fn stacks_name_what_is_waited_for() {
        let wbt = "[<0>] rq_qos_wait+0xa4/0x150\n[<0>] wbt_wait+0x8e/0xf0\n[<0>] __rq_qos_throttle+0x20/0x30\n";
        assert_eq!(classify(wbt), Stack::Waits(WaitsFor::Wbt));
        assert_eq!(
            classify("[<0>] blk_mq_get_tag+0x11e/0x2b0\n[<0>] __blk_mq_alloc_requests+0x1/0x2\n"),
            Stack::Waits(WaitsFor::Tags)
        );
        assert_eq!(
            classify("[<0>] io_schedule+0x1/0x2\n[<0>] submit_bio_wait+0x5/0x9\n"),
            Stack::Submits
        );
        assert_eq!(classify("[<0>] do_nanosleep+0x1/0x2\n"), Stack::Elsewhere);
        assert_eq!(classify(""), Stack::Elsewhere);
    }

    #[test]
    fn the_innermost_function_that_says_something_is_the_wait() {
        let stack = |names: &[&str]| {
            let lines = names.iter().map(|n| format!("[<0>] {n}+0x1/0x2\n"));
            sync_wait(&lines.collect::<String>())
        };
        assert_eq!(stack(&[]), None);
        assert_eq!(stack(&["do_nanosleep"]), Some(SyncWait::Other));
        let fsync = [
            "jbd2_log_wait_commit",
            "jbd2_complete_transaction",
            "ext4_sync_file",
        ];
        assert_eq!(stack(&fsync), Some(SyncWait::Journal));
        let data = [
            "io_schedule",
            "folio_wait_bit_common",
            "folio_wait_writeback",
            "jbd2_journal_commit_transaction",
            "kjournald2",
        ];
        assert_eq!(stack(&data), Some(SyncWait::Data));
        let blocks = [
            "bit_wait_io",
            "__wait_on_buffer",
            "jbd2_journal_commit_transaction",
            "kjournald2",
        ];
        assert_eq!(stack(&blocks), Some(SyncWait::JournalBlocks));
        let space = [
            "__wait_on_buffer",
            "jbd2_log_do_checkpoint",
            "__jbd2_log_wait_for_space",
            "add_transaction_credits",
        ];
        assert_eq!(stack(&space), Some(SyncWait::JournalSpace));
        assert_eq!(
            stack(&["wait_transaction_locked.isra.0", "ext4_create"]),
            Some(SyncWait::Transaction)
        );
    }

    #[test]
    fn a_task_that_left_fsync_is_told_from_one_that_is_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let stack = dir.path().join("7/stack");
        let look = || sync_stack(dir.path(), 7);
        assert!(look().elsewhere, "gone");
        fs::create_dir(dir.path().join("7")).unwrap();
        assert!(!look().elsewhere, "no stacks here");
        for (text, elsewhere) in [
            ("", false),
            ("[<0>] schedule+0x1/0x2\n[<0>] do_futex+0x1/0x2\n", true),
            (
                "[<0>] jbd2_log_wait_commit+0x1/0x2\n[<0>] ext4_sync_file+0x1/0x2\n",
                false,
            ),
        ] {
            fs::write(&stack, text).unwrap();
            assert_eq!(look().elsewhere, elsewhere, "{text}");
        }
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

    #[test]
    fn our_own_stack_is_elsewhere_or_unreadable() {
        let got = stack(Path::new("/proc"), std::process::id());
        assert!(matches!(got, Stack::Elsewhere | Stack::Unknown), "{got:?}");
        assert_eq!(stack(Path::new("/proc"), u32::MAX), Stack::Gone);
    }
}
