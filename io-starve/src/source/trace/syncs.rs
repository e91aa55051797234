//! fsyncs, and the journals that they wait for.
//!
//! In: events of ext4, jbd2 and system calls, and block events of the threads in them. Out: fsyncs, commits, handles and checkpoints,
//! as kernel/read/spans.rs tells them in a live run.
//!
//! A trace has no stacks. What a thread waits for is told by what it has in flight itself: an fsync with requests of its own waits
//! for data, and once they are all written for the commit that runs. Of one without any it is not known: a limit may hold its data. The
//! journal's thread with requests of its own waits for its blocks, and once they are all written for data of files.
//!
//! Nor has it cgroups: the thread that syncs stands for an owner, as far as there is room.

use std::collections::{BTreeMap, BTreeSet};

use io_starve_common::class::Class;

use super::{
    event::{Comm, Event, What},
    fs_event::{CommitStep, FsEvent, FsWhat},
};
use crate::model::observation::{
    Call, Checkpoint, Commit, DevId, Fsync, FsyncDelta, Handle, Observation, Owner, SyncWait, Task,
};

/// fsyncs, commits and checkpoints that run at once and are followed, each.
const MAX_RUNNING: usize = 1_024;
/// Threads that stand for owners; those beyond are unknown owners.
const MAX_OWNERS: usize = 1_024;
/// What ended is told one by one if it took so long, in ns, as in a live run (`SLOW_NS` of the BPF programs).
const SLOW_NS: u64 = 20_000_000;
/// fsyncs, handles and commits told one by one at a tick, each.
const MAX_TOLD: usize = 1_024;
/// Requests of one thread that are remembered.
const MAX_IN_FLIGHT: usize = 4_096;
/// Handles are told from so many jiffies on, as in a live run.
const SLOW_JIFFIES: u32 = 25;
/// So long nothing of a journal, and no flush, is in flight before its commit is taken to wait for data, in ns: no shorter wait is told.
const IDLE_NS: u64 = 200_000_000;
/// The shortest jiffy that kernels are built with, in ns: a handle was open for at least so long for each.
const JIFFY_NS: u64 = 1_000_000;

/// What a thread that is followed has in flight: sectors by disk and first sector, and whether the journal was writing data of files.
#[derive(Debug, Default)]
struct InFlight(BTreeMap<(DevId, u64), (u64, bool)>);

impl InFlight {
    fn begin(&mut self, e: &Event, is_data: bool) {
        let place = (e.dev, e.sector);
        if e.sectors > 0 && (self.0.len() < MAX_IN_FLIGHT || self.0.contains_key(&place)) {
            self.0.insert(place, (e.sectors, is_data));
        }
    }

    /// True when something of it ended.
    fn end(&mut self, e: &Event) -> bool {
        let end = e.sector.saturating_add(e.sectors);
        let done: Vec<_> = (self.0)
            .range((e.dev, e.sector)..(e.dev, end))
            .map(|(place, _)| *place)
            .collect();
        for place in &done {
            self.0.remove(place);
        }
        !done.is_empty()
    }

    fn any(&self, data: bool) -> bool {
        self.0.values().any(|(_, is_data)| *is_data == data)
    }
}

/// An fsync that runs.
#[derive(Debug)]
struct Running {
    /// `None` until a system call's thread writes somewhere.
    fs: Option<DevId>,
    ino: u64,
    comm: Comm,
    begin_ns: u64,
    datasync: bool,
    flush_ns: Option<u64>,
    owner: Owner,
    own: InFlight,
    /// It has submitted something.
    has_written: bool,
    /// Only the system call was seen so far.
    by_call: bool,
}

