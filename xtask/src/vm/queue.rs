//! What was in a device's queue at each moment, as its trace tells.
//!
//! In: trace events. Out: who waits, how long each waited, what ended. A trace names requests by their sectors only, so merges are
//! followed to know which request a later event means.

use io_starve_common::class::Class;

use super::trace::{Event, What};

/// A bio that has no request yet.
#[derive(Debug, Clone, Copy)]
struct Bio {
    since_ns: u64,
    class: Class,
    start: u64,
    end: u64,
}

/// A request.
#[derive(Debug, Clone, Copy)]
struct Request {
    class: Class,
    start: u64,
    end: u64,
    inserted_ns: Option<u64>,
    given_back: bool,
}

/// What an event ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing that counts here.
    Nothing,
    /// A wait of this many ns for a request.
    Admission(Class, u64),
    /// A stay in the queue of this many ns; `None` when it was never inserted.
    Queued(Class, Option<u64>),
    /// A part of a request, which goes on.
    Part,
    /// A request, whole.
    Finished(Class),
    /// Something that no earlier event began.
    Unmatched,
}

/// The queue of one device.
#[derive(Debug, Default)]
pub struct Queue {
    bios: Vec<Bio>,
    queued: Vec<Request>,
    device: Vec<Request>,
}

impl Queue {
    /// Takes the queue one event further.
    pub fn step(&mut self, e: &Event) -> Ended {
        match e.what {
            What::BioQueue => {
                if e.sectors > 0 {
                    self.bios.push(Bio {
                        since_ns: e.ns,
                        class: e.class,
                        start: e.sector,
                        end: e.end(),
                    });
                }
                Ended::Nothing
            }
            What::GetRq => self.admit(e),
            What::BackMerge => {
                self.admit(e);
                if let Some(r) = self
                    .queued
                    .iter_mut()
                    .find(|r| r.class == e.class && r.end == e.sector)
                {
                    r.end = e.end();
                }
                Ended::Nothing
            }
            What::FrontMerge => {
                self.admit(e);
                if let Some(r) = self
                    .queued
                    .iter_mut()
                    .find(|r| r.class == e.class && r.start == e.end())
                {
                    r.start = e.sector;
                }
                Ended::Nothing
            }
            What::Split => Ended::Nothing,
            What::Insert => {
                self.insert(e);
                Ended::Nothing
            }
            What::Issue => self.issue(e),
            What::Requeue => match take(&mut self.device, e) {
                Some(mut r) => {
                    r.given_back = true;
                    self.queued.push(r);
                    Ended::Nothing
                }
                // The driver may refuse it before it counts as issued, and a flush before anything of it was told.
                None => {
                    if let Some(r) = self.queued.iter_mut().find(|r| same(r, e)) {
                        r.given_back = true;
                    }
                    Ended::Nothing
                }
            },
            What::Merge => {
                // Not there when it was merged instead of being inserted.
                take(&mut self.queued, e);
                if let Some(r) = self
                    .queued
                    .iter_mut()
                    .find(|r| r.class == e.class && r.end == e.sector)
                {
                    r.end = e.end();
                }
                Ended::Nothing
            }
            What::Complete => self.complete(e),
        }
    }

    /// A bio, or the first part of one that was cut, got a request or joined one.
    fn admit(&mut self, e: &Event) -> Ended {
        let within = |b: &Bio| b.class == e.class && b.start == e.sector && e.end() <= b.end;
        let Some(i) = self.bios.iter().position(within) else {
            return Ended::Nothing;
        };
        let since_ns = self.bios[i].since_ns;
        self.bios[i].start = e.end();
        if self.bios[i].start >= self.bios[i].end {
            self.bios.remove(i);
        }
        Ended::Admission(e.class, e.ns - since_ns)
    }

    fn insert(&mut self, e: &Event) {
        // After a requeue the same request may be inserted again; its wait goes on.
        let again = |r: &&mut Request| r.given_back && r.class == e.class && r.start == e.sector;
        if let Some(r) = self.queued.iter_mut().find(again) {
            r.given_back = false;
            return;
        }
        self.queued.push(Request {
            class: e.class,
            start: e.sector,
            end: e.end(),
            inserted_ns: Some(e.ns),
            given_back: false,
        });
    }

    fn issue(&mut self, e: &Event) -> Ended {
        let found = take(&mut self.queued, e);
        // 5.10 has no event for a request merged into another: it is inside of the one that is issued now.
        self.queued
            .retain(|r| !(r.class == e.class && r.start > e.sector && r.end <= e.end()));
        let inserted_ns = found.and_then(|r| r.inserted_ns);
        self.device.push(Request {
            class: e.class,
            start: e.sector,
            end: e.end(),
            inserted_ns,
            given_back: false,
        });
        Ended::Queued(e.class, inserted_ns.map(|at| e.ns - at))
    }

    fn complete(&mut self, e: &Event) -> Ended {
        // A flush in steps completes a request twice, the second time without sectors; an empty flush is never issued.
        let found = self.device.iter().position(|r| same(r, e));
        match found {
            // Nothing of it at all may be done: the driver tries again.
            Some(i) if e.end() < self.device[i].end => {
                self.device[i].start = e.end();
                Ended::Part
            }
            Some(i) => Ended::Finished(self.device.remove(i).class),
            None if e.sectors == 0 => Ended::Nothing,
            None => Ended::Unmatched,
        }
    }

    /// True when something of this class waits before the device.
    pub fn waits(&self, class: Class) -> bool {
        self.bios.iter().any(|b| b.class == class) || self.queued.iter().any(|r| r.class == class)
    }

