//! Sliding windows over ticks of any length.
//!
//! In: what a tick added. Out: sums since a moment. Time is always the observation's own: a window is never a number
//! of ticks, since ticks come late and intervals differ.

use std::collections::{BTreeMap, VecDeque};

use io_starve_common::hist;
use serde::{Deserialize, Serialize};

use super::observation::StageDelta;

/// How long cells are kept, in ns: twice the longest window that a detector looks at, so that a wait that is noticed
/// late can still be counted from its beginning.
pub const KEEP_NS: u64 = 10_000_000_000;
/// A cell takes in further ticks until it is this long, in ns: shorter intervals than the default then cost no more memory
/// than twice [`KEEP_NS`] / [`CELL_NS`] cells.
pub const CELL_NS: u64 = 200_000_000;
/// Counts of a bucket above this are cut, so that sums and percentiles of damaged input cannot overflow.
const MAX_COUNT: u64 = 1 << 40;
/// Length of a slot of a histogram window, in ns.
const SLOT_NS: u64 = 2_000_000_000;

/// Which cell the present tick belongs to; the same for every ring of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellClock {
    /// Where the present cell begins, ns monotonic.
    pub from_ns: u64,
    /// The present tick, ns monotonic.
    pub to_ns: u64,
    /// The tick before it, ns monotonic.
    pub previous_ns: u64,
}

impl CellClock {
    /// Goes on to the tick at `now`: into the same cell while that stays short, else into a new one.
    pub fn advance(&mut self, now: u64) {
        if now.saturating_sub(self.from_ns) > CELL_NS {
            self.from_ns = self.to_ns;
        }
        self.previous_ns = self.to_ns;
        self.to_ns = now;
    }
}

/// What happened to a group in one cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Beginning, ns monotonic.
    pub from_ns: u64,
    /// End, ns monotonic.
    pub to_ns: u64,
    /// Issues.
    pub issues: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Time in which something waited in admission or queued, in ns: a tick counts whole when something waited at its end.
    pub waited_ns: u64,
    /// Count times time in admission and queued, in ns.
    pub weight: [u64; 2],
    /// Stages that ended.
    pub stages: [StageDelta; 3],
    /// What the stacks of the oldest in admission said, counted by tick, in the order of `flow::WAITS_FOR`.
    pub stacks: [u64; 3],
}

impl Cell {
    /// Takes in what another cell counted; the times of the cell itself stay.
    pub fn add(&mut self, other: &Cell) {
        self.issues = self.issues.saturating_add(other.issues);
        self.finished = self.finished.saturating_add(other.finished);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        for (mine, theirs) in self.weight.iter_mut().zip(other.weight) {
            *mine = mine.saturating_add(theirs);
        }
        for (mine, theirs) in self.stacks.iter_mut().zip(other.stacks) {
            *mine = mine.saturating_add(theirs);
        }
        for (mine, theirs) in self.stages.iter_mut().zip(other.stages) {
            mine.count = mine.count.saturating_add(theirs.count);
            mine.sum_ns = mine.sum_ns.saturating_add(theirs.sum_ns);
            mine.max_ns = mine.max_ns.max(theirs.max_ns);
        }
    }

    /// Time spent in admission and queued by those that left these stages, in ns.
    pub fn waits_sum_ns(&self) -> u64 {
        self.stages[0].sum_ns.saturating_add(self.stages[1].sum_ns)
    }

    fn is_empty(&self) -> bool {
        self.issues == 0
            && self.finished == 0
            && self.waited_ns == 0
            && self.weight == [0; 2]
            && self.stacks == [0; 3]
            && self.stages == [StageDelta::default(); 3]
    }
}

/// The cells of a group, oldest first. Cells in which nothing happened are not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    cells: VecDeque<Cell>,
}

impl Ring {
    /// Adds what happened in a tick; `cell` carries the times of the present cell.
    pub fn add(&mut self, cell: &Cell) {
        if cell.is_empty() {
            return;
        }
        match self.cells.back_mut() {
            Some(last) if last.from_ns == cell.from_ns => {
                last.to_ns = cell.to_ns;
                last.add(cell);
            }
            _ => self.cells.push_back(*cell),
        }
    }

    /// Forgets what ended more than [`KEEP_NS`] ago.
    pub fn prune(&mut self, now: u64) {
        while self
            .cells
            .front()
            .is_some_and(|c| c.to_ns.saturating_add(KEEP_NS) < now)
        {
            self.cells.pop_front();
        }
    }

    /// Sum of the cells that began at or after this moment.
    pub fn since(&self, from_ns: u64) -> Cell {
        let mut sum = Cell::default();
        for cell in self.cells.iter().rev().take_while(|c| c.from_ns >= from_ns) {
            sum.add(cell);
        }
        sum
    }

    /// True when nothing happened in the time that is kept.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

/// Totals at the ends of cells, oldest first: how far a counter had come at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    marks: VecDeque<Mark>,
}

/// Totals at the end of one cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Beginning of the cell, ns monotonic.
    pub from_ns: u64,
    /// Its end, ns monotonic.
    pub to_ns: u64,
    /// The counter at its end.
    pub total: u64,
}

impl Marks {
    /// Notes the counter at the end of the present cell and forgets what is older than [`KEEP_NS`].
    pub fn note(&mut self, clock: CellClock, total: u64) {
        match self.marks.back_mut() {
            // The first observation has no length and stays by itself: it is where everything is counted from.
            Some(last) if last.from_ns == clock.from_ns && last.to_ns > last.from_ns => {
                last.to_ns = clock.to_ns;
                last.total = total;
            }
            _ => self.marks.push_back(Mark {
                from_ns: clock.from_ns,
                to_ns: clock.to_ns,
                total,
            }),
        }
        while self
            .marks
            .front()
            .is_some_and(|m| m.to_ns.saturating_add(KEEP_NS) < clock.to_ns)
        {
            self.marks.pop_front();
        }
    }

