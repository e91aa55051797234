//! What a scenario expects, and whether a finding is that.

use io_starve::detect::finding::{CloseReason, Finding};
use io_starve::model::observation::*;
use io_starve_common::class::Class;

use super::parse::*;
use super::{BASE_NS, MS};

/// Something that must happen.
pub struct Expect {
    pub line: usize,
    pub what: Event,
    pub kind: String,
    pub at_ms: (u64, u64),
    pub opts: Opts,
    pub text: String,
}

/// What an expectation is about.
#[derive(Clone, Copy, PartialEq)]
pub enum Event {
    Open,
    Update,
    Close,
    Verdict,
}

impl Expect {
    /// A reason when this finding is not it.
    pub fn fits(&self, at_ms: u64, f: &Finding) -> Result<(), String> {
        let (from, to) = self.at_ms;
        if at_ms < from || at_ms > to {
            return Err(format!("line {}: not at {at_ms} ms", self.line));
        }
        for (name, want) in self.opts.all() {
            let got = value(f, name, want)?;
            if !got {
                return Err(format!("line {}: {name} is not {want}", self.line));
            }
        }
        Ok(())
    }
}

/// Whether a finding has this value.
fn value(f: &Finding, name: &str, want: &str) -> Result<bool, String> {
    let word = |v: &dyn erased::Word| v.word() == want;
    let top = f.culprits.first();
    Ok(match name {
        "rule" => word(&f.evidence.rule),
        "victim" => f.victim == owner_of(want)?,
        "class" => word(&f.class),
        "culprit" => match (want, top) {
            ("none", top) => top.is_none(),
            (owner, Some(c)) => c.owner == owner_of(owner)?,
            (_, None) => false,
        },
        "culprit-class" => top.is_some_and(|c| c.class.name() == want),
        "culprit-task" => top.is_some_and(|c| c.tasks.first().is_some_and(|t| t.comm == want)),
        "share" => {
            top.is_some_and(|c| within((c.share * 100.0).round() as u64, want).unwrap_or(false))
        }
        "mechanism" => f.mechanism.name() == want,
        "stage" => f.stage.name() == want,
        "severity" => f.severity.name() == want,
        "confidence" => word(&Some(f.confidence)),
        "lost" => within(f.loss.events, want)?,
        "missing" => f.loss.missing.iter().any(|m| m.contains(want)),
        "culprits" => {
            let owners: Vec<String> = f
                .culprits
                .iter()
                .map(|c| match c.owner {
                    Owner::Cgroup(id) => id.to_string(),
                    other => format!("{other:?}").to_lowercase(),
                })
                .collect();
            owners.join(",") == want
        }
        "limit" => top
            .and_then(|c| c.limit)
            .is_some_and(|l| owner_of(want) == Ok(l.group)),
        "unseen" => f.evidence.fsync.as_ref().is_some_and(|e| {
            e.not_seen
                .iter()
                .any(|g| g.replace(' ', "-").contains(want))
        }),
        "own-data" => f
            .evidence
            .fsync
            .as_ref()
            .is_some_and(|e| within(e.own_data_ms, want).unwrap_or(false)),
        "journal" => f
            .evidence
            .fsync
            .as_ref()
            .is_some_and(|e| within(e.journal_ms, want).unwrap_or(false)),
        "layers" => f.evidence.looped.as_ref().is_some_and(|e| {
            let names: Vec<&str> = e.layers.iter().map(|l| l.name.as_str()).collect();
            names.join(",") == want
        }),
        "behind" => f.evidence.looped.as_ref().is_some_and(|e| {
            let names: Vec<&str> = e.victims.iter().map(|v| v.cgroup.as_str()).collect();
            names.join(",") == want || want == "none" && names.is_empty()
        }),
        "beside" => f
            .evidence
            .looped
            .as_ref()
            .is_some_and(|e| e.other_writers.join(",") == want),
        "device" => f.device == Some(dev_of(want)?),
        "paused-on" => f.evidence.dirty.as_ref().is_some_and(|e| e.disk == want),
        "obtained" => first_owner(f).is_some_and(|o| percent_within(o.obtained_share, want)),
        "entitled" => first_owner(f).is_some_and(|o| {
            o.entitled_share
                .map_or(want == "none", |s| percent_within(s, want))
        }),
        "enforcer" => f
            .evidence
            .weights
            .as_ref()
            .is_some_and(|e| e.enforcer.name() == want),
        "advice" => f.advice.iter().any(|a| a.contains(want)),
        "no-advice" => !f.advice.iter().any(|a| a.contains(want)),
        "task" => f.task.as_ref().is_some_and(|t| t.comm == want),
        "before-attach" => f.evidence.before_attach == (want == "yes"),
        "since" => f.since_ns as i64 == BASE_NS + signed_ms(want)? * MS as i64,
        "duration" => within_ms(f.duration_ns, want)?,
        "longest" => within_ms(f.longest_ns, want)?,
        "reason" => matches!(
            (f.closed, want),
            (Some((_, CloseReason::Resolved)), "resolved")
                | (Some((_, CloseReason::Detached)), "detached")
        ),
        other => return Err(format!("unknown value `{other}`")),
    })
}

