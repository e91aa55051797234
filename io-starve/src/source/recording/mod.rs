//! Recordings: observations in a file.
//!
//! A recording is a row of zstd frames, each with a checksum, that together hold lines of JSON (`zstdcat FILE | jq`):
//! a header, a checkpoint of everything that the observations build upon, observations, an end mark. A frame
//! holds about one second, so a crash of the recorder loses at most that, and a reader hands out nothing
//! that its checksum has not confirmed. In: observations or a file. Out: a file or observations, and in words
//! how the file ends. Nothing is skipped: after the first damage the rest is refused, because observations are
//! differences and one that is missing would make all later figures wrong.

mod flight;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use std::{collections::BTreeMap, io, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use flight::{Flight, Room};
pub use read::{Ending, Recording};
pub use write::Recorder;

use crate::{detect::settings::Settings, files::hint, model::observation::Observation};

/// Version of the format that this build writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The version of this program, written into headers and alerts.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format, [`FORMAT`].
    pub io_starve_recording: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// The commit or package that it was built from, where its builder set `IO_STARVE_BUILD`.
    pub build: Option<String>,
}

impl Header {
    /// The header that this build writes.
    pub fn of_this_build() -> Header {
        Header {
            io_starve_recording: FORMAT,
            version: VERSION.to_owned(),
            build: option_env!("IO_STARVE_BUILD").map(str::to_owned),
        }
    }
}

/// What the observations build upon, so that a recording that began in the middle of a run replays too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Thresholds of the run.
    pub settings: Settings,
    /// Labels of the run, put on every alert.
    pub labels: BTreeMap<String, String>,
    /// Time between two observations, in ms.
    pub interval_ms: u64,
    /// How many observations the run had read before.
    pub observations: u64,
    /// Model and detectors as they were then; only a build that knows this shape can continue from it.
    pub pipeline: serde_json::Value,
    /// What had been told of them; as above.
    pub reporter: serde_json::Value,
}

/// One line after the header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "lines are written and read one at a time"
)]
enum Line<'a> {
    /// Comes first, once.
    Checkpoint(std::borrow::Cow<'a, Checkpoint>),
    /// One tick.
    Observation(std::borrow::Cow<'a, Observation>),
    /// Comes last, when the recorder ended in an orderly way.
    End {
        /// How many observations the recording holds.
        observations: u64,
    },
}

/// Why a file cannot be recorded to or replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened or read.
    #[error("cannot read the recording {path}: {source}; check the path and its permissions")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The file cannot be made.
    #[error("cannot record to {path}: {source}; {}", hint(.source))]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Writing failed later on.
    #[error(
        "recording to {path} ended: {source}; {} were kept and replay up to there; {}",
        observations_in_words(*.kept),
        hint(.source)
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Observations that are in the file.
        kept: u64,
        /// The system's words.
        source: io::Error,
    },
    /// The disk took nothing for so long that the queue is full.
    #[error(
        "recording to {path} ended: its disk, or its reader if it is a pipe, has taken nothing for about {seconds} s; \
         record to a disk that is not the one under observation, or to a tmpfs"
    )]
    Stuck {
        /// The file.
        path: PathBuf,
        /// About how long.
        seconds: u64,
    },
    /// An observation cannot be written down.
    #[error(
        "recording to {path} ended: an observation cannot be written as JSON ({source}); please report this"
    )]
    Encode {
        /// The file.
        path: PathBuf,
        /// The encoder's words.
        source: serde_json::Error,
    },
    /// There is nothing in the file.
    #[error(
        "{name} is empty: the recorder was stopped before it was attached, or the file was made by something else"
    )]
    Empty {
        /// The file.
        name: String,
    },
    /// The file is something else.
    #[error(
        "{name} is not a recording of io-starve ({why}); recordings are made with `io-starve record -o FILE`"
    )]
    Foreign {
        /// The file.
        name: String,
        /// What was found instead.
        why: String,
    },
    /// The file is damaged so early that nothing can be replayed.
    #[error(
        "{name} is damaged in its first frame ({why}), so nothing of it can be replayed; copy it again from where it was made"
    )]
    Damaged {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The file was written by a newer program.
    #[error(
        "{name} has recording format {found}, written by io-starve {version}; this io-starve {} reads formats up to {}: \
         replay it with version {version} or later",
        VERSION,
        FORMAT
    )]
    Newer {
        /// The file.
        name: String,
        /// Its format.
        found: u32,
        /// The version that wrote it.
        version: String,
    },
}

/// "1 observation", "12 observations".
fn observations_in_words(n: u64) -> String {
    match n {
        1 => "1 observation".to_owned(),
        n => format!("{n} observations"),
    }
}
