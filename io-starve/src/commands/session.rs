//! One run of the pipeline, live or replayed, and what is told of it.

use std::{collections::BTreeMap, time::Duration};

use super::CommandError;
use crate::{
    detect::settings::Settings,
    files::Place,
    history::{History, summary::Summary},
    model::{observation::Observation, snapshot::Snapshot},
    output::{
        alert::{Alert, Event, StopReason},
        reporter::{Audience, Reporter},
        text,
    },
    pipeline::Pipeline,
    source::{
        Source,
        recording::{Checkpoint, Flight, Recorder},
    },
};

/// The pipeline with its reporter, and the recorder of what goes in.
pub(super) struct Session {
    pipeline: Pipeline,
    reporter: Reporter,
    audience: Audience,
    recorder: Option<Recorder>,
    flight: Option<Flight>,
    settings: Settings,
    labels: BTreeMap<String, String>,
    interval: Duration,
    observations: u64,
    /// Kept where somebody tells of the whole run at its end.
    history: Option<History>,
}

impl Session {
    /// A new run.
    pub(super) fn new(
        settings: &Settings,
        labels: &[(String, String)],
        interval: Duration,
        audience: Audience,
    ) -> Session {
        let labels: BTreeMap<_, _> = labels.iter().cloned().collect();
        let interval_ms = interval.as_millis() as u64;
        Session {
            pipeline: Pipeline::new(settings.clone()),
            reporter: Reporter::new(
                settings.clone(),
                labels.clone(),
                interval_ms,
                audience.clone(),
            ),
            audience,
            recorder: None,
            flight: None,
            settings: settings.clone(),
            labels,
            interval,
            observations: 0,
            history: None,
        }
    }

    /// Keeps what [`Session::whole`] tells.
    pub(super) fn with_history(mut self) -> Session {
        self.history = Some(History::default());
        self
    }

    /// The run that a recording goes on with, judged by these thresholds.
    ///
    /// Fails when the recording began in the middle of a run and this cannot go on from there, because the thresholds
    /// are others or another version made it: windows and open findings that were judged otherwise cannot be judged anew.
    pub(super) fn resume(
        checkpoint: &Checkpoint,
        settings: &Settings,
        audience: Audience,
    ) -> Result<Session, CommandError> {
        let labels: Vec<_> = checkpoint.labels.clone().into_iter().collect();
        let interval = Duration::from_millis(checkpoint.interval_ms);
        let mut session = Session::new(settings, &labels, interval, audience);
        if checkpoint.observations == 0 {
            return Ok(session);
        }
        if *settings != checkpoint.settings {
            return Err(CommandError::Usage(
                "this recording began in the middle of a run, so its thresholds cannot be changed; replay it without them"
                    .to_owned(),
            ));
        }
        let other_build = |e| {
            CommandError::Usage(format!(
                "this recording began in the middle of a run of another build, whose state cannot be continued here ({e}); \
                 replay it with the version that made it"
            ))
        };
        session.pipeline =
            serde_json::from_value(checkpoint.pipeline.clone()).map_err(other_build)?;
        let reporter: Reporter =
            serde_json::from_value(checkpoint.reporter.clone()).map_err(other_build)?;
        session.reporter = reporter.resumed(session.audience.clone());
        session.observations = checkpoint.observations;
        Ok(session)
    }

    /// Records from now on.
    pub(super) fn record_to(&mut self, place: Place) -> Result<(), CommandError> {
        self.recorder = Some(Recorder::create(place, &self.checkpoint()?)?);
        Ok(())
    }

    /// Keeps the last minutes from now on, and what surrounds findings.
    pub(super) fn fly(&mut self, flight: Flight) {
        self.flight = Some(flight);
    }

    fn checkpoint(&self) -> Result<Checkpoint, serde_json::Error> {
        Ok(Checkpoint {
            settings: self.settings.clone(),
            labels: self.labels.clone(),
            interval_ms: self.interval.as_millis() as u64,
            observations: self.observations,
            pipeline: serde_json::to_value(&self.pipeline)?,
            reporter: serde_json::to_value(&self.reporter)?,
        })
    }

