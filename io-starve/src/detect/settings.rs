//! Thresholds of all detectors, with the defaults of the design.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Thresholds. Durations are in milliseconds, shares are 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, clap::Args)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Starvation: issued nothing for this long while others were served is a warning
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub withheld_ms: u64,
    /// Starvation: issued nothing for this long while others were served is critical
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 10_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub withheld_critical_ms: u64,
    /// Starvation: how many requests of others must be issued meanwhile
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        global = true,
        help_heading = "Thresholds"
    )]
    pub withheld_others: u64,
    /// Crawling: a backlog that needs longer than this is a warning
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 30_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub crawling_ms: u64,
    /// Crawling: a backlog that needs longer than this is critical
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 300_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub crawling_critical_ms: u64,
    /// Crawling: the share of the issues below which a waiting group crawls
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.15,
        global = true,
        help_heading = "Thresholds"
    )]
    pub crawling_share: f64,
    /// Stuck: nothing issued or completed for this long while something waits
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 5_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub stuck_ms: u64,
    /// A finding closes when its condition was not met for this long
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 10_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub hold_down: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            withheld_ms: 1_000,
            withheld_critical_ms: 10_000,
            withheld_others: 64,
            crawling_ms: 30_000,
            crawling_critical_ms: 300_000,
            crawling_share: 0.15,
            stuck_ms: 5_000,
            hold_down: 10_000,
        }
    }
}
