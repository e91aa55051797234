//! Alerts: what io-starve tells other programs, one JSON object on one line.
//!
//! The JSON schema in docs/alert.schema.json is generated from these types. Numbers are numbers, durations are in the
//! unit that their name ends with, times are RFC 3339 in UTC, and what is not known is null. A reader must ignore
//! fields that it does not know: new ones may come within the same schema version.

use std::collections::BTreeMap;

use io_starve_common::class::Class;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Serialize;

use crate::{
    detect::{
        finding::{CloseReason, Confidence, Evidence, Kind, LossNote, Mechanism, Place, Severity},
        settings::Settings,
    },
    fio::FioView,
    history::summary::{BlameRow, GroupRow},
    model::observation::{self, Limits, Task, Verdict},
};

/// Version of the schema: raised when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Alert {
    /// Version of this schema.
    #[schemars(extend("const" = SCHEMA))]
    pub schema: u32,
    /// Version of io-starve that judged.
    pub version: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The observer is attached.
    Start(Box<Start>),
    /// The observer is alive; every 60 s.
    Status(Box<Status>),
    /// A finding opened.
    Open(Box<FindingAlert>),
    /// An open finding got worse, changed its culprit, or went on for another while.
    Update(Box<FindingAlert>),
    /// A finding ended.
    Close(Box<FindingAlert>),
    /// `run`: the command ended; what the whole run came to. Comes before `stop`.
    Result(Box<RunResult>),
    /// The observer ended in an orderly way.
    Stop(Box<Stop>),
}

/// When and where.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Stamp {
    /// Wall clock of the observation that led to this event.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// The same moment by CLOCK_MONOTONIC, in ns.
    pub mono_ns: u64,
    /// Name of the host; null when it could not be read.
    pub host: Option<String>,
    /// Kernel release; null when it could not be read.
    pub kernel: Option<String>,
    /// Labels given with --label.
    pub labels: BTreeMap<String, String>,
}

/// The observer is attached.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Start {
    /// When and where.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// What became of the hooks.
    pub hooks: Hooks,
    /// Time between two looks at the kernel, in ms.
    pub interval_ms: u64,
    /// Thresholds of the detectors.
    pub settings: Settings,
}

/// The observer is alive.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// When and where.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// What was seen so far.
    #[serde(flatten)]
    pub totals: Totals,
    /// Findings that are open now.
    pub open: Vec<OpenFinding>,
}

/// The observer ended.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Stop {
    /// When and where.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Why.
    pub reason: StopReason,
    /// The run in words.
    pub summary: String,
    /// How many findings opened.
    pub findings: u64,
    /// What was seen in all.
    #[serde(flatten)]
    pub totals: Totals,
    /// Always empty: findings that were open got a `close` with reason `detached`.
    pub open: Vec<OpenFinding>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunResult {
    /// When and where.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// The command with its arguments, as it was given; empty with --pid.
    pub command: Vec<String>,
    /// Its exit code; null when it was killed, or is not known.
    pub exit_code: Option<u8>,
    /// The signal that killed it; null when none did.
    pub signal: Option<u8>,
    /// By disk, cgroup and class: where the time went.
    pub groups: Vec<GroupRow>,
    /// Who kept whom waiting over the whole run, most delay first.
    pub blame: Vec<BlameRow>,
    /// fio's jobs beside what was seen; null when the command was not fio.
    pub fio: Option<FioView>,
}

/// Why the observer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// A signal asked for it.
    Signal,
    /// The time given with --duration is over.
    Duration,
    /// The user closed the screen.
    Quit,
    /// The command that was observed ended.
    CommandEnded,
    /// The recording ended.
    RecordingEnded,
    /// The recording ended in a damaged place or without its end mark.
    RecordingTorn,
    /// The kernel could not be read any more.
    ReadFailed,
}

/// What was seen since attach.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Totals {
    /// Requests seen.
    pub requests_seen: u64,
    /// Findings that were not told, because too many of their kind and victim came within a minute.
    pub folded: u64,
    /// What became of the hooks.
    pub hooks: Hooks,
    /// What was not seen.
    pub loss: Losses,
    /// Requests by disk and class.
    pub accounts: Vec<Account>,
    /// Pauses of writers for dirty memory, by backing device.
    pub pauses: Vec<Pauses>,
    /// Who used the disks on which device time is counted: those where BFQ or iocost is active, or a weight is set.
    pub shares: Vec<super::shares::Shares>,
}

