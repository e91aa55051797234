//! fio's standard output on its way to the user: what was added to it is taken out again.

use std::{
    fs::File,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read, Write},
    process::Stdio,
    thread::JoinHandle,
};

use crate::fio::output::{Printed, Splitter};

/// Passes on what comes through a pipe.
pub(super) struct Relay {
    /// The end that the command writes to; kept, so that the end can be marked while others still hold theirs.
    writer: File,
    mark: Vec<u8>,
    thread: JoinHandle<Printed>,
}

impl Relay {
    /// Starts passing on; the command gets the other end as its standard output.
    pub(super) fn start(strip: bool) -> io::Result<(Relay, Stdio)> {
        let (reader, writer) = io::pipe()?;
        let theirs = writer.try_clone()?;
        // Nobody else writes a NUL followed by this.
        let nonce = RandomState::new().build_hasher().finish();
        let mark = format!("\0io-starve:{nonce:016x}\0").into_bytes();
        let wanted = mark.clone();
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || pass_on(reader, &wanted, strip, &mut io::stdout()))?;
        let relay = Relay {
            writer: File::from(std::os::fd::OwnedFd::from(writer)),
            mark,
            thread,
        };
        Ok((relay, theirs.into()))
    }

    /// To be called once the command has ended: returns what it printed until then. Processes that it left behind may go on writing,
    /// and get an error.
    pub(super) fn finish(mut self) -> Printed {
        // Fails when the user's reader has gone, and the thread with it.
        let _ = self.writer.write_all(&self.mark);
        drop(self.writer);
        self.thread.join().unwrap_or_default()
    }
}

/// Until the mark, or until nobody takes it any more.
fn pass_on(mut from: impl Read, mark: &[u8], strip: bool, to: &mut impl Write) -> Printed {
    let mut splitter = Splitter::new(strip);
    let mut buffer = vec![0; 64 << 10];
    let mut pending: Vec<u8> = Vec::new();
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        pending.extend_from_slice(&buffer[..n]);
        let end = memchr::memmem::find(&pending, mark);
        // What may be the beginning of the mark waits for the rest of it.
        let safe = end.unwrap_or_else(|| pending.len() - overlap(&pending, mark));
        let shown = splitter.push(&pending[..safe]);
        if to.write_all(&shown).and_then(|()| to.flush()).is_err() {
            // As for a command that writes there itself: the pipe breaks.
            return splitter.finish().1;
        }
        pending.drain(..safe);
        if end.is_some() {
            break;
        }
    }
    let (rest, printed) = splitter.finish();
    // There is nobody left to tell.
    let _ = to.write_all(&rest).and_then(|()| to.flush());
    printed
}

/// How many of the last bytes are the beginning of the mark.
fn overlap(bytes: &[u8], mark: &[u8]) -> usize {
    let most = bytes.len().min(mark.len() - 1);
    (1..=most)
        .rev()
        .find(|n| bytes.ends_with(&mark[..*n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out a few bytes at a time.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn everything_up_to_the_mark_is_passed_on_but_the_json() {
        let mark = b"\0io-starve:0123\0";
        let text = b"Starting\n{\n}\nwith \0io a NUL\n\0io-starve:0123\0left behind";
        for step in [1, 3, 1_000] {
            let mut seen = Vec::new();
            let printed = pass_on(Slowly(text, step), mark, true, &mut seen);
            assert_eq!(
                String::from_utf8_lossy(&seen),
                "Starting\nwith \0io a NUL\n"
            );
            assert_eq!(printed.json.as_deref(), Some("{\n}\n"));
        }
    }

    #[test]
    fn a_reader_that_has_gone_ends_it() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(
            pass_on(&b"abc\n"[..], b"\0x\0", true, &mut Gone),
            Printed::default()
        );
    }
}
