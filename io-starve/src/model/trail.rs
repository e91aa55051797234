//! What was seen of a disk in the last minute, second by second: how long its oldest I/O had waited, and the times of stages.
//!
//! In: histograms that moved in a tick and the oldest in flight at its end. Out: one step for each second, the present one last.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::observation::Stage;

/// Steps that are kept.
pub const STEPS: usize = 60;
/// Length of a step, in ns.
const STEP_NS: u64 = 1_000_000_000;
/// Rows of a coarse histogram: below 16 µs, then four times as much each, the last one from 17 s on.
pub const ROWS: usize = 12;
/// Fine buckets up to the first border of the coarse ones, which lies at 16.4 µs.
const FIRST: usize = 20;
/// Fine buckets in a coarse one: four in an octave, two octaves.
const EACH: usize = 8;

/// The coarse row of a fine bucket (`io_starve_common::hist`).
pub fn row(bucket: usize) -> usize {
    match bucket.checked_sub(FIRST) {
        None => 0,
        Some(above) => (above / EACH + 1).min(ROWS - 1),
    }
}

/// The smallest duration of a coarse row, in ns.
pub fn row_begins_ns(row: usize) -> u64 {
    match row.checked_sub(1) {
        None => 0,
        Some(above) => {
            io_starve_common::hist::lower_bound((FIRST + above.min(ROWS - 2) * EACH) as u32)
        }
    }
}

/// The fine counts summed by coarse rows.
pub fn coarse(counts: &[u64]) -> [u64; ROWS] {
    let mut rows = [0u64; ROWS];
    for (bucket, count) in counts.iter().enumerate() {
        let sum = &mut rows[row(bucket)];
        *sum = sum.saturating_add(*count);
    }
    rows
}

/// One second of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Age of the oldest in flight or held by a limit at its ticks, the longest of them, in ns; `None` when there was nothing, or
    /// before attach.
    pub oldest_ns: Option<u64>,
    /// How many left the queue, by coarse row; rows without any are left out.
    pub queued: Vec<(u8, u64)>,
    /// How many left the device, likewise.
    pub device: Vec<(u8, u64)>,
}

/// The last minute of a disk, oldest first; seconds in which nothing was seen are not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trail(VecDeque<(u64, Second)>);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Second {
    oldest_ns: Option<u64>,
    queued: BTreeMap<u8, u64>,
    device: BTreeMap<u8, u64>,
}

impl Trail {
    /// Adds the fine buckets that moved in the tick at `now`.
    pub fn add(&mut self, now: u64, stage: Stage, buckets: &[(u8, u64)]) {
        let second = self.second(now);
        let rows = match stage {
            Stage::Admission => return,
            Stage::Queued => &mut second.queued,
            Stage::Device => &mut second.device,
        };
        for (bucket, count) in buckets {
            let sum = rows.entry(row(usize::from(*bucket)) as u8).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Notes that something has waited for so long at the end of the tick at `now`.
    pub fn wait(&mut self, now: u64, ns: u64) {
        let second = self.second(now);
        second.oldest_ns = second.oldest_ns.max(Some(ns));
    }

    /// Notes how old the oldest in flight is at the end of the tick at `now`, and forgets what is older than a minute.
    pub fn end_tick(&mut self, now: u64, oldest_ns: Option<u64>) {
        if let Some(ns) = oldest_ns {
            self.wait(now, ns);
        }
        let first = (now / STEP_NS + 1).saturating_sub(STEPS as u64);
        self.0.retain(|(at, _)| *at >= first);
    }

    fn second(&mut self, now: u64) -> &mut Second {
        let at = now / STEP_NS;
        let index = match self.0.back() {
            Some((last, _)) if *last >= at => self.0.len() - 1,
            _ => {
                self.0.push_back((at, Second::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[index].1
    }

    /// The last [`STEPS`] seconds up to `now`, those without anything as empty steps.
    pub fn steps(&self, now: u64) -> Vec<Step> {
        let first = (now / STEP_NS + 1).saturating_sub(STEPS as u64);
        let mut steps = vec![Step::default(); STEPS];
        for (at, second) in &self.0 {
            let Some(step) = at
                .checked_sub(first)
                .and_then(|i| steps.get_mut(i as usize))
            else {
                continue;
            };
            let rows = |of: &BTreeMap<u8, u64>| of.iter().map(|(r, n)| (*r, *n)).collect();
            *step = Step {
                oldest_ns: second.oldest_ns,
                queued: rows(&second.queued),
                device: rows(&second.device),
            };
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use io_starve_common::hist;

    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    #[test]
    fn rows_begin_where_they_say() {
        for row_ in 1..ROWS {
            let begins = row_begins_ns(row_);
            assert_eq!(row(hist::bucket(begins) as usize), row_);
            assert_eq!(row(hist::bucket(begins - 256) as usize), row_ - 1);
        }
        assert_eq!(row_begins_ns(0), 0);
        assert_eq!(row(hist::BUCKETS - 1), ROWS - 1);
        assert_eq!(
            (row_begins_ns(4), row_begins_ns(11)),
            (1_048_576, 17_179_869_184)
        );
    }

    #[test]
    fn a_minute_is_kept_by_the_second() {
        let mut trail = Trail::default();
        let bucket = hist::bucket(5 * MS) as u8;
        for tick in 0..400u64 {
            let now = 1_000 * S + tick * 250 * MS;
            trail.add(now, Stage::Queued, &[(bucket, 2)]);
            trail.end_tick(now, (tick % 2 == 0).then_some(tick * MS));
        }
        let now = 1_000 * S + 399 * 250 * MS;
        let steps = trail.steps(now);
        assert_eq!((steps.len(), trail.0.len()), (STEPS, STEPS));
        let last = Step {
            oldest_ns: Some(398 * MS),
            queued: vec![(5, 8)],
            device: vec![],
        };
        assert_eq!(steps[STEPS - 1], last);
        let later = trail.steps(now + 2 * S);
        assert_eq!(later[STEPS - 3], last);
        assert_eq!(later[STEPS - 1], Step::default(), "nothing seen is not 0");
        trail.end_tick(now + 100 * S, None);
        assert!(trail.0.is_empty());
    }
}
