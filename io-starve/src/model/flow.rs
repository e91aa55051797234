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
mod tests {
    use io_starve_common::class::Class;

    use super::*;
    use crate::model::observation::{DevId, GroupKey, Owner, StageDelta};

    const MS: u64 = 1_000_000;
    const KEY: GroupKey = GroupKey {
        dev: DevId::new(8, 0),
        owner: Owner::Cgroup(28),
        class: Class::AsyncWrite,
    };

    fn waiting(count: [u64; 3], oldest_ms: u64) -> Waiting {
        Waiting {
            key: KEY,
            count,
            bytes: [0; 3],
            oldest_ns: count.map(|n| (n > 0).then_some(oldest_ms * MS)),
            idle_prio: false,
        }
    }

    fn moved() -> GroupDelta {
        GroupDelta {
            key: KEY,
            seen: 0,
            finished: 0,
            merged: 0,
            expired: 0,
            inserts: 0,
            issues: 0,
            requeues: 0,
            bytes: 0,
            stages: [StageDelta::default(); 3],
            last_issue_ns: None,
        }
    }

    /// Ticks every 250 ms, the first at 1 s; the device issues one request a ms.
    struct Ticks {
        flow: Flow,
        clock: CellClock,
    }

    impl Ticks {
        fn new() -> Ticks {
            Ticks {
                flow: Flow::default(),
                clock: CellClock {
                    from_ns: 750 * MS,
                    to_ns: 750 * MS,
                    previous_ns: 750 * MS,
                },
            }
        }

        fn tick(&mut self, delta: Option<GroupDelta>, waits: Option<Waiting>) -> Option<Wait> {
            let now = self.clock.to_ns + 250 * MS;
            let was_in_device = self.flow.now.count[2];
            self.clock.advance(now);
            self.flow.begin_tick();
            if let Some(d) = delta {
                self.flow.add(&d, self.clock, was_in_device);
            }
            if let Some(w) = waits {
                self.flow.add_waiting(&w, self.clock);
            }
            let tick = TickEnd {
                clock: self.clock,
                dt_ns: 250 * MS,
                first_ns: 1_000 * MS,
            };
            self.flow.end_tick(tick, |ns| ns.div_ceil(MS));
            self.flow.wait
        }
    }

    #[test]
    fn a_wait_goes_on_when_its_oldest_request_was_merged_away() {
        let mut t = Ticks::new();
        let w = t.tick(None, Some(waiting([0, 2, 0], 900))).unwrap();
        assert_eq!((w.begin_ns, w.observed_from_ns), (900 * MS, 1_000 * MS));
        assert_eq!(
            w.device_issues, 1_000,
            "nobody looked before the first observation"
        );
        let merged = GroupDelta {
            merged: 1,
            ..moved()
        };
        let w = t
            .tick(Some(merged), Some(waiting([0, 1, 0], 1_100)))
            .unwrap();
        assert_eq!((w.begin_ns, w.device_issues), (900 * MS, 1_000));
        assert_eq!(w.present_ns, [0, 250 * MS]);
        assert_eq!(t.tick(None, None), None);
    }

    #[test]
    fn an_issue_ends_a_wait_and_a_later_one_begins_with_its_own_request() {
        let mut t = Ticks::new();
        t.tick(None, Some(waiting([0, 2, 0], 900)));
        let issued = GroupDelta {
            issues: 2,
            last_issue_ns: Some(1_050 * MS),
            ..moved()
        };
        // Both were issued; what waits now came after an empty queue.
        let w = t
            .tick(Some(issued), Some(waiting([0, 1, 2], 1_200)))
            .unwrap();
        assert_eq!((w.begin_ns, w.own_issues), (1_200 * MS, 2));
        let again = GroupDelta {
            issues: 1,
            last_issue_ns: Some(1_300 * MS),
            ..moved()
        };
        // One was issued and an older one was left.
        let w = t
            .tick(Some(again), Some(waiting([0, 1, 0], 1_200)))
            .unwrap();
        assert_eq!((w.begin_ns, w.device_issues), (1_300 * MS, 1_300));
    }

    #[test]
    fn a_request_that_was_no_more_there_proves_nothing_about_the_next() {
        for gone in [
            GroupDelta {
                expired: 1,
                ..moved()
            },
            // Ended by the block layer without having been issued.
            GroupDelta {
                finished: 1,
                ..moved()
            },
        ] {
            let mut t = Ticks::new();
            t.tick(None, Some(waiting([0, 1, 0], 900)));
            let w = t.tick(Some(gone), Some(waiting([0, 1, 0], 1_200))).unwrap();
            assert_eq!(w.begin_ns, 1_200 * MS);
        }
        let mut t = Ticks::new();
        t.tick(None, Some(waiting([0, 1, 1], 900)));
        let from_device = GroupDelta {
            finished: 1,
            ..moved()
        };
        let w = t
            .tick(Some(from_device), Some(waiting([0, 1, 0], 1_200)))
            .unwrap();
        assert_eq!(w.begin_ns, 900 * MS);
    }

    #[test]
    fn idle_is_what_all_that_waits_has() {
        let mut now = InFlight::default();
        let group = |idle_prio, count| Waiting {
            idle_prio,
            ..waiting(count, 5)
        };
        now.add(&group(false, [0, 0, 9]));
        assert!(!now.idle_prio(), "nothing waits");
        now.add(&group(true, [0, 3, 0]));
        assert!(now.idle_prio(), "what is in the device does not wait here");
        now.add(&group(false, [1, 0, 0]));
        assert!(!now.idle_prio());
    }

    #[test]
    fn the_tasks_most_often_seen_are_kept() {
        let mut f = Flow::default();
        let mut clock = CellClock::default();
        let see = |f: &mut Flow, clock, pid| {
            let w = Waiter {
                key: KEY,
                stage: Stage::Queued,
                since_ns: 0,
                task: Some(Task {
                    pid,
                    comm: "t".to_owned(),
                }),
                sector: 0,
                bytes: 0,
                bypasses: 0,
                seeded: false,
                waits_for: None,
            };
            f.see(&w, clock);
        };
        for tick in 1..=20u32 {
            clock.advance(u64::from(tick) * 250 * MS);
            see(&mut f, clock, 1);
            see(&mut f, clock, 1);
            see(&mut f, clock, 100 + tick);
        }
        assert_eq!(f.tasks.len(), MAX_TASKS);
        let most = f.tasks.iter().max_by_key(|t| t.ticks).unwrap();
        assert_eq!((most.task.pid, most.ticks), (1, 20), "once a tick");
        assert_eq!(f.tasks_since(clock.to_ns).count(), 2);
    }
}
