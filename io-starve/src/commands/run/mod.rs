//! `run`: observes while a command runs, or until a process ends, and says what was found.

mod fio;
mod job;
mod relay;
mod watched;

use super::{
    CommandError, FAIL_ON, RUN_FAILED,
    live::{Common, observe},
    outputs::{LineFormat, Outputs},
    session::Session,
    signals,
};
use crate::{
    cli::{FailOn, RunArgs},
    detect::finding::Severity,
    files::Place,
    fio::{FioView, join::Processes},
    history::summary::Summary,
    kernel::{Attached, processes::Descendants},
    output::{
        alert::{Alert, Event, RunResult, SCHEMA, StopReason},
        document, junit, report,
        sink::Sink,
        verdict,
    },
    source::recording::{Recorder, VERSION},
};

use fio::Fio;
use job::{Ended, Job, Signals, User};
use watched::Watched;

/// Why a command cannot be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("there is no user `{0}` here; `getent passwd` lists those that are known")]
    NoUser(String),
    #[error("cannot look up user `{user}`: {source}")]
    Lookup { user: String, source: nix::Error },
    #[error(
        "--user needs root, and this process is not root; leave it out, or start io-starve with sudo"
    )]
    NotRoot,
    #[error("cannot wait for the command: {0}")]
    Wait(std::io::Error),
    #[error("there is no process {pid}: {source}; `pgrep -a NAME` finds the number of one")]
    NoProcess { pid: u32, source: std::io::Error },
    #[error(
        "cannot make a pipe for the output of fio: {0}; the limit of open files may be reached (ulimit -n)"
    )]
    Pipe(std::io::Error),
}

/// Where the results go, opened before anything is waited for.
struct Places {
    report: Option<Place>,
    junit: Option<Place>,
    json: Option<Place>,
    recording: Option<Place>,
}

impl Places {
    fn open(args: &RunArgs) -> Result<Places, CommandError> {
        Ok(Places {
            report: args.report.as_deref().map(document::place).transpose()?,
            junit: args.junit.as_deref().map(document::place).transpose()?,
            json: args.json.as_deref().map(Sink::place).transpose()?,
            recording: args.record.as_deref().map(Recorder::place).transpose()?,
        })
    }
}

/// What is watched.
enum Target {
    Command {
        job: Job,
        signals: Signals,
    },
    Process {
        watched: Watched,
        signals: signals::Signals,
    },
}

impl Target {
    fn pid(&self) -> u32 {
        match self {
            Target::Command { job, .. } => job.pid(),
            Target::Process { watched, .. } => watched.pid(),
        }
    }

    /// Waits for the end; what a process that is not ours ends with is not known.
    async fn wait(&mut self) -> std::io::Result<Option<Ended>> {
        match self {
            Target::Command { job, signals } => job.wait(signals).await.map(Some),
            Target::Process { watched, signals } => {
                watched.wait(signals).await;
                Ok(None)
            }
        }
    }
}

