//! Requests by disk and sector: what a live run finds by the request's address.
//!
//! In: events in order. Out: counters in a [`Tally`], and what is in flight at a tick. The life itself is
//! `io_starve_common::request::step`, the same as in the kernel programs. Rules of this file only say whose life an event
//! belongs to: the same disk, operation and first sector; of several the one whose length fits, then the oldest, and
//! that a choice had to be made is counted. Requests that grew by merges are followed, whether or not the merges were recorded.
//!
//! No ghosts: after a gap nothing that was in flight is believed until an event proves it, since its end may be in the gap.

use std::collections::BTreeMap;

use io_starve_common::{
    class::Class,
    request::{Event as Step, F_IDLE_PRIO, F_REQUEUED, Life, step},
    wire::LossKind,
};

use super::{
    bios::{Bios, Moment, Partitions},
    event::{Comm, Event, What},
    notes::Notes,
    tally::Tally,
};
use crate::model::{
    MAX_DEVICES,
    observation::{DevId, GroupKey, Stage},
};

/// Requests in flight, and bios before them, that are followed at most; 32 MiB of them. As many as a live run has slots.
const MAX_IN_FLIGHT: usize = 131_072;
/// A completion this soon after a disk's first event, in ns, is taken for one of a request that began before the trace.
const EARLIER_NS: u64 = 10_000_000_000;
/// Where flushes and passthrough commands are kept: they have no sector, and the kernel prints 0 or -1 (blk_rq_trace_sector).
const NOWHERE: u64 = u64::MAX;
/// Bytes of a sector, as a shift.
const SECTOR: u32 = 9;

/// What must agree between two events of one request. A class need not: the kernel strips flags on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Flush,
    Discard,
    Other,
}

impl Op {
    const fn of(class: Class) -> Op {
        match class {
            Class::SyncRead => Op::Read,
            Class::SyncWrite | Class::AsyncWrite => Op::Write,
            Class::Flush => Op::Flush,
            Class::Discard => Op::Discard,
            Class::Other => Op::Other,
        }
    }
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub life: Life,
    pub key: GroupKey,
    /// First sector that has not completed.
    pub sector: u64,
    /// How many are left.
    pub sectors: u64,
    pub tid: u32,
    pub comm: Comm,
    /// Number of the event by which it entered this stage.
    order: u64,
    /// Inserted anew since it was given back.
    reinserted: bool,
}

impl Request {
    fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }
}

/// First sector, and a number that grows: the oldest at a sector comes first.
pub(super) type Place = (u64, u64);
pub(super) type Places = BTreeMap<Place, Request>;

/// A disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub queued: Places,
    pub issued: Places,
    /// In flight before a gap, and not seen since.
    doubtful: Places,
    pub bios: Bios,
    /// Requests that left the queue for the driver, less those that came back.
    pub left_queue: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Issues of sync classes.
    pub sync_issued: u64,
    first_ns: u64,
}

impl Disk {
    /// True when it takes requests: not so a partition, or a disk made of bios only.
    pub fn has_requests(&self) -> bool {
        self.left_queue > 0 || self.completed > 0 || !self.queued.is_empty()
    }
}

/// All that is in flight.
#[derive(Debug, Default)]
pub struct Requests {
    pub(super) disks: BTreeMap<DevId, Disk>,
    /// Numbers given to places.
    order: u64,
    in_flight: usize,
    /// Requeues are in the trace.
    requeues_told: bool,
    partitions: Partitions,
}

