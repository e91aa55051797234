//! Observations in, figures out. Pure: no clock, no file, no order that depends on a hash.

pub mod observation;
pub mod snapshot;
