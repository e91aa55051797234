//! Starvation: a group has something waiting, in admission or queued, and others are served instead.
//!
//! Kinds `async-write-starvation`, `sync-write-starvation` and `read-starvation`, by the class of the group. A group is an owner's
//! requests of one class on one disk; the class over all owners is judged where no owner alone fits the rule.
//!
//! Inputs: issues of groups and disks, what waits at each tick, bytes finished, dirty and writeback memory.
//!
//! Rule, `withheld`: issued nothing for 1 s while others were issued at least 64 times. 1 s is far above what any scheduler
//! needs to come round (mq-deadline's own write deadline is 5 s but only orders writes; its batches last milliseconds), and 64
//! are four of its batches of 16: the group's turn was passed over more than once. From 10 s on, twice that deadline, it is critical.
//!
//! Rule, `crawling`: over 5 s it waits 80 % of the time, gets under 15 % of the issues, and its backlog needs more than 30 s at
//! that rate (the kernel's own `dirty_expire_centisecs`: data would be older than promised); critical at 300 s, where reports began.
//!
//! Four guards keep look-alikes out. *Alike*: when those that were served had waited two thirds as long as the victim has, everybody
//! waits, and the disk is slow or the queue deep. *Served now*: when the last issue of the device is longer ago than half of the gap, the
//! device pauses and nobody gains (`queue-stuck` says so from 5 s on). *In line*: when what is served is of the victim's class and came before
//! its oldest, which nothing has overtaken, it waits for its turn. *Fair*: among n groups that are busy, one with more than half
//! of an n-th of the issues does not crawl, however small an n-th is.
//!
//! Known false positives: a group whose requests all lie far from where the disk head is kept by others, which a scheduler may
//! leave for a second on purpose; an owner that is throttled by its own choice of ioprio, which is `info` when it is idle.

use std::collections::BTreeMap;

use io_starve_common::class::Class;

use super::finding::{Confidence, Evidence, Kind, Mechanism, Rule, Severity};
use super::{
    Context, Detector, Judgement, Key, MS, advice, culprits::Others, mechanism, ms, stuck,
};
use crate::model::Model;
use crate::model::devices::Device;
use crate::model::flow::Flow;
use crate::model::observation::{DevId, Owner, Stage, Waiter};
use crate::model::windows::Cell;

/// Window of `crawling`, in ns: long enough for some turns of a slow group, short enough to be told in time.
const WINDOW_NS: u64 = 5_000_000_000;
/// Part of the window in which a crawling group waits.
const WAITS_SHARE: f64 = 0.8;
/// A victim that has not waited half as long again as those that are served did on average, in halves: by turns and first come,
/// first served, the ratio is 1.
const ALIKE_HALVES: u64 = 3;
/// Part of an equal share below which a group crawls.
const UNFAIR: f64 = 0.5;

/// The detector.
pub struct Starvation;

impl Detector for Starvation {
    fn name(&self) -> &'static str {
        "starvation"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[
            Kind::AsyncWriteStarvation,
            Kind::SyncWriteStarvation,
            Kind::ReadStarvation,
        ]
    }

    fn judge(&self, cx: &Context<'_>, out: &mut Vec<Judgement>) {
        for (dev, device) in &cx.model.devices {
            if stuck::holds(cx, *dev, device).is_none() {
                Disk::new(cx, *dev, device).judge(out);
            }
        }
    }
}

/// The kind of finding for a class; flushes, discards and the rest wait for reasons of their own.
fn kind_of(class: Class) -> Option<Kind> {
    match class {
        Class::AsyncWrite => Some(Kind::AsyncWriteStarvation),
        Class::SyncWrite => Some(Kind::SyncWriteStarvation),
        Class::SyncRead => Some(Kind::ReadStarvation),
        Class::Flush | Class::Discard | Class::Other => None,
    }
}

/// A disk with the sums of its last window.
struct Disk<'a> {
    cx: &'a Context<'a>,
    dev: DevId,
    device: &'a Device,
    /// Beginning of the window, `None` before 5 s were observed.
    window_ns: Option<u64>,
    /// The same, or the first observation.
    from_ns: u64,
    all: Cell,
    classes: BTreeMap<Class, Cell>,
    owners: BTreeMap<(Owner, Class), Cell>,
}

/// A group under judgement.
struct Group<'a> {
    key: Key,
    class: Class,
    flow: &'a Flow,
    recent: Cell,
    others: Others,
    /// No other owner has I/O of this class here.
    alone: bool,
}

