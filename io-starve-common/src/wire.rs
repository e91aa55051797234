//! The layout of every map value, defined once.
//!
//! Tables are open-addressed inside plain arrays that user space maps into memory: a row belongs for good to the key
//! that claimed it (see [`Claim`]), so that no request costs a system call, a hash helper or a deletion. Only bios, which come
//! from anywhere in memory, give their rows back.

use crate::{class::Class, hist, request::Life};

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
/// only when it then reads 1, otherwise it takes its 1 back and probes on. Of two that race at most one reads 1.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Claim {
    /// The key, 0 until it is claimed.
    pub key: u64,
    /// 0: free; 1: claimed; more: somebody is just trying.
    pub lock: u32,
    /// For the row's own use.
    pub tag: u32,
}

/// One request in flight, in one cache line: it goes back and forth between the CPUs that submit, issue and complete. Disk,
/// owner and class are those of its group. `claim.tag` is the lower half of the address of its request queue, so that the next life
/// of this memory finds its group without a search.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Claimed by the address of the request.
    pub claim: Claim,
    /// State and stamps.
    pub life: Life,
    /// First sector, 512 bytes each.
    pub sector: u64,
    /// Row in the group table, or [`NO_ROW`].
    pub group: u32,
    /// Thread that submitted it; user space looks its name up when there is something to tell of it.
    pub tid: u32,
}

/// One bio between block_bio_queue and block_getrq or a merge: waiting for admission. Unlike a request it gives its
/// row back, for any bio to take; the key stays, so that the same memory finds its row, and what was known, at once. `claim.tag` as in
/// [`Slot`].
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct BioSlot {
    /// Claimed by the address of the bio; only a locked row holds one.
    pub claim: Claim,
    /// When it was submitted; 0 when the row is free. ns, monotonic.
    pub since_ns: u64,
    /// First sector.
    pub sector: u64,
    /// Row in the group table, or [`NO_ROW`].
    pub group: u32,
    /// Thread that submitted it.
    pub tid: u32,
    /// Bytes.
    pub bytes: u32,
    /// `B_*` bits.
    pub flags: u32,
}

/// The I/O priority class of a bio is idle.
pub const B_IDLE_PRIO: u32 = 1;
/// Its owner's device time counts a bio ([`crate::service`]).
pub const B_ACCOUNTED: u32 = 2;

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

/// The unit in which a maximum is packed, as a shift of ns.
const MAX_UNIT: u32 = 8;
/// Bits that a maximum has beside its epoch: 73 minutes of 256 ns.
const MAX_BITS: u32 = 34;

/// A wait with its epoch above it, so that one comparison tells whether it replaces the one that is kept. Waits
/// past 73 minutes are told as that.
#[inline(always)]
pub const fn pack_max(now: u64, ns: u64) -> u64 {
    let units = ns >> MAX_UNIT;
    let most = (1 << MAX_BITS) - 1;
    (now >> EPOCH_SHIFT) << MAX_BITS | if units > most { most } else { units }
}

/// (epoch, longest wait in ns) of what [`pack_max`] made; the wait is rounded down to 256 ns.
pub const fn unpack_max(packed: u64) -> (u64, u64) {
    let units = packed & ((1 << MAX_BITS) - 1);
    (packed >> MAX_BITS, units << MAX_UNIT)
}

/// Whose counters a row of [`GroupRow`]s holds: one (device, owner, class). `claim.tag` is the owner's row of device time plus 1, 0 while
/// that is not counted.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct GroupName {
    /// Claimed by [`group_key`].
    pub claim: Claim,
    /// The cgroup that pays, [`OWNER_UNKNOWN`] or [`OWNER_OTHER`].
    pub owner: u64,
    /// Device row and class, by [`group_low`].
    pub low: u64,
}

/// Counters of one group on one shard of CPUs, all cumulative; the reader sums the shards. Where every CPU has a shard
/// of its own they need no atomic: a program is not interrupted by itself, and no counter that is hot has two
/// programs. Counters of a device are the sums of its groups, so that no I/O pays for both.
///
/// By cache line: how requests begin; how they end; maxima and admission; what is rare.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct GroupRow {
    /// Lives begun by an insert.
    pub inserted: u64,
    /// Lives begun by an issue: never inserted.
    pub direct: u64,
    /// block_rq_issue events.
    pub issues: u64,
    /// When a request of the group was last issued. ns, monotonic.
    pub last_issue_ns: u64,
    /// `serial_nr` of the blkio state of the owner's cgroup, which no other ever has: it tells that the owner is still the same
    /// without the way to its id. 0 when not known on this shard, or when the row is not one owner's.
    pub serial: u64,
    /// [`GroupName::low`] again, for whoever begins requests; 0 when not known on this shard.
    pub low: u64,
    /// Explicit padding.
    pub pad: [u64; 2],
    /// Lives ended by a completion.
    pub finished: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// When a request of the group was last completed. ns, monotonic.
    pub last_complete_ns: u64,
    /// Finished lives that had a queued stage.
    pub queued: u64,
    /// Sum of the queued stage in ns.
    pub queued_ns: u64,
    /// Sum of the device stage in ns.
    pub device_ns: u64,
    /// Lives that ended in the queue, by an error of the block layer: they had no device stage.
    pub unissued: u64,
    /// [`GroupName::low`] again, for whoever ends requests; 0 when not known on this shard.
    pub low_of_end: u64,
    /// Longest of the queued stage, by epoch parity, as [`pack_max`] has it.
    pub queued_max: [u64; 2],
    /// Longest of the device stage, as above.
    pub device_max: [u64; 2],
    /// How many bios were admitted.
    pub admitted: u64,
    /// Sum of their waits for admission in ns.
    pub admission_ns: u64,
    /// Longest wait for admission, as above.
    pub admission_max: [u64; 2],
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives begun by a seed: waiting before the programs were attached.
    pub seeded: u64,
    /// Lives given up: a completion was missed.
    pub expired: u64,
    /// block_rq_insert events of lives that had begun: after a requeue or a seed.
    pub reinserts: u64,
    /// block_rq_requeue events.
    pub requeues: u64,
    /// Completions of part of a request.
    pub partial: u64,
    /// Explicit padding.
    pub pad_of_rare: [u64; 2],
}

