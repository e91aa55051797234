//! What the programs are told about this kernel, and how large their tables are.

use io_starve_common::{
    class::OpBits,
    config::{ABSENT, Config, Offsets},
};

use super::{btf::Btf, tracefs::JBD2};

/// A member that the programs cannot do without is not there.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "this kernel's {of} has no member {member}; io-starve {} does not know this kernel yet: please report the output of `uname -r`",
    env!("CARGO_PKG_VERSION")
)]
pub struct UnknownKernel {
    of: String,
    member: String,
}

/// How large the tables are; every number is a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Requests in flight.
    pub slots: u32,
    /// Bios in admission.
    pub bios: u32,
    /// (device, owner, class) rows.
    pub groups: u32,
    /// Disks.
    pub devs: u32,
    /// (device, owner) rows of device time.
    pub owners: u32,
    /// Hardware queues.
    pub hctxs: u32,
    /// Copies of group rows and histograms, to keep CPUs apart.
    pub shards: u32,
    /// Every CPU has a shard of its own.
    pub exclusive: bool,
}

impl Sizes {
    /// Sizes for a machine with this many CPUs, disks and request tags (scheduler and driver tags of all queues).
    ///
    /// Slots are four times the tags, since a request keeps its slot for good: a quarter full, fewer than one
    /// request in 10^5 finds all of its places taken. The most that this gives is 59 MiB.
    pub fn for_machine(cpus: u32, disks: u32, tags: u32) -> Sizes {
        let power =
            |n: u32, lo: u32, hi: u32| n.checked_next_power_of_two().unwrap_or(hi).clamp(lo, hi);
        // Up to 16 CPUs have a shard each. Beyond that, and with many disks, room for many owners is worth more.
        let shards = match power(cpus, 1, 32) {
            n if n > 16 || disks > 64 => n.min(4),
            n if disks > 16 => n.min(8),
            n => n,
        };
        Sizes {
            slots: power(tags.saturating_mul(4), 4096, 131_072),
            bios: power(cpus.saturating_mul(64), 1024, 16_384),
            groups: if shards > 8 { 8192 } else { 16_384 },
            devs: power(disks.saturating_mul(3), 64, 512),
            // Fewer than classes: only disks where weights matter need them. 512 KiB.
            owners: 4096,
            hctxs: power(cpus.saturating_mul(disks), 256, 8192),
            shards,
            exclusive: shards >= cpus,
        }
    }

    /// Memory of all tables in bytes.
    pub fn bytes(&self) -> u64 {
        use io_starve_common::service::{DeviceClock, OwnerClock};
        use io_starve_common::wire::*;
        let rows = |n: u32, size: usize| u64::from(n) * size.next_multiple_of(8) as u64;
        rows(self.slots, size_of::<Slot>())
            + rows(self.bios, size_of::<BioSlot>())
            + rows(self.groups, size_of::<GroupName>())
            + rows(self.counts(), size_of::<GroupRow>())
            + rows(
                self.devs,
                size_of::<DevRow>() + size_of::<DeviceClock>() + 8,
            )
            + rows(self.owners, size_of::<OwnerClock>())
            + rows(self.hctxs, size_of::<HctxRow>())
            + rows(self.hists(), size_of::<HistRow>())
            + rows(ALLOW_ROWS, 8)
            + u64::from(CGROUP_RING_BYTES)
            + (LossKind::COUNT as u64 + u64::from(CTRL_COUNT)) * 8
            + spans()
    }

    /// Rows of the table of group counters.
    pub fn counts(&self) -> u32 {
        self.groups * self.shards
    }

    /// Rows of the histogram table.
    pub fn hists(&self) -> u32 {
        use io_starve_common::{class::Class, wire::STAGES};
        self.devs * Class::COUNT as u32 * STAGES as u32 * self.shards
    }
}

/// fsyncs and commits that are shorter are only counted, in ns: a tenth of what makes a finding.
const SPAN_MIN_NS: u32 = 20_000_000;
/// Memory of what is told one by one, in bytes.
fn spans() -> u64 {
    use io_starve_common::{dirty::*, span::*};
    let rows = |n: u32, size: usize| u64::from(n) * size as u64;
    rows(SYNC_ROWS, size_of::<SyncSlot>())
        + rows(TOTALS_ROWS, size_of::<SyncTotals>())
        + rows(JOURNAL_ROWS, size_of::<JournalRow>())
        + rows(HELD_ROWS, size_of::<HeldRow>())
        + rows(PAUSE_ROWS, size_of::<PauseRow>())
        + u64::from(SPAN_RING_BYTES)
}

/// Size of the ring for cgroup names, as the object has it.
pub const CGROUP_RING_BYTES: u32 = 256 * 1024;