/// What became of the hooks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Hooks {
    /// How many run.
    pub attached: u64,
    /// How many this kernel should have and this machine needs.
    pub wanted: u64,
    /// Each of them.
    pub list: Vec<Hook>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Hook {
    /// Name of the tracepoint.
    pub name: String,
    /// What became of it.
    pub verdict: HookVerdict,
    /// By which means it runs; null when it does not.
    pub via: Option<String>,
    /// Why it was refused; null when it was not.
    pub why: Option<String>,
    /// The question that cannot be answered without it.
    pub question: String,
}

/// What became of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HookVerdict {
    /// Runs.
    Attached,
    /// This kernel does not have it.
    Absent,
    /// The kernel or the user refused it.
    Refused,
    /// Nothing on this machine needs it.
    NotNeeded,
    /// It is in a module that is not loaded; attached when it is.
    Waits,
}

impl From<&observation::Hook> for Hook {
    fn from(hook: &observation::Hook) -> Hook {
        let (verdict, via, why) = match &hook.verdict {
            Verdict::Attached { via } => (HookVerdict::Attached, Some(via.clone()), None),
            Verdict::Absent => (HookVerdict::Absent, None, None),
            Verdict::Refused { why } => (HookVerdict::Refused, None, Some(why.clone())),
            Verdict::NotNeeded => (HookVerdict::NotNeeded, None, None),
            Verdict::Waits => (HookVerdict::Waits, None, None),
        };
        Hook {
            name: hook.name.clone(),
            verdict,
            via,
            why,
            question: hook.question.clone(),
        }
    }
}

/// What was not seen.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Losses {
    /// Sum of all kinds.
    pub events: u64,
    /// Only kinds above 0: slots-full, bios-full, groups-full, devices-full, lost-completion, expired,
    /// unmatched-completion, clock-backwards, admission-expired, skipped-runs, late-tick, spans-dropped,
    /// trace-lost.
    pub kinds: BTreeMap<String, u64>,
    /// Questions that cannot be answered, for want of a hook.
    pub missing: Vec<String>,
}

/// Requests of one class on one disk since attach. seen = finished + merged + expired + in_flight when
/// the disk is idle.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Account {
    /// Name of the disk.
    pub device: String,
    /// The class.
    pub class: Class,
    /// Lives begun.
    pub seen: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives given up because their end was missed.
    pub expired: u64,
    /// In flight at this moment.
    pub in_flight: u64,
    /// Insert events.
    pub inserts: u64,
    /// Issue events.
    pub issues: u64,
    /// Requeue events.
    pub requeues: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// Longest time between insert and issue, in ms; null when none was inserted.
    pub queued_max_ms: Option<f64>,
}

/// Pauses for dirty memory on one backing device since attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pauses {
    /// Name of the backing device: the number of its disk as `major:minor`, or `btrfs-1` and the like.
    pub bdi: String,
    /// Name of the disk; null when it is none, or not known.
    pub device: Option<String>,
    /// The kernel thread that writes for others (`loop0`, `nfsd`); null for tasks that write for themselves.
    pub worker: Option<String>,
    /// How many began.
    pub pauses: u64,
    /// Sum of their announced lengths in ms; of tasks that pause at once, each counts.
    pub paused_ms: u64,
}

