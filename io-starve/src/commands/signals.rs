//! Signals that end a command, or ask it to reopen its log.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CommandError;
use crate::output::{alert::StopReason, sink::Reopener};

/// Signals, caught from the moment that this is made: none may end the process before it has detached.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn catch() -> Result<Signals, CommandError> {
        let catch = |kind| signal(kind).map_err(CommandError::Runtime);
        Ok(Signals {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGINT or SIGTERM. SIGHUP asks for the log to be reopened where there is one, and ends the
    /// command where there is none: then its terminal has gone.
    pub(super) async fn stop(&mut self, log: Option<&Reopener>) -> StopReason {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return StopReason::Signal,
                _ = self.terminate.recv() => return StopReason::Signal,
                _ = self.hangup.recv() => match log {
                    Some(log) => log.reopen(),
                    None => return StopReason::Signal,
                },
            }
        }
    }
}
