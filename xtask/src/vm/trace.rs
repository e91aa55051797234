//! The kernel's block trace as text, read back.
//!
//! In: the `trace` file of tracefs with the block events of one device. Out: [`Event`]s in the order of time. This is the other
//! side of every comparison, so it shares no code with io-starve but the names of the classes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use io_starve_common::class::Class;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A bio was submitted.
    BioQueue,
    /// A request was allocated for a bio.
    GetRq,
    /// A bio was added to the end of a request.
    BackMerge,
    /// A bio was added to the front of a request.
    FrontMerge,
    /// A bio was cut; `sectors` is where the rest begins.
    Split,
    /// A request was inserted.
    Insert,
    /// A request was issued.
    Issue,
    /// A request was given back.
    Requeue,
    /// A request was merged into another.
    Merge,
    /// A request completed, perhaps in part.
    Complete,
}

const NAMES: &[(&str, What)] = &[
    ("block_bio_queue", What::BioQueue),
    ("block_getrq", What::GetRq),
    ("block_bio_backmerge", What::BackMerge),
    ("block_bio_frontmerge", What::FrontMerge),
    ("block_split", What::Split),
    ("block_rq_insert", What::Insert),
    ("block_rq_issue", What::Issue),
    ("block_rq_requeue", What::Requeue),
    ("block_rq_merge", What::Merge),
    ("block_rq_complete", What::Complete),
];

/// One line of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, by the trace's clock (monotonic). ns.
    pub ns: u64,
    /// What.
    pub what: What,
    /// Class, decoded from the letters.
    pub class: Class,
    /// Marked as metadata or read-ahead.
    pub marked: bool,
    /// First sector.
    pub sector: u64,
    /// Sectors (for [`What::Split`], where the rest begins).
    pub sectors: u64,
}

impl Event {
    /// The sector after the last.
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }
}

/// Reads a whole trace. Lines of other events are passed over; a block event that cannot be read is an error, because
/// counts are compared.
pub fn parse(text: &str) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        if let Some(event) = parse_line(line).with_context(|| format!("trace line {line:?}"))? {
            events.push(event);
        }
    }
    Ok(events)
}

/// `… 12.345678: block_rq_issue: 8,0 WS 4096 () 123 + 8 be,0,4 [comm]`; the priority is there from 6.10 on.
fn parse_line(line: &str) -> Result<Option<Event>> {
    let Some((head, rest)) = line.split_once(": block_") else {
        return Ok(None);
    };
    let (name, rest) = rest.split_once(": ").context("no event name")?;
    let Some((_, what)) = NAMES
        .iter()
        .find(|(n, _)| n.strip_prefix("block_") == Some(name))
    else {
        return Ok(None);
    };
    let stamp = head.rsplit(' ').next().unwrap_or_default();
    let (s, us) = stamp.split_once('.').context("no time")?;
    if us.len() != 6 {
        bail!("the time is not in microseconds");
    }
    let ns = s.parse::<u64>()? * 1_000_000_000 + us.parse::<u64>()? * 1_000;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let rwbs = words.get(1).context("no letters")?;
    let sign = if *what == What::Split { "/" } else { "+" };
    let at = words
        .iter()
        .position(|w| *w == sign)
        .context("no sectors")?;
    let sector = words
        .get(at.wrapping_sub(1))
        .context("no sector")?
        .parse()?;
    let sectors = words.get(at + 1).context("no sector count")?.parse()?;
    let (class, marked) = decode(rwbs);
    Ok(Some(Event {
        ns,
        what: *what,
        class,
        marked,
        sector,
        sectors,
    }))
}

