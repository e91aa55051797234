//! `watch`: no screen. What is found goes to logs, what is counted to those who scrape.

mod gauge;
mod privileges;
mod reload;
mod service;

use std::{cell::Cell, path::Path, rc::Rc};

use gauge::Gauge;
pub(super) use reload::Reloader;
use service::Service;

use super::{
    CommandError,
    live::{Common, follow, source, until},
    outputs::{Opened, Outputs},
    session::Session,
    signals::Signals,
};
use crate::{
    cli::{Cli, Command, Output, WatchArgs},
    files::Place,
    metrics::server::Server,
    model::observation::Observation,
    output::{
        alert::Alert,
        reporter::Audience,
        sink::{Reopener, print},
    },
    source::{
        Source,
        input::{self, Opened as Input},
        recording::{Flight, Recorder, Room},
        replay::{Replay, Tape},
    },
};

/// Says that the configuration makes sense: it would not have come this far otherwise.
pub(super) fn check_config(args: &WatchArgs) -> Result<u8, CommandError> {
    let path = args.config.as_deref().unwrap_or(Path::new("-"));
    print(&format!("{}: makes sense\n", path.display()))?;
    Ok(0)
}

pub(super) async fn watch(
    common: &Common,
    args: &WatchArgs,
    reloader: Option<Reloader>,
) -> Result<u8, CommandError> {
    let mut signals = Signals::catch()?;
    // What cannot be written is said before the kernel is asked for anything.
    let opened = args.output.iter().map(Opened::open);
    let opened = opened.collect::<Result<Vec<_>, _>>()?;
    let recording = args.record.as_deref().map(Recorder::place).transpose()?;
    let flight = args.flight.as_deref().map(|dir| {
        let room = Room {
            bytes: args.flight_size,
            kept: args.flight_keep,
        };
        Flight::open(dir, room)
    });
    let flight = flight.transpose()?;
    let metrics = args.metrics.map(Server::bind).transpose()?;
    let prepared = Prepared {
        opened,
        recording,
        flight,
        metrics,
    };
    match &args.replay {
        None => {
            let mut attached = common.attach()?;
            let is_file = |o: &Output| matches!(o, Output::File(_));
            privileges::drop_unneeded(args.flight.is_some() || args.output.iter().any(is_file));
            let mut live = source(&mut attached, common.attach.interval);
            let session = session(common, args);
            prepared
                .run(common, args, reloader, &mut signals, &mut live, session)
                .await
        }
        Some(file) => {
            let (tape, session) = tape(common, args, file)?;
            complain!("io-starve: watching the recording {}", file.display());
            let mut replay = Replay::new(tape, args.speed);
            let done = prepared
                .run(common, args, reloader, &mut signals, &mut replay, session)
                .await;
            if let Some(warning) = replay.tape().warning() {
                complain!("io-starve: {warning}");
            }
            done
        }
    }
}

fn audience(common: &Common, args: &WatchArgs) -> Audience {
    Audience {
        ignore: args.ignore.clone(),
        ..common.audience(args.min_severity)
    }
}

fn session(common: &Common, args: &WatchArgs) -> Session {
    let interval = common.attach.interval;
    Session::new(
        &common.settings,
        &args.label,
        interval,
        audience(common, args),
    )
}

fn tape(
    common: &Common,
    args: &WatchArgs,
    file: &Path,
) -> Result<(Box<dyn Tape>, Session), CommandError> {
    Ok(match input::open(file, None)? {
        Input::Trace(trace) => (trace, session(common, args)),
        Input::Recording(recording) => {
            let checkpoint = recording.checkpoint();
            let session = match checkpoint.observations {
                0 => session(common, args),
                // Windows and open findings that were judged by other thresholds cannot be judged anew.
                _ => Session::resume(checkpoint, &checkpoint.settings, audience(common, args))?,
            };
            (recording, session)
        }
    })
}

/// What was opened before the kernel was asked for anything.
struct Prepared {
    opened: Vec<Opened>,
    recording: Option<Place>,
    flight: Option<Flight>,
    metrics: Option<Server>,
}

