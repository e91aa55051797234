//! Device time, and the time in which somebody waits, by owner.
//!
//! In: moves of requests into a stage and out of it, with their time. Out: sums by device and by (device, owner).
//!
//! The time between two events is divided equally among the requests that are in the device then, as an I/O that shares the
//! device with n - 1 others has an n-th of it; so the parts sum to the time in which the device is busy. CFQ charged a queue for its
//! slice and so for requests beside it (`cfq_cfqq_slice_usage` in block/cfq-iosched.c, up to 4.20), BFQ charges sectors: neither adds
//! up. Nobody walks the requests: a device has a clock that runs at an n-th of the speed of time while n requests are in it, and what
//! an owner is due is how far the clock came, times its requests.
//!
//! The same functions run in the BPF programs, where `now` may be a little behind what another CPU has written, and in the reader,
//! which takes copies of rows to the moment of its tick.

use crate::wire::Claim;

/// Device time and the clock are in units of 2^-8 ns, so that a division among a thousand requests loses nothing that counts.
pub const UNIT_SHIFT: u32 = 8;

/// One disk, cumulative from when accounting was switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct DeviceClock {
    /// 1 while somebody moves the clock; more: somebody tries to.
    pub lock: u32,
    /// How often somebody could not get it: the time up to then went to the next event.
    pub missed: u32,
    /// Requests in the device; see [`count`].
    pub in_device: u64,
    /// Requests and bios of all owners in admission or queued.
    pub waiting: u64,
    /// Until when the sums go. ns, monotonic; 0 before the first event.
    pub last_ns: u64,
    /// The clock, in units of 2^-8 ns.
    pub clock: u64,
    /// Something was in the device, in ns.
    pub busy_ns: u64,
    /// Nothing was, in ns.
    pub idle_ns: u64,
    /// Nothing was, while somebody waited, in ns.
    pub idle_waited_ns: u64,
}

/// One (device, owner), cumulative.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct OwnerClock {
    /// Claimed by device row and owner.
    pub claim: Claim,
    /// The cgroup that pays, as in [`crate::wire::GroupName`].
    pub owner: u64,
    /// Row of the device, plus 1; written last.
    pub dev_row: u64,
    /// Requests in the device.
    pub in_device: u64,
    /// Requests and bios in admission or queued.
    pub waiting: u64,
    /// Until when the sums go. ns, monotonic.
    pub last_ns: u64,
    /// How far the device's clock had come then.
    pub last_clock: u64,
    /// How long the device had been idle then, in ns.
    pub last_idle_ns: u64,
    /// Device time, in units of 2^-8 ns.
    pub device_units: u64,
    /// Something waited and nothing was in the device: `group_wait_time` of CFQ and BFQ. ns.
    pub group_wait_ns: u64,
    /// Something was in admission, queued or in the device, in ns.
    pub active_ns: u64,
    /// Something was in admission or queued, in ns.
    pub unsatisfied_ns: u64,
    /// Something waited while the device was idle, in ns.
    pub idle_waited_ns: u64,
    /// Explicit padding.
    pub pad: u64,
}

/// A count that several CPUs move by atomic additions, which wrap: below 0 is none.
#[inline(always)]
pub const fn count(n: u64) -> u64 {
    if (n as i64) < 0 { 0 } else { n }
}

/// How far `now` is after `then`; 0 when it is before.
#[inline(always)]
const fn after(now: u64, then: u64) -> u64 {
    count(now.wrapping_sub(then))
}

/// Takes a device's sums to `now`, with the requests that were in it until then.
#[inline(always)]
pub fn advance(d: &mut DeviceClock, now: u64) {
    if d.last_ns == 0 {
        d.last_ns = now;
        return;
    }
    let ns = after(now, d.last_ns);
    if ns == 0 {
        return;
    }
    d.last_ns = now;
    if let Some(part) = (ns << UNIT_SHIFT).checked_div(count(d.in_device)) {
        d.busy_ns = d.busy_ns.wrapping_add(ns);
        d.clock = d.clock.wrapping_add(part);
        return;
    }
    d.idle_ns = d.idle_ns.wrapping_add(ns);
    if count(d.waiting) > 0 {
        d.idle_waited_ns = d.idle_waited_ns.wrapping_add(ns);
    }
}

/// Takes an owner's sums to the moment to which its device was taken.
#[inline(always)]
pub fn settle(o: &mut OwnerClock, d: &DeviceClock) {
    let ns = after(d.last_ns, o.last_ns);
    let clock = after(d.clock, o.last_clock);
    let idle_ns = after(d.idle_ns, o.last_idle_ns);
    let first = o.last_ns == 0;
    // First of all, so that one that comes between counts nothing twice.
    o.last_ns = d.last_ns;
    o.last_clock = d.clock;
    o.last_idle_ns = d.idle_ns;
    let (inside, waiting) = (count(o.in_device), count(o.waiting));
    if first || inside | waiting == 0 {
        return;
    }
    o.active_ns = o.active_ns.wrapping_add(ns);
    o.device_units = o.device_units.wrapping_add(clock.wrapping_mul(inside));
    if waiting > 0 {
        o.unsatisfied_ns = o.unsatisfied_ns.wrapping_add(ns);
        o.idle_waited_ns = o.idle_waited_ns.wrapping_add(idle_ns);
        if inside == 0 {
            o.group_wait_ns = o.group_wait_ns.wrapping_add(ns);
        }
    }
}

const _: () = {
    assert!(size_of::<DeviceClock>() == 64);
    assert!(size_of::<OwnerClock>() == 128);
};

#[cfg(test)]
mod tests;
