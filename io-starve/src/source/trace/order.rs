//! Puts events of several CPUs in order, and keeps a clock that goes wrong from carrying everything else away.
//!
//! In: events as they stand in the input. Out: events by time, as far as they came within [`SPAN_NS`] or [`ROOM`] events of their
//! place; later ones come as they are and are counted. A clock that goes back is followed once [`CONFIRM`] events agree; a
//! single time that lies far ahead is taken for garbage.

use std::collections::VecDeque;

use super::{event::Event, notes::Notes};

/// How long an event may be kept back for earlier ones, in ns. Kernels print the buffers of all CPUs merged by time, and
/// blktrace's are a few ms apart on a busy machine.
const SPAN_NS: u64 = 1_000_000_000;
/// How many events are kept back at most: 6 MiB.
const ROOM: usize = 65_536;
/// An event so far behind the newest, in ns, is not merely late: the clock may have been set back. Ten times the span, as a CPU
/// with little to tell is written out seldom.
const BACK_NS: u64 = 10 * SPAN_NS;
/// How many events in a row must agree that it was.
const CONFIRM: usize = 64;
/// A step ahead by this much, in ns, needs a second event that agrees: an idle disk is silent for long, but a wrong digit makes
/// years of it.
const AHEAD_NS: u64 = 3_600_000_000_000;

/// An event in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// The event; its time is that of an ongoing clock.
    pub event: Event,
    /// Events were lost right before it, or the clock jumped there: what was in flight may have ended unseen.
    pub gap: bool,
}

/// Events on their way into order.
#[derive(Debug, Default)]
pub struct Order {
    waiting: VecDeque<Timed>,
    /// Far from all others, until a decision can be made.
    odd: Vec<Event>,
    newest_ns: Option<u64>,
    released_ns: u64,
    /// What is added to the times of the input since it went back.
    offset_ns: u64,
    gap: bool,
}

impl Order {
    /// The next event comes after a gap.
    pub fn gap(&mut self) {
        self.gap = true;
    }

    /// Takes in an event.
    pub fn push(&mut self, mut event: Event, notes: &mut Notes) {
        // 0 is "never" in a request's life.
        event.ns = event.ns.saturating_add(self.offset_ns).max(1);
        let Some(newest) = self.newest_ns else {
            self.accept(event, notes);
            return;
        };
        let ahead = event.ns > newest.saturating_add(AHEAD_NS);
        let back = event.ns.saturating_add(BACK_NS) < newest;
        if !ahead && !back {
            self.settle(notes);
            self.accept(event, notes);
            return;
        }
        let agrees = self
            .odd
            .last()
            .is_none_or(|o| (o.ns > newest) == ahead && o.ns.abs_diff(event.ns) <= BACK_NS);
        if !agrees {
            self.settle(notes);
        }
        self.odd.push(event);
        if ahead && self.odd.len() == 2 || self.odd.len() == CONFIRM {
            self.jump(newest, notes);
        }
    }

