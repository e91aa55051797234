//! A recording or a trace as a source: its observations at the pace of the run, faster, or at once.

use std::{future::pending, io::BufRead, time::Duration};

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

/// The slowest and the fastest that keys reach, as times the pace of the run.
const SPEEDS: (f64, f64) = (0.125, 64.0);
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
    /// When an observation was handed out, and its time in the run: the pace is counted from there.
    origin: Option<(Instant, u64)>,
    /// Read, but its time has not come.
    next: Option<Observation>,
    /// The last one handed out, by its time in the run.
    last_ns: Option<u64>,
    going: Going,
}

/// What the one who watches may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Go on, or hold.
    Play,
    /// Hold.
    Hold,
    /// One tick, then hold.
    Step,
    /// As fast as it goes until a finding opens, then hold.
    Seek,
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
}

/// How a replay runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Play {
    /// As many times as fast as it was.
    pub speed: f64,
    /// It holds.
    pub held: bool,
    /// It runs on to the next finding.
    pub seeking: bool,
}

/// What the one who watches wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    /// At the pace that was asked for.
    On,
    /// Not at all.
    Held,
    /// One more, then not.
    Step,
    /// As fast as it goes, until told to stop.
    Seek,
}

impl<T: Tape> Replay<T> {
    /// Replays `speed` times as fast as the run was, or at once when there is no speed.
    pub fn new(tape: T, speed: Option<f64>) -> Replay<T> {
        Replay {
            tape,
            speed,
            origin: None,
            next: None,
            last_ns: None,
            going: Going::On,
        }
    }

    /// The tape, to ask how it ended.
    pub fn tape(&self) -> &T {
        &self.tape
    }

    /// How it runs.
    pub fn play(&self) -> Play {
        Play {
            speed: self.speed.unwrap_or(SPEEDS.1),
            held: matches!(self.going, Going::Held | Going::Step),
            seeking: self.going == Going::Seek,
        }
    }

    /// Does what the one who watches asks for.
    pub fn control(&mut self, pace: Pace) {
        let speed = self.speed.unwrap_or(SPEEDS.1);
        match pace {
            Pace::Play if self.going == Going::On => self.going = Going::Held,
            Pace::Play => self.going = Going::On,
            Pace::Hold => self.going = Going::Held,
            Pace::Step => self.going = Going::Step,
            Pace::Seek => self.going = Going::Seek,
            Pace::Faster => self.speed = Some((speed * 2.0).min(SPEEDS.1)),
            Pace::Slower => self.speed = Some((speed / 2.0).max(SPEEDS.0)),
        }
        // From here on, at the pace of now: the time of a hold is not made up for.
        self.origin = self.last_ns.map(|ns| (Instant::now(), ns));
    }

    /// What was sought is here.
    pub fn arrive(&mut self) {
        if self.going == Going::Seek {
            self.going = Going::Held;
        }
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
        if self.going == Going::Held {
            // Whoever holds it lets it go by a request, for which this is dropped.
            pending::<()>().await;
        }
        if self.next.is_none() {
            self.next = self.tape.next_observation();
        }
        let at_once = matches!(self.going, Going::Step | Going::Seek);
        let due = self
            .next
            .as_ref()
            .map(|o| o.mono_ns)
            .filter(|_| !at_once)
            .and_then(|ns| self.due(ns));
        match due {
            Some(due) => sleep_until(due).await,
            // Signals and the screen must have their turn.
            None => yield_now().await,
        }
        if self.going == Going::Step {
            self.going = Going::Held;
        }
        self.last_ns = self.next.as_ref().map(|o| o.mono_ns).or(self.last_ns);
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

    #[tokio::test(start_paused = true)]
    async fn whoever_watches_holds_steps_and_goes_on_where_it_was() {
        let file = recorded(&observations(8));
        let mut replay = Replay::new(Recording::new(&file[..], "test").unwrap(), Some(1.0));
        let begin = Instant::now();
        let first = replay.next().await.unwrap().unwrap();
        replay.control(Pace::Hold);
        let held = tokio::time::timeout(Duration::from_secs(60), replay.next()).await;
        assert!(held.is_err() && replay.play().held);
        replay.control(Pace::Step);
        let second = replay.next().await.unwrap().unwrap();
        assert!(second.mono_ns > first.mono_ns && replay.play().held);
        assert_eq!(begin.elapsed().as_secs(), 60, "a step does not wait");
        replay.control(Pace::Play);
        replay.control(Pace::Faster);
        replay.next().await.unwrap();
        // Half of 250 ms, and a step of the timer at most.
        let third = begin.elapsed().as_millis();
        assert!((60_125..=60_126).contains(&third), "{third}");
        replay.control(Pace::Seek);
        for _ in 0..3 {
            replay.next().await.unwrap();
        }
        assert_eq!(begin.elapsed().as_millis(), third);
        replay.arrive();
        assert_eq!((replay.play().held, replay.play().seeking), (true, false));
    }
}
