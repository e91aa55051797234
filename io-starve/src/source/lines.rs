//! Lines of an input that may be anything: bounded, without the ends that systems differ in.

use std::io::{self, BufRead};

/// A line longer than this is none of a trace.
const MAX_LINE: usize = 64 << 10;

/// A line was longer than any of a trace.
#[derive(Debug)]
pub struct TooLong;

/// Reads lines.
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Reads from here.
    pub fn new(input: R) -> Lines<R> {
        Lines {
            input,
            line: Vec::new(),
        }
    }

    /// The next line without its end, `None` at the end of the input.
    pub fn next_line(&mut self) -> io::Result<Option<Result<&[u8], TooLong>>> {
        self.line.clear();
        let mut too_long = false;
        loop {
            let buffer = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            let (part, end) = match buffer.iter().position(|b| *b == b'\n') {
                Some(at) => (&buffer[..at], at + 1),
                None => (buffer, buffer.len()),
            };
            if end == 0 && self.line.is_empty() && !too_long {
                return Ok(None);
            }
            let whole = end == 0 || end > part.len();
            if self.line.len() + part.len() > MAX_LINE {
                too_long = true;
                self.line.clear();
            } else {
                self.line.extend_from_slice(part);
            }
            self.input.consume(end);
            if whole {
                break;
            }
        }
        if too_long {
            return Ok(Some(Err(TooLong)));
        }
        while self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(Some(Ok(&self.line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_lines_differ_and_the_last_may_have_none() {
        let mut lines = Lines::new(&b"a\r\n\nb\n  c"[..]);
        let mut got = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            got.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
        }
        assert_eq!(got, ["a", "", "b", "  c"]);
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut input = vec![b'x'; 3 * MAX_LINE];
        input.extend_from_slice(b"\nb\n");
        let mut lines = Lines::new(io::BufReader::with_capacity(1_000, &input[..]));
        assert!(lines.next_line().unwrap().unwrap().is_err());
        assert!(lines.line.capacity() <= 2 * MAX_LINE);
        assert_eq!(lines.next_line().unwrap().unwrap().unwrap(), b"b");
        assert!(lines.next_line().unwrap().is_none());
    }
}
