//! Writers that the kernel pauses for dirty memory, and who waits behind a worker that is paused itself.
//!
//! In: pauses, sums of them, how busy disks are, requests that wait, facts about loop devices. Out: wall time of pauses by backing
//! device, owner and worker, for the last 10 s; sums since attach; waits of others on a loop device that lie in its worker's pauses.

use std::collections::{BTreeMap, VecDeque};

use io_starve_common::class::Class;
use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::intervals::Intervals;
use super::observation::{DevId, DirtyFigures, LoopFact, Observation, Owner, Pause, Task, Worker};
use super::windows::KEEP_NS;

/// Owners and workers on backing devices that are followed. Those beyond are counted in the totals only.
const MAX_STREAMS: usize = 1_024;
/// Backing devices with totals since attach.
const MAX_TOTALS: usize = 512;
/// Tasks of a stream that are remembered.
const MAX_TASKS: usize = 16;
/// Pauses of a stream whose lengths are kept.
const MAX_LENGTHS: usize = 256;
/// Loop devices that are followed; each has a disk.
const MAX_LOOPS: usize = super::MAX_DEVICES;
/// A thread that was paused itself for this part of the time is one that the brake is for.
const BRAKED: f64 = 0.1;
/// Groups that waited behind workers.
const MAX_BEHIND: usize = 256;

/// What is told apart: backing device, owner, name of the worker.
pub type StreamKey = (String, Owner, Option<String>);

/// One pause in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Length {
    /// When it began. ns, monotonic.
    pub begin_ns: u64,
    /// How long it was, in ns.
    pub ns: u64,
    /// Whose.
    pub tid: u32,
}

/// Pauses of one owner, or of one worker, on one backing device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The disk that the backing device is named after.
    pub dev: Option<DevId>,
    /// The worker, where it is one.
    pub worker: Option<Worker>,
    /// When somebody was paused: the last 10 s.
    pub paused: Intervals,
    /// The last pauses one by one.
    pub lengths: VecDeque<Length>,
    /// Figures of the last pause that had some, and when. ns, monotonic.
    pub figures: Option<(u64, DirtyFigures)>,
    /// Tasks, with the end of their last pause.
    pub tasks: Vec<(Task, u64)>,
    /// Pauses that began, and the sum of their lengths in ns: (tick, count, sum) of the last 10 s.
    pub counts: VecDeque<(u64, u64, u64)>,
    /// When something was last told of it. ns, monotonic.
    last_ns: u64,
}

impl Stream {
    /// Pauses that began since a moment, and the sum of their lengths in ns.
    pub fn since(&self, from: u64) -> (u64, u64) {
        self.counts
            .iter()
            .filter(|(at, _, _)| *at > from)
            .fold((0, 0), |sum, (_, n, ns)| {
                (sum.0.saturating_add(*n), sum.1.saturating_add(*ns))
            })
    }

    /// The longest pause that began since a moment, in ns.
    pub fn longest(&self, from: u64) -> u64 {
        let late = self.lengths.iter().filter(|l| l.begin_ns >= from);
        late.map(|l| l.ns).max().unwrap_or(0)
    }

    /// Figures that are not older than a moment.
    pub fn figures_since(&self, from: u64) -> Option<DirtyFigures> {
        self.figures.filter(|(at, _)| *at >= from).map(|(_, f)| f)
    }

    /// The part of the time since the first pause that is remembered in which this thread was paused, 0 to 1.
    fn share_of(&self, tid: u32, now: u64) -> f64 {
        let Some(first) = self.lengths.front() else {
            return 0.0;
        };
        let of = self.lengths.iter().filter(|l| l.tid == tid);
        let sum = of.fold(0u64, |sum, l| {
            sum.saturating_add(l.ns.min(now.saturating_sub(l.begin_ns)))
        });
        sum as f64 / now.saturating_sub(first.begin_ns).max(1) as f64
    }

    /// Tasks that are paused at a moment.
    pub fn tasks_at(&self, now: u64) -> impl Iterator<Item = &Task> {
        self.tasks
            .iter()
            .filter(move |(_, end)| *end > now)
            .map(|(task, _)| task)
    }

