//! Who got which share of a disk, window by window.
//!
//! In: device time and waits by owner, as the kernel side counts them where weights matter, and requests served. Out: sums over any of
//! the last 16 s, with the share that each owner obtained and the one it was entitled to.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::Model;
use super::observation::{DevId, Observation, Owner};
use super::weights::{self, Enforcer, Weight};

/// A cell takes in further ticks until it is this long, in ns: a fifth of a window.
const CELL_NS: u64 = 1_000_000_000;
/// How long cells are kept, in ns: three windows of 5 s, and the cell that began before them.
const KEEP_NS: u64 = 16_000_000_000;
/// Owners of a disk that are followed; those beyond are summed as others.
const MAX_OWNERS: usize = 1_024;
/// Below this part of a window an owner had next to nothing in flight, and takes no part in dividing the disk.
const ACTIVE: f64 = 0.1;

/// How the sums of an owner on a disk moved. Durations in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceDelta {
    /// The disk.
    pub dev: DevId,
    /// Who pays.
    pub owner: Owner,
    /// Sums.
    #[serde(flatten)]
    pub times: Times,
}

/// Times of one owner on one disk, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// In the device; time that several shared is divided equally among their requests.
    pub device_ns: u64,
    /// Something waited and nothing was in the device.
    pub group_wait_ns: u64,
    /// Something was in admission, queued or in the device.
    pub active_ns: u64,
    /// Something was in admission or queued.
    pub unsatisfied_ns: u64,
    /// Something waited while nobody had anything in the device.
    pub idle_waited_ns: u64,
}

impl Times {
    fn each(&mut self, with: Times, f: impl Fn(u64, u64) -> u64) {
        for (mine, theirs) in [
            (&mut self.device_ns, with.device_ns),
            (&mut self.group_wait_ns, with.group_wait_ns),
            (&mut self.active_ns, with.active_ns),
            (&mut self.unsatisfied_ns, with.unsatisfied_ns),
            (&mut self.idle_waited_ns, with.idle_waited_ns),
        ] {
            *mine = f(*mine, theirs);
        }
    }

    /// What came since `before`; a sum that seems to have shrunk did not move.
    #[must_use]
    pub fn since(mut self, before: Times) -> Times {
        self.each(before, u64::saturating_sub);
        self
    }

    fn add(&mut self, more: Times) {
        self.each(more, u64::saturating_add);
    }
}

/// How the sums of a disk moved, where device time is counted. Durations in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockDelta {
    /// The disk.
    pub dev: DevId,
    /// Something was in the device.
    pub busy_ns: u64,
    /// Nothing was.
    pub idle_ns: u64,
    /// Nothing was, while somebody waited.
    pub idle_waited_ns: u64,
    /// How often the time up to an event went to the next one, since two came at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// What an owner did in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Requests that completed.
    pub served: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times.
    pub times: Times,
}

impl Service {
    fn serve(&mut self, requests: u64, bytes: u64) {
        self.served = self.served.saturating_add(requests);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Sums over some time on one disk.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Beginning, ns monotonic.
    pub from_ns: u64,
    /// End, ns monotonic.
    pub to_ns: u64,
    /// How much of that time was counted, in ns.
    pub ns: u64,
    /// Something was in the device, in ns.
    pub busy_ns: u64,
    /// Nothing was, while somebody waited, in ns.
    pub idle_waited_ns: u64,
    /// By owner.
    #[serde_as(as = "Vec<(_, _)>")]
    pub owners: BTreeMap<Owner, Service>,
}

impl Window {
    fn add(&mut self, other: &Window) {
        self.ns = self.ns.saturating_add(other.ns);
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.idle_waited_ns = self.idle_waited_ns.saturating_add(other.idle_waited_ns);
        for (owner, service) in &other.owners {
            let sum = self.owner(*owner);
            sum.serve(service.served, service.bytes);
            sum.times.add(service.times);
        }
    }

    fn owner(&mut self, owner: Owner) -> &mut Service {
        let full = self.owners.len() >= MAX_OWNERS && !self.owners.contains_key(&owner);
        self.owners
            .entry(if full { Owner::Other } else { owner })
            .or_default()
    }

    /// Device time of all owners, in ns.
    pub fn device_ns(&self) -> u64 {
        let all = self.owners.values().map(|s| s.times.device_ns);
        all.fold(0, u64::saturating_add)
    }
}

/// The last windows of every disk on which device time is counted.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    #[serde_as(as = "Vec<(_, _)>")]
    disks: BTreeMap<DevId, VecDeque<Window>>,
    /// Since attach.
    #[serde_as(as = "Vec<(_, _)>")]
    totals: BTreeMap<DevId, (Window, u64)>,
}

