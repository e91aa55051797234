//! Text of ftrace: `trace` and `trace_pipe` of tracefs, `trace-cmd report`, `perf script`.
//!
//! In: lines. Out: items. All three print an event alike (`TP_printk` in include/trace/events/); what stands before differs
//! and is read from its end: the time, the CPU, the thread. Only clocks that count seconds are read. The tracer `blk`, which prints in the
//! words of blkparse, is read too.

use std::io::{self, BufRead};

use super::{
    blktrace::text::after_device,
    lines::{Lines, Words, device, number, seconds},
    trace::{Comm, Event, Item, Reader, What, class_of_letters},
};
use crate::model::observation::Owner;

mod fs_events;

/// Reads text of ftrace.
pub struct Ftrace<R> {
    lines: Lines<R>,
}

impl<R: BufRead> Ftrace<R> {
    /// Reads lines from here.
    pub fn new(input: R) -> Ftrace<R> {
        Ftrace {
            lines: Lines::new(input),
        }
    }
}

impl<R: BufRead> Reader for Ftrace<R> {
    fn next_item(&mut self) -> io::Result<Option<Item>> {
        loop {
            match self.lines.next_line()? {
                None => return Ok(None),
                Some(Err(_too_long)) => return Ok(Some(Item::Foreign)),
                Some(Ok(line)) => {
                    let item = parse(line);
                    // The last number of a line that has no end may be cut.
                    match item {
                        Some(Item::Fs(_)) if self.lines.is_cut() => {
                            return Ok(Some(Item::Unreadable));
                        }
                        Some(item) => return Ok(Some(item)),
                        None => {}
                    }
                }
            }
        }
    }

    fn name(&self) -> &'static str {
        "text of ftrace"
    }
}

/// What a line holds; `None` for comments and empty lines.
pub fn parse(line: &[u8]) -> Option<Item> {
    let mut from = 0;
    while let Some(at) = find(&line[from..], b"block_") {
        let at = from + at;
        if let Some((head, ns)) = before_event(&line[..at], b"block:") {
            let rest = &line[at + b"block_".len()..];
            let Some(colon) = rest.iter().position(|b| *b == b':') else {
                return Some(Item::Unreadable);
            };
            let Some(what) = What::of_name(&rest[..colon]) else {
                return Some(Item::Foreign);
            };
            let event = ns.and_then(|ns| event(head, ns, what, &rest[colon + 1..]));
            return Some(event.map_or(Item::Unreadable, Item::Event));
        }
        from = at + 1;
    }
    fs_events::parse(line)
        .or_else(|| blk_tracer(line))
        .or_else(|| other(line))
}

/// `… 12.345678:   7,0    Q  WS 0 + 8 [dd]`.
fn blk_tracer(line: &[u8]) -> Option<Item> {
    let comma = line.iter().position(|b| *b == b',')?;
    let start = line[..comma].iter().rposition(|b| *b == b' ')?;
    let (head, ns) = before_event(&line[..start], b"block:")?;
    let mut words = Words(&line[start..]);
    let dev = device(words.next()?)?;
    match ns {
        Some(ns) => after_device(&mut words, dev, ns, thread(head)),
        None => Some(Item::Unreadable),
    }
}

/// True for a line that only these programs write.
pub fn is_typical(line: &[u8]) -> bool {
    matches!(
        parse(line),
        Some(Item::Event(_) | Item::Fs(_) | Item::Unreadable)
    ) || line.starts_with(b"# tracer: nop")
        || line.starts_with(b"# entries-in-buffer/")
        || after_lost(line).is_some()
}

/// Lines without a block event.
fn other(line: &[u8]) -> Option<Item> {
    let text = trim(line);
    if text.is_empty() {
        return None;
    }
    if text.starts_with(b"##### CPU") {
        // Before this line nothing of that CPU is there: its buffer had wrapped.
        return Some(Item::Lost(None));
    }
    if let Some(entries) = text.strip_prefix(b"# entries-in-buffer/entries-written:") {
        let mut numbers = trim(entries).split(|b| matches!(b, b'/' | b' '));
        let held = numbers.next().and_then(number);
        let written = numbers.next().and_then(number);
        return match (held, written) {
            (Some(held), Some(written)) if written > held => {
                Some(Item::Overwritten(written - held))
            }
            _ => None,
        };
    }
    if text.starts_with(b"#") {
        return None;
    }
    after_lost(text).or(Some(Item::Foreign))
}

