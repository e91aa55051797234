//! `replay`: a recording or a trace on the screen or in lines, judged as it was, or anew with other thresholds.

use std::{
    io::{BufRead, IsTerminal},
    path::Path,
};

use clap::{ArgMatches, parser::ValueSource};

use super::{
    CommandError,
    desk::Desk,
    live::Common,
    outputs::{LineFormat, Outputs},
    progress::Bar,
    session::{Session, drive},
    signals::Signals,
};
use crate::{
    cli::{ReplayArgs, ReplayFormat, ShowArgs, is_dash},
    detect::{finding::Severity, settings::Settings},
    history::summary::Summary,
    output::{
        alert::{Event, StopReason},
        focus::Focus,
        reporter::Audience,
        sink::Sink,
    },
    source::{
        Source,
        input::{self, Format, Opened},
        recording::Recording,
        replay::{Replay, Tape},
        trace::{Import, TICK},
    },
    tui::{self, request::Request},
};

pub(super) async fn replay(
    common: &Common,
    matches: &ArgMatches,
    args: &ReplayArgs,
) -> Result<u8, CommandError> {
    let (opened, name) = open(&args.file, args.from)?;
    let mode = tui::Mode::Replay { name };
    match opened {
        Opened::Recording(recording) => play(common, matches, &args.show, *recording, mode).await,
        Opened::Trace(trace) => play_trace(common, matches, &args.show, *trace, mode).await,
    }
}

/// Opens a file or standard input; says what to call it.
fn open(path: &Path, from: Option<Format>) -> Result<(Opened, String), CommandError> {
    if is_dash(path) {
        let input = std::io::stdin();
        if input.is_terminal() {
            return Err(CommandError::Usage(
                "standard input is a terminal; pipe a recording or a trace into it, or give the name of a file"
                    .to_owned(),
            ));
        }
        let name = "standard input".to_owned();
        return Ok((input::read(Box::new(input.lock()), &name, from)?, name));
    }
    let name = path.file_name().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy().into_owned();
    Ok((input::open(path, from)?, name))
}

/// A recording or a trace, replayed from one end to the other.
pub(super) struct Whole {
    /// What to call it.
    pub(super) name: String,
    /// Its figures.
    pub(super) summary: Summary,
    /// What a user must know about what was replayed.
    pub(super) warning: Option<String>,
}

/// Replays a file at once; `None` when a signal ended that.
pub(super) async fn whole(
    common: &Common,
    matches: &ArgMatches,
    path: &Path,
    from: Option<Format>,
) -> Result<Option<Whole>, CommandError> {
    let (opened, name) = open(path, from)?;
    let audience = everything(common);
    let (summary, warning) = match opened {
        Opened::Recording(recording) => {
            let session = recorded_session(common, matches, &recording, audience)?;
            to_the_end(session, *recording).await?
        }
        Opened::Trace(trace) => {
            let session = trace_session(common, matches, audience)?;
            to_the_end(session, *trace).await?
        }
    };
    Ok(summary.map(|summary| Whole {
        name,
        summary,
        warning,
    }))
}

async fn to_the_end<T: Tape>(
    session: Session,
    tape: T,
) -> Result<(Option<Summary>, Option<String>), CommandError> {
    let mut session = session.with_history();
    let mut signals = Signals::catch()?;
    let mut source = Replay::new(tape, None);
    let mut bar = Bar::new(source.tape().progress());
    let driven = drive(&mut source, signals.stop(None), |o| {
        session.feed(&o);
        bar.tick();
        Ok(())
    })
    .await?;
    bar.clear();
    if driven.is_some() {
        return Ok((None, None));
    }
    session.stop(match source.tape().is_whole() {
        true => StopReason::RecordingEnded,
        false => StopReason::RecordingTorn,
    });
    Ok((Some(session.whole()), source.tape().warning()))
}

