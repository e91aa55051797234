//! What the BPF programs and user space share.
//!
//! In: nothing. Out: the request state machine ([`request`]), request classes ([`class`]), histogram
//! buckets ([`hist`]), device time ([`service`]) and the layout of every map value ([`wire`], [`span`], [`dirty`], [`config`]). Everything is `no_std`, free of
//! panics and of loops without a bound, since the same code is compiled for the BPF verifier.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod class;
pub mod config;
pub mod dirty;
pub mod hist;
pub mod request;
pub mod service;
pub mod span;
pub mod wire;