    /// The counter at the first end at or after this moment: a difference from it is a lower bound.
    pub fn at_or_after(&self, ns: u64) -> Option<u64> {
        self.marks.iter().find(|m| m.to_ns >= ns).map(|m| m.total)
    }

    /// The counter at the last end before or at this moment, the oldest known one when all are later.
    pub fn at_or_before(&self, ns: u64) -> Option<u64> {
        self.marks
            .iter()
            .rev()
            .find(|m| m.to_ns <= ns)
            .or(self.marks.front())
            .map(|m| m.total)
    }

    /// Where a window of this length that ends now begins, on the border of a cell; `None` when that was not all observed.
    pub fn window_start(&self, now: u64, length_ns: u64) -> Option<u64> {
        let wanted = now.checked_sub(length_ns)?;
        self.marks
            .iter()
            .rev()
            .map(|m| m.from_ns)
            .find(|from| *from <= wanted)
    }
}

/// A histogram over the last 8 to 10 s: at most 6 slots of at most `hist::BUCKETS` buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistWindow {
    slots: VecDeque<HistSlot>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct HistSlot {
    from_ns: u64,
    counts: BTreeMap<u8, u64>,
}

impl HistWindow {
    /// Adds buckets that moved in the tick at `now`. A bucket that no histogram has is taken for the last one.
    pub fn add(&mut self, now: u64, buckets: &[(u8, u64)]) {
        if self
            .slots
            .back()
            .is_none_or(|s| now.saturating_sub(s.from_ns) >= SLOT_NS)
        {
            self.slots.push_back(HistSlot {
                from_ns: now,
                counts: BTreeMap::new(),
            });
        }
        if let Some(slot) = self.slots.back_mut() {
            for (bucket, count) in buckets {
                let entry = slot
                    .counts
                    .entry((*bucket).min(hist::BUCKETS as u8 - 1))
                    .or_default();
                *entry = entry.saturating_add(*count);
            }
        }
    }

    /// Forgets slots that began more than [`KEEP_NS`] ago.
    pub fn prune(&mut self, now: u64) {
        while self
            .slots
            .front()
            .is_some_and(|s| s.from_ns.saturating_add(KEEP_NS) < now)
        {
            self.slots.pop_front();
        }
    }

    /// All buckets, summed.
    pub fn counts(&self) -> [u64; hist::BUCKETS] {
        let mut all = [0u64; hist::BUCKETS];
        for slot in &self.slots {
            for (bucket, count) in &slot.counts {
                if let Some(sum) = all.get_mut(usize::from(*bucket)) {
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        all.map(|n| n.min(MAX_COUNT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn cell(clock: CellClock, issues: u64) -> Cell {
        Cell {
            from_ns: clock.from_ns,
            to_ns: clock.to_ns,
            issues,
            ..Cell::default()
        }
    }

    #[test]
    fn short_ticks_share_cells_and_memory_stays_bounded() {
        let mut clock = CellClock::default();
        let mut ring = Ring::default();
        let mut marks = Marks::default();
        for i in 1..=20_000u64 {
            clock.advance(i * 7 * MS);
            ring.add(&cell(clock, 1));
            ring.prune(clock.to_ns);
            marks.note(clock, i);
        }
        let bound = 2 * (KEEP_NS / CELL_NS) as usize;
        assert!(ring.cells.len() <= bound, "{}", ring.cells.len());
        assert!(marks.marks.len() <= bound);
        let start = marks.window_start(clock.to_ns, 5_000 * MS).unwrap();
        assert!((5_000..=5_200).contains(&((clock.to_ns - start) / MS)));
        let counted = ring.since(start).issues;
        assert_eq!(counted, (clock.to_ns - start) / (7 * MS));
    }

    #[test]
    fn a_window_that_was_not_all_observed_is_none() {
        let mut clock = CellClock {
            from_ns: 1_000 * MS,
            to_ns: 1_000 * MS,
            previous_ns: 1_000 * MS,
        };
        let mut marks = Marks::default();
        marks.note(clock, 0);
        for i in 1..20u64 {
            clock.advance((1_000 + i * 250) * MS);
            marks.note(clock, i);
            assert_eq!(marks.window_start(clock.to_ns, 5_000 * MS), None, "{i}");
        }
        clock.advance(6_000 * MS);
        marks.note(clock, 20);
        assert_eq!(
            marks.window_start(clock.to_ns, 5_000 * MS),
            Some(1_000 * MS)
        );
        assert_eq!(marks.at_or_after(1_001 * MS), Some(1));
        assert_eq!(marks.at_or_before(1_249 * MS), Some(0));
        assert_eq!(marks.at_or_before(1), Some(0));
        assert_eq!(marks.at_or_after(u64::MAX), None);
    }

    #[test]
    fn a_histogram_forgets() {
        let mut h = HistWindow::default();
        h.add(0, &[(10, 3), (200, 1)]);
        h.add(500 * MS, &[(10, 2)]);
        assert_eq!(h.slots.len(), 1);
        assert_eq!(h.counts()[10], 5);
        assert_eq!(h.counts()[hist::BUCKETS - 1], 1);
        h.add(9_000 * MS, &[(11, 1)]);
        h.prune(10_001 * MS);
        assert_eq!(h.counts()[10], 0);
        assert_eq!(h.counts()[11], 1);
    }
}
