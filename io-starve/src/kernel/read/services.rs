//! Device time and waits by owner: on which disks they are counted, and how they moved.

use std::collections::BTreeMap;

use io_starve_common::{
    service::{DeviceClock, UNIT_SHIFT, advance, settle},
    wire::{CTRL_ACCOUNTING, dev_of_key},
};

use super::{counters, tables::Tables};
use crate::model::observation::{ClockDelta, DevId, ServiceDelta, Times};

/// What was last read, by row: two CPUs that see somebody for the first time at the same moment may have made a row each.
#[derive(Default)]
pub struct Services {
    clocks: BTreeMap<u32, ClockDelta>,
    owners: BTreeMap<u32, Times>,
}

/// What moved.
#[derive(Default)]
pub struct Read {
    pub clocks: Vec<ClockDelta>,
    pub services: Vec<ServiceDelta>,
}

/// Switches accounting on for the disks that `matter`, and off for the others.
pub(super) fn switch(t: &Tables, matter: impl Fn(DevId) -> bool) {
    let mut some = false;
    for row in 0..t.devs.rows() {
        let key = t.devs.key(row);
        let on = key != 0 && matter(DevId(dev_of_key(key)));
        some |= on;
        if t.accounted.read(row) != u64::from(on) {
            t.accounted.write(row, u64::from(on));
        }
    }
    if t.ctrl.read(CTRL_ACCOUNTING) != u64::from(some) {
        t.ctrl.write(CTRL_ACCOUNTING, u64::from(some));
    }
}

impl Services {
    /// Sums up to now, as differences. A disk on which nothing was in flight is not told.
    pub(super) fn read(&mut self, t: &Tables, now: u64) -> Read {
        let mut read = Read::default();
        let mut devices: BTreeMap<u64, (DevId, DeviceClock)> = BTreeMap::new();
        for row in 0..t.devs.rows() {
            let key = t.devs.key(row);
            let mut clock = t.clocks.read(row);
            if key == 0 || clock.last_ns == 0 {
                continue;
            }
            advance(&mut clock, now);
            let dev = DevId(dev_of_key(key));
            devices.insert(u64::from(row) + 1, (dev, clock));
            let sum = ClockDelta {
                dev,
                busy_ns: clock.busy_ns,
                idle_ns: clock.idle_ns,
                idle_waited_ns: clock.idle_waited_ns,
                missed: u64::from(clock.missed),
            };
            let before = self.clocks.insert(row, sum);
            let (was, d) = (
                before.unwrap_or(ClockDelta { dev, ..NEVER }),
                u64::saturating_sub,
            );
            let delta = ClockDelta {
                dev,
                busy_ns: d(sum.busy_ns, was.busy_ns),
                idle_ns: d(sum.idle_ns, was.idle_ns),
                idle_waited_ns: d(sum.idle_waited_ns, was.idle_waited_ns),
                missed: d(sum.missed, was.missed),
            };
            if delta.busy_ns > 0 || delta.idle_waited_ns > 0 {
                read.clocks.push(delta);
            }
        }
        if devices.is_empty() {
            return read;
        }
        for row in 0..t.owners.rows() {
            if t.owners.key(row) == 0 {
                continue;
            }
            let mut clock = t.owners.read(row);
            let Some((dev, device)) = devices.get(&clock.dev_row) else {
                continue;
            };
            settle(&mut clock, device);
            let owner = counters::owner(clock.owner);
            let times = Times {
                device_ns: clock.device_units >> UNIT_SHIFT,
                group_wait_ns: clock.group_wait_ns,
                active_ns: clock.active_ns,
                unsatisfied_ns: clock.unsatisfied_ns,
                idle_waited_ns: clock.idle_waited_ns,
            };
            let before = self.owners.entry(row).or_default();
            let moved = times.since(*before);
            *before = times;
            if moved != Times::default() {
                read.services.push(ServiceDelta {
                    dev: *dev,
                    owner,
                    times: moved,
                });
            }
        }
        read.clocks.sort_by_key(|c| c.dev);
        read.services.sort_by_key(|s| (s.dev, s.owner));
        read
    }
}

/// A disk that was not read yet.
const NEVER: ClockDelta = ClockDelta {
    dev: DevId(0),
    busy_ns: 0,
    idle_ns: 0,
    idle_waited_ns: 0,
    missed: 0,
};
