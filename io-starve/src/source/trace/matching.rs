//! Which request an event means: the same disk, operation and first sector; of several the one whose length fits, then the oldest, and
//! that a choice had to be made is counted. Requests that grew by merges are followed, whether or not the merges were recorded.

use io_starve_common::{
    request::{Event as Step, F_IDLE_PRIO, F_REQUEUED, Life, QUEUED, step},
    wire::LossKind,
};

use super::{
    bios::Moment,
    event::{Event, What},
    notes::Notes,
    requests::{Disk, NOWHERE, Op, Place, Places, Request},
    tally::Tally,
};
use crate::model::observation::{GroupKey, Stage};

/// A completion this soon after a disk's first event, in ns, is taken for one of a request that began before the trace.
const EARLIER_NS: u64 = 10_000_000_000;
/// Bytes of a sector.
const SECTOR: u64 = 512;

/// One event at its disk.
pub(super) struct At<'a> {
    pub disk: &'a mut Disk,
    pub e: &'a Event,
    /// Number of the event.
    pub order: u64,
    /// There is no room for another request or bio.
    pub full: bool,
    /// Requeues are in the trace.
    pub requeues_told: bool,
    pub tally: &'a mut Tally,
    pub notes: &'a mut Notes,
}

impl At<'_> {
    /// Takes in the event.
    pub fn take(&mut self) {
        match self.e.what {
            What::Insert => self.insert(),
            What::Issue => self.issue(),
            What::Requeue => self.requeue(),
            What::Merge => self.merge(),
            What::Complete => self.complete(),
            What::BioQueue | What::Split | What::BioComplete | What::GetRq => self.bio(),
            What::AnyMerge if self.is_of_request() => self.merge(),
            What::BackMerge | What::FrontMerge | What::AnyMerge => {
                self.bio();
                self.grow();
            }
        }
    }

    fn insert(&mut self) {
        let e = self.e;
        if let Some(mut r) = self.given_back_untold() {
            self.put_in_queue(&mut r);
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
        self.take_from_doubt(|r| r.sectors == e.sectors);
        let first = Step::Insert {
            now: e.ns,
            start_ns: e.ns,
        };
        if let Some(mut r) = self.begin(first) {
            let key = r.key;
            self.tally.group(key).inserts += 1;
            self.put_in_queue(&mut r);
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
            // A bio that was put before it moved its beginning, and that was not recorded.
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
        let known = (r.sector, r.end());
        (r.sector, r.sectors) = (e.sector, e.sectors);
        if place.is_some() {
            self.absorb(r.sector, known.0, &r);
            self.absorb(known.1, r.end(), &r);
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
        self.put_in_queue(&mut r);
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

    /// A request that is queued, just behind another one that is, is what was merged, and not a bio.
    fn is_of_request(&self) -> bool {
        let e = self.e;
        let same = |r: &Request| u8::from(r.sectors == e.sectors);
        let behind = || self.before(e.sector, Op::of(e.class)).is_some();
        best(&self.disk.queued, e, same).is_some_and(|(_, score, _)| score > 0) && behind()
    }

    /// The queued request that ends here.
    fn before(&self, end: u64, op: Op) -> Option<Place> {
        // The nearest that begin before: those further off would have to overlap it.
        self.disk
            .queued
            .range(..(end, 0))
            .rev()
            .take(4)
            .find(|(_, r)| r.end() == end && Op::of(r.key.class) == op)
            .map(|(place, _)| *place)
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
        if e.sectors < r.sectors && r.life.state == QUEUED {
            // A part can only complete in the driver: it was issued, unseen, now at the latest.
            let start_ns = r.life.start_ns;
            let event = Step::Issue {
                now: e.ns,
                start_ns,
                bytes: bytes(r.sectors),
            };
            step(&mut r.life, event);
        }
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
        if e.what == What::FrontMerge {
            let queued = &mut self.disk.queued;
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
        if let Some(place) = self.before(e.sector, op)
            && let Some(r) = self.disk.queued.get_mut(&place)
        {
            r.sectors = r.sectors.saturating_add(e.sectors);
        }
    }

    /// Queued requests in a part by which an issued one has grown, although nobody told, were merged into it.
    fn absorb(&mut self, from: u64, to: u64, r: &Request) {
        if from >= to {
            return;
        }
        let op = Op::of(r.key.class);
        let inside: Vec<Place> = self
            .disk
            .queued
            .range((from, 0)..(to, 0))
            .filter(|(_, o)| o.end() <= to && Op::of(o.key.class) == op)
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

    fn put_in_queue(&mut self, r: &mut Request) {
        r.order = self.order;
        self.disk.queued.insert((r.sector, r.order), *r);
    }

    fn take_from_doubt(&mut self, fits: impl Fn(&Request) -> bool) -> Option<Request> {
        let (place, ..) = best(&self.disk.doubtful, self.e, |r| u8::from(fits(r)))
            .filter(|(_, score, _)| *score > 0)?;
        self.disk.doubtful.remove(&place)
    }

    /// A request from before a gap that this event belongs to: it was in flight all the time.
    fn proven(&mut self, fits: impl Fn(&Request) -> bool) -> Option<Request> {
        let r = self.take_from_doubt(fits)?;
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
    u32::try_from(sectors.saturating_mul(SECTOR)).unwrap_or(u32::MAX)
}
