//! The command line: what can be asked for. Nothing is done here.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    detect::{
        finding::{Kind, Severity},
        settings::Settings,
    },
    source::input::Format,
};

mod outputs;
mod values;
mod watch;
pub use outputs::Output;
use values::{duration, fail_on, interval, label, named_file, speed};
pub use values::{kind, nearest};
pub use watch::WatchArgs;

/// Says who starves whom of block I/O, through which mechanism, for how long.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "io-starve",
    version,
    about,
    after_help = "Without a command the live screen opens. Exit codes: 0 fine, 1 failure, 2 usage, 3 a --fail-on finding, \
                  4 no permission, 5 this kernel cannot; `run` passes on the code of its command, 125 is its own failure."
)]
pub struct Cli {
    /// What to do; `top` when nothing is said
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to look at
    #[command(flatten)]
    pub attach: AttachArgs,
    /// Thresholds of the detectors
    #[command(flatten)]
    pub settings: Settings,
    /// Use nothing but ASCII on the screen
    #[arg(long, global = true)]
    pub ascii: bool,
}

/// What to look at and how.
#[derive(Debug, Clone, Args)]
pub struct AttachArgs {
    /// Only this disk, by name, path or number (sda, /dev/mapper/root, 8:0), with * for any characters; repeatable
    #[arg(long, global = true, value_name = "DISK")]
    pub device: Vec<String>,
    /// Only findings that this cgroup or one below it has part in, by path or last name (/system.slice, backup.service),
    /// with * for any characters; repeatable
    #[arg(long, global = true, value_name = "CGROUP")]
    pub cgroup: Vec<String>,
    /// Time between two looks at the kernel, 50ms to 1s
    // The programs keep maxima for one to two epochs of 1.07 s: whoever comes less often misses some.
    #[arg(long, global = true, value_name = "TIME", default_value = "250ms", value_parser = interval)]
    pub interval: Duration,
    /// For tests: behave as if the kernel had refused this hook; repeatable
    #[arg(long, global = true, value_name = "HOOK")]
    pub without_hook: Vec<String>,
    /// How many requests can be followed at a time; chosen by the machine's disks when not given
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: Option<u32>,
    /// For tests and to compare the cost: attach raw tracepoints even where typed ones are to be had
    #[arg(long, global = true, hide = true)]
    pub raw_tracepoints: bool,
    /// Time between two status alerts; 60s when not given
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    pub status_every: Option<Duration>,
}

impl AttachArgs {
    /// Time between two status alerts, in ns.
    pub fn status_ns(&self) -> u64 {
        let default = Duration::from_secs(60);
        self.status_every.unwrap_or(default).as_nanos() as u64
    }
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Show the live screen; without a terminal, text
    Top,
    /// Watch without a screen: alerts as JSON lines or text
    Watch(WatchArgs),
    /// Watch while a command runs, then say what was found
    Run(RunArgs),
    /// Record what is seen into a file
    Record(RecordArgs),
    /// Replay a recording, or a trace that another program recorded; needs no root
    Replay(ReplayArgs),
    /// Replay a recording that ships inside the program
    Demo(DemoArgs),
    /// Write a recording or trace as one page of HTML: findings, who waited when, latencies, tables; needs no root
    Report(ReportArgs),
    /// Say what changed between two recordings or traces; needs no root
    Compare(CompareArgs),
    /// Print commands that record what `replay` needs, for machines where io-starve cannot be installed
    CaptureScript(CaptureArgs),
    /// Say what this kernel offers, and what cannot be answered on it
    Doctor(DoctorArgs),
    /// Explain a kind of finding and what to do about it
    Explain(ExplainArgs),
    /// Print the JSON schema of alerts
    #[command(hide = true)]
    Schema,
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// How alerts are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WatchFormat {
    /// One JSON object a line
    Json,
    /// Lines for people, with a table every 5 s
    Text,
}

/// How a replay is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayFormat {
    /// The screen
    Tui,
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// Arguments of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Write what was found as a page of HTML to this file, replaced when it is there
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub report: Option<PathBuf>,
    /// Also append alerts as JSON lines to this file, and the result of the run
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub json: Option<PathBuf>,
    /// Write the kinds of --fail-on (all kinds, without it) as JUnit test cases to this file, replaced when it is there
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub junit: Option<PathBuf>,
    /// Also record to this file
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub record: Option<PathBuf>,
    /// Exit with 3 when such a finding opened and the command succeeded; repeatable
    #[arg(long, value_name = "KIND[:SEVERITY]", value_parser = fail_on)]
    pub fail_on: Vec<FailOn>,
    /// Run the command as this user (name or number), with that user's groups
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Put this label on every alert; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Watch until this process, which runs already, ends, instead of running a command
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "user"], value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// The command and its arguments; of fio, each job is told
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

/// Arguments of `record`.
#[derive(Debug, Clone, Args)]
pub struct RecordArgs {
    /// The file, replaced when it is there
    #[arg(long, short, value_name = "FILE", value_parser = named_file())]
    pub output: PathBuf,
    /// Stop after this time (10s, 5m)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Put this label on every alert of a replay; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
}

