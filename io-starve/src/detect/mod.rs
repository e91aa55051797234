//! Detectors: the model in, findings out.

pub mod finding;
pub mod settings;

use finding::Finding;

/// What became of a finding at a tick.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Its condition is met for the first time.
    Open(Finding),
    /// Its severity, culprits or figures moved in a way worth telling.
    Update(Finding),
    /// It ended.
    Close(Finding),
}
