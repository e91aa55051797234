//! What front ends without a screen write, and the figures that all front ends write alike.

pub mod alert;
pub mod compare;
pub mod datagram;
pub mod doctor;
pub mod document;
pub mod focus;
pub mod format;
pub mod ignore;
pub mod journald;
pub mod junit;
mod log;
pub mod report;
pub mod reporter;
pub mod shares;
pub mod sink;
pub mod storm;
pub mod syslog;
pub mod text;
pub mod verdict;
