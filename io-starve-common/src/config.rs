//! What the programs are told about the running kernel before they are loaded.

use crate::class::OpBits;

/// The value of an offset that the running kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Offsets in bytes of kernel structure members, resolved by name from the running kernel's BTF.
/// [`ABSENT`] where a member does not exist. What every request needs comes first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Offsets {
    /// `request.q`
    pub rq_q: u32,
    /// `request.start_time_ns`
    pub rq_start: u32,
    /// `request.__data_len`
    pub rq_len: u32,
    /// `request.bio`
    pub rq_bio: u32,
    /// `request.cmd_flags`
    pub rq_cmd_flags: u32,
    /// `request.ioprio`, up to 6.11
    pub rq_ioprio: u32,
    /// `request.__sector`
    pub rq_sector: u32,
    /// `bio.bi_blkg`
    pub bio_blkg: u32,
    /// `blkcg_gq.blkcg`
    pub blkg_blkcg: u32,
    /// `blkcg.css.serial_nr`
    pub blkcg_serial: u32,
    /// `request.rq_disk`, up to 5.15
    pub rq_disk: u32,
    /// `request.rq_flags`
    pub rq_flags: u32,
    /// `request.mq_hctx`
    pub rq_hctx: u32,
    /// `request.ref`
    pub rq_ref: u32,
    /// `request.state`
    pub rq_state: u32,
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
    /// `bio.bi_iter.bi_sector`
    pub bio_sector: u32,
    /// `bio.bi_iter.bi_size`
    pub bio_size: u32,
    /// `bio.bi_ioprio`
    pub bio_ioprio: u32,
    /// `block_device.bd_disk`
    pub bdev_disk: u32,
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
    /// `task_struct.cgroups`
    pub task_cgroups: u32,
    /// `task_struct.__state` or, up to 5.13, `task_struct.state`
    pub task_state: u32,
    /// `task_struct.flags`
    pub task_flags: u32,
    /// `task_struct.pid`
    pub task_pid: u32,
    /// `task_struct.nvcsw`
    pub task_switches: u32,
    /// `task_struct.journal_info`
    pub task_journal: u32,
    /// `bpf_iter_meta.seq`
    pub iter_seq: u32,
    /// `css_set.subsys`, of the controller `io` (`blkio`)
    pub cgroups_io: u32,
    /// `cgroup_subsys_state.cgroup`
    pub css_cgroup: u32,
    /// `file.f_inode`
    pub file_inode: u32,
    /// `file.f_path.dentry`
    pub file_dentry: u32,
    /// `dentry.d_name.name`
    pub dentry_name: u32,
    /// `inode.i_ino`
    pub inode_ino: u32,
    /// `inode.i_sb`
    pub inode_sb: u32,
    /// `inode.i_wb`; not without CONFIG_CGROUP_WRITEBACK
    pub inode_wb: u32,
    /// `bdi_writeback.blkcg_css`
    pub wb_css: u32,
    /// `super_block.s_dev`
    pub sb_dev: u32,
    /// `address_space.host`
    pub mapping_host: u32,
    /// `request_queue.td`; not without CONFIG_BLK_DEV_THROTTLING
    pub q_td: u32,
    /// `request_queue.blkg_list`
    pub q_blkgs: u32,
    /// `blkcg_gq.q_node`
    pub blkg_q_node: u32,
    /// `blkcg_gq.pd`
    pub blkg_pd: u32,
    /// `throtl_data.nr_queued`
    pub td_queued: u32,
    /// `throtl_grp.td`
    pub tg_td: u32,
    /// `throtl_grp.service_queue.queued`
    pub tg_queues: u32,
    /// `throtl_grp.service_queue.nr_queued`, up to 6.14
    pub tg_queued: u32,
    /// `throtl_grp.service_queue.nr_queued_bps`, since
    pub tg_queued_bps: u32,
    /// `throtl_grp.service_queue.nr_queued_iops`, since
    pub tg_queued_iops: u32,
    /// `throtl_qnode.bios` or, since 6.15, `throtl_qnode.bios_bps`
    pub qnode_bios: u32,
    /// `throtl_qnode.bios_iops`, since 6.15
    pub qnode_bios_iops: u32,
    /// `bio.bi_io_vec`
    pub bio_vec: u32,
    /// `page.compound_head`
    pub page_head: u32,
    /// `folio.mapping` or, before 5.16, `page.mapping`
    pub page_mapping: u32,
    /// First argument of a function in `pt_regs`
    pub regs_first: u32,
    /// Second argument of a function in `pt_regs`
    pub regs_second: u32,
    /// Fourth argument of a function in `pt_regs`
    pub regs_fourth: u32,
    /// What a function returned, in `pt_regs`
    pub regs_result: u32,
    /// `dev` in the records of the classic tracepoints of jbd2
    pub jbd2_dev: u32,
    /// `transaction` in them
    pub jbd2_tid: u32,
    /// `bdi_writeback.bdi`
    pub wb_bdi: u32,
    /// `backing_dev_info.id`
    pub bdi_id: u32,
    /// `backing_dev_info.dev_name`
    pub bdi_name: u32,
    /// `dirty_throttle_control.thresh`, as the next five for the tracepoint from 6.13 on
    pub dtc_limit: u32,
    /// `dirty_throttle_control.bg_thresh`
    pub dtc_background: u32,
    /// `dirty_throttle_control.dirty`
    pub dtc_dirty: u32,
    /// `dirty_throttle_control.wb_thresh`
    pub dtc_bdi_limit: u32,
    /// `dirty_throttle_control.wb_dirty`
    pub dtc_bdi_dirty: u32,
    /// `task_struct.comm`
    pub task_comm: u32,
    /// `task_struct.worker_private` or, before 5.17, `task_struct.set_child_tid`: the `kthread` of a kernel thread
    pub task_kthread: u32,
    /// `kthread.data`: the `worker` of a workqueue's thread
    pub kthread_data: u32,
    /// `worker.desc`: the name of the workqueue whose work it does
    pub worker_desc: u32,
}

/// What user space tells the programs once, before they are loaded: constants to the verifier. What every request needs
/// comes first, in few cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Config {
    /// Rows of the slot table minus 1; every table has a power of two.
    pub slots_mask: u32,
    /// Rows of the group table minus 1.
    pub groups_mask: u32,
    /// Shards minus 1 of group rows and histograms; a power of two minus 1.
    pub shards_mask: u32,
    /// 1 when every CPU has a shard of its own and this kernel never lets a program interrupt itself: then counters are
    /// added to without an atomic.
    pub exclusive: u32,
    /// 1 when only the devices of the allow table are followed.
    pub filtered: u32,
    /// Numbers of operations and flags.
    pub bits: OpBits,
    /// Where members are.
    pub off: Offsets,
    /// `RQF_FLUSH_SEQ` as a mask.
    pub flush_seq: u32,
    /// Rows of the bio table minus 1.
    pub bios_mask: u32,
    /// Rows of the device table minus 1.
    pub devs_mask: u32,
    /// Rows of the hardware queue table minus 1.
    pub hctxs_mask: u32,
    /// Rows of the table of owners' device time minus 1.
    pub owners_mask: u32,
    /// Spans that are shorter are only counted. ns.
    pub span_min_ns: u32,
}