    /// True when something of this class waits for a request.
    pub fn waits_for_admission(&self, class: Class) -> bool {
        self.bios.iter().any(|b| b.class == class)
    }

    /// Bytes of this class that wait before the device.
    pub fn waiting_bytes(&self, class: Class) -> u64 {
        let bios = self
            .bios
            .iter()
            .filter(|b| b.class == class)
            .map(|b| b.end - b.start);
        let queued = self
            .queued
            .iter()
            .filter(|r| r.class == class)
            .map(|r| r.end - r.start);
        bios.chain(queued).sum::<u64>() * 512
    }

    /// How many are anywhere between submission and completion.
    pub fn in_flight(&self) -> usize {
        self.bios.len() + self.queued.len() + self.device.len()
    }

    /// What is left, in words; for an error message.
    pub fn left(&self) -> String {
        format!(
            "{} bios, {} queued, {} in the device",
            self.bios.len(),
            self.queued.len(),
            self.device.len()
        )
    }
}

/// Removes the oldest request that the event means.
fn take(list: &mut Vec<Request>, e: &Event) -> Option<Request> {
    let i = list.iter().position(|r| same(r, e))?;
    Some(list.remove(i))
}

/// By class and first sector; a flush has none, and is issued at 0 and completed at -1 by the trace.
fn same(r: &Request, e: &Event) -> bool {
    r.class == e.class && (r.start == e.sector || r.class == Class::Flush)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ev(us: u64, what: What, sector: u64, sectors: u64) -> Event {
        Event {
            ns: us * 1_000,
            what,
            class: Class::AsyncWrite,
            marked: false,
            sector,
            sectors,
        }
    }

    #[test]
    fn a_wait_is_from_first_insert_to_issue_through_merges_and_requeues() {
        let mut q = Queue::default();
        q.step(&ev(1, What::BioQueue, 100, 16));
        assert!(q.waits_for_admission(Class::AsyncWrite));
        // Cut in two: the second half waits on.
        assert_eq!(
            q.step(&ev(2, What::GetRq, 100, 8)),
            Ended::Admission(Class::AsyncWrite, 1_000)
        );
        assert!(q.waits_for_admission(Class::AsyncWrite));
        q.step(&ev(3, What::GetRq, 108, 8));
        assert!(!q.waits_for_admission(Class::AsyncWrite));
        q.step(&ev(4, What::Insert, 100, 8));
        q.step(&ev(5, What::Insert, 108, 8));
        // A merge without an event: the first now reaches over the second.
        q.step(&ev(6, What::BackMerge, 116, 8));
        q.step(&ev(6, What::FrontMerge, 92, 8));
        assert_eq!(q.waiting_bytes(Class::AsyncWrite), (16 + 16) * 512);
        assert_eq!(
            q.step(&ev(10, What::Issue, 92, 32)),
            Ended::Queued(Class::AsyncWrite, Some(6_000))
        );
        assert!(!q.waits(Class::AsyncWrite));
        q.step(&ev(11, What::Requeue, 92, 32));
        assert_eq!(
            q.step(&ev(11, What::Requeue, 92, 32)),
            Ended::Nothing,
            "refused again before it was issued"
        );
        q.step(&ev(12, What::Insert, 92, 32));
        assert_eq!(
            q.step(&ev(20, What::Issue, 92, 32)),
            Ended::Queued(Class::AsyncWrite, Some(16_000))
        );
        assert_eq!(q.step(&ev(21, What::Complete, 92, 16)), Ended::Part);
        assert_eq!(q.step(&ev(21, What::Complete, 108, 0)), Ended::Part);
        assert_eq!(
            q.step(&ev(22, What::Complete, 108, 16)),
            Ended::Finished(Class::AsyncWrite)
        );
        assert_eq!(q.in_flight(), 0);
    }

    #[test]
    fn a_merged_request_leaves_and_its_survivor_grows() {
        let mut q = Queue::default();
        q.step(&ev(1, What::Insert, 0, 8));
        q.step(&ev(2, What::Insert, 8, 8));
        assert_eq!(q.step(&ev(3, What::Merge, 8, 8)), Ended::Nothing);
        assert_eq!(q.waiting_bytes(Class::AsyncWrite), 16 * 512);
        // Merged at once, never inserted.
        q.step(&ev(4, What::Merge, 16, 8));
        assert_eq!(
            q.step(&ev(5, What::Issue, 0, 24)),
            Ended::Queued(Class::AsyncWrite, Some(4_000))
        );
        assert!(!q.waits(Class::AsyncWrite));
    }

    #[test]
    fn a_flush_is_known_by_its_class_alone() {
        let mut q = Queue::default();
        let flush = |what, sector| Event {
            class: Class::Flush,
            ..ev(1, what, sector, 0)
        };
        q.step(&flush(What::Issue, 0));
        assert_eq!(
            q.step(&flush(What::Complete, u64::MAX)),
            Ended::Finished(Class::Flush)
        );
        assert_eq!(q.in_flight(), 0);
    }

    #[test]
    fn never_inserted_has_no_queued_stage() {
        let mut q = Queue::default();
        assert_eq!(
            q.step(&ev(1, What::Issue, 0, 8)),
            Ended::Queued(Class::AsyncWrite, None)
        );
        assert_eq!(
            q.step(&ev(2, What::Complete, 0, 8)),
            Ended::Finished(Class::AsyncWrite)
        );
        assert_eq!(q.step(&ev(2, What::Complete, 0, 8)), Ended::Unmatched);
        assert_eq!(
            q.step(&ev(2, What::Complete, 0, 0)),
            Ended::Nothing,
            "second end of a flush sequence"
        );
    }
}
