//! blktrace's binary files: one for each CPU, or all in one stream (`blktrace -o -`).
//!
//! In: `struct blk_io_trace` and `blk_io_trace2` (include/uapi/linux/blktrace_api.h; the second since 6.19), in either byte order.
//! Out: items by time over all files. Where a magic number is missing, bytes are passed over up to the next one. Missing sequence
//! numbers are events that were lost.

use std::{
    collections::BTreeMap,
    io::{self, BufRead},
};

use io_starve_common::class::Class;

use super::what_of_letter;
use crate::{
    model::observation::{DevId, Owner},
    source::trace::{Comm, Event, Item, Reader, What, class_of_parts},
};

/// `BLK_IO_TRACE_MAGIC`; the low byte is the version.
const MAGIC: u32 = 0x6561_7400;
/// Length of the records of versions 7 and 8.
const LENGTHS: [(u8, usize); 2] = [(7, 48), (8, 64)];
/// Categories, `BLK_TC_*`, after a shift by [`SHIFT`].
const WRITE: u64 = 1 << 1;
const FLUSH: u64 = 1 << 2;
const SYNC: u64 = 1 << 3;
const PC: u64 = 1 << 9;
const NOTIFY: u64 = 1 << 10;
const DISCARD: u64 = 1 << 13;
const FUA: u64 = 1 << 15;
const SHIFT: u32 = 16;
/// `__BLK_TA_CGROUP`: the data after the record begins with the cgroup's id.
const CGROUP: u64 = 1 << 8;
/// Actions by number, `__BLK_TA_*`, as the letters of blkparse.
const LETTERS: [(u64, u8); 9] = [
    (1, b'Q'),
    (2, b'M'),
    (3, b'F'),
    (4, b'G'),
    (6, b'R'),
    (7, b'D'),
    (8, b'C'),
    (12, b'I'),
    (13, b'X'),
];
/// Names of threads that are kept; blktrace tells each once.
const MAX_NAMES: usize = 65_536;

/// True for the first bytes of a record.
pub fn is_typical(start: &[u8]) -> bool {
    start
        .first_chunk()
        .is_some_and(|magic| Order::of(*magic).is_some())
}

/// In which order the bytes of numbers stand: that of the machine that recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Order and length of a record with this magic number.
    fn of(magic: [u8; 4]) -> Option<(Order, usize)> {
        let of = |magic: u32| {
            let version = LENGTHS.iter().find(|(v, _)| MAGIC | u32::from(*v) == magic);
            version.map(|(_, length)| *length)
        };
        of(u32::from_le_bytes(magic))
            .map(|length| (Order::Little, length))
            .or_else(|| of(u32::from_be_bytes(magic)).map(|length| (Order::Big, length)))
    }

    fn number(self, bytes: &[u8]) -> u64 {
        let add = |n: u64, b: &u8| n << 8 | u64::from(*b);
        match self {
            Order::Little => bytes.iter().rev().fold(0, add),
            Order::Big => bytes.iter().fold(0, add),
        }
    }
}

/// A record with its data.
#[derive(Debug)]
struct Record {
    order: Order,
    sequence: u32,
    ns: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    pid: u32,
    device: u32,
    cpu: u32,
    data: Vec<u8>,
}

impl Record {
    fn has(&self, category: u64) -> bool {
        self.action >> SHIFT & category != 0
    }
}

/// The records of one file.
struct Records<R> {
    input: R,
    /// A magic number that was read ahead.
    magic: Option<[u8; 4]>,
}

/// What stands in a file.
enum Found {
    Record(Record),
    /// Bytes that are no record were passed over.
    Garbage,
}

impl<R: BufRead> Records<R> {
    fn next_record(&mut self) -> io::Result<Option<Found>> {
        let mut magic = [0u8; 4];
        match self.magic.take() {
            Some(ahead) => magic = ahead,
            None if !self.fill(&mut magic)? => return Ok(None),
            None => {}
        }
        let Some((order, length)) = Order::of(magic) else {
            self.pass_over(magic)?;
            return Ok(Some(Found::Garbage));
        };
        let mut record = [0u8; 64];
        if !self.fill(&mut record[4..length])? {
            return Ok(None);
        }
        let n = |from: usize, length: usize| order.number(&record[from..from + length]);
        let [action, pid, device, cpu, data] = if length == 48 {
            [n(28, 4), n(32, 4), n(36, 4), n(40, 4), n(46, 2)]
        } else {
            [n(32, 8), n(28, 4), n(40, 4), n(44, 4), n(50, 2)]
        };
        let mut record = Record {
            order,
            sequence: n(4, 4) as u32,
            ns: n(8, 8),
            sector: n(16, 8),
            bytes: n(24, 4) as u32,
            action,
            pid: pid as u32,
            device: device as u32,
            cpu: cpu as u32,
            data: vec![0; data as usize],
        };
        if !self.fill(&mut record.data)? {
            return Ok(None);
        }
        Ok(Some(Found::Record(record)))
    }

    /// False at the end of the file, which may be in the middle of a record.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        match self.input.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Goes on to the next magic number.
    fn pass_over(&mut self, mut last: [u8; 4]) -> io::Result<()> {
        let mut byte = [0u8];
        while self.fill(&mut byte)? {
            last = [last[1], last[2], last[3], byte[0]];
            if Order::of(last).is_some() {
                self.magic = Some(last);
                break;
            }
        }
        Ok(())
    }
}

