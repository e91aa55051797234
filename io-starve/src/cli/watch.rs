//! The arguments of `watch`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use super::{
    Output, WatchFormat,
    outputs::output,
    values::{duration, label, listen, named_file, size, speed},
};
use crate::{detect::finding::Severity, output::ignore::Ignore};

/// Arguments of `watch`.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// Where alerts go, standard output when not given; repeatable. - is standard output, journald[:SOCKET] the systemd
    /// journal, syslog[:SOCKET|:HOST[:PORT]] a syslog daemon, anything else a file that is appended to, and reopened on SIGHUP
    #[arg(long, short, value_name = "OUTPUT", value_parser = output())]
    pub output: Vec<Output>,
    /// How alerts are written; the journal gets both
    #[arg(long, value_enum, default_value = "json")]
    pub format: WatchFormat,
    /// Stop after this time (10s, 5m)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Leave out findings below this severity
    #[arg(long, value_enum, default_value = "info")]
    pub min_severity: Severity,
    /// Put this label on every alert; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Also record to this file
    #[arg(long, value_name = "FILE", value_parser = named_file())]
    pub record: Option<PathBuf>,
    /// Take options from this TOML file, by the names that they have here; those on the command line go before. SIGHUP reads it
    /// again
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say whether the configuration makes sense
    #[arg(long, requires = "config")]
    pub check_config: bool,
    /// Serve metrics for Prometheus at this address; a port alone means this machine only
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen)]
    pub metrics: Option<SocketAddr>,
    /// How many series the metrics may have; owners and disks beyond that are summed as "other"
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    pub max_series: u32,
    /// Keep the last minutes as recordings in this folder, and apart what came before and after each finding
    #[arg(long, value_name = "DIR")]
    pub flight: Option<PathBuf>,
    /// How much room --flight may take
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub flight_size: u64,
    /// How many recordings of findings --flight keeps
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub flight_keep: u32,
    /// Watch a recording instead of this kernel, to try outputs, alert rules and dashboards; needs no root
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// How many times as fast as it happened the recording goes; at once when not given
    #[arg(long, value_name = "FACTOR", value_parser = speed, requires = "replay")]
    pub speed: Option<f64>,
    /// Findings that are not told; only a configuration file can name them
    #[arg(skip)]
    pub ignore: Vec<Ignore>,
}

impl WatchArgs {
    /// What `top` does where there is no terminal.
    pub(crate) fn text() -> WatchArgs {
        WatchArgs {
            output: Vec::new(),
            format: WatchFormat::Text,
            duration: None,
            min_severity: Severity::Info,
            label: Vec::new(),
            record: None,
            config: None,
            check_config: false,
            metrics: None,
            max_series: 0,
            flight: None,
            flight_size: 0,
            flight_keep: 0,
            replay: None,
            speed: None,
            ignore: Vec::new(),
        }
    }
}
