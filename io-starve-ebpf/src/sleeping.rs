//! Tasks in uninterruptible sleep: read by user space when a journal is slow, and only then. Nothing is attached to the scheduler.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_seq_write;
use io_starve_common::span::{PF_KTHREAD, SleepingTask, TASK_NOLOAD, TASK_UNINTERRUPTIBLE};

use crate::{
    kernel::{Ptr, load, owner_of_task},
    maps::conf,
};

/// `struct bpf_iter__task` (kernel/bpf/task_iter.c); each member takes 8 bytes.
#[repr(C)]
struct IterTask {
    meta: Ptr,
    task: Ptr,
}

// kernel/bpf/task_iter.c, since 5.8. The kernel calls it for each thread, and at the end without one.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub fn sleeping_task(ctx: *mut c_void) -> i32 {
    let ctx = ctx.cast::<IterTask>();
    // SAFETY: the context of this type of program; the verifier knows it.
    let (meta, task) = unsafe { ((*ctx).meta, (*ctx).task) };
    if task.is_null() {
        return 0;
    }
    let state = load::<u32, true>(task, conf!(off.task_state));
    if state & TASK_UNINTERRUPTIBLE == 0 || state & TASK_NOLOAD != 0 {
        return 0;
    }
    if load::<u32, true>(task, conf!(off.task_flags)) & PF_KTHREAD != 0 {
        return 0;
    }
    let mut found = SleepingTask {
        owner: owner_of_task(task),
        switches: load::<u64, true>(task, conf!(off.task_switches)),
        tid: load::<u32, true>(task, conf!(off.task_pid)),
        handle: u32::from(load::<u64, true>(task, conf!(off.task_journal)) != 0),
    };
    let seq = load::<Ptr, true>(meta, conf!(off.iter_seq));
    // SAFETY: a local; the buffer of the reader grows when it is full.
    unsafe {
        bpf_seq_write(
            seq.cast_mut().cast(),
            (&raw mut found).cast(),
            size_of::<SleepingTask>() as u32,
        );
    }
    0
}
