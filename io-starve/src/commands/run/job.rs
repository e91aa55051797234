//! The command that is observed: a process group of its own, so that a signal reaches it once, with the
//! terminal in its hands while it runs.

use std::{
    ffi::{CString, OsString},
    io,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
};

use nix::{
    sys::{
        signal::{SigSet, Signal, kill, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::{self, Gid, Pid, Uid, getpgrp, tcgetpgrp, tcsetpgrp},
};
use tokio::{
    process::{Child, Command},
    signal::unix::{self, SignalKind},
};

use super::{super::CommandError, RunError};

/// Signals that are passed on. SIGTSTP is not among them: the terminal sends it to the command itself.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Signals for the command, and those about it.
pub(super) struct Signals {
    passed_on: Vec<(Signal, unix::Signal)>,
    child: unix::Signal,
}

impl Signals {
    pub(super) fn catch() -> Result<Signals, CommandError> {
        let catch = |kind| unix::signal(kind).map_err(CommandError::Runtime);
        let passed_on = PASSED_ON
            .iter()
            .map(|s| Ok((*s, catch(SignalKind::from_raw(*s as i32))?)));
        Ok(Signals {
            passed_on: passed_on.collect::<Result<_, CommandError>>()?,
            child: catch(SignalKind::child())?,
        })
    }

    async fn next(&mut self) -> Signal {
        let Signals { passed_on, child } = self;
        std::future::poll_fn(|cx| {
            for (name, stream) in passed_on.iter_mut() {
                if stream.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*name);
                }
            }
            child.poll_recv(cx).map(|_| Signal::SIGCHLD)
        })
        .await
    }
}

/// Somebody to run as.
pub(super) struct User {
    name: String,
    home: std::path::PathBuf,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl User {
    /// Looks up a name or a number, with all groups.
    pub(super) fn find(text: &str) -> Result<User, RunError> {
        if !Uid::effective().is_root() {
            return Err(RunError::NotRoot);
        }
        let lookup = |source| RunError::Lookup {
            user: text.to_owned(),
            source,
        };
        let by_number = || match text.parse() {
            Ok(uid) => unistd::User::from_uid(Uid::from_raw(uid)),
            Err(_) => Ok(None),
        };
        let found = match unistd::User::from_name(text).map_err(lookup)? {
            Some(user) => Some(user),
            None => by_number().map_err(lookup)?,
        };
        let user = found.ok_or_else(|| RunError::NoUser(text.to_owned()))?;
        // A name that the system's own database returned has no NUL in it.
        let name =
            CString::new(user.name.clone()).map_err(|_| RunError::NoUser(text.to_owned()))?;
        Ok(User {
            groups: unistd::getgrouplist(&name, user.gid).map_err(lookup)?,
            name: user.name,
            home: user.dir,
            uid: user.uid,
            gid: user.gid,
        })
    }
}

impl User {
    /// Its number.
    pub(super) fn uid(&self) -> u32 {
        self.uid.as_raw()
    }
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this code.
    Exited(u8),
    /// By this signal.
    Killed(u8),
}

impl Ended {
    fn of(status: ExitStatus) -> Ended {
        let byte = |n: i32| (n & 0xff) as u8;
        match status.signal() {
            Some(signal) => Ended::Killed(byte(signal)),
            None => Ended::Exited(byte(status.code().unwrap_or_default())),
        }
    }
}

/// The running command.
pub(super) struct Job {
    child: Child,
    group: Pid,
    has_terminal: bool,
}

impl Job {
    /// Starts it. The error is the system's: `NotFound` when there is no such program.
    pub(super) fn start(
        command: &[OsString],
        user: Option<&User>,
        stdout: Option<Stdio>,
    ) -> io::Result<Job> {
        let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(args).process_group(0);
        if let Some(stdout) = stdout {
            command.stdout(stdout);
        }
        if let Some(user) = user {
            command
                .env("HOME", &user.home)
                .env("USER", &user.name)
                .env("LOGNAME", &user.name);
            let (uid, gid, groups) = (user.uid, user.gid, user.groups.clone());
            // SAFETY: between fork and exec only setgroups, setgid and setuid are called, which are async-signal-safe
            // and touch no memory that another thread could have locked; the groups were looked up before.
            unsafe {
                command.pre_exec(move || {
                    unistd::setgroups(&groups)?;
                    unistd::setgid(gid)?;
                    unistd::setuid(uid)?;
                    Ok(())
                });
            }
        }
        let child = command.spawn()?;
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .ok_or(io::ErrorKind::NotFound)?;
        let mut job = Job {
            child,
            group: Pid::from_raw(pid),
            has_terminal: false,
        };
        job.give_terminal();
        Ok(job)
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.group.as_raw().unsigned_abs()
    }

    /// Waits for its end and meanwhile passes signals on. May be dropped and called again.
    pub(super) async fn wait(&mut self, signals: &mut Signals) -> io::Result<Ended> {
        loop {
            tokio::select! {
                biased;
                status = self.child.wait() => {
                    self.take_terminal();
                    return status.map(Ended::of);
                }
                signal = signals.next() => match signal {
                    Signal::SIGCHLD => self.follow_stop(),
                    // Fails when the group has just ended, which the next turn finds out.
                    signal => drop(killpg(self.group, signal)),
                },
            }
        }
    }

