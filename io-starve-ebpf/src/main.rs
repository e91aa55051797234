//! The BPF programs of io-starve: small slots for what is in flight, counters for what ended, nothing per I/O to
//! user space.
//!
//! In: block tracepoints and cgroup creation. Out: the tables of [`maps`]. No numeric kernel offset lives here: all
//! of them come in [`maps::CONFIG`].

#![no_std]
#![no_main]
#![allow(
    internal_features,
    reason = "atomic_xadd has no stable name on the BPF target"
)]
#![feature(core_intrinsics, asm_experimental_arch)]

mod account;
mod admission;
mod block;
mod cgroup;
mod fsync;
mod hook;
mod journal;
mod kernel;
mod maps;
mod ondemand;
mod service;
mod sleeping;
mod throttle;
mod writeback;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // Never reached: the verifier refuses a program that could get here.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
