//! One run of the pipeline, live or replayed, and what is told of it.

use std::{collections::BTreeMap, time::Duration};

use super::CommandError;
use crate::{
    detect::settings::Settings,
    files::Place,
    history::{History, summary::Summary},
    model::{observation::Observation, snapshot::Snapshot},
    output::{
        alert::{Alert, StopReason},
        reporter::{Audience, Reporter},
        sink::{Sink, SinkError},
        text,
    },
    pipeline::Pipeline,
    source::{
        Source,
        recording::{Checkpoint, Recorder},
    },
};

/// The pipeline with its reporter, and the recorder of what goes in.
pub(super) struct Session {
    pipeline: Pipeline,
    reporter: Reporter,
    audience: Audience,
    recorder: Option<Recorder>,
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
        let checkpoint = Checkpoint {
            settings: self.settings.clone(),
            labels: self.labels.clone(),
            interval_ms: self.interval.as_millis() as u64,
            observations: self.observations,
            pipeline: serde_json::to_value(&self.pipeline)?,
            reporter: serde_json::to_value(&self.reporter)?,
        };
        self.recorder = Some(Recorder::create(place, &checkpoint)?);
        Ok(())
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
        self.observations += 1;
        let changes = self.pipeline.feed(observation);
        let alerts = self.reporter.tick(observation, &changes, &self.pipeline);
        if let Some(history) = &mut self.history {
            history.take(observation, &alerts, &self.pipeline);
        }
        alerts
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

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Json,
    Text,
}

/// Time between two tables of the text format, in ns of the run.
const TABLE_NS: u64 = 5_000_000_000;

/// Tells a session in lines.
pub(super) struct Lines {
    sink: Sink,
    format: LineFormat,
    table_due_ns: Option<u64>,
}

impl Lines {
    pub(super) fn new(sink: Sink, format: LineFormat) -> Lines {
        Lines {
            sink,
            format,
            table_due_ns: None,
        }
    }

    /// Tells what came of an observation at this time of the run.
    pub(super) fn tick(
        &mut self,
        mono_ns: u64,
        alerts: &[Alert],
        session: &Session,
    ) -> Result<(), CommandError> {
        self.sink.check()?;
        self.alerts(alerts)?;
        if self.format == LineFormat::Text {
            let due = *self.table_due_ns.get_or_insert(mono_ns + TABLE_NS);
            if mono_ns >= due {
                self.table_due_ns = Some(mono_ns + TABLE_NS);
                self.sink.write(text::table(&session.snapshot()))?;
            }
        }
        Ok(())
    }

    /// Tells how it ended, as text with a last table before.
    pub(super) fn end(&mut self, alerts: &[Alert], session: &Session) -> Result<(), CommandError> {
        if self.format == LineFormat::Text && !alerts.is_empty() {
            self.sink.write(text::table(&session.snapshot()))?;
        }
        self.alerts(alerts)
    }

    /// Tells these.
    pub(super) fn alerts(&mut self, alerts: &[Alert]) -> Result<(), CommandError> {
        for alert in alerts {
            let line = match self.format {
                LineFormat::Json => alert.to_line()?,
                LineFormat::Text => text::line(alert) + "\n",
            };
            self.sink.write(line)?;
        }
        Ok(())
    }

    /// Waits until all is written.
    pub(super) fn finish(self) -> Result<(), SinkError> {
        self.sink.finish()
    }
}
