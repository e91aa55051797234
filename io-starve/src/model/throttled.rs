//! How hard limits bite: for which part of the last minute each held something, and how much of it is used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::Model;
use super::minute::{KEEP_NS, Minute};
use super::observation::{DevId, Hold, Owner};
use io_starve_common::class::Class;

/// Limits that are followed; a machine has seldom more that hold something in one minute.
const MAX_LIMITS: usize = 1_024;
/// What is used of a limit is measured over this, in ns: blk-throttle lets bios go in slices of up to 100 ms each
/// (DFL_THROTL_SLICE_HD), and those of a low limit come seldom.
const USED_NS: u64 = 5_000_000_000;

/// A limit: disk, group, writes (else reads).
type Limit = (DevId, Owner, bool);

/// Time in which limits held something.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttled {
    #[serde_as(as = "Vec<(_, _)>")]
    by_limit: BTreeMap<Limit, Minute>,
}

impl Throttled {
    /// What is held at this tick was held since it is known to be, or since the last tick, `tick_ns` ago.
    pub fn take(&mut self, holds: &[Hold], now: u64, tick_ns: u64) {
        self.by_limit.retain(|_, minute| !minute.prune(now));
        for h in holds {
            let key = (h.dev, h.group, h.write);
            if self.by_limit.len() < MAX_LIMITS || self.by_limit.contains_key(&key) {
                let ns = tick_ns.min(now.saturating_sub(h.since_ns));
                self.by_limit.entry(key).or_default().add(now, ns);
            }
        }
    }
}

impl Model {
    /// The part of the last minute, or of the time since attach where that is less, in which a limit held something: 0 to 1.
    pub fn held_share(&self, dev: DevId, group: Owner, write: bool) -> f64 {
        let held = self.throttled.by_limit.get(&(dev, group, write));
        let since_attach = self.now_ns().saturating_sub(self.first_ns());
        let of = since_attach.clamp(1, KEEP_NS);
        (held.map_or(0, Minute::total) as f64 / of as f64).min(1.0)
    }

    /// How much of a limit of a group on a disk is used by itself and all below it, of late: 1 is all of it. Bytes of requests against the
    /// limit in bytes, and requests against that in I/Os, whichever is nearer to the limit; blk-throttle counts bios, of which several may
    /// be merged into a request, so that in I/Os it may be more. `None`: no such limit is known.
    pub fn limit_used(&self, dev: DevId, group: Owner, write: bool) -> Option<f64> {
        let Owner::Cgroup(id) = group else {
            return None;
        };
        let limits = self.limit_on(id, dev)?;
        let (bps, iops) = match write {
            true => (limits.wbps, limits.wiops),
            false => (limits.rbps, limits.riops),
        };
        let from = self.now_ns().saturating_sub(USED_NS).max(self.first_ns());
        let (mut bytes, mut requests) = (0u64, 0u64);
        for ((owner, class), flow) in &self.devices.get(&dev)?.owners {
            let writes = matches!(class, Class::SyncWrite | Class::AsyncWrite);
            let reads = *class == Class::SyncRead;
            if (if write { writes } else { reads }) && self.is_within(*owner, group) {
                let cell = flow.ring.since(from);
                bytes = bytes.saturating_add(cell.bytes);
                requests = requests.saturating_add(cell.issues);
            }
        }
        let seconds = self.now_ns().saturating_sub(from) as f64 / 1e9;
        if seconds <= 0.0 {
            return None;
        }
        let of = |n: u64, limit: u64| n as f64 / seconds / limit.max(1) as f64;
        [bps.map(|l| of(bytes, l)), iops.map(|l| of(requests, l))]
            .into_iter()
            .flatten()
            .max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_counts_from_its_beginning_and_a_minute_at_most() {
        let s = 1_000_000_000;
        let mut throttled = Throttled::default();
        let hold = |since_ns| Hold {
            dev: DevId::new(8, 0),
            group: Owner::Cgroup(7),
            write: true,
            owner: Owner::Cgroup(7),
            count: 1,
            file: None,
            since_ns,
        };
        let total = |t: &Throttled| t.by_limit.values().map(Minute::total).sum::<u64>();
        throttled.take(&[hold(100 * s)], 100 * s, s);
        assert_eq!(total(&throttled), 0, "seen for the first time");
        throttled.take(&[hold(100 * s)], 101 * s, s);
        throttled.take(&[], 102 * s, s);
        throttled.take(&[hold(102 * s + s / 2)], 103 * s, s);
        assert_eq!(total(&throttled), s + s / 2);
        throttled.take(&[], 200 * s, s);
        assert_eq!(throttled, Throttled::default());
    }
}
