//! fsyncs, commits, holds and handles: what runs at this moment, and what ended and took long.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use aya::maps::{MapData, RingBuf};
use io_starve_common::{
    dirty::PauseSpan,
    span::{
        CommitSpan, HELD_ROWS, HandleSpan, HeldRow, JOURNAL_ROWS, JournalRow, SYNC_BTRFS,
        SYNC_BY_RETURN, SYNC_DATA, SYNC_RANGE, SYNC_ROWS, SYNC_XFS, SpanKind, SyncSlot, SyncSpan,
        SyncTotals, TOTALS_ROWS, WALK_COUNT, WALK_CURSOR, WALK_FILLED,
    },
    wire::dev_of_key,
};

use super::{
    super::{
        AttachError,
        devices::clean,
        stacks,
        table::Table,
        tasks::{self, Names},
    },
    counters,
};
use crate::model::observation::{
    Call, Checkpoint, Commit, DevId, Fsync, FsyncDelta, Handle, Hold, Holder, InodeWait, Owner,
};

mod stalls;
use stalls::Stalls;

/// Stacks are read of what runs for longer than this, in ns.
const STACK_NS: u64 = 100_000_000;
/// An fsync is doubted when it is older than this, in ns, and its task does something else.
const DOUBT_NS: u64 = 2_000_000_000;
/// Stacks read at a tick at most; the oldest first.
const STACKS: usize = 32;
/// Runs of the walk through the groups of one queue: four groups each.
const WALK_RUNS: usize = 4096;

/// The tables.
pub struct Spans {
    syncs: Table<SyncSlot>,
    totals: Table<SyncTotals>,
    journals: Table<JournalRow>,
    held: Table<HeldRow>,
    walk: Table<u64>,
    ring: Option<RingBuf<MapData>>,
    told: BTreeMap<(DevId, Owner), (u64, u64)>,
    holding: BTreeMap<(DevId, Owner, bool), u64>,
    names: Names,
    tick: Tick,
    /// fsyncs whose task did something else at the last tick.
    doubted: BTreeSet<SyncId>,
    /// Those whose end was missed, as long as their row says that they run.
    given_up: BTreeSet<SyncId>,
    /// Those that run and whose end is a function's return: more at once than the kernel has kretprobe instances for go unseen.
    by_return: BTreeSet<SyncId>,
    /// What was given up, or found no room here.
    missed: u64,
    /// When the last checkpoint of a journal began of which the end was seen.
    checkpoints_over: BTreeMap<DevId, u64>,
    stalls: Stalls,
    /// Numbers of tasks mean the same here as in the kernel.
    same_tids: bool,
}

/// (thread, begin).
type SyncId = (u32, u64);

/// What is followed: nothing whose end has no hook.
#[derive(Debug, Clone, Copy)]
pub struct Follow {
    pub ext4: bool,
    pub xfs: bool,
    pub btrfs: bool,
    pub range: bool,
    pub commits: bool,
}

impl Follow {
    fn fsync(self, flags: u32) -> bool {
        match flags & SYNC_BY_RETURN {
            SYNC_XFS => self.xfs,
            SYNC_BTRFS => self.btrfs,
            SYNC_RANGE => self.range,
            _ => self.ext4,
        }
    }
}

/// How long a jiffy is, learned from two looks at the kernel's count.
#[derive(Debug, Clone, Copy, Default)]
struct Tick {
    first: Option<(u32, u64)>,
    ns: Option<u64>,
}

impl Tick {
    /// `HZ` is one of these on every kernel that distributions build.
    const HZ: [u64; 4] = [100, 250, 300, 1000];

    fn learn(&mut self, jiffies: u32, now: u64) {
        let Some((count, at)) = self.first else {
            self.first = Some((jiffies, now));
            return;
        };
        let (ticks, ns) = (
            u64::from(jiffies.wrapping_sub(count)),
            now.saturating_sub(at),
        );
        if ns < 200_000_000 {
            return;
        }
        let measured = ticks * 1_000_000_000 / ns;
        let hz = Self::HZ
            .into_iter()
            .min_by_key(|hz| hz.abs_diff(measured))
            .unwrap_or(250);
        self.ns = Some(1_000_000_000 / hz);
    }
}

/// What was read.
#[derive(Debug, Default)]
pub struct Read {
    pub fsyncs: Vec<Fsync>,
    pub counts: Vec<FsyncDelta>,
    pub commits: Vec<Commit>,
    pub handles: Vec<Handle>,
    pub checkpoints: Vec<Checkpoint>,
    pub holders: Vec<Holder>,
    /// For [`super::pauses`]: they come through the same ring.
    pub pauses: Vec<PauseSpan>,
}