impl Prepared {
    async fn run<S: Source>(
        self,
        common: &Common,
        args: &WatchArgs,
        reloader: Option<Reloader>,
        signals: &mut Signals,
        source: &mut S,
        mut session: Session,
    ) -> Result<u8, CommandError> {
        let outputs = Outputs::begin(self.opened, args.format.into())?;
        if let Some(place) = self.recording {
            session.record_to(place)?;
        }
        if let Some(flight) = self.flight {
            session.fly(flight);
        }
        let gauge = match self.metrics {
            Some(server) => {
                complain!("io-starve: metrics at http://{}/metrics", server.address());
                Some(Gauge::new(server.start()?, args.max_series))
            }
            None => None,
        };
        let reopeners = outputs.reopeners();
        let hup = Rc::new(Cell::new(false));
        let mut reopen = {
            let hup = hup.clone();
            move || {
                reopeners.iter().for_each(Reopener::reopen);
                hup.set(true);
            }
        };
        // Without any of these it was started by hand, and a SIGHUP says that the terminal has gone.
        let to_terminal = args.output.iter().all(|o| *o == Output::Stdout);
        let is_daemon = !to_terminal || reloader.is_some() || args.metrics.is_some();
        let on_hangup: Option<&mut dyn FnMut()> = match is_daemon {
            true => Some(&mut reopen),
            false => None,
        };
        let mut daemon = Daemon {
            outputs,
            gauge,
            service: Service::new(),
            hup,
            wishes: reloader.map(|reloader| Wishes::new(reloader, common, args)),
        };
        let stop = until(signals, on_hangup, args.duration);
        let observed = follow(source, &mut session, stop, |o, alerts, session| {
            daemon.tell(o, alerts, session)
        })
        .await;
        let recorded = session.end_recording();
        // A reopener keeps the queue of its sink open.
        drop(reopen);
        let written = daemon.outputs.finish();
        observed?;
        recorded?;
        written?;
        Ok(0)
    }
}

/// All that is done with what was observed.
struct Daemon {
    outputs: Outputs,
    gauge: Option<Gauge>,
    service: Service,
    /// SIGHUP came.
    hup: Rc<Cell<bool>>,
    wishes: Option<Wishes>,
}

impl Daemon {
    fn tell(
        &mut self,
        o: Option<&Observation>,
        alerts: &[Alert],
        session: &mut Session,
    ) -> Result<(), CommandError> {
        if self.hup.take()
            && let Some(wishes) = &mut self.wishes
        {
            wishes.reload(session);
        }
        if let (Some(o), Some(gauge)) = (o, &mut self.gauge) {
            gauge.tick(o, alerts, session, &self.outputs);
        }
        match o {
            Some(_) => self.service.alive(),
            None => self.service.stopping(),
        }
        match o {
            Some(o) => self.outputs.tick(o.mono_ns, alerts, session),
            None => self.outputs.end(alerts, session),
        }
    }
}

/// What was asked for, and can be asked for anew.
struct Wishes {
    reloader: Reloader,
    common: Common,
    args: WatchArgs,
}

impl Wishes {
    fn new(reloader: Reloader, common: &Common, args: &WatchArgs) -> Wishes {
        Wishes {
            reloader,
            common: common.clone(),
            args: args.clone(),
        }
    }

    /// Takes over what the file says now. A file that makes no sense changes nothing.
    fn reload(&mut self, session: &mut Session) {
        let path = self.reloader.path().display().to_string();
        let (common, args) = match self.reloader.load() {
            Ok(cli) => match parts(cli) {
                (common, Some(args)) => (common, args),
                (_, None) => return,
            },
            Err(e) => {
                complain!("io-starve: {e}; going on with what was read before");
                return;
            }
        };
        let mut settings = common.settings.clone();
        if settings != *session.settings() && session.is_recording() {
            complain!(
                "io-starve: a recording has one set of thresholds from its beginning to its end, so they stay as they are; \
                 restart io-starve to change them"
            );
            settings = session.settings().clone();
        }
        session.reload(&settings, &args.label, audience(&common, &args));
        let later = self.needs_restart(&common, &args);
        let later = match later.is_empty() {
            true => String::new(),
            false => format!("; only a restart changes {}", later.join(", ")),
        };
        complain!("io-starve: read {path} again{later}");
        (self.common, self.args) = (common, args);
    }

    /// Names of the options that changed and are used only at the start.
    fn needs_restart(&self, common: &Common, args: &WatchArgs) -> Vec<&'static str> {
        let (old, new) = (&self.args, args);
        let (attach, attach_new) = (&self.common.attach, &common.attach);
        let changed = [
            ("output", old.output != new.output),
            ("format", old.format != new.format),
            ("duration", old.duration != new.duration),
            ("record", old.record != new.record),
            ("metrics", old.metrics != new.metrics),
            ("max-series", old.max_series != new.max_series),
            ("flight", old.flight != new.flight),
            ("flight-size", old.flight_size != new.flight_size),
            ("flight-keep", old.flight_keep != new.flight_keep),
            ("replay", old.replay != new.replay),
            ("device", attach.device != attach_new.device),
            ("interval", attach.interval != attach_new.interval),
            ("slots", attach.slots != attach_new.slots),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(name, _)| name).collect()
    }
}

/// The parts of a command line that was parsed.
pub(super) fn parts(cli: Cli) -> (Common, Option<WatchArgs>) {
    let common = Common {
        attach: cli.attach,
        settings: cli.settings,
        ascii: cli.ascii,
    };
    match cli.command {
        Some(Command::Watch(args)) => (common, Some(args)),
        _ => (common, None),
    }
}
