//! Reading a recording: frame by frame, in bounded memory.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use jiff::Timestamp;
use zstd::stream::read::Decoder;

use super::{Checkpoint, FORMAT, Header, Line, RecordingError, observations_in_words};
use crate::model::observation::Observation;

/// The largest frame that is read, unpacked. A frame of one second is some 100 KiB on a busy machine and a few
/// MiB at 4,096 owners; a file with larger ones was not made here and must not eat the memory.
const MAX_FRAME: u64 = 64 << 20;

/// Log2 of the largest window that the decoder allocates, 8 MiB: the encoder's own is 2 MiB at level 3, and
/// zstd's command line writes up to 8 MiB when it is not asked for `--long`.
const MAX_WINDOW_LOG: u32 = 23;

/// How a recording ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With its end mark.
    Whole,
    /// In one piece, but without the end mark.
    NoEndMark,
    /// Damaged: nothing after this place was used.
    Torn {
        /// Length of the sound part of the file, in bytes.
        bytes: u64,
        /// What is wrong after it.
        why: String,
    },
}

/// An open recording.
#[derive(Debug)]
pub struct Recording<R> {
    reader: Counting<R>,
    /// Unpacked and confirmed lines, from `at` on not yet handed out.
    buffer: Vec<u8>,
    at: usize,
    header: Header,
    checkpoint: Checkpoint,
    sound_bytes: u64,
    observations: u64,
    last_wall_ns: Option<i64>,
    end_mark: bool,
    ending: Option<Ending>,
}

impl Recording<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, is empty, foreign, newer, or damaged from the beginning.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file = File::open(path)
            .and_then(|file| {
                // Reading a folder fails only later, and then looks like damage.
                if file.metadata()?.is_dir() {
                    return Err(io::Error::from(io::ErrorKind::IsADirectory));
                }
                Ok(file)
            })
            .map_err(|source| RecordingError::Open {
                path: path.to_owned(),
                source,
            })?;
        Recording::new(
            BufReader::with_capacity(128 << 10, file),
            &path.display().to_string(),
        )
    }
}

impl<R: BufRead> Recording<R> {
    /// Reads header and checkpoint; `name` is what messages call the file.
    ///
    /// # Errors
    /// When it is empty, foreign, newer, or damaged from the beginning.
    pub fn new(reader: R, name: &str) -> Result<Recording<R>, RecordingError> {
        let foreign = |why: &str| RecordingError::Foreign {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        let damaged = |why: String| RecordingError::Damaged {
            name: name.to_owned(),
            why,
        };
        let mut reader = Counting {
            inner: reader,
            bytes: 0,
        };
        let mut buffer = Vec::new();
        let start = reader.fill_buf().map_err(|e| damaged(e.to_string()))?;
        if start.is_empty() {
            return Err(RecordingError::Empty {
                name: name.to_owned(),
            });
        }
        // The whole magic number of zstd, or as much of it as there is.
        let magic = 0xFD2F_B528_u32.to_le_bytes();
        if !start.iter().zip(magic).all(|(a, b)| *a == b) {
            return Err(foreign("it does not begin with a zstd frame"));
        }
        read_frame(&mut reader, &mut buffer).map_err(damaged)?;
        let mut lines = buffer.split_inclusive(|b| *b == b'\n');
        let (first, second) = (
            lines.next().unwrap_or_default(),
            lines.next().unwrap_or_default(),
        );
        // Only the format number is asked for at first: a newer header may have another shape.
        let format = serde_json::from_slice::<serde_json::Value>(first)
            .ok()
            .and_then(|v| Some((v.get("io_starve_recording")?.as_u64()?, v)));
        let Some((format, header)) = format else {
            return Err(foreign("its first line is not the header of a recording"));
        };
        let version = header
            .get("version")
            .and_then(|v| v.as_str())
            .unwrap_or("unknown");
        if format > u64::from(FORMAT) {
            return Err(RecordingError::Newer {
                name: name.to_owned(),
                found: u32::try_from(format).unwrap_or(u32::MAX),
                version: version.to_owned(),
            });
        }
        let header: Header =
            serde_json::from_value(header).map_err(|e| damaged(format!("its header: {e}")))?;
        let checkpoint = match serde_json::from_slice::<Line<'_>>(second) {
            Ok(Line::Checkpoint(checkpoint)) => checkpoint.into_owned(),
            Ok(_) => return Err(damaged("its second line is not a checkpoint".to_owned())),
            Err(e) => return Err(damaged(format!("its checkpoint: {e}"))),
        };
        let at = first.len() + second.len();
        Ok(Recording {
            sound_bytes: reader.bytes,
            reader,
            buffer,
            at,
            header,
            checkpoint,
            observations: 0,
            last_wall_ns: None,
            end_mark: false,
            ending: None,
        })
    }

