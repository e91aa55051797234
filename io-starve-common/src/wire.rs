//! The layout of every map value, defined once.
//!
//! Tables are open-addressed inside plain arrays that user space maps into memory: a row belongs for good to the key
//! that claimed it (see [`Claim`]), so that no request costs a system call, a hash helper or a deletion.

use crate::{hist, request::Life};

/// How many rows are probed for a key before the table counts as full for it. At the load that user space plans
/// for (a quarter full) fewer than one key in 10^5 finds no place.
pub const PROBES: u32 = 8;

/// The owner value for "not known": the bio carried no blkg. Cgroup ids are never 0.
pub const OWNER_UNKNOWN: u64 = 0;
/// The owner value for "one of those for whom no row was left".
pub const OWNER_OTHER: u64 = u64::MAX;

/// `group` or `dev_row` of a slot that has none.
pub const NO_ROW: u32 = u32::MAX;

/// How a row is claimed without compare-and-swap, which 5.10 refuses: a program adds 1 to `lock` and owns the row
/// only when it then reads 1. Of two that race at most one reads 1; when neither does, the row stays unused.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Claim {
    /// 0: never claimed; 1: claimed; more: lost to a race, unused.
    pub lock: u64,
    /// The key, 0 until it is claimed.
    pub key: u64,
}

/// One request in flight.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Slot {
    /// Claimed by the address of the request.
    pub claim: Claim,
    /// State and stamps.
    pub life: Life,
    /// The cgroup that pays, or [`OWNER_UNKNOWN`].
    pub owner: u64,
    /// Address of its request queue, so that the next life of this memory finds its device row without a search.
    pub queue: u64,
    /// First sector, 512 bytes each.
    pub sector: u64,
    /// While queued: requests of this device issued at insert plus those that waited then; issues beyond it
    /// passed this request. While issued: the same with completions and requests in flight.
    pub bypass_base: u64,
    /// Kernel `dev_t` of the disk (major << 20 | minor).
    pub dev: u32,
    /// Row in the group table.
    pub group: u32,
    /// Row in the device table.
    pub dev_row: u32,
    /// Thread that submitted it.
    pub tid: u32,
    /// Name of that thread, NUL padded.
    pub comm: [u8; 16],
    /// [`crate::class::Class`] as a number.
    pub class: u8,
    /// Explicit padding.
    pub pad: [u8; 7],
}

/// One bio between block_bio_queue and block_getrq or a merge: waiting for admission.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct BioSlot {
    /// Claimed by the address of the bio.
    pub claim: Claim,
    /// When it was submitted; 0 when the slot is free. ns, monotonic.
    pub since_ns: u64,
    /// The cgroup that pays, or [`OWNER_UNKNOWN`].
    pub owner: u64,
    /// Sync requests of this device issued when it was submitted.
    pub bypass_base: u64,
    /// First sector.
    pub sector: u64,
    /// Kernel `dev_t` of the disk.
    pub dev: u32,
    /// Row in the group table.
    pub group: u32,
    /// Row in the device table.
    pub dev_row: u32,
    /// Thread that submitted it.
    pub tid: u32,
    /// Name of that thread, NUL padded.
    pub comm: [u8; 16],
    /// [`crate::class::Class`] as a number.
    pub class: u8,
    /// 1 when its I/O priority class is idle.
    pub idle_prio: u8,
    /// Explicit padding.
    pub pad: [u8; 6],
    /// Bytes.
    pub bytes: u64,
}

/// Stages that have histograms, by index.
pub const STAGE_ADMISSION: u32 = 0;
/// Inserted, not yet issued.
pub const STAGE_QUEUED: u32 = 1;
/// Issued, not yet completed.
pub const STAGE_DEVICE: u32 = 2;
/// How many stages have histograms.
pub const STAGES: usize = 3;

/// Maxima are kept for the running and the previous epoch, so that a reader that comes four times an epoch
/// misses none and nobody has to reset anything. An epoch is 2^30 ns.
pub const EPOCH_SHIFT: u32 = 30;

/// The longest wait of an epoch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct EpochMax {
    /// ns >> [`EPOCH_SHIFT`] of the moment it was taken.
    pub epoch: u64,
    /// The longest, in ns.
    pub max_ns: u64,
}

/// Counters of one (device, owner, class), all cumulative and added with xadd. On many CPUs a key has several
/// rows (shards); the reader sums them.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct GroupRow {
    /// Claimed by [`group_key`].
    pub claim: Claim,
    /// The cgroup that pays, [`OWNER_UNKNOWN`] or [`OWNER_OTHER`].
    pub owner: u64,
    /// Device row, class and shard, by [`group_low`].
    pub low: u64,
    /// Lives begun.
    pub seen: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives given up: a completion was missed.
    pub expired: u64,
    /// block_rq_insert events.
    pub inserts: u64,
    /// block_rq_issue events.
    pub issues: u64,
    /// block_rq_requeue events.
    pub requeues: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// Sum of each stage in ns.
    pub stage_ns: [u64; STAGES],
    /// How many requests (for admission: bios) had the stage.
    pub stage_count: [u64; STAGES],
    /// Longest of each stage, by epoch parity.
    pub stage_max: [[EpochMax; 2]; STAGES],
    /// When a request of the group was last issued. ns, monotonic.
    pub last_issue_ns: u64,
    /// Coarse histogram of the queued stage.
    pub queued: [u32; hist::COARSE],
}

