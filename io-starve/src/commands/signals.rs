//! Signals that end a command, or ask it to reopen its logs and to read its configuration.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CommandError;
use crate::output::alert::StopReason;

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

    /// Waits for SIGINT or SIGTERM. On SIGHUP `on_hangup` is called where there is one; where there is none it ends the
    /// command: then its terminal has gone.
    pub(super) async fn stop(&mut self, mut on_hangup: Option<&mut dyn FnMut()>) -> StopReason {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return StopReason::Signal,
                _ = self.terminate.recv() => return StopReason::Signal,
                _ = self.hangup.recv() => match &mut on_hangup {
                    Some(on_hangup) => on_hangup(),
                    None => return StopReason::Signal,
                },
            }
        }
    }
}