pub(super) async fn run(common: &Common, args: &RunArgs) -> Result<u8, CommandError> {
    let user = args.user.as_deref().map(User::find).transpose()?;
    let watched = args.pid.map(Watched::open).transpose()?;
    // From here on a signal ends nothing but the command.
    let (mut for_command, mut for_process) = (None, None);
    match watched {
        None => for_command = Some(Signals::catch()?),
        Some(_) => for_process = Some(signals::Signals::catch()?),
    }
    let Places {
        report,
        junit,
        json,
        recording,
    } = Places::open(args)?;
    let mut fio = Fio::of(&args.command);
    let stdout = fio
        .as_mut()
        .map_or(Ok(None), Fio::stdout)
        .map_err(RunError::Pipe)?;
    let mut attached = common.attach()?;
    let mut lines = match json {
        Some(place) => Some(Outputs::to(Sink::file(place)?.0, LineFormat::Json)),
        None => None,
    };
    let mut session = common.session(&args.label, Severity::Info).with_history();
    if let Some(place) = recording {
        session.record_to(place)?;
    }
    let mut target = match (watched, for_command.take(), for_process.take()) {
        (Some(watched), _, Some(signals)) => Target::Process { watched, signals },
        (_, Some(signals), _) => {
            let command = fio.as_ref().map_or(args.command.as_slice(), Fio::command);
            match Job::start(command, user.as_ref(), stdout) {
                Ok(job) => Target::Command { job, signals },
                Err(e) => {
                    let name = args.command[0].to_string_lossy();
                    complain!(
                        "io-starve: cannot run {name}: {e}{}",
                        what_to_do(&e, fio.is_some())
                    );
                    return Ok(code_of_failed_start(&e));
                }
            }
        }
        _ => return Ok(RUN_FAILED),
    };
    let observed = watch(
        common,
        &args.fail_on,
        &mut attached,
        &mut session,
        lines.as_mut(),
        &mut target,
    )
    .await;
    drop(attached);
    let ended = observed.ended;
    drop(target);
    if let Err(e) = session.end_recording() {
        complain!("io-starve: {e}");
    }
    let summary = session.whole();
    let fio = fio.map(|mut fio| {
        let printed = fio.printed(user.as_ref().map(User::uid));
        fio.view(&printed, &observed.processes, &summary)
    });
    let told = Told {
        args,
        summary: &summary,
        fio: fio.as_ref(),
        ended: ended.as_ref().ok().copied().flatten(),
    };
    let written = told.to_files(report, junit, lines, observed.last);
    told.to_stderr();
    observed.result?;
    written?;
    let ended = ended.map_err(RunError::Wait)?;
    Ok(code_of_end(
        ended.unwrap_or(Ended::Exited(0)),
        observed.failed,
    ))
}

/// What came of watching.
struct Observed {
    result: Result<(), CommandError>,
    ended: std::io::Result<Option<Ended>>,
    processes: Processes,
    /// The alerts of the end, which are written after the result is known.
    last: Vec<Alert>,
    /// A finding of --fail-on opened.
    failed: bool,
}

async fn watch(
    common: &Common,
    fail_on: &[FailOn],
    attached: &mut Attached,
    session: &mut Session,
    mut lines: Option<&mut Outputs>,
    target: &mut Target,
) -> Observed {
    let mut descendants = Descendants::of(target.pid());
    descendants.look();
    let mut last = Vec::new();
    let mut failed = false;
    let mut ended = None;
    let stop = async {
        ended = Some(target.wait().await);
        StopReason::CommandEnded
    };
    let result = observe(
        attached,
        session,
        common.attach.interval,
        stop,
        |tick, alerts, _| {
            failed |= alerts.iter().any(|alert| matches_any(alert, fail_on));
            if tick.is_none() {
                last = alerts.to_vec();
                return Ok(());
            }
            descendants.look();
            lines.as_mut().map_or(Ok(()), |lines| lines.alerts(alerts))
        },
    )
    .await;
    let ended = match ended {
        Some(ended) => ended,
        None => {
            if let Err(e) = &result {
                complain!("io-starve: {e}; the command goes on unobserved");
            }
            target.wait().await
        }
    };
    Observed {
        result,
        ended,
        processes: Processes {
            cgroups: descendants.into_cgroups(),
        },
        last,
        failed,
    }
}

fn matches_any(alert: &Alert, fail_on: &[FailOn]) -> bool {
    match &alert.event {
        Event::Open(f) | Event::Update(f) | Event::Close(f) => {
            fail_on.iter().any(|on| on.matches(f.kind, f.severity))
        }
        _ => false,
    }
}

/// The end of a run, as it is told.
struct Told<'a> {
    args: &'a RunArgs,
    summary: &'a Summary,
    fio: Option<&'a FioView>,
    ended: Option<Ended>,
}

