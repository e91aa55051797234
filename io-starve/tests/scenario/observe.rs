//! Events of a scenario as observations.

use std::collections::BTreeMap;

use io_starve::model::observation::*;

use super::parse::*;
use super::{BASE_NS, MS, What};

/// A disk that has done nothing yet.
pub fn sample(dev: DevId) -> DeviceSample {
    DeviceSample {
        dev,
        issued: 0,
        sync_issued: 0,
        completed: 0,
        last_issue_ns: None,
        last_complete_ns: None,
        tag_waits: 0,
    }
}

/// Adds an event to the observation of a tick.
pub fn apply(
    what: &What,
    o: &mut Observation,
    samples: &mut BTreeMap<DevId, DeviceSample>,
) -> Result<(), String> {
    match what {
        What::Issue { key, n, opts } => issue(o, samples, *key, *n, opts),
        What::Wait {
            key,
            stage,
            n,
            opts,
        } => wait(o, *key, *stage, *n, opts),
        What::Backlog(b) => {
            o.backlog.push(*b);
            Ok(())
        }
        What::TagWaits(dev, n) => {
            samples
                .entry(*dev)
                .or_insert_with(|| sample(*dev))
                .tag_waits += n;
            Ok(())
        }
        What::Lose(..) | What::Span(_) | What::Dirty(_) | What::Shares(_) => Ok(()),
    }
}

fn issue(
    o: &mut Observation,
    samples: &mut BTreeMap<DevId, DeviceSample>,
    key: GroupKey,
    n: u64,
    opts: &Opts,
) -> Result<(), String> {
    let at = o.mono_ns - MS;
    let finished = opts.number("finish")?.unwrap_or(n);
    let s = samples.entry(key.dev).or_insert_with(|| sample(key.dev));
    s.issued += n;
    s.completed += finished;
    if n > 0 {
        s.last_issue_ns = Some(at);
    }
    if finished > 0 {
        s.last_complete_ns = Some(at);
    }
    if key.class.is_sync() {
        s.sync_issued += n;
    }
    let mut stages = [StageDelta::default(); 3];
    for (stage, name) in Stage::ALL.iter().zip(["admission", "queued", "device"]) {
        if let Some(mean) = opts.duration_ns(name)? {
            stages[stage.index()] = StageDelta {
                count: finished,
                sum_ns: finished * mean,
                max_ns: opts.duration_ns("max")?.unwrap_or(mean),
            };
        }
    }
    o.groups.push(GroupDelta {
        key,
        seen: n,
        finished,
        merged: 0,
        expired: 0,
        inserts: n,
        issues: n,
        requeues: 0,
        bytes: opts.bytes("bytes")?.unwrap_or(finished * 4096),
        stages,
        last_issue_ns: (n > 0).then_some(at),
    });
    Ok(())
}

fn wait(
    o: &mut Observation,
    key: GroupKey,
    stage: Stage,
    n: u64,
    opts: &Opts,
) -> Result<(), String> {
    let since_ns = match (opts.get("since"), opts.duration_ns("age")?) {
        (Some(since), _) => (BASE_NS + signed_ms(since)? * MS as i64) as u64,
        (None, age) => o.mono_ns - age.unwrap_or(0),
    };
    let bytes = opts.bytes("bytes")?.unwrap_or(n * 4096);
    let i = o
        .waiting
        .iter()
        .position(|w| w.key == key)
        .unwrap_or_else(|| {
            o.waiting.push(Waiting {
                key,
                count: [0; 3],
                bytes: [0; 3],
                oldest_ns: [None; 3],
                idle_prio: opts.flag("idle"),
            });
            o.waiting.len() - 1
        });
    let w = &mut o.waiting[i];
    w.count[stage.index()] += n;
    w.bytes[stage.index()] += bytes;
    w.oldest_ns[stage.index()] =
        Some(w.oldest_ns[stage.index()].map_or(since_ns, |old| old.min(since_ns)));
    o.waiters.push(Waiter {
        key,
        stage,
        since_ns,
        task: opts.get("task").map(task).transpose()?,
        sector: 2048,
        bytes: bytes / n.max(1),
        bypasses: opts.number("bypasses")?.unwrap_or(0),
        seeded: opts.flag("seeded"),
        waits_for: opts.get("for").map(named).transpose()?,
    });
    Ok(())
}
