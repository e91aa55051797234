//! What every front end shows of shares: for each disk where device time is counted, its owners as a tree.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Model;
use super::devices::{Device, display_name};
use super::observation::{DevId, Owner};
use super::shares::{Judged, OwnerShare};
use super::weights::{Enforcer, WeightFact, line_of};

/// Shares are over this long, in ns: a window of the detector.
const WINDOW_NS: u64 = 5_000_000_000;
/// Lines of one disk; those with the largest deficit are kept.
const MAX_ROWS: usize = 256;

/// A disk that weights divide, or would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareView {
    /// Its number.
    pub dev: DevId,
    /// Name for people.
    pub name: String,
    /// What honours weights on it.
    pub enforcer: Enforcer,
    /// Active scheduler, `None` when it has none.
    pub scheduler: Option<String>,
    /// Part of the time in which something was in the device, 0 to 1.
    pub busy_share: f64,
    /// Part of the time in which nothing was while somebody waited, 0 to 1.
    pub idle_waited_share: f64,
    /// Cgroups, each followed by those below it; siblings by deficit, largest first.
    pub rows: Vec<ShareRow>,
}

/// A cgroup in the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareRow {
    /// How many of its ancestors are lines too.
    pub depth: usize,
    /// Its path; of an owner without one a word.
    pub path: String,
    /// It pays for I/O itself; `None` when only those below do.
    pub owner: Option<Owner>,
    /// Its weight on this disk; `None` when not known.
    pub weight: Option<u32>,
    /// What its weight, and those above, entitle it to, with all below it, 0 to 1; `None` when it was hardly active.
    pub entitled: Option<f64>,
    /// Its part of the device time, with all below it, 0 to 1.
    pub obtained: f64,
    /// Requests that completed a second, with all below it.
    pub served_per_s: f64,
    /// Part of the time in which it had something in admission or queued, 0 to 1; its own.
    pub waited_share: f64,
    /// Part of the time in which it waited and had nothing in the device, 0 to 1; its own.
    pub group_wait_share: f64,
    /// Mean of its own requests by stage, in ns, `None` where nothing left it.
    pub mean_ns: [Option<u64>; 3],
    /// Part of the last minute in which its own limit held something, 0 to 1; `None` without a limit.
    pub held_share: Option<f64>,
    /// PSI, (some, full) avg10 in per cent.
    pub pressure: Option<(f64, f64)>,
    /// `io.prio.class`, where it is set.
    pub prio_class: Option<String>,
    /// Target of `io.latency` on this disk, in us.
    pub latency_us: Option<u64>,
}

impl ShareRow {
    /// How much less it obtained than it is entitled to, 0 to 1; below 0 when that is more.
    pub fn deficit(&self) -> f64 {
        self.entitled.map_or(-self.obtained, |e| e - self.obtained)
    }
}

/// A row while the tree is made.
struct Node<'a> {
    row: ShareRow,
    below: BTreeMap<&'a str, Node<'a>>,
}

impl Model {
    /// Disks on which device time is counted and something was in flight of late, by name.
    pub(super) fn share_views(&self) -> Vec<ShareView> {
        let now = self.now_ns();
        let mut views: Vec<ShareView> = self
            .shares
            .disks()
            .filter_map(|dev| {
                let judged = self.judged(dev, now.saturating_sub(WINDOW_NS), now)?;
                Some(self.share_view(dev, &judged))
            })
            .collect();
        views.sort_by(|a, b| a.name.cmp(&b.name).then(a.dev.cmp(&b.dev)));
        views
    }

