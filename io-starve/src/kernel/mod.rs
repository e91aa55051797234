//! The only place that talks to the kernel: BPF, /proc, /sys and the cgroup hierarchy in, observations out.

pub mod btf;
pub mod cgroups;
pub mod config;
pub mod devices;
pub mod doctor;
pub mod hooks;
pub mod limits;
mod load;
pub mod loops;
pub mod mounts;
pub mod paths;
pub mod processes;
mod read;
mod select;
mod stacks;
mod table;
mod tasks;
mod tracefs;
mod weights;

use std::path::Path;

use aya::{EbpfError, maps::MapError, programs::ProgramError};

pub use read::{Attached, ReadError};

/// What to follow, and how.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Names, paths, numbers or globs of disks; empty: all.
    pub devices: Vec<String>,
    /// Hooks to treat as if the kernel refused them.
    pub without_hooks: Vec<String>,
    /// Rows of the slot table instead of the computed number; rounded up to a power of two.
    pub slots: Option<u32>,
    /// Attach raw tracepoints even where typed ones are to be had.
    pub raw_tracepoints: bool,
}

/// Why nothing is attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Not allowed.
    #[error(
        "not permitted to load BPF programs: io-starve needs root, or CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH; try `sudo io-starve`, or `io-starve demo` to look at a recording"
    )]
    NotPermitted,
    /// Allowed to make maps, but not of this size.
    #[error(
        "the limit of locked memory is too small for the tables, and this kernel, older than 5.11, counts them; set it first (`ulimit -l unlimited`, LimitMEMLOCK=infinity), or give CAP_SYS_RESOURCE too"
    )]
    LockedMemory,
    /// Lockdown forbids reading kernel memory.
    #[error(
        "kernel lockdown ({0}) forbids BPF to read kernel memory; boot with lockdown=integrity or none, or switch secure boot off"
    )]
    Lockdown(String),
    /// No or broken type information.
    #[error(transparent)]
    Btf(#[from] btf::BtfError),
    /// A kernel that this version does not know.
    #[error(transparent)]
    UnknownKernel(#[from] config::UnknownKernel),
    /// No hook could be attached.
    #[error(
        "no hook could be attached, so nothing can be seen: {0}; `io-starve doctor` lists each"
    )]
    NoHook(String),
    /// No such disk.
    #[error("no disk matches {pattern}; there are: {known}")]
    NoDevice {
        /// What was asked for.
        pattern: String,
        /// Names of those that exist.
        known: String,
    },
    /// No such hook.
    #[error("there is no hook {0}; `io-starve doctor` lists all")]
    NoSuchHook(String),
    /// The kernel refused the maps or programs.
    #[error(
        "the kernel refused the BPF object: {0}; `io-starve doctor` says what this kernel offers"
    )]
    Load(String),
    /// Tables cannot be mapped.
    #[error(transparent)]
    Table(#[from] table::TableError),
}

impl AttachError {
    /// Exit code by the table in the documentation: 4 no permission, 5 kernel cannot, 2 usage, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            AttachError::NotPermitted
            | AttachError::LockedMemory
            | AttachError::Btf(btf::BtfError::NotPermitted(_)) => 4,
            AttachError::Lockdown(_)
            | AttachError::Btf(_)
            | AttachError::UnknownKernel(_)
            | AttachError::NoHook(_) => 5,
            AttachError::NoDevice { .. } | AttachError::NoSuchHook(_) => 2,
            AttachError::Load(_) | AttachError::Table(_) => 1,
        }
    }

    fn from_load(e: EbpfError) -> AttachError {
        let io = match &e {
            EbpfError::MapError(MapError::CreateError { io_error, .. }) => Some(io_error),
            EbpfError::MapError(MapError::SyscallError(e)) => Some(&e.io_error),
            EbpfError::ProgramError(ProgramError::LoadError { io_error, .. }) => Some(io_error),
            _ => None,
        };
        match io.map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => AttachError::NotPermitted,
            _ => AttachError::Load(match io {
                Some(io) => format!("{e}: {io}"),
                None => e.to_string(),
            }),
        }
    }
}

/// The lockdown mode in force, `None` when there is none or it cannot be read.
fn lockdown(security: &Path) -> Option<String> {
    let text = std::fs::read_to_string(security.join("lockdown")).ok()?;
    let mode = text.split_whitespace().find(|w| w.starts_with('['))?;
    let mode = mode.trim_matches(['[', ']']);
    (mode != "none").then(|| mode.to_owned())
}

/// The lockdown mode in force, when it is one under which BPF may not read kernel memory.
fn lockdown_that_forbids(security: &Path) -> Option<String> {
    lockdown(security).filter(|mode| mode == "confidentiality")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_brackets_is_in_force() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(lockdown(dir.path()), None);
        for (text, mode) in [
            ("[none] integrity confidentiality\n", None),
            ("none [integrity] confidentiality\n", Some("integrity")),
            (
                "none integrity [confidentiality]\n",
                Some("confidentiality"),
            ),
        ] {
            std::fs::write(dir.path().join("lockdown"), text).unwrap();
            assert_eq!(lockdown(dir.path()).as_deref(), mode);
            assert_eq!(
                lockdown_that_forbids(dir.path()).as_deref(),
                mode.filter(|m| *m == "confidentiality")
            );
        }
    }
}
