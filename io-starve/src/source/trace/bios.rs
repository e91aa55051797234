//! Bios between submission and request: the wait for wbt, iocost or a tag.
//!
//! In: `bio_queue` and what ends that wait. Out: admission times, and who waits. Only a disk on which requests are allocated
//! (`getrq`) keeps bios waiting; a dm or md device that is made of bios, and a trace without that event, have no admission.

use std::collections::{BTreeMap, VecDeque};

use io_starve_common::wire::LossKind;

use super::{
    event::{Comm, Event, What},
    requests::Place,
    tally::Tally,
};
use crate::model::observation::{DevId, GroupKey, Stage};

/// So many bios without a request among them: this device does not make requests.
const NO_REQUESTS: usize = 4_096;
/// Waits that are kept until it is known which disk they were for: what one plug holds, and more.
const STARTED_BIOS: usize = 1_024;
/// Allocations that are kept to find out which disk a partition is on.
const STARTED: usize = 64;

/// A bio that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bio {
    pub key: GroupKey,
    pub since_ns: u64,
    pub sectors: u64,
    pub idle_prio: bool,
    pub tid: u32,
    pub comm: Comm,
}

/// What a bio's disk is like when the event comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Number of the event.
    pub order: u64,
    /// There is no room for another one.
    pub full: bool,
    /// It is known to be a disk and not a partition.
    pub known: bool,
}

/// Those of one disk.
#[derive(Debug, Default)]
pub(super) struct Bios {
    waiting: BTreeMap<Place, Bio>,
    /// Where each thread waits: it submits one bio at a time.
    threads: BTreeMap<u32, Place>,
    /// Waits that ended before it was known which disk this is, for how long.
    uncounted: Vec<(GroupKey, u64)>,
    makes_requests: bool,
    ignored: bool,
}

impl Bios {
    pub fn take(&mut self, e: &Event, key: GroupKey, at: Moment, tally: &mut Tally) {
        match e.what {
            What::BioQueue => self.queue(e, key, at, tally),
            What::Split => self.split(e),
            What::BioComplete => {
                self.end(e);
            }
            _ => {
                if e.what == What::GetRq {
                    (self.makes_requests, self.ignored) = (true, false);
                }
                let Some(bio) = self.end(e) else { return };
                match e.ns.checked_sub(bio.since_ns) {
                    Some(ns) if self.uncounted.len() < STARTED_BIOS => {
                        self.uncounted.push((bio.key, ns));
                    }
                    Some(_) => {}
                    None => tally.lost(LossKind::ClockBackwards, 1),
                }
            }
        }
        if at.known && self.makes_requests {
            for (bio, ns) in self.uncounted.drain(..) {
                let key = tally.key(GroupKey {
                    dev: key.dev,
                    ..bio
                });
                tally.stage(key, Stage::Admission, ns);
            }
        }
    }

    /// Those that wait, with their places; none before it is known that the disk makes requests.
    pub fn waiting(&self) -> impl Iterator<Item = (&Place, &Bio)> {
        self.waiting.iter().filter(|_| self.makes_requests)
    }

    pub fn any(&self) -> bool {
        self.makes_requests && !self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets all; says how many were believed to wait.
    pub fn clear(&mut self) -> u64 {
        let n = self.waiting().count() as u64;
        self.waiting.clear();
        self.threads.clear();
        n
    }

    /// Takes in those of a partition.
    pub fn join(&mut self, other: Bios, dev: DevId) {
        for (place, mut bio) in other.waiting {
            bio.key.dev = dev;
            self.waiting.insert(place, bio);
        }
        self.threads.extend(other.threads);
        self.uncounted.extend(other.uncounted);
        self.makes_requests |= other.makes_requests;
    }

    fn queue(&mut self, e: &Event, key: GroupKey, at: Moment, tally: &mut Tally) {
        if self.ignored {
            return;
        }
        if at.full {
            tally.lost(LossKind::BiosFull, 1);
            return;
        }
        // A thread that submits again no longer waits with what it had submitted before.
        if e.tid != 0
            && let Some(place) = self.threads.remove(&e.tid)
            && self.waiting.remove(&place).is_some()
            && self.makes_requests
        {
            tally.lost(LossKind::AdmissionExpired, 1);
        }
        let place = (e.sector, at.order);
        if e.tid != 0 {
            self.threads.insert(e.tid, place);
        }
        self.waiting.insert(
            place,
            Bio {
                key,
                since_ns: e.ns,
                sectors: e.sectors,
                idle_prio: e.idle_prio,
                tid: e.tid,
                comm: e.comm,
            },
        );
        if !self.makes_requests && self.waiting.len() > NO_REQUESTS {
            self.clear();
            self.ignored = true;
        }
    }

    /// The bio goes on as its rest; the part that was cut off is new and has not waited.
    fn split(&mut self, e: &Event) {
        let Some((place, mut bio)) = self.remove(e) else {
            return;
        };
        bio.sectors = bio.sectors.saturating_sub(e.sectors);
        let rest = (place.0.saturating_add(e.sectors), place.1);
        if bio.tid != 0 {
            self.threads.insert(bio.tid, rest);
        }
        self.waiting.insert(rest, bio);
    }

    fn end(&mut self, e: &Event) -> Option<Bio> {
        self.remove(e).map(|(_, bio)| bio)
    }

    /// The bio at this sector: the thread's own, else the oldest.
    fn remove(&mut self, e: &Event) -> Option<(Place, Bio)> {
        let own = self.threads.get(&e.tid).copied();
        let place = own.filter(|place| place.0 == e.sector).or_else(|| {
            let mut at = self.waiting.range((e.sector, 0)..=(e.sector, u64::MAX));
            at.next().map(|(place, _)| *place)
        })?;
        let bio = self.waiting.remove(&place)?;
        if self.threads.get(&bio.tid) == Some(&place) {
            self.threads.remove(&bio.tid);
        }
        Some((place, bio))
    }
}

/// Which disks partitions are on. Nobody says so: it is the disk on which a request begins at the sector for which one was allocated
/// on the partition.
#[derive(Debug, Default)]
pub(super) struct Partitions {
    disks: BTreeMap<DevId, DevId>,
    started: VecDeque<(DevId, u64)>,
}

impl Partitions {
    /// The disk that this is, or is on.
    pub fn disk_of(&self, dev: DevId) -> DevId {
        self.disks.get(&dev).copied().unwrap_or(dev)
    }

    /// A request was allocated on what may be a partition.
    pub fn started(&mut self, e: &Event) {
        self.started.push_back((e.dev, e.sector));
        if self.started.len() > STARTED {
            self.started.pop_front();
        }
    }

    /// A request began on a disk: the partition that is thereby known to be on it. `may_be` says whether a device may be
    /// a partition.
    pub fn learn(&mut self, e: &Event, may_be: impl Fn(&DevId) -> bool) -> Option<DevId> {
        if self.started.is_empty() {
            return None;
        }
        self.started.retain(|(dev, _)| *dev != e.dev);
        let at = |(dev, sector): &&(DevId, u64)| *sector == e.sector && may_be(dev);
        let (partition, _) = self.started.iter().find(at).copied()?;
        self.started.retain(|(dev, _)| *dev != partition);
        self.disks.insert(partition, e.dev);
        Some(partition)
    }
}
