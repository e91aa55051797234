//! What an observation tells of the host: its name, its cgroups, and what became of the hooks.

use serde::{Deserialize, Serialize};

/// The host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFact {
    /// Host name.
    pub name: String,
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// What the cgroup hierarchy lets us say.
    pub cgroups: CgroupMode,
}

/// Which hierarchy names the owners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupMode {
    /// cgroup v2 with the io controller: buffered writes are charged to who dirtied the file.
    V2,
    /// v1 blkio: buffered writes are charged to the root.
    V1,
    /// Neither was found; owners have no names.
    #[default]
    None,
}

/// One hook and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Tracepoint name, e.g. `block_rq_insert`.
    pub name: String,
    /// What became of it.
    pub verdict: Verdict,
    /// The question that cannot be answered without it.
    pub question: String,
    /// What that question is about.
    #[serde(default)]
    pub topic: Topic,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// Requests of disks.
    #[default]
    Requests,
    /// fsyncs and journals.
    Journal,
    /// Dirty memory.
    Dirty,
}

/// What became of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Runs.
    Attached {
        /// By which means: `tp_btf`, `raw_tp`, `tracepoint`.
        via: String,
    },
    /// This kernel does not have it.
    Absent,
    /// The kernel or the user refused it.
    Refused {
        /// The kernel's words.
        why: String,
    },
    /// Nothing on this machine needs it now.
    NotNeeded,
    /// It is in a module that is not loaded; attached when it is.
    Waits,
}
