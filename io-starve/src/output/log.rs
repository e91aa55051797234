//! A file that lines are appended to, whole ones, also where its disk gets full and is freed again.

use std::{
    fs::File,
    io::{self, Seek, Write},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use crate::files::hint;

/// Where lines go.
pub(super) trait Medium: Write {
    /// Takes the bytes back that were written last.
    fn take_back(&mut self, bytes: u64) -> io::Result<()>;

    /// Takes back the beginning of an alert at the end: a writer was killed in the middle of it. False when the end is
    /// a part of a line all the same.
    fn mend(&mut self) -> bool {
        true
    }
}

/// How every alert begins.
const ALERT: &[u8] = b"{\"schema\":";
/// More than the longest alert has: how far back the beginning of a torn one is looked for.
const LONGEST: u64 = 4 << 20;

impl Medium for File {
    fn take_back(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.stream_position()?;
        // Somebody else may append to it too.
        if self.metadata()?.len() != end {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.set_len(end.saturating_sub(bytes))
    }

    fn mend(&mut self) -> bool {
        let Ok(metadata) = self.metadata() else {
            return true;
        };
        if !metadata.is_file() || metadata.len() == 0 {
            return true;
        }
        // It may be writable only: then what is there cannot be judged.
        let from = metadata.len().saturating_sub(LONGEST);
        let mut tail = vec![0; (metadata.len() - from) as usize];
        let read = File::open(format!("/proc/self/fd/{}", self.as_raw_fd()))
            .and_then(|file| file.read_exact_at(&mut tail, from));
        if read.is_err() || tail.ends_with(b"\n") {
            return true;
        }
        let line = tail.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let part = &tail[line..];
        let begins = part.starts_with(ALERT) || ALERT.starts_with(part);
        begins && self.set_len(from + line as u64).is_ok()
    }
}

/// A file that alerts are appended to.
pub(super) struct Log<W> {
    file: W,
    path: PathBuf,
    /// The last line was written in part.
    torn: bool,
    /// The last write failed, and that was said.
    troubled: bool,
    error: Option<io::Error>,
}

impl<W: Medium> Log<W> {
    /// Appends to this file.
    pub(super) fn new(mut file: W, path: PathBuf) -> Log<W> {
        let torn = !file.mend();
        Log {
            file,
            path,
            torn,
            troubled: false,
            error: None,
        }
    }

    /// What it was opened as.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file has another one in its place.
    pub(super) fn go_on_in(&mut self, file: W) {
        self.file = file;
        self.torn = false;
    }

    /// Why lines were lost, the last time that some were.
    pub(super) fn last_error(self) -> Option<io::Error> {
        self.error
    }

    /// Returns whether the line is in the file. A daemon does not end because a disk is full: it says so once and goes
    /// on trying.
    pub(super) fn write(&mut self, line: &[u8]) -> bool {
        // What follows a torn line must be a line of its own.
        let torn_end: &[u8] = if self.torn { b"\n" } else { b"" };
        let bytes = [torn_end, line].concat();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let error = match self.file.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    rest = &rest[n..];
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => e,
            };
            self.trouble(bytes.len() - rest.len(), error);
            return false;
        }
        self.torn = false;
        if std::mem::take(&mut self.troubled) {
            complain!(
                "io-starve: {} takes lines again; those in between are lost",
                self.path.display()
            );
        }
        true
    }

    fn trouble(&mut self, part_written: usize, error: io::Error) {
        // Half a line would be there to be read until the next one, which may never come.
        if part_written > 0 && self.file.take_back(part_written as u64).is_err() {
            self.torn = true;
        }
        if !std::mem::replace(&mut self.troubled, true) {
            complain!(
                "io-starve: cannot append to {}: {error}; alerts are lost until it works again; {}",
                self.path.display(),
                hint(&error)
            );
        }
        self.error = Some(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes 3 bytes, refuses twice, then takes everything.
    #[derive(Default)]
    struct Tight {
        bytes: Vec<u8>,
        calls: u32,
        takes_back: bool,
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

    impl Medium for Tight {
        fn take_back(&mut self, bytes: u64) -> io::Result<()> {
            if !self.takes_back {
                return Err(io::ErrorKind::Unsupported.into());
            }
            self.bytes.truncate(self.bytes.len() - bytes as usize);
            Ok(())
        }
    }

    /// What the file holds after each of four lines, of which the second and the first are lost.
    fn after_each_line(takes_back: bool) -> [String; 4] {
        let file = Tight {
            takes_back,
            ..Tight::default()
        };
        let mut log = Log::new(file, PathBuf::from("tight"));
        [
            ("first\n", false),
            ("second\n", false),
            ("third\n", true),
            ("fourth\n", true),
        ]
        .map(|(line, kept)| {
            assert_eq!(log.write(line.as_bytes()), kept, "{line}");
            String::from_utf8(log.file.bytes.clone()).unwrap()
        })
    }

    #[test]
    fn half_a_line_is_taken_back() {
        let files = after_each_line(true);
        assert_eq!(files, ["", "", "third\n", "third\nfourth\n"]);
    }

    #[test]
    fn where_that_cannot_be_the_next_line_is_a_line_of_its_own() {
        let files = after_each_line(false);
        let end = "fir\nthird\nfourth\n";
        assert_eq!(files, ["fir", "fir", &end[..10], end]);
    }

    #[test]
    fn what_a_killed_writer_left_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let after = |before: &str| {
            std::fs::write(&path, before).unwrap();
            let file = File::options().append(true).open(&path).unwrap();
            let mut log = Log::new(file, path.clone());
            assert!(log.write(b"new\n"));
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(after(""), "new\n");
        assert_eq!(after("old\n"), "old\nnew\n");
        assert_eq!(after("old\n{\"schema\":1,\"ver"), "old\nnew\n");
        assert_eq!(after("{\"sch"), "new\n");
        // Not ours: it stays, as a line of its own.
        assert_eq!(after("old\nhalf a"), "old\nhalf a\nnew\n");
    }

    #[test]
    fn only_ones_own_bytes_at_the_end_of_a_file_are_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let open = || {
            let mut options = File::options();
            options.create(true).append(true).open(&path).unwrap()
        };
        let (mut ours, mut theirs) = (open(), open());
        theirs.write_all(b"theirs\n").unwrap();
        ours.write_all(b"par").unwrap();
        ours.take_back(3).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs\n");
        ours.write_all(b"par").unwrap();
        theirs.write_all(b"theirs\n").unwrap();
        assert!(ours.take_back(3).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs\npartheirs\n");
        // A pipe has neither length nor place.
        let (reader, writer) = std::io::pipe().unwrap();
        let mut pipe = File::from(std::os::fd::OwnedFd::from(writer));
        pipe.write_all(b"par").unwrap();
        assert!(pipe.take_back(3).is_err());
        drop(reader);
    }
}
