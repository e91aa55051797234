//! What to do about a finding, with the tunables that were found on that disk.
//!
//! In: a finding and the facts about its disk and owners. Out: sentences, best first. Nothing is advised that the disk does not
//! have, and each says what its price is where it has one.

use io_starve_common::class::Class;

use super::finding::{Finding, Kind, Mechanism, Severity};
use super::{dirty_words, fsync_words, weight_words};
use crate::model::Model;
use crate::model::devices::{Device, display_name, kernel_name};

/// Tunables that matter to a mechanism, by the last part of their name.
fn names(mechanism: Mechanism) -> &'static [&'static str] {
    match mechanism {
        Mechanism::Scheduler => &[
            "writes_starved",
            "write_expire",
            "read_expire",
            "fifo_batch",
            "prio_aging_expire",
            "async_depth",
            "low_latency",
            "slice_idle",
            "read_lat_nsec",
            "write_lat_nsec",
        ],
        Mechanism::Wbt => &["wbt_lat_usec"],
        Mechanism::Iocost => &[],
        Mechanism::Tags => &["nr_requests", "async_depth"],
        Mechanism::Device => &["nr_requests"],
        Mechanism::Misallocated => &["low_latency", "slice_idle", "slice_idle_us"],
        Mechanism::Idling => &["slice_idle", "slice_idle_us", "strict_guarantees"],
        Mechanism::NotEnforced
        | Mechanism::JournalData
        | Mechanism::JournalQueue
        | Mechanism::DataQueue
        | Mechanism::Transaction
        | Mechanism::Checkpoint
        | Mechanism::LoopWorker
        | Mechanism::DirtyLimit => &[],
    }
}

/// The tunables of a disk that matter to a mechanism, as they were told.
pub fn relevant(device: &Device, mechanism: Mechanism) -> Vec<(String, String)> {
    let wanted = names(mechanism);
    let tunables = device
        .fact
        .as_ref()
        .map(|f| f.tunables.as_slice())
        .unwrap_or_default();
    tunables
        .iter()
        .filter(|(file, _)| {
            file.rsplit('/')
                .next()
                .is_some_and(|name| wanted.contains(&name))
        })
        .cloned()
        .collect()
}

/// What to do, best first.
pub fn of(f: &Finding, model: &Model) -> Vec<String> {
    if matches!(f.kind, Kind::FsyncSerialization | Kind::JournalStall) {
        return fsync_words::advice(f, model);
    }
    if matches!(f.kind, Kind::LoopDoubleThrottle | Kind::DirtyThrottle) {
        return dirty_words::advice(f, model);
    }
    if f.kind == Kind::WeightUnfairness {
        return weight_words::advice(f, model);
    }
    let Some((dev, device)) = f
        .device
        .and_then(|dev| Some((dev, model.devices.get(&dev)?)))
    else {
        return Vec::new();
    };
    let a = Advisor {
        f,
        model,
        device,
        disk: kernel_name(device.name().unwrap_or_default()).to_owned(),
    };
    match f.kind {
        Kind::QueueStuck => a.stuck(&display_name(dev, Some(device))),
        Kind::DeviceStall => a.stall(),
        Kind::FsyncSerialization
        | Kind::JournalStall
        | Kind::LoopDoubleThrottle
        | Kind::DirtyThrottle
        | Kind::WeightUnfairness => Vec::new(),
        Kind::AsyncWriteStarvation | Kind::SyncWriteStarvation | Kind::ReadStarvation => {
            a.starvation()
        }
    }
}

struct Advisor<'a> {
    f: &'a Finding,
    model: &'a Model,
    device: &'a Device,
    disk: String,
}