/// A commit that runs.
#[derive(Debug)]
struct Committing {
    commit: Commit,
    own: InFlight,
    /// When it last entered a part, or something of it was submitted or completed. ns.
    moved_ns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Syncs {
    running: BTreeMap<u32, Running>,
    commits: BTreeMap<DevId, Committing>,
    /// The journals' threads.
    journals: BTreeMap<u32, DevId>,
    checkpoints: BTreeMap<u32, Checkpoint>,
    /// Disks that flush: behind the last block of a commit nothing else of it is in flight.
    flushing: BTreeSet<DevId>,
    owners: BTreeSet<u32>,
    ended: Vec<Fsync>,
    ended_commits: Vec<Commit>,
    handles: Vec<Handle>,
    counts: BTreeMap<(DevId, Owner), (u64, u64)>,
    /// Submissions are in the trace: that a journal has nothing in flight can be told.
    submissions: bool,
    lost: u64,
}

impl Syncs {
    /// The owner for whom a thread stands where its cgroup is not told.
    pub fn stands_for(&mut self, tid: u32) -> Owner {
        if tid == 0 || !self.owners.contains(&tid) && self.owners.len() >= MAX_OWNERS {
            return Owner::Unknown;
        }
        self.owners.insert(tid);
        Owner::Task(tid)
    }

    /// What could not be followed since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Takes in an event of a filesystem.
    pub fn take(&mut self, e: &FsEvent) {
        match e.what {
            FsWhat::SyncEnter { fs, ino, datasync } => {
                // Within a system call: that it began before does not count.
                if self.running.get(&e.tid).is_some_and(|r| r.by_call) {
                    self.running.remove(&e.tid);
                }
                self.begin(e, Some(fs), ino, datasync);
            }
            FsWhat::CallEnter { datasync } => self.begin(e, None, 0, datasync),
            FsWhat::SyncExit(result) => self.end(e, false, result),
            FsWhat::CallExit(result) => self.end(e, true, result),
            FsWhat::Commit { fs, commit, step } => self.commit(e, fs, commit, step),
            FsWhat::Handle {
                fs,
                commit,
                jiffies,
            } => {
                if jiffies >= SLOW_JIFFIES && self.handles.len() < MAX_TOLD {
                    let length = u64::from(jiffies).saturating_mul(JIFFY_NS);
                    let handle = Handle {
                        fs,
                        commit,
                        owner: self.stands_for(e.tid),
                        task: task(e.tid, e.comm),
                        begin_ns: e.ns.saturating_sub(length),
                        end_ns: e.ns,
                    };
                    self.handles.push(handle);
                }
            }
            FsWhat::Checkpoint(fs) => {
                if self.checkpoints.len() < MAX_RUNNING {
                    let owner = self.stands_for(e.tid);
                    let checkpoint = Checkpoint {
                        fs,
                        owner,
                        tid: e.tid,
                        begin_ns: e.ns,
                    };
                    self.checkpoints.entry(e.tid).or_insert(checkpoint);
                } else {
                    self.lost += 1;
                }
            }
            FsWhat::CheckpointDone(fs) => self.checkpoints.retain(|_, c| c.fs != fs),
            FsWhat::Pause(_) => {}
        }
    }

    /// Takes in a block event at its disk, and says who stands for its owner: a thread while it syncs, or a journal's.
    pub fn block(&mut self, e: &Event) -> Option<Owner> {
        self.submissions |= e.what == What::BioQueue;
        match (e.class, e.what) {
            (Class::Flush, What::Issue) => {
                self.flushing.insert(e.dev);
            }
            (Class::Flush, What::Complete) => {
                self.flushing.remove(&e.dev);
            }
            _ => {}
        }
        if self.running.is_empty() && self.commits.is_empty() {
            return None;
        }
        match e.what {
            What::Complete | What::BioComplete => {
                for r in self.running.values_mut() {
                    r.own.end(e);
                }
                for c in self.commits.values_mut() {
                    if c.own.end(e) || e.class == Class::Flush {
                        c.moved_ns = e.ns;
                    }
                }
                return None;
            }
            What::Requeue => return None,
            _ => {}
        }
        let submits = matches!(e.what, What::BioQueue | What::Insert);
        if let Some(r) = self.running.get_mut(&e.tid) {
            if submits {
                r.fs.get_or_insert(e.dev);
                r.own.begin(e, true);
                r.has_written |= e.sectors > 0;
                if e.sectors == 0 && e.what == What::BioQueue {
                    r.flush_ns.get_or_insert(e.ns);
                }
            }
            return Some(r.owner);
        }
        let c = self.commits.get_mut(self.journals.get(&e.tid)?)?;
        if submits {
            let writes_data = c.commit.flushing_ns.is_some() && c.commit.logging_ns.is_none();
            c.own.begin(e, writes_data);
            c.moved_ns = e.ns;
        }
        Some(self.stands_for(e.tid))
    }

