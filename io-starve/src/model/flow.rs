//! One group of requests: its totals, its recent past, what is in flight and since when it waits.
//!
//! In: the differences of a tick and what is in flight at its end. Out: figures that the detectors compare. The same type
//! serves an owner's requests of one class and a class over all owners.

use serde::{Deserialize, Serialize};

use super::observation::{GroupDelta, Stage, Task, Waiter, Waiting, WaitsFor};
use super::windows::{Cell, CellClock, Ring};

/// How many threads of a group are remembered: enough to rank the usual handful of busy ones.
const MAX_TASKS: usize = 16;
/// A thread that was not seen in flight for this long is forgotten, in ns; as long as the cells are kept.
const KEEP_TASK_NS: u64 = super::windows::KEEP_NS;

/// Cumulative counters of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Lives begun.
    pub seen: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives given up because their end was missed.
    pub expired: u64,
    /// Insert events.
    pub inserts: u64,
    /// Issue events.
    pub issues: u64,
    /// Requeue events.
    pub requeues: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// Longest queued stage that ended, in ns; `None` when none did.
    pub queued_max_ns: Option<u64>,
}

/// What is in flight at this tick, by stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Requests (bios in admission).
    pub count: [u64; 3],
    /// Bytes.
    pub bytes: [u64; 3],
    /// When the oldest entered the stage, ns monotonic.
    pub oldest_ns: [Option<u64>; 3],
    /// Of those that wait in admission or queued, how many groups have only idle I/O priority, and how many have not.
    idle: u32,
    not_idle: u32,
}

impl InFlight {
    /// Takes in one group.
    pub fn add(&mut self, w: &Waiting) {
        for stage in Stage::ALL {
            let i = stage.index();
            self.count[i] = self.count[i].saturating_add(w.count[i]);
            self.bytes[i] = self.bytes[i].saturating_add(w.bytes[i]);
            if w.count[i] > 0 {
                self.oldest_ns[i] = earlier(self.oldest_ns[i], w.oldest_ns[i]);
            }
        }
        if w.count[0] > 0 || w.count[1] > 0 {
            if w.idle_prio {
                self.idle += 1;
            } else {
                self.not_idle += 1;
            }
        }
    }

    /// How many wait in admission and queued.
    pub fn waiting(&self) -> u64 {
        self.count[0].saturating_add(self.count[1])
    }

    /// Bytes that wait in admission and queued.
    pub fn waiting_bytes(&self) -> u64 {
        self.bytes[0].saturating_add(self.bytes[1])
    }

    /// How many are in flight at all.
    pub fn total(&self) -> u64 {
        self.waiting().saturating_add(self.count[2])
    }

    /// Bytes that are in flight at all.
    pub fn total_bytes(&self) -> u64 {
        self.waiting_bytes().saturating_add(self.bytes[2])
    }

    /// Since when the oldest waits in admission or queued.
    pub fn oldest_waiting_ns(&self) -> Option<u64> {
        earlier(self.oldest_ns[0], self.oldest_ns[1])
    }

    /// Since when the oldest is in any stage.
    pub fn oldest_any_ns(&self) -> Option<u64> {
        earlier(self.oldest_waiting_ns(), self.oldest_ns[2])
    }

    /// True when all that waits in admission or queued has idle I/O priority.
    pub fn idle_prio(&self) -> bool {
        self.idle > 0 && self.not_idle == 0
    }
}

/// A wait without an issue: from `begin_ns` on, the group had something waiting at every tick and was issued nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The later of the group's last issue and the moment since when something waits, ns monotonic.
    pub begin_ns: u64,
    /// From when on it was observed: `begin_ns`, or the first observation when that is later. ns monotonic.
    pub observed_from_ns: u64,
    /// Issues of the device at the first tick at or after `observed_from_ns`.
    pub device_issues: u64,
    /// Issues of the group itself then.
    pub own_issues: u64,
    /// Time in which something was in admission, and queued, in ns.
    pub present_ns: [u64; 2],
}

