//! One block event, whatever format it was read from.

use io_starve_common::class::Class;

use crate::model::observation::{DevId, Owner};

/// What happened. Names are those of the kernel's tracepoints (include/trace/events/block.h), without `block_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// `bio_queue`: a bio was submitted.
    BioQueue,
    /// `getrq`: a bio got its request.
    GetRq,
    /// `bio_backmerge`: a bio became the end of a request.
    BackMerge,
    /// `bio_frontmerge`: a bio became the beginning of a request.
    FrontMerge,
    /// `split`: a bio was cut; `sectors` says where the rest begins, counted from the bio's beginning.
    Split,
    /// `bio_complete`: a bio ended without a request.
    BioComplete,
    /// `rq_insert`: a request went to the scheduler.
    Insert,
    /// `rq_issue`: a request went to the driver.
    Issue,
    /// `rq_requeue`: the driver gave a request back.
    Requeue,
    /// `rq_merge`: a request became the end of another one.
    Merge,
    /// One of `bio_backmerge` and `rq_merge`: blktrace has one action for both.
    AnyMerge,
    /// `rq_complete`: a request completed, perhaps in part.
    Complete,
}

impl What {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// All of them, in the order in which a request meets them.
    pub const ALL: [What; What::COUNT] = [
        What::BioQueue,
        What::Split,
        What::GetRq,
        What::BackMerge,
        What::FrontMerge,
        What::BioComplete,
        What::Insert,
        What::Merge,
        What::AnyMerge,
        What::Issue,
        What::Requeue,
        What::Complete,
    ];

    /// The tracepoint, where it is one.
    pub const fn tracepoint(self) -> Option<&'static str> {
        Some(match self {
            What::BioQueue => "block_bio_queue",
            What::GetRq => "block_getrq",
            What::BackMerge => "block_bio_backmerge",
            What::FrontMerge => "block_bio_frontmerge",
            What::Split => "block_split",
            What::BioComplete => "block_bio_complete",
            What::Insert => "block_rq_insert",
            What::Issue => "block_rq_issue",
            What::Requeue => "block_rq_requeue",
            What::Merge => "block_rq_merge",
            What::AnyMerge => return None,
            What::Complete => "block_rq_complete",
        })
    }

    /// The one with this name after `block_`.
    pub fn of_name(name: &[u8]) -> Option<What> {
        let is = |what: &What| {
            let own = what.tracepoint().and_then(|t| t.strip_prefix("block_"));
            own.is_some_and(|own| own.as_bytes() == name)
        };
        What::ALL.into_iter().find(is)
    }
}

/// Name of a thread: at most 15 bytes, as the kernel keeps it (TASK_COMM_LEN).
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Comm([u8; 15], u8);

impl Comm {
    /// Takes the first 15 bytes of a name. `(null)` is what blkparse prints for a name that it does not know.
    pub fn new(name: &[u8]) -> Comm {
        let mut comm = Comm::default();
        if name == b"(null)" {
            return comm;
        }
        let length = name.len().min(comm.0.len());
        comm.0[..length].copy_from_slice(&name[..length]);
        comm.1 = length as u8;
        comm
    }

    /// True for the kernel's own workers.
    pub fn is_kworker(&self) -> bool {
        self.0.starts_with(b"kworker/")
    }

    /// The name as text; bytes that are none and control characters are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0[..usize::from(self.1)])
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    }
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

/// A block event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, by the clock of the trace. ns.
    pub ns: u64,
    /// What.
    pub what: What,
    /// The disk, or the partition where the kernel names that.
    pub dev: DevId,
    /// Class, from letters or bits.
    pub class: Class,
    /// First sector, 512 bytes each.
    pub sector: u64,
    /// How many.
    pub sectors: u64,
    /// Its I/O priority class is idle, where that is told.
    pub idle_prio: bool,
    /// Who pays; only blktrace with its cgroup option tells.
    pub owner: Owner,
    /// The thread that ran; 0 for the idle task and where it is not told.
    pub tid: u32,
    /// Its name.
    pub comm: Comm,
}
