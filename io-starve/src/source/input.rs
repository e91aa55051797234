//! Opens what is to be replayed: finds out by looking what it is, and unpacks it.
//!
//! In: a file or standard input, perhaps packed (gzip, xz, zstd). Out: a recording or a trace. No name is asked for its ending.
//! Only as much is read before as is needed to tell, and nothing is read twice, so that pipes work.

use std::{
    cell::Cell,
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::{Path, PathBuf},
    rc::Rc,
};

use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use liblzma::{bufread::XzDecoder, stream};

use super::{
    blktrace::{
        binary::{self, Blktrace},
        files,
        text::{self, Blkparse},
    },
    ftrace::{self, Ftrace},
    recording::{Recording, RecordingError},
    trace::{Import, Reader},
};

/// How much text is looked at, unpacked: foreign lines may come first.
const LOOK: usize = 256 << 10;
/// How much of a packed file is read to unpack its beginning: more than one block of any of the formats.
const LOOK_PACKED: usize = 4 << 20;
/// Memory that an xz stream may ask for; `xz -9` asks for 65 MiB.
const XZ_MEMORY: u64 = 128 << 20;
/// Log2 of the largest window of a zstd stream: `zstd --long` has 27.
const ZSTD_WINDOW_LOG: u32 = 27;
/// How a recording begins, unpacked.
const HEADER: &[u8] = b"{\"io_starve_recording\"";

/// Anything that can be read line by line.
pub type Input = Box<dyn BufRead>;

/// How far the reading of an input has come, in packed bytes. Copies tell of the same input.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    read: Rc<Cell<u64>>,
    total: Rc<Cell<Option<u64>>>,
}

impl Progress {
    /// Bytes that were read.
    pub fn read(&self) -> u64 {
        self.read.get()
    }

    /// Bytes that there are; `None` for a pipe.
    pub fn total(&self) -> Option<u64> {
        self.total.get()
    }

    /// Counts bytes as read.
    pub fn count(&self, bytes: u64) {
        self.read.set(self.read.get().saturating_add(bytes));
    }

    /// A file of this size is read, too.
    pub fn add_total(&self, bytes: u64) {
        let before = self.total.get().unwrap_or(0);
        self.total.set(Some(before.saturating_add(bytes)));
    }
}

/// Counts what is read.
struct Counting<R> {
    inner: R,
    progress: Progress,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.progress.count(n as u64);
        Ok(n)
    }
}

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A recording of io-starve
    Recording,
    /// Text of tracefs: trace or trace_pipe
    Ftrace,
    /// Text of `trace-cmd report`
    TraceCmd,
    /// Text of `perf script`
    Perf,
    /// Text of blkparse
    Blkparse,
    /// blktrace's binary files; those of the other CPUs are found by their names
    Blktrace,
}

/// What was opened.
pub enum Opened {
    /// A recording.
    Recording(Box<Recording<Input>>),
    /// A trace.
    Trace(Box<Import>),
}

/// Why something cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be opened or read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It cannot be unpacked.
    #[error("cannot unpack {name}: {source}; copy it again from where it was made")]
    Unpack {
        /// The file.
        name: String,
        /// The decoder's words.
        source: io::Error,
    },
    /// It is a recording, and a bad one.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Another program's own format.
    #[error("{name} is {what}, which only that program reads; {instead}")]
    Foreign {
        /// The file.
        name: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// Nothing that is known.
    #[error(
        "{name} is neither a recording of io-starve nor a trace that it knows (text of tracefs, trace-cmd report, perf script \
         or blkparse, blktrace's files); \
         if it is one of these, say which with --from"
    )]
    Unknown {
        /// The file.
        name: String,
    },
}

/// Opens a file. blktrace's files are opened together, whichever is named; what stands before `.blktrace`, or the folder, will do.
///
/// # Errors
/// When it cannot be read or unpacked, or is nothing that is known.
pub fn open(path: &Path, from: Option<Format>) -> Result<Opened, InputError> {
    let files = match from {
        None | Some(Format::Blktrace) => files::of(path),
        Some(_) => Vec::new(),
    };
    if let Some(blktrace) = open_blktrace(&files, from)? {
        return Ok(blktrace);
    }
    let name = path.display().to_string();
    let progress = Progress::default();
    match look(open_file(path, &progress)?, &name, from)? {
        Looked::Recording(recording) => Ok(Opened::Recording(recording)),
        Looked::Trace(input, format) => Ok(trace(reader(input, format), progress)),
    }
}

