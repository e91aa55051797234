//! Files that are written as a whole, at the end: reports. The place is opened before the run, so that a path that cannot be written is
//! said before anything is waited for.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::files::{Place, Purpose, hint};

/// Why a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file cannot be opened.
    #[error("cannot write to {path}: {source}; {}", hint(.source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file does not take it.
    #[error("{path} could not be written and is not whole: {source}; {}", hint(.source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// Opens the file that a report will replace, without changing one that is there.
///
/// # Errors
/// When it cannot be opened.
pub fn place(path: &Path) -> Result<Place, DocumentError> {
    Place::open(path, Purpose::Replace).map_err(|source| DocumentError::Open {
        path: path.to_owned(),
        source,
    })
}

/// Writes it.
///
/// # Errors
/// When it cannot be written.
pub fn write(place: Place, text: &str) -> Result<(), DocumentError> {
    let path = place.path().to_owned();
    let written = place.begin().and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.flush()
    });
    written.map_err(|source| DocumentError::Write { path, source })
}
