//! Device stall: the device keeps one request back while it completes others.
//!
//! Kind `device-stall`. Inputs: the oldest requests in the device stage and how many that were issued after them have completed.
//!
//! Rule: a read or write is in the device for 1 s while at least 64 requests that were issued later completed; critical at 10 s.
//! The same limits as for starvation, since it is the same wait to whoever waits: 64 is twice the depth of a SATA queue, so the
//! request was passed over by whole queues and not only by its neighbours.
//!
//! There is no culprit: the order inside the device is its own. Flushes and discards are left out, since later requests complete
//! beside them on every disk.
//!
//! Known false positives: a request that the device retries on a bad sector is slow for a reason, which its error log tells. On
//! stacked disks (dm, md, loop) "the device" is the disk below, whose own findings tell more.

use std::collections::BTreeMap;

use io_starve_common::class::Class;

use super::finding::{Confidence, Evidence, Kind, Mechanism, Rule, Severity};
use super::{Context, Detector, Judgement, Key, MS, advice, ms};
use crate::model::observation::{GroupKey, Stage, Waiter};

/// The detector.
pub struct DeviceStall;

impl Detector for DeviceStall {
    fn name(&self) -> &'static str {
        "device-stall"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::DeviceStall]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        let now = cx.model.now_ns();
        let age = |w: &Waiter| now.saturating_sub(w.since_ns);
        let mut worst: BTreeMap<GroupKey, &Waiter> = BTreeMap::new();
        for w in cx.model.waiters() {
            let data = matches!(
                w.key.class,
                Class::SyncRead | Class::SyncWrite | Class::AsyncWrite
            );
            let overtaken =
                age(w) >= ms(cx.settings.withheld_ms) && w.bypasses >= cx.settings.withheld_others;
            if w.stage == Stage::Device && data && overtaken {
                let entry = worst.entry(w.key).or_insert(w);
                if w.since_ns < entry.since_ns {
                    *entry = w;
                }
            }
        }
        for (group, w) in worst {
            let Some(device) = cx.model.devices.get(&group.dev) else {
                continue;
            };
            let critical = age(w) >= ms(cx.settings.withheld_critical_ms);
            let in_device = device
                .owners
                .get(&(group.owner, group.class))
                .map(|f| f.now.count[Stage::Device.index()]);
            out.push(Judgement {
                key: Key {
                    kind: Kind::DeviceStall,
                    dev: group.dev,
                    victim: group.owner,
                    class: Some(group.class),
                },
                victim: group.owner,
                class: Some(group.class),
                severity: if critical {
                    Severity::Critical
                } else {
                    Severity::Warning
                },
                confidence: if w.seeded {
                    Confidence::Likely
                } else {
                    Confidence::Sure
                },
                begin_ns: w.since_ns,
                stage: Stage::Device.into(),
                mechanism: Mechanism::Device,
                threshold_ns: ms(if critical {
                    cx.settings.withheld_critical_ms
                } else {
                    cx.settings.withheld_ms
                }),
                longest_ns: age(w),
                task: w.task.clone(),
                evidence: Evidence {
                    rule: Some(Rule::Overtaken),
                    scheduler: device.scheduler().map(str::to_owned),
                    tunables: advice::relevant(device, Mechanism::Device),
                    oldest_ms: Some(age(w) / MS),
                    waiting: in_device,
                    bypasses: Some(w.bypasses),
                    before_attach: w.seeded,
                    ..Evidence::default()
                },
                others: None,
                sync: None,
            });
        }
    }
}