/// Opens files that have the names of blktrace's; `None` when they hold something else. A CPU that did nothing leaves an empty one.
fn open_blktrace(files: &[PathBuf], from: Option<Format>) -> Result<Option<Opened>, InputError> {
    let progress = Progress::default();
    let mut inputs = Vec::new();
    let mut is_blktrace = from == Some(Format::Blktrace) && !files.is_empty();
    for file in files {
        let name = file.display().to_string();
        let raw = Peeked::new(open_file(file, &progress)?);
        let mut plain = Peeked::new(unpacked(raw, &name)?);
        let typical = |start: &[u8], last: bool| {
            (start.len() >= 4 || last).then(|| binary::is_typical(start))
        };
        is_blktrace |= plain
            .look(4, typical)
            .map_err(|source| InputError::Unpack { name, source })?;
        inputs.push(plain.into_input());
    }
    Ok(is_blktrace.then(|| trace(Box::new(Blktrace::new(inputs)), progress)))
}

/// Opens an input that is called `name` in messages.
///
/// # Errors
/// As [`open`].
pub fn read(input: Input, name: &str, from: Option<Format>) -> Result<Opened, InputError> {
    let progress = Progress::default();
    let input = buffered(Counting {
        inner: input,
        progress: progress.clone(),
    });
    match look(input, name, from)? {
        Looked::Recording(recording) => Ok(Opened::Recording(recording)),
        Looked::Trace(input, format) => Ok(trace(reader(input, format), progress)),
    }
}

fn trace(reader: Box<dyn Reader>, progress: Progress) -> Opened {
    Opened::Trace(Box::new(Import::new(reader, progress)))
}

fn reader(input: Input, format: Format) -> Box<dyn Reader> {
    match format {
        Format::Blkparse => Box::new(Blkparse::new(input)),
        Format::Blktrace => Box::new(Blktrace::new([input])),
        Format::Recording | Format::Ftrace | Format::TraceCmd | Format::Perf => {
            Box::new(Ftrace::new(input))
        }
    }
}

fn open_file(path: &Path, progress: &Progress) -> Result<Input, InputError> {
    let failed = |source| InputError::Open {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // Reading a folder fails only later, and then looks like damage.
    if metadata.is_dir() {
        return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
    }
    if metadata.is_file() {
        progress.add_total(metadata.len());
    }
    Ok(buffered(Counting {
        inner: file,
        progress: progress.clone(),
    }))
}

/// An input, looked at.
enum Looked {
    Recording(Box<Recording<Input>>),
    /// Unpacked, with its format.
    Trace(Input, Format),
}

fn look(input: Input, name: &str, from: Option<Format>) -> Result<Looked, InputError> {
    let unpack = |source| InputError::Unpack {
        name: name.to_owned(),
        source,
    };
    let mut raw = Peeked::new(input);
    let packing = raw.look(6, Packing::of).map_err(unpack)?;
    let is_recording = match packing {
        Packing::Zstd => raw.look(LOOK_PACKED, begins_as_recording).map_err(unpack)?,
        _ => false,
    };
    let nothing = raw.seen.is_empty();
    if from.map_or(is_recording || nothing, |f| f == Format::Recording) {
        let recording = Recording::new(raw.into_input(), name)?;
        return Ok(Looked::Recording(Box::new(recording)));
    }
    let input = unpacked(raw, name)?;
    let mut plain = Peeked::new(input);
    let guess = match from {
        Some(format) => Guess::Is(format),
        None => plain.look(LOOK, Guess::of).map_err(unpack)?,
    };
    match guess {
        Guess::Is(format) => Ok(Looked::Trace(plain.into_input(), format)),
        Guess::Foreign(what, instead) => Err(InputError::Foreign {
            name: name.to_owned(),
            what,
            instead,
        }),
        Guess::Nothing => Err(InputError::Unknown {
            name: name.to_owned(),
        }),
    }
}

/// An input, unpacked.
fn unpacked(mut raw: Peeked, name: &str) -> Result<Input, InputError> {
    let unpack = |source| InputError::Unpack {
        name: name.to_owned(),
        source,
    };
    let packing = raw.look(6, Packing::of).map_err(unpack)?;
    let raw = raw.into_input();
    Ok(match packing {
        Packing::None => raw,
        Packing::Gzip => buffered(MultiGzDecoder::new(raw)),
        Packing::Xz => {
            let stream = stream::Stream::new_stream_decoder(XZ_MEMORY, stream::CONCATENATED)
                .map_err(|e| unpack(e.into()))?;
            buffered(XzDecoder::new_stream(raw, stream))
        }
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(unpack)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(unpack)?;
            buffered(decoder)
        }
    })
}