    /// A partition turned out to be on this disk: what was submitted to it is in flight there.
    pub fn is_on(&mut self, partition: DevId, disk: DevId) {
        let own = self.running.values_mut().map(|r| &mut r.own);
        for own in own.chain(self.commits.values_mut().map(|c| &mut c.own)) {
            let there: Vec<_> = (own.0)
                .range((partition, 0)..=(partition, u64::MAX))
                .map(|((_, sector), what)| (*sector, *what))
                .collect();
            for (sector, what) in there {
                own.0.remove(&(partition, sector));
                own.0.insert((disk, sector), what);
            }
        }
    }

    /// Events were lost: what ran may have ended unseen.
    pub fn doubt(&mut self) {
        let all = self.running.len() + self.commits.len() + self.checkpoints.len();
        self.lost = self.lost.saturating_add(all as u64);
        self.running.clear();
        self.commits.clear();
        self.checkpoints.clear();
        self.flushing.clear();
    }

    /// True when something runs.
    pub fn any(&self) -> bool {
        !self.running.is_empty() || !self.commits.is_empty()
    }

    /// Puts the tick into an observation and begins the next one.
    pub fn drain(&mut self, o: &mut Observation) {
        for ((fs, owner), (count, sum_ns)) in std::mem::take(&mut self.counts) {
            o.fsync_counts.push(FsyncDelta {
                fs,
                owner,
                count,
                sum_ns,
            });
        }
        o.commits = std::mem::take(&mut self.ended_commits);
        o.commits.extend(self.commits.values().map(|c| {
            let mut commit = c.commit.clone();
            commit.waits_for = self.commit_waits_for(c, o.mono_ns);
            commit
        }));
        o.commits.sort_by_key(|c| (c.begin_ns, c.fs));
        o.fsyncs = std::mem::take(&mut self.ended);
        let running = self.running.iter().filter_map(|(tid, r)| {
            let mut fsync = fsync(*tid, r)?;
            (fsync.waits_for, fsync.commit) = self.waits_for(*tid, r);
            Some(fsync)
        });
        o.fsyncs.extend(running);
        o.fsyncs.sort_by_key(|f| (f.begin_ns, f.tid));
        o.handles = std::mem::take(&mut self.handles);
        o.checkpoints = self.checkpoints.values().cloned().collect();
        o.checkpoints.sort();
    }

    fn begin(&mut self, e: &FsEvent, fs: Option<DevId>, ino: u64, datasync: bool) {
        if e.tid == 0 || self.running.len() >= MAX_RUNNING && !self.running.contains_key(&e.tid) {
            self.lost += 1;
            return;
        }
        let owner = self.stands_for(e.tid);
        let running = Running {
            fs,
            ino,
            comm: e.comm,
            begin_ns: e.ns,
            datasync,
            flush_ns: None,
            owner,
            own: InFlight::default(),
            has_written: false,
            by_call: fs.is_none(),
        };
        // A thread syncs one file at a time: the end of another was missed.
        self.lost += u64::from(self.running.insert(e.tid, running).is_some());
    }

    fn end(&mut self, e: &FsEvent, by_call: bool, result: i32) {
        if self
            .running
            .get(&e.tid)
            .is_none_or(|r| r.by_call != by_call)
        {
            return;
        }
        let Some(r) = self.running.remove(&e.tid) else {
            return;
        };
        let took = e.ns.saturating_sub(r.begin_ns);
        let Some(mut fsync) = fsync(e.tid, &r) else {
            // It wrote nothing itself, so nobody can say where.
            self.lost += u64::from(took >= SLOW_NS);
            return;
        };
        let count = self.counts.entry((fsync.fs, fsync.owner)).or_default();
        count.0 += 1;
        count.1 = count.1.saturating_add(took);
        (fsync.end_ns, fsync.result) = (Some(e.ns), result);
        if took >= SLOW_NS {
            match self.ended.len() < MAX_TOLD {
                true => self.ended.push(fsync),
                false => self.lost += 1,
            }
        }
    }

