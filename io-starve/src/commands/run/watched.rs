//! A process that runs already, watched until it ends.

use std::{io, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use tokio::sync::oneshot;

use super::RunError;
use crate::commands::{CommandError, signals::Signals};

/// The process.
pub(super) struct Watched {
    pid: u32,
    ended: oneshot::Receiver<()>,
}

impl Watched {
    /// Takes hold of it, so that another with the same number is not taken for it.
    pub(super) fn open(pid: u32) -> Result<Watched, CommandError> {
        let failed = |source| RunError::NoProcess { pid, source };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let fd = pidfd_open(number, PidfdFlags::empty()).map_err(|e| failed(e.into()))?;
        let (tell, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("watched".to_owned())
            .spawn(move || {
                wait_for(&fd);
                // Nobody listens any more when a signal came first.
                let _ = tell.send(());
            })
            .map_err(CommandError::Runtime)?;
        Ok(Watched { pid, ended })
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end, or for a signal that asks io-starve to end.
    pub(super) async fn wait(&mut self, signals: &mut Signals) {
        tokio::select! {
            _ = &mut self.ended => {}
            _ = signals.stop(None) => {}
        }
    }
}

/// A process becomes readable when it ends.
fn wait_for(process: &OwnedFd) {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn its_end_is_seen_and_one_that_is_not_there_is_said() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut signals = Signals::catch().unwrap();
        let mut watched = Watched::open(child.id()).unwrap();
        child.kill().unwrap();
        watched.wait(&mut signals).await;
        child.wait().unwrap();
        let gone = Watched::open(child.id()).err().map(|e| e.to_string());
        assert!(gone.is_some_and(|e| e.contains("no process")));
    }
}