impl Shares {
    /// Takes in what moved between two ticks.
    pub fn take(&mut self, o: &Observation, before: u64, now: u64) {
        for clock in &o.clocks {
            if self.disks.len() >= super::MAX_DEVICES && !self.disks.contains_key(&clock.dev) {
                continue;
            }
            let cells = self.disks.entry(clock.dev).or_default();
            if cells
                .back()
                .is_none_or(|c| c.to_ns < before || c.to_ns - c.from_ns >= CELL_NS)
            {
                cells.push_back(Window {
                    from_ns: before,
                    ..Window::default()
                });
            }
            if let Some(cell) = cells.back_mut() {
                cell.to_ns = now;
                cell.ns = cell
                    .ns
                    .saturating_add(clock.busy_ns.saturating_add(clock.idle_ns));
                cell.busy_ns = cell.busy_ns.saturating_add(clock.busy_ns);
                cell.idle_waited_ns = cell.idle_waited_ns.saturating_add(clock.idle_waited_ns);
            }
        }
        for clock in &o.clocks {
            let room = self.totals.len() < super::MAX_DEVICES;
            if room || self.totals.contains_key(&clock.dev) {
                let (total, missed) = self.totals.entry(clock.dev).or_default();
                total.add(&Window {
                    ns: clock.busy_ns.saturating_add(clock.idle_ns),
                    busy_ns: clock.busy_ns,
                    idle_waited_ns: clock.idle_waited_ns,
                    ..Window::default()
                });
                *missed = missed.saturating_add(clock.missed);
            }
        }
        let told = |dev: &DevId| o.clocks.iter().any(|c| c.dev == *dev);
        for s in o.services.iter().filter(|s| told(&s.dev)) {
            if let Some(cell) = self.disks.get_mut(&s.dev).and_then(VecDeque::back_mut) {
                cell.owner(s.owner).times.add(s.times);
            }
            if let Some((total, _)) = self.totals.get_mut(&s.dev) {
                total.owner(s.owner).times.add(s.times);
            }
        }
        for g in o.groups.iter().filter(|g| told(&g.key.dev)) {
            if let Some(cell) = self.disks.get_mut(&g.key.dev).and_then(VecDeque::back_mut) {
                cell.owner(g.key.owner).serve(g.finished, g.bytes);
            }
            if let Some((total, _)) = self.totals.get_mut(&g.key.dev) {
                total.owner(g.key.owner).serve(g.finished, g.bytes);
            }
        }
        self.disks.retain(|_, cells| {
            while cells
                .front()
                .is_some_and(|c| c.to_ns.saturating_add(KEEP_NS) < now)
            {
                cells.pop_front();
            }
            !cells.is_empty()
        });
    }

    /// Sums of the cells that ended in (from, to]. `None`: none did.
    pub fn window(&self, dev: DevId, from_ns: u64, to_ns: u64) -> Option<Window> {
        let mut within = self
            .disks
            .get(&dev)?
            .iter()
            .filter(|c| from_ns < c.to_ns && c.to_ns <= to_ns);
        let mut sum = within.next()?.clone();
        for cell in within {
            sum.add(cell);
            sum.to_ns = cell.to_ns;
        }
        Some(sum)
    }

    /// Sums since attach by disk, and how often the time up to an event went to the next one.
    pub fn totals(&self) -> impl Iterator<Item = (DevId, &Window, u64)> {
        self.totals
            .iter()
            .map(|(dev, (w, missed))| (*dev, w, *missed))
    }

    /// Disks on which device time was counted of late.
    pub fn disks(&self) -> impl Iterator<Item = DevId> + '_ {
        self.disks.keys().copied()
    }
}

/// An owner in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnerShare {
    /// Who.
    pub owner: Owner,
    /// What it did.
    pub service: Service,
    /// Its part of the device time of all, 0 to 1.
    pub obtained: f64,
    /// The part that its weight entitles it to among those that are active; `None` when it is not.
    pub entitled: Option<f64>,
    /// Its own weight; `None` when it is not known.
    pub weight: Option<Weight>,
    /// A weight other than the default is set on it or above.
    pub set: bool,
}

impl OwnerShare {
    /// How much of what it is entitled to it obtained: 1 is all. `None` when it was not active.
    pub fn part(&self) -> Option<f64> {
        self.entitled.map(|e| self.obtained / e)
    }
}

/// A window, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Sums.
    pub window: Window,
    /// What honours weights.
    pub enforcer: Enforcer,
    /// By owner.
    pub owners: Vec<OwnerShare>,
    /// Some weight that is set is not looked at by what honours weights here.
    pub ignored: bool,
}

impl Judged {
    /// One of its owners.
    pub fn owner(&self, owner: Owner) -> Option<&OwnerShare> {
        self.owners.iter().find(|o| o.owner == owner)
    }
}

impl Model {
    /// Who got which share of each disk.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Shares of a disk over the cells that ended in (from, to]. `None`: nothing was counted then, or the disk is not known.
    pub fn judged(&self, dev: DevId, from_ns: u64, to_ns: u64) -> Option<Judged> {
        let enforcer = weights::enforcer(self.devices.get(&dev)?)?;
        let window = self.shares.window(dev, from_ns, to_ns)?;
        let weight = |path: &str| self.weights.weight(path, dev, enforcer);
        let active = |s: &Service| s.times.active_ns as f64 >= window.ns as f64 * ACTIVE;
        let paths: BTreeMap<Owner, Option<&str>> = window
            .owners
            .iter()
            .filter(|(_, s)| active(s))
            .map(|(owner, _)| (*owner, self.cgroups.path(*owner)))
            .collect();
        let entitled = weights::entitled(&paths, &|path| {
            weight(path).map_or(weights::DEFAULT_WEIGHT, |w| w.value)
        });
        let all = window.device_ns().max(1);
        let mut ignored = false;
        let owners = window
            .owners
            .iter()
            .map(|(owner, service)| {
                let path = self.cgroups.path(*owner);
                let line = || {
                    path.into_iter()
                        .flat_map(weights::line_of)
                        .filter_map(weight)
                };
                ignored |= line().any(|w| w.set && !w.honoured);
                OwnerShare {
                    owner: *owner,
                    service: *service,
                    obtained: service.times.device_ns as f64 / all as f64,
                    entitled: entitled.get(owner).copied(),
                    weight: path.and_then(weight),
                    set: line().any(|w| w.set),
                }
            })
            .collect();
        Some(Judged {
            window,
            enforcer,
            owners,
            ignored,
        })
    }
}

#[cfg(test)]
mod tests;