    fn tell(&mut self, pause: &Pause) {
        self.dev = pause.dev;
        self.worker.clone_from(&pause.worker);
        self.paused.add(pause.begin_ns, pause.end_ns);
        let length = pause.end_ns.saturating_sub(pause.begin_ns);
        self.lengths.push_back(Length {
            begin_ns: pause.begin_ns,
            ns: length,
            tid: pause.tid,
        });
        if self.lengths.len() > MAX_LENGTHS {
            self.lengths.pop_front();
        }
        if let Some(figures) = pause.figures {
            self.figures = Some((pause.begin_ns, figures));
        }
        if let Some(task) = &pause.task {
            self.tasks.retain(|(t, _)| t.pid != task.pid);
            self.tasks.insert(0, (task.clone(), pause.end_ns));
            self.tasks.truncate(MAX_TASKS);
        }
    }
}

/// Requests of one group on a loop device that waited while its worker was paused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// (tick, ns): time of the oldest of them in the worker's pauses, for each tick of the last 10 s.
    pub waited: VecDeque<(u64, u64)>,
    /// The longest such time of one request in the last 10 s, by tick, in ns.
    pub longest: VecDeque<(u64, u64)>,
    /// Who submitted the last one.
    pub task: Option<Task>,
}

impl Behind {
    /// Time in pauses since a moment, and the longest of one request, in ns.
    pub fn since(&self, from: u64) -> (u64, u64) {
        let late = |list: &VecDeque<(u64, u64)>| -> Vec<u64> {
            let late = list.iter().filter(|(at, _)| *at > from);
            late.map(|(_, ns)| *ns).collect()
        };
        (
            late(&self.waited)
                .iter()
                .fold(0, |sum, ns| sum.saturating_add(*ns)),
            late(&self.longest).into_iter().max().unwrap_or(0),
        )
    }
}

/// Something that waits, or has waited since the last tick, on a disk.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// The disk.
    pub dev: DevId,
    /// Who pays.
    pub owner: Owner,
    /// What: fsyncs are sync writes.
    pub class: Class,
    /// When it began. ns, monotonic.
    pub begin_ns: u64,
    /// When it ended, or the present tick. ns, monotonic.
    pub end_ns: u64,
    /// Who waits.
    pub task: Option<&'a Task>,
}

/// What one group waited behind a worker at a tick: since the last one, and its longest request in all.
#[derive(Default)]
struct Waited {
    new_ns: u64,
    longest_ns: u64,
    task: Option<Task>,
}

/// A loop device, also for a while after it lost its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loop {
    /// As last told.
    pub fact: LoopFact,
    /// When it lost its file. ns, monotonic.
    pub gone_ns: Option<u64>,
}

/// Everything about dirty memory.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirty {
    #[serde_as(as = "Vec<(_, _)>")]
    streams: BTreeMap<StreamKey, Stream>,
    /// (count, sum in ns) since attach, by backing device and worker.
    #[serde_as(as = "Vec<(_, _)>")]
    totals: BTreeMap<(String, Option<String>), (u64, u64)>,
    #[serde_as(as = "Vec<(_, _)>")]
    loops: BTreeMap<DevId, Loop>,
    /// (tick, ms since boot).
    #[serde_as(as = "Vec<(_, _)>")]
    busy: BTreeMap<DevId, VecDeque<(u64, u64)>>,
    #[serde_as(as = "Vec<(_, _)>")]
    behind: BTreeMap<(DevId, Owner, Class), Behind>,
    tick_ns: u64,
}

impl Dirty {
    /// A loop device has this file.
    pub fn learn_loop(&mut self, fact: &LoopFact) {
        if self.loops.len() < MAX_LOOPS || self.loops.contains_key(&fact.dev) {
            let known = Loop {
                fact: fact.clone(),
                gone_ns: None,
            };
            self.loops.insert(fact.dev, known);
        }
    }

    /// A loop device has no file any more.
    pub fn loop_gone(&mut self, dev: DevId, now: u64) {
        if let Some(known) = self.loops.get_mut(&dev) {
            known.gone_ns.get_or_insert(now);
        }
    }

    /// Loop devices, by number.
    pub fn loops(&self) -> &BTreeMap<DevId, Loop> {
        &self.loops
    }

    /// Owners and workers by backing device.
    pub fn streams(&self) -> &BTreeMap<StreamKey, Stream> {
        &self.streams
    }

    /// (count, sum of lengths in ns) since attach, by backing device and name of the worker.
    pub fn totals(&self) -> &BTreeMap<(String, Option<String>), (u64, u64)> {
        &self.totals
    }

    /// When somebody of those streams was paused between two moments: wall time.
    pub fn paused(
        &self,
        from: u64,
        to: u64,
        wanted: impl Fn(&StreamKey, &Stream) -> bool,
    ) -> Intervals {
        let mut all = Intervals::default();
        for (key, stream) in &self.streams {
            if wanted(key, stream) {
                all.join(&stream.paused);
            }
        }
        all.within(from, to)
    }