    /// Gives it the terminal when it is ours to give, so that it can read from it and Ctrl-C reaches it.
    fn give_terminal(&mut self) {
        if tcgetpgrp(io::stdin()) == Ok(getpgrp()) && tcsetpgrp(io::stdin(), self.group).is_ok() {
            self.has_terminal = true;
            // It may have tried to read before the terminal was its own and been stopped for that.
            let _ = killpg(self.group, Signal::SIGCONT);
        }
    }

    fn take_terminal(&mut self) {
        if std::mem::take(&mut self.has_terminal) {
            // A process in the background that touches the terminal is stopped by SIGTTOU unless it blocks it.
            let mut ttou = SigSet::empty();
            ttou.add(Signal::SIGTTOU);
            let blocked = ttou.thread_block();
            // Fails when the terminal has gone.
            let _ = tcsetpgrp(io::stdin(), getpgrp());
            if blocked.is_ok() {
                let _ = ttou.thread_unblock();
            }
        }
    }

    /// Ctrl-Z stopped the command: stop with it, so that the shell gets the terminal, and go on with it.
    fn follow_stop(&mut self) {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        if !matches!(
            waitid(Id::Pid(self.group), flags),
            Ok(WaitStatus::Stopped(..))
        ) || !self.has_terminal
        {
            return;
        }
        self.take_terminal();
        // The whole group, as the terminal would have done: `io-starve run … | tee` stops as one.
        let _ = kill(Pid::from_raw(0), Signal::SIGSTOP);
        self.give_terminal();
        let _ = killpg(self.group, Signal::SIGCONT);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.take_terminal();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    async fn end_of(words: &[&str]) -> Ended {
        let mut signals = Signals::catch().unwrap();
        let mut job = Job::start(&command(words), None, None).unwrap();
        job.wait(&mut signals).await.unwrap()
    }

    #[tokio::test]
    async fn the_end_of_the_command_is_told() {
        assert_eq!(end_of(&["true"]).await, Ended::Exited(0));
        assert_eq!(end_of(&["sh", "-c", "exit 7"]).await, Ended::Exited(7));
        assert_eq!(
            end_of(&["sh", "-c", "kill -KILL $$"]).await,
            Ended::Killed(9)
        );
    }

    #[tokio::test]
    async fn what_cannot_run_is_told_from_what_is_not_there() {
        let kind = |word: &str| {
            Job::start(&command(&[word]), None, None)
                .err()
                .map(|e| e.kind())
        };
        assert_eq!(kind("/nowhere/x"), Some(io::ErrorKind::NotFound));
        let file = tempfile::NamedTempFile::new().unwrap();
        let no_program = file.path().to_str().unwrap();
        assert_eq!(kind(no_program), Some(io::ErrorKind::PermissionDenied));
    }

    /// Starts a shell script that writes a line into a pipe, `$0`, once it is ready; returns that line.
    fn start_and_wait_until_ready(script: &str, user: Option<&User>) -> (Job, String) {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("ready");
        let mode = rustix::fs::Mode::from(0o622);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // The umask took some of it.
        rustix::fs::chmod(&pipe, mode).unwrap();
        rustix::fs::chmod(dir.path(), rustix::fs::Mode::from(0o711)).unwrap();
        let words = command(&["sh", "-c", script, pipe.to_str().unwrap()]);
        let job = Job::start(&words, user, None).unwrap();
        let mut line = String::new();
        BufReader::new(std::fs::File::open(pipe).unwrap())
            .read_line(&mut line)
            .unwrap();
        (job, line.trim_end().to_owned())
    }

    #[tokio::test]
    async fn signals_are_passed_on_to_the_whole_group() {
        let mut signals = Signals::catch().unwrap();
        // The shell waits for its child, which has to die of the signal too.
        let script = "trap 'code=9' USR1; (trap 'exit 5' USR1; echo ready > $0; while :; do sleep 1; done); exit $((code + $?))";
        let (mut job, line) = start_and_wait_until_ready(script, None);
        assert_eq!(line, "ready");
        kill(Pid::this(), Signal::SIGUSR1).unwrap();
        assert_eq!(job.wait(&mut signals).await.unwrap(), Ended::Exited(14));
    }

    #[tokio::test]
    async fn the_command_leads_a_group_of_its_own() {
        let mut signals = Signals::catch().unwrap();
        let (mut job, line) = start_and_wait_until_ready("ps -o pgid= -p $$ > $0", None);
        assert_eq!(line.trim(), job.group.to_string());
        assert_ne!(job.group, getpgrp());
        job.wait(&mut signals).await.unwrap();
    }

    #[tokio::test]
    async fn another_user_has_its_own_groups_and_home() {
        if !Uid::effective().is_root() {
            let refused = User::find("nobody").err().map(|e| e.to_string());
            assert!(refused.is_some_and(|e| e.contains("--user needs root")));
            return;
        }
        let mut signals = Signals::catch().unwrap();
        let user = User::find("nobody").unwrap();
        let (mut job, line) =
            start_and_wait_until_ready("echo $(id -u) $(id -G) $HOME $USER > $0", Some(&user));
        let groups = user
            .groups
            .iter()
            .map(Gid::to_string)
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            line,
            format!("{} {groups} {} nobody", user.uid, user.home.display())
        );
        job.wait(&mut signals).await.unwrap();
        assert!(User::find("65534").is_ok());
        let unknown = User::find("no-such-user-here").err().map(|e| e.to_string());
        assert!(unknown.is_some_and(|e| e.contains("there is no user")));
    }
}
