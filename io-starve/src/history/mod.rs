//! A whole run in bounded memory: what a verdict, a report and a comparison are made of. Pure.
//!
//! In: each observation with the pipeline that was fed with it, and the alerts that came of it. Out: sums by group, heat maps,
//! stretches of time by owner, the last word on each finding. Memory: [`MAX_GROUPS`] groups, [`MAX_HEATS`] heat maps of 30 KiB,
//! [`MAX_LANES`] lanes of at most 240 stretches, [`MAX_FINDINGS`] findings, however long the run is.

use std::collections::BTreeMap;

use io_starve_common::{class::Class, hist::BUCKETS};

pub mod axis;
pub mod summary;

use crate::{
    model::observation::{
        Call, DevId, GroupDelta, GroupKey, Observation, Owner, Stage, StageDelta,
    },
    output::alert::{Alert, Event, FindingAlert},
    pipeline::Pipeline,
};
use axis::{Axis, Bar, Bars, Counts, Grid};

/// Groups (disk, owner, class) that are told apart; later ones are summed as [`Owner::Other`].
pub const MAX_GROUPS: usize = 512;
/// (disk, class, stage) of which there is a heat map.
pub const MAX_HEATS: usize = 48;
/// Lanes of the timeline that are kept, each for one owner or filesystem and one kind of thing.
pub const MAX_LANES: usize = 256;
/// Findings that are kept; of those beyond only the number.
pub const MAX_FINDINGS: usize = 256;
/// Waits in admission or in a queue that are shorter than this are not drawn, in ns: on a slow disk every request waits so long.
const WAIT_SHOWN_NS: u64 = 250_000_000;

/// Sums of one group since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sums {
    /// Lives begun.
    pub seen: u64,
    /// Lives ended by a completion.
    pub finished: u64,
    /// Lives ended by a merge.
    pub merged: u64,
    /// Lives given up because their end was missed.
    pub expired: u64,
    /// Issues.
    pub issues: u64,
    /// Bytes of finished requests.
    pub bytes: u64,
    /// Times of requests that left a stage.
    pub stages: [StageDelta; 3],
}

impl Sums {
    fn take(&mut self, d: &GroupDelta) {
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        add(&mut self.seen, d.seen);
        add(&mut self.finished, d.finished);
        add(&mut self.merged, d.merged);
        add(&mut self.expired, d.expired);
        add(&mut self.issues, d.issues);
        add(&mut self.bytes, d.bytes);
        for (sum, told) in self.stages.iter_mut().zip(d.stages) {
            add(&mut sum.count, told.count);
            add(&mut sum.sum_ns, told.sum_ns);
            if told.count > 0 {
                sum.max_ns = sum.max_ns.max(told.max_ns);
            }
        }
    }
}

/// Whose lane it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// Of an owner.
    Owner(Owner),
    /// Of a filesystem, by its `s_dev`.
    Filesystem(DevId),
}

/// What went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The oldest request waits in admission or in a queue.
    Waits,
    /// fsyncs that took 20 ms and more.
    Fsyncs,
    /// Other calls that wait for a journal.
    Calls,
    /// A limit holds bios.
    Holds,
    /// Paused for dirty memory.
    Pauses,
    /// A worker is paused for dirty memory.
    WorkerPauses,
    /// A journal commits.
    Commits,
}

impl Lane {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Lane::Waits => "waits for its turn",
            Lane::Fsyncs => "fsync",
            Lane::Calls => "call waits for the journal",
            Lane::Holds => "held by a limit",
            Lane::Pauses => "paused for dirty memory",
            Lane::WorkerPauses => "worker paused for dirty memory",
            Lane::Commits => "journal commit",
        }
    }
}

/// One finding of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// When its condition began, ns monotonic.
    pub begin_ns: u64,
    /// The last word on it.
    pub alert: FindingAlert,
}

/// The run so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    axis: Axis,
    first: Option<(u64, i64)>,
    now_ns: u64,
    groups: BTreeMap<GroupKey, Sums>,
    hists: BTreeMap<(DevId, Class, Stage), Vec<u64>>,
    heats: BTreeMap<(DevId, Class, Stage), Grid>,
    issued: BTreeMap<Owner, Counts>,
    lanes: BTreeMap<(Whose, Lane), Bars>,
    /// Of things that had no lane left.
    lanes_lost: u64,
    names: BTreeMap<Owner, String>,
    filesystems: BTreeMap<DevId, String>,
    devices: BTreeMap<DevId, (String, Option<String>)>,
    findings: BTreeMap<String, Told>,
    findings_lost: u64,
}

impl History {
    /// Takes in an observation that this pipeline was fed with, and what was told of it.
    pub fn take(&mut self, o: &Observation, alerts: &[Alert], pipeline: &Pipeline) {
        self.now_ns = o.mono_ns.max(self.now_ns);
        self.first.get_or_insert((o.mono_ns, o.wall_ns));
        for _ in 0..self.axis.reach(self.now_ns) {
            self.heats.values_mut().for_each(Grid::halve);
            self.issued.values_mut().for_each(Counts::halve);
        }
        let gap = self.axis.width_ns();
        self.lanes.values_mut().for_each(|bars| {
            if bars.iter().count() > axis::MAX_COLUMNS {
                bars.join(gap);
            }
        });
        for d in &o.groups {
            self.group(d.key).take(d);
            self.count_issues(d.key.owner, d.issues);
        }
        for h in &o.hists {
            self.heat(h.dev, h.class, h.stage, &h.buckets);
        }
        self.take_lanes(o);
        self.note(alerts);
        self.learn_names(pipeline);
    }

