//! The program as its users meet it: exit codes, sentences, alerts. Needs no kernel and no root.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod alerts;
mod configuration;
mod files;
mod flight;
mod metrics;
mod replay;
mod report;
mod stream;
mod traces;
mod usage;
mod watch;

use std::{fs::File, os::fd::IntoRawFd, time::Duration};

use assert_cmd::Command;

/// Whoever takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with these arguments.
fn io_starve<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let mut command = Command::cargo_bin("io-starve").unwrap();
    command.args(args).timeout(PATIENCE);
    command
}

/// The same without root: root gives it up first.
fn as_nobody<I>(args: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<std::ffi::OsStr>,
{
    if !rustix::process::geteuid().is_root() {
        return io_starve(args);
    }
    // Others may not be able to reach the build folder, but what root has opened can be run by anybody.
    let program = File::open(env!("CARGO_BIN_EXE_io-starve")).unwrap();
    rustix::io::fcntl_setfd(&program, rustix::io::FdFlags::empty()).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    // Stays open for the command that is yet to be started.
    command
        .arg(format!("/proc/self/fd/{}", program.into_raw_fd()))
        .args(args)
        .timeout(PATIENCE);
    command
}

/// (exit code, standard output, standard error).
fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}
