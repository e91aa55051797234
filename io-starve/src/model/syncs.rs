//! fsyncs and whom they wait for.
//!
//! In: the fsyncs, commits and holds of a tick. Out: for each fsync how long it has waited for whom, through what. The time between
//! two ticks is given to what keeps the fsync waiting at the second of them ([`super::causes`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::blame::Edge;
use super::causes::{Cause, Gap, Scene};
use super::mechanism::Mechanism;
use super::observation::{Call, Commit, DevId, Fsync, Handle, Hold, Observation, Owner, SyncWait};

/// Slow fsyncs that are still shown after they ended.
pub const MAX_RECENT: usize = 128;
/// fsyncs that run at once and are followed; those beyond wait for the same, and are counted by the kernel side.
const MAX_RUNNING: usize = 1_024;
/// Owners on filesystems whose fsyncs are counted.
const MAX_TOTALS: usize = 2_048;
/// Handles that are remembered; a commit seldom has more long ones.
const MAX_HANDLES: usize = 256;

/// Time for which somebody was kept waiting by the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// By whom; `None` when that could not be told.
    pub culprit: Option<Owner>,
    /// Through what.
    pub mechanism: Mechanism,
    /// How long, in ns.
    pub ns: u64,
    /// The cgroup whose limit held the culprit's I/O: itself or an ancestor.
    pub limit: Option<(Owner, DevId)>,
    /// At every tick the way from one to the other was seen.
    pub sure: bool,
}

/// An fsync with what is known of its wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    /// As it was last told.
    pub span: Fsync,
    /// Whom it waited for.
    pub delays: Vec<Delay>,
    /// What could not be seen, most lately or on a way to somebody who is blamed.
    pub gaps: Vec<Gap>,
    /// The file whose data the commit waits or waited for.
    pub inode: Option<u64>,
    /// Time in each part, as far as it could be seen.
    pub split: Split,
    /// Bytes and requests of its owner that were finished when it was first seen.
    own_before: (u64, u64),
    /// The same, and what is in flight, by now.
    own: (u64, u64),
    attributed_to_ns: u64,
    /// What was not seen when somebody was blamed all the same.
    doubts: BTreeSet<Gap>,
    /// What kept it waiting at the last tick.
    last: Option<Cause>,
    /// Its data was waited for after the journal.
    data_comes_last: bool,
}

/// Where the time of an fsync went, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Writing its own data and waiting for that.
    pub data_ns: u64,
    /// Waiting for the journal.
    pub journal_ns: u64,
    /// Flushing the disk's cache by itself.
    pub flush_ns: u64,
    /// Not seen.
    pub other_ns: u64,
    /// The borders were seen as they happened, and not only at ticks.
    pub exact: bool,
}

impl Sync {
    /// How long it has taken, in ns.
    pub fn took_ns(&self, now: u64) -> u64 {
        self.span
            .end_ns
            .map_or(now, |end| end.min(now))
            .saturating_sub(self.span.begin_ns)
    }

    /// Bytes and requests that its owner had to have written since it began.
    pub fn own_work(&self) -> (u64, u64) {
        (
            self.own.0.saturating_sub(self.own_before.0),
            self.own.1.saturating_sub(self.own_before.1),
        )
    }

    fn new(span: &Fsync, scene: &Scene<'_>) -> Sync {
        Sync {
            delays: Vec::new(),
            gaps: Vec::new(),
            inode: None,
            split: Split::default(),
            own_before: scene.finished_of(span.fs, span.owner),
            own: (0, 0),
            attributed_to_ns: span.begin_ns,
            doubts: BTreeSet::new(),
            last: None,
            data_comes_last: false,
            span: span.clone(),
        }
    }

