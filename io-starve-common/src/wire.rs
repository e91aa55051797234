//! The layout of every map value, defined once.
//!
//! Tables are open-addressed inside plain arrays that user space maps into memory: a row belongs for good to the key
//! that claimed it (see [`Claim`]), so that no request costs a system call, a hash helper or a deletion.

use crate::{
    class::{Class, OpBits},
    hist,
    request::Life,
};

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
    /// 0: free; 1: claimed; more: somebody is just trying.
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
    /// Shard of `group`, also used for histograms.
    pub shard: u8,
    /// Explicit padding.
    pub pad: [u8; 14],
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
    /// Shard of `group`, also used for histograms.
    pub shard: u8,
    /// 1 when its I/O priority class is idle.
    pub idle_prio: u8,
    /// Explicit padding.
    pub pad: [u8; 5],
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

/// Counters of one (device, owner, class), all cumulative and added with xadd. A key has a row for each shard of CPUs;
/// the reader sums them. What begins a stage and what ends it lie in different cache lines, since they run on
/// different CPUs; the counters of a device are the sums of its groups, so that no I/O pays for both.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct GroupRow {
    /// Claimed by [`group_key`].
    pub claim: Claim,
    /// The cgroup that pays, [`OWNER_UNKNOWN`] or [`OWNER_OTHER`].
    pub owner: u64,
    /// Device row, class and shard, by [`group_low`].
    pub low: u64,
    /// Lives begun by an insert.
    pub inserted: u64,
    /// Lives begun by an issue: never inserted.
    pub direct: u64,
    /// block_rq_issue events.
    pub issues: u64,
    /// When a request of the group was last issued. ns, monotonic.
    pub last_issue_ns: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// When a request of the group was last completed. ns, monotonic.
    pub last_complete_ns: u64,
    /// Sum of each stage in ns.
    pub stage_ns: [u64; STAGES],
    /// How many bios were admitted.
    pub admitted: u64,
    /// Lives that ended in the queue, by an error of the block layer: they had no device stage.
    pub unissued: u64,
    /// Coarse histogram of the queued stage; its sum counts those that had one.
    pub queued: [u32; hist::COARSE],
    /// Longest of each stage, by epoch parity.
    pub stage_max: [[EpochMax; 2]; STAGES],
    /// Lives begun by a seed: waiting before the programs were attached.
    pub seeded: u64,
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives given up: a completion was missed.
    pub expired: u64,
    /// block_rq_insert events of lives that had begun: after a requeue or a seed.
    pub reinserts: u64,
    /// block_rq_requeue events.
    pub requeues: u64,
    /// Completions of part of a request.
    pub partial: u64,
    /// Explicit padding to whole cache lines.
    pub pad: [u64; 6],
}

/// One disk.
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
    /// Claimed by the address of the `blk_mq_hw_ctx`.
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

/// The value of an offset that the running kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Offsets in bytes of kernel structure members, resolved by name from the running kernel's BTF.
/// [`ABSENT`] where a member does not exist.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Offsets {
    /// `request.q`
    pub rq_q: u32,
    /// `request.rq_disk`, up to 5.15
    pub rq_disk: u32,
    /// `request.cmd_flags`
    pub rq_cmd_flags: u32,
    /// `request.rq_flags`
    pub rq_flags: u32,
    /// `request.start_time_ns`
    pub rq_start: u32,
    /// `request.__sector`
    pub rq_sector: u32,
    /// `request.__data_len`
    pub rq_len: u32,
    /// `request.bio`
    pub rq_bio: u32,
    /// `request.mq_hctx`
    pub rq_hctx: u32,
    /// `request.ref`
    pub rq_ref: u32,
    /// `request.state`
    pub rq_state: u32,
    /// `request.ioprio`, up to 6.11
    pub rq_ioprio: u32,
    /// `request_queue.disk`, 5.16 and later
    pub q_disk: u32,
    /// `request_queue.mq_ops`; NULL for bio-based devices
    pub q_mq_ops: u32,
    /// `gendisk.major`
    pub disk_major: u32,
    /// `gendisk.first_minor`
    pub disk_minor: u32,
    /// `gendisk.queue`
    pub disk_queue: u32,
    /// `bio.bi_disk`, up to 5.11
    pub bio_disk: u32,
    /// `bio.bi_bdev`, 5.12 and later
    pub bio_bdev: u32,
    /// `bio.bi_opf`
    pub bio_opf: u32,
    /// `bio.bi_blkg`
    pub bio_blkg: u32,
    /// `bio.bi_iter.bi_sector`
    pub bio_sector: u32,
    /// `bio.bi_iter.bi_size`
    pub bio_size: u32,
    /// `bio.bi_ioprio`
    pub bio_ioprio: u32,
    /// `block_device.bd_disk`
    pub bdev_disk: u32,
    /// `blkcg_gq.blkcg`
    pub blkg_blkcg: u32,
    /// `blkcg.css.cgroup`
    pub blkcg_cgroup: u32,
    /// `cgroup.kn`
    pub cgroup_kn: u32,
    /// `cgroup.root`
    pub cgroup_root: u32,
    /// `cgroup_root.hierarchy_id`
    pub root_hierarchy: u32,
    /// `kernfs_node.id`
    pub kn_id: u32,
    /// `blk_mq_hw_ctx.sched_tags`
    pub hctx_sched_tags: u32,
    /// `blk_mq_hw_ctx.queue`
    pub hctx_queue: u32,
    /// `blk_mq_tags.nr_tags`
    pub tags_nr: u32,
    /// `blk_mq_tags.static_rqs`
    pub tags_static: u32,
}

/// What user space tells the programs once, before they are loaded: constants to the verifier.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Config {
    /// Where members are.
    pub off: Offsets,
    /// Numbers of operations and flags.
    pub bits: OpBits,
    /// `RQF_FLUSH_SEQ` as a mask.
    pub flush_seq: u32,
    /// Rows of the slot table minus 1; every table has a power of two.
    pub slots_mask: u32,
    /// Rows of the bio table minus 1.
    pub bios_mask: u32,
    /// Rows of the group table minus 1.
    pub groups_mask: u32,
    /// Rows of the device table minus 1.
    pub devs_mask: u32,
    /// Rows of the hardware queue table minus 1.
    pub hctxs_mask: u32,
    /// Shards minus 1 of group rows and histograms; a power of two minus 1.
    pub shards_mask: u32,
    /// 1 when only the devices of the allow table are followed.
    pub filtered: u32,
}

/// Rows of the allow table of devices; a power of two.
pub const ALLOW_ROWS: u32 = 1024;

/// Index into the control array: CLOCK_MONOTONIC in ns when every hook was attached; 0 before. Requests that are
/// older are expected to be unknown.
pub const CTRL_ARMED: u32 = 0;
/// Entries of the control array.
pub const CTRL_COUNT: u32 = 1;

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
    assert!(size_of::<BioSlot>() == 88);
    assert!(size_of::<GroupRow>() == 384);
    assert!(core::mem::offset_of!(GroupRow, finished) == 64);
    assert!(size_of::<DevRow>() == 24);
    assert!(size_of::<HistRow>() == 512);
    assert!(core::mem::offset_of!(Slot, life) == 16);
    assert!(core::mem::offset_of!(Slot, owner) == 56);
};