    /// Who wrote it.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What its observations build upon.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The next observation; `None` at the end, and then [`Recording::ending`] says which kind of end it is.
    pub fn next_observation(&mut self) -> Option<Observation> {
        while self.ending.is_none() {
            match self.next_line() {
                Ok(Some(Line::Observation(observation))) => {
                    self.observations += 1;
                    self.last_wall_ns = Some(observation.wall_ns);
                    return Some(observation.into_owned());
                }
                Ok(Some(Line::End { .. })) => self.end_mark = true,
                Ok(Some(Line::Checkpoint(_))) => self.tear("a second checkpoint".to_owned()),
                Ok(None) if self.end_mark => self.ending = Some(Ending::Whole),
                Ok(None) => self.ending = Some(Ending::NoEndMark),
                Err(why) => self.tear(why),
            }
        }
        None
    }

    /// How the recording ended; `None` while observations are left.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// What a user must know about the end, `None` when the recording is whole or not read to its end.
    pub fn warning(&self) -> Option<String> {
        let last = match self.last_wall_ns {
            Some(ns) => format!(
                "{} up to {} were replayed",
                observations_in_words(self.observations),
                Timestamp::from_nanosecond(i128::from(ns))
                    .map_or("a time out of range".to_owned(), |t| format!("{t:.3}"))
            ),
            None => "it holds no observation".to_owned(),
        };
        match self.ending.as_ref()? {
            Ending::Whole => None,
            Ending::NoEndMark => Some(format!(
                "the recording has no end mark: its recorder was killed or still runs; {last}"
            )),
            Ending::Torn { bytes, why } => Some(format!(
                "the recording is damaged after {bytes} bytes ({why}); {last}, the rest is not used"
            )),
        }
    }

    fn tear(&mut self, why: String) {
        self.ending = Some(Ending::Torn {
            bytes: self.sound_bytes,
            why,
        });
    }

    fn next_line(&mut self) -> Result<Option<Line<'static>>, String> {
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(length) = rest.iter().position(|b| *b == b'\n') {
                let line = &rest[..length];
                self.at += length + 1;
                return serde_json::from_slice::<Line<'_>>(line)
                    .map(|line| Some(line.into_static()))
                    .map_err(|e| format!("a line that is none of a recording: {e}"));
            }
            // A line may go on in the next frame when somebody packed the file anew.
            self.buffer.drain(..self.at);
            self.at = 0;
            self.sound_bytes = self.reader.bytes;
            let more = self.reader.fill_buf().map_err(|e| e.to_string())?;
            if more.is_empty() {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err("the last line has no end".to_owned()),
                };
            }
            read_frame(&mut self.reader, &mut self.buffer)?;
        }
    }
}

impl Line<'_> {
    fn into_static(self) -> Line<'static> {
        match self {
            Line::Checkpoint(c) => Line::Checkpoint(Cow::Owned(c.into_owned())),
            Line::Observation(o) => Line::Observation(Cow::Owned(o.into_owned())),
            Line::End { observations } => Line::End { observations },
        }
    }
}

/// Appends one frame to `buffer`, all of it or nothing.
fn read_frame<R: BufRead>(reader: &mut R, buffer: &mut Vec<u8>) -> Result<(), String> {
    let before = buffer.len();
    let unpacked = (|| {
        let mut decoder = Decoder::with_buffer(reader)?.single_frame();
        decoder.window_log_max(MAX_WINDOW_LOG)?;
        let room = (MAX_FRAME + 1).saturating_sub(before as u64);
        decoder.take(room).read_to_end(buffer)
    })();
    let why = match unpacked {
        Ok(_) if buffer.len() as u64 > MAX_FRAME => {
            format!("a frame of more than {} MiB", MAX_FRAME >> 20)
        }
        Ok(_) => return Ok(()),
        Err(e) => format!("zstd: {e}"),
    };
    buffer.truncate(before);
    Err(why)
}

/// Counts what was taken from the reader.
#[derive(Debug)]
struct Counting<R> {
    inner: R,
    bytes: u64,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.bytes += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.bytes += n as u64;
        self.inner.consume(n);
    }
}
