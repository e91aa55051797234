//! Reading kernel structures at the offsets that user space found in BTF.
//!
//! `PLAIN` programs (tp_btf) load directly: the verifier knows the types, a fault reads 0, and it costs about 0.6 of the
//! helper. The others go through bpf_probe_read_kernel.

use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_probe_read_kernel};
use io_starve_common::{
    class::{Class, OpBits, classify},
    config::ABSENT,
    wire::{ALLOW_ROWS, OWNER_UNKNOWN, PROBES, dev_key, probe_start},
};

use crate::maps::{ALLOW, conf};

/// A kernel address.
pub type Ptr = *const u8;

/// Loads a member.
#[inline(always)]
pub fn load<T: Copy, const PLAIN: bool>(base: Ptr, offset: u32) -> T {
    // SAFETY: the verifier allows only reads that it can prove or that fault safely.
    unsafe {
        let at = base.add(offset as usize).cast::<T>();
        if PLAIN {
            core::ptr::read_volatile(at)
        } else {
            // What cannot be read is filled with zeroes by the helper; to ask whether it could would double the verifier's
            // ways at each load.
            let mut value = MaybeUninit::<T>::uninit();
            bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, at.cast());
            value.assume_init()
        }
    }
}

/// The number of a kernel address. In tp_btf programs the verifier allows no arithmetic on a typed pointer; once a
/// byte of its spilled copy is overwritten it is plain data. The top byte of every kernel address is 0xff already.
#[inline(always)]
pub fn address(p: Ptr) -> u64 {
    let mut spilled = 0u64;
    let at = &raw mut spilled;
    // SAFETY: three accesses to a local.
    unsafe {
        core::ptr::write_volatile(at.cast::<Ptr>(), p);
        core::ptr::write_volatile(at.cast::<u8>().add(7), 0xff);
        core::ptr::read_volatile(at)
    }
}

/// What a request or bio is charged to, as its `blkcg`: [`Payer::owner`] says whom that is, at some cost.
#[derive(Clone, Copy)]
pub struct Payer<const PLAIN: bool>(Ptr);

impl<const PLAIN: bool> Payer<PLAIN> {
    /// Of a bio, which may be NULL.
    #[inline(always)]
    pub fn of(bio: Ptr) -> Self {
        if bio.is_null() {
            return Payer(core::ptr::null());
        }
        let blkg = load::<Ptr, PLAIN>(bio, conf!(off.bio_blkg));
        if blkg.is_null() {
            return Payer(core::ptr::null());
        }
        Payer(load::<Ptr, PLAIN>(blkg, conf!(off.blkg_blkcg)))
    }

    /// A number that no other payer ever has; 0 when there is none.
    #[inline(always)]
    pub fn serial(self) -> u64 {
        if self.0.is_null() || conf!(off.blkcg_serial) == ABSENT {
            return 0;
        }
        load::<u64, PLAIN>(self.0, conf!(off.blkcg_serial))
    }

    /// Id of the cgroup.
    #[inline(always)]
    pub fn owner(self) -> u64 {
        if self.0.is_null() {
            return OWNER_UNKNOWN;
        }
        cgroup_id::<PLAIN>(load::<Ptr, PLAIN>(self.0, conf!(off.blkcg_cgroup)))
    }
}

/// `gendisk` of a request (include/linux/blk-mq.h; `rq_disk` went in 5.16).
#[inline(always)]
pub fn disk_of_request<const PLAIN: bool>(rq: Ptr, q: Ptr) -> Ptr {
    if conf!(off.rq_disk) != ABSENT {
        load::<Ptr, PLAIN>(rq, conf!(off.rq_disk))
    } else {
        load::<Ptr, PLAIN>(q, conf!(off.q_disk))
    }
}

/// `gendisk` of a bio (include/linux/blk_types.h; `bi_disk` became `bi_bdev` in 5.12).
#[inline(always)]
pub fn disk_of_bio<const PLAIN: bool>(bio: Ptr) -> Ptr {
    if conf!(off.bio_disk) != ABSENT {
        load::<Ptr, PLAIN>(bio, conf!(off.bio_disk))
    } else {
        let bdev = load::<Ptr, PLAIN>(bio, conf!(off.bio_bdev));
        load::<Ptr, PLAIN>(bdev, conf!(off.bdev_disk))
    }
}

/// The kernel's `dev_t` of a disk.
#[inline(always)]
pub fn dev_of_disk<const PLAIN: bool>(disk: Ptr) -> u32 {
    let major = load::<u32, PLAIN>(disk, conf!(off.disk_major));
    let minor = load::<u32, PLAIN>(disk, conf!(off.disk_minor));
    major << 20 | minor & 0xf_ffff
}

/// Id of a cgroup: that of its kernfs node, the inode number of its directory.
#[inline(always)]
pub fn cgroup_id<const PLAIN: bool>(cgroup: Ptr) -> u64 {
    let kn = load::<Ptr, PLAIN>(cgroup, conf!(off.cgroup_kn));
    load::<u64, PLAIN>(kn, conf!(off.kn_id))
}

/// The cgroup that the I/O of the running task is charged to.
#[inline(always)]
pub fn current_owner() -> u64 {
    // SAFETY: a helper without arguments.
    owner_of_task(unsafe { bpf_get_current_task() } as Ptr)
}

/// The cgroup that the I/O of a task is charged to.
#[inline(always)]
pub fn owner_of_task(task: Ptr) -> u64 {
    let set = load::<Ptr, false>(task, conf!(off.task_cgroups));
    let css = load::<Ptr, false>(set, conf!(off.cgroups_io));
    if css.is_null() {
        return OWNER_UNKNOWN;
    }
    cgroup_id::<false>(load::<Ptr, false>(css, conf!(off.css_cgroup)))
}

/// `s_dev` of an inode's filesystem.
#[inline(always)]
pub fn dev_of_inode(inode: Ptr) -> u32 {
    let sb = load::<Ptr, false>(inode, conf!(off.inode_sb));
    load::<u32, false>(sb, conf!(off.sb_dev))
}

/// The class of these flags on this kernel.
#[inline(always)]
pub fn class_of(flags: u32) -> Class {
    let bits = OpBits {
        write: conf!(bits.write),
        flush: conf!(bits.flush),
        discard: conf!(bits.discard),
        secure_erase: conf!(bits.secure_erase),
        zone_append: conf!(bits.zone_append),
        sync_mask: conf!(bits.sync_mask),
    };
    classify(flags, &bits)
}

/// `IOPRIO_PRIO_CLASS(ioprio) == IOPRIO_CLASS_IDLE` (include/uapi/linux/ioprio.h).
#[inline(always)]
pub fn is_idle(ioprio: u16) -> bool {
    ioprio >> 13 == 3
}

/// True when this disk is to be followed.
#[inline(always)]
pub fn allowed(dev: u32) -> bool {
    if conf!(filtered) == 0 {
        return true;
    }
    let key = dev_key(dev);
    let mask = ALLOW_ROWS - 1;
    let start = probe_start(key, mask);
    for i in 0..PROBES {
        if let Some(have) = ALLOW.get((start + i) & mask)
            && *have == key
        {
            return true;
        }
    }
    false
}
