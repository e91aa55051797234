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
    /// Fsync: longer than this is a warning, when others cause it
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 200,
        global = true,
        help_heading = "Thresholds"
    )]
    pub fsync_ms: u64,
    /// Fsync: longer than this is critical
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 10_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub fsync_critical_ms: u64,
    /// Fsync: how many times what it would take alone it must take
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        global = true,
        help_heading = "Thresholds"
    )]
    pub fsync_factor: u64,
    /// Journal: a call other than fsync that waits for it longer than this is a warning, when others cause it
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub journal_ms: u64,
    /// Journal: longer than this is critical
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 10_000,
        global = true,
        help_heading = "Thresholds"
    )]
    pub journal_critical_ms: u64,
    /// Dirty memory: the part of 5 s for which writers must be paused
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.2,
        global = true,
        help_heading = "Thresholds"
    )]
    pub paused_share: f64,
    /// Loop devices: the part of 5 s for which their worker must be paused too
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        global = true,
        help_heading = "Thresholds"
    )]
    pub worker_share: f64,
    /// Weights: the part of its share below which an owner is treated unfairly
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.75,
        global = true,
        help_heading = "Thresholds"
    )]
    pub unfair_share: f64,
    /// Weights: the part of 5 s for which a disk must be idle while somebody waits
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.2,
        global = true,
        help_heading = "Thresholds"
    )]
    pub idle_share: f64,
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
            fsync_ms: 200,
            fsync_critical_ms: 10_000,
            fsync_factor: 5,
            journal_ms: 1_000,
            journal_critical_ms: 10_000,
            paused_share: 0.2,
            worker_share: 0.1,
            unfair_share: 0.75,
            idle_share: 0.2,
            hold_down: 10_000,
        }
    }
}

impl Settings {
    /// What makes no sense about these thresholds, in a sentence for whoever typed them.
    ///
    /// # Errors
    /// With that sentence.
    pub fn check(&self) -> Result<(), String> {
        self.check_each()?;
        self.check_order()
    }

    /// The same for each threshold by itself.
    ///
    /// # Errors
    /// With the sentence.
    pub fn check_each(&self) -> Result<(), String> {
        let shares = [
            ("crawling-share", self.crawling_share),
            ("paused-share", self.paused_share),
            ("worker-share", self.worker_share),
            ("unfair-share", self.unfair_share),
            ("idle-share", self.idle_share),
        ];
        // Not a number is in no range.
        if let Some((name, share)) = shares.iter().find(|(_, s)| !(0.0..=1.0).contains(s)) {
            return Err(format!("--{name} {share}: give a share from 0 to 1"));
        }
        let times = [
            ("withheld-ms", self.withheld_ms),
            ("crawling-ms", self.crawling_ms),
            ("stuck-ms", self.stuck_ms),
            ("fsync-ms", self.fsync_ms),
            ("journal-ms", self.journal_ms),
        ];
        match times.into_iter().find(|(_, ms)| *ms == 0) {
            Some((name, _)) => Err(format!(
                "--{name} 0 would make a finding of every wait; give 1 or more"
            )),
            None => Ok(()),
        }
    }

    /// The same for those that must go together.
    ///
    /// # Errors
    /// With the sentence.
    pub fn check_order(&self) -> Result<(), String> {
        let pairs = [
            ("withheld", self.withheld_ms, self.withheld_critical_ms),
            ("crawling", self.crawling_ms, self.crawling_critical_ms),
            ("fsync", self.fsync_ms, self.fsync_critical_ms),
            ("journal", self.journal_ms, self.journal_critical_ms),
        ];
        match pairs
            .into_iter()
            .find(|(_, warning, critical)| warning > critical)
        {
            Some((name, warning, critical)) => Err(format!(
                "--{name}-ms {warning} is above --{name}-critical-ms {critical}, so the warning would come after the alarm; \
                 lower the first or raise the second"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(change: fn(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().err().unwrap_or_default()
    }

    #[test]
    fn the_defaults_and_the_limits_make_sense() {
        assert_eq!(says(|_| {}), "");
        assert_eq!(says(|s| s.withheld_ms = s.withheld_critical_ms), "");
        assert_eq!(says(|s| s.crawling_ms = s.crawling_critical_ms), "");
        assert_eq!(says(|s| s.stuck_ms = 1), "");
        assert_eq!(says(|s| s.hold_down = 0), "");
        assert_eq!(says(|s| s.crawling_share = 0.0), "");
        assert_eq!(says(|s| s.crawling_share = 1.0), "");
    }

    #[test]
    fn a_warning_comes_before_its_alarm() {
        assert_eq!(
            says(|s| s.withheld_ms = 10_001),
            "--withheld-ms 10001 is above --withheld-critical-ms 10000, so the warning would come after the alarm; \
             lower the first or raise the second"
        );
        assert!(says(|s| s.withheld_critical_ms = 0).starts_with("--withheld-ms 1000 is above"));
        assert!(
            says(|s| s.crawling_critical_ms = 29_999)
                .starts_with("--crawling-ms 30000 is above --crawling-critical-ms 29999")
        );
    }

    #[test]
    fn nothing_is_no_wait_and_a_share_is_one() {
        assert!(says(|s| s.withheld_ms = 0).starts_with("--withheld-ms 0 would"));
        assert!(says(|s| s.crawling_ms = 0).starts_with("--crawling-ms 0 would"));
        assert!(says(|s| s.stuck_ms = 0).starts_with("--stuck-ms 0 would"));
        for share in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
            let settings = Settings {
                crawling_share: share,
                ..Settings::default()
            };
            let said = settings.check().unwrap_err();
            assert_eq!(
                said,
                format!("--crawling-share {share}: give a share from 0 to 1")
            );
        }
    }
}