/// A rule that a group meets.
struct Met {
    critical: bool,
    threshold_ms: u64,
    begin_ns: u64,
    gap_ns: u64,
    stage: Stage,
    stacks: [u64; 3],
    evidence: Evidence,
}

impl<'a> Disk<'a> {
    fn new(cx: &'a Context<'a>, dev: DevId, device: &'a Device) -> Disk<'a> {
        let window_ns = device.issued.window_start(cx.model.now_ns(), WINDOW_NS);
        let from_ns = window_ns.unwrap_or_else(|| cx.model.first_ns());
        let classes: BTreeMap<_, _> = device
            .classes
            .iter()
            .map(|(class, f)| (*class, f.ring.since(from_ns)))
            .collect();
        let mut all = Cell::default();
        classes.values().for_each(|c| all.add(c));
        Disk {
            cx,
            dev,
            device,
            window_ns,
            from_ns,
            all,
            classes,
            owners: device
                .owners
                .iter()
                .map(|(id, f)| (*id, f.ring.since(from_ns)))
                .collect(),
        }
    }

    fn judge(&self, out: &mut Vec<Judgement>) {
        for (class, flow) in &self.device.classes {
            let Some(kind) = kind_of(*class) else {
                continue;
            };
            if flow.now.waiting() == 0 {
                continue;
            }
            let key = |victim| Key {
                kind,
                dev: self.dev,
                victim,
                class: Some(*class),
            };
            let of_class = || self.owners.iter().filter(|((_, c), _)| c == class);
            let since_ns = flow
                .wait
                .map_or(self.from_ns, |w| w.begin_ns.min(self.from_ns));
            let has_io = |owner: &Owner| {
                let flow = self.device.owners.get(&(*owner, *class));
                flow.is_some_and(|f| f.active_ns >= since_ns)
            };
            let mut with_io = of_class().map(|((owner, _), _)| *owner).filter(has_io);
            let alone = match (with_io.next(), with_io.next()) {
                (Some(owner), None) => Some(owner),
                _ => None,
            };
            let before = out.len();
            for ((owner, _), recent) in of_class() {
                // Those summed as one are several: only their class can be judged.
                let (false, Some(flow)) = (
                    *owner == Owner::Other,
                    self.device.owners.get(&(*owner, *class)),
                ) else {
                    continue;
                };
                out.extend(self.group(&Group {
                    key: key(*owner),
                    class: *class,
                    flow,
                    recent: *recent,
                    others: Others::ThanGroup(*owner, *class),
                    alone: alone == Some(*owner),
                }));
            }
            let owner_is_open = of_class().any(|((owner, _), _)| {
                *owner != Owner::Other && self.cx.open.contains(&key(*owner))
            });
            if out.len() > before || (owner_is_open && alone.is_none()) {
                continue;
            }
            out.extend(self.group(&Group {
                key: key(alone.unwrap_or(Owner::Other)),
                class: *class,
                flow,
                recent: self.classes.get(class).copied().unwrap_or_default(),
                others: Others::ThanClass(*class),
                alone: alone.is_some(),
            }));
        }
    }

    fn group(&self, g: &Group<'_>) -> Option<Judgement> {
        self.withheld(g).or_else(|| self.crawling(g))
    }

    fn withheld(&self, g: &Group<'_>) -> Option<Judgement> {
        let settings = self.cx.settings;
        let now = self.cx.model.now_ns();
        let wait = g.flow.wait?;
        let gap = now.saturating_sub(wait.begin_ns);
        // Before the first observation nobody looked whether the group was issued something.
        let observed = now.saturating_sub(wait.observed_from_ns);
        if observed < ms(settings.withheld_ms) {
            return None;
        }
        let own = g.flow.totals.issues.saturating_sub(wait.own_issues);
        let others = self
            .device
            .issues()
            .saturating_sub(wait.device_issues)
            .saturating_sub(own);
        let last_issue = self.device.sample.and_then(|s| s.last_issue_ns)?;
        let pauses = now.saturating_sub(last_issue) > observed / 2;
        if others < settings.withheld_others
            || pauses
            || self.wait_alike(g, gap)
            || self.stands_in_line(g, others, own, wait.begin_ns)
        {
            return None;
        }
        let stage = if wait.present_ns[1].saturating_mul(2) >= observed
            || wait.present_ns[1] >= wait.present_ns[0]
        {
            // What is queued could be issued; what is in admission cannot before that was.
            Stage::Queued
        } else {
            Stage::Admission
        };
        let critical = observed >= ms(settings.withheld_critical_ms);
        Some(self.judgement(
            g,
            Met {
                critical,
                threshold_ms: if critical {
                    settings.withheld_critical_ms
                } else {
                    settings.withheld_ms
                },
                begin_ns: wait.begin_ns,
                gap_ns: gap,
                stage,
                stacks: g.flow.ring.since(wait.observed_from_ns).stacks,
                evidence: Evidence {
                    rule: Some(Rule::Withheld),
                    gap_ms: Some(gap / MS),
                    issues: Some(own),
                    issues_of_others: Some(others),
                    issue_share: share(own, others.saturating_add(own)),
                    before_attach: wait.begin_ns < self.cx.model.first_ns(),
                    ..Evidence::default()
                },
            },
        ))
    }

    fn crawling(&self, g: &Group<'_>) -> Option<Judgement> {
        let settings = self.cx.settings;
        let now = self.cx.model.now_ns();
        let window_ns = self.window_ns?;
        let length = now.saturating_sub(window_ns);
        let waited = share(g.recent.waited_ns, length)?;
        let got = share(g.recent.issues, self.all.issues)?;
        let others = self.all.issues.saturating_sub(g.recent.issues);
        if waited < WAITS_SHARE
            || others < settings.withheld_others
            || got >= settings.crawling_share
        {
            return None;
        }
        // Without any byte there is no rate, and `withheld` is the rule.
        let backlog = self.backlog(g);
        let needs_ms = u128::from(backlog) * u128::from(length / MS)
            / u128::from(Some(g.recent.bytes).filter(|b| *b > 0)?);
        let needs_ms = u64::try_from(needs_ms).unwrap_or(u64::MAX);
        if needs_ms <= settings.crawling_ms || got >= UNFAIR / self.busy_groups(g, length) as f64 {
            return None;
        }
        let stage = self.crawling_stage(g, window_ns);
        let critical = needs_ms >= settings.crawling_critical_ms;
        let gap = g.flow.wait.map_or(0, |w| now.saturating_sub(w.begin_ns));
        Some(self.judgement(
            g,
            Met {
                critical,
                threshold_ms: if critical {
                    settings.crawling_critical_ms
                } else {
                    settings.crawling_ms
                },
                begin_ns: window_ns,
                gap_ns: gap,
                stage,
                stacks: g.recent.stacks,
                evidence: Evidence {
                    rule: Some(Rule::Crawling),
                    backlog_needs_ms: Some(needs_ms),
                    gap_ms: g.flow.wait.map(|_| gap / MS),
                    issues: Some(g.recent.issues),
                    issues_of_others: Some(others),
                    issue_share: Some(got),
                    waited_share: Some(waited.min(1.0)),
                    ..Evidence::default()
                },
            },
        ))
    }

    /// Where most of the waiting is. wbt and iocost let in no more than they want to see behind them, so as many wait behind such
    /// a gate as before it: the gate holds the group unless the queue outweighs it twice. Waiting for a tag, on the other hand, follows
    /// from a queue that is full.
    fn crawling_stage(&self, g: &Group<'_>, window_ns: u64) -> Stage {
        let [admission, queued] = g.recent.weight;
        let (gate, _) = mechanism::of(
            self.device,
            g.class,
            Stage::Admission,
            g.recent.stacks,
            window_ns,
        );
        let factor = match gate {
            Mechanism::Wbt | Mechanism::Iocost => 2,
            _ => 1,
        };
        if queued >= admission.saturating_mul(factor) {
            Stage::Queued
        } else {
            Stage::Admission
        }
    }

    /// What both rules say alike.
    fn judgement(&self, g: &Group<'_>, met: Met) -> Judgement {
        let model = self.cx.model;
        let now = model.now_ns();
        let (mechanism, confidence) =
            mechanism::of(self.device, g.class, met.stage, met.stacks, met.begin_ns);
        let oldest = oldest_waiter(model, g);
        let oldest_ns = g
            .flow
            .now
            .oldest_waiting_ns()
            .map(|since| now.saturating_sub(since));
        let before_attach = met.evidence.before_attach || oldest.is_some_and(|w| w.seeded);
        Judgement {
            key: g.key,
            victim: g.key.victim,
            class: Some(g.class),
            severity: match (g.flow.now.idle_prio(), met.critical) {
                (true, _) => Severity::Info,
                (false, true) => Severity::Critical,
                (false, false) => Severity::Warning,
            },
            // What happened before the programs were attached is concluded, not seen.
            confidence: if met.evidence.before_attach {
                Confidence::Likely
            } else {
                confidence
            },
            begin_ns: met.begin_ns,
            stage: met.stage.into(),
            mechanism,
            threshold_ns: ms(met.threshold_ms),
            longest_ns: met.gap_ns.max(oldest_ns.unwrap_or(0)),
            task: oldest.and_then(|w| w.task.clone()),
            evidence: Evidence {
                scheduler: self.device.scheduler().map(str::to_owned),
                tunables: advice::relevant(self.device, mechanism),
                oldest_ms: oldest_ns.map(|ns| ns / MS),
                waiting: Some(g.flow.now.waiting()),
                backlog_bytes: Some(self.backlog(g)),
                bypasses: oldest.map(|w| w.bypasses),
                before_attach,
                ..met.evidence
            },
            others: Some(g.others),
            sync: None,
        }
    }

    /// Bytes that wait: for async writes the memory to be written, as far as it can be told apart.
    fn backlog(&self, g: &Group<'_>) -> u64 {
        let in_flight = g.flow.now.waiting_bytes();
        if g.class != Class::AsyncWrite {
            return in_flight;
        }
        let of_device = self.cx.model.device_backlog(self.device);
        let of_owner = self.cx.model.owner_backlog(g.key.victim);
        let known = match (g.key.victim, of_owner) {
            // An owner's memory may lie behind other disks too; that of the disk bounds it.
            (_, Some(owner)) => Some(of_device.map_or(owner, |d| d.min(owner))),
            (Owner::Other, None) => of_device,
            (_, None) => of_device.filter(|_| g.alone),
        };
        known.unwrap_or(0).max(in_flight)
    }

    /// Those that are served waited about as long themselves.
    fn wait_alike(&self, g: &Group<'_>, gap_ns: u64) -> bool {
        let waited = self
            .all
            .waits_sum_ns()
            .saturating_sub(g.recent.waits_sum_ns());
        let finished = self.all.finished.saturating_sub(g.recent.finished);
        waited
            .checked_div(finished)
            .is_some_and(|mean| gap_ns < mean.saturating_mul(ALIKE_HALVES) / 2)
    }

    /// Those that are served are of the victim's own class, and most of them came before it: it waits for its turn. An elevator that goes
    /// over the disk in one direction serves some that came later on its way; write_expire bounds that.
    fn stands_in_line(&self, g: &Group<'_>, others: u64, own: u64, begin_ns: u64) -> bool {
        let class = self.device.classes.get(&g.class);
        let of_class = class.map_or(0, |f| f.ring.since(begin_ns).issues);
        let of_other_classes = others.saturating_sub(of_class.saturating_sub(own));
        let in_line = |w: &Waiter| {
            w.stage == Stage::Queued && w.bypasses.saturating_mul(2) < others && !w.seeded
        };
        of_other_classes < self.cx.settings.withheld_others
            && oldest_waiter(self.cx.model, g).is_some_and(in_line)
    }

    /// How many groups contend with this one, itself included: those that wait as it does, and those that get more.
    fn busy_groups(&self, g: &Group<'_>, length_ns: u64) -> usize {
        let contends = |c: &&Cell| {
            (c.issues > 0 && c.issues >= g.recent.issues)
                || share(c.waited_ns, length_ns).is_some_and(|w| w >= WAITS_SHARE)
        };
        match g.others {
            Others::ThanGroup(..) | Others::ThanOwner(_) => {
                self.owners.values().filter(contends).count()
            }
            Others::ThanClass(_) | Others::Writers => {
                self.classes.values().filter(contends).count()
            }
        }
    }
}

/// The group's oldest in admission or queued.
fn oldest_waiter<'a>(model: &'a Model, g: &Group<'_>) -> Option<&'a Waiter> {
    let of_group = |w: &&Waiter| {
        w.stage != Stage::Device
            && w.key.dev == g.key.dev
            && w.key.class == g.class
            && (g.key.victim == Owner::Other || w.key.owner == g.key.victim)
    };
    model
        .waiters()
        .iter()
        .filter(of_group)
        .min_by_key(|w| w.since_ns)
}

/// A part of a whole, `None` when there is no whole.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
