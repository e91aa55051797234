//! From attached programs to observations, once a tick.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use aya::{
    Ebpf,
    maps::{MapData, RingBuf},
    programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _},
};
use io_starve_common::wire::{CTRL_ARMED, LossKind, dev_of_key};

use super::{
    AttachError, AttachOptions,
    btf::Btf,
    cgroups::{Cgroups, Hierarchy},
    config::Sizes,
    devices::Devices,
    hooks::{HOOKS, HookSpec, Purpose},
    limits::{LimitReader, limited},
    load::{Attacher, load},
    loops::{self, Loops},
    mounts::{self, Mounts},
    select::select,
    tracefs,
    weights::WeightReader,
};
use crate::model::observation::{
    CgroupMode, DevId, Fact, Hold, Hook, HostFact, Observation, Verdict,
};

mod clock;
use counters::cgroup;
mod counters;
#[cfg(feature = "faults")]
mod faults;
mod owners;
mod pauses;
mod services;
mod spans;
mod start;
mod tables;
mod waiting;

use clock::{monotonic_ns, own_cpu_ns, realtime_ns};
use start::{
    give_memory_back, load_all_on_demand, require_readable_memory, require_some_hook, sizes_for,
    typed_tracepoints,
};
use tables::Tables;

/// How often facts are read again, in ns: a tunable that somebody turns is seen within this.
const FACTS_EVERY_NS: u64 = 5_000_000_000;

/// Reading failed; the observer cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A program cannot be run on demand any more.
    #[error("the kernel refused to run {program}: {why}; restart io-starve")]
    OnDemand {
        /// Which.
        program: &'static str,
        /// The kernel's words.
        why: String,
    },
}

/// Everything that is attached, and what was last read from it.
pub struct Attached {
    ebpf: Ebpf,
    tables: Tables,
    ring: Option<RingBuf<MapData>>,
    sizes: Sizes,
    options: AttachOptions,
    hooks: Vec<Hook>,
    devices: Devices,
    cgroups: Cgroups,
    mounts: Mounts,
    limits: LimitReader,
    weights: WeightReader,
    /// Owners whose names were told, and whether their end was.
    told: BTreeMap<u64, bool>,
    counters: counters::Counters,
    services: services::Services,
    waiting: waiting::Scanner,
    seeded: BTreeSet<u64>,
    /// Disks that `--device` chose.
    chosen: Vec<DevId>,
    spans: spans::Spans,
    pauses: pauses::Pauses,
    loops: Loops,
    host: HostFact,
    first: bool,
    facts_read_ns: u64,
    walked_ns: u64,
    on_demand: bool,
}