    /// Goes on with other wishes.
    pub(super) fn reload(
        &mut self,
        settings: &Settings,
        labels: &[(String, String)],
        audience: Audience,
    ) {
        if let Some(flight) = &mut self.flight {
            flight.restart();
        }
        self.settings = settings.clone();
        self.labels = labels.iter().cloned().collect();
        self.audience = audience.clone();
        self.pipeline.set_settings(settings.clone());
        self.reporter
            .reload(settings.clone(), self.labels.clone(), audience);
    }

    /// The pipeline, to ask for figures.
    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// How many findings were not told, because too many came at once.
    pub(super) fn folded(&self) -> u64 {
        self.reporter.folded()
    }

    /// The thresholds in use.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// False when nothing is recorded, or no longer, because it failed.
    pub(super) fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Takes in an observation and says what there is to tell.
    pub(super) fn feed(&mut self, observation: &Observation) -> Vec<Alert> {
        if let Some(recorder) = &mut self.recorder
            && let Err(e) = recorder.write(observation)
        {
            // The run is worth more than its recording.
            complain!("io-starve: {e}");
            self.recorder = None;
        }
        if let Err(e) = self.fly_on(observation) {
            complain!("io-starve: the flight recording ended: {e}; please report this");
            self.flight = None;
        }
        self.observations += 1;
        let changes = self.pipeline.feed(observation);
        let mut alerts = self.reporter.tick(observation, &changes, &self.pipeline);
        if let Some(flight) = &mut self.flight {
            for alert in &mut alerts {
                if let Event::Open(f) = &mut alert.event {
                    let path = flight.keep(f.kind.name(), observation);
                    f.recording = path.map(|p| p.display().to_string());
                }
            }
        }
        if let Some(history) = &mut self.history {
            history.take(observation, &alerts, &self.pipeline);
        }
        alerts
    }

    fn fly_on(&mut self, observation: &Observation) -> Result<(), serde_json::Error> {
        let Some(mut flight) = self.flight.take() else {
            return Ok(());
        };
        if flight.wants_checkpoint(observation) {
            flight.segment(&self.checkpoint()?, observation)?;
        }
        flight.write(observation)?;
        self.flight = Some(flight);
        Ok(())
    }

    /// Closes what is open and says so.
    pub(super) fn stop(&mut self, reason: StopReason) -> Vec<Alert> {
        let changes = self.pipeline.detach();
        let alerts = self.reporter.stop(reason, &changes, &self.pipeline);
        if let Some(history) = &mut self.history {
            history.note(&alerts);
        }
        alerts
    }

    /// The figures of the whole run; empty without a history.
    pub(super) fn whole(&self) -> Summary {
        let nothing = History::default();
        let history = self.history.as_ref().unwrap_or(&nothing);
        Summary::new(history, &self.pipeline, self.summary())
    }

    /// Ends the recording; says how many observations it holds when there is one.
    pub(super) fn end_recording(&mut self) -> Result<Option<u64>, CommandError> {
        if let Some(flight) = self.flight.take() {
            flight.finish();
        }
        let recorder = self.recorder.take();
        recorder
            .map(Recorder::finish)
            .transpose()
            .map_err(Into::into)
    }

    /// The state now, as far as it is wanted.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.audience.focus.narrow(self.pipeline.snapshot())
    }

    /// The run in a sentence.
    pub(super) fn summary(&self) -> String {
        text::summary(&self.snapshot(), self.reporter.findings())
    }
}

/// Feeds observations to `each` until the source ends (`None`) or `stop` is ready.
pub(super) async fn drive<S: Source>(
    source: &mut S,
    stop: impl Future<Output = StopReason>,
    mut each: impl FnMut(Observation) -> Result<(), CommandError>,
) -> Result<Option<StopReason>, CommandError> {
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            reason = &mut stop => return Ok(Some(reason)),
            observation = source.next() => match observation? {
                Some(observation) => each(observation)?,
                None => return Ok(None),
            },
        }
    }
}
