//! What front ends without a screen write, and the figures that all front ends write alike.

pub mod alert;
pub mod doctor;
pub mod focus;
pub mod format;
mod log;
pub mod reporter;
pub mod sink;
pub mod text;
pub mod verdict;