    fn commit(&mut self, e: &FsEvent, fs: DevId, number: u32, step: CommitStep) {
        if step == CommitStep::End {
            // `jbd2_run_stats` and `jbd2_end_commit` tell the same end.
            if self
                .commits
                .get(&fs)
                .is_some_and(|c| c.commit.commit == number)
                && let Some(c) = self.commits.remove(&fs)
                && e.ns.saturating_sub(c.commit.begin_ns) >= SLOW_NS
                && self.ended_commits.len() < MAX_TOLD
            {
                let end_ns = Some(e.ns);
                self.ended_commits.push(Commit { end_ns, ..c.commit });
            }
            return;
        }
        if self
            .commits
            .get(&fs)
            .is_none_or(|c| c.commit.commit != number)
        {
            if self.commits.len() >= MAX_RUNNING && !self.commits.contains_key(&fs) {
                self.lost += 1;
                return;
            }
            self.journals.retain(|_, of| *of != fs);
            self.journals.insert(e.tid, fs);
            let commit = Commit {
                fs,
                commit: number,
                tid: e.tid,
                begin_ns: e.ns,
                end_ns: None,
                locking_ns: None,
                flushing_ns: None,
                logging_ns: None,
                waited: None,
                waits_for: None,
            };
            let own = InFlight::default();
            let committing = Committing {
                commit,
                own,
                moved_ns: e.ns,
            };
            let before = self.commits.insert(fs, committing);
            // Commits of a journal follow each other: the end of one was missed.
            self.lost += u64::from(before.is_some());
        }
        let Some(c) = self.commits.get_mut(&fs) else {
            return;
        };
        c.moved_ns = e.ns;
        match step {
            CommitStep::Locking => c.commit.locking_ns = Some(e.ns),
            CommitStep::Flushing => c.commit.flushing_ns = Some(e.ns),
            CommitStep::Logging => c.commit.logging_ns = Some(e.ns),
            CommitStep::Start | CommitStep::End => {}
        }
    }

    fn waits_for(&self, tid: u32, r: &Running) -> (Option<SyncWait>, Option<u32>) {
        if r.own.any(true) {
            return (Some(SyncWait::Data), None);
        }
        let makes_room = self.checkpoints.get(&tid);
        if makes_room.is_some_and(|c| Some(c.fs) == r.fs) {
            return (Some(SyncWait::JournalSpace), None);
        }
        match r.fs.and_then(|fs| self.commits.get(&fs)) {
            Some(c) if r.has_written => (Some(SyncWait::Journal), Some(c.commit.commit)),
            _ => (None, None),
        }
    }

    fn commit_waits_for(&self, c: &Committing, now: u64) -> Option<SyncWait> {
        if c.own.any(false) {
            return Some(SyncWait::JournalBlocks);
        }
        if self.checkpoints.contains_key(&c.commit.tid) {
            return Some(SyncWait::JournalSpace);
        }
        if c.own.any(true) {
            return Some(SyncWait::Data);
        }
        // Handles are waited for between locking and flushing; of what comes later only data is left.
        let writes = c.commit.flushing_ns.is_some() && self.submissions;
        let idle = self.flushing.is_empty() && now.saturating_sub(c.moved_ns) >= IDLE_NS;
        (writes && idle).then_some(SyncWait::Data)
    }
}

fn task(tid: u32, comm: Comm) -> Option<Task> {
    (tid != 0).then(|| Task {
        pid: tid,
        comm: comm.text(),
    })
}

/// `None` while it is not known on which filesystem.
fn fsync(tid: u32, r: &Running) -> Option<Fsync> {
    Some(Fsync {
        call: Call::Fsync,
        fs: r.fs?,
        ino: r.ino,
        file: None,
        owner: r.owner,
        tid,
        task: task(tid, r.comm),
        begin_ns: r.begin_ns,
        end_ns: None,
        datasync: r.datasync,
        journal_ns: None,
        commit: None,
        flush_ns: r.flush_ns,
        waits_for: None,
        result: 0,
    })
}
