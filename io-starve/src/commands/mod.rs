//! The commands: each wires a source, the pipeline and a front end together. In: the command line. Out: an exit code.
//! Nothing is judged and no figure is computed here.

mod capture;
mod compare;
pub(crate) mod demo;
mod desk;
mod live;
mod outputs;
mod progress;
mod replay;
mod report;
mod run;
mod session;
mod signals;
mod watch;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::{
    cli::{Cli, Command, DoctorArgs, ExplainArgs},
    detect::{self, finding::Kind},
    kernel::{self, AttachError, AttachOptions, ReadError},
    metrics::server::ServerError,
    output::{
        alert,
        document::DocumentError,
        sink::{SinkError, print},
        text,
    },
    source::{input::InputError, recording::RecordingError},
    tui::TuiError,
};

/// Exit code of a usage error, the one that clap uses.
const USAGE: u8 = 2;
/// Exit code of a run that succeeded and met a `--fail-on`.
const FAIL_ON: u8 = 3;
/// Exit code of `run` when it fails itself, as with env(1), timeout(1) and others that run a command.
const RUN_FAILED: u8 = 125;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error("the kernel cannot be read any more: {0}")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Metrics(#[from] ServerError),
    #[error(transparent)]
    Tui(#[from] TuiError),
    #[error(
        "cannot wait for signals and timers: {0}; the limit of open files may be reached (ulimit -n)"
    )]
    Runtime(std::io::Error),
    #[error("cannot write JSON: {0}; please report this")]
    Json(#[from] serde_json::Error),
    /// What was asked for makes no sense here.
    #[error("{0}")]
    Usage(String),
    #[error(
        "this build has no recording inside; make one with `io-starve record -o FILE` and play it with `io-starve replay FILE`"
    )]
    NoDemo,
    #[error("stopped, because nothing else was asked for than the recording")]
    NothingToRecord,
    #[error(transparent)]
    Run(#[from] run::RunError),
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl CommandError {
    fn exit_code(&self) -> u8 {
        match self {
            CommandError::Attach(e) => e.exit_code(),
            CommandError::Usage(_) => USAGE,
            // Whoever closed the pipe has what they wanted.
            CommandError::Sink(SinkError::Closed) => 0,
            _ => 1,
        }
    }
}

/// Parses the command line, does what it says and returns the exit code of the process.
pub fn main() -> ExitCode {
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(e) => return usage(&e),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let is_run = matches!(cli.command, Some(Command::Run(_)));
    match dispatch(cli, &matches) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            let code = if is_run { RUN_FAILED } else { e.exit_code() };
            if !matches!(e, CommandError::Sink(SinkError::Closed)) {
                complain!("io-starve: {e}");
            }
            ExitCode::from(code)
        }
    }
}

fn usage(e: &clap::Error) -> ExitCode {
    // Fails when standard error is closed: then there is nobody to tell.
    let _ = e.print();
    if e.use_stderr() && run_was_asked_for() {
        return ExitCode::from(RUN_FAILED);
    }
    u8::try_from(e.exit_code()).map_or(ExitCode::from(USAGE), ExitCode::from)
}

/// True when the first command on the line is `run`. What cannot be parsed has to be searched: a 2 could be the
/// code of the command that was to run.
fn run_was_asked_for() -> bool {
    let command = Cli::command();
    let mut args = std::env::args_os().skip(1);
    args.find(|arg| command.get_subcommands().any(|c| arg == c.get_name()))
        .is_some_and(|arg| arg == "run")
}

fn dispatch(mut cli: Cli, matches: &ArgMatches) -> Result<u8, CommandError> {
    let matches = matches.subcommand().map_or(matches, |(_, m)| m);
    let mut reloader = None;
    if let Some(Command::Watch(args)) = &cli.command
        && let Some(path) = args.config.clone()
    {
        let file = watch::Reloader::new(path, matches.clone());
        cli = file.load()?;
        reloader = Some(file);
    }
    let checked = match cli.command {
        // Those not given are the recording's, and only with them can it be said how they go together.
        Some(Command::Replay(_) | Command::Demo(_) | Command::Report(_) | Command::Compare(_)) => {
            cli.settings.check_each()
        }
        _ => cli.settings.check(),
    };
    checked.map_err(CommandError::Usage)?;
    let Cli {
        command,
        attach,
        settings,
        ascii,
    } = cli;
    let common = live::Common {
        attach,
        settings,
        ascii,
    };
    match command.unwrap_or(Command::Top) {
        Command::Top => runtime()?.block_on(live::top(&common)),
        Command::Watch(args) if args.check_config => watch::check_config(&args),
        Command::Watch(args) => runtime()?.block_on(watch::watch(&common, &args, reloader)),
        Command::Record(args) => runtime()?.block_on(live::record(&common, &args)),
        Command::Run(args) => runtime()?.block_on(run::run(&common, &args)),
        Command::Replay(args) => runtime()?.block_on(replay::replay(&common, matches, &args)),
        Command::Demo(args) => demo::demo(&common, matches, &args),
        Command::Report(args) => runtime()?.block_on(report::report(&common, matches, &args)),
        Command::Compare(args) => runtime()?.block_on(compare::compare(&common, matches, &args)),
        Command::CaptureScript(args) => {
            print(&capture::script(&args, &common.attach.device))?;
            Ok(0)
        }
        Command::Doctor(args) => doctor(&common, &args),
        Command::Explain(args) => explain(&args),
        Command::Schema => print(&alert::schema_text()).map(|()| 0).map_err(Into::into),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "io-starve", &mut text);
            print(&String::from_utf8_lossy(&text))?;
            Ok(0)
        }
    }
}

/// One thread is enough: the kernel does the counting.
fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CommandError::Runtime)
}

fn doctor(common: &live::Common, args: &DoctorArgs) -> Result<u8, CommandError> {
    let report = kernel::doctor::report(&common.attach_options());
    if args.json {
        print(&(serde_json::to_string(&report)? + "\n"))?;
    } else {
        print(&report.to_text())?;
    }
    Ok(report.exit_code)
}

fn explain(args: &ExplainArgs) -> Result<u8, CommandError> {
    let text = match args.kind {
        Some(kind) => detect::explain(kind).to_owned(),
        None => {
            let first = |kind| detect::explain(kind).lines().next().unwrap_or_default();
            let lines = Kind::ALL.map(|kind| format!("{}\n", first(kind)));
            format!("{}\nMore with `io-starve explain KIND`.", lines.concat())
        }
    };
    print(&text::wrapped(&text))?;
    Ok(0)
}

impl live::Common {
    fn attach_options(&self) -> AttachOptions {
        AttachOptions {
            devices: self.attach.device.clone(),
            without_hooks: self.attach.without_hook.clone(),
            slots: self.attach.slots,
            raw_tracepoints: self.attach.raw_tracepoints,
        }
    }
}
