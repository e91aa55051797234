//! From judgements to findings: open, update, hold down, close.
//!
//! In: the model at each tick. Out: changes. A condition that pauses for less than the hold-down is one finding; its duration is
//! the time in which the condition held, without the pauses. At most [`MAX_OPEN`] findings are open at once, those beyond are
//! counted and said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use super::culprits::Tally;
use super::finding::{CloseReason, Confidence, Culprit, Finding, Kind, LimitHit, LossNote, Rule};
use super::settings::Settings;
use super::{Change, Context, DETECTORS, Judgement, Key, advice, ms, words};
use crate::model::Model;
use crate::model::blame::Edge;
use crate::model::devices::Device;
use crate::model::flow::Flow;
use crate::model::observation::{Owner, Topic};

/// Open findings: a host with more of them at once is not better understood through more.
pub const MAX_OPEN: usize = 256;
/// Closed findings that are still shown.
pub const MAX_CLOSED: usize = 64;
/// How often the figures of an open finding are told, in ns.
const TELL_NS: u64 = 10_000_000_000;
/// By how much of all issues a new first culprit must lead, so that two equal ones do not take turns in the log.
const LEAD: f64 = 0.05;

/// Findings, open and closed.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    #[serde_as(as = "Vec<(_, _)>")]
    active: BTreeMap<Key, Active>,
    /// Latest last.
    closed: VecDeque<(Key, Finding)>,
    not_opened: u64,
}

/// An open finding with what is needed to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Active {
    finding: Finding,
    tally: Tally,
    loss_before: u64,
    covered_until_ns: u64,
    told_ns: u64,
    told: Finding,
}

impl Engine {
    /// Judges the present tick.
    pub fn step(&mut self, model: &Model, settings: &Settings) -> Vec<Change> {
        let open: BTreeSet<Key> = self.active.keys().copied().collect();
        let cx = Context {
            model,
            settings,
            open: &open,
        };
        let mut judgements = Vec::new();
        for detector in DETECTORS {
            detector.judge(&cx, &mut judgements);
        }
        judgements.sort_by_key(|j| j.key);
        let mut changes = Vec::new();
        let mut not_opened = 0;
        for judgement in judgements {
            if let Some(active) = self.active.get_mut(&judgement.key) {
                active.meet(model, judgement);
                changes.extend(active.tell(model.now_ns()));
            } else if self.active.len() < MAX_OPEN {
                let active = self.open(model, judgement);
                changes.push(Change::Open(active.finding.clone()));
            } else {
                not_opened += 1;
            }
        }
        self.not_opened = not_opened;
        for (key, active) in &mut self.active {
            active.note_ended_waits(model, key);
        }
        let over = |a: &Active| {
            model.now_ns().saturating_sub(a.finding.last_met_ns) >= ms(settings.hold_down)
        };
        let ended: Vec<Key> = self
            .active
            .iter()
            .filter(|(_, a)| over(a))
            .map(|(k, _)| *k)
            .collect();
        changes.extend(
            ended
                .iter()
                .filter_map(|k| self.close(model, k, CloseReason::Resolved)),
        );
        changes
    }

    /// Closes everything, since nobody looks any more.
    pub fn detach(&mut self, model: &Model) -> Vec<Change> {
        let open: Vec<Key> = self.active.keys().copied().collect();
        open.iter()
            .filter_map(|k| self.close(model, k, CloseReason::Detached))
            .collect()
    }

