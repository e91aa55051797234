//! Lines of an input that may be anything: bounded, without the ends that systems differ in. And words and numbers in them.

use std::io::{self, BufRead};

use crate::model::observation::DevId;

/// A line longer than this is none of a trace.
const MAX_LINE: usize = 64 << 10;

/// A line was longer than any of a trace.
#[derive(Debug)]
pub struct TooLong;

/// Reads lines.
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
    is_cut: bool,
}

impl<R: BufRead> Lines<R> {
    /// Reads from here.
    pub fn new(input: R) -> Lines<R> {
        Lines {
            input,
            line: Vec::new(),
            is_cut: false,
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
            let (part, end) = match memchr::memchr(b'\n', buffer) {
                Some(at) => (&buffer[..at], at + 1),
                None => (buffer, buffer.len()),
            };
            if end == 0 && self.line.is_empty() && !too_long {
                return Ok(None);
            }
            let whole = end == 0 || end > part.len();
            self.is_cut = end == 0;
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

    /// True when the last line had no end: the input may have been cut in it.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// Words between spaces.
pub struct Words<'a>(pub &'a [u8]);

impl<'a> Words<'a> {
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_start();
        if text.is_empty() {
            return None;
        }
        let end = text.iter().position(|b| *b == b' ').unwrap_or(text.len());
        self.0 = &text[end..];
        Some(&text[..end])
    }

    /// The next word, which stays.
    pub fn peek(&self) -> Option<&'a [u8]> {
        Words(self.0).next()
    }
}

/// A number in decimal digits, nothing else.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// `12.345678` or with nine digits, in ns.
pub fn seconds(stamp: &[u8]) -> Option<u64> {
    let dot = stamp.iter().position(|b| *b == b'.')?;
    let fraction = &stamp[dot + 1..];
    if !(3..=9).contains(&fraction.len()) {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    number(&stamp[..dot])?
        .checked_mul(1_000_000_000)?
        .checked_add(number(fraction)? * scale)
}

/// `8,16`.
pub fn device(word: &[u8]) -> Option<DevId> {
    let comma = word.iter().position(|b| *b == b',')?;
    let major = u32::try_from(number(&word[..comma])?).ok()?;
    let minor = u32::try_from(number(&word[comma + 1..])?).ok()?;
    // MINORBITS is 20 (include/linux/kdev_t.h).
    (major < 1 << 12 && minor < 1 << 20).then(|| DevId::new(major, minor))
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