/// The victim's part of the disk.
fn first_owner(f: &Finding) -> Option<&io_starve::detect::weight_evidence::OwnerEvidence> {
    f.evidence.weights.as_ref()?.owners.first()
}

fn percent_within(share: f64, want: &str) -> bool {
    within((share * 100.0).round() as u64, want).unwrap_or(false)
}

/// Names of enums as JSON has them.
mod erased {
    pub trait Word {
        fn word(&self) -> String;
    }
    impl<T: serde::Serialize> Word for T {
        fn word(&self) -> String {
            match serde_json::to_value(self) {
                Ok(serde_json::Value::String(s)) => s,
                other => format!("{other:?}"),
            }
        }
    }
}

/// Reads an expectation.
pub fn expect(line: usize, rest: &str) -> Result<Expect, String> {
    const OPTS: [&str; 35] = [
        "obtained",
        "entitled",
        "enforcer",
        "layers",
        "behind",
        "beside",
        "device",
        "paused-on",
        "rule",
        "victim",
        "class",
        "culprit",
        "culprit-class",
        "culprit-task",
        "share",
        "mechanism",
        "stage",
        "severity",
        "confidence",
        "lost",
        "missing",
        "advice",
        "no-advice",
        "task",
        "before-attach",
        "since",
        "duration",
        "longest",
        "reason",
        "at",
        "culprits",
        "limit",
        "unseen",
        "own-data",
        "journal",
    ];
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (what, kind, at, opts, text) = match words[..] {
        ["verdict", "at", at, ..] => {
            let text = rest.split_once(at).map_or("", |(_, t)| t.trim());
            (Event::Verdict, "", at, &[][..], text)
        }
        ["open", kind, "at", at, ref opts @ ..] => (Event::Open, kind, at, opts, ""),
        ["update", kind, "at", at, ref opts @ ..] => (Event::Update, kind, at, opts, ""),
        ["close", kind, "at", at, ref opts @ ..] => (Event::Close, kind, at, opts, ""),
        _ => {
            return Err(
                "expect open|update|close KIND at T or expect verdict at T TEXT".to_owned(),
            );
        }
    };
    if what != Event::Verdict {
        named::<io_starve::detect::finding::Kind>(kind)?;
    }
    let opts = Opts::parse(opts, &OPTS, &[])?;
    // Values are read once here, so that a typo in one fails although its finding never comes.
    let probe = probe();
    for (name, want) in opts.all() {
        value(&probe, name, want)?;
        known_word(name, want)?;
    }
    Ok(Expect {
        line,
        what,
        kind: kind.to_owned(),
        at_ms: range_ms(at)?,
        opts,
        text: text.to_owned(),
    })
}

/// A finding to try expectations on while a file is read.
fn probe() -> Finding {
    use io_starve::detect::finding::*;
    Finding {
        id: String::new(),
        kind: Kind::QueueStuck,
        severity: Severity::Info,
        confidence: Confidence::Sure,
        since_ns: 0,
        opened_ns: 0,
        last_met_ns: 0,
        closed: None,
        device: None,
        victim: Owner::Other,
        class: None,
        task: None,
        culprits: vec![Culprit {
            owner: Owner::Other,
            class: Class::SyncRead,
            share: 0.0,
            issues: 0,
            tasks: Vec::new(),
            delay_ns: None,
            limit: None,
        }],
        mechanism: Mechanism::Device,
        stage: Place::Queued,
        duration_ns: 0,
        longest_ns: 0,
        threshold_ns: 0,
        evidence: Evidence::default(),
        advice: Vec::new(),
        loss: LossNote::default(),
        sync: None,
    }
}