    fn share_view(&self, dev: DevId, judged: &Judged) -> ShareView {
        let device = self.devices.get(&dev);
        let limits = self
            .limits()
            .filter(|l| l.disks.iter().any(|(d, _)| *d == dev));
        let limited: BTreeMap<&str, Owner> = limits
            .map(|l| Owner::Cgroup(l.id))
            .filter_map(|group| Some((self.cgroups.path(group)?, group)))
            .collect();
        let row = |path: &str| self.share_row(dev, judged, &limited, path);
        let mut top = Node {
            row: row("/"),
            below: BTreeMap::new(),
        };
        let mut nameless = Vec::new();
        for o in &judged.owners {
            let Some(path) = self.cgroups.path(o.owner) else {
                let name = self.cgroups.name(o.owner);
                let mut nobody = row(&name);
                self.add_owner(&mut nobody, dev, judged, o, true);
                nameless.push(nobody);
                continue;
            };
            let mut node = &mut top;
            for part in line_of(path) {
                node = node.below.entry(part).or_insert_with(|| Node {
                    row: row(part),
                    below: BTreeMap::new(),
                });
                self.add_owner(&mut node.row, dev, judged, o, part == path);
            }
            if path == "/" {
                self.add_owner(&mut top.row, dev, judged, o, true);
            }
        }
        let mut rows = Vec::new();
        flatten(top.below, 0, &mut rows);
        if top.row.owner.is_some() {
            rows.push(top.row);
        }
        rows.append(&mut nameless);
        rows.truncate(MAX_ROWS);
        let of = |ns: u64| (ns as f64 / judged.window.ns.max(1) as f64).min(1.0);
        ShareView {
            dev,
            name: display_name(dev, device),
            enforcer: judged.enforcer,
            scheduler: device
                .and_then(Device::scheduler)
                .filter(|s| *s != "none")
                .map(str::to_owned),
            busy_share: of(judged.window.busy_ns),
            idle_waited_share: of(judged.window.idle_waited_ns),
            rows,
        }
    }

    /// What is known of a cgroup without its I/O.
    fn share_row(
        &self,
        dev: DevId,
        judged: &Judged,
        limited: &BTreeMap<&str, Owner>,
        path: &str,
    ) -> ShareRow {
        let fact: Option<&WeightFact> = self.weights.get(path);
        let latency = fact.and_then(|f| f.latency.iter().find(|(d, _)| *d == dev));
        ShareRow {
            depth: 0,
            path: path.to_owned(),
            owner: None,
            weight: self
                .weights
                .weight(path, dev, judged.enforcer)
                .map(|w| w.value),
            entitled: None,
            obtained: 0.0,
            served_per_s: 0.0,
            waited_share: 0.0,
            group_wait_share: 0.0,
            mean_ns: [None; 3],
            held_share: limited.get(path).map(|group| {
                let held = |write| self.held_share(dev, *group, write);
                held(true).max(held(false))
            }),
            pressure: None,
            prio_class: fact.and_then(|f| f.prio_class.clone()),
            latency_us: latency.map(|(_, us)| *us),
        }
    }

    /// Adds the I/O of an owner to its own row, or to one above.
    fn add_owner(
        &self,
        row: &mut ShareRow,
        dev: DevId,
        judged: &Judged,
        o: &OwnerShare,
        own: bool,
    ) {
        let ns = judged.window.ns.max(1) as f64;
        row.obtained += o.obtained;
        if let Some(share) = o.entitled {
            *row.entitled.get_or_insert(0.0) += share;
        }
        row.served_per_s += o.service.served as f64 / ns * 1e9;
        if !own {
            return;
        }
        let of = |part: u64| (part as f64 / ns).min(1.0);
        row.owner = Some(o.owner);
        row.waited_share = of(o.service.times.unsatisfied_ns);
        row.group_wait_share = of(o.service.times.group_wait_ns);
        row.pressure = self.psi(Some(o.owner));
        let flows = self.devices.get(&dev).into_iter().flat_map(|d| &d.owners);
        let mut sums = [(0u64, 0u64); 3];
        for (_, flow) in flows.filter(|((owner, _), _)| *owner == o.owner) {
            let cell = flow.ring.since(judged.window.from_ns);
            for (sum, stage) in sums.iter_mut().zip(cell.stages) {
                sum.0 = sum.0.saturating_add(stage.count);
                sum.1 = sum.1.saturating_add(stage.sum_ns);
            }
        }
        row.mean_ns = sums.map(|(count, ns)| ns.checked_div(count));
    }
}

fn flatten(level: BTreeMap<&str, Node<'_>>, depth: usize, out: &mut Vec<ShareRow>) {
    let mut level: Vec<Node<'_>> = level.into_values().collect();
    level.sort_by(|a, b| {
        let by_deficit = b.row.deficit().total_cmp(&a.row.deficit());
        by_deficit.then_with(|| a.row.path.cmp(&b.row.path))
    });
    for mut node in level {
        node.row.depth = depth;
        out.push(node.row);
        flatten(node.below, depth + 1, out);
    }
}
