//! What fio says of its jobs, beside what was seen of them. Pure.
//!
//! In: fio's command line, what it printed, its job files, and the figures of the run. Out: a command line that also makes it print
//! JSON, the text that its user is to see, and each job with its disks, cgroup and times. Refuses to split figures that several
//! jobs share: the kernel counts by cgroup, disk and class, and no finer.

pub mod args;
pub mod jobfile;
pub mod join;
pub mod output;
mod view;

pub use args::{Pass, Plan};
pub use join::{FioView, join};