/// `CPU:1 [LOST 12 EVENTS]` of tracefs, `CPU:1 [12 EVENTS DROPPED]` of trace-cmd, `… PERF_RECORD_LOST lost 12` of perf.
fn after_lost(line: &[u8]) -> Option<Item> {
    let first_number = |text: &[u8]| {
        text.split(|b| !b.is_ascii_digit())
            .find(|t| !t.is_empty())
            .and_then(number)
    };
    if let Some(rest) = line.strip_prefix(b"CPU:") {
        let bracket = rest.iter().position(|b| *b == b'[')?;
        let says = &rest[bracket..];
        return (find(says, b"LOST").is_some() || find(says, b"DROPPED").is_some())
            .then(|| Item::Lost(first_number(says)));
    }
    let at = find(line, b"PERF_RECORD_LOST")?;
    Some(Item::Lost(first_number(&line[at..])))
}

/// What stands before an event's name: `…  12.345678: ` or `… 12.345678: block:`, as the part before the time, and the time in ns,
/// which is `None` for a clock that does not count seconds. `None` when this is no event's name.
fn before_event<'a>(text: &'a [u8], system: &[u8]) -> Option<(&'a [u8], Option<u64>)> {
    let text = text.strip_suffix(system).unwrap_or(text);
    let text = trim_end(text).strip_suffix(b":")?;
    let start = text.iter().rposition(|b| *b == b' ').map_or(0, |at| at + 1);
    let stamp = &text[start..];
    if stamp.is_empty() || !stamp.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return None;
    }
    Some((&text[..start], seconds(stamp)))
}

fn event(head: &[u8], ns: u64, what: What, rest: &[u8]) -> Option<Event> {
    let (tid, comm) = thread(head);
    let mut words = Words(rest);
    let dev = device(words.next()?)?;
    let class = class_of_letters(words.next()?)?;
    let mut word = words.next()?;
    // Bytes, and the command of a passthrough request, in parentheses.
    if !word.starts_with(b"(") && words.0.starts_with(b" (") {
        word = words.next()?;
    }
    if word.starts_with(b"(") {
        let close = word.last() == Some(&b')');
        if !close {
            let end = words.0.iter().position(|b| *b == b')')?;
            words.0 = &words.0[end + 1..];
        }
        word = words.next()?;
    }
    let sector = number(word)?;
    let sign = words.next()?;
    let count = number(words.next()?)?;
    // A number at the very end may be cut.
    if words.0.is_empty() {
        return None;
    }
    let sectors = match (what, sign) {
        (What::Split, b"/") => count.saturating_sub(sector),
        (_, b"+") => count,
        _ => return None,
    };
    Some(Event {
        ns,
        what,
        dev,
        class,
        sector,
        sectors,
        idle_prio: is_idle(trim_start(words.0)),
        owner: Owner::Unknown,
        tid,
        comm,
    })
}

/// `idle,0,7`; perf 6.1 does not know the names of the classes and prints their numbers (IOPRIO_CLASS_IDLE is 3).
fn is_idle(rest: &[u8]) -> bool {
    rest.starts_with(b"idle,") || rest.starts_with(b"0x3,")
}

/// `  fio-797     [000] .N... ` or `fio-797  (  797) [000] .... ` or `fio   797/798 [000] ` or one of these without the CPU:
/// thread id and name.
fn thread(head: &[u8]) -> (u32, Comm) {
    let none = (0, Comm::default());
    // Whatever the name is, the last bracket with only digits in it is the CPU.
    let cpu = head.windows(2).enumerate().rev().find_map(|(i, w)| {
        let inside = head.get(i + 2..)?;
        let close = inside.iter().position(|b| *b == b']')?;
        (w == b" [" && close > 0 && inside[..close].iter().all(u8::is_ascii_digit)).then_some(i)
    });
    let mut head = trim(&head[..cpu.unwrap_or(head.len())]);
    // trace-cmd's latency format has the CPU and the flags in one word: `fio-797    0.N..1`.
    if cpu.is_none()
        && let Some(space) = head.iter().rposition(|b| *b == b' ')
        && head[space + 1..].first().is_some_and(u8::is_ascii_digit)
        && head[space + 1..].contains(&b'.')
    {
        head = trim_end(&head[..space]);
    }
    // The process, where tracefs is asked to print it (option record-tgid).
    if head.ends_with(b")")
        && let Some(open) = head.iter().rposition(|b| *b == b'(')
    {
        head = trim_end(&head[..open]);
    }
    let digits = head.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let Some(tid) = number(&head[head.len() - digits..]).and_then(|n| u32::try_from(n).ok()) else {
        return none;
    };
    let mut name = &head[..head.len() - digits];
    name = match name {
        [name @ .., b'-'] => name,
        // perf prints process and thread.
        [name @ .., b'/'] => {
            let process = name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
            &name[..name.len() - process]
        }
        name => name,
    };
    (tid, Comm::new(trim(name)))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

fn trim_start(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

fn trim_end(text: &[u8]) -> &[u8] {
    text.trim_ascii_end()
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

#[cfg(test)]
mod tests;
