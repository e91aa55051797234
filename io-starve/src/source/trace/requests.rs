//! Requests by disk and sector: what a live run finds by the request's address.
//!
//! In: events in order. Out: counters in a [`Tally`], and what is in flight at a tick. The life itself is
//! `io_starve_common::request::step`, the same as in the kernel programs; whose life an event belongs to is for `matching`.
//!
//! No ghosts: after a gap nothing that was in flight is believed until an event proves it, since its end may be in the gap.

use std::collections::BTreeMap;

use io_starve_common::{class::Class, request::Life, wire::LossKind};

use super::{
    bios::{Bios, Partitions},
    event::{Comm, Event, What},
    matching::At,
    notes::Notes,
    tally::Tally,
};
use crate::model::{
    MAX_DEVICES,
    observation::{DevId, GroupKey},
};

/// Requests in flight, and bios before them, that are followed at most: as many as a live run has slots. They take 30 MiB.
const MAX_IN_FLIGHT: usize = 131_072;
/// Where flushes and passthrough commands are kept: they have no sector, and the kernel prints 0 or -1 (blk_rq_trace_sector).
pub(super) const NOWHERE: u64 = u64::MAX;
/// What must agree between two events of one request. A class need not: the kernel strips flags on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
    Flush,
    Discard,
    Other,
}

impl Op {
    pub const fn of(class: Class) -> Op {
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
    pub order: u64,
    /// Inserted anew since it was given back.
    pub reinserted: bool,
}

impl Request {
    pub fn end(&self) -> u64 {
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
    pub doubtful: Places,
    pub bios: Bios,
    /// Requests that left the queue for the driver, less those that came back.
    pub left_queue: u64,
    /// Requests that completed.
    pub completed: u64,
    /// Issues of sync classes.
    pub sync_issued: u64,
    pub first_ns: u64,
    /// How long something was in the device, in ns, up to `busy_from_ns`.
    busy_ns: u64,
    /// Since when something is; `None` while nothing is.
    busy_from_ns: Option<u64>,
}

impl Disk {
    /// True when it takes requests: not so a partition, or a disk made of bios only.
    pub fn has_requests(&self) -> bool {
        self.left_queue > 0
            || self.completed > 0
            || !self.queued.is_empty()
            || !self.issued.is_empty()
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
    /// Partitions of which the disk became known since it was last asked.
    learned: Vec<(DevId, DevId)>,
}

impl Requests {
    /// The disk that this is, or is on, as far as is known.
    pub fn disk_of(&self, dev: DevId) -> DevId {
        self.partitions.disk_of(dev)
    }

    /// Partitions with their disks, as they became known.
    pub fn take_learned(&mut self) -> Vec<(DevId, DevId)> {
        std::mem::take(&mut self.learned)
    }

    /// How long requests were in a disk up to now, in ns; `None` for one of which none was issued.
    pub fn busy_ns(&self, dev: DevId, now: u64) -> Option<u64> {
        let disk = self.disks.get(&dev).filter(|d| d.left_queue > 0)?;
        let running = disk.busy_from_ns.map_or(0, |from| now.saturating_sub(from));
        Some(disk.busy_ns.saturating_add(running))
    }

    /// Takes in an event.
    pub fn take(&mut self, e: &Event, tally: &mut Tally, notes: &mut Notes) {
        let mut e = *e;
        e.dev = self.partitions.disk_of(e.dev);
        let passthrough = e.class == Class::Other && (e.sectors == 0 || e.sector == NOWHERE);
        if e.class == Class::Flush || passthrough {
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
        At {
            disk: &mut *disk,
            e: &e,
            order,
            full: before >= MAX_IN_FLIGHT,
            requeues_told: self.requeues_told,
            tally,
            notes,
        }
        .take();
        disk.count_busy(e.ns);
        let holds = disk.len();
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
        self.learned.push((partition, e.dev));
        if let Some(part) = self.disks.remove(&partition)
            && let Some(disk) = self.disks.get_mut(&e.dev)
        {
            disk.bios.join(part.bios, e.dev);
        }
    }
}

impl Disk {
    fn count_busy(&mut self, now: u64) {
        match (self.busy_from_ns, self.issued.is_empty()) {
            (None, false) => self.busy_from_ns = Some(now),
            (Some(from), true) => {
                self.busy_ns = self.busy_ns.saturating_add(now.saturating_sub(from));
                self.busy_from_ns = None;
            }
            _ => {}
        }
    }

    fn len(&self) -> usize {
        self.queued.len() + self.issued.len() + self.doubtful.len() + self.bios.len()
    }
}
