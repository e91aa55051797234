//! Text of blkparse: its default format, and formats of `-f` that hold device, time, action, letters and sectors in this order of
//! sense: whatever comes before the action is told by its looks. ftrace's own `blk` tracer prints the same after its time.
//!
//! In: lines. Out: items. blkparse's summary at the end is foreign.

use std::io::{self, BufRead};

use io_starve_common::class::Class;

use super::what_of_letter;
use crate::{
    model::observation::{DevId, Owner},
    source::{
        lines::{Lines, Words, device, number, seconds},
        trace::{Comm, Event, Item, Reader, What, class_of_letters},
    },
};

/// Fields that may come before the action: device, CPU, sequence, time in one or two forms, process, name.
const MAX_FIELDS: usize = 10;

/// Reads text of blkparse.
pub struct Blkparse<R> {
    lines: Lines<R>,
}

impl<R: BufRead> Blkparse<R> {
    /// Reads lines from here.
    pub fn new(input: R) -> Blkparse<R> {
        Blkparse {
            lines: Lines::new(input),
        }
    }
}

impl<R: BufRead> Reader for Blkparse<R> {
    fn next_item(&mut self) -> io::Result<Option<Item>> {
        loop {
            let whole = match self.lines.next_line()? {
                None => return Ok(None),
                Some(Err(_too_long)) => return Ok(Some(Item::Foreign)),
                Some(Ok(line)) if line.trim_ascii().is_empty() => continue,
                Some(Ok(line)) => parse(line),
            };
            // The last number of a line that has no end may be cut.
            return Ok(Some(match whole {
                (Item::Event(_), true) if self.lines.is_cut() => Item::Unreadable,
                (item, _) => item,
            }));
        }
    }

    fn name(&self) -> &'static str {
        "text of blkparse"
    }
}

/// True for a line that only blkparse writes.
pub fn is_typical(line: &[u8]) -> bool {
    matches!(parse(line).0, Item::Event(_))
}

/// What a line holds, and whether it ends with a number.
fn parse(line: &[u8]) -> (Item, bool) {
    let mut words = Words(line);
    let (mut dev, mut ns, mut last) = (None, None, None);
    for _ in 0..MAX_FIELDS {
        let Some(word) = words.next() else { break };
        if dev.is_none()
            && let Some(d) = device(word)
        {
            dev = Some(d);
        } else if ns.is_none()
            && let Some(t) = seconds(word)
        {
            ns = Some(t);
        } else if let (Some(dev), Some(ns), [letter]) = (dev, ns, word)
            && let Some(what) = what_of_letter(*letter)
        {
            let tid = last.and_then(number).and_then(|n| u32::try_from(n).ok());
            let event = after_action(&mut words, dev, ns, what, tid.unwrap_or(0));
            return (
                event.map_or(Item::Unreadable, Item::Event),
                words.0.is_empty(),
            );
        }
        last = Some(word);
    }
    (Item::Foreign, false)
}

/// The event of a line whose words go on after the action: `WS 8 + 8 [name]`. Without data there is no length, and perhaps
/// no sector.
pub(in crate::source) fn after_action(
    words: &mut Words<'_>,
    dev: DevId,
    ns: u64,
    what: What,
    tid: u32,
) -> Option<Event> {
    let mut class = class_of_letters(words.next()?)?;
    let (mut sector, mut sectors) = (0, 0);
    if let Some(n) = words.peek().and_then(number) {
        words.next();
        sector = n;
        match words.peek() {
            Some(b"+") if what != What::Split => {
                words.next();
                sectors = number(words.next()?)?;
            }
            Some(b"/") if what == What::Split => {
                words.next();
                sectors = number(words.next()?)?.saturating_sub(sector);
            }
            // A command in parentheses: passthrough, and the number was its bytes.
            Some([b'(', ..]) => (class, sector) = (Class::Other, 0),
            Some([b'[', ..]) | None => {}
            Some(_) => return None,
        }
    } else if words.peek().is_some_and(|w| !w.starts_with(b"[")) {
        return None;
    }
    if what == What::Split && sectors == 0 {
        return None;
    }
    // The name stands at the end, but for completions, which have the error there.
    let name = match what {
        What::Complete => None,
        _ => words.0.iter().position(|b| *b == b'[').and_then(|open| {
            let close = words.0.iter().rposition(|b| *b == b']')?;
            words.0.get(open + 1..close)
        }),
    };
    Some(Event {
        ns,
        what,
        dev,
        class,
        sector,
        sectors,
        idle_prio: false,
        owner: Owner::Unknown,
        tid,
        comm: name.map(Comm::new).unwrap_or_default(),
    })
}

/// The event after `7,0` in what the `blk` tracer prints: `  Q  WS 0 + 8 [dd]`.
pub(in crate::source) fn after_device(
    words: &mut Words<'_>,
    dev: DevId,
    ns: u64,
    (tid, comm): (u32, Comm),
) -> Option<Item> {
    let Some([letter]) = words.next() else {
        return Some(Item::Foreign);
    };
    let Some(what) = what_of_letter(*letter) else {
        return Some(Item::Foreign);
    };
    let event = after_action(words, dev, ns, what, tid).map(|e| Event { comm, ..e });
    Some(
        event
            .filter(|_| !words.0.is_empty())
            .map_or(Item::Unreadable, Item::Event),
    )
}

#[cfg(test)]
mod tests;