impl Read {
    /// Leaves out what is on other filesystems.
    pub fn only(&mut self, wanted: impl Fn(DevId) -> bool) {
        self.fsyncs.retain(|f| wanted(f.fs));
        self.counts.retain(|c| wanted(c.fs));
        self.commits.retain(|c| wanted(c.fs));
        self.handles.retain(|h| wanted(h.fs));
        self.checkpoints.retain(|c| wanted(c.fs));
    }

    /// Owners that want a name.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        let waited = |c: &Commit| c.waited.map(|w| w.owner);
        self.fsyncs
            .iter()
            .map(|f| f.owner)
            .chain(self.counts.iter().map(|c| c.owner))
            .chain(self.commits.iter().filter_map(waited))
            .chain(self.handles.iter().map(|h| h.owner))
            .chain(self.checkpoints.iter().map(|c| c.owner))
            .chain(self.holders.iter().map(|h| h.owner))
    }
}

impl Spans {
    pub fn map(ebpf: &mut aya::Ebpf) -> Result<Spans, AttachError> {
        let ring = ebpf
            .take_map("SPANS")
            .and_then(|m| RingBuf::try_from(m).ok());
        Ok(Spans {
            syncs: Table::map(ebpf, "SYNCS", SYNC_ROWS, false)?,
            totals: Table::map(ebpf, "TOTALS", TOTALS_ROWS, false)?,
            journals: Table::map(ebpf, "JOURNALS", JOURNAL_ROWS, false)?,
            held: Table::map(ebpf, "HELD", HELD_ROWS, false)?,
            walk: Table::map(ebpf, "WALK", WALK_COUNT, true)?,
            ring,
            told: BTreeMap::new(),
            holding: BTreeMap::new(),
            names: Names::default(),
            tick: Tick::default(),
            doubted: BTreeSet::new(),
            given_up: BTreeSet::new(),
            by_return: BTreeSet::new(),
            missed: 0,
            checkpoints_over: BTreeMap::new(),
            stalls: Stalls::default(),
            same_tids: tasks::sees_the_kernels_tids("/proc".as_ref()),
        })
    }

    /// fsyncs whose end was missed, waits of no known journal, and holds for which there was no room.
    pub fn missed(&self) -> u64 {
        self.missed + self.stalls.missed()
    }

    /// Until the length of a jiffy is known it is asked for.
    pub fn wants_jiffies(&self) -> bool {
        self.tick.ns.is_none()
    }

    /// How long a jiffy is, in ns, once that is known.
    pub fn jiffy_ns(&self) -> Option<u64> {
        self.tick.ns
    }

    pub fn learn_jiffies(&mut self, count: u32, now: u64) {
        self.tick.learn(count, now);
    }

    /// Reads all but holds.
    pub fn read(&mut self, follow: Follow, now: u64) -> Read {
        let mut read = Read {
            counts: self.counts(),
            ..Read::default()
        };
        // What runs comes before what ended: what ends in between is told twice, not missed, and the second time stands.
        let mut running = self.running_fsyncs(follow, now);
        let mut commits = self.running_commits(now);
        self.ended(&mut read, now);
        if !follow.commits {
            commits.clear();
        }
        let ended: BTreeSet<_> = read.fsyncs.iter().map(id).collect();
        running.retain(|f| !ended.contains(&id(f)));
        read.fsyncs.append(&mut running);
        let over: BTreeSet<_> = read.commits.iter().map(|c| (c.fs, c.commit)).collect();
        commits.retain(|c| !over.contains(&(c.fs, c.commit)));
        read.commits.append(&mut commits);
        if follow.commits && self.same_tids {
            read.checkpoints = self.running_checkpoints();
        }
        self.look_at_stacks(&mut read, now);
        for f in &mut read.fsyncs {
            f.task = self.names.of(f.tid, now);
        }
        read.commits.sort_by_key(|c| (c.begin_ns, c.fs));
        self.names.forget_old(now);
        read
    }