    /// Gives the time since the last tick to what keeps it waiting now.
    fn attribute(&mut self, scene: &Scene<'_>, now: u64, edges: &mut Vec<(Edge, u64)>) {
        let (bytes, requests) = scene.finished_of(self.span.fs, self.span.owner);
        let in_flight = scene.in_flight_of(self.span.fs, self.span.owner);
        self.own = (
            bytes.saturating_add(in_flight.0),
            requests.saturating_add(in_flight.1),
        );
        let until = self.span.end_ns.unwrap_or(now);
        // Its own data was waited for up to here, the rest from here on.
        let border = self.span.journal_ns.unwrap_or(0).min(until);
        if border > self.attributed_to_ns {
            let ns = border - self.attributed_to_ns;
            self.add(&scene.data_queue(&self.span), ns, edges);
            self.attributed_to_ns = border;
            // What kept it waiting before kept it no longer.
            self.last = None;
        }
        let ns = until.saturating_sub(self.attributed_to_ns);
        if ns > 0 {
            // Once it has ended, so has what it waited for.
            let cause = match self.last.take().filter(|_| self.span.end_ns.is_some()) {
                Some(last) => last,
                None => scene.cause(&self.span),
            };
            if cause.shares.iter().any(|(culprit, _)| culprit.is_some()) {
                self.doubts.extend(&cause.gaps);
            }
            let gaps: BTreeSet<Gap> = self.doubts.iter().chain(&cause.gaps).copied().collect();
            self.gaps = gaps.into_iter().collect();
            self.inode = cause.inode.or(self.inode);
            self.add(&cause, ns, edges);
            self.attributed_to_ns = until;
            self.data_comes_last |=
                self.span.journal_ns.is_some() && self.span.waits_for == Some(SyncWait::Data);
            self.split.add(&cause, ns);
            self.last = Some(cause);
        }
        if !self.data_comes_last {
            self.split.measure(&self.span, until);
        }
    }

    fn add(&mut self, cause: &Cause, ns: u64, edges: &mut Vec<(Edge, u64)>) {
        for (culprit, part) in &cause.shares {
            let ns = (ns as f64 * part) as u64;
            if let Some(culprit) = culprit.filter(|c| *c != self.span.owner) {
                let edge = Edge {
                    victim: self.span.owner,
                    culprit,
                    mechanism: cause.mechanism,
                };
                edges.push((edge, ns));
            }
            let same = |d: &&mut Delay| {
                d.culprit == *culprit && d.mechanism == cause.mechanism && d.limit == cause.limit
            };
            match self.delays.iter_mut().find(same) {
                Some(d) => {
                    d.ns = d.ns.saturating_add(ns);
                    d.sure &= cause.sure;
                }
                None => self.delays.push(Delay {
                    culprit: *culprit,
                    mechanism: cause.mechanism,
                    ns,
                    limit: cause.limit,
                    sure: cause.sure,
                }),
            }
        }
    }
}

impl Split {
    /// As far as ticks tell: the time is that of what was seen at the tick.
    fn add(&mut self, cause: &Cause, ns: u64) {
        let part = match cause.mechanism {
            Mechanism::DataQueue if cause.seen => &mut self.data_ns,
            Mechanism::JournalData
            | Mechanism::JournalQueue
            | Mechanism::Transaction
            | Mechanism::Checkpoint
            | Mechanism::LoopWorker
            | Mechanism::DirtyLimit
                if cause.seen =>
            {
                &mut self.journal_ns
            }
            _ => &mut self.other_ns,
        };
        *part = part.saturating_add(ns);
    }

    /// Where they were seen as they happened, they replace what ticks say.
    fn measure(&mut self, span: &Fsync, until: u64) {
        let only_data = (span.call == Call::SyncRange).then_some(until);
        let Some(journal) = only_data.or(span.journal_ns).or(span.flush_ns) else {
            return;
        };
        let flush = span.flush_ns.unwrap_or(until);
        *self = Split {
            data_ns: journal.saturating_sub(span.begin_ns),
            journal_ns: flush.saturating_sub(journal),
            flush_ns: until.saturating_sub(flush),
            other_ns: 0,
            exact: true,
        };
    }
}

/// fsyncs that ended, of one owner on one filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// How many.
    pub count: u64,
    /// Sum of their durations in ns.
    pub sum_ns: u64,
}