/// Class and mark from the letters of `blk_fill_rwbs` (kernel/trace/blktrace.c): an `F` for a flush before, the operation in one or
/// two letters, then `F` for FUA, `A` for read-ahead, `S` for sync, `M` for metadata, `U` for atomic.
fn decode(rwbs: &str) -> (Class, bool) {
    let letters = rwbs.as_bytes();
    let preflush = letters.first() == Some(&b'F') && letters.len() > 1;
    let rest = &letters[usize::from(preflush)..];
    let (op, flags) = match rest {
        [b'W', b'Z', flags @ ..] => (Class::Other, flags),
        [b'Z', b'A', flags @ ..] => (Class::AsyncWrite, flags),
        [b'Z', _, flags @ ..] => (Class::Other, flags),
        [b'D', b'E', flags @ ..] | [b'D', flags @ ..] => (Class::Discard, flags),
        [b'W', flags @ ..] => (Class::AsyncWrite, flags),
        [b'R', flags @ ..] => (Class::SyncRead, flags),
        [b'F', flags @ ..] => (Class::Flush, flags),
        [_, flags @ ..] => (Class::Other, flags),
        [] => (Class::Other, &[][..]),
    };
    let sync = preflush || flags.contains(&b'S') || flags.contains(&b'F');
    let class = if op == Class::AsyncWrite && sync {
        Class::SyncWrite
    } else {
        op
    };
    (class, flags.contains(&b'M') || flags.contains(&b'A'))
}

/// Events of each kind and class.
pub fn count(events: &[Event]) -> BTreeMap<(What, Class), u64> {
    let mut counts = BTreeMap::new();
    for e in events {
        *counts.entry((e.what, e.class)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_old_and_new_kernels_are_read() {
        let text = "# tracer: nop\n\
            \x20            fio-232     [000] .N.1.     9.001953: block_rq_insert: 8,0 R 4096 () 48578 + 8 be,0,4 [fio]\n\
            \x20 kworker/u4:2-12    [001] ....    10.000001: block_rq_issue: 8,0 WS 4096 () 100 + 8 [a + b: c]\n\
            \x20         <idle>-0   [001] ..s.    10.000002: block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]\n\
            \x20            fio-1   [001] ..s.    10.000003: block_split: 8,0 W 0 / 1280 [fio]\n\
            \x20            fio-1   [001] ..s.    10.000003: block_touch_buffer: 8,0 sector=1 size=2\n";
        let e = parse(text).unwrap();
        assert_eq!(e.len(), 4);
        assert_eq!(
            (e[0].ns, e[0].what, e[0].class),
            (9_001_953_000, What::Insert, Class::SyncRead)
        );
        assert_eq!((e[0].sector, e[0].end()), (48_578, 48_586));
        assert_eq!(
            (e[1].what, e[1].class, e[1].sectors),
            (What::Issue, Class::SyncWrite, 8)
        );
        assert_eq!((e[2].class, e[2].sectors), (Class::Flush, 0));
        assert_eq!(e[2].end(), u64::MAX);
        assert_eq!((e[3].what, e[3].sectors), (What::Split, 1280));
    }

    #[test]
    fn a_block_event_that_cannot_be_read_is_an_error() {
        assert!(parse("x-1 [000] . 9.001953: block_rq_insert: 8,0 R 4096 ()\n").is_err());
        assert!(parse("x-1 [000] . 9.0: block_rq_insert: 8,0 R 4096 () 1 + 8 [x]\n").is_err());
    }

    #[test]
    fn letters_become_classes() {
        for (letters, class, marked) in [
            ("R", Class::SyncRead, false),
            ("RAM", Class::SyncRead, true),
            ("W", Class::AsyncWrite, false),
            ("WM", Class::AsyncWrite, true),
            ("WS", Class::SyncWrite, false),
            ("WFS", Class::SyncWrite, false),
            ("WF", Class::SyncWrite, false),
            ("FWFSM", Class::SyncWrite, true),
            ("FWS", Class::SyncWrite, false),
            ("FF", Class::Flush, false),
            ("F", Class::Flush, false),
            ("D", Class::Discard, false),
            ("DES", Class::Discard, false),
            ("WZ", Class::Other, false),
            ("N", Class::Other, false),
        ] {
            assert_eq!(decode(letters), (class, marked), "{letters}");
        }
    }
}