impl Attached {
    /// Loads and attaches.
    ///
    /// # Errors
    ///
    /// Each with its cause and the next step; see [`AttachError`].
    pub fn attach(options: &AttachOptions) -> Result<Attached, AttachError> {
        for name in &options.without_hooks {
            if !HOOKS.iter().any(|h| h.name == name) {
                return Err(AttachError::NoSuchHook(name.clone()));
            }
        }
        let sys = PathBuf::from("/sys");
        let proc_ = PathBuf::from("/proc");
        let hierarchy = Hierarchy::find(&proc_);
        let cost_qos = hierarchy
            .as_ref()
            .filter(|h| h.mode == CgroupMode::V2)
            .map(|h| h.root.join("io.cost.qos"));
        let mut devices = Devices::new(&sys, cost_qos);
        devices.refresh();
        let chosen = select(&options.devices, &devices, &sys)?;
        let sizes = sizes_for(&devices, options, &sys);
        require_readable_memory("/sys/kernel/security".as_ref())?;
        let btf = Btf::open(Btf::VMLINUX.as_ref())?;
        let mut ebpf = load(&btf, &sizes, !options.devices.is_empty())?;
        let tables = Tables::map(&ebpf, &sizes)?;
        let spans = spans::Spans::map(&mut ebpf)?;
        let pauses = pauses::Pauses::map(&ebpf, &sys)?;
        tables.allow_only(&chosen);
        let on_demand = load_all_on_demand(&mut ebpf)?;

        let attacher = Attacher {
            btf: &btf,
            aya: typed_tracepoints(options),
            forbidden: &options.without_hooks,
        };
        let admission = devices.need_admission();
        let hooks = attacher.attach(&mut ebpf, |p| p != Purpose::Admission || admission);
        require_some_hook(&hooks)?;
        tables.ctrl.write(CTRL_ARMED, monotonic_ns());

        let ring = ebpf
            .take_map("CGROUPS")
            .and_then(|m| RingBuf::try_from(m).ok());
        let uname = rustix::system::uname();
        let host = HostFact {
            name: uname.nodename().to_string_lossy().into_owned(),
            kernel: uname.release().to_string_lossy().into_owned(),
            cgroups: hierarchy.as_ref().map_or(CgroupMode::None, |h| h.mode),
        };
        let mut cgroups = Cgroups::new(hierarchy);
        cgroups.walk();
        drop(attacher);
        drop(btf);
        give_memory_back();
        // The next refresh tells everything again, as the first observation must.
        let devices = Devices::new(&sys, devices.into_cost_qos());
        Ok(Attached {
            ebpf,
            tables,
            ring,
            sizes,
            options: options.clone(),
            hooks,
            devices,
            cgroups,
            mounts: Mounts::new(&proc_, &sys, mounts::number_of),
            limits: LimitReader::default(),
            weights: WeightReader::default(),
            told: BTreeMap::new(),
            counters: counters::Counters::default(),
            services: services::Services::default(),
            waiting: waiting::Scanner::default(),
            seeded: BTreeSet::new(),
            chosen,
            spans,
            pauses,
            loops: Loops::new(&sys, loops::status),
            host,
            first: true,
            facts_read_ns: 0,
            walked_ns: 0,
            on_demand,
        })
    }

    /// Every hook with its verdict.
    pub fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    /// Paths of the cgroups that there are.
    pub fn cgroup_paths(&self) -> impl Iterator<Item = &str> {
        self.cgroups.paths()
    }

    /// Memory of all maps, in bytes.
    pub fn map_bytes(&self) -> u64 {
        self.sizes.bytes()
    }