/// The counters of a group on a shard.
#[inline(always)]
pub const fn group_row(group: u32, shard: u32, shards_mask: u32) -> u32 {
    group * (shards_mask + 1) + shard
}

/// One disk. Its device time is in a table of its own, by the same row.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct DevRow {
    /// Claimed by [`dev_key`].
    pub claim: Claim,
    /// Tasks that went to sleep for want of a tag (block_rq_tag_wait, 7.2 and later).
    pub tag_waits: u64,
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
    /// Claimed by the address of the `blk_mq_hw_ctx`; `tag` is the lower half of that of its queue.
    pub claim: Claim,
}

/// What a cgroup event says.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CgroupEvent {
    /// Id of the cgroup: inode number of its directory.
    pub id: u64,
    /// Id of its hierarchy, 0 for cgroup v2 (cgroup_root.hierarchy_id).
    pub hierarchy: u32,
    /// 1 when it was removed, 0 when it was made.
    pub gone: u32,
    /// Path below the hierarchy's root, NUL padded; a longer one is cut.
    pub path: [u8; CGROUP_PATH],
}

/// Longest cgroup path that an event carries, in bytes.
pub const CGROUP_PATH: usize = 256;

/// Rows of the allow table of devices; a power of two.
pub const ALLOW_ROWS: u32 = 1024;

/// Index into the control array: CLOCK_MONOTONIC in ns when every hook was attached; 0 before. Requests that are
/// older are expected to be unknown.
pub const CTRL_ARMED: u32 = 0;
/// Index into the control array: 1 while device time is counted on some disk.
pub const CTRL_ACCOUNTING: u32 = 1;
/// Entries of the control array.
pub const CTRL_COUNT: u32 = 2;

/// The row of a fine histogram.
#[inline(always)]
pub const fn hist_row(dev_row: u32, class: u8, stage: u32, shard: u32, shards_mask: u32) -> u32 {
    ((dev_row * Class::COUNT as u32 + class as u32) * STAGES as u32 + stage) * (shards_mask + 1)
        + shard
}

/// A slot older than this is believed only after the request itself was read again, in ns.
pub const RECHECK_NS: u64 = 500_000_000;

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
    /// The clock ran backwards between two events of one request.
    ClockBackwards = 7,
    /// A bio's admission could not be confirmed and was given up.
    AdmissionExpired = 8,
    /// The kernel skipped program runs (recursion); filled in by user space.
    SkippedRuns = 9,
    /// Ticks that came so late that maxima may be missing; filled in by user space.
    LateTick = 10,
    /// An fsync, journal or handle found no row, or a span no room in the ring: who waited is not told.
    SpansDropped = 11,
    /// Events that another program's trace lost, or that cannot be read in it; never counted by a live run.
    TraceLost = 12,
}

impl LossKind {
    /// How many kinds the programs count; those of traces come after them.
    pub const COUNT: usize = 12;
    /// Every kind, in the order of its number.
    pub const ALL: [LossKind; LossKind::COUNT + 1] = [
        LossKind::SlotsFull,
        LossKind::BiosFull,
        LossKind::GroupsFull,
        LossKind::DevicesFull,
        LossKind::LostCompletion,
        LossKind::Expired,
        LossKind::UnmatchedCompletion,
        LossKind::ClockBackwards,
        LossKind::AdmissionExpired,
        LossKind::SkippedRuns,
        LossKind::LateTick,
        LossKind::SpansDropped,
        LossKind::TraceLost,
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
            LossKind::ClockBackwards => "clock-backwards",
            LossKind::AdmissionExpired => "admission-expired",
            LossKind::SkippedRuns => "skipped-runs",
            LossKind::LateTick => "late-tick",
            LossKind::SpansDropped => "spans-dropped",
            LossKind::TraceLost => "trace-lost",
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

/// The part of a group's key beside the owner: device row and class, never 0. Folded with the owner by [`group_key`].
#[inline(always)]
pub const fn group_low(dev_row: u32, class: u8) -> u64 {
    (dev_row as u64) << 16 | (class as u64) << 8 | 1
}

/// The class in what [`group_low`] made, by its number.
#[inline(always)]
pub const fn class_of_low(low: u64) -> u8 {
    (low >> 8) as u8
}

/// The device row in what [`group_low`] made.
#[inline(always)]
pub const fn dev_row_of_low(low: u64) -> u32 {
    (low >> 16) as u32
}

/// One 64-bit key for (owner, device row, class). Cgroup ids are inode numbers with a generation above bit 32; mixing
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
    assert!(size_of::<Slot>() == 64);
    assert!(size_of::<BioSlot>() == 64);
    assert!(size_of::<GroupName>() == 32);
    assert!(size_of::<GroupRow>() == 256);
    assert!(core::mem::offset_of!(GroupRow, finished) == 64);
    assert!(core::mem::offset_of!(GroupRow, queued_max) == 128);
    assert!(size_of::<DevRow>() == 24);
    assert!(size_of::<HistRow>() == 512);
    assert!(size_of::<Claim>() == 16);
    assert!(core::mem::offset_of!(Slot, life) == 16);
};
