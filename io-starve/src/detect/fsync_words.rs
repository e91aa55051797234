//! A finding about an fsync in words: the sentence, the chain from victim to culprit, what to do.

use super::finding::{Finding, LimitHit, Severity};
use super::words::seconds;
use crate::model::Model;
use crate::model::devices::display_name;
use crate::model::mechanism::Mechanism;
use crate::model::observation::{Call, CgroupMode, Limits};

/// The finding in one sentence.
pub fn sentence(f: &Finding, model: &Model) -> String {
    let place = f
        .sync
        .as_ref()
        .and_then(|s| s.mountpoint.clone())
        .or_else(|| {
            f.device
                .map(|dev| display_name(dev, model.devices.get(&dev)))
        })
        .unwrap_or_else(|| "a filesystem".to_owned());
    let victim = model.cgroups.name(f.victim);
    let culprit = f.culprits.first();
    let limit = culprit
        .and_then(|c| c.limit.as_ref())
        .map(|l| limit(l, model));
    let whom = match culprit {
        Some(_) if f.severity == Severity::Info => "for its own limit".to_owned(),
        Some(c) => format!("for {}", model.cgroups.name(c.owner)),
        None => "for somebody who was not seen".to_owned(),
    };
    format!(
        "{place}: {victim} waits in {} {whom}, longest {}, {}{}",
        call(f).name(),
        seconds(f.longest_ns),
        f.mechanism.name(),
        limit.map_or_else(String::new, |l| format!(" ({l})"))
    )
}

/// What the victim called.
fn call(f: &Finding) -> Call {
    f.evidence.fsync.as_ref().map_or(Call::Fsync, |e| e.call)
}

/// What was called, on which file: `fsync of base.db`, `mkdir`.
pub fn called(call: Call, file: Option<&str>) -> String {
    match call {
        Call::Fsync | Call::SyncRange => {
            format!("{} of {}", call.name(), file.unwrap_or("a file"))
        }
        call => call.name().to_owned(),
    }
}

/// The way from the victim to the culprit, link by link.
pub fn chain(
    f: &Finding,
    name: &dyn Fn(crate::model::observation::Owner) -> String,
) -> Vec<String> {
    let (Some(sync), Some(e)) = (&f.sync, &f.evidence.fsync) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let called = called(e.call, sync.file.as_deref());
    out.push(format!("{called} by {}", name(f.victim)));
    let commit = match e.commit {
        Some(n) => format!("commit {n} of the journal"),
        None => "a commit of the journal".to_owned(),
    };
    let culprit = f.culprits.first();
    let inode = e
        .inode
        .map_or_else(|| "a file".to_owned(), |n| format!("inode {n}"));
    let whose = culprit.map_or_else(|| "an unknown owner".to_owned(), |c| name(c.owner));
    match f.mechanism {
        Mechanism::JournalData => {
            out.push(format!("waits for {commit}"));
            out.push(format!(
                "which waits for data of {inode}, that {whose} pays for"
            ));
        }
        Mechanism::JournalQueue => {
            out.push(format!("waits for {commit}"));
            out.push(format!("whose blocks wait behind the bulk of {whose}"));
        }
        Mechanism::Transaction => {
            out.push(format!("waits for {commit}"));
            out.push(format!("which handles of {whose} keep open"));
        }
        Mechanism::Checkpoint => {
            out.push("waits for room in the journal".to_owned());
            out.push(match culprit.and_then(|c| c.limit.as_ref()) {
                Some(_) => format!("which a checkpoint makes, on the account of {whose}"),
                None => format!("which a checkpoint behind {whose} makes slowly"),
            });
        }
        _ if f.severity == Severity::Info => out.push("waits for its own data".to_owned()),
        _ => out.push(format!("whose own data waits behind the bulk of {whose}")),
    }
    if let Some(l) = culprit.and_then(|c| c.limit.as_ref()) {
        out.push(format!(
            "which blk-throttle holds under the limit of {} ({})",
            name(l.group),
            limits(&l.limits)
        ));
    }
    out
}

/// A limit with whose it is.
fn limit(l: &LimitHit, model: &Model) -> String {
    format!(
        "held by the limit of {}: {}",
        model.cgroups.name(l.group),
        limits(&l.limits)
    )
}

/// What is set, as io.max has it.
pub fn limits(l: &Limits) -> String {
    let set = [
        ("rbps", l.rbps),
        ("wbps", l.wbps),
        ("riops", l.riops),
        ("wiops", l.wiops),
    ];
    let words: Vec<String> = set
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", (*value)?)))
        .collect();
    if words.is_empty() {
        "its value is not known".to_owned()
    } else {
        words.join(" ")
    }
}

/// How hard a limit bites: `98 % used, held something 71 % of the last minute`.
pub fn bite(used: Option<f64>, held_share: f64) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let used = used.map_or_else(String::new, |u| format!("{} used, ", percent(u)));
    format!(
        "{used}held something {} of the last minute",
        percent(held_share)
    )
}

/// What to do, best first.
pub fn advice(f: &Finding, model: &Model) -> Vec<String> {
    let mut out = Vec::new();
    let culprit = f.culprits.first();
    let own = f.severity == Severity::Info;
    if let (Some(c), Some(l)) = (culprit, culprit.and_then(|c| c.limit.as_ref())) {
        let file = match model.host().map(|h| h.cgroups) {
            Some(CgroupMode::V1) => "blkio.throttle.write_bps_device and write_iops_device",
            _ => "io.max",
        };
        let group = model.cgroups.name(l.group);
        out.push(if own {
            format!("raise or lift {file} of {group} ({}): it holds what is synced", limits(&l.limits))
        } else {
            format!(
                "raise or lift {file} of {group} ({}): as long as it holds writes of {}, all that wait for this filesystem's journal wait for them",
                limits(&l.limits),
                model.cgroups.name(c.owner)
            )
        });
    }
    match f.mechanism {
        Mechanism::JournalData => {
            let options = f
                .sync
                .as_ref()
                .and_then(|s| model.filesystem(s.fs))
                .map(|fs| fs.options.as_str())
                .unwrap_or_default();
            if options
                .split(',')
                .any(|o| o == "dioread_lock" || o == "nodioread_nolock")
            {
                out.push("mount without dioread_lock: with dioread_nolock, the default, a commit does not wait for buffered data of other files".to_owned());
            } else if options.split(',').any(|o| o == "data=journal") {
                out.push("mount with data=ordered: with data=journal all data goes through the journal, and every fsync waits for it".to_owned());
            }
            out.push("put the limited group on a filesystem of its own: a journal is shared by all that write to it".to_owned());
        }
        Mechanism::JournalQueue | Mechanism::DataQueue if !own => {
            if let Some(c) = culprit {
                out.push(format!(
                    "limit what {} has in flight: a lower wbt_lat_usec or nr_requests of the disk, a scheduler that prefers sync writes (bfq), or smaller bursts (dirty_background_bytes)",
                    model.cgroups.name(c.owner)
                ));
            }
        }
        Mechanism::Checkpoint => out.push(
            "make the journal larger (tune2fs -J size=N, unmounted): room in it is made less often"
                .to_owned(),
        ),
        _ => {}
    }
    out
}