    /// The next in order; at the end of the input also those that would be kept back.
    pub fn pop(&mut self, end: bool, notes: &mut Notes) -> Option<Timed> {
        if end {
            self.settle(notes);
        }
        let first = self.waiting.front()?;
        let span = self.newest_ns?.saturating_sub(first.event.ns);
        if !end && span <= SPAN_NS && self.waiting.len() <= ROOM {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.released_ns = self.released_ns.max(next.event.ns);
        Some(next)
    }

    fn accept(&mut self, event: Event, notes: &mut Notes) {
        let timed = Timed {
            event,
            gap: std::mem::take(&mut self.gap),
        };
        if event.ns < self.released_ns {
            notes.late += 1;
        }
        self.newest_ns = self.newest_ns.max(Some(event.ns));
        let at = match self.waiting.back() {
            Some(last) if last.event.ns > event.ns => {
                self.waiting.partition_point(|t| t.event.ns <= event.ns)
            }
            _ => self.waiting.len(),
        };
        self.waiting.insert(at, timed);
    }

    /// The odd ones were no jump: behind, they are late, ahead, they are garbage.
    fn settle(&mut self, notes: &mut Notes) {
        for event in std::mem::take(&mut self.odd) {
            if self.newest_ns.is_some_and(|newest| event.ns > newest) {
                notes.odd_times += 1;
            } else {
                self.accept(event, notes);
            }
        }
    }

    /// The clock goes on from where it jumped to.
    fn jump(&mut self, newest: u64, notes: &mut Notes) {
        notes.clock_jumps += 1;
        self.gap = true;
        let odd = std::mem::take(&mut self.odd);
        let from = odd.iter().map(|e| e.ns).min().unwrap_or(newest);
        let shift = newest.saturating_sub(from);
        self.offset_ns = self.offset_ns.saturating_add(shift);
        for mut event in odd {
            event.ns = event.ns.saturating_add(shift);
            self.accept(event, notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::trace::tests::event;

    const S: u64 = 1_000_000_000;

    fn run(times: &[u64]) -> (Vec<u64>, Notes) {
        let (mut order, mut notes) = (Order::default(), Notes::default());
        let mut out = Vec::new();
        for ns in times {
            order.push(event(*ns), &mut notes);
            while let Some(t) = order.pop(false, &mut notes) {
                out.push(t.event.ns);
            }
        }
        while let Some(t) = order.pop(true, &mut notes) {
            out.push(t.event.ns);
        }
        (out, notes)
    }

    #[test]
    fn what_is_less_than_a_second_late_is_put_in_order() {
        let (out, notes) = run(&[5 * S, 7 * S, 6 * S + 1, 7 * S - 1, 9 * S, 8 * S]);
        assert_eq!(out, [5 * S, 6 * S + 1, 7 * S - 1, 7 * S, 8 * S, 9 * S]);
        assert_eq!(notes, Notes::default());
    }

    #[test]
    fn what_is_later_is_counted_and_not_dropped() {
        let (out, notes) = run(&[5 * S, 7 * S, 9 * S, 4 * S]);
        assert_eq!(out.len(), 4);
        assert_eq!(notes.late, 1);
    }

    #[test]
    fn a_time_that_fits_nothing_is_dropped_and_counted() {
        let (out, notes) = run(&[5 * S, 5_000_000 * S, 6 * S, 7 * S]);
        assert_eq!(out, [5 * S, 6 * S, 7 * S]);
        assert_eq!((notes.odd_times, notes.clock_jumps), (1, 0));
        let (out, notes) = run(&[5 * S, u64::MAX]);
        assert_eq!((out.len(), notes.odd_times), (1, 1));
    }

    #[test]
    fn a_jump_ahead_that_two_events_show_is_followed() {
        let (out, notes) = run(&[5 * S, 9_000 * S, 9_001 * S]);
        assert_eq!(out, [5 * S, 9_000 * S, 9_001 * S]);
        assert_eq!((notes.odd_times, notes.clock_jumps), (0, 1));
    }

    #[test]
    fn a_clock_that_was_set_back_goes_on_from_the_newest() {
        let mut times = vec![100 * S, 101 * S];
        times.extend((0..70).map(|i| 10 * S + i * 1_000));
        let (out, notes) = run(&times);
        assert_eq!(notes.clock_jumps, 1);
        assert_eq!(out[2], 101 * S);
        assert_eq!(out[71], 101 * S + 69_000);
    }

    #[test]
    fn a_gap_stands_before_the_event_that_followed_it() {
        let (mut order, mut notes) = (Order::default(), Notes::default());
        order.push(event(S), &mut notes);
        order.gap();
        order.push(event(2 * S), &mut notes);
        let gaps: Vec<bool> = std::iter::from_fn(|| order.pop(true, &mut notes))
            .map(|t| t.gap)
            .collect();
        assert_eq!(gaps, [false, true]);
    }
}
