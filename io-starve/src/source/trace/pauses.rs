//! Pauses for dirty memory, as the kernel announced them.
//!
//! In: `balance_dirty_pages`. Out: pauses one by one and their sums, as kernel/read/pauses.rs tells them in a live run; and how busy the
//! disks are behind which somebody was paused, counted from their requests.
//!
//! A trace does not say for whom a kernel thread writes: which loop device a `kworker` serves is not known.

use std::collections::BTreeMap;

use super::{event::Comm, fs_event::PauseEvent, requests::Requests};
use crate::model::observation::{
    Busy, DevId, DirtyFigures, Observation, Owner, Pause, PauseDelta, Task, Worker,
};

/// Pauses told one by one for each owner on a backing device at a tick, as in a live run.
const TOLD: usize = 32;
/// Owners on backing devices at a tick; those beyond are not told.
const MAX_STREAMS: usize = 1_024;
/// How long after a pause it is told how busy its disk is, in ns, as in a live run.
const BUSY_NS: u64 = 10_000_000_000;
/// Bytes of a page: a trace does not say; other sizes are rare, and rules compare parts.
const PAGE: u64 = 4_096;

/// Backing device, owner, worker.
type Key = (String, Owner, Option<String>);

/// What began since the last tick.
#[derive(Debug, Default)]
pub struct Pauses {
    streams: BTreeMap<Key, (PauseDelta, Vec<Pause>)>,
    /// Disks, and when somebody was last paused for them.
    disks: BTreeMap<DevId, u64>,
}

impl Pauses {
    /// A thread is paused. `owner` stands for it where its cgroup is not told. False when there is no room.
    pub fn take(&mut self, p: &PauseEvent, ns: u64, task: (u32, Comm), owner: Owner) -> bool {
        let bdi = p.bdi.text();
        let worker = worker(task.1);
        let name = worker.as_ref().map(|w| w.name.clone());
        // For whom it writes is not known; all of that name on a device are one.
        let owner = match (&worker, p.cgroup) {
            (_, Some(id)) => Owner::Cgroup(id),
            (Some(_), None) => Owner::Unknown,
            (None, None) => owner,
        };
        let key = (bdi.clone(), owner, name.clone());
        if self.streams.len() >= MAX_STREAMS && !self.streams.contains_key(&key) {
            return false;
        }
        let dev = disk_of(&bdi);
        if let Some(dev) = dev {
            self.disks.insert(dev, ns);
        }
        let (delta, told) = self.streams.entry(key).or_insert_with(|| {
            let delta = PauseDelta {
                bdi: bdi.clone(),
                owner,
                worker: name,
                count: 0,
                sum_ns: 0,
            };
            (delta, Vec::new())
        });
        let length = u64::from(p.pause_ms).saturating_mul(1_000_000);
        delta.count += 1;
        delta.sum_ns = delta.sum_ns.saturating_add(length);
        let end_ns = ns.saturating_add(length);
        // Beyond the room only those that reach further than the others: wall time stays right.
        let further = || told.iter().all(|t| t.end_ns < end_ns);
        if told.len() < TOLD || further() {
            told.push(Pause {
                bdi,
                dev,
                owner,
                tid: task.0,
                task: (task.0 != 0).then(|| Task {
                    pid: task.0,
                    comm: task.1.text(),
                }),
                worker,
                begin_ns: ns,
                end_ns,
                figures: figures(p),
            });
        }
        true
    }

    /// Puts the tick into an observation and begins the next one.
    pub fn drain(&mut self, requests: &Requests, o: &mut Observation) {
        for (delta, pauses) in std::mem::take(&mut self.streams).into_values() {
            o.pause_counts.push(delta);
            o.pauses.extend(pauses);
        }
        o.pauses.sort_by_key(|p| (p.begin_ns, p.tid));
        self.disks
            .retain(|_, at| o.mono_ns.saturating_sub(*at) < BUSY_NS);
        o.busy = (self.disks.keys())
            .filter_map(|dev| {
                Some(Busy {
                    dev: *dev,
                    busy_ms: requests.busy_ns(*dev, o.mono_ns)? / 1_000_000,
                })
            })
            .collect();
    }
}

