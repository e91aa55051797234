//! Findings about dirty memory in words: the sentence, the way from who waits to what stops him, what to do.

use super::dirty_evidence::{Layer, LoopEvidence};
use super::finding::{Evidence, Finding, Kind, Severity};
use super::words::seconds;
use super::{MS, loop_throttle::WINDOW_NS};
use crate::model::Model;
use crate::model::devices::{display_name, kernel_name};
use crate::model::observation::Owner;

/// The finding in one sentence.
pub fn sentence(f: &Finding, model: &Model) -> String {
    let disk = f.device.map_or_else(
        || "a disk".to_owned(),
        |dev| display_name(dev, model.devices.get(&dev)),
    );
    let victim = model.cgroups.name(f.victim);
    if let Some(e) = &f.evidence.dirty {
        return format!(
            "{}: writers of {victim} are paused, {} of 5 s, for {} that is dirty for {disk}",
            e.disk,
            seconds(e.paused_ms.saturating_mul(1_000_000)),
            bytes(e.slow_dirty_bytes),
        );
    }
    let Some(e) = &f.evidence.looped else {
        return format!("{disk}: {victim} is paused");
    };
    let brakes = format!(
        "writers paused {} of 5 s, the loop's worker {}",
        seconds(e.paused_ms.saturating_mul(1_000_000)),
        seconds(e.worker_paused_ms.saturating_mul(1_000_000)),
    );
    match e.victims.first() {
        Some(v) => format!(
            "{disk}: {} of {} wait up to {} behind the paused worker; {brakes}",
            match v.class {
                io_starve_common::class::Class::SyncRead => "reads",
                _ => "sync writes",
            },
            v.cgroup,
            seconds(v.longest_ms.saturating_mul(1_000_000)),
        ),
        None if e.limited => format!("{disk}: {brakes}; a limit holds what is written"),
        None if f.severity == Severity::Info => {
            format!("{disk}: {brakes}; the disk below is the limit")
        }
        None => format!("{disk}: {brakes}, while the disk below is idle"),
    }
}

/// The layers, upper ones first, or the way from the paused writer to the slow disk.
pub fn chain(f: &Finding, name: &dyn Fn(Owner) -> String) -> Vec<String> {
    if let Some(e) = &f.evidence.looped {
        return e.layers.iter().map(layer).collect();
    }
    let Some(e) = &f.evidence.dirty else {
        return Vec::new();
    };
    let whose = f
        .culprits
        .first()
        .map_or_else(|| "somebody who was not seen".to_owned(), |c| name(c.owner));
    vec![
        format!("{} writes to {} and is paused", name(f.victim), e.disk),
        format!(
            "since {} are dirty, where writers are held back from, and stopped at {}",
            bytes(e.dirty_bytes),
            bytes(e.limit_bytes)
        ),
        format!(
            "{} of them wait for the slow disk, to which {whose} writes",
            bytes(e.slow_dirty_bytes)
        ),
    ]
}

/// The part of a tick for which the victim waited: all of it where nothing else is known.
pub fn waited_share(e: &Evidence) -> f64 {
    let window_ms = (WINDOW_NS / MS) as f64;
    let of = |ms: u64| (ms as f64 / window_ms).min(1.0);
    if let Some(dirty) = &e.dirty {
        return of(dirty.paused_ms);
    }
    match &e.looped {
        Some(looped) => of(looped.victims.first().map_or(0, |v| v.behind_ms)),
        None => 1.0,
    }
}

/// The main figures, each in words.
pub fn figures(e: &Evidence) -> Vec<String> {
    let mut out = Vec::new();
    let of_5s = |ms: u64| format!("{} of 5 s", seconds(ms.saturating_mul(1_000_000)));
    let busy =
        |what: &str, share: Option<f64>| share.map(|s| format!("{what} {:.0} % busy", s * 100.0));
    if let Some(e) = &e.looped {
        out.push(format!("writers paused {}", of_5s(e.paused_ms)));
        out.push(format!("worker paused {}", of_5s(e.worker_paused_ms)));
        out.extend(busy("disk below", e.busy_share));
        if e.limited {
            out.push("a limit holds writes on the way".to_owned());
        }
        for v in &e.victims {
            out.push(format!(
                "{} of {} behind the worker {}",
                v.class.name(),
                v.cgroup,
                of_5s(v.behind_ms)
            ));
        }
        let deleted = if e.deleted { " (deleted)" } else { "" };
        out.push(format!("file {}{deleted}", e.file));
        out.extend(e.direct_io.map(|on| {
            let state = if on { "on" } else { "off" };
            format!("direct-io {state}")
        }));
        if !e.other_writers.is_empty() {
            out.push(format!("beside it write {}", e.other_writers.join(", ")));
        }
    }
    if let Some(e) = &e.dirty {
        out.push(format!("paused on {} {}", e.disk, of_5s(e.paused_ms)));
        out.push(format!(
            "{} dirty of {}",
            bytes(e.dirty_bytes),
            bytes(e.limit_bytes)
        ));
        out.push(format!(
            "{} of it for the slow disk, {} for {}",
            bytes(e.slow_dirty_bytes),
            bytes(e.own_dirty_bytes),
            e.disk
        ));
        out.extend(busy(&e.disk, e.busy_share));
        out.extend(busy("slow disk", e.slow_busy_share));
    }
    out
}

