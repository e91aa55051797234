//! Tells a session to all outputs that were asked for, in the notation of each.

use super::{CommandError, session::Session};
use crate::{
    cli::{Output, WatchFormat},
    files::Place,
    output::{
        alert::Alert,
        datagram::Datagram,
        journald,
        sink::{Reopener, Sink, SinkError, Tally},
        syslog, text,
    },
};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    Json,
    Text,
}

impl From<WatchFormat> for LineFormat {
    fn from(format: WatchFormat) -> Self {
        match format {
            WatchFormat::Json => LineFormat::Json,
            WatchFormat::Text => LineFormat::Text,
        }
    }
}

/// Time between two tables of the text format, in ns of the run.
const TABLE_NS: u64 = 5_000_000_000;

/// What an output understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    Lines,
    Journald,
    Syslog,
}

/// An output that can be written to, and was not yet.
pub(super) enum Opened {
    Stdout,
    File(Place),
    Socket(Datagram, Output),
}

impl Opened {
    /// Opens what can fail, before the kernel is asked for anything.
    pub(super) fn open(output: &Output) -> Result<Opened, CommandError> {
        let name = output.to_string();
        Ok(match output {
            Output::Stdout => Opened::Stdout,
            Output::File(path) => Opened::File(Sink::place(path)?),
            Output::Journald(path) => {
                let address = crate::output::datagram::Address::Unix(path.clone());
                Opened::Socket(Datagram::open(&address, name, true)?, output.clone())
            }
            Output::Syslog(address) => {
                Opened::Socket(Datagram::open(address, name, false)?, output.clone())
            }
        })
    }
}

/// Tells a session.
pub(super) struct Outputs {
    list: Vec<(Sink, Notation)>,
    reopeners: Vec<Reopener>,
    format: LineFormat,
    table_due_ns: Option<u64>,
}

impl Outputs {
    /// To one sink of lines.
    pub(super) fn to(sink: Sink, format: LineFormat) -> Outputs {
        Outputs {
            list: vec![(sink, Notation::Lines)],
            reopeners: Vec::new(),
            format,
            table_due_ns: None,
        }
    }

    /// To all of these; to standard output when there is none.
    pub(super) fn begin(opened: Vec<Opened>, format: LineFormat) -> Result<Outputs, CommandError> {
        if opened.is_empty() {
            return Ok(Outputs::to(Sink::stdout()?, format));
        }
        let mut outputs = Outputs {
            list: Vec::new(),
            reopeners: Vec::new(),
            format,
            table_due_ns: None,
        };
        for output in opened {
            outputs.list.push(match output {
                Opened::Stdout => (Sink::stdout()?, Notation::Lines),
                Opened::File(place) => {
                    let (sink, reopener) = Sink::file(place)?;
                    outputs.reopeners.push(reopener);
                    (sink, Notation::Lines)
                }
                Opened::Socket(socket, Output::Journald(_)) => {
                    (Sink::datagram(socket)?, Notation::Journald)
                }
                Opened::Socket(socket, _) => (Sink::datagram(socket)?, Notation::Syslog),
            });
        }
        Ok(outputs)
    }

    /// For whoever hears that logs were rotated.
    pub(super) fn reopeners(&self) -> Vec<Reopener> {
        self.reopeners.clone()
    }

    /// How many lines went where.
    pub(super) fn tallies(&self) -> Vec<Tally> {
        self.list.iter().map(|(sink, _)| sink.tally()).collect()
    }

    /// Tells what came of an observation at this time of the run.
    pub(super) fn tick(
        &mut self,
        mono_ns: u64,
        alerts: &[Alert],
        session: &Session,
    ) -> Result<(), CommandError> {
        self.each(|sink, _| sink.check().map_err(Into::into))?;
        self.alerts(alerts)?;
        if self.format == LineFormat::Text {
            let due = *self.table_due_ns.get_or_insert(mono_ns + TABLE_NS);
            if mono_ns >= due {
                self.table_due_ns = Some(mono_ns + TABLE_NS);
                self.table(session)?;
            }
        }
        Ok(())
    }

    /// Tells how it ended, as text with a last table before.
    pub(super) fn end(&mut self, alerts: &[Alert], session: &Session) -> Result<(), CommandError> {
        if self.format == LineFormat::Text && !alerts.is_empty() {
            self.table(session)?;
        }
        self.alerts(alerts)
    }

    /// Tells these.
    pub(super) fn alerts(&mut self, alerts: &[Alert]) -> Result<(), CommandError> {
        let format = self.format;
        for alert in alerts {
            let line = match format {
                LineFormat::Json => alert.to_line()?,
                LineFormat::Text => text::line(alert) + "\n",
            };
            self.each(|sink, notation| {
                let message = match notation {
                    Notation::Lines => line.clone().into_bytes(),
                    Notation::Journald => journald::encode(alert)?,
                    Notation::Syslog => syslog::encode(alert, &line),
                };
                sink.write(message).map_err(Into::into)
            })?;
        }
        Ok(())
    }

    fn table(&mut self, session: &Session) -> Result<(), CommandError> {
        let table = text::table(&session.snapshot());
        self.each(|sink, notation| match notation {
            Notation::Lines => sink.write(table.clone()).map_err(Into::into),
            Notation::Journald | Notation::Syslog => Ok(()),
        })
    }

    /// Does this with every output. Where the reader of one has gone, the others go on; without any the run is over.
    fn each(
        &mut self,
        mut what: impl FnMut(&mut Sink, Notation) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let mut i = 0;
        while i < self.list.len() {
            let (sink, notation) = &mut self.list[i];
            match what(sink, *notation) {
                Ok(()) => i += 1,
                Err(CommandError::Sink(e)) if self.list.len() > 1 => {
                    complain!("io-starve: {e}; going on with the other outputs");
                    self.list.remove(i);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits until all is written.
    pub(super) fn finish(self) -> Result<(), SinkError> {
        // A reopener keeps the queue of its sink open.
        drop(self.reopeners);
        let results: Vec<_> = self
            .list
            .into_iter()
            .map(|(sink, _)| sink.finish())
            .collect();
        results.into_iter().collect()
    }
}
