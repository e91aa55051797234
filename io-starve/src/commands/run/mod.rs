//! `run`: observes while a command runs, and says what was found.

mod job;

use std::collections::BTreeMap;

use super::{
    CommandError, FAIL_ON, RUN_FAILED,
    live::{Common, observe},
    outputs::{LineFormat, Outputs},
};
use crate::{
    cli::RunArgs,
    detect::finding::Severity,
    output::{
        alert::{Alert, Event, FindingAlert, StopReason},
        sink::Sink,
        text,
    },
    source::recording::Recorder,
};

use job::{Ended, Job, Signals, User};

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
}

pub(super) async fn run(common: &Common, args: &RunArgs) -> Result<u8, CommandError> {
    let user = args.user.as_deref().map(User::find).transpose()?;
    let mut signals = Signals::catch()?;
    let json = args.json.as_deref().map(Sink::place).transpose()?;
    let recording = args.record.as_deref().map(Recorder::place).transpose()?;
    let mut attached = common.attach()?;
    let mut lines = match json {
        Some(place) => Some(Outputs::to(Sink::file(place)?.0, LineFormat::Json)),
        None => None,
    };
    let mut session = common.session(&args.label, Severity::Info);
    if let Some(place) = recording {
        session.record_to(place)?;
    }
    let mut job = match Job::start(&args.command, user.as_ref()) {
        Ok(job) => job,
        Err(e) => {
            complain!(
                "io-starve: cannot run {}: {e}",
                args.command[0].to_string_lossy()
            );
            return Ok(code_of_failed_start(&e));
        }
    };
    let mut findings = Findings::default();
    let mut ended = None;
    let stop = async {
        ended = Some(job.wait(&mut signals).await);
        StopReason::CommandEnded
    };
    let observed = observe(
        &mut attached,
        &mut session,
        common.attach.interval,
        stop,
        |_, alerts, _| {
            findings.note(alerts);
            lines.as_mut().map_or(Ok(()), |lines| lines.alerts(alerts))
        },
    )
    .await;
    drop(attached);
    if let Err(e) = &observed
        && ended.is_none()
    {
        complain!("io-starve: {e}; the command goes on unobserved");
        ended = Some(job.wait(&mut signals).await);
    }
    drop(job);
    if let Err(e) = session.end_recording() {
        complain!("io-starve: {e}");
    }
    let written = lines.map_or(Ok(()), Outputs::finish);
    eprint!("{}", findings.verdict(&session.summary()));
    observed?;
    written?;
    let Some(ended) = ended else {
        return Ok(RUN_FAILED);
    };
    let failed = findings
        .latest
        .values()
        .any(|f| args.fail_on.iter().any(|on| on.matches(f.kind, f.severity)));
    Ok(code_of_end(ended.map_err(RunError::Wait)?, failed))
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

/// The last word on every finding of the run.
#[derive(Default)]
struct Findings {
    latest: BTreeMap<String, FindingAlert>,
}

impl Findings {
    fn note(&mut self, alerts: &[Alert]) {
        for alert in alerts {
            if let Event::Open(f) | Event::Update(f) | Event::Close(f) = &alert.event {
                self.latest.insert(f.id.clone(), FindingAlert::clone(f));
            }
        }
    }

    /// Worst first.
    fn verdict(&self, summary: &str) -> String {
        let mut list: Vec<&FindingAlert> = self.latest.values().collect();
        list.sort_by_key(|f| {
            (
                std::cmp::Reverse(f.severity),
                std::cmp::Reverse(f.longest_ms),
            )
        });
        let text = text::verdict(list.into_iter(), summary);
        text.lines()
            .map(|line| format!("io-starve: {line}\n"))
            .collect()
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
