//! The life of one request, from first sight to completion.
//!
//! In: events with their time. Out: [`Effects`], which say what ended. The same [`step`] runs in the BPF
//! programs and in the importers; finding the slot of an event (by pointer, or by device and sector)
//! is theirs. Rules from block/blk-mq.c, observed on 5.10 to 7.3: a request may be issued without having been
//! inserted, requeued and issued again, merged away, or completed in parts; its memory is reused at once.

/// The slot holds no request.
pub const FREE: u8 = 0;
/// Inserted into a scheduler or software queue, or put back by the driver; not yet issued.
pub const QUEUED: u8 = 1;
/// Issued to the driver, not yet completed.
pub const ISSUED: u8 = 2;

/// The request was found in the tag tables and not seen at insert: its wait began at its own start time.
pub const F_SEEDED: u8 = 1;
/// The driver gave it back at least once.
pub const F_REQUEUED: u8 = 2;
/// Its I/O priority class is idle (`IOPRIO_CLASS_IDLE`).
pub const F_IDLE_PRIO: u8 = 4;
/// Its owner's device time counts it ([`crate::service`]).
pub const F_ACCOUNTED: u8 = 8;

/// The part of a slot that the state machine owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Life {
    /// When the request was allocated, by its own stamp (`start_time_ns`) at first sight; tells two lives in one
    /// memory apart. ns, monotonic.
    pub start_ns: u64,
    /// When it was first inserted; 0 when it never was. ns, monotonic.
    pub insert_ns: u64,
    /// When it was last issued; 0 when it never was. ns, monotonic.
    pub issue_ns: u64,
    /// Bytes at the last issue.
    pub bytes: u32,
    /// How often the driver gave it back; stays at the most that fits.
    pub requeues: u16,
    /// [`FREE`], [`QUEUED`] or [`ISSUED`].
    pub state: u8,
    /// `F_*` bits.
    pub flags: u8,
}

/// What happened to a request. Times are CLOCK_MONOTONIC in ns; `start_ns` is the request's own stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Handed to the scheduler (block_rq_insert).
    Insert {
        /// When it happened.
        now: u64,
        /// The request's own stamp.
        start_ns: u64,
    },
    /// Handed to the driver (block_rq_issue).
    Issue {
        /// When it happened.
        now: u64,
        /// The request's own stamp.
        start_ns: u64,
        /// Bytes to transfer.
        bytes: u32,
    },
    /// Given back by the driver (block_rq_requeue).
    Requeue,
    /// Merged into another request (block_rq_merge); it will not complete by itself.
    Merge,
    /// Completed, perhaps in part (block_rq_complete).
    Complete {
        /// When it happened.
        now: u64,
        /// Bytes completed now.
        done: u32,
        /// Bytes that were left before.
        left: u32,
    },
    /// Found waiting in a tag table: it was inserted before the programs were attached.
    Seed {
        /// The request's own stamp.
        start_ns: u64,
    },
}

/// What a step ended or began. Durations are ns; `None` is a stage that the request did not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects {
    /// A new life began: owner, class and place must be read now.
    pub first_sight: bool,
    /// The life that was in the slot before ended unseen: a completion was missed.
    pub lost: bool,
    /// It left the queue for the driver.
    pub left_queue: bool,
    /// It went back from the driver to the queue.
    pub went_back: bool,
    /// It was in the driver, and is no longer.
    pub left_device: bool,
    /// It ended, whole.
    pub finished: bool,
    /// A part of it completed.
    pub partial: bool,
    /// It ended in another request.
    pub merged: bool,
    /// No life was known for this event.
    pub unmatched: bool,
    /// The clock ran backwards: a stage ended before it began, and its time is not known.
    pub backwards: bool,
    /// First insert to last issue, when finished and inserted.
    pub queued_ns: Option<u64>,
    /// Last issue to completion, when finished and issued.
    pub device_ns: Option<u64>,
}

/// Takes the life one event further.
#[inline(always)]
pub fn step(life: &mut Life, event: Event) -> Effects {
    let mut fx = Effects::default();
    match event {
        Event::Insert { now, start_ns } => {
            // Inserted again after a requeue, or bypassed into the dispatch list: the same life goes on.
            if life.state == QUEUED && same_life(life, start_ns) {
                return fx;
            }
            begin(life, &mut fx, QUEUED, start_ns);
            life.insert_ns = now;
        }
        Event::Seed { start_ns } => {
            if life.state != FREE && same_life(life, start_ns) {
                return fx;
            }
            begin(life, &mut fx, QUEUED, start_ns);
            life.flags = F_SEEDED;
            life.insert_ns = start_ns;
        }
        Event::Issue {
            now,
            start_ns,
            bytes,
        } => {
            if life.state == QUEUED && same_life(life, start_ns) {
                fx.left_queue = true;
                life.state = ISSUED;
            } else {
                begin(life, &mut fx, ISSUED, start_ns);
            }
            life.issue_ns = now;
            life.bytes = bytes;
        }
        Event::Requeue => {
            if life.state == ISSUED {
                life.state = QUEUED;
                life.flags |= F_REQUEUED;
                life.requeues = life.requeues.saturating_add(1);
                fx.went_back = true;
            } else {
                fx.unmatched = life.state == FREE;
            }
        }
        Event::Merge => {
            if life.state == FREE {
                fx.unmatched = true;
            } else {
                fx.left_queue = life.state == QUEUED;
                fx.left_device = life.state == ISSUED;
                fx.merged = true;
                life.state = FREE;
            }
        }
        Event::Complete { now, done, left } => {
            if life.state == FREE {
                fx.unmatched = true;
            } else if done < left {
                fx.partial = true;
            } else {
                fx.finished = true;
                let left_queue_at = if life.state == ISSUED {
                    fx.left_device = true;
                    fx.device_ns = now.checked_sub(life.issue_ns);
                    fx.backwards = fx.device_ns.is_none();
                    life.issue_ns
                } else {
                    // Ended by the block layer without the driver: all of its time was queued.
                    fx.left_queue = true;
                    now
                };
                if life.insert_ns != 0 {
                    fx.queued_ns = left_queue_at.checked_sub(life.insert_ns);
                    fx.backwards |= fx.queued_ns.is_none();
                }
                life.state = FREE;
            }
        }
    }
    fx
}

/// A request that takes another one in takes its start over when that is earlier (attempt_merge in
/// block/blk-merge.c), so within a life the stamp may fall; the next life in the same memory began later.
#[inline(always)]
pub fn same_life(life: &Life, start_ns: u64) -> bool {
    start_ns <= life.start_ns
}

#[inline(always)]
fn begin(life: &mut Life, fx: &mut Effects, state: u8, start_ns: u64) {
    fx.first_sight = true;
    fx.lost = life.state != FREE;
    fx.left_queue = life.state == QUEUED;
    fx.left_device = life.state == ISSUED;
    life.state = state;
    life.flags = 0;
    life.start_ns = start_ns;
    life.insert_ns = 0;
    life.issue_ns = 0;
    life.requeues = 0;
}

#[cfg(test)]
mod tests;