    /// Reads everything that moved since the last call.
    ///
    /// # Errors
    ///
    /// When the kernel refuses what it allowed before.
    pub fn observe(&mut self) -> Result<Observation, ReadError> {
        #[cfg(feature = "faults")]
        self.take_hooks_away();
        let mut facts = Vec::new();
        if self.first {
            facts.push(Fact::Host(self.host.clone()));
            facts.push(Fact::Hooks {
                hooks: self.hooks.clone(),
            });
        }
        self.read_cgroup_events();
        let start = monotonic_ns();
        self.seed_new_queues()?;
        self.sweep_old_slots(start)?;

        // Reading /sys can take long: it comes before the moment that everything else is told of.
        if self.first || self.has_unknown_disk() || start >= self.facts_read_ns + FACTS_EVERY_NS {
            self.facts_read_ns = start;
            facts.extend(self.refresh_devices());
        }
        let mounts = self.mounts.refresh(start);
        if self.facts_read_ns == start || !mounts.is_empty() {
            facts.extend(self.loops.refresh(&self.mounts));
        }
        facts.extend(mounts);
        facts.extend(self.limits.refresh(&self.cgroups, start));
        let mono_ns = monotonic_ns();
        let wall_ns = realtime_ns();
        // What waits comes first: the longer after its moment it is read, the more of it has gone on unseen.
        let look = waiting::look(&self.tables, mono_ns);
        let read = self.counters.read(&self.tables, mono_ns);
        let services = self.services.read(&self.tables, mono_ns);
        let mut scan = self.waiting.scan(look, self.counters.samples(), mono_ns);
        let follow = spans::Follow {
            ext4: self.is_attached("ext4_sync_file_exit"),
            xfs: self.is_attached("xfs_file_fsync%return"),
            range: self.is_attached("sync_file_range%return"),
            btrfs: self.is_attached("btrfs_sync_file%return"),
            commits: self.is_attached("jbd2_end_commit"),
        };
        let mut spans = self.spans.read(follow, mono_ns);
        self.add_stalled(&mut spans, mono_ns);
        let disks = pauses::Disks {
            devices: &self.devices,
            loops: &self.loops,
        };
        let paused = self.pauses.read(
            std::mem::take(&mut spans.pauses),
            self.spans.jiffy_ns(),
            disks,
            &self.chosen,
            mono_ns,
        );
        if !self.options.devices.is_empty() {
            spans.only(|fs| self.mounts.may_lie_on(fs, &self.chosen));
        }
        let holds = self.holds(mono_ns)?;
        let holders = holds.iter().filter_map(|h| cgroup(h.group));
        facts.extend(self.limits.of_holders(&self.cgroups, holders));
        for (row, since) in scan.doubtful.drain(..) {
            self.run("expire_bio", &[u64::from(row), since])?;
        }
        let owners: BTreeSet<u64> = read
            .groups
            .iter()
            .map(|g| g.key.owner)
            .chain(scan.waiting.iter().map(|w| w.key.owner))
            .chain(spans.owners())
            .chain(paused.owners())
            .chain(holds.iter().flat_map(|h| [h.group, h.owner]))
            .filter_map(cgroup)
            .chain(facts.iter().filter_map(limited))
            .collect();
        facts.extend(self.name_owners(&owners, mono_ns));
        facts.extend(self.refresh_weights(&owners, mono_ns));
        let loss = self.losses();
        let observation = Observation {
            mono_ns,
            wall_ns,
            facts,
            groups: read.groups,
            hists: read.hists,
            devices: read.devices,
            backlog: waiting::backlog(&scan.waiting, &self.cgroups),
            pressure: waiting::pressure(&scan.waiting, &self.cgroups),
            waiting: scan.waiting,
            waiters: scan.waiters,
            fsyncs: spans.fsyncs,
            fsync_counts: spans.counts,
            commits: spans.commits,
            holds,
            handles: spans.handles,
            checkpoints: spans.checkpoints,
            holders: spans.holders,
            pauses: paused.pauses,
            pause_counts: paused.counts,
            busy: paused.busy,
            clocks: services.clocks,
            services: services.services,
            loss,
            own_cpu_ns: Some(own_cpu_ns()),
        };
        self.first = false;
        Ok(observation)
    }

    fn is_attached(&self, hook: &str) -> bool {
        let is = |h: &Hook| h.name == hook && matches!(h.verdict, Verdict::Attached { .. });
        self.hooks.iter().any(is)
    }

    fn has_unknown_disk(&self) -> bool {
        (0..self.tables.devs.rows())
            .map(|row| self.tables.devs.key(row))
            .any(|key| key != 0 && !self.devices.knows(DevId(dev_of_key(key))))
    }

    fn refresh_devices(&mut self) -> Vec<Fact> {
        let mut facts = self.devices.refresh();
        if !self.options.devices.is_empty()
            && let Ok(chosen) = select(&self.options.devices, &self.devices, "/sys".as_ref())
        {
            self.tables.allow_only(&chosen);
            self.chosen = chosen;
        }
        if self.attach_what_is_needed() {
            facts.push(Fact::Hooks {
                hooks: self.hooks.clone(),
            });
        }
        facts
    }

