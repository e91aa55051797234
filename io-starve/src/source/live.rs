//! The running kernel as a source: reads it once a tick.

use std::time::Duration;

use io_starve_common::wire::{EPOCH_SHIFT, LossKind};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::Source;
use crate::{kernel::ReadError, model::observation::Observation};

/// Reads the kernel at every tick, through the function that it is given.
pub struct Live<F> {
    observe: F,
    ticks: Interval,
    last_ns: Option<u64>,
    late: u64,
}

impl<F> Live<F>
where
    F: FnMut() -> Result<Observation, ReadError>,
{
    /// Begins at once and reads every `interval`.
    pub fn new(interval: Duration, observe: F) -> Live<F> {
        let mut ticks = interval_at(Instant::now(), interval);
        // After a stop (SIGSTOP, a stuck disk) one tick makes up for all that were missed: a burst would
        // only measure windows of no length.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Live {
            observe,
            ticks,
            last_ns: None,
            late: 0,
        }
    }

    /// Reads the kernel now, without waiting for the tick: what happened since the last one still counts.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    pub fn observe_now(&mut self) -> Result<Observation, ReadError> {
        let mut observation = (self.observe)()?;
        let gap = self
            .last_ns
            .map_or(0, |last| observation.mono_ns.saturating_sub(last));
        self.last_ns = Some(observation.mono_ns);
        // The programs keep maxima for this epoch and the one before: a longer gap misses some.
        if gap > 1 << EPOCH_SHIFT {
            self.late += 1;
        }
        if self.late > 0 {
            match observation
                .loss
                .binary_search_by_key(&LossKind::LateTick, |(kind, _)| *kind)
            {
                Ok(i) => observation.loss[i].1 += self.late,
                Err(i) => observation.loss.insert(i, (LossKind::LateTick, self.late)),
            }
        }
        Ok(observation)
    }
}

impl<F> Source for Live<F>
where
    F: FnMut() -> Result<Observation, ReadError>,
{
    async fn next(&mut self) -> Result<Option<Observation>, ReadError> {
        self.ticks.tick().await;
        self.observe_now().map(Some)
    }

    fn last(&mut self) -> Result<Option<Observation>, ReadError> {
        self.observe_now().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    async fn observed_at(times_ms: &[u64]) -> Vec<Vec<(LossKind, u64)>> {
        let mut times = times_ms.iter();
        let mut live = Live::new(Duration::from_millis(250), || {
            Ok(Observation {
                mono_ns: times.next().unwrap() * MS,
                loss: vec![(LossKind::SlotsFull, 3)],
                ..Observation::default()
            })
        });
        let mut seen = Vec::new();
        for _ in times_ms {
            seen.push(live.next().await.unwrap().unwrap().loss);
        }
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn a_tick_within_the_epoch_is_not_late() {
        let loss = observed_at(&[1_000, 1_250, 2_250]).await;
        assert!(
            loss.iter().all(|l| l == &[(LossKind::SlotsFull, 3)]),
            "{loss:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn late_ticks_are_counted_and_stay_counted() {
        let loss = observed_at(&[1_000, 2_100, 2_350, 9_000]).await;
        let late = |l: &Vec<(LossKind, u64)>| {
            l.iter()
                .find(|(k, _)| *k == LossKind::LateTick)
                .map(|(_, n)| *n)
        };
        let counts: Vec<_> = loss.iter().map(late).collect();
        assert_eq!(counts, [None, Some(1), Some(1), Some(2)]);
        assert!(loss.iter().all(|l| l.is_sorted()));
    }

    #[tokio::test(start_paused = true)]
    async fn missed_ticks_are_not_made_up_for() {
        let begin = Instant::now();
        let mut at = Vec::new();
        let mut live = Live::new(Duration::from_millis(250), || Ok(Observation::default()));
        live.next().await.unwrap();
        tokio::time::advance(Duration::from_millis(1_100)).await;
        for _ in 0..3 {
            live.next().await.unwrap();
            at.push(begin.elapsed().as_millis());
        }
        assert_eq!(at, [1_100, 1_250, 1_500]);
    }
}