/// Resolves everything by name.
///
/// # Errors
///
/// When a member without which nothing works is not there.
pub fn config(btf: &Btf, sizes: &Sizes, filtered: bool) -> Result<Config, UnknownKernel> {
    let need = |of: &str, member: &str| {
        btf.offset(of, member).ok_or_else(|| UnknownKernel {
            of: of.to_owned(),
            member: member.to_owned(),
        })
    };
    let either = |of: &str, member: &str| btf.offset(of, member).unwrap_or(ABSENT);
    let off = Offsets {
        rq_q: need("request", "q")?,
        rq_disk: either("request", "rq_disk"),
        rq_cmd_flags: need("request", "cmd_flags")?,
        rq_flags: need("request", "rq_flags")?,
        rq_start: need("request", "start_time_ns")?,
        rq_sector: need("request", "__sector")?,
        rq_len: need("request", "__data_len")?,
        rq_bio: need("request", "bio")?,
        rq_hctx: need("request", "mq_hctx")?,
        rq_ref: need("request", "ref")?,
        rq_state: need("request", "state")?,
        rq_ioprio: either("request", "ioprio"),
        q_disk: either("request_queue", "disk"),
        q_mq_ops: need("request_queue", "mq_ops")?,
        disk_major: need("gendisk", "major")?,
        disk_minor: need("gendisk", "first_minor")?,
        disk_queue: need("gendisk", "queue")?,
        bio_disk: either("bio", "bi_disk"),
        bio_bdev: either("bio", "bi_bdev"),
        bio_opf: need("bio", "bi_opf")?,
        bio_blkg: need("bio", "bi_blkg")?,
        bio_sector: need("bio", "bi_iter.bi_sector")?,
        bio_size: need("bio", "bi_iter.bi_size")?,
        bio_ioprio: need("bio", "bi_ioprio")?,
        bdev_disk: need("block_device", "bd_disk")?,
        blkg_blkcg: need("blkcg_gq", "blkcg")?,
        blkcg_serial: either("blkcg", "css.serial_nr"),
        blkcg_cgroup: need("blkcg", "css.cgroup")?,
        cgroup_kn: need("cgroup", "kn")?,
        cgroup_root: need("cgroup", "root")?,
        root_hierarchy: need("cgroup_root", "hierarchy_id")?,
        kn_id: need("kernfs_node", "id")?,
        hctx_sched_tags: need("blk_mq_hw_ctx", "sched_tags")?,
        hctx_queue: need("blk_mq_hw_ctx", "queue")?,
        tags_nr: need("blk_mq_tags", "nr_tags")?,
        tags_static: need("blk_mq_tags", "static_rqs")?,
        task_cgroups: either("task_struct", "cgroups"),
        task_state: btf
            .offset("task_struct", "__state")
            .unwrap_or_else(|| either("task_struct", "state")),
        task_flags: either("task_struct", "flags"),
        task_pid: either("task_struct", "pid"),
        task_switches: either("task_struct", "nvcsw"),
        task_journal: either("task_struct", "journal_info"),
        iter_seq: either("bpf_iter_meta", "seq"),
        cgroups_io: match (
            btf.offset("css_set", "subsys"),
            btf.enumerator("io_cgrp_id"),
        ) {
            (Some(array), Some(i)) => array + 8 * i,
            _ => ABSENT,
        },
        css_cgroup: either("cgroup_subsys_state", "cgroup"),
        file_inode: either("file", "f_inode"),
        file_dentry: either("file", "f_path.dentry"),
        dentry_name: either("dentry", "d_name.name"),
        inode_ino: either("inode", "i_ino"),
        inode_sb: either("inode", "i_sb"),
        inode_wb: either("inode", "i_wb"),
        wb_css: either("bdi_writeback", "blkcg_css"),
        sb_dev: either("super_block", "s_dev"),
        mapping_host: either("address_space", "host"),
        q_td: either("request_queue", "td"),
        q_blkgs: either("request_queue", "blkg_list"),
        blkg_q_node: either("blkcg_gq", "q_node"),
        blkg_pd: either("blkcg_gq", "pd"),
        td_queued: either("throtl_data", "nr_queued"),
        tg_td: either("throtl_grp", "td"),
        tg_queues: either("throtl_grp", "service_queue.queued"),
        tg_queued: either("throtl_grp", "service_queue.nr_queued"),
        tg_queued_bps: either("throtl_grp", "service_queue.nr_queued_bps"),
        tg_queued_iops: either("throtl_grp", "service_queue.nr_queued_iops"),
        qnode_bios: btf
            .offset("throtl_qnode", "bios")
            .unwrap_or_else(|| either("throtl_qnode", "bios_bps")),
        qnode_bios_iops: either("throtl_qnode", "bios_iops"),
        bio_vec: either("bio", "bi_io_vec"),
        page_head: either("page", "compound_head"),
        page_mapping: btf
            .offset("folio", "mapping")
            .unwrap_or_else(|| either("page", "mapping")),
        // System V on x86-64, and what arm64 has: arch/*/include/asm/ptrace.h.
        regs_first: btf
            .offset("pt_regs", "di")
            .unwrap_or_else(|| either("pt_regs", "regs")),
        regs_second: btf
            .offset("pt_regs", "si")
            .unwrap_or_else(|| btf.offset("pt_regs", "regs").map_or(ABSENT, |at| at + 8)),
        regs_fourth: btf
            .offset("pt_regs", "cx")
            .unwrap_or_else(|| btf.offset("pt_regs", "regs").map_or(ABSENT, |at| at + 24)),
        regs_result: btf
            .offset("pt_regs", "ax")
            .unwrap_or_else(|| either("pt_regs", "regs")),
        jbd2_dev: JBD2[0].1,
        jbd2_tid: JBD2[1].1,
        wb_bdi: either("bdi_writeback", "bdi"),
        bdi_id: either("backing_dev_info", "id"),
        bdi_name: either("backing_dev_info", "dev_name"),
        dtc_limit: either("dirty_throttle_control", "thresh"),
        dtc_background: either("dirty_throttle_control", "bg_thresh"),
        dtc_dirty: either("dirty_throttle_control", "dirty"),
        dtc_bdi_limit: either("dirty_throttle_control", "wb_thresh"),
        dtc_bdi_dirty: either("dirty_throttle_control", "wb_dirty"),
        task_comm: either("task_struct", "comm"),
        task_kthread: btf
            .offset("task_struct", "worker_private")
            .unwrap_or_else(|| either("task_struct", "set_child_tid")),
        kthread_data: either("kthread", "data"),
        worker_desc: either("worker", "desc"),
    };
    if off.rq_disk == ABSENT && off.q_disk == ABSENT {
        need("request_queue", "disk")?;
    }
    if off.bio_disk == ABSENT && off.bio_bdev == ABSENT {
        need("bio", "bi_bdev")?;
    }
    let op = |name: &str| btf.enumerator(name).unwrap_or(OpBits::ABSENT);
    let bit = |name: &str, usual: u32| 1 << btf.enumerator(name).unwrap_or(usual).min(31);
    Ok(Config {
        off,
        bits: OpBits {
            write: btf.enumerator("REQ_OP_WRITE").unwrap_or(1),
            flush: op("REQ_OP_FLUSH"),
            discard: op("REQ_OP_DISCARD"),
            secure_erase: op("REQ_OP_SECURE_ERASE"),
            zone_append: op("REQ_OP_ZONE_APPEND"),
            // Bits 11, 17 and 18 on every kernel from 5.10 to 7.3.
            sync_mask: bit("__REQ_SYNC", 11) | bit("__REQ_FUA", 17) | bit("__REQ_PREFLUSH", 18),
        },
        // An enum since 6.12; a macro with bit 4 before.
        flush_seq: bit("__RQF_FLUSH_SEQ", 4),
        slots_mask: sizes.slots - 1,
        bios_mask: sizes.bios - 1,
        groups_mask: sizes.groups - 1,
        devs_mask: sizes.devs - 1,
        hctxs_mask: sizes.hctxs - 1,
        owners_mask: sizes.owners - 1,
        shards_mask: sizes.shards - 1,
        // From 6.1 on the kernel skips, and counts, a tracepoint program that would interrupt itself (__bpf_trace_run in
        // kernel/trace/bpf_trace.c); before, a completion may interrupt a completion.
        exclusive: u32::from(sizes.exclusive && btf.has_function("bpf_prog_inc_misses_counter")),
        filtered: u32::from(filtered),
        span_min_ns: SPAN_MIN_NS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_stays_inside_the_budget() {
        for cpus in [1, 2, 4, 8, 12, 16, 17, 64, 256, u32::MAX] {
            for disks in [0, 1, 16, 17, 64, 65, 4096, u32::MAX] {
                let sizes = Sizes::for_machine(cpus, disks, u32::MAX);
                assert!(
                    sizes.bytes() <= 64 << 20,
                    "{cpus} CPUs, {disks} disks: {}",
                    sizes.bytes()
                );
                assert_eq!(sizes.exclusive, sizes.shards >= cpus);
            }
        }
    }

    #[test]
    fn a_small_machine_takes_little_and_has_room_for_its_tags() {
        let sizes = Sizes::for_machine(2, 12, 12 * 512);
        assert!(sizes.slots >= 4 * 12 * 512);
        assert_eq!(sizes.shards, 2);
        assert!(sizes.bytes() < 20 << 20, "{}", sizes.bytes());
    }
}