impl Advisor<'_> {
    /// A tunable with its path and value, and its value as a number.
    fn tunable(&self, name: &str) -> Option<(String, Option<u64>)> {
        let (file, value) = self.device.tunable(name)?;
        let path = if self.disk.is_empty() {
            format!("queue/{file}")
        } else {
            format!("/sys/block/{}/queue/{file}", self.disk)
        };
        Some((format!("{path} (now {value})"), value.parse().ok()))
    }

    fn starvation(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.f.severity == Severity::Info {
            out.push(
                "what waits has I/O priority idle and is meant to wait; give its tasks another class (ionice -c 2) if it must go on"
                    .to_owned(),
            );
            out.extend(self.tunable("prio_aging_expire").map(|(t, _)| {
                format!("{t}: after so many ms mq-deadline serves a lower I/O priority all the same; a lower value serves it earlier")
            }));
        } else {
            match self.f.mechanism {
                Mechanism::Scheduler => self.scheduler(&mut out),
                Mechanism::Wbt => self.wbt(&mut out),
                Mechanism::Iocost => self.iocost(&mut out),
                Mechanism::Tags => self.tags(&mut out),
                Mechanism::Device => self.device_full(&mut out),
                Mechanism::JournalData
                | Mechanism::JournalQueue
                | Mechanism::DataQueue
                | Mechanism::Transaction
                | Mechanism::Checkpoint
                | Mechanism::LoopWorker
                | Mechanism::DirtyLimit
                | Mechanism::NotEnforced
                | Mechanism::Misallocated
                | Mechanism::Idling => {}
            }
        }
        out.extend(self.limit_culprit());
        out
    }

    fn scheduler(&self, out: &mut Vec<String>) {
        let is_write = self.f.class != Some(Class::SyncRead);
        let by_reads = self
            .f
            .culprits
            .first()
            .is_some_and(|c| c.class == Class::SyncRead);
        if is_write && by_reads {
            out.extend(self.tunable("writes_starved").map(|(t, now)| {
                let target = if now.is_some_and(|n| n > 2) { "2, the default, or 1" } else { "1" };
                format!("{t}: so many batches of reads go before one of writes; set it to {target}, at the expense of reads")
            }));
        }
        if !by_reads && is_write {
            out.extend(self.tunable("write_expire").map(|(t, _)| {
                format!("{t}: among writes, one that is older than so many ms goes first; a lower value helps the older ones")
            }));
        }
        if !by_reads && !is_write {
            out.extend(self.tunable("async_depth").map(|(t, _)| {
                format!("{t}: so many requests that are not sync reads may be queued; a lower value leaves the disk to reads")
            }));
        }
        out.extend(self.tunable("low_latency").filter(|(_, now)| *now != Some(0)).map(|(t, _)| {
            format!("{t}: BFQ prefers what it takes for interactive tasks; 0 switches that off and shares by weight alone")
        }));
        if self.device.scheduler() == Some("kyber") {
            let name = if is_write {
                "write_lat_nsec"
            } else {
                "read_lat_nsec"
            };
            out.extend(self.tunable(name).map(|(t, _)| {
                format!("{t}: kyber's latency target for what waits; a lower one makes it hold back the other side earlier")
            }));
        }
        if self.device.scheduler() == Some("bfq") {
            out.extend(
                self.victim()
                    .map(|v| format!("raise io.bfq.weight of {v}; BFQ shares the disk by it")),
            );
            if self.f.class == Some(Class::AsyncWrite) {
                out.push(
                    "BFQ keeps one queue for all async writes of a cgroup: put the writer and the readers into cgroups of their own"
                        .to_owned(),
                );
            }
        }
        out.extend(self.other_prio());
    }

    fn wbt(&self, out: &mut Vec<String>) {
        out.extend(self.tunable("wbt_lat_usec").map(|(t, now)| {
            let target = now.map_or_else(|| "a higher value".to_owned(), |n| format!("e.g. {}", n.saturating_mul(4)));
            format!(
                "{t}: writeback is held back while reads take longer than this; set {target}, or 0 to switch it off, at the expense of reads"
            )
        }));
    }

    fn iocost(&self, out: &mut Vec<String>) {
        out.extend(
            self.victim()
                .map(|v| format!("raise io.weight of {v}; iocost shares the disk by it")),
        );
        out.push(
            "check io.cost.model and io.cost.qos of this disk: a model that is too pessimistic holds everybody back".to_owned(),
        );
    }

    fn tags(&self, out: &mut Vec<String>) {
        let write = self.f.class != Some(Class::SyncRead);
        if write {
            out.extend(self.tunable("async_depth").map(|(t, _)| {
                format!("{t}: so many requests that are not sync reads get a tag; a higher value lets more of them in")
            }));
        }
        out.extend(
            self.tunable("nr_requests")
                .map(|(t, _)| format!("{t}: the number of tags; a higher value lets more requests in, at the expense of latency")),
        );
        if self.device.scheduler() == Some("none") {
            out.push(self.choose_scheduler());
        }
    }

    fn device_full(&self, out: &mut Vec<String>) {
        out.push(format!(
            "the device takes no more requests and nobody orders those that wait; {}",
            self.choose_scheduler()
        ));
    }

    fn choose_scheduler(&self) -> String {
        let disk = if self.disk.is_empty() {
            "this disk"
        } else {
            &self.disk
        };
        format!(
            "give {disk} a scheduler (mq-deadline or bfq in queue/scheduler), which can share it out"
        )
    }

    /// mq-deadline and BFQ know I/O priorities; the others ignore them.
    fn other_prio(&self) -> Option<String> {
        let knows = matches!(self.device.scheduler(), Some("mq-deadline" | "bfq"));
        let culprit = self.f.culprits.first()?;
        let task = culprit.tasks.first().map_or_else(
            || format!("the tasks of {}", self.model.cgroups.name(culprit.owner)),
            |t| format!("{} ({})", t.comm, t.pid),
        );
        knows.then(|| format!("give {task} a lower I/O priority (ionice -c 2 -n 7, or -c 3)"))
    }

    fn victim(&self) -> Option<&str> {
        self.model.cgroups.path(self.f.victim)
    }

    fn limit_culprit(&self) -> Option<String> {
        let culprit = self.f.culprits.first()?;
        let limit = if culprit.class == Class::SyncRead {
            "riops"
        } else {
            "wbps"
        };
        // The root cgroup has no io.max.
        let path = self
            .model
            .cgroups
            .path(culprit.owner)
            .filter(|p| *p != "/")?;
        let dev = self.f.device?;
        (culprit.owner != self.f.victim)
            .then(|| format!("limit {path}: io.max of that cgroup, e.g. \"{dev} {limit}=N\""))
    }

    fn stall(&self) -> Vec<String> {
        let mut out = self.below();
        out.push("look for errors, retries and resets of this disk in the kernel log, and at its SMART or NVMe error log".to_owned());
        out.extend(self.tunable("nr_requests").map(|(t, _)| {
            format!("a device with fewer requests at once has less to reorder: try a lower queue depth (device/queue_depth, or {t})")
        }));
        out
    }

    fn stuck(&self, name: &str) -> Vec<String> {
        let mut out = self.below();
        out.push(format!(
            "look in the kernel log for timeouts and resets of {name}, and at the path to it (cable, controller, network, hypervisor)"
        ));
        if name.starts_with("dm-") {
            out.push(
                "dmsetup info tells whether it is suspended; dmsetup resume ends that".to_owned(),
            );
        }
        if let Some(file) = self
            .device
            .fact
            .as_ref()
            .and_then(|f| f.backing_file.as_deref())
        {
            out.push(format!(
                "its data is in {file}: look at the filesystem and the disk that hold this file"
            ));
        }
        out
    }

    fn below(&self) -> Vec<String> {
        let below = self
            .device
            .fact
            .as_ref()
            .map(|f| f.below.as_slice())
            .unwrap_or_default();
        if below.is_empty() {
            return Vec::new();
        }
        let names: Vec<String> = below
            .iter()
            .map(|dev| display_name(*dev, self.model.devices.get(dev)))
            .collect();
        vec![format!(
            "its requests go to {}: look there first",
            names.join(", ")
        )]
    }
}
