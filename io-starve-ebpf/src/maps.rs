//! Tables, and how a row is found in them.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, RingBuf},
};
use io_starve_common::config::Config;
use io_starve_common::dirty::{PAUSE_ROWS, PauseRow};
use io_starve_common::service::{DeviceClock, OwnerClock};
use io_starve_common::span::{
    HELD_ROWS, HeldRow, JOURNAL_ROWS, JournalRow, SPAN_RING_BYTES, SYNC_ROWS, SyncSlot, SyncTotals,
    TOTALS_ROWS, WALK_COUNT,
};
use io_starve_common::wire::{
    ALLOW_ROWS, BioSlot, CTRL_COUNT, Claim, DevRow, GroupName, GroupRow, HctxRow, HistRow,
    LossKind, PROBES, Slot, probe_start,
};

/// Filled in by user space before loading. Read with [`conf!`], so that the verifier sees constants.
#[unsafe(no_mangle)]
pub static CONFIG: Config = unsafe { core::mem::zeroed() };

/// Reads a member of [`CONFIG`].
macro_rules! conf {
    ($($member:ident).+) => {
        $crate::maps::constant(&$crate::maps::CONFIG.$($member).+)
    };
}
pub(crate) use conf;

/// A volatile read: the compiler would fold the zeroes of [`CONFIG`] in.
#[inline(always)]
pub fn constant<T: Copy>(of: &T) -> T {
    // SAFETY: a reference is always readable.
    unsafe { core::ptr::read_volatile(of) }
}

// Sizes are those of a small machine; user space sets them before loading.
#[map]
pub static SLOTS: Array<Slot> = Array::with_max_entries(4096, BPF_F_MMAPABLE);
#[map]
pub static BIOS: Array<BioSlot> = Array::with_max_entries(1024, BPF_F_MMAPABLE);
#[map]
pub static GROUPS: Array<GroupName> = Array::with_max_entries(1024, BPF_F_MMAPABLE);
#[map]
pub static COUNTS: Array<GroupRow> = Array::with_max_entries(1024, BPF_F_MMAPABLE);
#[map]
pub static DEVS: Array<DevRow> = Array::with_max_entries(64, BPF_F_MMAPABLE);
#[map]
pub static ACCOUNTED: Array<u64> = Array::with_max_entries(64, BPF_F_MMAPABLE);
#[map]
pub static CLOCKS: Array<DeviceClock> = Array::with_max_entries(64, BPF_F_MMAPABLE);
#[map]
pub static OWNERS: Array<OwnerClock> = Array::with_max_entries(4096, BPF_F_MMAPABLE);
#[map]
pub static HISTS: Array<HistRow> = Array::with_max_entries(1152, BPF_F_MMAPABLE);
#[map]
pub static HCTXS: Array<HctxRow> = Array::with_max_entries(256, BPF_F_MMAPABLE);
#[map]
pub static ALLOW: Array<u64> = Array::with_max_entries(ALLOW_ROWS, BPF_F_MMAPABLE);
#[map]
pub static LOSS: Array<u64> = Array::with_max_entries(LossKind::COUNT as u32, BPF_F_MMAPABLE);
#[map]
pub static CTRL: Array<u64> = Array::with_max_entries(CTRL_COUNT, BPF_F_MMAPABLE);
#[map]
pub static CGROUPS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);
#[map]
pub static SYNCS: Array<SyncSlot> = Array::with_max_entries(SYNC_ROWS, BPF_F_MMAPABLE);
#[map]
pub static TOTALS: Array<SyncTotals> = Array::with_max_entries(TOTALS_ROWS, BPF_F_MMAPABLE);
#[map]
pub static JOURNALS: Array<JournalRow> = Array::with_max_entries(JOURNAL_ROWS, BPF_F_MMAPABLE);
#[map]
pub static HELD: Array<HeldRow> = Array::with_max_entries(HELD_ROWS, BPF_F_MMAPABLE);
#[map]
pub static WALK: Array<u64> = Array::with_max_entries(WALK_COUNT, BPF_F_MMAPABLE);
#[map]
pub static PAUSES: Array<PauseRow> = Array::with_max_entries(PAUSE_ROWS, BPF_F_MMAPABLE);
#[map]
pub static SPANS: RingBuf = RingBuf::with_byte_size(SPAN_RING_BYTES, 0);

/// Adds without a result: the only atomic that 5.10 has.
///
/// # Safety
///
/// `p` must point into a map value.
#[inline(always)]
pub unsafe fn add(p: *mut u64, n: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(p, n);
    }
}

/// The same on a 32-bit counter.
///
/// # Safety
///
/// `p` must point into a map value.
#[inline(always)]
pub unsafe fn add32(p: *mut u32, n: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(p, n);
    }
}

/// Adds to a counter of this CPU's shard that no other program adds to: see [`Config::exclusive`].
///
/// # Safety
///
/// `p` must point into a map value.
#[inline(always)]
pub unsafe fn count(p: *mut u64, n: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        if conf!(exclusive) != 0 {
            *p = (*p).wrapping_add(n);
        } else {
            add(p, n);
        }
    }
}

