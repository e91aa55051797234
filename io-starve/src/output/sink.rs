//! Where lines go: standard output, a file or a log daemon's socket, each written by a thread of its own.
//!
//! The disk under the file may be the one that starves, the reader of a pipe and a log daemon may have stopped; none may
//! hold up the observer. So lines wait in a bounded queue, and those that find it full are counted and reported.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    datagram::{self, Datagram},
    log::Log,
};
use crate::files::{Place, Purpose, hint};

/// Lines that may wait: some MiB of alerts, which is hours of them.
const QUEUE: usize = 4_096;

/// How long the end of the program waits for the rest to be taken.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Why lines cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The reader of standard output went away: no reason to complain, and none to go on.
    #[error("the reader of standard output has gone")]
    Closed,
    /// The file cannot be opened.
    #[error("cannot append to {path}: {source}; {}", hint(.source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Standard output does not take lines.
    #[error(
        "cannot write to standard output: {0}; if it leads to a file, check the space on its disk"
    )]
    Write(io::Error),
    /// The thread cannot be started.
    #[error("cannot start a thread to write with: {0}; the limit of processes may be reached")]
    Thread(io::Error),
    /// The address of a log daemon cannot be used.
    #[error("cannot send to {target}: {source}; {}", datagram::hint(.source))]
    Connect {
        /// Where to.
        target: String,
        /// The system's words.
        source: io::Error,
    },
    /// Lines were left over at the end, or found no room before.
    #[error("{lines} could not be written: {target} did not take them in time", lines = lines_in_words(*.lines))]
    Left {
        /// How many.
        lines: u64,
        /// Where to.
        target: String,
    },
    /// Some lines were refused on the way, which did not end the run.
    #[error("{lines} could not be written to {target}: {source}; {}", hint(.source), lines = lines_in_words(*.lines))]
    Refused {
        /// How many.
        lines: u64,
        /// Where to.
        target: String,
        /// The system's words for the last of them.
        source: io::Error,
    },
}

fn lines_in_words(n: u64) -> String {
    match n {
        1 => "1 line".to_owned(),
        n => format!("{n} lines"),
    }
}

/// What the thread of a sink writes to.
pub(super) trait Target: Send + 'static {
    /// Takes one message; false when it is refused, which does not end the sink.
    ///
    /// # Errors
    /// When nothing more can be written.
    fn put(&mut self, message: &[u8]) -> Result<bool, SinkError>;

    /// Opens anew what was renamed.
    fn reopen(&mut self) {}

    /// Why messages were refused, the last time that some were.
    fn last_error(self) -> Option<io::Error>;
}

/// How many lines a sink has written and lost. Copies tell of the same sink.
#[derive(Debug, Clone)]
pub struct Tally {
    target: Arc<str>,
    written: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl Tally {
    /// Where the lines go, in words.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Lines that were taken there.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Lines that found no room or were refused.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Takes lines, never waits.
#[derive(Debug)]
pub struct Sink {
    queue: SyncSender<Message>,
    done: Receiver<Report>,
    is_stdout: bool,
    given: u64,
    tally: Tally,
    found_no_room: bool,
}

/// How writing ended: with an error that was its end, or with the last one of those that were not.
type Report = Result<Option<io::Error>, SinkError>;

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Only wakes the thread, which then sees that it shall reopen.
    Wake,
}

/// Asks a [`Sink`] to open its file anew, after a log rotation.
#[derive(Debug, Clone)]
pub struct Reopener {
    wanted: Arc<AtomicBool>,
    queue: SyncSender<Message>,
}

impl Reopener {
    /// Before the next line is written, the file is opened anew.
    pub fn reopen(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        // A full queue has enough in it to wake the thread.
        let _ = self.queue.try_send(Message::Wake);
    }
}

impl Sink {
    /// Writes to standard output.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn stdout() -> Result<Sink, SinkError> {
        let (mut sink, _) = Sink::new("standard output".to_owned(), Stdout(io::stdout()))?;
        sink.is_stdout = true;
        Ok(sink)
    }

