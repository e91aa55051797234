//! Traces that other programs recorded, read as if io-starve had watched.
//!
//! In: events one by one, from a reader of one format: of the block layer, and of filesystems, journals and writeback where they are in it. Out: observations, one for each 250 ms of the trace, which
//! model and detectors take as those of a live run. Memory depends on what is in flight, not on the length of the trace.
//! A trace names no request: events are matched by disk and sector (`matching`), and what could be meant twice is counted.
//! Nothing in a trace is an error: what cannot be read, is late or was lost is counted and told at the end.

mod bios;
mod event;
mod fs_event;
mod import;
mod letters;
mod look;
mod matching;
mod notes;
mod order;
mod pauses;
mod questions;
mod requests;
mod syncs;
mod tally;
#[cfg(test)]
pub(crate) mod tests;

use std::io;

pub use event::{Comm, Event, What};
pub use fs_event::{CommitStep, FS_TRACEPOINTS, FsEvent, FsWhat, PauseEvent};
pub use import::{Import, TICK};
pub use letters::{class_of_letters, class_of_parts};

/// What a reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A block event.
    Event(Event),
    /// An event of a filesystem, its journal or of writeback.
    Fs(FsEvent),
    /// The recorder says that it lost events here; how many where it tells.
    Lost(Option<u64>),
    /// The ring buffer had wrapped: so many events before the first were overwritten.
    Overwritten(u64),
    /// What the wall clock (ns since 1970) showed at this time of the trace (ns).
    Wall {
        /// Time of the trace in ns.
        ns: u64,
        /// ns since 1970.
        wall_ns: i64,
    },
    /// Another program's words, or an event that is not needed.
    Foreign,
    /// An event that cannot be read: cut, garbled, or with a clock that does not count seconds.
    Unreadable,
}

/// Reads one format.
pub trait Reader {
    /// What comes next, `None` at the end.
    ///
    /// # Errors
    /// When the input cannot be read or unpacked any further.
    fn next_item(&mut self) -> io::Result<Option<Item>>;

    /// What the input is, in words: `text of ftrace`.
    fn name(&self) -> &'static str;
}
