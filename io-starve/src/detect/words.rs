//! A finding, or the lack of one, in one sentence.

use io_starve_common::class::Class;

use super::engine::Engine;
use super::finding::{Evidence, Finding, Kind};
use super::{dirty_words, fsync_words, weight_words};
use crate::model::Model;
use crate::model::devices::display_name;
use crate::model::observation::Owner;
use crate::model::snapshot::hooks_attached;

/// The state in words: the worst open finding, or that there is none and how much of the machine was seen.
pub fn verdict(model: &Model, engine: &Engine) -> String {
    let findings = engine.findings();
    let open = findings.iter().filter(|f| f.closed.is_none()).count();
    if let Some(worst) = findings.first().filter(|f| f.closed.is_none()) {
        let more = match open as u64 - 1 + engine.not_opened() {
            0 => String::new(),
            1 => "; 1 more finding".to_owned(),
            n => format!("; {} more findings", thousands(n)),
        };
        return format!("{}{more}", sentence(worst, model));
    }
    let findings = match findings.len() {
        0 => "no findings".to_owned(),
        n => format!("no open findings, {n} closed"),
    };
    let (attached, wanted) = hooks_attached(model.hooks());
    let lost = match model.loss_total() {
        0 => "nothing lost".to_owned(),
        n => format!("{} events lost", thousands(n)),
    };
    format!(
        "{findings}; {} requests seen, hooks {attached} of {wanted}, {lost}",
        thousands(model.requests_seen())
    )
}

/// A finding in one sentence.
pub fn sentence(f: &Finding, model: &Model) -> String {
    let disk = f.device.map_or_else(
        || "a disk".to_owned(),
        |dev| display_name(dev, model.devices.get(&dev)),
    );
    let class = f.class.map_or("requests", plural);
    let whose = match f.victim {
        Owner::Other => class.to_owned(),
        owner => format!("{} {class}", model.cgroups.name(owner)),
    };
    let over = match model.now_ns().saturating_sub(f.last_met_ns) {
        0 => String::new(),
        ns => format!(" (not now: over for {})", seconds(ns)),
    };
    match f.kind {
        Kind::FsyncSerialization | Kind::JournalStall => {
            format!("{}{over}", fsync_words::sentence(f, model))
        }
        Kind::LoopDoubleThrottle | Kind::DirtyThrottle => {
            format!("{}{over}", dirty_words::sentence(f, model))
        }
        Kind::WeightUnfairness => format!("{}{over}", weight_words::sentence(f, model)),
        Kind::QueueStuck => {
            let waiting = f
                .evidence
                .waiting
                .map_or_else(String::new, |n| format!(", {} wait", thousands(n)));
            format!(
                "{disk}: nothing issued or completed for {}{waiting}{over}",
                seconds(f.longest_ns)
            )
        }
        Kind::DeviceStall => format!(
            "{disk}: {whose} wait inside the device for {} while later ones complete{over}",
            seconds(f.longest_ns)
        ),
        Kind::AsyncWriteStarvation | Kind::SyncWriteStarvation | Kind::ReadStarvation => {
            let behind = f.culprits.first().map_or_else(String::new, |c| {
                let share = c.share * 100.0;
                let (who, what) = (model.cgroups.name(c.owner), plural(c.class));
                format!(" behind {who} ({what}, {share:.0} %)")
            });
            let by = match (&f.evidence.scheduler, f.mechanism) {
                (Some(name), super::finding::Mechanism::Scheduler) => format!("scheduler {name}"),
                (_, mechanism) => mechanism.name().to_owned(),
            };
            format!(
                "{disk}: {whose} wait{behind}, {}, {by}{over}",
                seconds(f.duration_ns)
            )
        }
    }
}

/// The way from the victim to what keeps it waiting, link by link; empty where there is but one.
pub fn chain(f: &Finding, name: &dyn Fn(Owner) -> String) -> Vec<String> {
    if f.evidence.looped.is_some() || f.evidence.dirty.is_some() {
        dirty_words::chain(f, name)
    } else if f.evidence.weights.is_some() {
        weight_words::chain(f)
    } else {
        fsync_words::chain(f, name)
    }
}

/// The main figures of findings that have their own kind of evidence, each in words.
pub fn figures(e: &Evidence) -> Vec<String> {
    let mut out = dirty_words::figures(e);
    out.extend(weight_words::figures(e));
    out
}

/// The part of a tick for which the victim waited: all of it where nothing else is known.
pub fn waited_share(e: &Evidence) -> f64 {
    weight_words::waited_share(e).unwrap_or_else(|| dirty_words::waited_share(e))
}

fn plural(class: Class) -> &'static str {
    match class {
        Class::SyncRead => "sync reads",
        Class::SyncWrite => "sync writes",
        Class::AsyncWrite => "async writes",
        Class::Flush => "flushes",
        Class::Discard => "discards",
        Class::Other => "other requests",
    }
}

pub(super) fn seconds(ns: u64) -> String {
    format!("{:.1} s", ns as f64 / 1e9)
}

/// 12034 as 12,034.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_034, "12,034"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(n), text);
        }
    }
}