/// Reads the files of one recording together.
pub struct Blktrace<R> {
    files: Vec<Records<R>>,
    /// The next record of each file, by time and file.
    next: BTreeMap<(u64, usize), Record>,
    /// Items that are due before those.
    due: Vec<Item>,
    begun: bool,
    names: BTreeMap<u32, Comm>,
    /// The last sequence number of each device and CPU.
    sequences: BTreeMap<(u32, u32), u32>,
}

impl<R: BufRead> Blktrace<R> {
    /// Reads from these files.
    pub fn new(files: impl IntoIterator<Item = R>) -> Blktrace<R> {
        Blktrace {
            files: files
                .into_iter()
                .map(|input| Records { input, magic: None })
                .collect(),
            next: BTreeMap::new(),
            due: Vec::new(),
            begun: false,
            names: BTreeMap::new(),
            sequences: BTreeMap::new(),
        }
    }

    /// Reads the next event of a file; names and other notes on the way are taken in.
    fn advance(&mut self, file: usize) -> io::Result<()> {
        loop {
            let Some(records) = self.files.get_mut(file) else {
                return Ok(());
            };
            match records.next_record()? {
                None => return Ok(()),
                Some(Found::Garbage) => self.due.push(Item::Unreadable),
                Some(Found::Record(r)) if r.has(NOTIFY) => self.note(&r),
                Some(Found::Record(r)) => {
                    self.next.insert((r.ns, file), r);
                    return Ok(());
                }
            }
        }
    }

    /// `BLK_TN_PROCESS` and `BLK_TN_TIMESTAMP`; messages are foreign.
    fn note(&mut self, r: &Record) {
        match r.action & 0xff {
            0 => {
                if self.names.len() >= MAX_NAMES {
                    self.names.clear();
                }
                let name = r.data.split(|b| *b == 0).next().unwrap_or_default();
                self.names.insert(r.pid, Comm::new(name));
            }
            1 if r.data.len() >= 8 => {
                let seconds = r.order.number(&r.data[..4]) as i64;
                let ns = r.order.number(&r.data[4..8]) as i64;
                self.due.push(Item::Wall {
                    ns: r.ns,
                    wall_ns: seconds * 1_000_000_000 + ns,
                });
            }
            _ => self.due.push(Item::Foreign),
        }
    }

    /// A gap in the numbers that the kernel gives the events of a device on a CPU. ftrace's `bin` option gives none.
    fn missing(&mut self, r: &Record) -> Option<Item> {
        if r.sequence == 0 {
            return None;
        }
        let last = self.sequences.insert((r.device, r.cpu), r.sequence)?;
        let missing = r.sequence.wrapping_sub(last).wrapping_sub(1);
        // One that goes back is out of order, which is no loss.
        (1..1 << 31)
            .contains(&missing)
            .then_some(Item::Lost(Some(u64::from(missing))))
    }

    fn item(&self, r: &Record) -> Item {
        let number = r.action & 0xff;
        let letter = LETTERS.iter().find(|(n, _)| *n == number);
        let Some(what) = letter.and_then(|(_, letter)| what_of_letter(*letter)) else {
            return Item::Foreign;
        };
        let with_cgroup = r.action & CGROUP != 0 && r.data.len() >= 8;
        let (owner, data) = match with_cgroup {
            true => (Owner::Cgroup(r.order.number(&r.data[..8])), &r.data[8..]),
            false => (Owner::Unknown, &r.data[..]),
        };
        let mut sectors = u64::from(r.bytes >> 9);
        if what == What::Split {
            // Where the rest begins, always in big-endian order.
            let Some(rest) = data.first_chunk::<8>() else {
                return Item::Unreadable;
            };
            sectors = u64::from_be_bytes(*rest).saturating_sub(r.sector);
        }
        let mut sector = r.sector;
        let class = if r.has(PC) {
            (sector, sectors) = (0, 0);
            Class::Other
        } else {
            let sync = r.has(SYNC) || r.has(FUA);
            class_of_parts(
                r.has(WRITE),
                r.has(FLUSH),
                r.has(DISCARD),
                sync,
                r.bytes > 0,
            )
        };
        Item::Event(Event {
            ns: r.ns,
            what,
            dev: DevId(r.device),
            class,
            sector,
            sectors,
            idle_prio: false,
            owner,
            tid: r.pid,
            comm: self.names.get(&r.pid).copied().unwrap_or_default(),
        })
    }
}

impl<R: BufRead> Reader for Blktrace<R> {
    fn next_item(&mut self) -> io::Result<Option<Item>> {
        if !self.begun {
            self.begun = true;
            for file in 0..self.files.len() {
                self.advance(file)?;
            }
        }
        if let Some(item) = self.due.pop() {
            return Ok(Some(item));
        }
        let Some(((_, file), record)) = self.next.pop_first() else {
            return Ok(None);
        };
        let item = self.item(&record);
        let missing = self.missing(&record);
        // A file that cannot be read any further says so when its turn comes, after this event.
        self.advance(file)?;
        Ok(Some(match missing {
            Some(lost) => {
                self.due.push(item);
                lost
            }
            None => item,
        }))
    }

    fn name(&self) -> &'static str {
        "blktrace"
    }
}

#[cfg(test)]
mod tests;
