//! fsync serialization: an owner's fsync waits for another owner's I/O. Journal stall: so does another call, through the journal.
//!
//! Kinds `fsync-serialization` and `journal-stall`. Inputs: fsyncs with whom they wait for ([`crate::model::syncs`]), rates of the disks.
//!
//! Rule: an fsync takes longer than 200 ms, and more than five times what its owner would have waited alone, and others account for at
//! least half of the part where it waited most. 200 ms is what people notice and no healthy fsync needs; the factor keeps out slow disks,
//! and two equal peers, each of whom doubles the other's wait; the half keeps out waits that nobody caused. Alone means: what the owner had
//! written meanwhile, two writes of the journal and a flush, at the best rate or in the shortest mean time that the disks showed in the last
//! minute. Critical at 10 s.
//!
//! A create, mkdir, write or umount that waits for the journal is judged alike, from 1 s on: it is seen at ticks only, among tasks in
//! uninterruptible sleep, and alone it does not wait at all.
//!
//! A wait that the owner's own limit causes is `info`: nobody else can end it.
//!
//! Known false positives: an owner that syncs as much as the culprit does, in other cgroups below one service, is told as two owners. A
//! rate that was never reached makes the wait alone look short.

use std::collections::BTreeMap;

use io_starve_common::class::Class;

use super::finding::{
    Confidence, Culprit, Evidence, FsyncEvidence, Kind, LimitHit, Place, Severity, SyncNote,
};
use super::{Context, Detector, Judgement, Key, MS, ms};
use crate::model::blame::Blamed;
use crate::model::causes::Gap;
use crate::model::mechanism::Mechanism;
use crate::model::observation::{Call, DevId, Owner, Task};
use crate::model::syncs::{Delay, Sync};

/// Culprits of a finding.
const MAX_CULPRITS: usize = 5;
/// Writes of the journal (its blocks, the commit block) and the flush that every commit needs.
const COMMIT_REQUESTS: u64 = 3;

/// The detector.
pub struct FsyncSerialization;

impl Detector for FsyncSerialization {
    fn name(&self) -> &'static str {
        "fsync"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::FsyncSerialization, Kind::JournalStall]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        let mut worst: BTreeMap<Key, Judgement> = BTreeMap::new();
        for sync in cx.model.syncs().at_tick() {
            let Some(judgement) = one(cx, sync) else {
                continue;
            };
            match worst.get(&judgement.key) {
                Some(other) if rank(other) >= rank(&judgement) => {}
                _ => {
                    worst.insert(judgement.key, judgement);
                }
            }
        }
        out.extend(worst.into_values());
    }
}

/// What others caused comes before what the owner did to itself.
fn rank(j: &Judgement) -> (Severity, u64) {
    (j.severity, j.longest_ns)
}

/// The part where an fsync waited most, by mechanism, with its delays.
fn longest_part(sync: &Sync) -> Option<(Mechanism, Vec<&Delay>, u64)> {
    let mut parts: BTreeMap<Mechanism, (Vec<&Delay>, u64)> = BTreeMap::new();
    for d in &sync.delays {
        let part = parts.entry(d.mechanism).or_default();
        part.0.push(d);
        part.1 = part.1.saturating_add(d.ns);
    }
    parts
        .into_iter()
        .max_by_key(|(_, (_, ns))| *ns)
        .map(|(mechanism, (delays, ns))| (mechanism, delays, ns))
}