impl Requests {
    /// Takes in an event.
    pub fn take(&mut self, e: &Event, tally: &mut Tally, notes: &mut Notes) {
        let mut e = *e;
        e.dev = self.partitions.disk_of(e.dev);
        if matches!(Op::of(e.class), Op::Flush) || (e.class == Class::Other && e.sectors == 0) {
            (e.sector, e.sectors) = (NOWHERE, 0);
        }
        if !self.disks.contains_key(&e.dev) {
            if self.disks.len() >= MAX_DEVICES {
                tally.lost(LossKind::DevicesFull, 1);
                return;
            }
            let disk = Disk {
                first_ns: e.ns,
                ..Disk::default()
            };
            self.disks.insert(e.dev, disk);
        }
        match e.what {
            What::Insert | What::Issue => self.learn_partition(&e),
            What::GetRq if !self.disks[&e.dev].has_requests() => self.partitions.started(&e),
            What::Requeue => self.requeues_told = true,
            _ => {}
        }
        self.order += 1;
        let order = self.order;
        let before = self.in_flight;
        let Some(disk) = self.disks.get_mut(&e.dev) else {
            return;
        };
        let held = disk.len();
        let mut at = At {
            disk,
            e: &e,
            order,
            full: before >= MAX_IN_FLIGHT,
            requeues_told: self.requeues_told,
            tally,
            notes,
        };
        match e.what {
            What::Insert => at.insert(),
            What::Issue => at.issue(),
            What::Requeue => at.requeue(),
            What::Merge => at.merge(),
            What::Complete => at.complete(),
            What::BioQueue | What::Split | What::BioComplete | What::GetRq => at.bio(),
            What::BackMerge | What::FrontMerge => {
                at.bio();
                at.grow();
            }
        }
        let holds = at.disk.len();
        self.in_flight = (before + holds).saturating_sub(held);
    }

    /// Events were lost: nothing that is in flight is believed any more.
    pub fn doubt(&mut self, tally: &mut Tally) {
        for disk in self.disks.values_mut() {
            if disk.doubtful.len() >= MAX_IN_FLIGHT / 2 {
                disk.doubtful.clear();
            }
            let all = std::mem::take(&mut disk.queued).into_iter();
            for (place, request) in all.chain(std::mem::take(&mut disk.issued)) {
                tally.group(request.key).expired += 1;
                disk.doubtful.insert(place, request);
            }
            let bios = disk.bios.clear();
            tally.lost(LossKind::AdmissionExpired, bios);
        }
        self.in_flight = self.disks.values().map(Disk::len).sum();
    }

    /// True when something is in flight.
    pub fn any(&self) -> bool {
        self.disks
            .values()
            .any(|d| !d.queued.is_empty() || !d.issued.is_empty() || d.bios.any())
    }

    /// Kernels from 5.11 on name the partition in events of bios and the disk in those of requests.
    fn learn_partition(&mut self, e: &Event) {
        let takes_none = |dev: &DevId| self.disks.get(dev).is_none_or(|d| !d.has_requests());
        let Some(partition) = self.partitions.learn(e, takes_none) else {
            return;
        };
        if let Some(part) = self.disks.remove(&partition)
            && let Some(disk) = self.disks.get_mut(&e.dev)
        {
            disk.bios.join(part.bios, e.dev);
        }
    }
}

impl Disk {
    fn len(&self) -> usize {
        self.queued.len() + self.issued.len() + self.doubtful.len() + self.bios.len()
    }
}

/// One event at its disk.
struct At<'a> {
    disk: &'a mut Disk,
    e: &'a Event,
    order: u64,
    full: bool,
    requeues_told: bool,
    tally: &'a mut Tally,
    notes: &'a mut Notes,
}