/// One layer.
fn layer(l: &Layer) -> String {
    let mut out = l.name.clone();
    if let Some(file) = &l.file {
        out += &format!(" ({file})");
    }
    out += &format!(": paused {} ms of 5 s", l.paused_ms);
    if let (Some(dirty), Some(limit)) = (l.dirty_bytes, l.limit_bytes) {
        out += &format!(", {} dirty of {}", bytes(dirty), bytes(limit));
    }
    if let Some(rate) = l.written_bytes_per_s {
        out += &format!(", {}/s written", bytes(rate));
    }
    if let Some(busy) = l.busy_share {
        out += &format!(", {:.0} % busy", busy * 100.0);
    }
    out
}

/// What to do, best first.
pub fn advice(f: &Finding, model: &Model) -> Vec<String> {
    match f.kind {
        Kind::LoopDoubleThrottle => f
            .evidence
            .looped
            .as_ref()
            .map(|e| of_loop(f, e, model))
            .unwrap_or_default(),
        Kind::DirtyThrottle => of_dirty(f, model),
        _ => Vec::new(),
    }
}

fn of_loop(f: &Finding, e: &LoopEvidence, model: &Model) -> Vec<String> {
    let mut out = Vec::new();
    if e.direct_io != Some(true) {
        out.push(match no_direct_io(f, model) {
            Some(why) => format!("direct-io would spare the worker its pauses, but {why}"),
            None if f.severity == Severity::Info => format!(
                "losetup --direct-io=on /dev/{}: the worker is then not paused any more and nobody waits behind it; the disk does not get faster",
                e.name
            ),
            None => format!(
                "losetup --direct-io=on /dev/{}: then the worker is not paused any more, and the memory is not dirty twice",
                e.name
            ),
        });
    }
    if !e.other_writers.is_empty() {
        out.push(format!(
            "limit what {} writes to the disk below (io.max): it makes the worker's pauses longer",
            e.other_writers.join(", ")
        ));
    }
    if let Some(c) = f.culprits.first().filter(|_| f.severity != Severity::Info) {
        out.push(format!(
            "limit what {} writes to {} (io.max), below what the disk takes: then neither is paused for long",
            model.cgroups.name(c.owner),
            e.name
        ));
    }
    out
}

/// Why direct-io cannot be switched on as things are (drivers/block/loop.c lo_can_use_dio), with the way out. `None`: nothing speaks
/// against it.
fn no_direct_io(f: &Finding, model: &Model) -> Option<String> {
    let dev = f.device?;
    let fact = &model.dirty().loops().get(&dev)?.fact;
    let blocks = |dev| -> Option<u64> {
        let (_, value) = model.devices.get(&dev)?.tunable("logical_block_size")?;
        value.parse().ok().filter(|n| *n > 0)
    };
    let below = fact.below.first().copied();
    if let (Some(own), Some(needed)) = (blocks(dev), below.and_then(blocks)) {
        if own < needed {
            return Some(format!(
                "the blocks of {} have {own} bytes and those below {needed}: attach it anew with losetup --sector-size {needed} --direct-io=on, and make its filesystem anew",
                fact.name
            ));
        }
        if fact.offset.is_some_and(|at| !at.is_multiple_of(needed)) {
            return Some(format!(
                "{} begins within a block of {needed} bytes: give it an offset that is a multiple of that",
                fact.name
            ));
        }
    }
    let holder = model.filesystem(fact.fs?)?;
    let journalled = holder.options.split(',').any(|o| o == "data=journal");
    journalled.then(|| {
        format!(
            "{} is mounted with data=journal, with which nothing goes past the page cache: mount it without",
            holder.mountpoint
        )
    })
}

fn of_dirty(f: &Finding, model: &Model) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(dev) = f.device {
        let name = display_name(dev, model.devices.get(&dev));
        let name = kernel_name(&name);
        out.push(format!(
            "give {name} a limit of its own: echo 1 > /sys/class/bdi/{dev}/strict_limit (6.2 and later), and a low max_ratio or max_bytes beside it; its writers are then stopped earlier, and no others"
        ));
    }
    if let Some(c) = f.culprits.first() {
        out.push(format!(
            "limit the memory of {} (memory.high): its dirty memory then has a limit of its own",
            model.cgroups.name(c.owner)
        ));
    }
    out.push(
        "set vm.dirty_bytes and vm.dirty_background_bytes to what the slowest disk writes in a few seconds: large files are then written slower by all"
            .to_owned(),
    );
    out
}

/// `16 MiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1_048_576 => format!("{} KiB", n >> 10),
        1_048_576..10_485_760 => format!("{:.1} MiB", n as f64 / 1_048_576.0),
        _ => format!("{} MiB", n >> 20),
    }
}