fn one(cx: &Context<'_>, sync: &Sync) -> Option<Judgement> {
    let model = cx.model;
    let now = model.now_ns();
    let took = sync.took_ns(now);
    let s = cx.settings;
    let (kind, warning, critical) = match sync.span.call {
        Call::Fsync | Call::SyncRange => {
            (Kind::FsyncSerialization, s.fsync_ms, s.fsync_critical_ms)
        }
        _ => (Kind::JournalStall, s.journal_ms, s.journal_critical_ms),
    };
    if took < ms(warning) {
        return None;
    }
    let alone = alone_ns(cx, sync);
    if took < alone.saturating_mul(s.fsync_factor) {
        return None;
    }
    let (mechanism, delays, part) = longest_part(sync)?;
    let victim = sync.span.owner;
    let of = |wanted: &dyn Fn(&Delay) -> bool| {
        delays
            .iter()
            .filter(|d| wanted(d))
            .fold(0u64, |sum, d| sum.saturating_add(d.ns))
    };
    let others = of(&|d| d.culprit.is_some_and(|c| c != victim));
    let own_limit = of(&|d| d.culprit == Some(victim) && d.limit.is_some());
    let (severity, own) = if others.saturating_mul(2) >= part {
        let severity = if took >= ms(critical) {
            Severity::Critical
        } else {
            Severity::Warning
        };
        (severity, false)
    } else if own_limit.saturating_mul(2) >= part {
        (Severity::Info, true)
    } else {
        return None;
    };
    let blamed: Vec<&Delay> = delays
        .into_iter()
        .filter(|d| match d.culprit {
            Some(c) if own => c == victim && d.limit.is_some(),
            Some(c) => c != victim,
            None => false,
        })
        .collect();
    let sure = blamed.iter().all(|d| d.sure);
    let culprits = culprits(cx, victim, mechanism, &blamed, part);
    let filesystem = model.filesystem(sync.span.fs);
    let queues = model.queues(sync.span.fs);
    let limit_on = blamed.iter().find_map(|d| d.limit).map(|(_, dev)| dev);
    let held = blamed.iter().any(|d| d.limit.is_some());
    let split = sync.split;
    Some(Judgement {
        key: Key {
            kind,
            dev: sync.span.fs,
            victim,
            class: None,
        },
        victim,
        class: None,
        severity,
        confidence: if sure {
            Confidence::Sure
        } else {
            Confidence::Likely
        },
        begin_ns: sync.span.begin_ns.min(now),
        stage: match mechanism {
            _ if held => Place::Held,
            Mechanism::DataQueue => Place::Queued,
            _ => Place::Journal,
        },
        mechanism,
        threshold_ns: ms(warning),
        longest_ns: took,
        task: sync.span.task.clone().or(Some(Task {
            pid: sync.span.tid,
            comm: String::new(),
        })),
        evidence: Evidence {
            fsync: Some(FsyncEvidence {
                call: sync.span.call,
                took_ms: took / MS,
                alone_ms: alone / MS,
                own_data_ms: split.data_ns / MS,
                journal_ms: split.journal_ns / MS,
                flush_ms: split.flush_ns / MS,
                unseen_ms: split.other_ns / MS,
                exact: split.exact,
                commit: sync
                    .span
                    .commit
                    .or(model.syncs().commit(sync.span.fs).map(|c| c.commit)),
                inode: sync.inode,
                not_seen: sync.gaps.iter().map(|g| gap(*g).to_owned()).collect(),
            }),
            ..Evidence::default()
        },
        others: None,
        sync: Some(Box::new(SyncNote {
            device: limit_on.or(queues.first().copied()),
            fs: sync.span.fs,
            fstype: filesystem.map(|f| f.fstype.clone()),
            mountpoint: filesystem.map(|f| f.mountpoint.clone()),
            file: sync.span.file.clone(),
            ended_ns: sync.span.end_ns.map(|end| end.min(now)),
            culprits,
        })),
    })
}

/// A link that was not seen, in words.
const fn gap(gap: Gap) -> &'static str {
    match gap {
        Gap::Phase => "what the fsync was doing",
        Gap::Commit => "the commit that it waits for",
        Gap::Inode => "the file whose data the commit waits for",
        Gap::InodeOwner => "who pays for the data that the commit waits for",
        Gap::Handle => "who keeps the transaction open",
        Gap::JournalRequests => "the journal's requests in the queue",
        Gap::Disk => "the disk below the filesystem",
        Gap::Owner => "which cgroups the threads are in",
    }
}

