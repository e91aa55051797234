//! Turns changes of findings into alerts. Pure: times come from the observation, so that a replay tells the same.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    alert::{
        Account, Alert, Cgroup, Culprit, Device, Event, FindingAlert, Hook, Hooks, Limit, Losses,
        OpenFinding, OwnerKind, Pauses, Pressure, SCHEMA, Stamp, Start, Status, Stop, StopReason,
        Totals, Victim,
    },
    focus::Focus,
    ignore::Ignore,
    storm::Storm,
    text,
};
use crate::{
    detect::{
        Change,
        finding::{CloseReason, Finding, Kind, Severity},
        settings::Settings,
        words::chain,
    },
    model::{
        observation::{DevId, Observation, Owner, Verdict},
        snapshot::Snapshot,
    },
    pipeline::Pipeline,
    source::recording::VERSION,
};

const NS_PER_MS: u64 = 1_000_000;
/// Time between two updates of a finding that got no worse, in ns.
const UPDATE_NS: u64 = 10_000_000_000;

/// What has been told so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reporter {
    labels: BTreeMap<String, String>,
    audience: Audience,
    interval_ms: u64,
    settings: Settings,
    /// Open findings that were told.
    open: BTreeMap<String, Told>,
    findings: u64,
    #[serde(default)]
    storm: Storm,
    /// When the next status is due; unset before the first observation. ns, monotonic.
    status_due_ns: Option<u64>,
    /// Of the latest observation: CLOCK_MONOTONIC and wall clock, in ns.
    now: (u64, i64),
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audience {
    /// Findings at least as bad as this.
    pub min_severity: Severity,
    /// Cgroups and disks.
    pub focus: Focus,
    /// Time between two `status` alerts, in ns.
    pub status_ns: u64,
    /// Findings that are not told.
    #[serde(default)]
    pub ignore: Vec<Ignore>,
}

impl Audience {
    fn wants(&self, finding: &Finding, snapshot: &Snapshot) -> bool {
        finding.severity >= self.min_severity
            && self.focus.has(finding, snapshot)
            && !self.ignore.iter().any(|i| i.fits(finding, snapshot))
    }
}

/// An open finding that was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Told {
    kind: Kind,
    severity: Severity,
    /// Kept, because the wall clock may be set while the finding is open. ns since 1970.
    since_wall_ns: i64,
    /// When it was last told, ns monotonic.
    #[serde(default)]
    told_ns: u64,
}

impl Reporter {
    /// Tells what this audience wants to hear.
    pub fn new(
        settings: Settings,
        labels: BTreeMap<String, String>,
        interval_ms: u64,
        audience: Audience,
    ) -> Reporter {
        Reporter {
            labels,
            audience,
            interval_ms,
            settings,
            open: BTreeMap::new(),
            findings: 0,
            storm: Storm::default(),
            status_due_ns: None,
            now: (0, 0),
        }
    }

    /// The same state for another audience, which has heard nothing of the run's beginning.
    pub fn resumed(mut self, audience: Audience) -> Reporter {
        self.audience = audience;
        self.status_due_ns = None;
        self
    }

    /// The same state with other wishes, labels and thresholds from now on; what is told of goes on being told.
    pub fn reload(
        &mut self,
        settings: Settings,
        labels: BTreeMap<String, String>,
        audience: Audience,
    ) {
        self.settings = settings;
        self.labels = labels;
        self.audience = audience;
    }

    /// How many findings were not told, because too many came at once.
    pub fn folded(&self) -> u64 {
        self.storm.folded()
    }

    /// How many findings were told.
    pub fn findings(&self) -> u64 {
        self.findings
    }

    /// Alerts of one observation, which the pipeline was fed with and answered with these changes.
    pub fn tick(
        &mut self,
        observation: &Observation,
        changes: &[Change],
        pipeline: &Pipeline,
    ) -> Vec<Alert> {
        self.now = (observation.mono_ns, observation.wall_ns);
        let due = self.status_due_ns;
        if changes.is_empty() && due.is_some_and(|due| observation.mono_ns < due) {
            return Vec::new();
        }
        let snapshot = pipeline.snapshot();
        let mut alerts = Vec::new();
        if due.is_none() {
            alerts.push(alert(Event::Start(Box::new(Start {
                stamp: self.stamp(&snapshot),
                hooks: hooks(&snapshot),
                interval_ms: self.interval_ms,
                settings: self.settings.clone(),
            }))));
            self.status_due_ns = Some(observation.mono_ns + self.audience.status_ns);
        }
        self.changes(changes, &snapshot, &mut alerts);
        if due.is_some_and(|due| observation.mono_ns >= due) {
            alerts.push(alert(Event::Status(Box::new(Status {
                stamp: self.stamp(&snapshot),
                totals: totals(&snapshot, pipeline, self.storm.folded()),
                open: self.open(),
            }))));
            self.status_due_ns = Some(observation.mono_ns + self.audience.status_ns);
        }
        alerts
    }

