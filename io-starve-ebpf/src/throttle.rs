//! Bios that blk-throttle holds, by the cgroup whose limit holds them. Nothing is attached: the queue of each limit is looked at
//! when user space asks, on disks that have limits.

use core::ffi::c_void;

use aya_ebpf::programs::RawTracePointContext;
use io_starve_common::{
    config::ABSENT,
    span::{HELD_ROWS, HeldRow, WALK_CURSOR, WALK_FILLED},
};

use crate::{
    kernel::{Payer, Ptr, cgroup_id, dev_of_disk, dev_of_inode, disk_of_bio, load},
    maps::{HELD, WALK, conf},
};

/// `BLKCG_MAX_POLS` (include/linux/blkdev.h): 5 to 6 on 5.10 to 7.3.
const POLICIES: u32 = 6;
/// Groups looked at in one run.
const GROUPS_A_RUN: u32 = 4;

/// Groups of a queue, a few at a run. Argument: a hardware queue of it. Goes on from [`WALK_CURSOR`], where 0 begins, and leaves there where
/// the next run must go on; 0 again at the end. Returns 1 when there is more.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
pub fn held(ctx: *mut c_void) -> i32 {
    let ctx = RawTracePointContext::new(ctx);
    let (Some(cursor), Some(filled)) =
        (WALK.get_ptr_mut(WALK_CURSOR), WALK.get_ptr_mut(WALK_FILLED))
    else {
        return 0;
    };
    let q = load::<Ptr, false>(ctx.arg::<u64>(0) as Ptr, conf!(off.hctx_queue));
    // SAFETY: map values of one word.
    unsafe {
        let mut node = *cursor as Ptr;
        *cursor = 0;
        let td = load::<Ptr, false>(q, conf!(off.q_td));
        if q.is_null() || td.is_null() {
            return 0;
        }
        let waiting = load::<u32, false>(td, conf!(off.td_queued))
            | load::<u32, false>(td, conf!(off.td_queued) + 4);
        let head = q.add(conf!(off.q_blkgs) as usize);
        if waiting == 0 {
            return 0;
        }
        if node.is_null() {
            node = load::<Ptr, false>(head, 0);
        }
        for _ in 0..GROUPS_A_RUN {
            if node == head || node.is_null() {
                return 0;
            }
            look(node.sub(conf!(off.blkg_q_node) as usize), td, filled);
            node = load::<Ptr, false>(node, 0);
        }
        *cursor = node as u64;
        1
    }
}

/// Adds what the limits of one group hold.
#[inline(always)]
unsafe fn look(blkg: Ptr, td: Ptr, filled: *mut u64) {
    for policy in 0..POLICIES {
        let tg = load::<Ptr, false>(blkg, conf!(off.blkg_pd) + policy * 8);
        // Which number blk-throttle has among the policies is told by its data pointing back.
        if tg.is_null() || load::<Ptr, false>(tg, conf!(off.tg_td)) != td {
            continue;
        }
        for write in 0..2 {
            let count = queued(tg, write);
            if count == 0 {
                continue;
            }
            // SAFETY: map values of the caller.
            unsafe {
                let at = *filled;
                *filled = at + 1;
                if at < HELD_ROWS as u64
                    && let Some(row) = HELD.get_ptr_mut(at as u32)
                {
                    *row = first(tg, write);
                    (*row).group = group_of(blkg);
                    (*row).count = count;
                    (*row).write = write;
                }
            }
        }
        return;
    }
}

#[inline(always)]
fn group_of(blkg: Ptr) -> u64 {
    let blkcg = load::<Ptr, false>(blkg, conf!(off.blkg_blkcg));
    cgroup_id::<false>(load::<Ptr, false>(blkcg, conf!(off.blkcg_cgroup)))
}

/// How many bios wait for the limits of this group.
#[inline(always)]
fn queued(tg: Ptr, write: u32) -> u32 {
    if conf!(off.tg_queued) != ABSENT {
        return load::<u32, false>(tg, conf!(off.tg_queued) + write * 4);
    }
    load::<u32, false>(tg, conf!(off.tg_queued_bps) + write * 4)
        + load::<u32, false>(tg, conf!(off.tg_queued_iops) + write * 4)
}

/// Owner and file of the first of them (block/blk-throttle.h: a list of `throtl_qnode`, each with a list of bios).
#[inline(always)]
fn first(tg: Ptr, write: u32) -> HeldRow {
    let mut row = HeldRow::default();
    let list = conf!(off.tg_queues) + write * 16;
    let qnode = load::<Ptr, false>(tg, list);
    // SAFETY: an address, only compared.
    if qnode.is_null() || qnode == unsafe { tg.add(list as usize) } {
        return row;
    }
    let mut bio = load::<Ptr, false>(qnode, conf!(off.qnode_bios));
    if bio.is_null() && conf!(off.qnode_bios_iops) != ABSENT {
        bio = load::<Ptr, false>(qnode, conf!(off.qnode_bios_iops));
    }
    if bio.is_null() {
        return row;
    }
    row.dev = dev_of_disk::<false>(disk_of_bio::<false>(bio));
    row.owner = Payer::<false>::of(bio).owner();
    let vec = load::<Ptr, false>(bio, conf!(off.bio_vec));
    if vec.is_null() {
        return row;
    }
    // `bv_page` is the first member of `bio_vec`.
    let mut page = load::<Ptr, false>(vec, 0);
    let head = load::<u64, false>(page, conf!(off.page_head));
    if head & 1 != 0 {
        page = (head & !1) as Ptr;
    }
    let mapping = load::<u64, false>(page, conf!(off.page_mapping));
    // PAGE_MAPPING_FLAGS (include/linux/page-flags.h): anonymous memory has no file.
    if mapping == 0 || mapping & 3 != 0 {
        return row;
    }
    let inode = load::<Ptr, false>(mapping as Ptr, conf!(off.mapping_host));
    if !inode.is_null() {
        row.ino = load::<u64, false>(inode, conf!(off.inode_ino));
        row.fs = dev_of_inode(inode);
    }
    row
}
