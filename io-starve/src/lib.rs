//! io-starve: who starves whom of block I/O, through which mechanism, for how long.
//!
//! Data goes one way: `kernel` and `source` make observations, [`model`] and [`detect`] turn them
//! into a snapshot and findings, the front ends show those. Everything right of the observation is pure.

/// Writes a line to standard error. Where that is full or closed nobody reads it: no reason to end, as `eprintln!` would.
macro_rules! complain {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}

pub mod cli;
pub mod commands;
pub mod config;
pub mod detect;
#[cfg(feature = "faults")]
mod faults;
pub mod files;
pub mod fio;
pub mod history;
pub mod kernel;
pub mod metrics;
pub mod model;
pub mod output;
pub mod pipeline;
pub mod source;
pub mod tui;