/// The order of `Cell::stacks`.
pub const WAITS_FOR: [WaitsFor; 3] = [WaitsFor::Wbt, WaitsFor::Iocost, WaitsFor::Tags];

/// A thread that was seen in flight at ticks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSeen {
    /// Who.
    pub task: Task,
    /// At how many ticks.
    pub ticks: u64,
    /// At which tick last, ns monotonic.
    pub last_ns: u64,
}

/// What the model needs to know to end a group's tick.
#[derive(Debug, Clone, Copy)]
pub struct TickEnd {
    /// The present cell.
    pub clock: CellClock,
    /// Time since the previous tick in ns.
    pub dt_ns: u64,
    /// The first observation, ns monotonic.
    pub first_ns: u64,
}

/// A group of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Since attach.
    pub totals: Totals,
    /// The last 10 s.
    pub ring: Ring,
    /// When one was last issued, ns monotonic; `None` when never since attach.
    pub last_issue_ns: Option<u64>,
    /// In flight at this tick.
    pub now: InFlight,
    /// Issues in this tick.
    pub tick_issues: u64,
    /// Longest admission or queued stage that ended of late, as told in this tick, in ns; 0 when none ended.
    pub tick_longest_ns: u64,
    /// The present wait without an issue.
    pub wait: Option<Wait>,
    /// When something last moved or was in flight, ns monotonic.
    pub active_ns: u64,
    tasks: Vec<TaskSeen>,
    ended_without_issue: bool,
}

impl Flow {
    /// Bytes that were moved since then, at most as far back as windows are kept, and those in flight.
    pub fn moved_since(&self, from_ns: u64) -> u64 {
        let ended = self.ring.since(from_ns).bytes;
        ended.saturating_add(self.now.total_bytes())
    }

    /// Begins a tick: what was in flight must be told again.
    pub fn begin_tick(&mut self) {
        self.now = InFlight::default();
        self.tick_issues = 0;
        self.tick_longest_ns = 0;
        self.ended_without_issue = false;
    }

    /// Adds the differences of a tick. `was_in_device` is how many were in the device at its beginning.
    pub fn add(&mut self, d: &GroupDelta, clock: CellClock, was_in_device: u64) {
        let t = &mut self.totals;
        for (total, more) in [
            (&mut t.seen, d.seen),
            (&mut t.finished, d.finished),
            (&mut t.merged, d.merged),
            (&mut t.expired, d.expired),
            (&mut t.inserts, d.inserts),
            (&mut t.issues, d.issues),
            (&mut t.requeues, d.requeues),
            (&mut t.bytes, d.bytes),
            (&mut self.tick_issues, d.issues),
        ] {
            *total = total.saturating_add(more);
        }
        let queued = d.stages[Stage::Queued.index()];
        if queued.count > 0 {
            t.queued_max_ns = t.queued_max_ns.max(Some(queued.max_ns));
        }
        for stage in &d.stages[..2] {
            if stage.count > 0 {
                self.tick_longest_ns = self.tick_longest_ns.max(stage.max_ns);
            }
        }
        if d.issues > 0 || d.last_issue_ns.is_some() {
            let at = d.last_issue_ns.unwrap_or(clock.to_ns).min(clock.to_ns);
            self.last_issue_ns = self.last_issue_ns.max(Some(at));
        }
        // A wait that was a ghost, or whose request the block layer ended by itself, proves nothing about what waits now.
        if d.expired > 0 || d.finished > was_in_device.saturating_add(d.issues) {
            self.ended_without_issue = true;
        }
        self.active_ns = clock.to_ns;
        self.ring.add(&Cell {
            from_ns: clock.from_ns,
            to_ns: clock.to_ns,
            issues: d.issues,
            finished: d.finished,
            bytes: d.bytes,
            stages: d.stages,
            ..Cell::default()
        });
    }

    /// Takes in what waits at this tick.
    pub fn add_waiting(&mut self, w: &Waiting, clock: CellClock) {
        self.now.add(w);
        self.active_ns = clock.to_ns;
    }

