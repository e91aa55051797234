//! Time in a fixed number of columns: when the run outgrows them, two become one.

/// Columns at most. Twice as many are not told apart on a page, and half as many hide a wait of a second in a run of two minutes.
pub const MAX_COLUMNS: usize = 120;
/// Width of a column at first, in ns: the shortest time between two ticks.
const FIRST_WIDTH_NS: u64 = 50_000_000;

/// Which column a moment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    from_ns: Option<u64>,
    width_ns: u64,
}

impl Default for Axis {
    fn default() -> Axis {
        Axis {
            from_ns: None,
            width_ns: FIRST_WIDTH_NS,
        }
    }
}

impl Axis {
    /// Where it begins, ns monotonic; 0 before anything was seen.
    pub fn from_ns(&self) -> u64 {
        self.from_ns.unwrap_or(0)
    }

    /// Width of a column in ns.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// The column of a moment; the first for what was before.
    pub fn column(&self, ns: u64) -> usize {
        let since = ns.saturating_sub(self.from_ns());
        usize::try_from(since / self.width_ns).unwrap_or(usize::MAX)
    }

    /// Makes room up to this moment. Returns how often the columns must be halved for that.
    pub fn reach(&mut self, ns: u64) -> u32 {
        self.from_ns.get_or_insert(ns);
        let mut halved = 0;
        while self.column(ns) >= MAX_COLUMNS {
            self.width_ns = self.width_ns.saturating_mul(2);
            halved += 1;
        }
        halved
    }
}

/// Counts by column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// Adds to a column.
    pub fn add(&mut self, column: usize, n: u64) {
        if n == 0 || column >= MAX_COLUMNS {
            return;
        }
        if self.0.len() <= column {
            self.0.resize(column + 1, 0);
        }
        self.0[column] = self.0[column].saturating_add(n);
    }

    /// Makes one column of two.
    pub fn halve(&mut self) {
        let sums = self
            .0
            .chunks(2)
            .map(|pair| pair.iter().fold(0u64, |a, b| a.saturating_add(*b)));
        self.0 = sums.collect();
    }

    /// The columns; trailing ones without any may be missing.
    pub fn columns(&self) -> &[u64] {
        &self.0
    }
}

/// Counts by column and row: rows are octaves of a duration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grid {
    columns: Vec<[u64; ROWS]>,
}

/// Octaves that the histograms of the kernel side have.
pub const ROWS: usize = io_starve_common::hist::BUCKETS / 4;

impl Grid {
    /// Adds to a bucket of the histogram in a column.
    pub fn add(&mut self, column: usize, bucket: u8, n: u64) {
        if column >= MAX_COLUMNS {
            return;
        }
        if self.columns.len() <= column {
            self.columns.resize(column + 1, [0; ROWS]);
        }
        if let Some(cell) = self.columns[column].get_mut(usize::from(bucket) / 4) {
            *cell = cell.saturating_add(n);
        }
    }

    /// Makes one column of two.
    pub fn halve(&mut self) {
        let merged = self.columns.chunks(2).map(|pair| {
            let mut sum = pair[0];
            for (a, b) in sum.iter_mut().zip(pair.get(1).unwrap_or(&[0; ROWS])) {
                *a = a.saturating_add(*b);
            }
            sum
        });
        self.columns = merged.collect();
    }

    /// The columns, each with its counts by octave; trailing ones without any may be missing.
    pub fn columns(&self) -> &[[u64; ROWS]] {
        &self.columns
    }

    /// All that was counted.
    pub fn total(&self) -> u64 {
        let cells = self.columns.iter().flatten();
        cells.fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// A stretch of time in which something went on, once or several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// When it began, ns monotonic.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// How many ended in it; 0 while the first of them goes on.
    pub count: u64,
    /// The longest of them, in ns.
    pub longest_ns: u64,
}

/// Stretches that do not touch, sorted. What lies closer together than a column is one: nobody would see the gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bars(Vec<Bar>);

impl Bars {
    /// Adds one.
    pub fn add(&mut self, mut bar: Bar, gap_ns: u64) {
        bar.end_ns = bar.end_ns.max(bar.begin_ns);
        let first = self
            .0
            .partition_point(|b| b.end_ns.saturating_add(gap_ns) < bar.begin_ns);
        let mut last = first;
        while let Some(b) = self.0.get(last)
            && b.begin_ns <= bar.end_ns.saturating_add(gap_ns)
        {
            bar.begin_ns = bar.begin_ns.min(b.begin_ns);
            bar.end_ns = bar.end_ns.max(b.end_ns);
            bar.count = bar.count.saturating_add(b.count);
            bar.longest_ns = bar.longest_ns.max(b.longest_ns);
            last += 1;
        }
        self.0.splice(first..last, [bar]);
    }

    /// Joins what is closer together than this.
    pub fn join(&mut self, gap_ns: u64) {
        for bar in std::mem::take(&mut self.0) {
            self.add(bar, gap_ns);
        }
    }

    /// All of them, the earliest first.
    pub fn iter(&self) -> std::slice::Iter<'_, Bar> {
        self.0.iter()
    }

    /// For how long something went on, in ns.
    pub fn total_ns(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, b| sum.saturating_add(b.end_ns - b.begin_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bar(begin_ns: u64, end_ns: u64) -> Bar {
        Bar {
            begin_ns,
            end_ns,
            count: 1,
            longest_ns: end_ns - begin_ns,
        }
    }

    #[test]
    fn an_hour_fits_and_nothing_is_lost() {
        let mut axis = Axis::default();
        let mut grid = Grid::default();
        for tick in 0..14_400u64 {
            let now = 1_000 + tick * 250_000_000;
            for _ in 0..axis.reach(now) {
                grid.halve();
            }
            grid.add(axis.column(now), 40, 3);
        }
        assert_eq!(grid.total(), 3 * 14_400);
        assert!(grid.columns().len() <= MAX_COLUMNS && grid.columns().len() > MAX_COLUMNS / 2);
        assert!(grid.columns().iter().all(|c| c[10] > 0));
    }

    #[test]
    fn what_touches_is_one() {
        let mut bars = Bars::default();
        for (begin, end) in [(100, 200), (400, 500), (250, 300), (0, 20)] {
            bars.add(bar(begin, end), 10);
        }
        assert_eq!(bars.iter().count(), 4);
        // From the second to the third.
        bars.add(bar(195, 260), 10);
        let all: Vec<_> = bars
            .iter()
            .map(|b| (b.begin_ns, b.end_ns, b.count))
            .collect();
        assert_eq!(all, [(0, 20, 1), (100, 300, 3), (400, 500, 1)]);
        bars.join(80);
        assert_eq!(bars.iter().count(), 2);
        assert_eq!(bars.total_ns(), 300 + 100);
    }

    proptest! {
        #[test]
        fn bars_stay_apart_and_sorted(list in proptest::collection::vec((0u64..2_000, 0u64..300), 1..60), gap in 0u64..50) {
            let mut bars = Bars::default();
            for (begin, length) in &list {
                bars.add(bar(*begin, begin + length), gap);
            }
            let all: Vec<Bar> = bars.iter().copied().collect();
            prop_assert_eq!(all.iter().map(|b| b.count).sum::<u64>(), list.len() as u64);
            prop_assert!(all.windows(2).all(|w| w[0].end_ns + gap < w[1].begin_ns));
        }
    }
}