/// Plays an open recording.
pub(super) async fn play<R: BufRead>(
    common: &Common,
    matches: &ArgMatches,
    args: &ShowArgs,
    recording: Recording<R>,
    mode: tui::Mode,
) -> Result<u8, CommandError> {
    let session = recorded_session(common, matches, &recording, audience(common, args))?;
    present(common, args, session, recording, mode).await
}

fn recorded_session<R: BufRead>(
    common: &Common,
    matches: &ArgMatches,
    recording: &Recording<R>,
    audience: Audience,
) -> Result<Session, CommandError> {
    refuse_attach_options(matches)?;
    let recorded = &recording.checkpoint().settings;
    let settings = judged_by(matches, recorded, &common.settings)?;
    // What was recorded is replayed as it was, sensible or not.
    if recorded.check_order().is_ok() {
        settings.check_order().map_err(CommandError::Usage)?;
    }
    Session::resume(recording.checkpoint(), &settings, audience)
}

/// A run that begins with a trace.
fn trace_session(
    common: &Common,
    matches: &ArgMatches,
    audience: Audience,
) -> Result<Session, CommandError> {
    refuse_attach_options(matches)?;
    let settings = &common.settings;
    settings.check_order().map_err(CommandError::Usage)?;
    Ok(Session::new(settings, &[], TICK, audience))
}

/// Plays a trace, as a run that begins with it.
async fn play_trace(
    common: &Common,
    matches: &ArgMatches,
    args: &ShowArgs,
    trace: Import,
    mode: tui::Mode,
) -> Result<u8, CommandError> {
    let session = trace_session(common, matches, audience(common, args))?;
    present(common, args, session, trace, mode).await
}

fn audience(common: &Common, args: &ShowArgs) -> Audience {
    Audience {
        min_severity: args.min_severity,
        ..everything(common)
    }
}

fn everything(common: &Common) -> Audience {
    Audience {
        min_severity: Severity::Info,
        focus: Focus {
            cgroups: common.attach.cgroup.clone(),
            devices: common.attach.device.clone(),
        },
        status_ns: common.attach.status_ns(),
        ignore: Vec::new(),
    }
}

/// Shows a tape in the format that is asked for.
async fn present(
    common: &Common,
    args: &ShowArgs,
    session: Session,
    tape: impl Tape,
    mode: tui::Mode,
) -> Result<u8, CommandError> {
    let by_itself = match std::io::stdout().is_terminal() {
        true => ReplayFormat::Tui,
        false => ReplayFormat::Text,
    };
    let warning = match args.format.unwrap_or(by_itself) {
        ReplayFormat::Tui => {
            let source = Replay::new(tape, Some(args.speed.unwrap_or(1.0)));
            on_screen(session, source, common.screen(mode)).await?
        }
        format => {
            let source = Replay::new(tape, args.speed);
            let format = match format {
                ReplayFormat::Json => LineFormat::Json,
                ReplayFormat::Text | ReplayFormat::Tui => LineFormat::Text,
            };
            in_lines(session, source, format).await?
        }
    };
    // What is before the damage was replayed in full, which is all that a torn recording promises: no failure.
    if let Some(warning) = warning {
        complain!("io-starve: {warning}");
    }
    Ok(0)
}

async fn on_screen<T: Tape>(
    mut session: Session,
    mut source: Replay<T>,
    options: tui::Options,
) -> Result<Option<String>, CommandError> {
    let (mut desk, (updates, requests)) = Desk::new(session.snapshot());
    let screen = tui::run(updates, requests, options);
    tokio::pin!(screen);
    let mut is_over = false;
    loop {
        desk.tell(|status| status.play = Some(source.play()));
        tokio::select! {
            biased;
            left = &mut screen => {
                left?;
                break;
            }
            request = desk.next() => match request {
                Request::Write(snapshot) => desk.write(&snapshot),
                // There is no key for it on the screen of a replay.
                Request::Record => {}
                Request::Pace(pace) => source.control(pace),
            },
            observation = source.next(), if !is_over => match observation? {
                Some(observation) => {
                    let alerts = session.feed(&observation);
                    if alerts.iter().any(|a| matches!(a.event, Event::Open(_))) {
                        source.arrive();
                    }
                    desk.show(session.snapshot());
                }
                // Findings keep the state in which the recording left them; the screen says that it has ended.
                None => {
                    is_over = true;
                    desk.tell(|status| status.ended = true);
                }
            },
        }
    }
    Ok(source.tape().warning())
}