/// Counters of one disk.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct DevRow {
    /// Claimed by [`dev_key`].
    pub claim: Claim,
    /// Issues, of any class.
    pub issued: u64,
    /// Issues of sync classes.
    pub sync_issued: u64,
    /// Completed lives.
    pub completed: u64,
    /// Queued now; may be off while programs run.
    pub waiting: i64,
    /// In the device now; may be off while programs run.
    pub in_flight: i64,
    /// Last issue. ns, monotonic.
    pub last_issue_ns: u64,
    /// Last completion. ns, monotonic.
    pub last_complete_ns: u64,
    /// Completions of part of a request.
    pub partial: u64,
}

/// Fine histograms of one (device row, class, stage, shard), wrapping counters.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HistRow {
    /// By [`hist::bucket`].
    pub counts: [u32; hist::BUCKETS],
}

/// A hardware queue seen, for seeding: its tag tables are walked once.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct HctxRow {
    /// Claimed by the address of the `blk_mq_hw_ctx`.
    pub claim: Claim,
}

/// Things that were not seen, counted where it happens; index into the loss array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "user",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
#[cfg_attr(feature = "user", serde(rename_all = "kebab-case"))]
#[repr(u32)]
pub enum LossKind {
    /// A request found no slot: the table is too small.
    SlotsFull = 0,
    /// A bio found no slot: the table is too small.
    BiosFull = 1,
    /// A (device, owner, class) found no row and was counted as "other".
    GroupsFull = 2,
    /// A disk found no row; its requests are not followed.
    DevicesFull = 3,
    /// The end of a request was missed: its memory was seen in a new life.
    LostCompletion = 4,
    /// A request that was checked against the kernel's memory was no longer there.
    Expired = 5,
    /// A completion with data for which no request was known.
    UnmatchedCompletion = 6,
    /// A requeue or merge for which no request was known.
    UnmatchedOther = 7,
    /// The clock ran backwards between two events of one request.
    ClockBackwards = 8,
    /// A bio's admission could not be confirmed and was given up.
    AdmissionExpired = 9,
    /// The kernel skipped program runs (recursion); filled in by user space.
    SkippedRuns = 10,
    /// Ticks that came so late that maxima may be missing; filled in by user space.
    LateTick = 11,
}

impl LossKind {
    /// How many kinds there are.
    pub const COUNT: usize = 12;
    /// Every kind, in the order of its number.
    pub const ALL: [LossKind; LossKind::COUNT] = [
        LossKind::SlotsFull,
        LossKind::BiosFull,
        LossKind::GroupsFull,
        LossKind::DevicesFull,
        LossKind::LostCompletion,
        LossKind::Expired,
        LossKind::UnmatchedCompletion,
        LossKind::UnmatchedOther,
        LossKind::ClockBackwards,
        LossKind::AdmissionExpired,
        LossKind::SkippedRuns,
        LossKind::LateTick,
    ];

    /// The name used on screen, in JSON and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            LossKind::SlotsFull => "slots-full",
            LossKind::BiosFull => "bios-full",
            LossKind::GroupsFull => "groups-full",
            LossKind::DevicesFull => "devices-full",
            LossKind::LostCompletion => "lost-completion",
            LossKind::Expired => "expired",
            LossKind::UnmatchedCompletion => "unmatched-completion",
            LossKind::UnmatchedOther => "unmatched-other",
            LossKind::ClockBackwards => "clock-backwards",
            LossKind::AdmissionExpired => "admission-expired",
            LossKind::SkippedRuns => "skipped-runs",
            LossKind::LateTick => "late-tick",
        }
    }
}

/// The key of a disk's row: never 0, since 0 marks an unclaimed row.
#[inline(always)]
pub const fn dev_key(dev: u32) -> u64 {
    dev as u64 | 1 << 32
}

/// The kernel's `dev_t` in a device key.
#[inline(always)]
pub const fn dev_of_key(key: u64) -> u32 {
    key as u32
}

/// The part of a group's key beside the owner: device row, class, shard. Folded with the owner by [`group_key`].
#[inline(always)]
pub const fn group_low(dev_row: u32, class: u8, shard: u32) -> u64 {
    (dev_row as u64) << 16 | (class as u64) << 8 | (shard as u64 & 0x7f) << 1 | 1
}

/// One 64-bit key for (owner, device row, class, shard). Cgroup ids are inode numbers with a generation above bit 32; mixing
/// keeps two live groups from meeting except by a chance of 2^-64 times the square of their number.
#[inline(always)]
pub const fn group_key(owner: u64, low: u64) -> u64 {
    let mixed = owner.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
        ^ low.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    mixed | 1
}

/// Where the probing for a key begins, in a table of `mask` + 1 rows.
#[inline(always)]
pub const fn probe_start(key: u64, mask: u32) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & mask
}

const _: () = {
    assert!(size_of::<Slot>() == 128);
    assert!(size_of::<BioSlot>() == 96);
    assert!(size_of::<GroupRow>() == 312);
    assert!(size_of::<DevRow>() == 80);
    assert!(size_of::<HistRow>() == 512);
    assert!(core::mem::offset_of!(Slot, life) == 16);
    assert!(core::mem::offset_of!(Slot, owner) == 56);
};