/// An open finding in short.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OpenFinding {
    /// The id of its `open`.
    pub id: String,
    /// Which disease.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FindingAlert {
    /// The same in `open`, `update` and `close`, unique in a run.
    pub id: String,
    /// Which disease.
    pub kind: Kind,
    /// Worst so far.
    pub severity: Severity,
    /// When and where.
    #[serde(flatten)]
    pub stamp: Stamp,
    /// Wall clock at which the condition began.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// The disk; null when it is not about one.
    pub device: Option<Device>,
    /// The file system; null when it is not about one.
    pub filesystem: Option<String>,
    /// Where that is mounted; null when it is not about one.
    pub mountpoint: Option<String>,
    /// Who waits.
    pub victim: Victim,
    /// Who was served meanwhile, most first.
    pub culprits: Vec<Culprit>,
    /// What keeps the victim waiting.
    pub mechanism: Mechanism,
    /// Where it waits.
    pub stage: Place,
    /// How long the condition has lasted, in ms.
    pub duration_ms: u64,
    /// Longest single wait or gap so far, in ms.
    pub longest_ms: u64,
    /// The limit that was passed, in ms.
    pub threshold_ms: u64,
    /// How sure the detector is.
    pub confidence: Confidence,
    /// Figures; null where one is not known or has no meaning for this kind.
    pub evidence: Evidence,
    /// I/O pressure of the victim's cgroup; null when the kernel does not tell it.
    pub pressure: Option<Pressure>,
    /// The way from the victim to the culprit, link by link; empty where there is but one.
    pub chain: Vec<String>,
    /// What to do about it, best first.
    pub advice: Vec<String>,
    /// What was not seen while it was judged.
    pub loss: LossNote,
    /// Findings of this kind and victim that were not told since the last that was, because too many came within a minute.
    pub folded: u64,
    /// The recording that the flight recorder keeps of it; null when it keeps none, and in all but `open`.
    pub recording: Option<String>,
    /// Why it closed; null until it did.
    pub reason: Option<CloseReason>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Name; null when it is not known.
    pub name: Option<String>,
}

/// Which sort of owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerKind {
    /// One cgroup.
    Cgroup,
    /// Several cgroups together.
    Several,
    /// A thread that stands for its owner, which a trace of another program does not tell.
    Task,
    /// The kernel did not say who pays.
    Unknown,
}

/// Who waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Victim {
    /// Which sort of owner it is.
    pub owner: OwnerKind,
    /// The cgroup that pays; null when it is not one, or not known.
    pub cgroup: Option<Cgroup>,
    /// The thread that submitted the oldest request; null when it is not known.
    pub task: Option<Task>,
    /// What waits; null when it is everything.
    pub class: Option<Class>,
    /// The file; null when it is not about one.
    pub file: Option<String>,
}

/// Who was served.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Culprit {
    /// Which sort of owner it is.
    pub owner: OwnerKind,
    /// The cgroup that pays; null when it is not one, or not known.
    pub cgroup: Option<Cgroup>,
    /// The thread of it that was seen most often; null when none was.
    pub task: Option<Task>,
    /// Threads of it that were seen in flight at ticks: a sample.
    pub tasks: Vec<Task>,
    /// The class of most of its requests.
    pub class: Class,
    /// Its part of the issues of others, or of the time that the victim waited where that is told, 0 to 1.
    pub share: f64,
    /// Its issues meanwhile.
    pub issues: u64,
    /// For how long the victim waited for it, in ms; null where issues are what counts.
    pub delay_ms: Option<u64>,
    /// The limit of blk-throttle that held its I/O; null when none did.
    pub limit: Option<Limit>,
}

/// A limit of blk-throttle that bites.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Limit {
    /// The cgroup that has it: the culprit's, or an ancestor.
    pub cgroup: Option<Cgroup>,
    /// The disk.
    pub device: Device,
    /// What is set; each is null when it is not limited, or not known.
    #[serde(flatten)]
    pub limits: Limits,
    /// How much of that is used of late, by the cgroup and all below it: 1 is all. Null when not known.
    pub used: Option<f64>,
    /// For which part of the last minute it held something, 0 to 1.
    pub held_share: f64,
}

/// A cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cgroup {
    /// Its id: inode number of its directory.
    pub id: u64,
    /// Path below the mount of the hierarchy; null when it was gone before it could be read.
    pub path: Option<String>,
    /// systemd unit, null when it is none.
    pub unit: Option<String>,
    /// Container id, null when it is none.
    pub container: Option<String>,
    /// Kubernetes pod uid, null when it is none.
    pub pod: Option<String>,
}

/// PSI, share of the last 10 s in per cent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Pressure {
    /// Some task waited for I/O.
    pub some_avg10: f64,
    /// All tasks waited for I/O.
    pub full_avg10: f64,
}

/// The JSON schema (draft 2020-12) of one line.
pub fn schema() -> Schema {
    SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<Alert>()
}

/// [`schema`] as it is committed: indented, with a newline at the end.
pub fn schema_text() -> String {
    format!("{:#}\n", schema().to_value())
}

impl Alert {
    /// The object on one line, with a newline at the end.
    ///
    /// # Errors
    /// Never for alerts made here; the encoder's error is passed on rather than hidden.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|line| line + "\n")
    }
}
