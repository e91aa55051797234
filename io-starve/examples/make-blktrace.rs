//! Writes a blktrace file of any length, to measure how fast traces are read: `make-blktrace EVENTS FILE`.
//!
//! Two CPUs, a disk with up to 64 requests in flight, reads and sync and async writes at random places; every eighth bio is merged. The
//! same number makes the same file.

use std::{
    collections::VecDeque,
    env,
    fs::File,
    io::{self, BufWriter, Write},
};

/// `BLK_IO_TRACE_MAGIC | 7` (include/uapi/linux/blktrace_api.h).
const MAGIC: u32 = 0x6561_7407;
/// Requests in flight at most.
const DEPTH: usize = 64;
/// Actions, `__BLK_TA_*`.
const QUEUE: u32 = 1;
const BACK_MERGE: u32 = 2;
const GET_REQUEST: u32 = 4;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
const INSERT: u32 = 12;
/// Categories, `BLK_TC_*`, in the upper half of the action.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const SYNC: u32 = 1 << 19;

struct Trace<W> {
    out: W,
    ns: u64,
    sequences: [u32; 2],
    left: u64,
    random: u64,
}

#[derive(Clone, Copy)]
struct Request {
    category: u32,
    sector: u64,
    bytes: u32,
    pid: u32,
}

impl<W: Write> Trace<W> {
    /// xorshift64: enough to scatter sectors.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// One record of version 7, 48 bytes.
    fn record(&mut self, action: u32, r: Request) -> io::Result<()> {
        self.ns += 1_000 + self.random(4_000);
        let cpu = self.random(2) as usize;
        self.sequences[cpu] += 1;
        let mut record = [0u8; 48];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            record[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&self.sequences[cpu].to_le_bytes());
        put(&self.ns.to_le_bytes());
        put(&r.sector.to_le_bytes());
        put(&r.bytes.to_le_bytes());
        put(&(action | r.category).to_le_bytes());
        put(&r.pid.to_le_bytes());
        // 8:0
        put(&(8u32 << 20).to_le_bytes());
        put(&(cpu as u32).to_le_bytes());
        self.left = self.left.saturating_sub(1);
        self.out.write_all(&record)
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [events, file] = args.as_slice() else {
        return Err(io::Error::other("usage: make-blktrace EVENTS FILE"));
    };
    let mut trace = Trace {
        out: BufWriter::new(File::create(file)?),
        ns: 1_000_000_000,
        sequences: [0; 2],
        left: events.parse().map_err(io::Error::other)?,
        random: 0x9e37_79b9_7f4a_7c15,
    };
    let mut queued: VecDeque<Request> = VecDeque::new();
    let mut issued: Vec<Request> = Vec::new();
    while trace.left > 0 || !queued.is_empty() || !issued.is_empty() {
        let in_flight = queued.len() + issued.len();
        match trace.random(3) {
            0 if trace.left > 0 && in_flight < DEPTH => {
                let category = [READ | SYNC, WRITE | SYNC, WRITE][trace.random(3) as usize];
                // Sectors of their own, so that every merge and match is the intended one.
                let sector = trace.random(1 << 28) * 64;
                let pid = 1_000 + trace.random(8) as u32;
                let mut r = Request {
                    category,
                    sector,
                    bytes: 4_096,
                    pid,
                };
                trace.record(QUEUE, r)?;
                trace.record(GET_REQUEST, r)?;
                trace.record(INSERT, r)?;
                if trace.random(8) == 0 {
                    let more = Request {
                        sector: sector + 8,
                        ..r
                    };
                    trace.record(QUEUE, more)?;
                    trace.record(BACK_MERGE, more)?;
                    r.bytes += more.bytes;
                }
                queued.push_back(r);
            }
            1 if issued.len() < 32 => {
                if let Some(r) = queued.pop_front() {
                    trace.record(ISSUE, r)?;
                    issued.push(r);
                }
            }
            _ if !issued.is_empty() => {
                let done = trace.random(issued.len() as u64) as usize;
                let r = issued.swap_remove(done);
                trace.record(COMPLETE, r)?;
            }
            _ => {}
        }
    }
    trace.out.flush()
}
