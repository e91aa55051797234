//! `top` and `record`: the running kernel, on a screen, in a file.

use std::{future::pending, io::IsTerminal, time::Duration};

use super::{
    CommandError,
    desk::Desk,
    session::{Session, drive},
    signals::Signals,
    watch::watch,
};
use crate::{
    cli::{AttachArgs, RecordArgs, WatchArgs},
    detect::{finding::Severity, settings::Settings},
    kernel::{Attached, ReadError},
    model::observation::{Observation, Verdict},
    output::{
        alert::{Alert, Event, StopReason},
        focus::Focus,
        reporter::Audience,
        text,
    },
    source::{Source, live::Live, recording::Recorder},
    tui::{self, request::Request},
};

/// What all commands have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) attach: AttachArgs,
    pub(super) settings: Settings,
    pub(super) ascii: bool,
}

impl Common {
    pub(super) fn session(&self, labels: &[(String, String)], min_severity: Severity) -> Session {
        let audience = self.audience(min_severity);
        Session::new(&self.settings, labels, self.attach.interval, audience)
    }

    pub(super) fn audience(&self, min_severity: Severity) -> Audience {
        Audience {
            min_severity,
            focus: self.focus(),
            status_ns: self.attach.status_ns(),
            ignore: Vec::new(),
        }
    }

    fn focus(&self) -> Focus {
        // Which disks are followed is chosen when attaching.
        Focus {
            cgroups: self.attach.cgroup.clone(),
            devices: Vec::new(),
        }
    }

    pub(super) fn screen(&self, mode: tui::Mode) -> tui::Options {
        let mut options = tui::Options::new(mode);
        options.ascii |= self.ascii;
        options
    }

    /// Attaches and says so on standard error.
    pub(super) fn attach(&self) -> Result<Attached, CommandError> {
        let attached = Attached::attach(&self.attach_options())?;
        let count = |wanted: fn(&Verdict) -> bool| {
            attached
                .hooks()
                .iter()
                .filter(|h| wanted(&h.verdict))
                .count()
        };
        let runs = count(|v| matches!(v, Verdict::Attached { .. }));
        let refused = count(|v| matches!(v, Verdict::Refused { .. }));
        let system = rustix::system::uname();
        complain!(
            "io-starve: attached, hooks {runs} of {}, host {}, kernel {}",
            runs + refused,
            system.nodename().to_string_lossy(),
            system.release().to_string_lossy()
        );
        for pattern in self.focus().cgroups_without(attached.cgroup_paths()) {
            complain!(
                "io-starve: no cgroup is called {pattern} now; findings about one that comes later will be told (see `systemd-cgls`)"
            );
        }
        Ok(attached)
    }
}

/// The kernel as a source, read at every tick.
pub(super) fn source(
    attached: &mut Attached,
    interval: Duration,
) -> Live<impl FnMut() -> Result<Observation, ReadError> + '_> {
    Live::new(interval, || attached.observe())
}

/// Waits for a signal or the end of the time given.
pub(super) async fn until(
    signals: &mut Signals,
    on_hangup: Option<&mut dyn FnMut()>,
    duration: Option<Duration>,
) -> StopReason {
    let time_is_over = async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => pending().await,
        }
    };
    tokio::select! {
        reason = signals.stop(on_hangup) => reason,
        () = time_is_over => StopReason::Duration,
    }
}

/// Observes the kernel until `stop`, as [`follow`] does.
pub(super) async fn observe(
    attached: &mut Attached,
    session: &mut Session,
    interval: Duration,
    stop: impl Future<Output = StopReason>,
    tell: impl FnMut(Option<&Observation>, &[Alert], &mut Session) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    follow(&mut source(attached, interval), session, stop, tell).await
}

/// Observes until `stop`, then once more, so that what happened since the last tick counts too. Alerts, those of the
/// end among them, go to `tell`. When reading failed, the session is ended in order before the error is returned.
pub(super) async fn follow<S: Source>(
    source: &mut S,
    session: &mut Session,
    stop: impl Future<Output = StopReason>,
    mut tell: impl FnMut(Option<&Observation>, &[Alert], &mut Session) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut each = |o: &Observation| {
        let alerts = session.feed(o);
        tell(Some(o), &alerts, session)
    };
    let driven = drive(source, stop, |o| each(&o)).await;
    let (reason, result) = match driven {
        Ok(reason) => {
            let last = match source.last() {
                Ok(Some(o)) => each(&o),
                Ok(None) => Ok(()),
                Err(e) => Err(e.into()),
            };
            (reason.unwrap_or(StopReason::RecordingEnded), last)
        }
        Err(e) => (StopReason::ReadFailed, Err(e)),
    };
    let alerts = session.stop(reason);
    let told = tell(None, &alerts, session);
    result.and(told)
}

pub(super) async fn top(common: &Common) -> Result<u8, CommandError> {
    if !std::io::stdout().is_terminal() {
        return watch(common, &WatchArgs::text(), None).await;
    }
    // Before the screen opens a signal must not leave programs attached; afterwards the screen has its own.
    let _signals = Signals::catch()?;
    let mut attached = common.attach()?;
    let mut session = common.session(&[], Severity::Info);
    let (mut desk, (updates, requests)) = Desk::new(session.snapshot());
    let mut screen = None;
    let stop = async {
        screen = Some(tui::run(updates, requests, common.screen(tui::Mode::Live)).await);
        StopReason::Quit
    };
    let observed = observe(
        &mut attached,
        &mut session,
        common.attach.interval,
        stop,
        |tick, alerts, session| {
            match tick {
                Some(_) => {
                    serve(&mut desk, session);
                    desk.show(session.snapshot());
                }
                None => tell_what_was_open(alerts),
            }
            Ok(())
        },
    )
    .await;
    drop(attached);
    let recorded = session.end_recording();
    observed?;
    screen.transpose()?;
    if let Some(n) = recorded? {
        complain!("io-starve: recorded {n} observations");
    }
    complain!("io-starve: {}", session.summary());
    Ok(0)
}

/// Does what the screen asked for since the last tick.
fn serve(desk: &mut Desk, session: &mut Session) {
    desk.check(session);
    while let Some(request) = desk.waiting() {
        match request {
            Request::Write(snapshot) => desk.write(&snapshot),
            Request::Record => desk.record(session),
            // There is no key for it on a live screen.
            Request::Pace(_) => {}
        }
    }
}

/// Tells the findings that the end closed below the screen, which is closed by then and took them with it.
fn tell_what_was_open(alerts: &[Alert]) {
    for alert in alerts {
        if matches!(alert.event, Event::Close(_)) {
            complain!("{}", text::line(alert));
        }
    }
}

pub(super) async fn record(common: &Common, args: &RecordArgs) -> Result<u8, CommandError> {
    let mut signals = Signals::catch()?;
    let recording = Recorder::place(&args.output)?;
    let mut attached = common.attach()?;
    let mut session = common.session(&args.label, Severity::Info);
    session.record_to(recording)?;
    let stop = until(&mut signals, None, args.duration);
    let observed = observe(
        &mut attached,
        &mut session,
        common.attach.interval,
        stop,
        |_, _, session| {
            if session.is_recording() {
                Ok(())
            } else {
                Err(CommandError::NothingToRecord)
            }
        },
    )
    .await;
    drop(attached);
    let recorded = session.end_recording();
    observed?;
    let observations = recorded?.unwrap_or_default();
    complain!(
        "io-starve: {}; recorded {observations} observations to {}",
        session.summary(),
        args.output.display()
    );
    Ok(0)
}
