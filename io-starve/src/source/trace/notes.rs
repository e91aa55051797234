//! What was odd about a trace, in numbers and then in words.

use crate::output::format::count;

/// Counts over a whole trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Block events that were used.
    pub events: u64,
    /// Events of filesystems, journals and writeback that were used.
    pub fs_events: u64,
    /// Lines or records of something else.
    pub foreign: u64,
    /// Events that could not be read.
    pub unreadable: u64,
    /// Events that the recorder says it lost, as far as it tells how many.
    pub lost: u64,
    /// Places where it says so.
    pub gaps: u64,
    /// Events that the ring buffer had overwritten before it was read.
    pub overwritten: u64,
    /// Events that came too late to be put in order.
    pub late: u64,
    /// Times at which the clock of the trace went back or far ahead for good.
    pub clock_jumps: u64,
    /// Events with a time that fits nothing around them.
    pub odd_times: u64,
    /// Events that fitted several requests alike: the oldest was taken.
    pub ambiguous: u64,
    /// Completions of requests that began before the trace.
    pub earlier: u64,
}

impl Notes {
    /// One sentence for whoever reads the verdict; names what was read and all that limits it.
    pub fn words(&self, format: &str) -> String {
        let mut parts = vec![format!("{} block events", count(self.events))];
        let mut say = |n: u64, what: &str| {
            if n > 0 {
                parts.push(format!("{} {what}", count(n)));
            }
        };
        say(self.fs_events, "events of fsyncs, journals and pauses");
        say(self.gaps, "gaps in which the recorder lost events");
        say(self.lost, "events lost in them as far as it says");
        say(self.overwritten, "events overwritten before the first");
        say(self.unreadable, "events that cannot be read");
        say(self.late, "events too late to be put in order");
        say(self.clock_jumps, "jumps of the clock");
        say(self.odd_times, "events with impossible times");
        say(self.ambiguous, "events that fit several requests");
        say(self.earlier, "requests that began before the trace");
        say(self.foreign, "other lines or events passed over");
        format!("{format}: {}", parts.join(", "))
    }
}