fn buffered(input: impl Read + 'static) -> Input {
    Box::new(BufReader::with_capacity(128 << 10, input))
}

/// An input whose beginning was looked at.
struct Peeked {
    seen: Vec<u8>,
    rest: Input,
    end: bool,
}

impl Peeked {
    fn new(rest: Input) -> Peeked {
        Peeked {
            seen: Vec::new(),
            rest,
            end: false,
        }
    }

    /// Reads until `decide` has an answer; it is asked for the last time when all, or `limit` bytes, are there.
    fn look<T>(&mut self, limit: usize, decide: impl Fn(&[u8], bool) -> Option<T>) -> io::Result<T>
    where
        T: Default,
    {
        loop {
            let last = self.end || self.seen.len() >= limit;
            if let Some(answer) = decide(&self.seen, last) {
                return Ok(answer);
            }
            if last {
                return Ok(T::default());
            }
            let more = match self.rest.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                more => more?,
            };
            let n = more.len();
            self.seen.extend_from_slice(more);
            self.rest.consume(n);
            self.end = n == 0;
        }
    }

    fn into_input(self) -> Input {
        Box::new(Cursor::new(self.seen).chain(self.rest))
    }
}

/// How an input is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Packing {
    #[default]
    None,
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    fn of(start: &[u8], last: bool) -> Option<Packing> {
        if start.len() < 6 && !last {
            return None;
        }
        Some(match start {
            [0x1f, 0x8b, 8, ..] => Packing::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            // As much of the magic number as there is: a recording may be cut anywhere.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x28, 0xb5, 0x2f] | [0x28, 0xb5] | [0x28] => {
                Packing::Zstd
            }
            _ => Packing::None,
        })
    }
}

/// Whether a zstd stream unpacks to what a recording begins with. One that is cut or damaged before that can be told is
/// taken for one, since nothing else could be made of it.
fn begins_as_recording(packed: &[u8], last: bool) -> Option<bool> {
    let mut start = Vec::new();
    let unpacked = zstd::stream::read::Decoder::with_buffer(packed).and_then(|mut decoder| {
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        decoder.take(HEADER.len() as u64).read_to_end(&mut start)
    });
    let enough = start.len() >= HEADER.len();
    match unpacked {
        _ if enough => Some(start == HEADER),
        _ if !last => None,
        _ => Some(HEADER.starts_with(&start)),
    }
}

/// What the beginning of an unpacked input looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Guess {
    Is(Format),
    /// What it is, and what to do with it.
    Foreign(&'static str, &'static str),
    #[default]
    Nothing,
}

impl Guess {
    fn of(start: &[u8], last: bool) -> Option<Guess> {
        if start.starts_with(b"\x17\x08\x44tracing") {
            return Some(Guess::Foreign(
                "a file of trace-cmd",
                "print it as text: trace-cmd report FILE | io-starve replay -",
            ));
        }
        if start.starts_with(b"PERFILE2") {
            return Some(Guess::Foreign(
                "a file of perf",
                "print it as text: perf script -i FILE | io-starve replay -",
            ));
        }
        if binary::is_typical(start) {
            return Some(Guess::Is(Format::Blktrace));
        }
        let mut lines = start.split(|b| *b == b'\n').collect::<Vec<_>>();
        if !last {
            // The last one may go on.
            lines.pop();
        }
        for line in lines {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if ftrace::is_typical(line) {
                return Some(Guess::Is(Format::Ftrace));
            }
            if text::is_typical(line) {
                return Some(Guess::Is(Format::Blkparse));
            }
        }
        None
    }
}

#[cfg(test)]
mod damage;
#[cfg(test)]
mod tests;
