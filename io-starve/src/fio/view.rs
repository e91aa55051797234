//! fio's jobs as they are told: on the terminal, in JSON, in the report.

use io_starve_common::class::Class;
use schemars::JsonSchema;
use serde::Serialize;

use crate::history::summary::StageSum;

/// fio's jobs in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct FioView {
    /// `fio-3.33`; empty when it is not known.
    pub version: String,
    /// Each job, or group of jobs that fio reports as one.
    pub jobs: Vec<JobRow>,
    /// Counts of both, where they can be compared.
    pub agreement: Vec<Agreement>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JobRow {
    /// Its name.
    pub name: String,
    /// Why it failed, an errno; null when it did not.
    pub error: Option<i64>,
    /// Cgroups that pay for it; empty when that was not seen.
    pub cgroups: Vec<String>,
    /// Disks of its files; empty when they could not be told.
    pub devices: Vec<String>,
    /// What limits it by its own options (`rate=4m`).
    pub rate: Option<String>,
    /// What it did.
    pub parts: Vec<JobPart>,
    /// Its fsyncs; null when it did none.
    pub syncs: Option<JobSyncs>,
}

/// fsyncs of a job, by fio.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JobSyncs {
    /// How many.
    pub count: u64,
    /// How long one took in the mean, in ns; null when that is not known.
    pub mean_ns: Option<f64>,
}

/// One direction of a job.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JobPart {
    /// The class of its requests.
    pub class: Class,
    /// I/Os by fio.
    pub ios: u64,
    /// Bytes by fio.
    pub bytes: u64,
    /// Mean completion latency by fio, in ns; null when nothing completed.
    pub mean_ns: Option<f64>,
    /// 99th percentile of it, in ns.
    pub p99_ns: Option<f64>,
    /// Longest, in ns.
    pub max_ns: Option<f64>,
    /// Where the time went, as far as it is this job's.
    pub seen: Seen,
}

/// What was seen of a job.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "attribution", rename_all = "kebab-case")]
pub enum Seen {
    /// It alone did this.
    Alone {
        /// By stage: admission, queued, device.
        stages: [StageSum; 3],
        /// Requests that ended.
        requests: u64,
    },
    /// It and these others did this together.
    Shared {
        /// Names of the others.
        with: Vec<String>,
        /// By stage, of all of them.
        stages: [StageSum; 3],
        /// Requests that ended, of all of them.
        requests: u64,
    },
    /// Buffered writes: not attributable to a job.
    Buffered,
    /// Cgroup or disk of the job is not known.
    Unknown,
    /// Nothing of it reached a disk.
    Nothing,
}

/// Counts of fio and of io-starve.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Agreement {
    /// The jobs.
    pub jobs: Vec<String>,
    /// The class.
    pub class: Class,
    /// Direct I/Os by fio.
    pub fio_ios: u64,
    /// Bytes by fio.
    pub fio_bytes: u64,
    /// Requests that began, by io-starve.
    pub requests: u64,
    /// Of those, how many became part of another one.
    pub merged: u64,
    /// Bytes that were completed, by io-starve.
    pub bytes: u64,
    /// How the two compare.
    pub verdict: AgreementVerdict,
}

/// How two counts of bytes compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgreementVerdict {
    /// They are the same, but for half a per cent.
    Agrees,
    /// More was seen than fio counts: layout of files, a journal, ramp time, or another command of that cgroup.
    MoreSeen,
    /// Less was seen than fio counts.
    LessSeen,
}

impl Agreement {
    /// In words: why the number of requests may differ.
    pub fn words(&self) -> String {
        use crate::output::format::{bytes, count};
        match self.verdict {
            AgreementVerdict::Agrees => match self.requests.cmp(&self.fio_ios) {
                std::cmp::Ordering::Equal => "agrees, I/O by I/O".to_owned(),
                std::cmp::Ordering::Less => format!(
                    "agrees: {} I/Os were merged before they were requests",
                    count(self.fio_ios - self.requests)
                ),
                std::cmp::Ordering::Greater => format!(
                    "agrees: {} requests more, of I/Os that were split",
                    count(self.requests - self.fio_ios)
                ),
            },
            AgreementVerdict::MoreSeen => format!(
                "{} more seen than fio counts: layout of files, journal, ramp time, or others in that cgroup",
                bytes(self.bytes.saturating_sub(self.fio_bytes))
            ),
            AgreementVerdict::LessSeen => format!(
                "{} less seen than fio counts",
                bytes(self.fio_bytes.saturating_sub(self.bytes))
            ),
        }
    }
}
