//! What keeps an fsync waiting at a tick: from the fsync to the commit, from the commit to a file's data, from the data to a limit or a
//! queue. Each link that could not be seen is named.

use std::collections::BTreeMap;

use io_starve_common::class::Class;
use serde::{Deserialize, Serialize};

use super::devices::Device;
use super::filesystems::Filesystems;
use super::flow::Flow;
use super::mechanism::Mechanism;
use super::observation::{
    Call, Checkpoint, Commit, DevId, Fsync, Handle, Hold, Holder, Owner, SyncWait, Waiter,
};

/// Traffic is compared over this long, in ns: a few ticks, since a queue is served in bursts.
const TRAFFIC_NS: u64 = 1_000_000_000;

/// Peers are told by what they move over this long, in ns: some fsyncs of each on a slow disk.
const PEERS_NS: u64 = 5_000_000_000;
/// Whoever moves less than so many times what the victim does is a peer: it waits for the victim as the victim waits for it.
const PEER_FACTOR: u64 = 2;
/// So is who moves no more than so many bytes more: as somebody begins, twice the other's is a single request.
const PEER_BYTES: u64 = 128 << 10;

/// The root cgroup: kernfs numbers the directories of a hierarchy from 1 on.
const ROOT: Owner = Owner::Cgroup(1);

/// A link that was not seen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Gap {
    /// What the fsync does: neither its stack nor the functions it calls.
    Phase,
    /// The commit that it waits for.
    Commit,
    /// The file whose data the commit waits for.
    Inode,
    /// Who pays for that file's data (cgroup v1 does not say).
    InodeOwner,
    /// Who keeps the transaction open.
    Handle,
    /// The journal's requests in the queue.
    JournalRequests,
    /// Which disk the filesystem lies on.
    Disk,
    /// Which cgroups the threads are in.
    Owner,
}

/// What keeps an fsync waiting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Through what.
    pub mechanism: Mechanism,
    /// By whom, with the part of each; `None`: not known. The parts sum to 1.
    pub shares: Vec<(Option<Owner>, f64)>,
    /// Whose limit holds the culprit's I/O, and on which disk.
    pub limit: Option<(Owner, DevId)>,
    /// The way from the fsync to the culprit was seen.
    pub sure: bool,
    /// In which part the fsync is was seen.
    pub seen: bool,
    /// The file whose data is waited for.
    pub inode: Option<u64>,
    /// What was not seen.
    pub gaps: Vec<Gap>,
}

/// What a tick shows, as far as fsyncs are concerned.
pub struct Scene<'a> {
    /// Now, ns monotonic.
    pub now: u64,
    /// Disks.
    pub devices: &'a BTreeMap<DevId, Device>,
    /// Filesystems.
    pub filesystems: &'a Filesystems,
    /// Commits that run.
    pub commits: BTreeMap<DevId, Commit>,
    /// What limits hold.
    pub holds: Vec<Hold>,
    /// Handles that kept a transaction open for long.
    pub handles: Vec<Handle>,
    /// Tasks that make room in a journal.
    pub checkpoints: &'a [Checkpoint],
    /// Tasks that sleep with a handle open.
    pub holders: &'a [Holder],
    /// All fsyncs of the tick.
    pub fsyncs: &'a [Fsync],
    /// The oldest requests in flight.
    pub waiters: &'a [Waiter],
    /// An fsync says when it begins to wait for the journal.
    pub phases: bool,
    /// cgroup v1: buffered writes are charged to the root.
    pub v1: bool,
}

/// In which part an fsync is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Data,
    Journal,
    Transaction,
    Space,
    Flush,
}

