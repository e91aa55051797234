//! What the screen asks of whoever feeds it, and what comes back beside the snapshots.

use std::sync::Arc;

use crate::model::snapshot::Snapshot;

pub use crate::source::replay::{Pace, Play};

/// Something that the screen cannot do by itself.
#[derive(Debug, Clone)]
pub enum Request {
    /// Write what is shown to files, as text and JSON.
    Write(Arc<Snapshot>),
    /// Begin a recording, or end it.
    Record,
    /// Of a replay: another pace.
    Pace(Pace),
}

/// What is fed to the screen.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// The latest snapshot.
    pub snapshot: Arc<Snapshot>,
    /// What is going on beside it.
    pub status: Status,
}

/// What is going on beside the snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// The file that is being recorded to.
    pub recording: Option<String>,
    /// Nothing more will come.
    pub ended: bool,
    /// Of a replay: how it runs.
    pub play: Option<Play>,
    /// The answer to the last request.
    pub note: Option<Note>,
}

/// A word to the user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// Tells it from others with the same words.
    pub id: u64,
    /// For people.
    pub text: String,
}

impl Status {
    /// Says something new.
    pub fn say(&mut self, text: String) {
        let id = self.note.as_ref().map_or(0, |n| n.id + 1);
        self.note = Some(Note { id, text });
    }
}
