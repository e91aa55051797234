//! Why a task waits, from its kernel stack.
//!
//! Looked at only at ticks and only for tasks that wait for long: no hook on the scheduler's path.

use std::{fs, path::Path};

use crate::model::observation::{Call, SyncWait, WaitsFor};

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
    /// It is gone, or in no fsync: that of a filesystem is called by its address, so that it has a line of its own in each stack.
    pub elsewhere: bool,
    /// It runs on a CPU.
    pub runs: bool,
}

/// What filesystems call fsync.
const SYNC_FUNCTIONS: [&str; 3] = ["ext4_sync_file", "xfs_file_fsync", "btrfs_sync_file"];
/// Its last call may leave no frame of it, so its callers in the system call count too.
const SYNC_RANGE: &str = "sync_file_range";

fn syncs(function: &str) -> bool {
    SYNC_FUNCTIONS.iter().any(|f| function.starts_with(f)) || function.contains(SYNC_RANGE)
}

/// Reads /proc/TID/stack of one of them.
pub fn sync_stack(proc_: &Path, tid: u32) -> SyncStack {
    let task = proc_.join(tid.to_string());
    match fs::read_to_string(task.join("stack")) {
        Ok(text) => SyncStack {
            wait: sync_wait(&text),
            elsewhere: elsewhere(&text),
            runs: functions(&text).next().is_none(),
        },
        // Some kernels have no stacks at all.
        Err(_) => SyncStack {
            wait: None,
            elsewhere: !task.exists(),
            runs: false,
        },
    }
}

/// A wait for a journal, as a stack shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalWait {
    /// For what.
    pub waits_for: SyncWait,
    /// The task makes room in the journal by itself.
    pub checkpoints: bool,
    /// What it called.
    pub call: Call,
}

/// Reads /proc/TID/stack of a task in uninterruptible sleep. `None`: it waits for no journal, is in an fsync, or cannot be read.
pub fn journal_wait(proc_: &Path, tid: u32) -> Option<JournalWait> {
    wait_in(&fs::read_to_string(proc_.join(tid.to_string()).join("stack")).ok()?)
}

/// True when a task makes room in a journal at this moment.
pub fn checkpoints(proc_: &Path, tid: u32) -> bool {
    fs::read_to_string(proc_.join(tid.to_string()).join("stack"))
        .is_ok_and(|text| functions(&text).any(is_checkpoint))
}

fn is_checkpoint(function: &str) -> bool {
    function.starts_with("jbd2_log_do_checkpoint")
}

fn wait_in(text: &str) -> Option<JournalWait> {
    if functions(text).any(syncs) {
        return None;
    }
    let checkpoints = functions(text).any(is_checkpoint);
    let waits_for = sync_wait(text).filter(|w| {
        matches!(
            w,
            SyncWait::Journal | SyncWait::Transaction | SyncWait::JournalSpace
        )
    });
    let waits_for = waits_for.or(checkpoints.then_some(SyncWait::JournalSpace))?;
    Some(JournalWait {
        waits_for,
        checkpoints,
        call: call_in(text),
    })
}

/// What was called, by the function that every system call has: `__x64_sys_mkdir`, `__arm64_sys_mkdirat`.
fn call_in(text: &str) -> Call {
    let mut call = Call::Other;
    for f in functions(text) {
        // The last that umount does comes on the way back to user space.
        if f.starts_with("cleanup_mnt") {
            return Call::Umount;
        }
        if let Some((_, name)) = f.split_once("_sys_") {
            call = match name {
                "open" | "openat" | "openat2" | "creat" | "mknod" | "mknodat" | "link"
                | "linkat" | "symlink" | "symlinkat" => Call::Create,
                "mkdir" | "mkdirat" => Call::Mkdir,
                "unlink" | "unlinkat" | "rmdir" => Call::Remove,
                "rename" | "renameat" | "renameat2" => Call::Rename,
                "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "fallocate"
                | "ftruncate" => Call::Write,
                "umount" | "oldumount" => Call::Umount,
                "sync" | "syncfs" => Call::Sync,
                _ => Call::Other,
            };
        }
    }
    call
}

