//! The running kernel.

use crate::model::observation::{Hook, Observation};

/// What to attach to.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// Disks by name; empty for all.
    pub devices: Vec<String>,
    /// Cgroups by path or glob; empty for all.
    pub cgroups: Vec<String>,
    /// Hooks to leave out, as if the kernel had refused them.
    pub without_hooks: Vec<String>,
    /// How many requests can be followed at a time.
    pub slots: Option<u32>,
}

/// Why the programs could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nothing can be attached by this build.
    #[error(
        "this build cannot attach to a kernel: it replays recordings only; build the whole workspace"
    )]
    Unsupported,
}

impl AttachError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        5
    }
}

/// Why the maps could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing is attached.
    #[error("nothing is attached")]
    Detached,
}

/// Attached programs.
#[derive(Debug)]
pub struct Attached {
    hooks: Vec<Hook>,
}

impl Attached {
    /// Attaches.
    ///
    /// # Errors
    /// Always, in this build.
    pub fn attach(_: &AttachOptions) -> Result<Attached, AttachError> {
        Err(AttachError::Unsupported)
    }

    /// Reads the maps.
    ///
    /// # Errors
    /// Always, in this build.
    pub fn observe(&mut self) -> Result<Observation, ReadError> {
        Err(ReadError::Detached)
    }

    /// The hooks and what became of them.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }
}

pub mod doctor {
    //! Looks at what the kernel offers.

    use super::{AttachError, AttachOptions};
    use crate::output::doctor::DoctorReport;

    /// Looks.
    ///
    /// # Errors
    /// Always, in this build.
    pub fn report(_: &AttachOptions) -> Result<DoctorReport, AttachError> {
        Err(AttachError::Unsupported)
    }
}