    /// Open findings, worst first, then closed ones, latest first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut open: Vec<&Finding> = self.active.values().map(|a| &a.finding).collect();
        open.sort_by(|a, b| {
            let by_severity = b.severity.cmp(&a.severity);
            by_severity
                .then(b.duration_ns.cmp(&a.duration_ns))
                .then_with(|| a.id.cmp(&b.id))
        });
        let closed = self.closed.iter().rev().map(|(_, f)| f);
        open.into_iter().chain(closed).cloned().collect()
    }

    /// Delays of the last `tick_ns` by findings whose condition is met now. Those of fsyncs are known one by one, and are not among them.
    pub fn edges(&self, now: u64, tick_ns: u64) -> Vec<(Edge, u64)> {
        let met = self
            .active
            .values()
            .map(|a| &a.finding)
            .filter(|f| f.last_met_ns == now && f.sync.is_none());
        met.flat_map(|f| {
            // Who is paused for what he writes himself waits for nobody.
            let paused = f.evidence.looped.is_some() || f.evidence.dirty.is_some();
            let others = f
                .culprits
                .iter()
                .filter(move |c| !paused || c.owner != f.victim);
            let tick_ns = tick_ns as f64 * words::waited_share(&f.evidence);
            others.map(move |c| {
                let edge = Edge {
                    victim: f.victim,
                    culprit: c.owner,
                    mechanism: f.mechanism,
                };
                (edge, (tick_ns * c.share) as u64)
            })
        })
        .collect()
    }

    /// How many conditions were met at this tick for which no room was left.
    pub fn not_opened(&self) -> u64 {
        self.not_opened
    }

    fn open(&mut self, model: &Model, j: Judgement) -> &Active {
        // A wait that goes on after its finding was closed (the queue was stuck meanwhile) is a new finding from there on.
        let closed_at = self.closed.iter().rev().find(|(key, _)| *key == j.key);
        let closed_at = closed_at
            .and_then(|(_, f)| f.closed)
            .map_or(0, |(at, _)| at);
        let since_ns = j.begin_ns.max(closed_at);
        let now = model.now_ns();
        let key = j.key;
        let finding = Finding {
            id: id(&key, since_ns),
            kind: key.kind,
            severity: j.severity,
            confidence: j.confidence,
            since_ns,
            opened_ns: now,
            last_met_ns: now,
            closed: None,
            device: j.sync.as_ref().map_or(Some(key.dev), |s| s.device),
            victim: j.victim,
            class: j.class,
            task: None,
            culprits: Vec::new(),
            mechanism: j.mechanism,
            stage: j.stage,
            duration_ns: 0,
            longest_ns: 0,
            threshold_ns: j.threshold_ns,
            evidence: Default::default(),
            advice: Vec::new(),
            loss: LossNote::default(),
            sync: None,
        };
        let mut active = Active {
            told: finding.clone(),
            finding,
            tally: Tally::default(),
            loss_before: model.loss_at(since_ns),
            covered_until_ns: since_ns,
            told_ns: now,
        };
        active.meet(model, j);
        active.told = active.finding.clone();
        self.active.entry(key).or_insert(active)
    }

    fn close(&mut self, model: &Model, key: &Key, reason: CloseReason) -> Option<Change> {
        let mut finding = self.active.remove(key)?.finding;
        finding.closed = Some((model.now_ns(), reason));
        self.closed.push_back((*key, finding.clone()));
        while self.closed.len() > MAX_CLOSED {
            self.closed.pop_front();
        }
        Some(Change::Close(finding))
    }
}

impl Active {
    /// The condition is met at this tick.
    fn meet(&mut self, model: &Model, j: Judgement) {
        let now = model.now_ns();
        let f = &mut self.finding;
        f.severity = f.severity.max(j.severity);
        f.last_met_ns = now;
        f.victim = j.victim;
        f.class = j.class;
        f.mechanism = j.mechanism;
        f.stage = j.stage;
        f.threshold_ns = f.threshold_ns.max(j.threshold_ns);
        f.longest_ns = f.longest_ns.max(j.longest_ns);
        f.task = j.task.or(f.task.take());
        let gap_ms = j.evidence.gap_ms.max(f.evidence.gap_ms);
        f.evidence = j.evidence;
        f.evidence.gap_ms = gap_ms;
        let begin = j.begin_ns.max(self.covered_until_ns);
        let until = j.sync.as_ref().and_then(|s| s.ended_ns).unwrap_or(now);
        f.duration_ns = f.duration_ns.saturating_add(until.saturating_sub(begin));
        self.covered_until_ns = self.covered_until_ns.max(until);
        let device = model.devices.get(&j.key.dev);
        if let (Some(others), Some(device)) = (j.others, device) {
            self.tally
                .count(model, device, others, j.begin_ns.max(f.since_ns));
            f.culprits = self.tally.culprits(device);
        }
        if let Some(mut sync) = j.sync {
            keep_lifted_limits(&mut sync.culprits, &f.culprits);
            f.culprits.clone_from(&sync.culprits);
            f.device = sync.device;
            f.sync = Some(sync);
        }
        f.loss = LossNote {
            events: model.loss_total().saturating_sub(self.loss_before),
            missing: model.missing_questions(topic(f.kind)),
        };
        f.confidence = if f.loss == LossNote::default() {
            j.confidence
        } else {
            Confidence::Likely
        };
        f.advice = advice::of(f, model);
    }