fn elsewhere(text: &str) -> bool {
    let mut functions = functions(text).peekable();
    functions.peek().is_some() && !functions.any(syncs)
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
            | "jbd2_journal_wait_updates"
            | "wait_current_trans" => SyncWait::Transaction,
            "xlog_grant_head_wait" => SyncWait::JournalSpace,
            "jbd2_log_wait_commit"
            | "jbd2_fc_begin_commit"
            | "xfs_log_force"
            | "xfs_log_force_seq"
            | "xfs_log_force_lsn"
            | "xlog_wait_on_iclog"
            | "xlog_force_lsn"
            | "xlog_cil_force_seq"
            | "xlog_cil_force_lsn"
            | "btrfs_sync_log"
            | "wait_log_commit"
            | "btrfs_commit_transaction"
            | "btrfs_wait_for_commit"
            | "wait_for_commit" => SyncWait::Journal,
            "blkdev_issue_flush" => SyncWait::Flush,
            "folio_wait_writeback"
            | "wait_on_page_writeback"
            | "__filemap_fdatawait_range"
            | "jbd2_journal_finish_inode_data_buffers"
            | "ext4_journal_finish_inode_data_buffers"
            | "do_writepages"
            | "ext4_writepages"
            | "btrfs_start_ordered_extent"
            | "btrfs_start_ordered_extent_nowriteback"
            | "btrfs_wait_ordered_range" => SyncWait::Data,
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let log = ["xlog_wait_on_iclog", "xfs_log_force_seq", "xfs_file_fsync"];
        assert_eq!(stack(&log), Some(SyncWait::Journal));
        let ordered = [
            "btrfs_start_ordered_extent",
            "btrfs_wait_ordered_range",
            "btrfs_sync_file",
        ];
        assert_eq!(stack(&ordered), Some(SyncWait::Data));
        assert_eq!(
            stack(&["wait_transaction_locked.isra.0", "ext4_create"]),
            Some(SyncWait::Transaction)
        );
    }

    #[test]
    fn a_stack_tells_the_call_that_waits_for_the_journal() {
        let wait = |names: &[&str]| {
            let lines = names.iter().map(|n| format!("[<0>] {n}+0x1/0x2\n"));
            wait_in(&lines.collect::<String>())
        };
        let waits = |waits_for, checkpoints, call| {
            Some(JournalWait {
                waits_for,
                checkpoints,
                call,
            })
        };
        assert_eq!(
            wait(&[
                "wait_transaction_locked",
                "start_this_handle",
                "ext4_mkdir",
                "do_mkdirat",
                "__x64_sys_mkdir"
            ]),
            waits(SyncWait::Transaction, false, Call::Mkdir)
        );
        let space = [
            "__wait_on_buffer",
            "jbd2_log_do_checkpoint",
            "__jbd2_log_wait_for_space",
            "ext4_create",
            "__arm64_sys_openat",
        ];
        assert_eq!(
            wait(&space),
            waits(SyncWait::JournalSpace, true, Call::Create)
        );
        let mutex = [
            "mutex_lock_io",
            "__jbd2_log_wait_for_space",
            "ksys_write",
            "__x64_sys_pwrite64",
        ];
        assert_eq!(
            wait(&mutex),
            waits(SyncWait::JournalSpace, false, Call::Write)
        );
        let umount = [
            "jbd2_log_wait_commit",
            "ext4_put_super",
            "cleanup_mnt",
            "task_work_run",
        ];
        assert_eq!(wait(&umount), waits(SyncWait::Journal, false, Call::Umount));
        assert_eq!(
            wait(&["jbd2_log_wait_commit", "ext4_sync_file", "__x64_sys_fsync"]),
            None
        );
        assert_eq!(wait(&["folio_wait_writeback", "__x64_sys_openat"]), None);
        assert_eq!(wait(&[]), None);
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
    fn our_own_stack_is_elsewhere_or_unreadable() {
        let got = stack(Path::new("/proc"), std::process::id());
        assert!(matches!(got, Stack::Elsewhere | Stack::Unknown), "{got:?}");
        assert_eq!(stack(Path::new("/proc"), u32::MAX), Stack::Gone);
    }
}