    /// The last alerts: findings that the pipeline closed on detaching, then `stop`. None when nothing was observed.
    pub fn stop(
        &mut self,
        reason: StopReason,
        changes: &[Change],
        pipeline: &Pipeline,
    ) -> Vec<Alert> {
        let mut alerts = Vec::new();
        if self.status_due_ns.is_none() {
            return alerts;
        }
        let snapshot = pipeline.snapshot();
        self.changes(changes, &snapshot, &mut alerts);
        alerts.push(alert(Event::Stop(Box::new(Stop {
            stamp: self.stamp(&snapshot),
            reason,
            summary: text::summary(&snapshot, self.findings),
            findings: self.findings,
            totals: totals(&snapshot, pipeline, self.storm.folded()),
            open: self.open(),
        }))));
        alerts
    }

    fn changes(&mut self, changes: &[Change], snapshot: &Snapshot, alerts: &mut Vec<Alert>) {
        for change in changes {
            let (Change::Open(finding) | Change::Update(finding) | Change::Close(finding)) = change;
            let is_close = matches!(change, Change::Close(_));
            let told = self.open.contains_key(&finding.id);
            if !told && !self.is_news(is_close, finding, snapshot) {
                continue;
            }
            let now = self.now.0;
            let since_wall_ns = wall_clock_at(finding.since_ns, self.now);
            let entry = self.open.entry(finding.id.clone()).or_insert(Told {
                kind: finding.kind,
                severity: finding.severity,
                since_wall_ns,
                told_ns: now,
            });
            let no_worse = finding.severity <= entry.severity;
            if told && !is_close && no_worse && now.saturating_sub(entry.told_ns) < UPDATE_NS {
                continue;
            }
            entry.severity = finding.severity;
            entry.told_ns = now;
            let since = rfc3339(entry.since_wall_ns);
            let mut body = Box::new(describe(finding, since, self.stamp(snapshot), snapshot));
            body.folded = self.storm.take_folded(finding);
            let event = match change {
                Change::Close(_) => {
                    self.open.remove(&finding.id);
                    Event::Close(body)
                }
                // The first that passes the severity asked for is news, however long the finding was open.
                _ if !told => {
                    self.findings += 1;
                    Event::Open(body)
                }
                _ => Event::Update(body),
            };
            alerts.push(alert(event));
        }
    }

    /// True when a finding that was not told yet is to be told.
    fn is_news(&mut self, is_close: bool, finding: &Finding, snapshot: &Snapshot) -> bool {
        if is_close {
            self.storm.ended(&finding.id);
            return false;
        }
        self.audience.wants(finding, snapshot) && self.storm.admits(self.now.0, finding)
    }

    fn stamp(&self, snapshot: &Snapshot) -> Stamp {
        stamp(self.now, self.labels.clone(), snapshot)
    }

    fn open(&self) -> Vec<OpenFinding> {
        self.open
            .iter()
            .map(|(id, told)| OpenFinding {
                id: id.clone(),
                kind: told.kind,
                severity: told.severity,
            })
            .collect()
    }
}

fn alert(event: Event) -> Alert {
    Alert {
        schema: SCHEMA,
        version: VERSION.to_owned(),
        event,
    }
}

fn describe(f: &Finding, since: String, stamp: Stamp, snapshot: &Snapshot) -> FindingAlert {
    let (owner, cgroup) = owner(f.victim, snapshot);
    FindingAlert {
        id: f.id.clone(),
        kind: f.kind,
        severity: f.severity,
        stamp,
        since,
        device: f.device.map(|dev| device(dev, snapshot)),
        filesystem: f.sync.as_ref().and_then(|s| s.fstype.clone()),
        mountpoint: f.sync.as_ref().and_then(|s| s.mountpoint.clone()),
        victim: Victim {
            owner,
            cgroup,
            task: f.task.clone(),
            class: f.class,
            file: f.sync.as_ref().and_then(|s| s.file.clone()),
        },
        culprits: f
            .culprits
            .iter()
            .map(|c| {
                let (owner, cgroup) = self::owner(c.owner, snapshot);
                Culprit {
                    owner,
                    cgroup,
                    task: c.tasks.first().cloned(),
                    tasks: c.tasks.clone(),
                    class: c.class,
                    // Four digits: what is behind them is noise, and it would be read as precision.
                    share: (c.share * 1e4).round() / 1e4,
                    issues: c.issues,
                    delay_ms: c.delay_ns.map(|ns| ns / NS_PER_MS),
                    limit: c.limit.map(|l| Limit {
                        cgroup: self::owner(l.group, snapshot).1,
                        device: device(l.dev, snapshot),
                        limits: l.limits,
                        used: l.used,
                        held_share: l.held_share,
                    }),
                }
            })
            .collect(),
        mechanism: f.mechanism,
        stage: f.stage,
        duration_ms: f.duration_ns / NS_PER_MS,
        longest_ms: f.longest_ns / NS_PER_MS,
        threshold_ms: f.threshold_ns / NS_PER_MS,
        confidence: f.confidence,
        evidence: f.evidence.clone(),
        pressure: pressure(f.victim, snapshot),
        chain: chain(f, &|o| snapshot.owner_name(o)),
        advice: f.advice.clone(),
        loss: f.loss.clone(),
        folded: 0,
        recording: None,
        reason: f.closed.map(|(_, reason): (u64, CloseReason)| reason),
    }
}