    fn running_fsyncs(&mut self, follow: Follow, now: u64) -> Vec<Fsync> {
        let rows = (0..self.syncs.rows()).filter(|row| self.syncs.key(*row) != 0);
        let slots: Vec<SyncSlot> = rows
            .map(|row| self.syncs.read(row))
            .filter(|s| s.begin_ns != 0 && s.begin_ns <= now && follow.fsync(s.flags))
            .collect();
        let mut running: Vec<Fsync> = slots.iter().map(|s| fsync(s, None, 0)).collect();
        let by_return = slots.iter().zip(&running);
        self.by_return = by_return
            .filter(|(s, _)| s.flags & SYNC_BY_RETURN != 0)
            .map(|(_, f)| id(f))
            .collect();
        if !self.given_up.is_empty() {
            let rows: BTreeSet<_> = running.iter().map(id).collect();
            self.given_up.retain(|id| rows.contains(id));
            running.retain(|f| !self.given_up.contains(&id(f)));
        }
        running
    }

    fn running_commits(&self, now: u64) -> Vec<Commit> {
        (0..self.journals.rows())
            .filter(|row| self.journals.key(*row) != 0)
            .map(|row| self.journals.read(row))
            .filter(|j| j.begin_ns != 0 && j.begin_ns <= now)
            .map(|j| commit(&j, None))
            .collect()
    }

    fn ended(&mut self, read: &mut Read, now: u64) {
        let Some(ring) = &mut self.ring else { return };
        let jiffy_ns = self.tick.ns;
        while let Some(item) = ring.next() {
            let Some(kind) = item.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b)) else {
                continue;
            };
            if kind == SpanKind::Sync as u32
                && let Some(span) = record::<SyncSpan>(&item)
            {
                read.fsyncs
                    .push(fsync(&span.sync, Some(span.end_ns), span.result));
            } else if kind == SpanKind::Commit as u32
                && let Some(span) = record::<CommitSpan>(&item)
            {
                read.commits.push(commit(&span.row, Some(span.end_ns)));
            } else if kind == SpanKind::Pause as u32
                && let Some(span) = record::<PauseSpan>(&item)
            {
                read.pauses.push(span);
            } else if kind == SpanKind::Handle as u32
                && let (Some(span), Some(jiffy_ns)) = (record::<HandleSpan>(&item), jiffy_ns)
            {
                read.handles.push(Handle {
                    fs: DevId(span.fs),
                    commit: span.commit,
                    owner: counters::owner(span.owner),
                    task: self.names.of(span.tid, now),
                    begin_ns: span
                        .end_ns
                        .saturating_sub(u64::from(span.jiffies) * jiffy_ns),
                    end_ns: span.end_ns,
                });
            }
        }
    }

    fn counts(&mut self) -> Vec<FsyncDelta> {
        let mut deltas = Vec::new();
        for row in 0..self.totals.rows() {
            if self.totals.key(row) == 0 {
                continue;
            }
            let t = self.totals.read(row);
            let key = (DevId(t.fs), counters::owner(t.owner));
            let before = self
                .told
                .insert(key, (t.count, t.sum_ns))
                .unwrap_or_default();
            let count = t.count.saturating_sub(before.0);
            if count > 0 {
                deltas.push(FsyncDelta {
                    fs: key.0,
                    owner: key.1,
                    count,
                    sum_ns: t.sum_ns.saturating_sub(before.1),
                });
            }
        }
        deltas.sort_by_key(|d| (d.fs, d.owner));
        deltas
    }

    fn look_at_stacks(&mut self, read: &mut Read, now: u64) {
        let old =
            |begin: u64, end: Option<u64>| end.is_none() && now.saturating_sub(begin) >= STACK_NS;
        let proc_ = Path::new("/proc");
        let commits = read
            .commits
            .iter_mut()
            .filter(|c| old(c.begin_ns, c.end_ns));
        for c in commits.take(STACKS) {
            c.waits_for = stacks::sync_stack(proc_, c.tid).wait;
        }
        let mut doubted = BTreeSet::new();
        read.fsyncs.sort_by_key(|f| (f.begin_ns, f.tid));
        let fsyncs = read.fsyncs.iter_mut().filter(|f| old(f.begin_ns, f.end_ns));
        for f in fsyncs.take(STACKS) {
            let stack = stacks::sync_stack(proc_, f.tid);
            f.waits_for = stack.wait;
            let by_return = self.by_return.contains(&id(f));
            let doubt = match by_return {
                true => stack.elsewhere || stack.runs,
                false => stack.elsewhere && now.saturating_sub(f.begin_ns) >= DOUBT_NS,
            };
            if doubt && self.same_tids {
                doubted.insert(id(f));
            }
        }
        // One look may have fallen between the last function and the program that sees the end.
        let missed: BTreeSet<_> = doubted.intersection(&self.doubted).copied().collect();
        let hidden = |f: &Fsync| {
            let id = id(f);
            missed.contains(&id) || doubted.contains(&id) && self.by_return.contains(&id)
        };
        read.fsyncs.retain(|f| !hidden(f));
        self.missed += missed.len() as u64;
        self.given_up.extend(missed);
        self.doubted = doubted;
    }

    /// What limits hold, by asking `run` for the program that walks a queue (given one of its hardware queues).
    pub fn holds<E>(
        &mut self,
        queues: &[u64],
        now: u64,
        mut run: impl FnMut(u64) -> Result<u32, E>,
    ) -> Result<Vec<Hold>, E> {
        self.walk.write(WALK_FILLED, 0);
        for hctx in queues {
            self.walk.write(WALK_CURSOR, 0);
            let mut left = WALK_RUNS;
            while left > 0 && run(*hctx)? != 0 {
                left -= 1;
            }
            self.missed += u64::from(left == 0);
        }
        let found = self.walk.read(WALK_FILLED);
        let filled = found.min(u64::from(HELD_ROWS)) as u32;
        self.missed += found - u64::from(filled);
        let mut holding = BTreeMap::new();
        let mut holds: Vec<Hold> = (0..filled)
            .map(|row| {
                let h = self.held.read(row);
                let key = (DevId(h.dev), counters::owner(h.group), h.write != 0);
                let since_ns = self.holding.get(&key).copied().unwrap_or(now);
                holding.insert(key, since_ns);
                Hold {
                    dev: key.0,
                    group: key.1,
                    write: key.2,
                    owner: counters::owner(h.owner),
                    count: u64::from(h.count),
                    file: (h.ino != 0).then_some((DevId(h.fs), h.ino)),
                    since_ns,
                }
            })
            .collect();
        self.holding = holding;
        holds.sort();
        Ok(holds)
    }
}

