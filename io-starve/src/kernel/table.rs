//! BPF arrays mapped into memory, read without system calls.

use std::{
    marker::PhantomData,
    os::fd::{AsFd as _, BorrowedFd},
    ptr::NonNull,
};

use aya::maps::Map;
use io_starve_common::dirty::PauseRow;
use io_starve_common::service::{DeviceClock, OwnerClock};
use io_starve_common::span::{HeldRow, JournalRow, SyncSlot, SyncTotals};
use io_starve_common::wire::{BioSlot, Claim, DevRow, GroupName, GroupRow, HctxRow, HistRow, Slot};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A type that user space and the programs share: any bytes are a valid value.
///
/// # Safety
///
/// `repr(C)`, integers only, no padding that is not explicit.
pub unsafe trait Plain: Copy {}

// SAFETY: wire types are made of integers and arrays of them.
unsafe impl Plain for Slot {}
// SAFETY: as above.
unsafe impl Plain for BioSlot {}
// SAFETY: as above.
unsafe impl Plain for GroupName {}
// SAFETY: as above.
unsafe impl Plain for GroupRow {}
// SAFETY: as above.
unsafe impl Plain for DevRow {}
// SAFETY: as above.
unsafe impl Plain for DeviceClock {}
// SAFETY: as above.
unsafe impl Plain for OwnerClock {}
// SAFETY: as above.
unsafe impl Plain for HistRow {}
// SAFETY: as above.
unsafe impl Plain for HctxRow {}
// SAFETY: as above.
unsafe impl Plain for SyncSlot {}
// SAFETY: as above.
unsafe impl Plain for SyncTotals {}
// SAFETY: as above.
unsafe impl Plain for JournalRow {}
// SAFETY: as above.
unsafe impl Plain for HeldRow {}
// SAFETY: as above.
unsafe impl Plain for PauseRow {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

/// An array map in memory.
pub struct Table<T> {
    base: NonNull<u8>,
    bytes: usize,
    rows: u32,
    _row: PhantomData<T>,
}

// SAFETY: the mapping is shared memory that is only read with volatile copies.
unsafe impl<T: Plain> Send for Table<T> {}

/// Why a map cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The object does not have it.
    #[error("the BPF object has no array {0}: io-starve was built from mismatched parts")]
    Missing(&'static str),
    /// The kernel refused.
    #[error("cannot map the BPF array {name} into memory: {source}")]
    Map {
        /// Which.
        name: &'static str,
        /// The kernel's words.
        source: std::io::Error,
    },
}

impl<T: Plain> Table<T> {
    /// Maps an array of the object. `writable` only where user space is the one that writes.
    ///
    /// # Errors
    ///
    /// When the object lacks it or the kernel refuses to map it.
    pub fn map(
        ebpf: &aya::Ebpf,
        name: &'static str,
        rows: u32,
        writable: bool,
    ) -> Result<Table<T>, TableError> {
        let Some(Map::Array(data)) = ebpf.map(name) else {
            return Err(TableError::Missing(name));
        };
        let fd = data.fd().as_fd();
        Table::map_fd(fd, rows, writable).map_err(|e| TableError::Map {
            name,
            source: e.into(),
        })
    }

    fn map_fd(fd: BorrowedFd<'_>, rows: u32, writable: bool) -> rustix::io::Result<Table<T>> {
        // kernel/bpf/arraymap.c: elements are rounded up to 8 bytes; all wire types already are.
        let bytes = (rows as usize * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        let mut prot = ProtFlags::READ;
        if writable {
            prot |= ProtFlags::WRITE;
        }
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::INVAL)?;
        Ok(Table {
            base,
            bytes,
            rows,
            _row: PhantomData,
        })
    }

    /// How many rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    fn at(&self, row: u32) -> *mut T {
        debug_assert!(row < self.rows);
        // SAFETY: rows lie inside the mapping; a caller's row past the end is brought back in.
        unsafe {
            self.base
                .as_ptr()
                .cast::<T>()
                .add((row % self.rows.max(1)) as usize)
        }
    }

    /// A copy of a row. The programs may be writing it: fields may be of different moments.
    pub fn read(&self, row: u32) -> T {
        // SAFETY: `at` is inside the mapping, and any bytes are a valid T.
        unsafe { self.at(row).read_volatile() }
    }

    /// Writes a row of a table that was mapped writable.
    pub fn write(&self, row: u32, value: T) {
        // SAFETY: as in `read`; only tables that user space owns are mapped writable.
        unsafe { self.at(row).write_volatile(value) }
    }

    /// The key of a row that begins with a [`Claim`], without copying the rest.
    pub fn key(&self, row: u32) -> u64 {
        const { assert!(size_of::<T>() >= size_of::<Claim>()) };
        // SAFETY: as in `read`.
        unsafe { (&raw const (*self.at(row).cast::<Claim>()).key).read_volatile() }
    }
}

impl Table<HctxRow> {
    /// The lower half of the address of a hardware queue's request queue.
    pub fn queue(&self, row: u32) -> u32 {
        self.read(row).claim.tag
    }
}

impl Table<Slot> {
    /// The state of a slot, without copying the rest.
    pub fn state(&self, row: u32) -> u8 {
        // SAFETY: as in `read`.
        unsafe { (&raw const (*self.at(row)).life.state).read_volatile() }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// How often the kernel skipped our programs because another ran on that CPU (`recursion_misses` of
/// `struct bpf_prog_info`, include/uapi/linux/bpf.h). Kernels before 6.1 do not count it for tracepoints: 0 then.
pub fn skipped_runs(ebpf: &aya::Ebpf) -> u64 {
    ebpf.programs()
        .filter_map(|(_, p)| p.fd().ok())
        .map(|fd| recursion_misses(fd.as_fd()))
        .sum()
}

fn recursion_misses(fd: BorrowedFd<'_>) -> u64 {
    use std::os::fd::AsRawFd as _;

    use aya_obj::generated::{bpf_attr, bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, bpf_prog_info};

    // SAFETY: both are plain C structures for which zero is valid, and the kernel writes at most `info_len` bytes.
    unsafe {
        let mut info: bpf_prog_info = std::mem::zeroed();
        let mut attr: bpf_attr = std::mem::zeroed();
        attr.info.bpf_fd = fd.as_raw_fd() as u32;
        attr.info.info_len = size_of::<bpf_prog_info>() as u32;
        attr.info.info = (&raw mut info) as u64;
        let result = libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD as libc::c_long,
            &raw mut attr,
            size_of::<bpf_attr>(),
        );
        if result == 0 {
            info.recursion_misses
        } else {
            0
        }
    }
}