impl Scene<'_> {
    /// Bytes and requests of an owner that were finished on the disks of a filesystem since attach.
    pub fn finished_of(&self, fs: DevId, owner: Owner) -> (u64, u64) {
        self.flows_of(fs, owner).fold((0, 0), |(bytes, n), f| {
            (
                bytes.saturating_add(f.totals.bytes),
                n.saturating_add(f.totals.finished),
            )
        })
    }

    /// Bytes and requests of an owner that are in flight on the disks of a filesystem.
    pub fn in_flight_of(&self, fs: DevId, owner: Owner) -> (u64, u64) {
        self.flows_of(fs, owner).fold((0, 0), |(bytes, n), f| {
            (
                bytes.saturating_add(f.now.total_bytes()),
                n.saturating_add(f.now.total()),
            )
        })
    }

    fn flows_of(&self, fs: DevId, owner: Owner) -> impl Iterator<Item = &Flow> {
        self.queues(fs)
            .into_iter()
            .filter_map(|dev| self.devices.get(&dev))
            .flat_map(move |d| {
                d.owners
                    .iter()
                    .filter(move |((o, _), _)| *o == owner)
                    .map(|(_, f)| f)
            })
    }

    fn queues(&self, fs: DevId) -> Vec<DevId> {
        self.filesystems
            .queues(fs, |dev| self.devices.contains_key(&dev))
    }

    /// What keeps this fsync waiting.
    pub fn cause(&self, f: &Fsync) -> Cause {
        let mut cause = self.seen_cause(f);
        // Whoever stands for an owner may belong to the others.
        if matches!(f.owner, Owner::Task(_)) {
            cause.sure = false;
            cause.gaps.push(Gap::Owner);
        }
        cause
    }

    fn seen_cause(&self, f: &Fsync) -> Cause {
        match self.phase(f) {
            Some(Phase::Data) => self.data(f),
            Some(Phase::Journal) => self.journal(f),
            Some(Phase::Transaction) => match self.commits.get(&f.fs) {
                // A full transaction waits until the one before it is committed.
                Some(c) if c.flushing_ns.is_some() => self.journal(f),
                _ => self.transaction(f),
            },
            Some(Phase::Space) => self.space(f),
            Some(Phase::Flush) => self.data_queue(f),
            None => Cause {
                seen: false,
                gaps: vec![Gap::Phase],
                ..unknown(Mechanism::DataQueue)
            },
        }
    }

    fn phase(&self, f: &Fsync) -> Option<Phase> {
        if f.call == Call::SyncRange {
            return Some(Phase::Data);
        }
        // With data=journal the data is waited for after the journal, so what is seen now goes before what was passed.
        match f.waits_for {
            Some(SyncWait::Transaction) => Some(Phase::Transaction),
            Some(SyncWait::JournalSpace) => Some(Phase::Space),
            Some(SyncWait::Journal | SyncWait::JournalBlocks) => Some(Phase::Journal),
            Some(SyncWait::Flush) => Some(Phase::Flush),
            Some(SyncWait::Data) => Some(Phase::Data),
            Some(SyncWait::Other) | None if f.flush_ns.is_some() => Some(Phase::Flush),
            Some(SyncWait::Other) | None if f.journal_ns.is_some() => Some(Phase::Journal),
            // Only the functions of jbd2 tell when the data is written.
            Some(SyncWait::Other) | None => {
                (self.phases && !self.keeps_another_log(f.fs)).then_some(Phase::Data)
            }
        }
    }

    /// Its own data is held by its own limit, or waits in a queue.
    fn data(&self, f: &Fsync) -> Cause {
        let mut holds = self.write_holds(f.fs);
        let own = holds.find(|h| h.owner == f.owner || h.file == Some((f.fs, f.ino)));
        match own {
            Some(h) => Cause {
                mechanism: Mechanism::DataQueue,
                shares: vec![(Some(h.owner), 1.0)],
                limit: Some((h.group, h.dev)),
                sure: true,
                seen: true,
                inode: Some(f.ino),
                gaps: Vec::new(),
            },
            None => self.data_queue(f),
        }
    }

    /// Its own data waits behind others.
    pub fn data_queue(&self, f: &Fsync) -> Cause {
        let in_flight = |owner| self.in_flight_of(f.fs, owner).1 > 0;
        let own = in_flight(f.owner);
        // Under cgroup v1 what was written before is charged to the root.
        let charged_to_root = self.v1 && in_flight(ROOT);
        let cause = if own || charged_to_root {
            self.by_traffic(f, Mechanism::DataQueue, |_, _| true)
        } else {
            unknown(Mechanism::DataQueue)
        };
        Cause {
            sure: own,
            inode: Some(f.ino),
            ..cause
        }
    }

    fn journal(&self, f: &Fsync) -> Cause {
        if self.keeps_another_log(f.fs) {
            return self.log(f);
        }
        let Some(c) = self.commits.get(&f.fs) else {
            return Cause {
                gaps: vec![Gap::Commit],
                ..unknown(Mechanism::JournalQueue)
            };
        };
        let handles = c.locking_ns.is_some() && c.flushing_ns.is_none();
        match c.waits_for {
            Some(SyncWait::Transaction) => self.transaction(f),
            Some(SyncWait::JournalSpace) => self.space(f),
            Some(SyncWait::Data) => self.journal_data(f, c),
            Some(SyncWait::JournalBlocks) => self.journal_blocks(f, c),
            // Too young for its stack to be read, or that cannot be read.
            _ if handles => self.transaction(f),
            _ if c.waited.is_some() => self.journal_data(f, c),
            _ => self.journal_blocks(f, c),
        }
    }

    /// The commit waits for the data of a file.
    fn journal_data(&self, f: &Fsync, c: &Commit) -> Cause {
        let cause = Cause {
            inode: c.waited.map(|w| w.ino),
            ..unknown(Mechanism::JournalData)
        };
        let Some(waited) = c.waited else {
            let mut cause = self.lone_suspect(f, cause);
            cause.gaps.push(Gap::Inode);
            // Its own was written before it began to wait for the journal: whoever it is, it is another.
            if matches!(f.owner, Owner::Task(_)) {
                cause.shares = vec![(Some(Owner::Unknown), 1.0)];
            }
            return cause;
        };
        let by_file = self
            .write_holds(f.fs)
            .find(|h| h.file == Some((f.fs, waited.ino)));
        let by_owner = self
            .write_holds(f.fs)
            .find(|h| h.owner == waited.owner && is_one(waited.owner));
        if let Some(h) = by_file.or(by_owner) {
            return Cause {
                shares: vec![(Some(h.owner), 1.0)],
                limit: Some((h.group, h.dev)),
                sure: true,
                ..cause
            };
        }
        // On cgroup v1 the kernel charges writeback to the root, but whoever syncs that file pays for what it submits.
        let syncs = self
            .fsyncs
            .iter()
            .find(|o| o.fs == f.fs && o.ino == waited.ino && o.owner != f.owner);
        if let Some(other) = syncs {
            let hold = self.write_holds(f.fs).find(|h| h.owner == other.owner);
            return Cause {
                shares: vec![(Some(other.owner), 1.0)],
                limit: hold.map(|h| (h.group, h.dev)),
                gaps: vec![Gap::InodeOwner],
                ..cause
            };
        }
        if is_one(waited.owner) && self.in_flight_of(f.fs, waited.owner).1 > 0 {
            return Cause {
                shares: vec![(Some(waited.owner), 1.0)],
                sure: true,
                ..cause
            };
        }
        Cause {
            gaps: vec![Gap::InodeOwner],
            ..cause
        }
    }

    /// The commit writes its own blocks.
    fn journal_blocks(&self, f: &Fsync, c: &Commit) -> Cause {
        let seen = self
            .waiters
            .iter()
            .any(|w| w.task.as_ref().is_some_and(|t| t.pid == c.tid));
        let mut cause = self.by_traffic(f, Mechanism::JournalQueue, |owner, class| {
            // What the journal itself writes is charged to the root.
            let of_journal = owner == ROOT || owner == Owner::Task(c.tid);
            !(class == Class::SyncWrite && of_journal)
        });
        cause.sure = seen;
        if !seen {
            cause.gaps.push(Gap::JournalRequests);
        }
        cause
    }

    /// XFS and btrfs have no commits that are told of.
    fn keeps_another_log(&self, fs: DevId) -> bool {
        let fstype = self.filesystems.get(fs).map(|f| f.fstype.as_str());
        matches!(fstype, Some("xfs" | "btrfs"))
    }

    /// Blocks of the log are sync writes of the kernel's own threads: they wait behind what others have in the queue, if they do.
    fn log(&self, f: &Fsync) -> Cause {
        let mut cause = if self.in_flight_of(f.fs, ROOT).1 > 0 {
            self.by_traffic(f, Mechanism::JournalQueue, |owner, class| {
                !(class == Class::SyncWrite && owner == ROOT)
            })
        } else {
            unknown(Mechanism::JournalQueue)
        };
        cause.gaps.push(Gap::Commit);
        cause
    }

    fn transaction(&self, f: &Fsync) -> Cause {
        let commit = self.commits.get(&f.fs).map(|c| c.commit).or(f.commit);
        let handle = self
            .handles
            .iter()
            .rev()
            .find(|h| h.fs == f.fs && Some(h.commit) == commit && h.end_ns > f.begin_ns);
        match handle {
            Some(h) => Cause {
                shares: vec![(Some(h.owner), 1.0)],
                sure: true,
                ..unknown(Mechanism::Transaction)
            },
            None => self.open_handle(f).unwrap_or_else(|| Cause {
                gaps: vec![Gap::Handle],
                ..self.lone_suspect(f, unknown(Mechanism::Transaction))
            }),
        }
    }

    /// Who sleeps with a handle open, when that is one owner: of which journal it is, is not told.
    fn open_handle(&self, f: &Fsync) -> Option<Cause> {
        let mut owners = self.holders.iter().map(|h| h.owner);
        let owner = owners.next().filter(|first| owners.all(|o| o == *first))?;
        let hold = self.holds_on(f.fs).find(|h| h.owner == owner);
        Some(Cause {
            shares: vec![(Some(owner), 1.0)],
            limit: hold.map(|h| (h.group, h.dev)),
            gaps: vec![Gap::Handle],
            ..unknown(Mechanism::Transaction)
        })
    }

    fn space(&self, f: &Fsync) -> Cause {
        // What it writes for that is on its own account, and held by its own limit.
        if let Some(c) = self.checkpoints.iter().find(|c| c.fs == f.fs)
            && let Some(h) = self.holds_on(f.fs).find(|h| h.owner == c.owner)
        {
            return Cause {
                shares: vec![(Some(c.owner), 1.0)],
                limit: Some((h.group, h.dev)),
                sure: true,
                ..unknown(Mechanism::Checkpoint)
            };
        }
        if self.write_holds(f.fs).any(|h| h.owner != f.owner) {
            return self.lone_suspect(f, unknown(Mechanism::Checkpoint));
        }
        self.by_traffic(f, Mechanism::Checkpoint, |_, _| true)
    }

    /// When limits hold only one of the others, it is likely to be that one.
    fn lone_suspect(&self, f: &Fsync, cause: Cause) -> Cause {
        let mut others = self.write_holds(f.fs).filter(|h| h.owner != f.owner);
        match others.next() {
            Some(h) if others.all(|o| o.owner == h.owner) => Cause {
                shares: vec![(Some(h.owner), 1.0)],
                limit: Some((h.group, h.dev)),
                ..cause
            },
            _ => cause,
        }
    }

    /// What an owner moved on the disks of a filesystem, and has in flight there, in bytes.
    fn moved(&self, fs: DevId, owner: Owner, over_ns: u64) -> u64 {
        let from = self.now.saturating_sub(over_ns);
        let flows = self.flows_of(fs, owner);
        flows.fold(0, |sum: u64, flow| {
            sum.saturating_add(flow.moved_since(from))
        })
    }

    /// Shares of the disks' traffic of late, of the owners and classes that are wanted. That of peers is nobody's.
    fn by_traffic(
        &self,
        f: &Fsync,
        mechanism: Mechanism,
        wanted: impl Fn(Owner, Class) -> bool,
    ) -> Cause {
        let queues = self.queues(f.fs);
        let mut bytes: BTreeMap<Owner, u64> = BTreeMap::new();
        let from = self.now.saturating_sub(TRAFFIC_NS);
        for device in queues.iter().filter_map(|dev| self.devices.get(dev)) {
            for ((owner, class), flow) in &device.owners {
                if !wanted(*owner, *class) {
                    continue;
                }
                let sum = bytes.entry(*owner).or_default();
                *sum = sum.saturating_add(flow.moved_since(from));
            }
        }
        let total = bytes.values().fold(0, |a: u64, b| a.saturating_add(*b));
        let mut cause = unknown(mechanism);
        if queues.is_empty() {
            cause.gaps.push(Gap::Disk);
        }
        if total > 0 {
            let own = self.moved(f.fs, f.owner, PEERS_NS);
            let of = |(owner, n): (Owner, u64)| {
                let at_most = own
                    .saturating_mul(PEER_FACTOR)
                    .max(own.saturating_add(PEER_BYTES));
                let peer = owner != f.owner && self.moved(f.fs, owner, PEERS_NS) < at_most;
                ((!peer).then_some(owner), n as f64 / total as f64)
            };
            cause.shares = bytes.into_iter().filter(|(_, n)| *n > 0).map(of).collect();
        }
        cause
    }

    fn write_holds(&self, fs: DevId) -> impl Iterator<Item = &Hold> {
        self.holds_on(fs).filter(|h| h.write)
    }

    fn holds_on(&self, fs: DevId) -> impl Iterator<Item = &Hold> {
        let queues = self.queues(fs);
        self.holds.iter().filter(move |h| queues.contains(&h.dev))
    }
}

/// True for one cgroup that is not the root: that stands for everything the kernel does by itself.
fn is_one(owner: Owner) -> bool {
    matches!(owner, Owner::Cgroup(_)) && owner != ROOT
}

fn unknown(mechanism: Mechanism) -> Cause {
    Cause {
        mechanism,
        shares: vec![(None, 1.0)],
        limit: None,
        sure: false,
        seen: true,
        inode: None,
        gaps: Vec::new(),
    }
}
