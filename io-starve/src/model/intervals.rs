//! Times in which something was so: sorted, apart from each other. Sums of wall time, not of tasks.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Intervals of one sort that are kept; beyond that the oldest are forgotten. Pauses of one owner are at least 4 jiffies apart or joined,
/// so that 10 s have fewer.
const MAX_INTERVALS: usize = 2_048;

/// (begin, end) in ns, oldest first; no two touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intervals(VecDeque<(u64, u64)>);

impl Intervals {
    /// Adds one, joined with those that it touches.
    pub fn add(&mut self, begin: u64, end: u64) {
        if end <= begin {
            return;
        }
        let (mut begin, mut end) = (begin, end);
        let first = self.0.partition_point(|(_, e)| *e < begin);
        let last = self.0.partition_point(|(b, _)| *b <= end);
        if let Some((b, _)) = self.0.get(first).filter(|_| first < last) {
            begin = begin.min(*b);
        }
        if let Some((_, e)) = last.checked_sub(1).and_then(|i| self.0.get(i))
            && first < last
        {
            end = end.max(*e);
        }
        self.0.drain(first..last);
        self.0.insert(first, (begin, end));
        while self.0.len() > MAX_INTERVALS {
            self.0.pop_front();
        }
    }

    /// Adds those of another.
    pub fn join(&mut self, other: &Intervals) {
        for (begin, end) in &other.0 {
            self.add(*begin, *end);
        }
    }

    /// What of them lies between two moments.
    pub fn within(&self, from: u64, to: u64) -> Intervals {
        let cut = |(b, e): &(u64, u64)| ((*b).max(from), (*e).min(to));
        let parts = self.0.iter().map(cut);
        Intervals(parts.filter(|(b, e)| b < e).collect())
    }

    /// What they have in common with others.
    pub fn common(&self, other: &Intervals) -> Intervals {
        let mut out = VecDeque::new();
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (begin, end) = (x.0.max(y.0), x.1.min(y.1));
            if begin < end {
                out.push_back((begin, end));
            }
            if x.1 <= y.1 {
                a.next();
            } else {
                b.next();
            }
        }
        Intervals(out)
    }

    /// Their length in ns.
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, (b, e)| sum + (e - b))
    }

    /// When the first begins.
    pub fn begin(&self) -> Option<u64> {
        self.0.front().map(|(b, _)| *b)
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets what ended before this moment.
    pub fn prune(&mut self, from: u64) {
        while self.0.front().is_some_and(|(_, end)| *end <= from) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(list: &[(u64, u64)]) -> Intervals {
        let mut all = Intervals::default();
        for (b, e) in list {
            all.add(*b, *e);
        }
        all
    }

    #[test]
    fn what_touches_is_joined() {
        assert_eq!(of(&[(1, 3), (5, 7), (3, 5)]), of(&[(1, 7)]));
        assert_eq!(of(&[(5, 7), (1, 2), (0, 9)]), of(&[(0, 9)]));
        assert_eq!(of(&[(5, 7), (1, 2), (9, 9)]).sum(), 3);
        assert_eq!(of(&[(5, 5), (7, 6)]), Intervals::default());
    }

    #[test]
    fn parts_and_what_is_common() {
        let a = of(&[(0, 10), (20, 30), (40, 50)]);
        let b = of(&[(5, 25), (45, 60)]);
        assert_eq!(a.common(&b), of(&[(5, 10), (20, 25), (45, 50)]));
        assert_eq!(a.within(9, 41), of(&[(9, 10), (20, 30), (40, 41)]));
        let mut late = a.clone();
        late.prune(30);
        assert_eq!(late, of(&[(40, 50)]));
        assert_eq!((a.begin(), late.is_empty()), (Some(0), false));
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_bit_for_each_moment(
            a in prop::collection::vec((0u64..200, 0u64..200), 0..20),
            b in prop::collection::vec((0u64..200, 0u64..200), 0..20),
            from in 0u64..200, to in 0u64..200,
        ) {
            let bits = |list: &[(u64, u64)], at: u64| list.iter().any(|(b, e)| *b <= at && at < *e);
            let count = |is: &dyn Fn(u64) -> bool| (0..200).filter(|at| is(*at)).count() as u64;
            let (x, y) = (of(&a), of(&b));
            prop_assert_eq!(x.sum(), count(&|at| bits(&a, at)));
            prop_assert_eq!(x.common(&y).sum(), count(&|at| bits(&a, at) && bits(&b, at)));
            prop_assert_eq!(x.within(from, to).sum(), count(&|at| bits(&a, at) && from <= at && at < to));
            let mut both = x.clone();
            both.join(&y);
            prop_assert_eq!(both.sum(), count(&|at| bits(&a, at) || bits(&b, at)));
        }
    }
}
