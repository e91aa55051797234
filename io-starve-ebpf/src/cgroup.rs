//! Names of cgroups that may be gone before anybody can look them up.

use aya_ebpf::{
    helpers::bpf_probe_read_kernel_str_bytes, macros::raw_tracepoint,
    programs::RawTracePointContext,
};
use io_starve_common::wire::{CGROUP_PATH, CgroupEvent};

use crate::{
    kernel::{Ptr, cgroup_id, load},
    maps::{CGROUPS, conf},
};

#[inline(always)]
fn tell(cgroup: Ptr, path: *const u8, gone: u32) {
    let root = load::<Ptr, false>(cgroup, conf!(off.cgroup_root));
    let id = cgroup_id::<false>(cgroup);
    let hierarchy = load::<u32, false>(root, conf!(off.root_hierarchy));
    // A full ring loses a name, never a count: user space walks the hierarchy when it meets an unknown id.
    if let Some(mut entry) = CGROUPS.reserve::<CgroupEvent>(0) {
        let event = entry.as_mut_ptr();
        // SAFETY: reserved for one event, submitted below; every byte is written.
        unsafe {
            (*event).id = id;
            (*event).hierarchy = hierarchy;
            (*event).gone = gone;
            (&raw mut (*event).path).write([0; CGROUP_PATH]);
            let _ = bpf_probe_read_kernel_str_bytes(path, &mut (*event).path);
        }
        entry.submit(0);
    }
}

// kernel/cgroup/cgroup.c cgroup_mkdir: TP_PROTO(struct cgroup *cgrp, const char *path), from 4.19.
#[raw_tracepoint(tracepoint = "cgroup_mkdir")]
pub fn raw_cgroup_mkdir(ctx: RawTracePointContext) -> i32 {
    tell(ctx.arg::<Ptr>(0), ctx.arg::<*const u8>(1), 0);
    0
}

// kernel/cgroup/cgroup.c cgroup_rmdir: the same.
#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
pub fn raw_cgroup_rmdir(ctx: RawTracePointContext) -> i32 {
    tell(ctx.arg::<Ptr>(0), ctx.arg::<*const u8>(1), 1);
    0
}