    /// Ends the tick: time waited, and whether the wait without an issue goes on, begins anew or is over.
    /// `device_issues_since` gives the device's issues at the first tick at or after a moment.
    pub fn end_tick(&mut self, tick: TickEnd, device_issues_since: impl Fn(u64) -> u64) {
        let now = tick.clock.to_ns;
        self.ring.prune(now);
        self.tasks
            .retain(|t| t.last_ns.saturating_add(KEEP_TASK_NS) >= now);
        if self.now.waiting() == 0 {
            self.wait = None;
            return;
        }
        self.ring.add(&Cell {
            from_ns: tick.clock.from_ns,
            to_ns: now,
            waited_ns: tick.dt_ns,
            weight: [
                self.now.count[0].saturating_mul(tick.dt_ns),
                self.now.count[1].saturating_mul(tick.dt_ns),
            ],
            ..Cell::default()
        });
        // An older wait goes on although its oldest request may have left the queue by a merge; an issue ends it.
        let earlier_wait = self.wait.filter(|w| {
            !self.ended_without_issue && self.last_issue_ns.is_none_or(|i| i <= w.begin_ns)
        });
        let waits_since = earlier(
            self.now.oldest_waiting_ns(),
            earlier_wait.map(|w| w.begin_ns),
        )
        .unwrap_or(now);
        let begin_ns = self
            .last_issue_ns
            .map_or(waits_since, |i| i.max(waits_since))
            .min(now);
        let mut wait = match earlier_wait {
            Some(w) if begin_ns <= w.begin_ns => Wait { begin_ns, ..w },
            _ => {
                let observed_from_ns = begin_ns.max(tick.first_ns);
                Wait {
                    begin_ns,
                    observed_from_ns,
                    device_issues: device_issues_since(observed_from_ns),
                    own_issues: self.totals.issues,
                    ..Wait::default()
                }
            }
        };
        let part = tick.dt_ns.min(now.saturating_sub(wait.observed_from_ns));
        for (present, count) in wait.present_ns.iter_mut().zip(self.now.count) {
            if count > 0 {
                *present = present.saturating_add(part);
            }
        }
        self.wait = Some(wait);
    }

    /// Takes in one of the oldest in flight: whose thread it is, and what its stack says.
    pub fn see(&mut self, w: &Waiter, clock: CellClock) {
        let now = clock.to_ns;
        if w.stage == Stage::Admission
            && let Some(why) = w.waits_for
        {
            self.ring.add(&Cell {
                from_ns: clock.from_ns,
                to_ns: now,
                stacks: WAITS_FOR.map(|f| u64::from(f == why)),
                ..Cell::default()
            });
        }
        let Some(task) = &w.task else { return };
        if let Some(seen) = self.tasks.iter_mut().find(|t| t.task == *task) {
            if seen.last_ns != now {
                seen.ticks = seen.ticks.saturating_add(1);
                seen.last_ns = now;
            }
            return;
        }
        if self.tasks.len() >= MAX_TASKS {
            // Not one of this tick: many threads at once must not push each other out before they are counted twice.
            let Some(least) = (0..self.tasks.len())
                .filter(|i| self.tasks[*i].last_ns != now)
                .min_by_key(|i| (self.tasks[*i].ticks, self.tasks[*i].last_ns))
            else {
                return;
            };
            self.tasks.swap_remove(least);
        }
        self.tasks.push(TaskSeen {
            task: task.clone(),
            ticks: 1,
            last_ns: now,
        });
    }

    /// Threads seen in flight at ticks since a moment.
    pub fn tasks_since(&self, ns: u64) -> impl Iterator<Item = &TaskSeen> {
        self.tasks.iter().filter(move |t| t.last_ns >= ns)
    }

    /// True when nothing moved or was in flight for this long.
    pub fn idle_for(&self, now: u64, ns: u64) -> bool {
        now.saturating_sub(self.active_ns) > ns
    }
}

/// The earlier of two moments, either of which may be unknown.
pub fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
