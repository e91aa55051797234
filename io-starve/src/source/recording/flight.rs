//! The flight recorder: the last minutes are always on disk, and what surrounds a finding is kept.
//!
//! A folder holds a ring of segments, each a recording of its own that begins with a checkpoint. When a finding opens, the
//! segment before and the present one become the beginning of a file of its own, which goes on for half a minute. All files are recordings
//! that replay, also those that a crash cut off. In: observations, checkpoints when asked for them. Out: files. Only files with the
//! recorder's own names are ever deleted, oldest first, by size and count. A disk that fails costs a segment, not the run.

use std::{
    borrow::Cow,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Checkpoint, Header, Line, RecordingError,
    write::{FRAME_NS, append_json, packed},
};
use crate::{files::hint, model::observation::Observation};

/// A segment ends after this time at the latest, in ns: what a finding's recording shows of before is one to two of them.
const SEGMENT_NS: u64 = 30_000_000_000;
/// What is recorded after a finding opened, in ns.
const AFTER_NS: u64 = 30_000_000_000;
/// Frames that may wait for the disk.
const QUEUE: usize = 120;
/// How long the end of the run waits for the disk to take the rest.
const LAST_WRITE: Duration = Duration::from_secs(5);
/// Part of the room that a segment may take: the ring has half of it, and must hold several.
const SEGMENTS: u64 = 16;

const RING: &str = "ring-";
const KEPT: &str = "finding-";
const ENDING: &str = ".rec";

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Recordings of findings.
    pub kept: u32,
}

/// Records into a folder.
#[derive(Debug)]
pub struct Flight {
    dir: PathBuf,
    queue: SyncSender<Message>,
    done: Receiver<()>,
    frame: Vec<u8>,
    frame_begin_ns: Option<u64>,
    segment_begin_ns: Option<u64>,
    /// The file of the finding that is recorded, and when that is over.
    keeping: Option<(PathBuf, u64)>,
    /// Frames were lost, or thresholds changed: what follows needs a checkpoint and does not go on from what was before.
    broken: bool,
    /// The segment has grown to its size: the next observation begins another.
    full: Arc<AtomicBool>,
    /// The disk takes nothing.
    troubled: Arc<AtomicBool>,
    observations: u64,
}

#[derive(Debug)]
enum Message {
    /// A new segment with its first lines; `follows` when nothing is missing between it and the one before.
    Segment {
        name: String,
        lines: Vec<u8>,
        follows: bool,
    },
    Frame(Vec<u8>),
    /// What is there, and what follows, goes into this file too.
    Keep(PathBuf),
    /// The file is complete.
    Kept {
        end: Vec<u8>,
    },
    /// The run is over.
    End(Vec<u8>),
}

