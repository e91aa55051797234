//! What watching costs: the CPU time of this process over the last seconds. In: its CPU time so far, at every tick. Out: a share.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How far back the share goes, in ns: as far as the rates of disks.
const WINDOW_NS: u64 = 5_000_000_000;
/// Moments nearer to each other than this are not kept, in ns: shorter ticks then cost no more memory.
const STEP_NS: u64 = 200_000_000;

/// CPU time at some moments of the last seconds, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spent(VecDeque<(u64, u64)>);

impl Spent {
    /// Notes the CPU time at the tick at `now`.
    pub fn take(&mut self, now: u64, cpu_ns: Option<u64>) {
        let Some(cpu_ns) = cpu_ns else { return };
        // Another process, which went on with a recording, begins anew.
        if self.0.back().is_some_and(|(_, last)| cpu_ns < *last) {
            self.0.clear();
        }
        let at = |back: usize| {
            let index = self.0.len().checked_sub(back)?;
            self.0.get(index).map(|(at, _)| *at)
        };
        let gap = |(from, to): (u64, u64)| to.saturating_sub(from);
        if at(2).zip(at(1)).map(gap).is_some_and(|ns| ns < STEP_NS) {
            self.0.pop_back();
        }
        self.0.push_back((now, cpu_ns));
        while self
            .0
            .get(1)
            .is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW_NS)
        {
            self.0.pop_front();
        }
    }

    /// CPU time by time: 1 is all of one core. `None` before there were two moments.
    pub fn share(&self) -> Option<f64> {
        let ((from, first), (to, last)) = (self.0.front()?, self.0.back()?);
        let ns = to.saturating_sub(*from);
        (ns > 0).then(|| last.saturating_sub(*first) as f64 / ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_share_is_that_of_the_last_seconds() {
        let mut spent = Spent::default();
        spent.take(0, None);
        assert_eq!(spent.share(), None, "nobody told it");
        for tick in 0..40u64 {
            spent.take(tick * 250 * MS, Some(tick * 5 * MS));
        }
        assert_eq!(spent.share(), Some(0.02));
        for tick in 40..400u64 {
            spent.take(tick * 250 * MS, Some(195 * MS));
        }
        assert_eq!(spent.share(), Some(0.0));
        assert!(spent.0.len() < 30, "{}", spent.0.len());
        spent.take(100_000 * MS, Some(MS));
        assert_eq!(spent.share(), None, "another process");
    }

    #[test]
    fn short_ticks_cost_no_more_memory() {
        let mut spent = Spent::default();
        for tick in 0..2_000u64 {
            spent.take(tick * 50 * MS, Some(tick * MS));
            assert!(spent.0.len() < 120, "{}", spent.0.len());
        }
        assert_eq!(spent.share(), Some(0.02));
    }
}