/// All that is known of fsyncs and journals.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Syncs {
    /// Those that run, oldest first.
    #[serde_as(as = "Vec<(_, _)>")]
    running: BTreeMap<(u64, u32), Sync>,
    /// Those that ended at this tick.
    ended: Vec<Sync>,
    /// Slow ones that ended, latest last.
    recent: VecDeque<Sync>,
    /// Commits that run.
    #[serde_as(as = "Vec<(_, _)>")]
    commits: BTreeMap<DevId, Commit>,
    /// What limits hold at this tick.
    holds: Vec<Hold>,
    handles: VecDeque<Handle>,
    #[serde_as(as = "Vec<(_, _)>")]
    totals: BTreeMap<(DevId, Owner), Totals>,
}

impl Syncs {
    /// Those that run, oldest first, then those that ended at this tick.
    pub fn at_tick(&self) -> impl Iterator<Item = &Sync> {
        self.running.values().chain(&self.ended)
    }

    /// Those that run, oldest first.
    pub fn running(&self) -> impl Iterator<Item = &Sync> {
        self.running.values()
    }

    /// Slow ones that ended, latest first.
    pub fn recent(&self) -> impl Iterator<Item = &Sync> {
        self.recent.iter().rev()
    }

    /// The commit that runs on a filesystem.
    pub fn commit(&self, fs: DevId) -> Option<&Commit> {
        self.commits.get(&fs)
    }

    /// Commits that run.
    pub fn commits(&self) -> &BTreeMap<DevId, Commit> {
        &self.commits
    }

    /// What limits hold at this tick.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Handles that kept a transaction open for long, latest last.
    pub fn handles(&self) -> impl DoubleEndedIterator<Item = &Handle> {
        self.handles.iter()
    }

    /// fsyncs that ended, by filesystem and owner.
    pub fn totals(&self) -> &BTreeMap<(DevId, Owner), Totals> {
        &self.totals
    }

    /// Takes in what a tick tells, but for the fsyncs.
    pub(super) fn take_journals(&mut self, o: &Observation) {
        self.commits.clear();
        let running = o.commits.iter().filter(|c| c.end_ns.is_none());
        self.commits.extend(running.map(|c| (c.fs, c.clone())));
        self.holds.clone_from(&o.holds);
        for h in &o.handles {
            push(&mut self.handles, h.clone(), MAX_HANDLES);
        }
        for d in &o.fsync_counts {
            if self.totals.len() >= MAX_TOTALS && !self.totals.contains_key(&(d.fs, d.owner)) {
                continue;
            }
            let t = self.totals.entry((d.fs, d.owner)).or_default();
            t.count = t.count.saturating_add(d.count);
            t.sum_ns = t.sum_ns.saturating_add(d.sum_ns);
        }
    }

    /// Takes in that no fsync runs or has just ended.
    pub(super) fn nobody_syncs(&mut self) {
        self.running.clear();
        self.ended.clear();
    }

    /// Takes in the fsyncs. `scene` is made of what [`Syncs::take_journals`] took in.
    /// Returns the delays of this tick.
    pub(super) fn take_fsyncs(
        &mut self,
        fsyncs: &[Fsync],
        scene: &Scene<'_>,
        now: u64,
    ) -> Vec<(Edge, u64)> {
        let mut edges = Vec::new();
        let mut before = std::mem::take(&mut self.running);
        self.ended.clear();
        for span in fsyncs {
            let id = (span.begin_ns, span.tid);
            let mut sync = before.remove(&id).unwrap_or_else(|| Sync::new(span, scene));
            // The stack of one that ended is no longer read.
            let was_in = sync.span.waits_for;
            sync.span = span.clone();
            if span.end_ns.is_some() {
                sync.span.waits_for = was_in;
            }
            sync.attribute(scene, now, &mut edges);
            if span.end_ns.is_some() {
                push(&mut self.recent, sync.clone(), MAX_RECENT);
                self.ended.push(sync);
            } else if self.running.len() < MAX_RUNNING {
                self.running.insert(id, sync);
            }
        }
        // What is left ended in no time after the last tick, or its end was lost with the ring: it no longer waits.
        edges
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}