impl Flight {
    /// Makes the folder where there is none, and tries to write to it.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn open(dir: &Path, room: Room) -> Result<Flight, RecordingError> {
        Flight::with_queue(dir, room, QUEUE)
    }

    fn with_queue(dir: &Path, room: Room, frames: usize) -> Result<Flight, RecordingError> {
        let failed = |source| RecordingError::Create {
            path: dir.to_owned(),
            source,
        };
        fs::create_dir_all(dir).map_err(failed)?;
        let probe = dir.join(format!("{RING}probe"));
        File::create(&probe)
            .and_then(|_| fs::remove_file(&probe))
            .map_err(failed)?;
        let (queue, messages) = sync_channel(frames);
        let (report, done) = sync_channel(1);
        let (full, troubled) = (Arc::default(), Arc::default());
        let mut writer = Writer {
            dir: dir.to_owned(),
            room,
            before: None,
            present: None,
            kept: None,
            full: Arc::clone(&full),
            troubled: Arc::clone(&troubled),
        };
        std::thread::Builder::new()
            .name("flight".to_owned())
            .spawn(move || {
                messages.into_iter().for_each(|m| writer.take(m));
                let _ = report.send(());
            })
            .map_err(failed)?;
        Ok(Flight {
            dir: dir.to_owned(),
            queue,
            done,
            frame: Vec::new(),
            frame_begin_ns: None,
            segment_begin_ns: None,
            keeping: None,
            broken: true,
            full,
            troubled,
            observations: 0,
        })
    }

    /// True when the next observation begins a segment, which needs a checkpoint of the state before it.
    pub fn wants_checkpoint(&self, o: &Observation) -> bool {
        let over = |begin: u64| o.mono_ns.saturating_sub(begin) >= SEGMENT_NS;
        self.broken || self.full.load(Ordering::Relaxed) || self.segment_begin_ns.is_none_or(over)
    }

    /// Begins a segment before this observation.
    ///
    /// # Errors
    /// When the checkpoint cannot be written as JSON.
    pub fn segment(
        &mut self,
        checkpoint: &Checkpoint,
        o: &Observation,
    ) -> Result<(), serde_json::Error> {
        self.close_frame();
        let mut lines = Vec::new();
        append_json(&mut lines, &Header::of_this_build())?;
        append_json(&mut lines, &Line::Checkpoint(Cow::Borrowed(checkpoint)))?;
        let name = format!("{RING}{}{ENDING}", stamp(o.wall_ns));
        let follows = !std::mem::take(&mut self.broken);
        if !follows {
            self.keeping = None;
        }
        self.full.store(false, Ordering::Relaxed);
        self.segment_begin_ns = Some(o.mono_ns);
        self.send(Message::Segment {
            name,
            lines,
            follows,
        });
        Ok(())
    }

    /// Adds an observation.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn write(&mut self, o: &Observation) -> Result<(), serde_json::Error> {
        let begin = *self.frame_begin_ns.get_or_insert(o.mono_ns);
        if o.mono_ns.saturating_sub(begin) >= FRAME_NS {
            self.close_frame();
            self.frame_begin_ns = Some(o.mono_ns);
        }
        append_json(&mut self.frame, &Line::Observation(Cow::Borrowed(o)))?;
        self.observations += 1;
        if let Some((_, until)) = &self.keeping
            && o.mono_ns >= *until
        {
            self.end_keeping();
        }
        Ok(())
    }

    /// What follows does not go on from what was: thresholds changed.
    pub fn restart(&mut self) {
        self.end_keeping();
        self.close_frame();
        self.broken = true;
    }

    /// A finding opened at this observation: keeps what surrounds it. Returns the file, which is the one that is being written
    /// when another finding opened shortly before; `None` while the disk takes nothing.
    pub fn keep(&mut self, kind: &str, o: &Observation) -> Option<PathBuf> {
        if self.broken || self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        if let Some((path, _)) = &self.keeping {
            return Some(path.clone());
        }
        self.close_frame();
        let name = format!("{KEPT}{}-{kind}{ENDING}", stamp(o.wall_ns));
        let path = self.dir.join(name);
        self.keeping = Some((path.clone(), o.mono_ns.saturating_add(AFTER_NS)));
        self.send(Message::Keep(path.clone()));
        Some(path)
    }

    /// Ends all files and waits, not for ever, until they are written.
    pub fn finish(mut self) {
        self.end_keeping();
        self.close_frame();
        self.send(Message::End(self.end_mark()));
        let Flight {
            queue, done, dir, ..
        } = self;
        drop(queue);
        if done.recv_timeout(LAST_WRITE).is_err() {
            complain!(
                "io-starve: {} takes nothing, the end of the flight recording is lost",
                dir.display()
            );
        }
    }

    fn end_keeping(&mut self) {
        if self.keeping.take().is_some() {
            self.close_frame();
            let end = self.end_mark();
            self.send(Message::Kept { end });
        }
    }

    fn end_mark(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        let observations = self.observations;
        // Numbers always can be written as JSON.
        let _ = append_json(&mut lines, &Line::End { observations });
        lines
    }

    fn close_frame(&mut self) {
        self.frame_begin_ns = None;
        if !self.frame.is_empty() {
            let lines = std::mem::take(&mut self.frame);
            self.send(Message::Frame(lines));
        }
    }

    /// Observations are differences: after a gap nothing of this segment is right any more, and nothing is added to it.
    fn send(&mut self, message: Message) {
        if self.broken {
            return;
        }
        if self.queue.try_send(message).is_err() {
            self.broken = true;
            complain!(
                "io-starve: {} takes nothing, the flight recording has a gap",
                self.dir.display()
            );
        }
    }
}