impl At<'_> {
    fn insert(&mut self) {
        let e = self.e;
        if let Some(mut r) = self.given_back_untold() {
            self.into_queue(&mut r);
        }
        let given_back = |r: &Request| {
            let back = r.life.flags & F_REQUEUED != 0 && !r.reinserted;
            u8::from(back && r.sectors == e.sectors)
        };
        if let Some((place, 1, _)) = best(&self.disk.queued, e, given_back)
            && let Some(r) = self.disk.queued.get_mut(&place)
        {
            r.reinserted = true;
            let start_ns = r.life.start_ns;
            step(
                &mut r.life,
                Step::Insert {
                    now: e.ns,
                    start_ns,
                },
            );
            let key = r.key;
            self.tally.group(key).inserts += 1;
            return;
        }
        // What was in doubt here has ended: its place is taken anew.
        self.from_doubt(|r| r.sectors == e.sectors);
        let step_ = Step::Insert {
            now: e.ns,
            start_ns: e.ns,
        };
        if let Some(mut r) = self.begin(step_) {
            let key = r.key;
            self.tally.group(key).inserts += 1;
            self.into_queue(&mut r);
        }
    }

    fn issue(&mut self) {
        let e = self.e;
        let fits = |r: &Request| {
            u8::from(r.sectors <= e.sectors) * 4
                + u8::from(r.sectors == e.sectors) * 2
                + u8::from(r.key.class == e.class)
        };
        let found = best(&self.disk.queued, e, fits).filter(|(_, score, _)| *score >= 4);
        let place = match found {
            Some((place, _, several)) => {
                self.notes.ambiguous += u64::from(several);
                Some(place)
            }
            // A bio that was put before it moved its beginning, and nobody recorded that.
            None => self.within(e.sector).map(|(place, _)| place),
        };
        let mut request = place
            .and_then(|p| self.disk.queued.remove(&p))
            .or_else(|| self.given_back_untold())
            .or_else(|| self.proven(|r| r.sectors <= e.sectors));
        let start_ns = request.map_or(e.ns, |r| r.life.start_ns);
        let event = Step::Issue {
            now: e.ns,
            start_ns,
            bytes: bytes(e.sectors),
        };
        match &mut request {
            Some(r) => {
                step(&mut r.life, event);
            }
            None => request = self.begin(event),
        }
        let Some(mut r) = request else { return };
        let known_end = r.sector.saturating_add(r.sectors);
        (r.sector, r.sectors) = (e.sector, e.sectors);
        if place.is_some() {
            self.absorb(known_end.min(r.end()), &r);
        }
        self.disk.left_queue += 1;
        self.disk.sync_issued += u64::from(r.key.class.is_sync());
        r.reinserted = false;
        self.tally.issue(r.key, e.ns);
        r.order = self.order;
        self.disk.issued.insert((r.sector, r.order), r);
    }

    fn requeue(&mut self) {
        let e = self.e;
        let fits =
            |r: &Request| u8::from(r.sectors == e.sectors) * 2 + u8::from(r.key.class == e.class);
        let found = best(&self.disk.issued, e, fits);
        let known = found.and_then(|(place, _, several)| {
            self.notes.ambiguous += u64::from(several);
            self.disk.issued.remove(&place)
        });
        let Some(mut r) = known.or_else(|| self.proven(|r| r.sectors == e.sectors)) else {
            // The driver may refuse a request before it counts as issued.
            let key = self.tally.key(self.key());
            self.tally.group(key).requeues += 1;
            return;
        };
        if step(&mut r.life, Step::Requeue).went_back {
            self.disk.left_queue = self.disk.left_queue.saturating_sub(1);
        }
        self.tally.group(r.key).requeues += 1;
        self.into_queue(&mut r);
    }

    /// Where nobody recorded requeues, a request that is in the device and comes again from where the kernel itself works, or from
    /// its own thread, was given back.
    fn given_back_untold(&mut self) -> Option<Request> {
        let e = self.e;
        if self.requeues_told {
            return None;
        }
        let again = |r: &Request| {
            let by_kernel = e.comm.is_kworker() || (e.tid != 0 && e.tid == r.tid);
            u8::from(by_kernel && r.sectors == e.sectors)
        };
        let (place, ..) = best(&self.disk.issued, e, again).filter(|(_, score, _)| *score > 0)?;
        let mut r = self.disk.issued.remove(&place)?;
        self.notes.ambiguous += 1;
        step(&mut r.life, Step::Requeue);
        self.disk.left_queue = self.disk.left_queue.saturating_sub(1);
        Some(r)
    }

    /// The request that is told disappears in the one before it. One that was never inserted is no loss: it was on its way.
    fn merge(&mut self) {
        let e = self.e;
        let fits =
            |r: &Request| u8::from(r.sectors == e.sectors) * 2 + u8::from(r.key.class == e.class);
        if let Some((place, _, several)) = best(&self.disk.queued, e, fits)
            && let Some(mut r) = self.disk.queued.remove(&place)
        {
            self.notes.ambiguous += u64::from(several);
            step(&mut r.life, Step::Merge);
            self.tally.group(r.key).merged += 1;
        }
        self.grow();
    }

    fn complete(&mut self) {
        let e = self.e;
        let fits = |r: &Request| {
            u8::from(r.sectors >= e.sectors) * 4
                + u8::from(r.sectors == e.sectors) * 2
                + u8::from(r.key.class == e.class)
        };
        // The flush machinery completes writes once more, without data, where their data ended.
        if e.sectors == 0 && e.sector != NOWHERE {
            return;
        }
        let found = best(&self.disk.issued, e, fits).filter(|(_, score, _)| *score >= 4);
        let mut request = found.and_then(|(place, _, several)| {
            self.notes.ambiguous += u64::from(several);
            self.disk.issued.remove(&place)
        });
        if request.is_none() {
            // Ended by the block layer, or its issue was not recorded.
            let whole = |r: &Request| u8::from(r.sectors == e.sectors);
            request = best(&self.disk.queued, e, whole)
                .filter(|(_, score, _)| *score > 0)
                .and_then(|(place, ..)| self.disk.queued.remove(&place));
        }
        let request = request.or_else(|| self.proven(|r| r.sectors >= e.sectors));
        let Some(mut r) = request else {
            self.unmatched();
            return;
        };
        let fx = step(
            &mut r.life,
            Step::Complete {
                now: e.ns,
                done: bytes(e.sectors),
                left: bytes(r.sectors),
            },
        );
        if fx.partial {
            r.sector = r.sector.saturating_add(e.sectors);
            r.sectors = r.sectors.saturating_sub(e.sectors);
            self.disk.issued.insert((r.sector, r.order), r);
            return;
        }
        if fx.backwards {
            self.tally.lost(LossKind::ClockBackwards, 1);
        }
        self.disk.completed += 1;
        self.tally.finish(r.key, e.ns, u64::from(r.life.bytes));
        if let Some(ns) = fx.queued_ns {
            self.tally.stage(r.key, Stage::Queued, ns);
        }
        if let Some(ns) = fx.device_ns {
            self.tally.stage(r.key, Stage::Device, ns);
        }
    }

    fn unmatched(&mut self) {
        if self.e.sector == NOWHERE {
            return;
        }
        if self.e.ns.saturating_sub(self.disk.first_ns) < EARLIER_NS {
            self.notes.earlier += 1;
        } else {
            self.tally.lost(LossKind::UnmatchedCompletion, 1);
        }
    }

    fn bio(&mut self) {
        let key = self.key();
        let known = self.disk.has_requests();
        let at = Moment {
            order: self.order,
            full: self.full,
            known,
        };
        self.disk.bios.take(self.e, key, at, self.tally);
    }

    /// A queued request that ends or begins where this bio or request does takes it in.
    fn grow(&mut self) {
        let e = self.e;
        let end = e.sector.saturating_add(e.sectors);
        let op = Op::of(e.class);
        let queued = &mut self.disk.queued;
        if e.what == What::FrontMerge {
            let behind = queued
                .range((end, 0)..=(end, u64::MAX))
                .find(|(_, r)| Op::of(r.key.class) == op)
                .map(|(place, _)| *place);
            if let Some(place) = behind
                && let Some(mut r) = queued.remove(&place)
            {
                r.sector = e.sector;
                r.sectors = r.sectors.saturating_add(e.sectors);
                queued.insert((e.sector, place.1), r);
            }
            return;
        }
        // The nearest that begins before: those further off would have to overlap it.
        let before = queued
            .range_mut(..(e.sector, 0))
            .rev()
            .take(4)
            .find(|(_, r)| r.end() == e.sector && Op::of(r.key.class) == op);
        if let Some((_, r)) = before {
            r.sectors = r.sectors.saturating_add(e.sectors);
        }
    }

    /// Queued requests in the part by which an issued one has grown were merged into it, unseen.
    fn absorb(&mut self, from: u64, r: &Request) {
        let op = Op::of(r.key.class);
        let inside: Vec<Place> = self
            .disk
            .queued
            .range((from, 0)..(r.end(), 0))
            .filter(|(_, o)| o.end() <= r.end() && Op::of(o.key.class) == op)
            .map(|(place, _)| *place)
            .collect();
        for place in inside {
            if let Some(mut o) = self.disk.queued.remove(&place) {
                step(&mut o.life, Step::Merge);
                self.tally.group(o.key).merged += 1;
            }
        }
    }

    /// The first queued request inside of what is issued.
    fn within(&self, from: u64) -> Option<(Place, &Request)> {
        let (e, op) = (self.e, Op::of(self.e.class));
        let end = e.sector.saturating_add(e.sectors);
        self.disk
            .queued
            .range((from.saturating_add(1), 0)..(end.max(from.saturating_add(1)), 0))
            .find(|(_, r)| r.end() <= end && Op::of(r.key.class) == op)
            .map(|(place, r)| (*place, r))
    }

    fn key(&self) -> GroupKey {
        GroupKey {
            dev: self.e.dev,
            owner: self.e.owner,
            class: self.e.class,
        }
    }

    /// Begins a life. `None` when there is no room for it.
    fn begin(&mut self, event: Step) -> Option<Request> {
        if self.full {
            self.tally.lost(LossKind::SlotsFull, 1);
            return None;
        }
        let e = self.e;
        let key = self.tally.key(self.key());
        let mut life = Life::default();
        step(&mut life, event);
        life.bytes = bytes(e.sectors);
        if e.idle_prio {
            life.flags |= F_IDLE_PRIO;
        }
        self.tally.group(key).seen += 1;
        Some(Request {
            life,
            key,
            sector: e.sector,
            sectors: e.sectors,
            tid: e.tid,
            comm: e.comm,
            order: self.order,
            reinserted: false,
        })
    }

    fn into_queue(&mut self, r: &mut Request) {
        r.order = self.order;
        self.disk.queued.insert((r.sector, r.order), *r);
    }

    fn from_doubt(&mut self, fits: impl Fn(&Request) -> bool) -> Option<Request> {
        let (place, ..) = best(&self.disk.doubtful, self.e, |r| u8::from(fits(r)))
            .filter(|(_, score, _)| *score > 0)?;
        self.disk.doubtful.remove(&place)
    }

    /// A request from before a gap that this event belongs to: it was in flight all the time.
    fn proven(&mut self, fits: impl Fn(&Request) -> bool) -> Option<Request> {
        let r = self.from_doubt(fits)?;
        self.tally.group(r.key).seen += 1;
        Some(r)
    }
}

/// The best of those at the event's sector with its operation: the highest score, of equals the oldest. With the score, and
/// whether there were equals.
fn best(places: &Places, e: &Event, score: impl Fn(&Request) -> u8) -> Option<(Place, u8, bool)> {
    let op = Op::of(e.class);
    let mut best: Option<(Place, u8, bool)> = None;
    for (place, r) in places.range((e.sector, 0)..=(e.sector, u64::MAX)) {
        if Op::of(r.key.class) != op {
            continue;
        }
        let s = score(r);
        match &mut best {
            Some((_, b, several)) if s == *b => *several = true,
            Some((_, b, _)) if s < *b => {}
            _ => best = Some((*place, s, false)),
        }
    }
    best
}

fn bytes(sectors: u64) -> u32 {
    u32::try_from(sectors << SECTOR).unwrap_or(u32::MAX)
}