impl Told<'_> {
    fn command(&self) -> Vec<String> {
        let words = self.args.command.iter();
        words.map(|w| w.to_string_lossy().into_owned()).collect()
    }

    /// What was watched, in one line.
    fn what(&self) -> String {
        match self.args.pid {
            Some(pid) => format!("process {pid}"),
            None => self.command().join(" "),
        }
    }

    /// Why the command is no success, in words.
    fn failure(&self) -> Option<String> {
        match self.ended? {
            Ended::Exited(0) => None,
            Ended::Exited(code) => Some(format!("it ended with code {code}")),
            Ended::Killed(signal) => Some(format!("it was killed by signal {signal}")),
        }
    }

    /// Writes what was asked for. One that fails keeps none of the others from being written.
    fn to_files(
        &self,
        report: Option<Place>,
        junit: Option<Place>,
        lines: Option<Outputs>,
        last: Vec<Alert>,
    ) -> Result<(), CommandError> {
        let mut results = Vec::new();
        if let Some(place) = report {
            let about = report::About {
                command: Some(self.what()),
                ended: self.failure(),
                ..report::About::default()
            };
            let page = report::page(self.summary, self.fio, &about);
            results.push(document::write(place, &page).map_err(CommandError::from));
        }
        if let Some(place) = junit {
            let xml = junit::junit(
                self.summary,
                &self.args.fail_on,
                &self.what(),
                self.failure().as_deref(),
            );
            results.push(document::write(place, &xml).map_err(CommandError::from));
        }
        if let Some(mut lines) = lines {
            results.push(lines.alerts(&self.with_result(last)));
            results.push(lines.finish().map_err(CommandError::from));
        }
        results.into_iter().collect()
    }

    /// The alerts of the end, with the result before the last word.
    fn with_result(&self, mut last: Vec<Alert>) -> Vec<Alert> {
        let Some(Event::Stop(stop)) = last.last().map(|a| &a.event) else {
            return last;
        };
        let result = RunResult {
            stamp: stop.stamp.clone(),
            command: self.command(),
            exit_code: match self.ended {
                Some(Ended::Exited(code)) => Some(code),
                _ => None,
            },
            signal: match self.ended {
                Some(Ended::Killed(signal)) => Some(signal),
                _ => None,
            },
            groups: self.summary.groups.clone(),
            blame: self.summary.blame.clone(),
            fio: self.fio.cloned(),
        };
        let alert = Alert {
            schema: SCHEMA,
            version: VERSION.to_owned(),
            event: Event::Result(Box::new(result)),
        };
        last.insert(last.len() - 1, alert);
        last
    }

    fn to_stderr(&self) {
        let text = verdict::verdict(self.summary, self.fio);
        for line in text.lines() {
            complain!("io-starve: {line}");
        }
    }
}

/// What helps against an error of starting a command.
fn what_to_do(e: &std::io::Error, is_fio: bool) -> &'static str {
    match e.kind() {
        std::io::ErrorKind::NotFound if is_fio => {
            "; fio is not installed here, or not in PATH: install it (`apt install fio`, `dnf install fio`)"
        }
        std::io::ErrorKind::NotFound => "; check the name, or give its path",
        std::io::ErrorKind::PermissionDenied => {
            "; it is no program, or this user may not run it: see `ls -l`"
        }
        _ => "",
    }
}

/// What shells return for a command that cannot be started.
fn code_of_failed_start(e: &std::io::Error) -> u8 {
    match e.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// The command's own code; a finding that was not to open only counts when the command itself is content.
fn code_of_end(ended: Ended, failed: bool) -> u8 {
    match ended {
        Ended::Exited(0) if failed => FAIL_ON,
        Ended::Exited(code) => code,
        // What shells report for it.
        Ended::Killed(signal) => 128u8.saturating_add(signal),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn codes_are_those_of_shells_and_a_finding_never_hides_a_failure() {
        assert_eq!(code_of_end(Ended::Exited(0), false), 0);
        assert_eq!(code_of_end(Ended::Exited(0), true), 3);
        assert_eq!(code_of_end(Ended::Exited(7), true), 7);
        assert_eq!(code_of_end(Ended::Killed(15), true), 143);
        assert_eq!(code_of_failed_start(&ErrorKind::NotFound.into()), 127);
        assert_eq!(
            code_of_failed_start(&ErrorKind::PermissionDenied.into()),
            126
        );
        // ENOEXEC has no kind of its own.
        assert_eq!(code_of_failed_start(&Error::from_raw_os_error(8)), 126);
    }
}