    /// A scheduler or wbt was switched on since, or a module was loaded: attaches what was not needed or not there before. True
    /// when a verdict changed.
    fn attach_what_is_needed(&mut self) -> bool {
        let admission = self.devices.need_admission();
        let waits = |h: &Hook, spec: &HookSpec| match h.verdict {
            Verdict::NotNeeded => admission,
            Verdict::Waits => spec
                .module()
                .is_some_and(|(subsystem, event)| tracefs::has(subsystem, event)),
            _ => false,
        };
        if !self.hooks.iter().zip(HOOKS).any(|(h, s)| waits(h, s)) {
            return false;
        }
        let Ok(btf) = Btf::open(Btf::VMLINUX.as_ref()) else {
            return false;
        };
        let attacher = Attacher {
            btf: &btf,
            aya: typed_tracepoints(&self.options),
            forbidden: &self.options.without_hooks,
        };
        let mut changed = false;
        for (old, spec) in self.hooks.iter_mut().zip(HOOKS) {
            if waits(old, spec) {
                let new = attacher.attach_one(&mut self.ebpf, spec, true);
                changed |= new != *old;
                *old = new;
            }
        }
        changed
    }

    /// Requests that were inserted before attach, found once for each hardware queue when its first request is seen.
    fn seed_new_queues(&mut self) -> Result<(), ReadError> {
        if !self.on_demand {
            return Ok(());
        }
        let new: Vec<u64> = (0..self.tables.hctxs.rows())
            .map(|row| self.tables.hctxs.key(row))
            .filter(|key| *key != 0 && !self.seeded.contains(key))
            .collect();
        for hctx in new {
            // Queues have at most 10,240 tags (BLK_MQ_MAX_DEPTH, include/linux/blk-mq.h).
            for tag in 0..10_240 {
                if self.run("seed", &[hctx, tag])? == 0 {
                    break;
                }
            }
            self.seeded.insert(hctx);
        }
        Ok(())
    }

    /// What limits hold, on every queue that was seen.
    fn holds(&mut self, now: u64) -> Result<Vec<Hold>, ReadError> {
        if !self.on_demand {
            return Ok(Vec::new());
        }
        if self.spans.wants_jiffies() {
            let count = self.run("jiffies", &[])?;
            self.spans.learn_jiffies(count, monotonic_ns());
        }
        let mut queues: BTreeMap<u32, u64> = BTreeMap::new();
        for row in 0..self.tables.hctxs.rows() {
            let hctx = self.tables.hctxs.key(row);
            if hctx != 0 {
                queues.entry(self.tables.hctxs.queue(row)).or_insert(hctx);
            }
        }
        let queues: Vec<u64> = queues.into_values().collect();
        let ebpf = &self.ebpf;
        self.spans
            .holds(&queues, now, |hctx| run(ebpf, "held", &[hctx]))
    }

    fn sweep_old_slots(&mut self, now: u64) -> Result<(), ReadError> {
        if !self.on_demand {
            return Ok(());
        }
        for slot in waiting::old_slots(&self.tables, now) {
            self.run("sweep", &[u64::from(slot)])?;
        }
        Ok(())
    }

    fn run(&self, program: &'static str, args: &[u64]) -> Result<u32, ReadError> {
        run(&self.ebpf, program, args)
    }

    fn losses(&self) -> Vec<(LossKind, u64)> {
        let skipped = super::table::skipped_runs(&self.ebpf);
        LossKind::ALL[..LossKind::COUNT]
            .iter()
            .map(|kind| {
                let n = self.tables.loss.read(*kind as u32);
                match kind {
                    LossKind::SkippedRuns => (*kind, n + skipped),
                    LossKind::SpansDropped => {
                        (*kind, n + self.spans.missed() + self.pauses.missed())
                    }
                    _ => (*kind, n),
                }
            })
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

/// Runs a program that is attached to nothing.
fn run(ebpf: &Ebpf, program: &'static str, args: &[u64]) -> Result<u32, ReadError> {
    let failed = |why: String| ReadError::OnDemand { program, why };
    let p: &RawTracePoint = ebpf
        .program(program)
        .and_then(|p| p.try_into().ok())
        .ok_or_else(|| failed("it is not in the object".to_owned()))?;
    let mut options = RawTracePointRunOptions::new();
    for (to, from) in options.args.iter_mut().zip(args) {
        *to = *from;
    }
    let result = p.test_run(options).map_err(|e| failed(e.to_string()))?;
    Ok(result.return_value)
}