/// A time as it sorts in names: 20261201T013000.123Z.
fn stamp(wall_ns: i64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(wall_ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

/// A file with the end of its first frame, which holds header and checkpoint.
#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: File,
    head: u64,
    length: u64,
}

/// The thread's side.
struct Writer {
    dir: PathBuf,
    room: Room,
    /// The segment before the present one, when the present one goes on where it ended.
    before: Option<(PathBuf, u64)>,
    present: Option<Segment>,
    kept: Option<File>,
    full: Arc<AtomicBool>,
    troubled: Arc<AtomicBool>,
}

impl Writer {
    fn take(&mut self, message: Message) {
        let result = match message {
            Message::Segment {
                name,
                lines,
                follows,
            } => self.begin(&name, &lines, follows),
            Message::Frame(lines) => self.frame(&lines),
            Message::Keep(path) => self.keep(&path),
            Message::Kept { end } => self.end_kept(&end),
            Message::End(end) => self.end(&end),
        };
        match result {
            // Only a new segment shows that the disk is well again.
            Ok(()) => {}
            Err(e) => {
                // The present segment ends where its last whole frame ends.
                if let Some(segment) = self.present.take() {
                    let _ = segment.file.set_len(segment.length);
                }
                (self.before, self.kept) = (None, None);
                if !self.troubled.swap(true, Ordering::Relaxed) {
                    complain!(
                        "io-starve: cannot record to {}: {e}; trying again with the next segment; {}",
                        self.dir.display(),
                        hint(&e)
                    );
                }
            }
        }
    }

    fn begin(&mut self, name: &str, lines: &[u8], follows: bool) -> io::Result<()> {
        let before = self.present.take().map(|s| (s.path, s.length));
        self.before = before.filter(|_| follows);
        if !follows {
            self.kept = None;
        }
        self.make_room()?;
        let path = self.dir.join(name);
        let mut file = File::create(&path)?;
        let head = packed(lines)?;
        file.write_all(&head)?;
        let length = head.len() as u64;
        self.present = Some(Segment {
            path,
            file,
            head: length,
            length,
        });
        self.troubled.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn frame(&mut self, lines: &[u8]) -> io::Result<()> {
        let bytes = packed(lines)?;
        let Some(segment) = &mut self.present else {
            return Ok(());
        };
        segment.file.write_all(&bytes)?;
        segment.length += bytes.len() as u64;
        if segment.length > self.room.bytes / SEGMENTS {
            self.full.store(true, Ordering::Relaxed);
        }
        match &mut self.kept {
            Some(kept) => kept.write_all(&bytes),
            None => Ok(()),
        }
    }

    fn keep(&mut self, path: &Path) -> io::Result<()> {
        let Some(present) = &self.present else {
            return Ok(());
        };
        let mut kept = File::create(path)?;
        let mut copy = |path: &Path, from: u64, to: u64| -> io::Result<()> {
            use io::{Read, Seek};
            let mut file = File::open(path)?;
            file.seek(io::SeekFrom::Start(from))?;
            io::copy(&mut file.take(to - from), &mut kept).map(drop)
        };
        match &self.before {
            Some((before, length)) if before.exists() => {
                copy(before, 0, *length)?;
                copy(&present.path, present.head, present.length)?;
            }
            _ => copy(&present.path, 0, present.length)?,
        }
        self.kept = Some(kept);
        self.make_room()
    }

    fn end_kept(&mut self, end: &[u8]) -> io::Result<()> {
        match self.kept.take() {
            Some(mut kept) => kept.write_all(&packed(end)?),
            None => Ok(()),
        }
    }

    fn end(&mut self, end: &[u8]) -> io::Result<()> {
        match self.present.take() {
            Some(mut segment) => segment.file.write_all(&packed(end)?),
            None => Ok(()),
        }
    }

    /// Deletes the oldest of each sort. The ring has half of the room and the kept files the other, each less what the file is yet
    /// to grow: one segment, and three.
    fn make_room(&self) -> io::Result<()> {
        let segments = |n: u64| self.room.bytes / SEGMENTS * n;
        prune(&self.dir, RING, segments(SEGMENTS / 2 - 1), usize::MAX)?;
        prune(
            &self.dir,
            KEPT,
            segments(SEGMENTS / 2 - 3),
            self.room.kept as usize,
        )
    }
}

fn prune(dir: &Path, prefix: &str, bytes: u64, count: usize) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(prefix) && name.ends_with(ENDING) && entry.file_type()?.is_file() {
            files.push((entry.path(), entry.metadata()?.len()));
        }
    }
    // Names begin with their time.
    files.sort();
    let (mut total, mut left) = (files.iter().map(|(_, n)| n).sum::<u64>(), files.len());
    for (path, length) in files {
        // The youngest stays, however long it is: it may be written to.
        if left <= 1 || (total <= bytes && left <= count) {
            break;
        }
        fs::remove_file(&path)?;
        total -= length;
        left -= 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
