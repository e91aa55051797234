//! A recording or a trace as a source: its observations at the pace of the run, faster, or at once.

use std::{io::BufRead, time::Duration};

use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    Source,
    input::Progress,
    recording::{Ending, Recording},
};
use crate::{kernel::ReadError, model::observation::Observation};

/// Something that holds observations of the past.
pub trait Tape {
    /// The next observation, `None` at the end.
    fn next_observation(&mut self) -> Option<Observation>;

    /// True when the end is where it was meant to be.
    fn is_whole(&self) -> bool;

    /// What a user must know about what was replayed, `None` when there is nothing.
    fn warning(&self) -> Option<String>;

    /// How far it has come, where that is worth telling: a recording is small.
    fn progress(&self) -> Option<Progress> {
        None
    }
}

impl<R: BufRead> Tape for Recording<R> {
    fn next_observation(&mut self) -> Option<Observation> {
        Recording::next_observation(self)
    }

    fn is_whole(&self) -> bool {
        self.ending() == Some(&Ending::Whole)
    }

    fn warning(&self) -> Option<String> {
        Recording::warning(self)
    }
}

impl Tape for Box<dyn Tape> {
    fn next_observation(&mut self) -> Option<Observation> {
        (**self).next_observation()
    }

    fn is_whole(&self) -> bool {
        (**self).is_whole()
    }

    fn warning(&self) -> Option<String> {
        (**self).warning()
    }

    fn progress(&self) -> Option<Progress> {
        (**self).progress()
    }
}

/// Hands out the observations of a tape.
#[derive(Debug)]
pub struct Replay<T> {
    tape: T,
    speed: Option<f64>,
    /// When the first observation was handed out, and its time in the run.
    origin: Option<(Instant, u64)>,
    /// Read, but its time has not come.
    next: Option<Observation>,
}

impl<T: Tape> Replay<T> {
    /// Replays `speed` times as fast as the run was, or at once when there is no speed.
    pub fn new(tape: T, speed: Option<f64>) -> Replay<T> {
        Replay {
            tape,
            speed,
            origin: None,
            next: None,
        }
    }

    /// The tape, to ask how it ended.
    pub fn tape(&self) -> &T {
        &self.tape
    }

    fn due(&mut self, mono_ns: u64) -> Option<Instant> {
        let speed = self.speed?;
        let (begin, first_ns) = *self.origin.get_or_insert_with(|| (Instant::now(), mono_ns));
        let since = mono_ns.saturating_sub(first_ns) as f64 / 1e9 / speed;
        // A speed so small that the wait cannot be expressed waits for a year, which nobody sees the end of.
        let wait = Duration::try_from_secs_f64(since).unwrap_or(Duration::from_secs(365 * 86_400));
        begin.checked_add(wait)
    }
}

impl<T: Tape> Source for Replay<T> {
    async fn next(&mut self) -> Result<Option<Observation>, ReadError> {
        if self.next.is_none() {
            self.next = self.tape.next_observation();
        }
        let due = self
            .next
            .as_ref()
            .map(|o| o.mono_ns)
            .and_then(|ns| self.due(ns));
        match due {
            Some(due) => sleep_until(due).await,
            // Signals and the screen must have their turn.
            None => yield_now().await,
        }
        Ok(self.next.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::recording::tests::{observations, recorded};

    async fn arrivals(speed: Option<f64>) -> Vec<u128> {
        let file = recorded(&observations(5));
        let mut replay = Replay::new(Recording::new(&file[..], "test").unwrap(), speed);
        let begin = Instant::now();
        let mut at = Vec::new();
        while replay.next().await.unwrap().is_some() {
            at.push(begin.elapsed().as_millis());
        }
        at
    }

    // Tokio's timer has steps of 1 ms and rounds up.
    #[tokio::test(start_paused = true)]
    async fn the_pace_is_that_of_the_run_or_a_multiple() {
        assert_eq!(arrivals(Some(1.0)).await, [0, 250, 500, 750, 1_000]);
        assert_eq!(arrivals(Some(2.0)).await, [0, 125, 250, 375, 500]);
        assert_eq!(arrivals(None).await, [0; 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_observation_whose_wait_was_dropped_is_not_lost() {
        let file = recorded(&observations(3));
        let mut replay = Replay::new(Recording::new(&file[..], "test").unwrap(), Some(1.0));
        let mut got = Vec::new();
        loop {
            match tokio::time::timeout(Duration::from_millis(30), replay.next()).await {
                Ok(Ok(Some(o))) => got.push(o),
                Ok(Ok(None)) => break,
                Ok(Err(e)) => panic!("{e}"),
                Err(_elapsed) => {}
            }
        }
        assert_eq!(got, observations(3));
    }
}
