//! What front ends without a screen write, and the figures that all front ends write alike.

pub mod format;