    /// True when some worker was paused in the last 10 s.
    pub fn has_workers(&self) -> bool {
        self.streams.keys().any(|(_, _, worker)| worker.is_some())
    }

    /// When the worker of this loop device was paused, on any backing device.
    pub fn worker_paused(&self, dev: DevId, from: u64, to: u64) -> Intervals {
        let name = self.loops.get(&dev).map(|l| l.fact.name.as_str());
        self.paused(from, to, |(_, _, worker), _| {
            worker.is_some() && worker.as_deref() == name
        })
    }

    /// Part of the time between two moments in which a disk was busy, 0 to 1; `None` when that was not told.
    pub fn busy_share(&self, dev: DevId, from: u64, to: u64) -> Option<f64> {
        let told = self.busy.get(&dev)?;
        let after = told.iter().find(|(at, _)| *at >= from)?;
        let last = told.iter().rev().find(|(at, _)| *at <= to)?;
        let span = last.0.checked_sub(after.0).filter(|ns| *ns > 0)?;
        let busy = last.1.saturating_sub(after.1).saturating_mul(1_000_000);
        Some((busy as f64 / span as f64).min(1.0))
    }

    /// The part of some times in which a disk was idle, 0 to 1. Only ticks tell how busy it was, so the times within one count alike.
    pub fn idle_share(&self, dev: DevId, times: &Intervals) -> Option<f64> {
        let told = self.busy.get(&dev)?;
        let (mut known, mut idle) = (0.0, 0.0);
        for (a, b) in told.iter().zip(told.iter().skip(1)) {
            let here = times.within(a.0, b.0).sum() as f64;
            let busy = b.1.saturating_sub(a.1).saturating_mul(1_000_000) as f64;
            let share = (busy / (b.0 - a.0).max(1) as f64).min(1.0);
            known += here;
            idle += here * (1.0 - share);
        }
        (known > 0.0).then(|| idle / known)
    }

    /// Who waited behind the worker of a loop device.
    pub fn behind(&self, dev: DevId) -> impl Iterator<Item = (Owner, Class, &Behind)> {
        self.behind
            .range((dev, Owner::Cgroup(0), Class::SyncRead)..)
            .take_while(move |((d, _, _), _)| *d == dev)
            .map(|((_, owner, class), behind)| (*owner, *class, behind))
    }

