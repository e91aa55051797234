//! What front ends without a screen write, and the figures that all front ends write alike.

pub mod alert;
pub mod datagram;
pub mod doctor;
pub mod focus;
pub mod format;
pub mod ignore;
pub mod journald;
mod log;
pub mod reporter;
pub mod sink;
pub mod storm;
pub mod syslog;
pub mod text;
