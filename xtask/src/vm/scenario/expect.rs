//! What must come out of a scenario.

use serde::Deserialize;

/// What must come out.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Findings that must open.
    #[serde(default, rename = "finding")]
    pub findings: Vec<ExpectedFinding>,
    /// Kinds that must not open.
    #[serde(default)]
    pub never: Vec<String>,
    /// Kinds that open exactly when the rule, applied to the kernel's trace, says so.
    #[serde(default)]
    pub as_rule: Vec<String>,
    /// Kinds whose class has I/O of several cgroups here. The trace names no cgroup, so it cannot refute a finding about one of them.
    #[serde(default)]
    pub by_owner: Vec<String>,
    /// Kinds that may open, but only with severity info.
    #[serde(default)]
    pub at_most_info: Vec<String>,
    /// Everything that opened closes by itself, as resolved, after the load.
    #[serde(default)]
    pub must_close: bool,
    /// It does so before the load ends.
    #[serde(default)]
    pub closes_in_load: bool,
    /// How many ticks after the rule's time the alert may come; the design's budget when absent.
    pub max_late_ticks: Option<u32>,
    /// Requests that the driver gave back, by the trace: at least so many, or the scenario shows nothing of them.
    #[serde(default)]
    pub requeues: u64,
    /// Completions of a part of a request, by the trace: as above.
    #[serde(default)]
    pub parts: u64,
    /// fio results whose I/O counts must be found in the trace.
    #[serde(default)]
    pub fio: Vec<ExpectedFio>,
    /// Cgroups that share the disk: whoever is treated unfairly by the rule, applied to fio's own counts, is found, and nobody else.
    #[serde(default, rename = "weight")]
    pub weights: Vec<ExpectedWeight>,
    /// What must be seen to honour weights on the disk: `bfq`, `iocost`, `nobody`.
    pub enforcer: Option<String>,
    /// Commands that run one after the other in the place of a load. io-starve is not attached beside them: they call it.
    #[serde(default, rename = "command")]
    pub commands: Vec<ExpectedCommand>,
}

/// A command and how it must end. Whatever its end, no BPF program may be left of it; one that fails has one line for it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCommand {
    /// A line for the shell, with the variables and functions of scripts.
    pub run: String,
    /// Its exit code.
    pub code: u8,
    /// What its standard error must contain.
    #[serde(default)]
    pub stderr: Vec<String>,
    /// What its standard output must contain.
    #[serde(default)]
    pub stdout: Vec<String>,
}

/// A finding that must open. What is absent is not looked at.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFinding {
    /// Kind.
    pub kind: String,
    /// `withheld`, `crawling`, `stuck`.
    pub rule: Option<String>,
    /// Mechanism.
    pub mechanism: Option<String>,
    /// Class of the victim.
    pub victim_class: Option<String>,
    /// Cgroup of the victim, below the scenario's (`/` when it is the root).
    pub victim_cgroup: Option<String>,
    /// Cgroup of the first culprit, below the scenario's.
    pub top_culprit_cgroup: Option<String>,
    /// Cgroups of the first culprits in their order, below the scenario's.
    #[serde(default)]
    pub culprit_cgroups: Vec<String>,
    /// Severity, confidence, where it waits, type of the filesystem.
    pub severity: Option<String>,
    /// See `severity`.
    pub confidence: Option<String>,
    /// See `severity`.
    pub stage: Option<String>,
    /// See `severity`.
    pub filesystem: Option<String>,
    /// The cgroup whose limit holds the first culprit, below the scenario's.
    pub limit_cgroup: Option<String>,
    /// That limit, in bytes written a second.
    pub limit_wbps: Option<u64>,
    /// The same in writes a second.
    pub limit_wiops: Option<u64>,
    /// How many layers the stack of a loop device has.
    pub layers: Option<u64>,
    /// The fio job that waits behind a loop device's worker: what is told of its longest wait agrees with fio's own clock.
    pub behind_job: Option<String>,
    /// A cgroup that writes to the disk below beside the loop device, below the scenario's.
    pub beside_cgroup: Option<String>,
    /// The fio job whose fsyncs it is about: its longest agrees with fio's own clock (behind a queue, is no longer), and the finding
    /// opened while the fsync waited.
    pub fsync_job: Option<String>,
    /// The part of its own data is as long as one of its requests took by the kernel's trace, from submission to completion.
    #[serde(default)]
    pub own_data: bool,
    /// The fio job (ioengine filecreate) whose other calls it is about, likewise. Such a wait is seen from tick to tick.
    pub call_job: Option<String>,
    /// It began before io-starve was attached, and that is said.
    pub before_attach: Option<bool>,
    /// Its duration, its longest wait and the time of its close agree with the kernel's trace.
    #[serde(default)]
    pub measured: bool,
}

/// A fio job in a cgroup of its name that wants as much of the disk as it can get.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedWeight {
    /// Name of the job and of the cgroup, below the scenario's.
    pub job: String,
    /// Its weight.
    pub weight: u32,
    /// It holds itself to a rate, so that it may get less.
    #[serde(default)]
    pub asks_for_less: bool,
}

/// A fio job whose direct I/Os are all of a class on the device.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFio {
    /// Its name, as given to `job`.
    pub job: String,
    /// The class of its I/Os; nothing else on the device may be of it without a metadata or read-ahead mark.
    pub class: String,
}