/// Of the kernel's own threads only those that write for others are paused: a loop device's, up to 5.13 by its name, a workqueue's since.
fn worker(comm: Comm) -> Option<Worker> {
    let name = comm.text();
    let is_loop = name
        .strip_prefix("loop")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if is_loop {
        return Some(Worker {
            name,
            pooled: false,
        });
    }
    comm.is_kworker().then(|| Worker {
        name: "kworker".to_owned(),
        pooled: true,
    })
}

/// Major 0 is no disk: NFS, FUSE, btrfs.
fn disk_of(bdi: &str) -> Option<DevId> {
    let (major, minor) = bdi.split_once(':')?;
    let dev = DevId::new(
        major.parse().ok().filter(|m| *m < 1 << 12)?,
        minor.parse().ok().filter(|m| *m < 1 << 20)?,
    );
    (dev.major() != 0).then_some(dev)
}

/// What the event prints, turned back into what it was computed from (`balance_dirty_pages` in include/trace/events/writeback.h):
/// setpoint = (limit + (limit + background) / 2) / 2, and the device's setpoint is in proportion to its limit.
fn figures(p: &PauseEvent) -> Option<DirtyFigures> {
    // No kernel has a limit of nothing.
    if p.limit == 0 || p.setpoint == 0 {
        return None;
    }
    let bytes = |pages: u64| pages.saturating_mul(PAGE);
    let part = u128::from(p.bdi_setpoint) * u128::from(p.limit) / u128::from(p.setpoint);
    Some(DirtyFigures {
        limit: bytes(p.limit),
        background: bytes(
            p.setpoint
                .saturating_mul(4)
                .saturating_sub(p.limit.saturating_mul(3)),
        ),
        dirty: bytes(p.dirty),
        bdi_limit: bytes(u64::try_from(part).unwrap_or(u64::MAX)),
        bdi_dirty: bytes(p.bdi_dirty),
        bdi_rate: p.bdi_rate.saturating_mul(1_024),
        task_rate: p.task_rate.saturating_mul(1_024),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_that_the_kernel_printed_from() {
        let p = PauseEvent {
            bdi: Comm::new(b"8:0"),
            pause_ms: 200,
            cgroup: None,
            limit: 4_096,
            // (4096 + (4096 + 2048) / 2) / 2
            setpoint: 3_584,
            dirty: 3_600,
            bdi_setpoint: 358,
            bdi_dirty: 200,
            bdi_rate: 2_048,
            task_rate: 512,
        };
        let f = figures(&p).unwrap();
        assert_eq!((f.limit, f.background), (16 << 20, 8 << 20));
        assert_eq!(f.setpoint(), 3_584 * PAGE);
        assert_eq!(f.bdi_limit, 409 * PAGE);
        assert_eq!((f.bdi_rate, f.task_rate), (2 << 20, 512 << 10));
        assert_eq!(figures(&PauseEvent { limit: 0, ..p }), None);
    }

    #[test]
    fn workers_are_told_by_their_names_and_disks_by_their_numbers() {
        let named = |name: &[u8]| worker(Comm::new(name)).map(|w| (w.name, w.pooled));
        assert_eq!(named(b"loop12"), Some(("loop12".to_owned(), false)));
        assert_eq!(named(b"kworker/u4:1"), Some(("kworker".to_owned(), true)));
        assert_eq!(named(b"loop"), None);
        assert_eq!(named(b"dd"), None);
        assert_eq!(disk_of("254:16"), Some(DevId::new(254, 16)));
        for none in ["0:52", "btrfs-1", "8:", "5000:1"] {
            assert_eq!(disk_of(none), None, "{none}");
        }
    }
}