/// The same on a 32-bit counter, which wraps.
///
/// # Safety
///
/// `p` must point into a map value.
#[inline(always)]
pub unsafe fn count32(p: *mut u32, n: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        if conf!(exclusive) != 0 {
            *p = (*p).wrapping_add(n);
        } else {
            add32(p, n);
        }
    }
}

/// Copies a row into a record, word by word: a copy in one is a call of memcpy, which the verifier does not know.
///
/// # Safety
///
/// Both must be aligned to a word and as long as a `T`.
#[inline(always)]
pub unsafe fn copy<T>(from: *const T, to: *mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: the caller's promise.
        unsafe {
            let word = core::ptr::read_volatile(from.cast::<u64>().add(i));
            core::ptr::write_volatile(to.cast::<u64>().add(i), word);
        }
    }
}

/// Counts something that was not seen.
#[inline(always)]
pub fn lost(kind: LossKind) {
    if let Some(p) = LOSS.get_ptr_mut(kind as u32) {
        // SAFETY: a map value.
        unsafe { add(p, 1) }
    }
}

/// A map value that begins with a [`Claim`].
///
/// # Safety
///
/// The first field must be a [`Claim`].
pub unsafe trait Row: Sized {}

// SAFETY: `claim` is the first field of each, and all are `repr(C)`.
unsafe impl Row for Slot {}
// SAFETY: as above.
unsafe impl Row for BioSlot {}
// SAFETY: as above.
unsafe impl Row for GroupName {}
// SAFETY: as above.
unsafe impl Row for DevRow {}
// SAFETY: as above.
unsafe impl Row for OwnerClock {}
// SAFETY: as above.
unsafe impl Row for HctxRow {}
// SAFETY: as above.
unsafe impl Row for SyncSlot {}
// SAFETY: as above.
unsafe impl Row for SyncTotals {}
// SAFETY: as above.
unsafe impl Row for JournalRow {}
// SAFETY: as above.
unsafe impl Row for PauseRow {}

/// The row of this key, if it has one. The search goes past rows that are free: one that was just being tried for by two
/// at a time may have been passed over when the key was claimed.
#[inline(always)]
pub fn find<T: Row>(table: &Array<T>, mask: u32, key: u64) -> Option<(u32, *mut T)> {
    let start = probe_start(key, mask);
    for i in 0..PROBES {
        let at = (start + i) & mask;
        let row = table.get_ptr_mut(at)?;
        let claim = row.cast::<Claim>();
        // SAFETY: a map value that begins with a claim.
        if unsafe { core::ptr::read_volatile(&raw const (*claim).key) } == key {
            return Some((at, row));
        }
    }
    None
}

/// The row of this key, claimed for good now if it had none; the flag says so. `None`: the table is full for it.
#[inline(always)]
pub fn find_or_claim<T: Row>(table: &Array<T>, mask: u32, key: u64) -> Option<(u32, *mut T, bool)> {
    if let Some((at, row)) = find(table, mask, key) {
        return Some((at, row, false));
    }
    let start = probe_start(key, mask);
    for i in 0..PROBES {
        let at = (start + i) & mask;
        let row = table.get_ptr_mut(at)?;
        // SAFETY: a map value that begins with a claim.
        unsafe {
            let name = &raw mut (*row.cast::<Claim>()).key;
            if lock(row.cast::<Claim>()) {
                core::ptr::write_volatile(name, key);
                return Some((at, row, true));
            }
            // Another CPU has claimed it for the same since it was looked for.
            if core::ptr::read_volatile(name) == key {
                return Some((at, row, false));
            }
        }
    }
    None
}

/// Locks a row that nobody has locked, and gives it this key.
#[inline(always)]
pub fn claim<T: Row>(table: &Array<T>, mask: u32, key: u64) -> Option<(u32, *mut T)> {
    let start = probe_start(key, mask);
    for i in 0..PROBES {
        let at = (start + i) & mask;
        let row = table.get_ptr_mut(at)?;
        // SAFETY: a map value that begins with a claim.
        unsafe {
            if lock(row.cast::<Claim>()) {
                core::ptr::write_volatile(&raw mut (*row.cast::<Claim>()).key, key);
                return Some((at, row));
            }
        }
    }
    None
}

/// Locks a row; false when somebody else has it. The protocol is that of [`Claim`].
///
/// # Safety
///
/// `claim` must belong to a row of a table.
#[inline(always)]
pub unsafe fn lock(claim: *mut Claim) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let lock = &raw mut (*claim).lock;
        if core::ptr::read_volatile(lock) != 0 {
            return false;
        }
        add32(lock, 1);
        if core::ptr::read_volatile(lock) == 1 {
            return true;
        }
        add32(lock, u32::MAX);
        false
    }
}

/// Unlocks a row; its key stays.
///
/// # Safety
///
/// `claim` must belong to a row that the caller has locked.
#[inline(always)]
pub unsafe fn release(claim: *mut Claim) {
    // SAFETY: the caller's promise.
    unsafe { add32(&raw mut (*claim).lock, u32::MAX) }
}