    /// Waits that ended between two ticks were longer than any tick saw.
    fn note_ended_waits(&mut self, model: &Model, key: &Key) {
        if !matches!(
            self.finding.evidence.rule,
            Some(Rule::Withheld | Rule::Crawling)
        ) {
            return;
        }
        let flow = model.devices.get(&key.dev).and_then(|d| flow_of(d, key));
        let longest = flow.map_or(0, |f| f.tick_longest_ns);
        self.finding.longest_ns = self.finding.longest_ns.max(longest);
    }

    /// An update, when something moved that is worth telling.
    fn tell(&mut self, now: u64) -> Option<Change> {
        let f = &self.finding;
        let told = &self.told;
        let worse = f.severity > told.severity;
        let top = |f: &Finding| f.culprits.first().map(|c| c.owner);
        let other_culprit = top(f) != top(told) && leads(f, top(told));
        let due = now.saturating_sub(self.told_ns) >= TELL_NS;
        if !(worse || other_culprit || due) {
            return None;
        }
        self.told_ns = now;
        self.told = f.clone();
        Some(Change::Update(f.clone()))
    }
}

/// A limit that was lifted while somebody waited for it is told as it was.
fn keep_lifted_limits(now: &mut [Culprit], before: &[Culprit]) {
    for limit in now.iter_mut().filter_map(|c| c.limit.as_mut()) {
        let of_old = before.iter().filter_map(|c| c.limit);
        let same = |l: &LimitHit| (l.group, l.dev) == (limit.group, limit.dev);
        if limit.limits.is_empty()
            && let Some(old) = of_old.into_iter().find(same)
        {
            *limit = old;
        }
    }
}

/// The first culprit is clearly ahead of the one that was first before.
fn leads(f: &Finding, before: Option<Owner>) -> bool {
    let share = |owner: Option<Owner>| {
        let of = |c: &&Culprit| Some(c.owner) == owner;
        f.culprits.iter().find(of).map_or(0.0, |c| c.share)
    };
    f.culprits
        .first()
        .is_some_and(|c| c.share >= share(before) + LEAD)
}

fn flow_of<'a>(device: &'a Device, key: &Key) -> Option<&'a Flow> {
    let class = key.class?;
    match key.victim {
        Owner::Other => device.classes.get(&class),
        owner => device.owners.get(&(owner, class)),
    }
}

/// What hooks a finding of this kind depends on.
const fn topic(kind: Kind) -> Topic {
    match kind {
        Kind::FsyncSerialization | Kind::JournalStall => Topic::Journal,
        Kind::LoopDoubleThrottle | Kind::DirtyThrottle => Topic::Dirty,
        Kind::AsyncWriteStarvation
        | Kind::SyncWriteStarvation
        | Kind::ReadStarvation
        | Kind::DeviceStall
        | Kind::QueueStuck
        | Kind::WeightUnfairness => Topic::Requests,
    }
}

/// The same in every replay: what it is, where, whose, since when.
fn id(key: &Key, since_ns: u64) -> String {
    use io_starve_common::class::Class;
    let victim = match key.victim {
        Owner::Cgroup(id) => format!("c{id}"),
        Owner::Unknown => "unknown".to_owned(),
        Owner::Task(tid) => format!("t{tid}"),
        Owner::Other => "all".to_owned(),
    };
    let class = match key.class {
        Some(Class::SyncRead) => "sr",
        Some(Class::SyncWrite) => "sw",
        Some(Class::AsyncWrite) => "aw",
        Some(Class::Flush) => "fl",
        Some(Class::Discard) => "di",
        Some(Class::Other) => "ot",
        None => "any",
    };
    format!(
        "{}-{}-{victim}-{class}-{since_ns}",
        key.kind.name(),
        key.dev
    )
}