    /// Takes in a tick at `now`; `before` is the previous one. `waits` is what waits on loop devices.
    pub fn take(&mut self, o: &Observation, waits: &[Wait<'_>], before: u64, now: u64) {
        self.tick_ns = now;
        for pause in &o.pauses {
            let worker = pause.worker.as_ref().map(|w| w.name.clone());
            if let Some(stream) = self.stream((pause.bdi.clone(), pause.owner, worker)) {
                stream.tell(pause);
                stream.last_ns = now;
            }
        }
        for d in &o.pause_counts {
            let key = (d.bdi.clone(), d.worker.clone());
            if self.totals.len() < MAX_TOTALS || self.totals.contains_key(&key) {
                let total = self.totals.entry(key).or_default();
                total.0 = total.0.saturating_add(d.count);
                total.1 = total.1.saturating_add(d.sum_ns);
            }
            if let Some(stream) = self.stream((d.bdi.clone(), d.owner, d.worker.clone())) {
                stream.counts.push_back((now, d.count, d.sum_ns));
                stream.last_ns = now;
            }
        }
        for b in &o.busy {
            let known = self.busy.len();
            if known < super::MAX_DEVICES || self.busy.contains_key(&b.dev) {
                let told = self.busy.entry(b.dev).or_default();
                if told.back().is_none_or(|(at, _)| *at < now) {
                    told.push_back((now, b.busy_ms));
                }
            }
        }
        self.look_behind_workers(waits, before, now);
        self.forget(now);
    }

    fn stream(&mut self, key: StreamKey) -> Option<&mut Stream> {
        (self.streams.len() < MAX_STREAMS || self.streams.contains_key(&key))
            .then(|| self.streams.entry(key).or_default())
    }

    /// What waits on a loop device while its worker sleeps, requests and fsyncs, but for those of who is paused there himself: the writer that the
    /// brake is meant for.
    fn look_behind_workers(&mut self, waits: &[Wait<'_>], before: u64, now: u64) {
        if waits.is_empty() {
            return;
        }
        let mut worst: BTreeMap<(DevId, Owner, Class), Waited> = BTreeMap::new();
        for dev in self.loops.keys().copied() {
            let oldest = now.saturating_sub(KEEP_NS);
            let pauses = self.worker_paused(dev, oldest, now);
            if pauses.is_empty() {
                continue;
            }
            for w in waits.iter().filter(|w| w.dev == dev) {
                if !self.is_bystander(w) {
                    continue;
                }
                let all = pauses.within(w.begin_ns, w.end_ns).sum();
                let new = pauses.within(w.begin_ns.max(before), w.end_ns).sum();
                let key = (dev, w.owner, w.class);
                let waited = worst.entry(key).or_default();
                waited.new_ns = waited.new_ns.max(new);
                if all >= waited.longest_ns {
                    waited.longest_ns = all;
                    waited.task = w.task.cloned();
                }
            }
        }
        for (key, waited) in worst {
            if waited.new_ns == 0
                || self.behind.len() >= MAX_BEHIND && !self.behind.contains_key(&key)
            {
                continue;
            }
            let behind = self.behind.entry(key).or_default();
            behind.waited.push_back((now, waited.new_ns));
            behind.longest.push_back((now, waited.longest_ns));
            behind.task = waited.task;
        }
    }

    /// Somebody who waits for this request and is hardly paused himself: a reader, or a writer that syncs. Background writes are what the
    /// brake is for, and threads of the kernel wait for nobody's sake that is known.
    fn is_bystander(&self, w: &Wait<'_>) -> bool {
        if !matches!(w.class, Class::SyncRead | Class::SyncWrite) {
            return false;
        }
        let Some(task) = w.task else {
            return false;
        };
        let kernels = ["jbd2/", "kworker/", "xfsaild/", "xfs-", "btrfs-", "loop"];
        if kernels.iter().any(|k| task.comm.starts_with(k)) {
            return false;
        }
        let braked = |s: &Stream| s.share_of(task.pid, self.tick_ns) >= BRAKED;
        !self.streams.values().any(braked)
    }

    fn forget(&mut self, now: u64) {
        let from = now.saturating_sub(KEEP_NS);
        for stream in self.streams.values_mut() {
            stream.paused.prune(from);
            stream.lengths.retain(|l| l.begin_ns >= from);
            stream.counts.retain(|(at, _, _)| *at > from);
            stream.tasks.retain(|(_, end)| *end > from);
        }
        self.streams.retain(|_, s| s.last_ns > from);
        for told in self.busy.values_mut() {
            told.retain(|(at, _)| *at > from);
        }
        self.busy.retain(|_, told| !told.is_empty());
        for behind in self.behind.values_mut() {
            behind.waited.retain(|(at, _)| *at > from);
            behind.longest.retain(|(at, _)| *at > from);
        }
        self.behind.retain(|_, b| !b.waited.is_empty());
        self.loops.retain(|_, l| {
            l.gone_ns
                .is_none_or(|gone| now.saturating_sub(gone) < super::FORGET_DEVICE_NS)
        });
    }
}

impl super::Model {
    /// Takes in a tick at `now`: pauses, and what waits on loop devices; `before` is the previous tick.
    pub(super) fn take_dirty(&mut self, o: &Observation, before: u64, now: u64) {
        // Nearly always nobody is paused, and nothing is searched for.
        let paused = self.dirty.has_workers() || o.pauses.iter().any(|p| p.worker.is_some());
        let is_loop = |dev: &DevId| paused && self.dirty.loops().contains_key(dev);
        let requests = self.waiters.iter().filter(|w| is_loop(&w.key.dev));
        let mut waits: Vec<Wait<'_>> = requests
            .map(|w| Wait {
                dev: w.key.dev,
                owner: w.key.owner,
                class: w.key.class,
                begin_ns: w.since_ns,
                end_ns: now,
                task: w.task.as_ref(),
            })
            .collect();
        for f in &o.fsyncs {
            let disks = self.filesystems.get(f.fs).map(|fs| fs.queues.iter());
            let loops = disks.into_iter().flatten().filter(|d| is_loop(d));
            waits.extend(loops.map(|dev| Wait {
                dev: *dev,
                owner: f.owner,
                class: Class::SyncWrite,
                begin_ns: f.begin_ns,
                end_ns: f.end_ns.map_or(now, |end| end.min(now)),
                task: f.task.as_ref(),
            }));
        }
        self.dirty.take(o, &waits, before, now);
    }
}

#[cfg(test)]
mod tests;
