//! `cargo xtask run`: the shortest way from a checkout to a picture.

use std::{
    io::{IsTerminal as _, stdin, stdout},
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

use crate::cmd::{build_observer, command, find, is_root};

/// How long a run without a terminal lasts.
const TEXT_FOR: &str = "10s";

/// Builds io-starve and starts it: live where it may, else the demo.
pub fn run() -> Result<ExitCode> {
    let program = build_observer()?;
    let screen = stdout().is_terminal();
    let live: &[&str] = if screen {
        &["top"]
    } else {
        &["watch", "--format", "text", "--duration", TEXT_FOR]
    };
    let why = match start(&program) {
        Err(why) => why,
        Ok(mut cmd) => {
            let status = cmd
                .args(live)
                .status()
                .with_context(|| format!("cannot start {}", program.display()))?;
            match status.code() {
                // 4: no permission, 5: the kernel cannot. io-starve said which on stderr.
                Some(code @ (4 | 5)) => {
                    format!("io-starve cannot observe this machine (exit code {code}, see above)")
                }
                Some(code) => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
                None => return Ok(ExitCode::FAILURE),
            }
        }
    };
    eprintln!("{why}; this is the built-in demo instead.");
    let demo: &[&str] = if screen {
        &["demo"]
    } else {
        &["demo", "--format", "text"]
    };
    let status = Command::new(&program).args(demo).status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The command with the rights that it needs, or why it cannot have them.
fn start(program: &Path) -> Result<Command, String> {
    if is_root() {
        return Ok(Command::new(program));
    }
    if find("sudo").is_none() {
        return Err("Observing the block layer needs root, and there is no sudo here".to_string());
    }
    let may_ask = stdin().is_terminal();
    let without_asking = || {
        command("sudo")
            .args(["--non-interactive", "true"])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if !may_ask && !without_asking() {
        return Err(
            "Observing the block layer needs root, and sudo has no terminal to ask for a password"
                .to_string(),
        );
    }
    let mut cmd = command("sudo");
    cmd.arg(program);
    Ok(cmd)
}
