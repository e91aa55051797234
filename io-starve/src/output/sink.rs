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
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

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
    done: Receiver<Result<(), SinkError>>,
    target: String,
    is_stdout: bool,
    sent: u64,
    dropped: u64,
}

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
        spawn(move || {
            let mut out = io::stdout();
            let result = messages.iter().try_for_each(|message| match message {
                Message::Wake => Ok(()),
                Message::Line(line) => write_to_stdout(&mut out, &line),
            });
            // Nobody waits for it any more when the program is ending.
            let _ = report.send(result);
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
        spawn(move || {
            let mut log: Log<File> = Log {
                file,
                path,
                torn: false,
                troubled: false,
            };
            for message in messages {
                if wanted.swap(false, Ordering::Relaxed) {
                    match Place::open(&log.path, Purpose::Append).and_then(Place::begin) {
                        Ok(file) => log.file = file,
                        // The old file is better than none.
                        Err(e) => complain!(
                            "io-starve: cannot reopen {}: {e}; still writing to the old file",
                            log.path.display()
                        ),
                    }
                }
                if let Message::Line(line) = message {
                    log.write(&line);
                }
            }
            let _ = report.send(Ok(()));
        })?;
        Ok((sink, reopener))
    }

    fn new(target: String) -> (Sink, Receiver<Message>, SyncSender<Result<(), SinkError>>) {
        let (queue, messages) = sync_channel(QUEUE);
        let (report, done) = sync_channel(1);
        let sink = Sink {
            queue,
            done,
            target,
            is_stdout: false,
            sent: 0,
            dropped: 0,
        };
        (sink, messages, report)
    }

    /// Hands over one line, which ends in a newline.
    ///
    /// # Errors
    /// When the target does not take lines any more. A line that finds no room is counted instead and reported
    /// by [`Sink::finish`].
    pub fn write(&mut self, line: String) -> Result<(), SinkError> {
        match self.queue.try_send(Message::Line(line)) {
            Ok(()) => self.sent += 1,
            Err(TrySendError::Full(_)) => {
                if self.dropped == 0 {
                    complain!(
                        "io-starve: {} takes no lines, some are lost; is its disk stuck or its reader stopped?",
                        self.target
                    );
                }
                self.dropped += 1;
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
            sent,
            dropped,
            ..
        } = self;
        // The thread ends when nobody can send; a reopener held by the signal handler must not keep it.
        drop(queue);
        let left = |lines| Err(SinkError::Left { lines, target });
        match done.recv_timeout(LAST_WRITE) {
            Ok(Ok(())) if dropped > 0 => left(dropped),
            Ok(result) => result,
            Err(_) => left(sent + dropped),
        }
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

/// A file that alerts are appended to.
struct Log<W> {
    file: W,
    path: PathBuf,
    /// The last line was written in part.
    torn: bool,
    /// The last write failed, and that was said.
    troubled: bool,
}

impl<W: Write> Log<W> {
    /// A daemon does not end because a disk is full: it says so once and goes on trying.
    fn write(&mut self, line: &str) {
        // What follows a torn line must be a line of its own.
        let torn_end = if self.torn { "\n" } else { "" };
        let bytes = [torn_end, line].concat();
        let mut rest = bytes.as_bytes();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => {
                    return self
                        .trouble(rest.len() < bytes.len(), &io::ErrorKind::WriteZero.into());
                }
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return self.trouble(rest.len() < bytes.len(), &e),
            }
        }
        self.torn = false;
        if std::mem::take(&mut self.troubled) {
            complain!(
                "io-starve: {} takes lines again; those in between are lost",
                self.path.display()
            );
        }
    }

    fn trouble(&mut self, part_written: bool, error: &io::Error) {
        self.torn |= part_written;
        if !std::mem::replace(&mut self.troubled, true) {
            complain!(
                "io-starve: cannot append to {}: {error}; alerts are lost until it works again; {}",
                self.path.display(),
                hint(error)
            );
        }
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
        sink.finish().unwrap();
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

    /// Takes 3 bytes, refuses twice, then takes everything.
    #[derive(Default)]
    struct Tight {
        bytes: Vec<u8>,
        calls: u32,
    }

    impl Write for Tight {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            let n = match self.calls {
                1 => 3,
                2 | 3 => return Err(io::ErrorKind::StorageFull.into()),
                _ => data.len(),
            };
            self.bytes.extend(&data[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_follows_a_torn_line_is_a_line_of_its_own() {
        let mut log = Log {
            file: Tight::default(),
            path: PathBuf::from("tight"),
            torn: false,
            troubled: false,
        };
        for line in ["first\n", "second\n", "third\n", "fourth\n"] {
            log.write(line);
        }
        assert_eq!(
            String::from_utf8(log.file.bytes).unwrap(),
            "fir\nthird\nfourth\n"
        );
    }
}