    /// What was told besides, at the end.
    pub fn note(&mut self, alerts: &[Alert]) {
        for alert in alerts {
            let (Event::Open(f) | Event::Update(f) | Event::Close(f)) = &alert.event else {
                continue;
            };
            if self.findings.len() >= MAX_FINDINGS && !self.findings.contains_key(&f.id) {
                if matches!(alert.event, Event::Open(_)) {
                    self.findings_lost += 1;
                }
                continue;
            }
            let begin_ns = f.stamp.mono_ns.saturating_sub(f.duration_ms * 1_000_000);
            let told = self.findings.entry(f.id.clone()).or_insert(Told {
                begin_ns,
                alert: FindingAlert::clone(f),
            });
            told.alert = FindingAlert::clone(f);
        }
    }

    fn group(&mut self, mut key: GroupKey) -> &mut Sums {
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&key) {
            key.owner = Owner::Other;
        }
        self.groups.entry(key).or_default()
    }

    fn count_issues(&mut self, owner: Owner, n: u64) {
        let column = self.axis.column(self.now_ns);
        let room = self.issued.len() < MAX_LANES || self.issued.contains_key(&owner);
        let owner = if room { owner } else { Owner::Other };
        self.issued.entry(owner).or_default().add(column, n);
    }

    fn heat(&mut self, dev: DevId, class: Class, stage: Stage, buckets: &[(u8, u64)]) {
        let key = (dev, class, stage);
        if self.heats.len() >= MAX_HEATS && !self.heats.contains_key(&key) {
            return;
        }
        let column = self.axis.column(self.now_ns);
        let grid = self.heats.entry(key).or_default();
        let hist = self.hists.entry(key).or_insert_with(|| vec![0; BUCKETS]);
        for (bucket, n) in buckets {
            grid.add(column, *bucket, *n);
            if let Some(count) = hist.get_mut(usize::from(*bucket)) {
                *count = count.saturating_add(*n);
            }
        }
    }

    fn take_lanes(&mut self, o: &Observation) {
        let now = self.now_ns;
        for w in &o.waiting {
            let oldest = [w.oldest_ns[0], w.oldest_ns[1]].into_iter().flatten().min();
            if let Some(since) = oldest.filter(|since| now.saturating_sub(*since) >= WAIT_SHOWN_NS)
            {
                self.bar(
                    Whose::Owner(w.key.owner),
                    Lane::Waits,
                    since,
                    None,
                    now - since,
                );
            }
        }
        for f in &o.fsyncs {
            let lane = match f.call {
                Call::Fsync => Lane::Fsyncs,
                _ => Lane::Calls,
            };
            self.bar(Whose::Owner(f.owner), lane, f.begin_ns, f.end_ns, 0);
        }
        for c in &o.commits {
            self.bar(
                Whose::Filesystem(c.fs),
                Lane::Commits,
                c.begin_ns,
                c.end_ns,
                0,
            );
        }
        for h in &o.holds {
            self.bar(Whose::Owner(h.group), Lane::Holds, h.since_ns, None, 0);
        }
        for p in &o.pauses {
            let lane = match p.worker {
                Some(_) => Lane::WorkerPauses,
                None => Lane::Pauses,
            };
            self.bar(Whose::Owner(p.owner), lane, p.begin_ns, Some(p.end_ns), 0);
        }
    }

    fn bar(
        &mut self,
        whose: Whose,
        lane: Lane,
        begin_ns: u64,
        ended: Option<u64>,
        longest_ns: u64,
    ) {
        let key = (whose, lane);
        if self.lanes.len() >= MAX_LANES && !self.lanes.contains_key(&key) {
            self.lanes_lost += 1;
            return;
        }
        let end_ns = ended.unwrap_or(self.now_ns);
        let bar = Bar {
            begin_ns,
            end_ns,
            count: u64::from(ended.is_some()),
            longest_ns: longest_ns.max(end_ns.saturating_sub(begin_ns)),
        };
        // A tenth of a column: what is seen apart stays apart.
        let gap = self.axis.width_ns() / 10;
        self.lanes.entry(key).or_default().add(bar, gap);
    }

    /// Names while they are known: at the end of a long run many an owner is forgotten.
    fn learn_names(&mut self, pipeline: &Pipeline) {
        let model = pipeline.model();
        let owners = self.groups.keys().map(|k| k.owner);
        let of_lanes = self.lanes.keys().filter_map(|(whose, _)| match whose {
            Whose::Owner(owner) => Some(*owner),
            Whose::Filesystem(_) => None,
        });
        for owner in owners.chain(of_lanes) {
            if let Some(path) = model.cgroups.path(owner)
                && !self.names.contains_key(&owner)
            {
                self.names.insert(owner, path.to_owned());
            }
        }
        for key in self.groups.keys() {
            if let Some(device) = model.devices.get(&key.dev)
                && let Some(name) = device.name()
            {
                let scheduler = device.scheduler().map(str::to_owned);
                self.devices.insert(key.dev, (name.to_owned(), scheduler));
            }
        }
        for (whose, _) in self.lanes.keys() {
            if let Whose::Filesystem(fs) = whose
                && let Some(fact) = model.filesystem(*fs)
            {
                self.filesystems
                    .entry(*fs)
                    .or_insert_with(|| fact.mountpoint.clone());
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