fn device(dev: DevId, snapshot: &Snapshot) -> Device {
    Device {
        major: dev.major(),
        minor: dev.minor(),
        name: snapshot
            .devices
            .iter()
            .find(|d| d.dev == dev)
            .map(|d| d.name.clone()),
    }
}

/// An open finding in a sentence without its end.
pub fn in_words(finding: &Finding, snapshot: &Snapshot) -> String {
    let now = (snapshot.mono_ns, snapshot.wall_ns);
    let since = rfc3339(wall_clock_at(finding.since_ns, now));
    let stamp = stamp(now, BTreeMap::new(), snapshot);
    text::sentence(&describe(finding, since, stamp, snapshot), "waits")
}

fn stamp(
    (mono_ns, wall_ns): (u64, i64),
    labels: BTreeMap<String, String>,
    snapshot: &Snapshot,
) -> Stamp {
    let known = |s: &String| Some(s.clone()).filter(|s| !s.is_empty());
    Stamp {
        time: rfc3339(wall_ns),
        mono_ns,
        host: snapshot.host.as_ref().and_then(|h| known(&h.name)),
        kernel: snapshot.host.as_ref().and_then(|h| known(&h.kernel)),
        labels,
    }
}

/// The wall clock at an earlier time of the monotonic clock, ns since 1970, if it was not set since.
fn wall_clock_at(ns: u64, (mono_ns, wall_ns): (u64, i64)) -> i64 {
    wall_ns.saturating_sub(i64::try_from(mono_ns.saturating_sub(ns)).unwrap_or(i64::MAX))
}

/// A time in ns since 1970, to the millisecond, in UTC: the zone of the machine is not in a recording.
fn rfc3339(wall_ns: i64) -> String {
    // Every i64 of nanoseconds lies between 1677 and 2262, which jiff can express.
    let time = Timestamp::from_nanosecond(i128::from(wall_ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

fn owner(owner: Owner, snapshot: &Snapshot) -> (OwnerKind, Option<Cgroup>) {
    match owner {
        Owner::Unknown => (OwnerKind::Unknown, None),
        Owner::Task(_) => (OwnerKind::Task, None),
        Owner::Other => (OwnerKind::Several, None),
        Owner::Cgroup(id) => {
            let known = snapshot
                .owners
                .iter()
                .find(|o| o.owner == owner)
                .map(|o| &o.cgroup);
            let cgroup = Cgroup {
                id,
                path: known.map(|c| c.path.clone()),
                unit: known.and_then(|c| c.unit.clone()),
                container: known.and_then(|c| c.container.clone()),
                pod: known.and_then(|c| c.pod.clone()),
            };
            (OwnerKind::Cgroup, Some(cgroup))
        }
    }
}

fn pressure(victim: Owner, snapshot: &Snapshot) -> Option<Pressure> {
    let owners = snapshot.devices.iter().flat_map(|d| &d.owners);
    let (some_avg10, full_avg10) = owners
        .filter(|o| o.owner == victim)
        .find_map(|o| o.pressure)?;
    Some(Pressure {
        some_avg10,
        full_avg10,
    })
}

fn hooks(snapshot: &Snapshot) -> Hooks {
    let (attached, wanted) = snapshot.hooks_attached();
    Hooks {
        attached: attached as u64,
        wanted: wanted as u64,
        list: snapshot.hooks.iter().map(Hook::from).collect(),
    }
}

fn totals(snapshot: &Snapshot, pipeline: &Pipeline, folded: u64) -> Totals {
    // What this kernel does not have is not missing: another hook answers there.
    let lacks = |verdict: &Verdict| matches!(verdict, Verdict::Refused { .. });
    Totals {
        requests_seen: snapshot.requests_seen,
        folded,
        hooks: hooks(snapshot),
        loss: Losses {
            events: snapshot.loss_total(),
            kinds: snapshot
                .loss
                .iter()
                .map(|(kind, n)| (kind.name().to_owned(), *n))
                .collect(),
            missing: snapshot
                .hooks
                .iter()
                .filter(|h| lacks(&h.verdict))
                .map(|h| h.question.clone())
                .collect(),
        },
        accounts: pipeline
            .accounts()
            .into_iter()
            .map(|a| Account {
                device: snapshot.device_name(a.device),
                class: a.class,
                seen: a.seen,
                finished: a.finished,
                merged: a.merged,
                expired: a.expired,
                in_flight: a.in_flight,
                inserts: a.inserts,
                issues: a.issues,
                requeues: a.requeues,
                bytes: a.bytes,
                queued_max_ms: a.queued_max_ns.map(|ns| ns as f64 / NS_PER_MS as f64),
            })
            .collect(),
        pauses: pipeline
            .pauses()
            .into_iter()
            .map(|p| Pauses {
                bdi: p.bdi,
                device: p.device,
                worker: p.worker,
                pauses: p.count,
                paused_ms: p.sum_ns / NS_PER_MS,
            })
            .collect(),
        shares: pipeline.shares().into_iter().map(Into::into).collect(),
    }
}
