//! What every front end shows of dirty memory: backing devices, who is paused, loop devices with what lies below.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Model;
use super::devices::{display_name, kernel_name};
use super::dirty::Stream;
use super::intervals::Intervals;
use super::observation::{DevId, Owner, Task};

/// Shares are over this long, in ns: the window of the detectors.
const WINDOW_NS: u64 = 5_000_000_000;

/// A backing device for which somebody was paused in the last 5 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BdiView {
    /// Name of its disk, else of the backing device.
    pub name: String,
    /// Dirty bytes for it, at the last pause.
    pub dirty: Option<u64>,
    /// Its part of the dirty limit, in bytes.
    pub limit: Option<u64>,
    /// Bytes a second to which its writers are held.
    pub rate: Option<u64>,
    /// Part of the time in which somebody was paused, 0 to 1.
    pub paused_share: f64,
    /// Pauses that began.
    pub pauses: u64,
    /// The longest that was told, in ns.
    pub longest_ns: u64,
    /// Part of the time in which the disk was busy, 0 to 1.
    pub busy_share: Option<f64>,
}

/// Somebody who was paused in the last 5 s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PausedView {
    /// Whose tasks.
    pub owner: Owner,
    /// The kernel thread that writes for others.
    pub worker: Option<String>,
    /// Name of the disk, else of the backing device.
    pub name: String,
    /// Part of the time in which one of the tasks was paused, 0 to 1.
    pub paused_share: f64,
    /// Sum over the tasks, in ns.
    pub sum_ns: u64,
    /// Pauses that began.
    pub pauses: u64,
    /// Tasks that are paused at this moment.
    pub now: Vec<Task>,
}

/// A disk in the tree of a loop device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopView {
    /// How many disks are above it.
    pub depth: usize,
    /// `loop0`, `sda`.
    pub name: String,
    /// Its file, of a loop device.
    pub file: Option<String>,
    /// That file has no name any more.
    pub deleted: bool,
    /// Whether it goes past the page cache.
    pub direct_io: Option<bool>,
    /// Part of the last 5 s in which somebody was paused on it, 0 to 1.
    pub paused_share: f64,
    /// The same of its worker, of a loop device.
    pub worker_share: Option<f64>,
}

fn share(times: &Intervals) -> f64 {
    (times.sum() as f64 / WINDOW_NS as f64).min(1.0)
}

impl Model {
    fn dirty_from(&self) -> u64 {
        self.now_ns().saturating_sub(WINDOW_NS)
    }

    fn bdi_name(&self, bdi: &str, stream: &Stream) -> String {
        match stream.dev {
            Some(dev) => display_name(dev, self.devices.get(&dev)),
            None => bdi.to_owned(),
        }
    }

    /// Backing devices, most paused first.
    pub(super) fn bdi_views(&self) -> Vec<BdiView> {
        let (from, now) = (self.dirty_from(), self.now_ns());
        let mut by_bdi: BTreeMap<&str, Vec<&Stream>> = BTreeMap::new();
        for ((bdi, _, _), stream) in self.dirty.streams() {
            by_bdi.entry(bdi).or_default().push(stream);
        }
        let mut views: Vec<BdiView> = by_bdi
            .into_iter()
            .filter_map(|(bdi, streams)| {
                let paused = self.dirty.paused(from, now, |(b, _, _), _| b == bdi);
                let pauses = streams.iter().map(|s| s.since(from).0);
                let pauses = pauses.fold(0, u64::saturating_add);
                let figures = || streams.iter().filter_map(|s| s.figures_since(from));
                let first = streams.first()?;
                (!paused.is_empty() || pauses > 0).then(|| BdiView {
                    name: self.bdi_name(bdi, first),
                    dirty: figures().map(|f| f.bdi_dirty).max(),
                    limit: figures().map(|f| f.bdi_limit).max(),
                    rate: figures().map(|f| f.bdi_rate).max(),
                    paused_share: share(&paused),
                    pauses,
                    longest_ns: streams.iter().map(|s| s.longest(from)).max().unwrap_or(0),
                    busy_share: first.dev.and_then(|d| self.dirty.busy_share(d, from, now)),
                })
            })
            .collect();
        views.sort_by(|a, b| {
            let by_share = b.paused_share.total_cmp(&a.paused_share);
            by_share.then_with(|| a.name.cmp(&b.name))
        });
        views
    }

    /// Who was paused, longest first.
    pub(super) fn paused_views(&self) -> Vec<PausedView> {
        let (from, now) = (self.dirty_from(), self.now_ns());
        let streams = self.dirty.streams().iter();
        let mut views: Vec<PausedView> = streams
            .filter_map(|((bdi, owner, worker), stream)| {
                let times = stream.paused.within(from, now);
                let (pauses, sum_ns) = stream.since(from);
                (!times.is_empty() || pauses > 0).then(|| PausedView {
                    owner: *owner,
                    worker: worker.clone(),
                    name: self.bdi_name(bdi, stream),
                    paused_share: share(&times),
                    sum_ns,
                    pauses,
                    now: stream.tasks_at(now).cloned().collect(),
                })
            })
            .collect();
        views.sort_by(|a, b| {
            let by_share = b.paused_share.total_cmp(&a.paused_share);
            by_share.then_with(|| (a.owner, &a.name, &a.worker).cmp(&(b.owner, &b.name, &b.worker)))
        });
        views
    }

    /// Loop devices that have a file, each above what it lies on; those below another only there.
    pub(super) fn loop_views(&self) -> Vec<LoopView> {
        let loops = self.dirty.loops().iter();
        let stacks: BTreeMap<DevId, Vec<DevId>> = loops
            .filter(|(_, l)| l.gone_ns.is_none())
            .map(|(dev, _)| (*dev, self.stack(*dev)))
            .collect();
        let mut above: BTreeMap<DevId, Vec<DevId>> = BTreeMap::new();
        for (upper, stack) in &stacks {
            for dev in stack.iter().skip(1) {
                above.entry(*dev).or_default().push(*upper);
            }
        }
        let mut out = Vec::new();
        for (dev, stack) in &stacks {
            // Two that lie on each other by their facts are both told.
            let uppers = above.get(dev).map(Vec::as_slice).unwrap_or_default();
            if uppers.iter().all(|upper| stack.contains(upper)) {
                self.add_tree(*dev, 0, &mut Vec::new(), &mut out);
            }
        }
        out
    }

    fn add_tree(&self, dev: DevId, depth: usize, above: &mut Vec<DevId>, out: &mut Vec<LoopView>) {
        if above.contains(&dev) {
            return;
        }
        let (from, now) = (self.dirty_from(), self.now_ns());
        let known = self.dirty.loops().get(&dev).filter(|l| l.gone_ns.is_none());
        let fact = known.map(|l| &l.fact);
        let name = display_name(dev, self.devices.get(&dev));
        out.push(LoopView {
            depth,
            name: fact.map_or_else(|| kernel_name(&name).to_owned(), |f| f.name.clone()),
            file: fact.map(|f| f.file.clone()),
            deleted: fact.is_some_and(|f| f.deleted),
            direct_io: fact.and_then(|f| f.direct_io),
            paused_share: share(&self.dirty.paused(from, now, |_, s| s.dev == Some(dev))),
            worker_share: fact.map(|_| share(&self.dirty.worker_paused(dev, from, now))),
        });
        above.push(dev);
        for below in self.below(dev) {
            self.add_tree(below, depth + 1, above, out);
        }
        above.pop();
    }
}
