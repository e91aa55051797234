//! Which hooks there are, which program serves each on this kernel, and what is lost without it.

use crate::model::observation::{Hook, Topic, Verdict};

/// What a hook is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Without it the main question has no answer on this machine.
    Core,
    /// Only where a device can keep bios back: wbt, iocost or a scheduler is active.
    Admission,
    /// Names of cgroups.
    Names,
    /// fsyncs and journals: only where a filesystem has them.
    Journal,
    /// Writers that are paused for dirty memory.
    Dirty,
}

/// Where a hook is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A tracepoint whose argument list BTF tells.
    Kernel,
    /// A tracepoint of this subsystem that is in a module nearly everywhere: attached when that is loaded.
    Module(&'static str),
    /// The same through its record, whose members tracefs names.
    Record(&'static str),
    /// A function of this module, by a kprobe; when its name ends with `%return`, the return from it.
    Function(Module),
    /// Nowhere: a program that user space reads from when it wants to know.
    Iterator,
}

/// A module, by what is there when it is: subsystem of tracefs, event or file.
pub type Module = (&'static str, &'static str);

const JBD2: Module = ("jbd2", "enable");
const XFS: Module = ("xfs", "enable");
const BTRFS: Module = ("btrfs", "enable");
/// In no module.
const BUILT_IN: Module = ("writeback", "enable");

/// One hook of the program.
#[derive(Debug)]
pub struct HookSpec {
    /// Tracepoint.
    pub name: &'static str,
    /// What it is for.
    pub purpose: Purpose,
    /// Where it is found.
    pub place: Place,
    /// What cannot be said without it.
    pub question: &'static str,
    /// Programs by the number of arguments that BTF gives the tracepoint: (arguments, tp_btf, raw).
    pub(super) programs: &'static [(u32, &'static str, &'static str)],
}

/// Every hook, in the order in which they are attached: what ends a wait comes before what begins one, so that
/// nothing that was seen to begin can end unseen.
pub const HOOKS: &[HookSpec] = &[
    // block/blk-mq.c blk_update_request; (request*, int or blk_status_t, unsigned int) on 5.10 to 7.3.
    HookSpec {
        name: "block_rq_complete",
        purpose: Purpose::Core,
        place: Place::Kernel,
        question: "when requests end: nothing can be said about this machine",
        programs: &[(3, "btf_rq_complete", "raw_rq_complete")],
    },
    // block/blk-merge.c attempt_merge; the request that disappears. With a queue before it up to 5.10.136.
    HookSpec {
        name: "block_rq_merge",
        purpose: Purpose::Core,
        place: Place::Kernel,
        question: "which requests were merged away: they are given up after half a second instead",
        programs: &[
            (1, "btf_rq_merge", "raw_rq_merge"),
            (2, "btf_rq_merge_q", "raw_rq_merge_q"),
        ],
    },
    // block/blk-mq.c __blk_mq_requeue_request. With a queue before it up to 5.10.136.
    HookSpec {
        name: "block_rq_requeue",
        purpose: Purpose::Core,
        place: Place::Kernel,
        question: "which requests the driver gave back: their second wait counts as device time",
        programs: &[
            (1, "btf_rq_requeue", "raw_rq_requeue"),
            (2, "btf_rq_requeue_q", "raw_rq_requeue_q"),
        ],
    },
    // block/blk-mq.c blk_mq_start_request. With a queue before it up to 5.10.136 (changed in 5.10.137).
    HookSpec {
        name: "block_rq_issue",
        purpose: Purpose::Core,
        place: Place::Kernel,
        question: "who is served: starvation cannot be told from a slow device",
        programs: &[
            (1, "btf_rq_issue", "raw_rq_issue"),
            (2, "btf_rq_issue_q", "raw_rq_issue_q"),
        ],
    },
    // block/blk-mq.c and the schedulers' insert functions. With a queue before it up to 5.10.136.
    HookSpec {
        name: "block_rq_insert",
        purpose: Purpose::Core,
        place: Place::Kernel,
        question: "who waits in the scheduler: starvation there cannot be seen",
        programs: &[
            (1, "btf_rq_insert", "raw_rq_insert"),
            (2, "btf_rq_insert_q", "raw_rq_insert_q"),
        ],
    },
    // block/bio.c bio_endio; (request_queue*, bio*) on 5.10 to 7.3.
    HookSpec {
        name: "block_bio_complete",
        purpose: Purpose::Admission,
        place: Place::Kernel,
        question: "which bios failed before they became requests: they are given up within a second instead",
        programs: &[(2, "btf_bio_complete", "raw_bio_complete")],
    },
    // block/blk-core.c or blk-merge.c; (request_queue*, request*, bio*) on 5.10, (bio*) since.
    HookSpec {
        name: "block_bio_backmerge",
        purpose: Purpose::Admission,
        place: Place::Kernel,
        question: "which bios joined a request: their wait for admission is not known",
        programs: &[
            (1, "btf_backmerge", "raw_backmerge"),
            (3, "btf_backmerge_q", "raw_backmerge_q"),
        ],
    },
    HookSpec {
        name: "block_bio_frontmerge",
        purpose: Purpose::Admission,
        place: Place::Kernel,
        question: "which bios joined a request: their wait for admission is not known",
        programs: &[
            (1, "btf_frontmerge", "raw_frontmerge"),
            (3, "btf_frontmerge_q", "raw_frontmerge_q"),
        ],
    },
    // block/blk-mq.c blk_mq_submit_bio, after rq_qos_throttle and the tag; (request_queue*, bio*, int) on 5.10, (bio*) since.
    HookSpec {
        name: "block_getrq",
        purpose: Purpose::Admission,
        place: Place::Kernel,
        question: "who waits for wbt, iocost or a tag",
        programs: &[
            (1, "btf_getrq", "raw_getrq"),
            (3, "btf_getrq_q", "raw_getrq_q"),
        ],
    },
    // block/blk-mq.c blk_mq_get_tag, since 7.2; (request_queue*, blk_mq_hw_ctx*, bool, unsigned int).
    HookSpec {
        name: "block_rq_tag_wait",
        purpose: Purpose::Admission,
        place: Place::Kernel,
        question: "how often tasks slept for want of a tag",
        programs: &[(4, "btf_tag_wait", "raw_tag_wait")],
    },
    // block/blk-core.c submit_bio_noacct_nocheck; (request_queue*, bio*) on 5.10, (bio*) since.
    HookSpec {
        name: "block_bio_queue",
        purpose: Purpose::Admission,
        place: Place::Kernel,
        question: "who waits for wbt, iocost or a tag",
        programs: &[
            (1, "btf_bio_queue", "raw_bio_queue"),
            (2, "btf_bio_queue_q", "raw_bio_queue_q"),
        ],
    },
    // kernel/cgroup/cgroup.c, since 4.19; (cgroup*, const char *path).
    HookSpec {
        name: "cgroup_mkdir",
        purpose: Purpose::Names,
        place: Place::Kernel,
        question: "the names of cgroups that live shorter than a second",
        programs: &[(2, "", "raw_cgroup_mkdir")],
    },
    HookSpec {
        name: "cgroup_rmdir",
        purpose: Purpose::Names,
        place: Place::Kernel,
        question: "when cgroups go away",
        programs: &[(2, "", "raw_cgroup_rmdir")],
    },
    // fs/jbd2/commit.c jbd2_journal_commit_transaction, this and the next four.
    HookSpec {
        name: "jbd2_end_commit",
        purpose: Purpose::Journal,
        place: Place::Record("jbd2"),
        question: "when journal commits end: none is followed",
        programs: &[(0, "", "tp_jbd2_end_commit")],
    },
    // Waiting for the data of ordered files comes after this.
    HookSpec {
        name: "jbd2_commit_logging",
        purpose: Purpose::Journal,
        place: Place::Record("jbd2"),
        question: "what a journal commit spends its time on",
        programs: &[(0, "", "tp_jbd2_commit_logging")],
    },
    // Data of ordered files is written from here on.
    HookSpec {
        name: "jbd2_commit_flushing",
        purpose: Purpose::Journal,
        place: Place::Record("jbd2"),
        question: "what a journal commit spends its time on",
        programs: &[(0, "", "tp_jbd2_commit_flushing")],
    },
    // Open handles are waited for from here on.
    HookSpec {
        name: "jbd2_commit_locking",
        purpose: Purpose::Journal,
        place: Place::Record("jbd2"),
        question: "what a journal commit spends its time on",
        programs: &[(0, "", "tp_jbd2_commit_locking")],
    },
    // The journal's thread takes the transaction.
    HookSpec {
        name: "jbd2_start_commit",
        purpose: Purpose::Journal,
        place: Place::Record("jbd2"),
        question: "which journal commits an fsync waits for",
        programs: &[(0, "", "tp_jbd2_start_commit")],
    },
    // fs/jbd2/checkpoint.c jbd2_log_do_checkpoint.
    HookSpec {
        name: "jbd2_checkpoint",
        purpose: Purpose::Journal,
        place: Place::Record("jbd2"),
        question: "who makes room in a journal",
        programs: &[(0, "", "tp_jbd2_checkpoint")],
    },
    // kernel/bpf/task_iter.c.
    HookSpec {
        name: "bpf_iter_task",
        purpose: Purpose::Journal,
        place: Place::Iterator,
        question: "who waits for a journal in create, mkdir, write, umount",
        programs: &[(0, "", "sleeping_task")],
    },
    // mm/page-writeback.c, since 5.18; (folio*, address_space*).
    HookSpec {
        name: "folio_wait_writeback",
        purpose: Purpose::Journal,
        place: Place::Kernel,
        question: "whose data a journal commit waits for",
        programs: &[(2, "", "raw_folio_wait")],
    },
    // The same up to 5.17; (page*, address_space*).
    HookSpec {
        name: "wait_on_page_writeback",
        purpose: Purpose::Journal,
        place: Place::Kernel,
        question: "whose data a journal commit waits for",
        programs: &[(2, "", "raw_page_wait")],
    },
    // fs/jbd2/transaction.c jbd2_journal_stop; (dev_t, tid_t, unsigned int, unsigned int, int, int, int, int) on 5.10 to 7.3.
    HookSpec {
        name: "jbd2_handle_stats",
        purpose: Purpose::Journal,
        place: Place::Module("jbd2"),
        question: "who keeps a transaction open",
        programs: &[(0, "", "raw_jbd2_handle")],
    },
    // fs/ext4/fsync.c ext4_sync_file; (inode*, int) on 5.10 to 7.3.
    HookSpec {
        name: "ext4_sync_file_exit",
        purpose: Purpose::Journal,
        place: Place::Module("ext4"),
        question: "how long an fsync of ext4 takes: none is followed",
        programs: &[(0, "", "raw_ext4_sync_exit")],
    },
    // fs/jbd2/journal.c; (journal_t*, tid_t).
    HookSpec {
        name: "jbd2_log_wait_commit",
        purpose: Purpose::Journal,
        place: Place::Function(JBD2),
        question: "when an fsync has written its own data and waits for the journal: that is seen at ticks only",
        programs: &[(0, "", "kprobe_log_wait_commit")],
    },
    // block/blk-flush.c.
    HookSpec {
        name: "blkdev_issue_flush",
        purpose: Purpose::Journal,
        place: Place::Function(JBD2),
        question: "how long an fsync flushes the disk's cache: that is seen at ticks only",
        programs: &[(0, "", "kprobe_issue_flush")],
    },
    // fs/xfs/xfs_file.c xfs_file_fsync; (file*, loff_t, loff_t, int). There is no tracepoint at its end.
    HookSpec {
        name: "xfs_file_fsync%return",
        purpose: Purpose::Journal,
        place: Place::Function(XFS),
        question: "how long an fsync of XFS takes: none is followed",
        programs: &[(0, "", "kretprobe_sync")],
    },
    HookSpec {
        name: "xfs_file_fsync",
        purpose: Purpose::Journal,
        place: Place::Function(XFS),
        question: "who waits in fsync of XFS",
        programs: &[(0, "", "kprobe_xfs_fsync")],
    },
    // fs/btrfs/file.c btrfs_sync_file; (file*, loff_t, loff_t, int). There is no tracepoint at its end.
    HookSpec {
        name: "btrfs_sync_file%return",
        purpose: Purpose::Journal,
        place: Place::Function(BTRFS),
        question: "how long an fsync of btrfs takes: none is followed",
        programs: &[(0, "", "kretprobe_sync")],
    },
    HookSpec {
        name: "btrfs_sync_file",
        purpose: Purpose::Journal,
        place: Place::Function(BTRFS),
        question: "who waits in fsync of btrfs",
        programs: &[(0, "", "kprobe_btrfs_fsync")],
    },
    // fs/sync.c sync_file_range; (file*, loff_t, loff_t, unsigned int). There is no tracepoint but that of the system call.
    HookSpec {
        name: "sync_file_range%return",
        purpose: Purpose::Journal,
        place: Place::Function(BUILT_IN),
        question: "how long sync_file_range takes: none is followed",
        programs: &[(0, "", "kretprobe_sync")],
    },
    HookSpec {
        name: "sync_file_range",
        purpose: Purpose::Journal,
        place: Place::Function(BUILT_IN),
        question: "who waits in sync_file_range",
        programs: &[(0, "", "kprobe_sync_range")],
    },
    // fs/ext4/fsync.c ext4_sync_file; (file*, int).
    HookSpec {
        name: "ext4_sync_file_enter",
        purpose: Purpose::Journal,
        place: Place::Module("ext4"),
        question: "who waits in fsync of ext4",
        programs: &[(0, "", "raw_ext4_sync_enter")],
    },
    // mm/page-writeback.c balance_dirty_pages; 12 arguments with the figures one by one up to 6.12, then 8 with a
    // dirty_throttle_control.
    HookSpec {
        name: "balance_dirty_pages",
        purpose: Purpose::Dirty,
        place: Place::Kernel,
        question: "which writers are paused for dirty memory",
        programs: &[
            (12, "btf_dirty_pause", "raw_dirty_pause"),
            (8, "btf_dirty_pause_dtc", "raw_dirty_pause_dtc"),
        ],
    },
];

/// The programs that serve a hook here: tp_btf first (it costs about 0.6 of the other), then the raw tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This kernel does not have the tracepoint.
    Absent,
    /// It has an argument list that no program here knows.
    UnknownArguments(u32),
    /// Nothing needs it now.
    NotNeeded,
    /// `--without-hook` names it.
    Forbidden,
    /// Try this program on its tracepoint or function, which is there when its module is, or as an iterator.
    TryElsewhere(&'static str),
    /// Try these, in this order; an empty name is none.
    Try {
        /// Name of the tp_btf program.
        btf: &'static str,
        /// Name of the raw tracepoint program.
        raw: &'static str,
    },
}

impl HookSpec {
    /// Chooses. `args` is the number of arguments in BTF, `None` when BTF lacks the tracepoint.
    pub fn choose(&self, args: Option<u32>, needed: bool, forbidden: bool) -> Choice {
        if forbidden {
            return Choice::Forbidden;
        }
        if self.place != Place::Kernel {
            return match self.programs.first() {
                Some((_, _, program)) => Choice::TryElsewhere(program),
                None => Choice::Absent,
            };
        }
        let Some(args) = args else {
            return Choice::Absent;
        };
        if !needed {
            return Choice::NotNeeded;
        }
        match self.programs.iter().find(|(n, _, _)| *n == args) {
            Some((_, btf, raw)) => Choice::Try { btf, raw },
            None => Choice::UnknownArguments(args),
        }
    }

    /// The tracepoint that is there when the module of this hook is; `None`: it is in no module.
    pub fn module(&self) -> Option<(&'static str, &'static str)> {
        match self.place {
            Place::Kernel | Place::Iterator => None,
            Place::Module(subsystem) | Place::Record(subsystem) => Some((subsystem, self.name)),
            Place::Function(module) => Some(module),
        }
    }

    /// The hook with its verdict.
    pub fn with(&self, verdict: Verdict) -> Hook {
        Hook {
            name: self.name.to_owned(),
            verdict,
            question: self.question.to_owned(),
            topic: match self.purpose {
                Purpose::Journal => Topic::Journal,
                Purpose::Dirty => Topic::Dirty,
                Purpose::Core | Purpose::Admission | Purpose::Names => Topic::Requests,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> &'static HookSpec {
        HOOKS.iter().find(|h| h.name == name).unwrap()
    }

    #[test]
    fn the_argument_list_chooses_the_program() {
        let insert = spec("block_rq_insert");
        let one = insert.choose(Some(1), true, false);
        let two = insert.choose(Some(2), true, false);
        assert_eq!(
            one,
            Choice::Try {
                btf: "btf_rq_insert",
                raw: "raw_rq_insert"
            }
        );
        assert_eq!(
            two,
            Choice::Try {
                btf: "btf_rq_insert_q",
                raw: "raw_rq_insert_q"
            }
        );
        assert_eq!(
            insert.choose(Some(9), true, false),
            Choice::UnknownArguments(9)
        );
    }

    #[test]
    fn absent_is_not_refused_and_not_needed_is_not_absent() {
        let wait = spec("block_rq_tag_wait");
        assert_eq!(wait.choose(None, true, false), Choice::Absent);
        assert_eq!(wait.choose(Some(4), false, false), Choice::NotNeeded);
        assert_eq!(wait.choose(Some(4), true, true), Choice::Forbidden);
    }

    #[test]
    fn whatever_begins_a_wait_is_attached_after_what_ends_it() {
        let at = |n: &str| HOOKS.iter().position(|h| h.name == n).unwrap();
        assert!(at("block_rq_complete") < at("block_rq_issue"));
        assert!(at("block_rq_issue") < at("block_rq_insert"));
        assert!(at("block_getrq") < at("block_bio_queue"));
        assert!(at("ext4_sync_file_exit") < at("ext4_sync_file_enter"));
        assert!(at("xfs_file_fsync%return") < at("xfs_file_fsync"));
        assert!(at("btrfs_sync_file%return") < at("btrfs_sync_file"));
        assert!(at("jbd2_end_commit") < at("jbd2_start_commit"));
    }
}