/// A record of the ring: integers only, read unaligned.
fn record<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: long enough; the types are integers and arrays of them, for which any bytes are a value.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

fn id(f: &Fsync) -> SyncId {
    (f.tid, f.begin_ns)
}

fn some(ns: u64) -> Option<u64> {
    (ns != 0).then_some(ns)
}

fn fsync(s: &SyncSlot, end_ns: Option<u64>, result: i32) -> Fsync {
    let end = s.name.iter().position(|b| *b == 0).unwrap_or(s.name.len());
    let file = clean(&String::from_utf8_lossy(
        s.name.get(..end).unwrap_or_default(),
    ));
    Fsync {
        call: match s.flags & SYNC_RANGE {
            0 => Call::Fsync,
            _ => Call::SyncRange,
        },
        fs: DevId(s.fs),
        ino: s.ino,
        file: (!file.is_empty()).then_some(file),
        owner: counters::owner(s.owner),
        tid: s.claim.key as u32,
        task: None,
        begin_ns: s.begin_ns,
        end_ns,
        datasync: s.flags & SYNC_DATA != 0,
        journal_ns: some(s.journal_ns),
        commit: some(s.journal_ns).map(|_| s.commit),
        flush_ns: some(s.flush_ns),
        waits_for: None,
        result,
    }
}

fn commit(j: &JournalRow, end_ns: Option<u64>) -> Commit {
    Commit {
        fs: DevId(dev_of_key(j.claim.key)),
        commit: j.commit,
        tid: j.claim.tag,
        begin_ns: j.begin_ns,
        end_ns,
        locking_ns: some(j.locking_ns),
        flushing_ns: some(j.flushing_ns),
        logging_ns: some(j.logging_ns),
        waited: some(j.wait_ns).map(|since_ns| InodeWait {
            ino: j.wait_ino,
            owner: counters::owner(j.wait_owner),
            since_ns,
        }),
        waits_for: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_tick_is_one_that_kernels_have() {
        for (hz, per_250ms) in [(1000, 251), (250, 62), (300, 75), (100, 24)] {
            let mut tick = Tick::default();
            tick.learn(u32::MAX - 3, 1);
            tick.learn(7, 2);
            assert_eq!(tick.ns, None, "too soon to tell");
            tick.learn((u32::MAX - 3).wrapping_add(per_250ms), 250_000_001);
            assert_eq!(tick.ns, Some(1_000_000_000 / hz), "{hz}");
        }
    }

    #[test]
    fn a_wait_that_was_not_seen_is_not_one_of_0_ns() {
        let zero = JournalRow::default();
        let c = commit(&zero, None);
        assert_eq!((c.waited, c.locking_ns, c.logging_ns), (None, None, None));
    }
}
