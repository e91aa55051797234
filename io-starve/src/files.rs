//! Files that lines and recordings are written to. In: a path. Out: an open file, or the system's error, for which
//! [`hint`] knows what to do. Opening waits for nobody and changes nothing that is there.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FsWord, OFlags, fcntl_getfl, fcntl_setfl, statfs};

/// The file system of pipes without a name, from linux/magic.h.
const PIPEFS: FsWord = 0x5049_5045;

/// What is to become of the content that a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It stays, lines are added.
    Append,
    /// It goes as soon as there is something to put in its place.
    Replace,
}

/// An open file in which nothing was changed yet: what fails later must neither cost what was in it nor leave an
/// empty file behind.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    file: File,
    purpose: Purpose,
    made: Option<Made>,
}

impl Place {
    /// Opens a file, makes it where there is none.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, purpose: Purpose) -> io::Result<Place> {
        let place = |file, made| Place {
            path: path.to_owned(),
            file,
            purpose,
            made,
        };
        if is_fifo(path) {
            return Ok(place(open_fifo(path, purpose)?, None));
        }
        let mut options = OpenOptions::new();
        match purpose {
            Purpose::Append => options.append(true),
            Purpose::Replace => options.write(true),
        };
        match options.clone().create_new(true).open(path) {
            Ok(file) => {
                let made = Made::new(path, &file.metadata()?);
                Ok(place(file, Some(made)))
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(place(
                options.create(true).truncate(false).open(path)?,
                None,
            )),
            Err(e) => Err(e),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, empty when its content is to be replaced.
    ///
    /// # Errors
    /// When it cannot be emptied.
    pub fn begin(self) -> io::Result<File> {
        // Pipes and devices have no length.
        if self.purpose == Purpose::Replace && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        if let Some(made) = self.made {
            made.keep();
        }
        Ok(self.file)
    }
}

/// A file that was made here, and goes again unless it is kept.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    id: (u64, u64),
    kept: bool,
}

impl Made {
    fn new(path: &Path, metadata: &Metadata) -> Made {
        Made {
            path: path.to_owned(),
            id: (metadata.dev(), metadata.ino()),
            kept: false,
        }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Meanwhile somebody else may have written to it, or have put another file in its place.
        let is_as_made = |m: Metadata| (m.dev(), m.ino()) == self.id && m.len() == 0;
        if !self.kept && std::fs::symlink_metadata(&self.path).is_ok_and(is_as_made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// True for a pipe in a folder. Opening one without a name, as /dev/stdout may be, never waits.
fn is_fifo(path: &Path) -> bool {
    let is_pipe = |m: Metadata| m.file_type().is_fifo();
    std::fs::metadata(path).is_ok_and(is_pipe) && statfs(path).is_ok_and(|s| s.f_type != PIPEFS)
}

/// Opens a pipe without waiting for its reader, as a plain open would, deaf to signals.
///
/// Opened for reading too it always has a reader, and keeps what is written until it is full: right for lines, whose
/// reader may be started late or anew. Of a recording the second reader could not use anything, so there the end of
/// the first one has to show, as a broken pipe.
fn open_fifo(path: &Path, purpose: Purpose) -> io::Result<File> {
    let for_both = || OpenOptions::new().read(true).write(true).open(path);
    if purpose == Purpose::Append
        && let Ok(file) = for_both()
    {
        return Ok(file);
    }
    match open_read_fifo(path) {
        // Who may write to it need not be allowed to read from it.
        Err(e) if no_reader(&e) => for_both().map_err(|_| e),
        other => other,
    }
}

/// Opens a pipe that somebody reads from.
fn open_read_fifo(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    // Only opening must not wait: writing is done by threads that may.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn no_reader(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ENXIO)
}

/// What to do about an error of opening a file or writing to it.
pub fn hint(e: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    match e.kind() {
        Kind::StorageFull | Kind::QuotaExceeded => "free space or choose another disk",
        Kind::IsADirectory => "this is a folder, give the name of a file",
        Kind::NotFound => "make its folder first",
        Kind::NotADirectory => "what should be its folder is a file, choose another path",
        Kind::PermissionDenied => "choose a place that this user may write to",
        Kind::ReadOnlyFilesystem => "choose a place on another file system",
        Kind::BrokenPipe => "its reader has gone, start it again",
        _ if no_reader(e) => "start the reader of the pipe first; a socket cannot be used",
        _ => "check the path, or choose another one",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        io::{Read, Write},
        os::fd::AsRawFd,
        time::Duration,
    };

    use super::*;

    /// Makes a pipe with a name.
    pub(crate) fn fifo(dir: &Path) -> PathBuf {
        let path = dir.join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            kind,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        path
    }

    /// A reader that does not wait for a writer.
    pub(crate) fn reader(path: &Path) -> File {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .unwrap()
    }

    /// Opens in a thread of its own, so that what waits for ever fails the test.
    fn opened(path: &Path, purpose: Purpose) -> io::Result<File> {
        let (send, receive) = std::sync::mpsc::channel();
        let path = path.to_owned();
        std::thread::spawn(move || send.send(Place::open(&path, purpose).and_then(Place::begin)));
        receive
            .recv_timeout(Duration::from_secs(20))
            .expect("opening waits")
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_opened_at_once_and_keeps_what_is_written() {
        for purpose in [Purpose::Append, Purpose::Replace] {
            let dir = tempfile::tempdir().unwrap();
            let path = fifo(dir.path());
            let mut file = opened(&path, purpose).unwrap();
            file.write_all(b"early").unwrap();
            let mut reader = reader(&path);
            file.write_all(b" and late").unwrap();
            drop(file);
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "early and late", "{purpose:?}");
        }
    }

    #[test]
    fn lines_wait_for_the_next_reader_and_a_recording_ends_with_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let first = reader(&path);
        let mut lines = opened(&path, Purpose::Append).unwrap();
        drop(first);
        lines.write_all(b"line\n").unwrap();
        let mut text = [0; 5];
        reader(&path).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"line\n");
        drop(lines);

        let first = reader(&path);
        let mut recording = opened(&path, Purpose::Replace).unwrap();
        assert!(!fcntl_getfl(&recording).unwrap().contains(OFlags::NONBLOCK));
        drop(first);
        let error = recording.write_all(b"frame").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_end_of_a_nameless_pipe_shows() {
        for purpose in [Purpose::Append, Purpose::Replace] {
            let (reader, writer) = std::io::pipe().unwrap();
            // As /dev/stdout is one.
            let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
            let mut file = opened(&path, purpose).unwrap();
            drop(reader);
            let error = file.write_all(b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{purpose:?}");
        }
    }

    #[test]
    fn what_is_dropped_unused_changed_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "precious").unwrap();
        for purpose in [Purpose::Append, Purpose::Replace] {
            drop(Place::open(&old, purpose).unwrap());
            assert_eq!(std::fs::read(&old).unwrap(), b"precious");
            drop(Place::open(&new, purpose).unwrap());
            assert!(!new.exists());
            // Another's by now.
            let place = Place::open(&new, purpose).unwrap();
            std::fs::write(&new, "written meanwhile").unwrap();
            drop(place);
            assert!(new.exists());
            std::fs::remove_file(&new).unwrap();
        }
    }

    #[test]
    fn what_is_used_is_appended_to_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (purpose, content) in [
            (Purpose::Append, "1"),
            (Purpose::Append, "11"),
            (Purpose::Replace, "1"),
        ] {
            let place = Place::open(&path, purpose).unwrap();
            place.begin().unwrap().write_all(b"1").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        drop(std::fs::remove_file(&path));
        drop(Place::open(&path, Purpose::Replace).unwrap().begin());
        assert!(path.exists(), "used, though nothing was written");
    }

    #[test]
    fn each_error_has_its_hint() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let hint_for = |path: &Path| hint(&Place::open(path, Purpose::Append).unwrap_err());
        assert!(hint_for(dir.path()).contains("name of a file"));
        assert!(hint_for(&dir.path().join("no/file")).contains("make its folder"));
        assert!(hint_for(&file.join("x")).contains("is a file"));
        for (errno, part) in [
            (libc::ENOSPC, "free space"),
            (libc::EDQUOT, "free space"),
            (libc::EACCES, "this user"),
            (libc::EPERM, "this user"),
            (libc::EROFS, "another file system"),
            (libc::EPIPE, "reader has gone"),
            (libc::ENXIO, "reader of the pipe first"),
            (libc::EIO, "check the path"),
        ] {
            let said = hint(&io::Error::from_raw_os_error(errno));
            assert!(said.contains(part), "{errno}: {said}");
        }
    }
}
