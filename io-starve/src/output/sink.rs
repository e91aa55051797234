//! Where lines go: standard output or a file, written by a thread of its own.
//!
//! The disk under the file may be the one that starves, and the reader of a pipe may have stopped; neither may
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

use super::log::Log;
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

/// Takes lines, never waits.
#[derive(Debug)]
pub struct Sink {
    queue: SyncSender<Message>,
    done: Receiver<Report>,
    target: String,
    is_stdout: bool,
    given: u64,
    written: Arc<AtomicU64>,
    found_no_room: bool,
}

/// How writing ended: with an error that was its end, or with the last one of those that were not.
type Report = Result<Option<io::Error>, SinkError>;

#[derive(Debug)]
enum Message {
    Line(String),
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
        let (mut sink, messages, report) = Sink::new("standard output".to_owned());
        sink.is_stdout = true;
        let written = sink.written.clone();
        spawn(move || {
            let mut out = io::stdout();
            let result = messages.iter().try_for_each(|message| match message {
                Message::Wake => Ok(()),
                Message::Line(line) => write_to_stdout(&mut out, &line).map(|()| {
                    written.fetch_add(1, Ordering::Relaxed);
                }),
            });
            // Nobody waits for it any more when the program is ending.
            let _ = report.send(result.map(|()| None));
        })?;
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
        let (sink, messages, report) = Sink::new(path.display().to_string());
        let reopener = Reopener {
            wanted: Arc::default(),
            queue: sink.queue.clone(),
        };
        let wanted = reopener.wanted.clone();
        let written = sink.written.clone();
        spawn(move || {
            let mut log = Log::new(file, path);
            for message in messages {
                if wanted.swap(false, Ordering::Relaxed) {
                    reopen(&mut log);
                }
                if let Message::Line(line) = message
                    && log.write(&line)
                {
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
            let _ = report.send(Ok(log.last_error()));
        })?;
        Ok((sink, reopener))
    }

    fn new(target: String) -> (Sink, Receiver<Message>, SyncSender<Report>) {
        let (queue, messages) = sync_channel(QUEUE);
        let (report, done) = sync_channel(1);
        let sink = Sink {
            queue,
            done,
            target,
            is_stdout: false,
            given: 0,
            written: Arc::default(),
            found_no_room: false,
        };
        (sink, messages, report)
    }

    /// Hands over one line, which ends in a newline.
    ///
    /// # Errors
    /// When the target does not take lines any more. A line that finds no room is counted instead and reported
    /// by [`Sink::finish`].
    pub fn write(&mut self, line: String) -> Result<(), SinkError> {
        self.given += 1;
        match self.queue.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                if !std::mem::replace(&mut self.found_no_room, true) {
                    complain!(
                        "io-starve: {} takes no lines, some are lost; is its disk stuck or its reader stopped?",
                        self.target
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
            target,
            given,
            written,
            ..
        } = self;
        // The thread ends when nobody can send; a reopener held by the signal handler must not keep it.
        drop(queue);
        let report = done.recv_timeout(LAST_WRITE);
        let lines = given.saturating_sub(written.load(Ordering::Relaxed));
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

fn reopen(log: &mut Log<File>) {
    match Place::open(log.path(), Purpose::Append).and_then(Place::begin) {
        Ok(file) => log.go_on_in(file),
        // The old file is better than none.
        Err(e) => complain!(
            "io-starve: cannot reopen {}: {e}; still writing to the old file",
            log.path().display()
        ),
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), SinkError> {
    std::thread::Builder::new()
        .name("writer".to_owned())
        .spawn(work)
        .map(drop)
        .map_err(SinkError::Thread)
}

fn write_to_stdout(out: &mut io::Stdout, line: &str) -> Result<(), SinkError> {
    out.write_all(line.as_bytes())
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
    match write_to_stdout(&mut io::stdout(), text) {
        Err(SinkError::Closed) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::files::tests::{fifo, reader};

    fn to_file(path: &Path) -> (Sink, Reopener) {
        Sink::file(Sink::place(path).unwrap()).unwrap()
    }

    #[test]
    fn lines_are_appended_in_order_and_a_rotated_file_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let (log, old) = (dir.path().join("log"), dir.path().join("log.1"));
        std::fs::write(&log, "before\n").unwrap();
        let (mut sink, reopener) = to_file(&log);
        sink.write("one\n".to_owned()).unwrap();
        drop(reopener);
        sink.finish().unwrap();
        let (mut sink, reopener) = to_file(&log);
        std::fs::rename(&log, &old).unwrap();
        reopener.reopen();
        sink.write("two\n".to_owned()).unwrap();
        drop(reopener);
        sink.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "before\none\n");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "two\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_said_at_once() {
        let error = Sink::place(Path::new("/proc/none/log")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot append to /proc/none/log: No such file or directory (os error 2); make its folder first"
        );
    }

    #[test]
    fn a_full_disk_does_not_end_the_sink() {
        let (mut sink, reopener) = to_file(Path::new("/dev/full"));
        for _ in 0..3 {
            sink.write("x\n".to_owned()).unwrap();
        }
        drop(reopener);
        assert_eq!(
            sink.finish().unwrap_err().to_string(),
            "3 lines could not be written to /dev/full: No space left on device (os error 28); \
             free space or choose another disk"
        );
    }

    #[test]
    fn lines_that_a_stopped_reader_left_are_counted_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let reader = reader(&path);
        let (mut sink, reopener) = to_file(&path);
        // The first fits into the pipe, the second does not.
        let long = "x".repeat(1 << 20) + "\n";
        for line in ["taken\n".to_owned(), long, "waiting\n".to_owned()] {
            sink.write(line).unwrap();
        }
        drop(reopener);
        let said = sink.finish().unwrap_err().to_string();
        assert!(said.starts_with("2 lines could not be written: "), "{said}");
        drop(reader);
    }

    #[test]
    fn a_pipe_keeps_lines_for_a_reader_that_comes_late() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let (mut sink, reopener) = to_file(&path);
        sink.write("early\n".to_owned()).unwrap();
        let reader = reader(&path);
        drop(reopener);
        sink.finish().unwrap();
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        assert_eq!(line, "early\n");
    }
}
