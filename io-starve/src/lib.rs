//! io-starve: who starves whom of block I/O, through which mechanism, for how long.
//!
//! Data goes one way: `kernel` and `source` make observations, [`model`] and [`detect`] turn them
//! into a snapshot and findings, the front ends show those. Everything right of the observation is pure.

pub mod cli;
pub mod commands;
pub mod detect;
pub mod kernel;
pub mod model;
pub mod output;
pub mod pipeline;
pub mod source;
pub mod tui;
