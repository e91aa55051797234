use std::{collections::BTreeMap, vec::Vec};

use proptest::prelude::*;

use super::*;

/// What a request does: owner, waits for so long, is in the device for so long.
type Io = (u8, u64, u64, u64);

#[derive(Clone, Copy)]
enum Step {
    Queue,
    Issue,
    Complete,
}

fn events(ios: &[Io]) -> Vec<(u64, u8, Step)> {
    let mut all = Vec::new();
    for (owner, at, waits, works) in ios {
        all.push((*at, *owner, Step::Queue));
        all.push((at + waits, *owner, Step::Issue));
        all.push((at + waits + works, *owner, Step::Complete));
    }
    all.sort_by_key(|e| e.0);
    all
}

fn play(ios: &[Io], until: u64) -> (DeviceClock, BTreeMap<u8, OwnerClock>) {
    let mut device = DeviceClock::default();
    let mut owners: BTreeMap<u8, OwnerClock> = BTreeMap::new();
    for (at, owner, step) in events(ios) {
        let o = owners.entry(owner).or_default();
        advance(&mut device, at);
        settle(o, &device);
        let (waiting, inside) = match step {
            Step::Queue => (1u64, 0u64),
            Step::Issue => (u64::MAX, 1),
            Step::Complete => (0, u64::MAX),
        };
        for (w, i) in [
            (&mut device.waiting, &mut device.in_device),
            (&mut o.waiting, &mut o.in_device),
        ] {
            *w = w.wrapping_add(waiting);
            *i = i.wrapping_add(inside);
        }
    }
    advance(&mut device, until);
    for o in owners.values_mut() {
        settle(o, &device);
    }
    (device, owners)
}

/// The same by looking at every ns.
#[derive(Default, Debug, PartialEq)]
struct Plain {
    device_ns: f64,
    group_wait_ns: u64,
    active_ns: u64,
    unsatisfied_ns: u64,
    idle_waited_ns: u64,
}

fn plainly(ios: &[Io], until: u64) -> (u64, BTreeMap<u8, Plain>) {
    let mut busy = 0;
    let mut owners: BTreeMap<u8, Plain> = BTreeMap::new();
    for t in 0..until {
        let inside = |io: &&Io| io.1 + io.2 <= t && t < io.1 + io.2 + io.3;
        let waits = |io: &&Io| io.1 <= t && t < io.1 + io.2;
        let n = ios.iter().filter(inside).count();
        busy += u64::from(n > 0);
        for owner in 0..4u8 {
            let own: Vec<&Io> = ios.iter().filter(|io| io.0 == owner).collect();
            if own.is_empty() {
                continue;
            }
            let k = own.iter().copied().filter(inside).count();
            let w = own.iter().copied().filter(waits).count();
            let sums = owners.entry(owner).or_default();
            if n > 0 {
                sums.device_ns += k as f64 / n as f64;
            }
            sums.group_wait_ns += u64::from(w > 0 && k == 0);
            sums.active_ns += u64::from(w + k > 0);
            sums.unsatisfied_ns += u64::from(w > 0);
            sums.idle_waited_ns += u64::from(w > 0 && n == 0);
        }
    }
    (busy, owners)
}

fn ios() -> impl Strategy<Value = Vec<Io>> {
    prop::collection::vec((0u8..4, 1u64..200, 0u64..120, 0u64..120), 1..24)
}

proptest! {
    #[test]
    fn sums_are_those_of_looking_at_every_ns(ios in ios()) {
        let (device, owners) = play(&ios, 600);
        let (busy, plain) = plainly(&ios, 600);
        prop_assert_eq!(device.busy_ns, busy);
        for (owner, p) in &plain {
            let o = &owners[owner];
            let ns = o.device_units as f64 / f64::from(1 << UNIT_SHIFT);
            // A division cuts less than a unit for each request at each event.
            prop_assert!((ns - p.device_ns).abs() < 8.0, "{} and {}", ns, p.device_ns);
            prop_assert_eq!(o.group_wait_ns, p.group_wait_ns);
            prop_assert_eq!(o.active_ns, p.active_ns);
            prop_assert_eq!(o.unsatisfied_ns, p.unsatisfied_ns);
            prop_assert_eq!(o.idle_waited_ns, p.idle_waited_ns);
        }
    }

    #[test]
    fn the_parts_sum_to_busy(ios in ios(), scale in 1u64..1_000_000) {
        let ios: Vec<Io> = ios.iter().map(|io| (io.0, io.1 * scale, io.2 * scale, io.3 * scale)).collect();
        let (device, owners) = play(&ios, 600 * scale);
        let parts: u64 = owners.values().map(|o| o.device_units).sum();
        let whole = device.busy_ns << UNIT_SHIFT;
        prop_assert!(parts <= whole);
        let cut = (3 * ios.len() * ios.len()) as u64;
        prop_assert!(whole - parts <= cut, "{} of {}", whole - parts, whole);
    }
}

#[test]
fn a_deep_queue_beside_one_request_gets_the_larger_part() {
    // 31 requests of one owner and one of the other, all for a second.
    let ns = 1_000_000_000;
    let mut all: Vec<Io> = (0..31).map(|_| (0, 1, 0, ns)).collect();
    all.push((1, 1, 0, ns));
    let (device, owners) = play(&all, ns + 1);
    assert_eq!(device.busy_ns, ns);
    let part = owners[&1].device_units >> UNIT_SHIFT;
    assert!(part.abs_diff(ns / 32) <= 1, "{part}");
}

#[test]
fn time_that_runs_backwards_and_counts_below_zero_are_nothing() {
    let mut d = DeviceClock {
        in_device: u64::MAX,
        last_ns: 100,
        ..DeviceClock::default()
    };
    let before = d;
    advance(&mut d, 90);
    assert_eq!(d, before);
    advance(&mut d, 130);
    assert_eq!((d.busy_ns, d.idle_ns, d.idle_waited_ns), (0, 30, 0));
    let mut o = OwnerClock {
        last_ns: 200,
        last_clock: 7,
        waiting: 1,
        ..OwnerClock::default()
    };
    settle(&mut o, &d);
    assert_eq!((o.device_units, o.unsatisfied_ns), (0, 0));
}