/// Arguments of `replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The recording or trace, packed or not; - is standard input
    pub file: PathBuf,
    /// What it is, where looking at it does not tell
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<Format>,
    /// How to show it
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Arguments of `report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// The recording or trace, packed or not; - is standard input
    pub file: PathBuf,
    /// Write to this file, replaced when it is there; - is standard output. FILE.html beside the recording when not given
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What the input is, where looking at it does not tell
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<Format>,
}

/// Arguments of `compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// The recording or trace of before
    pub before: PathBuf,
    /// That of after
    pub after: PathBuf,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `capture-script`.
#[derive(Debug, Clone, Args)]
pub struct CaptureArgs {
    /// Only the commands of this program
    #[arg(long, value_enum)]
    pub tool: Option<CaptureTool>,
    /// For how long they record (10s, 5m)
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub duration: Duration,
}

/// What records a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CaptureTool {
    /// A shell and tracefs
    Tracefs,
    /// trace-cmd
    TraceCmd,
    /// perf
    Perf,
    /// blktrace, on the disks of --device
    Blktrace,
}

impl CaptureTool {
    /// All of them, the one that is everywhere first.
    pub const ALL: [CaptureTool; 4] = [
        CaptureTool::Tracefs,
        CaptureTool::TraceCmd,
        CaptureTool::Perf,
        CaptureTool::Blktrace,
    ];
}

/// Arguments of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Which, by the kind of finding that it shows; the first one when not given
    pub name: Option<String>,
    /// List what there is
    #[arg(long)]
    pub list: bool,
    /// How to show it
    #[command(flatten)]
    pub show: ShowArgs,
}

/// How something is replayed.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// How to show it; the screen on a terminal, text elsewhere
    #[arg(long, value_enum)]
    pub format: Option<ReplayFormat>,
    /// How many times as fast as it happened; 1 on the screen, at once elsewhere
    #[arg(long, value_name = "FACTOR", value_parser = speed)]
    pub speed: Option<f64>,
    /// Leave out findings below this severity
    #[arg(long, value_enum, default_value = "info")]
    pub min_severity: Severity,
}

/// Arguments of `doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// The kind of finding; all of them in a line each when not given
    #[arg(value_parser = kind)]
    pub kind: Option<Kind>,
}

/// A finding that makes a run fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailOn {
    /// Which disease.
    pub kind: Kind,
    /// How bad at least.
    pub severity: Severity,
}

impl FailOn {
    /// True for a finding like this.
    pub fn matches(&self, kind: Kind, severity: Severity) -> bool {
        kind == self.kind && severity >= self.severity
    }
}

/// True for what stands for standard input or output.
pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_takes_the_global_options() {
        let cli =
            Cli::try_parse_from(["io-starve", "--interval", "500ms", "--device", "sda"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.attach.interval, Duration::from_millis(500));
        assert_eq!(cli.attach.device, ["sda"]);
    }

    #[test]
    fn global_options_go_before_and_after_the_command() {
        for args in [
            ["--withheld-ms", "5", "watch"],
            ["watch", "--withheld-ms", "5"],
        ] {
            let cli = Cli::try_parse_from(["io-starve"].into_iter().chain(args)).unwrap();
            assert_eq!(cli.settings.withheld_ms, 5);
        }
    }

    #[test]
    fn options_of_the_command_run_are_not_ours() {
        let cli = Cli::try_parse_from([
            "io-starve",
            "run",
            "--",
            "fio",
            "--device",
            "x",
            "--version",
        ])
        .unwrap();
        let Some(Command::Run(run)) = cli.command else {
            panic!("{cli:?}")
        };
        assert_eq!(run.command, ["fio", "--device", "x", "--version"]);
        assert!(cli.attach.device.is_empty());
    }

    #[test]
    fn times_need_a_unit_and_must_be_within_their_range() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        for bad in ["", "10", "0", "x"] {
            assert!(
                duration(bad).unwrap_err().contains("with its unit"),
                "{bad}"
            );
            assert!(
                interval(bad).unwrap_err().contains("with its unit"),
                "{bad}"
            );
        }
        for bad in ["0s", "-1s"] {
            assert!(duration(bad).unwrap_err().contains("above 0"), "{bad}");
        }
        for bad in ["49ms", "1001ms", "0s", "-1s"] {
            assert!(
                interval(bad).unwrap_err().contains("from 50ms to 1s"),
                "{bad}"
            );
        }
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        for bad in ["0", "-1", "nan", "inf", "x"] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fail_on_names_a_kind_and_maybe_a_severity() {
        let f = fail_on("read-starvation:critical").unwrap();
        assert!(f.matches(Kind::ReadStarvation, Severity::Critical));
        assert!(!f.matches(Kind::ReadStarvation, Severity::Warning));
        assert!(!f.matches(Kind::QueueStuck, Severity::Critical));
        assert!(
            fail_on("queue-stuck")
                .unwrap()
                .matches(Kind::QueueStuck, Severity::Info)
        );
        assert!(
            fail_on("queue-stuck:bad")
                .unwrap_err()
                .contains("info, warning, critical")
        );
        assert!(
            fail_on("que-stuck")
                .unwrap_err()
                .contains("did you mean `queue-stuck`")
        );
    }

    #[test]
    fn nothing_is_suggested_for_what_is_like_nothing() {
        assert!(!kind("zzzz").unwrap_err().contains("did you mean"));
    }
}
