//! Puts events of several CPUs in order, and keeps a clock that goes wrong from carrying everything else away.
//!
//! In: events as they stand in the input. Out: events by time, as far as they came within [`SPAN_NS`] or [`ROOM`] events of their
//! place; later ones come as they are and are counted. A clock that goes back is followed once [`CONFIRM`] events agree; a
//! single time that lies far ahead is taken for garbage.

use std::collections::VecDeque;

use super::{event::Event, fs_event::FsEvent, notes::Notes};

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
/// Rows that are kept: each CPU's events are in order by themselves, and come as pieces of a row.
const ROWS: usize = 64;
/// A step ahead by this much, in ns, needs a second event that agrees: an idle disk is silent for long, but a wrong digit makes
/// years of it.
const AHEAD_NS: u64 = 3_600_000_000_000;

/// An event of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyEvent {
    /// Of the block layer.
    Block(Event),
    /// Of a filesystem, a journal or writeback.
    Fs(FsEvent),
}

impl AnyEvent {
    /// When. ns.
    pub const fn ns(&self) -> u64 {
        match self {
            AnyEvent::Block(e) => e.ns,
            AnyEvent::Fs(e) => e.ns,
        }
    }

    const fn at(mut self, ns: u64) -> AnyEvent {
        match &mut self {
            AnyEvent::Block(e) => e.ns = ns,
            AnyEvent::Fs(e) => e.ns = ns,
        }
        self
    }
}

/// An event in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// The event; its time is that of an ongoing clock.
    pub event: AnyEvent,
    /// Events were lost right before it, or the clock jumped there: what was in flight may have ended unseen.
    pub gap: bool,
    /// Number in the order of the input: of equal times the earlier one comes first.
    number: u64,
}

impl Timed {
    fn place(&self) -> (u64, u64) {
        (self.event.ns(), self.number)
    }
}

/// Events on their way into order.
#[derive(Debug, Default)]
pub struct Order {
    /// Rows of events, each in order.
    rows: Vec<VecDeque<Timed>>,
    waiting: usize,
    number: u64,
    /// Far from all others, until a decision can be made.
    odd: Vec<AnyEvent>,
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
    pub fn push(&mut self, event: AnyEvent, notes: &mut Notes) {
        // 0 is "never" in a request's life.
        let event = event.at(event.ns().saturating_add(self.offset_ns).max(1));
        let Some(newest) = self.newest_ns else {
            self.accept(event, notes);
            return;
        };
        let ahead = event.ns() > newest.saturating_add(AHEAD_NS);
        let back = event.ns().saturating_add(BACK_NS) < newest;
        if !ahead && !back {
            self.settle(notes);
            self.accept(event, notes);
            return;
        }
        let agrees = self
            .odd
            .last()
            .is_none_or(|o| (o.ns() > newest) == ahead && o.ns().abs_diff(event.ns()) <= BACK_NS);
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
        let first = |row: &VecDeque<Timed>| row.front().map(Timed::place);
        let row = (self.rows.iter_mut())
            .filter(|row| !row.is_empty())
            .min_by_key(|row| first(row))?;
        let span = self.newest_ns?.saturating_sub(row.front()?.event.ns());
        if !end && span <= SPAN_NS && self.waiting <= ROOM {
            return None;
        }
        let next = row.pop_front()?;
        self.waiting -= 1;
        self.released_ns = self.released_ns.max(next.event.ns());
        Some(next)
    }

    fn accept(&mut self, event: AnyEvent, notes: &mut Notes) {
        self.number += 1;
        let timed = Timed {
            event,
            gap: std::mem::take(&mut self.gap),
            number: self.number,
        };
        if event.ns() < self.released_ns {
            notes.late += 1;
        }
        self.newest_ns = self.newest_ns.max(Some(event.ns()));
        self.waiting += 1;
        // The row that it continues with the least gap.
        let last = |row: &VecDeque<Timed>| row.back().map_or(0, |t| t.event.ns());
        let fits = (0..self.rows.len())
            .filter(|i| last(&self.rows[*i]) <= event.ns())
            .max_by_key(|i| last(&self.rows[*i]));
        match fits {
            Some(i) => self.rows[i].push_back(timed),
            None if self.rows.len() < ROWS => self.rows.push(VecDeque::from([timed])),
            None => {
                // No CPU's events are so far from order: this row takes what fits nowhere.
                if let Some(row) = self.rows.last_mut() {
                    let at = row.partition_point(|t| t.event.ns() <= event.ns());
                    row.insert(at, timed);
                }
            }
        }
    }

    /// The odd ones were no jump: behind, they are late, ahead, they are garbage.
    fn settle(&mut self, notes: &mut Notes) {
        for event in std::mem::take(&mut self.odd) {
            if self.newest_ns.is_some_and(|newest| event.ns() > newest) {
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
        let from = odd.iter().map(AnyEvent::ns).min().unwrap_or(newest);
        let shift = newest.saturating_sub(from);
        self.offset_ns = self.offset_ns.saturating_add(shift);
        for event in odd {
            self.accept(event.at(event.ns().saturating_add(shift)), notes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::trace::tests::event;

    const S: u64 = 1_000_000_000;

    fn block(ns: u64) -> AnyEvent {
        AnyEvent::Block(event(ns))
    }

    fn run(times: &[u64]) -> (Vec<u64>, Notes) {
        let (mut order, mut notes) = (Order::default(), Notes::default());
        let mut out = Vec::new();
        for ns in times {
            order.push(block(*ns), &mut notes);
            while let Some(t) = order.pop(false, &mut notes) {
                out.push(t.event.ns());
            }
        }
        while let Some(t) = order.pop(true, &mut notes) {
            out.push(t.event.ns());
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
    fn any_order_within_a_second_is_mended_and_equal_times_keep_theirs() {
        // Pieces of 100 rows, more than are kept, with times that occur more than once.
        let times: Vec<u64> = (0..20_000u64)
            .map(|i| 5 * S + (i * 7_919 % 1_000) * 1_000)
            .collect();
        let (mut order, mut notes) = (Order::default(), Notes::default());
        for (sector, ns) in times.iter().enumerate() {
            let sector = sector as u64;
            order.push(
                AnyEvent::Block(Event {
                    sector,
                    ..event(*ns)
                }),
                &mut notes,
            );
        }
        let out: Vec<(u64, u64)> = std::iter::from_fn(|| order.pop(true, &mut notes))
            .map(|t| match t.event {
                AnyEvent::Block(e) => (e.ns, e.sector),
                AnyEvent::Fs(e) => panic!("{e:?}"),
            })
            .collect();
        let mut sorted: Vec<(u64, u64)> = times.into_iter().zip(0..).collect();
        sorted.sort();
        assert_eq!(out, sorted);
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
        order.push(block(S), &mut notes);
        order.gap();
        order.push(block(2 * S), &mut notes);
        let gaps: Vec<bool> = std::iter::from_fn(|| order.pop(true, &mut notes))
            .map(|t| t.gap)
            .collect();
        assert_eq!(gaps, [false, true]);
    }
}