    /// Opens a file to append to.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn place(path: &Path) -> Result<Place, SinkError> {
        Place::open(path, Purpose::Append).map_err(|source| SinkError::Open {
            path: path.to_owned(),
            source,
        })
    }

    /// Appends to a file, one write for each line.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn file(place: Place) -> Result<(Sink, Reopener), SinkError> {
        let path = place.path().to_owned();
        let file = place.begin().map_err(|source| SinkError::Open {
            path: path.clone(),
            source,
        })?;
        Sink::new(path.display().to_string(), Log::new(file, path))
    }

    /// Sends to a log daemon, one datagram for each line.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn datagram(socket: Datagram) -> Result<Sink, SinkError> {
        Sink::new(socket.target().to_owned(), socket).map(|(sink, _)| sink)
    }

    fn new(name: String, mut target: impl Target) -> Result<(Sink, Reopener), SinkError> {
        let (queue, messages) = sync_channel(QUEUE);
        let (report, done) = sync_channel(1);
        let tally = Tally {
            target: name.into(),
            written: Arc::default(),
            lost: Arc::default(),
        };
        let reopener = Reopener {
            wanted: Arc::default(),
            queue: queue.clone(),
        };
        let (wanted, counts) = (reopener.wanted.clone(), tally.clone());
        spawn(move || {
            let mut put = |message| -> Result<(), SinkError> {
                if wanted.swap(false, Ordering::Relaxed) {
                    target.reopen();
                }
                if let Message::Line(line) = message {
                    let count = match target.put(&line)? {
                        true => &counts.written,
                        false => &counts.lost,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            let result = messages.iter().try_for_each(&mut put);
            // Nobody waits for it any more when the program is ending.
            let _ = report.send(result.map(|()| target.last_error()));
        })?;
        let sink = Sink {
            queue,
            done,
            is_stdout: false,
            given: 0,
            tally,
            found_no_room: false,
        };
        Ok((sink, reopener))
    }

    /// How many lines were written and lost so far.
    pub fn tally(&self) -> Tally {
        self.tally.clone()
    }

    /// Hands over one line, which ends in a newline, or one datagram.
    ///
    /// # Errors
    /// When the target does not take lines any more. A line that finds no room is counted instead and reported
    /// by [`Sink::finish`].
    pub fn write(&mut self, line: impl Into<Vec<u8>>) -> Result<(), SinkError> {
        self.given += 1;
        match self.queue.try_send(Message::Line(line.into())) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.tally.lost.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.found_no_room, true) {
                    complain!(
                        "io-starve: {} takes no lines, some are lost; is its disk stuck or its reader stopped?",
                        self.tally.target
                    );
                }
            }
            Err(TrySendError::Disconnected(_)) => {
                return Err(self
                    .done
                    .recv()
                    .map_or(SinkError::Closed, |r| r.err().unwrap_or(SinkError::Closed)));
            }
        }
        Ok(())
    }

    /// Notices that the reader of standard output has gone, without writing anything: a healthy machine gives
    /// nothing to write for a minute.
    ///
    /// # Errors
    /// [`SinkError::Closed`].
    pub fn check(&self) -> Result<(), SinkError> {
        if !self.is_stdout {
            return Ok(());
        }
        let out = io::stdout();
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        let gone = PollFlags::ERR | PollFlags::HUP;
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(1) if fds[0].revents().intersects(gone) => Err(SinkError::Closed),
            // Whatever else is wrong will show when a line is written.
            _ => Ok(()),
        }
    }

    /// Waits, not for ever, until everything is written.
    ///
    /// # Errors
    /// When the target failed, or lines were left over.
    pub fn finish(self) -> Result<(), SinkError> {
        let Sink {
            queue,
            done,
            given,
            tally,
            ..
        } = self;
        // The thread ends when nobody can send; a reopener held by the signal handler must not keep it.
        drop(queue);
        let report = done.recv_timeout(LAST_WRITE);
        let lines = given.saturating_sub(tally.written());
        let target = tally.target.to_string();
        match report {
            Ok(Err(e)) => Err(e),
            Ok(Ok(Some(source))) => Err(SinkError::Refused {
                lines,
                target,
                source,
            }),
            Ok(Ok(None)) if lines == 0 => Ok(()),
            Ok(Ok(None)) | Err(_) => Err(SinkError::Left { lines, target }),
        }
    }
}

impl Target for Log<File> {
    fn put(&mut self, line: &[u8]) -> Result<bool, SinkError> {
        Ok(self.write(line))
    }

    fn reopen(&mut self) {
        match Place::open(self.path(), Purpose::Append).and_then(Place::begin) {
            Ok(file) => self.go_on_in(file),
            // The old file is better than none.
            Err(e) => complain!(
                "io-starve: cannot reopen {}: {e}; still writing to the old file",
                self.path().display()
            ),
        }
    }

    fn last_error(self) -> Option<io::Error> {
        Log::last_error(self)
    }
}

struct Stdout(io::Stdout);

impl Target for Stdout {
    fn put(&mut self, line: &[u8]) -> Result<bool, SinkError> {
        write_to_stdout(&mut self.0, line).map(|()| true)
    }

    fn last_error(self) -> Option<io::Error> {
        None
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), SinkError> {
    std::thread::Builder::new()
        .name("writer".to_owned())
        .spawn(work)
        .map(drop)
        .map_err(SinkError::Thread)
}

fn write_to_stdout(out: &mut io::Stdout, line: &[u8]) -> Result<(), SinkError> {
    out.write_all(line)
        .and_then(|()| out.flush())
        .map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => SinkError::Closed,
            _ => SinkError::Write(e),
        })
}

/// Prints text to standard output; a reader that has gone is no error.
///
/// # Errors
/// When standard output does not take it for another reason.
pub fn print(text: &str) -> Result<(), SinkError> {
    match write_to_stdout(&mut io::stdout(), text.as_bytes()) {
        Err(SinkError::Closed) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