async fn in_lines<T: Tape>(
    mut session: Session,
    mut source: Replay<T>,
    format: LineFormat,
) -> Result<Option<String>, CommandError> {
    let mut signals = Signals::catch()?;
    let mut lines = Outputs::to(Sink::stdout()?, format);
    let mut bar = Bar::new(source.tape().progress());
    let driven = drive(&mut source, signals.stop(None), |o| {
        let alerts = session.feed(&o);
        bar.tick();
        lines.tick(o.mono_ns, &alerts, &session)
    })
    .await?;
    bar.clear();
    let reason = driven.unwrap_or(match source.tape().is_whole() {
        true => StopReason::RecordingEnded,
        false => StopReason::RecordingTorn,
    });
    let alerts = session.stop(reason);
    lines.end(&alerts, &session)?;
    lines.finish()?;
    Ok(source.tape().warning())
}

/// How the kernel was read is in the recording and cannot be chosen any more.
fn refuse_attach_options(matches: &ArgMatches) -> Result<(), CommandError> {
    let names = ["interval", "without_hook", "slots"];
    match names.into_iter().find(|name| given(matches, name)) {
        Some(name) => Err(CommandError::Usage(format!(
            "--{} is chosen when a recording is made, not when it is replayed",
            name.replace('_', "-")
        ))),
        None => Ok(()),
    }
}

/// The recorded thresholds, but those that the command line names.
fn judged_by(
    matches: &ArgMatches,
    recorded: &Settings,
    here: &Settings,
) -> Result<Settings, CommandError> {
    // The ids of the options are the names of the fields, because both come from the same definition.
    let mut settings = serde_json::to_value(recorded)?;
    let here = serde_json::to_value(here)?;
    if let (Some(settings), Some(here)) = (settings.as_object_mut(), here.as_object()) {
        for (name, value) in here.iter().filter(|(name, _)| given(matches, name)) {
            settings.insert(name.clone(), value.clone());
        }
    }
    Ok(serde_json::from_value(settings)?)
}

fn given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::cli::Cli;

    fn merged(args: &[&str], recorded: &Settings) -> Settings {
        let args = ["io-starve"].iter().chain(args);
        let matches = Cli::command().try_get_matches_from(args).unwrap();
        let cli = Cli::from_arg_matches(&matches).unwrap();
        judged_by(matches.subcommand().unwrap().1, recorded, &cli.settings).unwrap()
    }

    #[test]
    fn thresholds_are_the_recorded_ones_but_those_given() {
        let recorded = Settings {
            withheld_ms: 7,
            stuck_ms: 8,
            ..Settings::default()
        };
        assert_eq!(merged(&["replay", "x"], &recorded), recorded);
        // The default's value, but given.
        for args in [
            ["--withheld-ms", "1000", "replay", "x"],
            ["replay", "x", "--withheld-ms", "1000"],
        ] {
            let expected = Settings {
                withheld_ms: 1_000,
                ..recorded.clone()
            };
            assert_eq!(merged(&args, &recorded), expected);
        }
    }

    #[test]
    fn every_threshold_can_be_given() {
        let fields = serde_json::to_value(Settings::default()).unwrap();
        for (name, value) in fields.as_object().unwrap() {
            let option = format!("--{}", name.replace('_', "-"));
            let other = if value.is_f64() { "0.25" } else { "77" };
            let merged = serde_json::to_value(merged(
                &["replay", "x", &option, other],
                &Settings::default(),
            ))
            .unwrap();
            assert_eq!(merged[name].to_string(), other, "{option}");
        }
    }
}