/// What the owner would have waited for alone, in ns: one request after the other on an idle disk, or at the best rate of a busy one,
/// whichever is shorter.
fn alone_ns(cx: &Context<'_>, sync: &Sync) -> u64 {
    let (bytes, requests) = sync.own_work();
    let queues = cx.model.queues(sync.span.fs);
    let peaks = queues
        .iter()
        .filter_map(|dev| cx.model.devices.get(dev))
        .map(|d| d.peak);
    let (mut iops, mut rate, mut service) = (0u64, 0u64, 0u64);
    for p in peaks {
        iops = iops.saturating_add(p.iops);
        rate = rate.saturating_add(p.bytes_per_s);
        service = service.max(p.service_ns);
    }
    let at_rate = |n: u64, per_s: u64| {
        let ns = u128::from(n).saturating_mul(1_000_000_000) / u128::from(per_s.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    let in_turn = |n: u64| n.saturating_mul(service);
    let data = at_rate(bytes, rate).max(at_rate(requests, iops));
    data.min(in_turn(requests))
        .saturating_add(at_rate(COMMIT_REQUESTS, iops).min(in_turn(COMMIT_REQUESTS)))
}

/// Culprits, most delay first: of this fsync, and of others of the same owner in the last minute, as far as they waited for the same sort
/// of thing.
fn culprits(
    cx: &Context<'_>,
    victim: Owner,
    mechanism: Mechanism,
    delays: &[&Delay],
    part: u64,
) -> Vec<Culprit> {
    let mut by_owner: BTreeMap<Owner, (u64, Option<(Owner, DevId)>)> = BTreeMap::new();
    for d in delays {
        let Some(owner) = d.culprit else { continue };
        let entry = by_owner.entry(owner).or_default();
        entry.0 = entry.0.saturating_add(d.ns);
        entry.1 = entry.1.or(d.limit);
    }
    let own = delays.iter().all(|d| d.culprit == Some(victim));
    let mut total = part;
    if !own {
        let rows = cx.model.blame().rows();
        let same = |b: &&Blamed| b.edge.victim == victim && b.edge.mechanism == mechanism;
        for b in rows.iter().filter(same) {
            let entry = by_owner.entry(b.edge.culprit).or_default();
            entry.0 = entry.0.max(b.ns);
            entry.1 = entry.1.or_else(|| recent_limit(cx, b.edge.culprit));
        }
        total = by_owner
            .values()
            .fold(0, |sum: u64, (ns, _)| sum.saturating_add(*ns))
            .max(part);
    }
    let mut ranked: Vec<_> = by_owner
        .into_iter()
        .filter(|(_, (ns, _))| *ns > 0)
        .collect();
    ranked.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(&b.0)));
    ranked.truncate(MAX_CULPRITS);
    ranked
        .into_iter()
        .map(|(owner, (ns, limit))| Culprit {
            owner,
            class: class_of(cx, owner),
            share: (ns as f64 / total.max(1) as f64).min(1.0),
            issues: 0,
            tasks: tasks(cx, owner),
            delay_ns: Some(ns),
            limit: limit.map(|(group, dev)| LimitHit {
                group,
                dev,
                limits: match group {
                    Owner::Cgroup(id) => cx.model.limit_on(id, dev).unwrap_or_default(),
                    Owner::Unknown | Owner::Task(_) | Owner::Other => Default::default(),
                },
                used: cx.model.limit_used(dev, group, true),
                held_share: cx.model.held_share(dev, group, true),
            }),
        })
        .collect()
}

/// The limit that held an owner's data when somebody waited for it of late.
fn recent_limit(cx: &Context<'_>, owner: Owner) -> Option<(Owner, DevId)> {
    let syncs = cx.model.syncs();
    syncs
        .at_tick()
        .chain(syncs.recent())
        .flat_map(|s| &s.delays)
        .filter(|d| d.culprit == Some(owner))
        .find_map(|d| d.limit)
}

/// The class in which an owner writes most of late.
fn class_of(cx: &Context<'_>, owner: Owner) -> Class {
    let flows = cx.model.devices.values().flat_map(|d| &d.owners);
    flows
        .filter(|((o, class), _)| {
            *o == owner && matches!(class, Class::SyncWrite | Class::AsyncWrite)
        })
        .max_by_key(|(_, f)| f.totals.bytes)
        .map_or(Class::SyncWrite, |((_, class), _)| *class)
}

/// Threads of an owner: those in fsync, which are the ones that wait for their own data.
fn tasks(cx: &Context<'_>, owner: Owner) -> Vec<Task> {
    let mut tasks: Vec<Task> = cx
        .model
        .syncs()
        .at_tick()
        .filter(|s| s.span.owner == owner)
        .filter_map(|s| s.span.task.clone())
        .collect();
    let now = cx.model.now_ns();
    for device in cx.model.devices.values() {
        for ((o, _), flow) in &device.owners {
            if *o == owner {
                let from = now.saturating_sub(crate::model::windows::KEEP_NS);
                tasks.extend(flow.tasks_since(from).map(|t| t.task.clone()));
            }
        }
    }
    tasks.sort();
    tasks.dedup();
    tasks.truncate(MAX_CULPRITS);
    tasks
}
