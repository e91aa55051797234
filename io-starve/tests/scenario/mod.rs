//! Scenario files: a machine in a few lines, and what must be found in it.
//!
//! In: the text of a file under `tests/scenarios/`. Out: the observations it describes and a check of every change that the
//! pipeline makes of them. A word that is not known fails the file, so that a typo cannot switch an expectation off.
//!
//! ```text
//! device 8:0 sda mq-deadline iosched/writes_starved=100000      a disk; options below=8:16 iocost=yes backing=FILE
//! cgroup 28 /backup.service
//! refuse block_bio_queue "what waits for admission"             a hook that was refused; `attach NAME` for one that runs
//! set withheld_ms 500                                           a threshold
//! tick 250ms                                                    the default
//! end 30s                                                       last tick
//! from 0s to 12s: issue 29 sync-read 75 bytes=300KiB queued=41ms     each tick in (0 s, 12 s]; also device= admission= max= finish= dev=
//! from 1s to 18s: wait 28 async-write queued 12 since=1s bytes=48KiB each tick in [1 s, 18 s); or age=41ms; idle seeded task=PID:COMM
//!                                                                    bypasses=N for=wbt|iocost|tags dev=
//! from 0s to 12s: backlog 8:0 512MiB                                 or `backlog owner 28 512MiB`
//! from 3s to 4s: lose slots-full 2                                   each tick
//! expect open KIND at 2s..2.5s rule= victim= class= culprit= share= mechanism= stage= severity= confidence= lost= advice= since= attach=
//! expect update KIND at 11s..12s severity=critical              updates may also come unexpected
//! expect close KIND at 28s..28.5s duration=17s..17.5s longest= reason=
//! expect verdict at 12s sda: /backup.service async writes wait
//! ```
//!
//! An owner is a cgroup id, `unknown` or `other`. Opens and closes must be those expected and no others.

use std::collections::BTreeMap;

use io_starve::detect::Change;
use io_starve::detect::finding::{CloseReason, Finding};
use io_starve::detect::settings::Settings;
use io_starve::model::observation::*;
use io_starve::pipeline::Pipeline;
use io_starve_common::{class::Class, wire::LossKind};

mod parse;
use parse::*;

/// Scenario time 0, ns monotonic: long after boot, so that something can have begun before.
const BASE_NS: i64 = 1_000_000_000_000;
const MS: u64 = 1_000_000;

/// A scenario, ready to run.
pub struct Scenario {
    facts: Vec<Fact>,
    settings: Settings,
    tick_ms: u64,
    end_ms: u64,
    phases: Vec<Phase>,
    expect: Vec<Expect>,
}

struct Phase {
    from_ms: u64,
    to_ms: u64,
    what: What,
}

enum What {
    Issue {
        key: GroupKey,
        n: u64,
        opts: Opts,
    },
    Wait {
        key: GroupKey,
        stage: Stage,
        n: u64,
        opts: Opts,
    },
    Backlog(Backlog),
    Lose(LossKind, u64),
}

struct Expect {
    line: usize,
    what: Event,
    kind: String,
    at_ms: (u64, u64),
    opts: Opts,
    text: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Event {
    Open,
    Update,
    Close,
    Verdict,
}

impl Scenario {
    /// Reads a file; an error names its line.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let mut s = Scenario {
            facts: Vec::new(),
            settings: Settings::default(),
            tick_ms: 250,
            end_ms: 0,
            phases: Vec::new(),
            expect: Vec::new(),
        };
        let mut hooks = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                s.line(i + 1, line, &mut hooks)
                    .map_err(|e| format!("line {}: {e}: {line}", i + 1))?;
            }
        }
        if s.end_ms == 0 {
            return Err("no `end`".to_owned());
        }
        if !hooks.is_empty() {
            s.facts.push(Fact::Hooks { hooks });
        }
        Ok(s)
    }

    fn line(&mut self, number: usize, line: &str, hooks: &mut Vec<Hook>) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match word {
            "tick" => self.tick_ms = one(&words, duration_ms)?,
            "end" => self.end_ms = one(&words, duration_ms)?,
            "set" => self.settings = set(&self.settings, &words)?,
            "device" => self.facts.push(Fact::Device(device(&words)?)),
            "cgroup" => {
                let [id, path] = words[..] else {
                    return Err("cgroup ID PATH".to_owned());
                };
                self.facts.push(Fact::Cgroup(CgroupFact {
                    id: number_of(id)?,
                    path: path.to_owned(),
                    ..CgroupFact::default()
                }));
            }
            "attach" | "refuse" => hooks.push(hook(word == "refuse", rest)?),
            "from" => {
                let phase = self.phase(rest)?;
                self.phases.push(phase);
            }
            "expect" => self.expect.push(expect(number, rest)?),
            other => return Err(format!("unknown word `{other}`")),
        }
        Ok(())
    }

    fn phase(&self, rest: &str) -> Result<Phase, String> {
        let (times, what) = rest.split_once(": ").ok_or("from T to T: WHAT")?;
        let (from, to) = times.split_once(" to ").ok_or("from T to T")?;
        let words: Vec<&str> = what.split_whitespace().collect();
        let what = self.what(&words)?;
        // Values are read once here, so that a typo in one fails although its phase never comes.
        let mut o = Observation {
            mono_ns: BASE_NS as u64,
            ..Observation::default()
        };
        apply(&what, &mut o, &mut BTreeMap::new())?;
        Ok(Phase {
            from_ms: duration_ms(from)?,
            to_ms: duration_ms(to)?,
            what,
        })
    }

    fn what(&self, words: &[&str]) -> Result<What, String> {
        match words {
            ["issue", owner, class, n, opts @ ..] => {
                let allowed = [
                    "dev",
                    "bytes",
                    "queued",
                    "admission",
                    "device",
                    "max",
                    "finish",
                ];
                let opts = Opts::parse(opts, &allowed, &[])?;
                Ok(What::Issue {
                    key: self.key(owner, class, &opts)?,
                    n: number_of(n)?,
                    opts,
                })
            }
            ["wait", owner, class, stage, n, opts @ ..] => {
                let allowed = ["dev", "bytes", "since", "age", "task", "bypasses", "for"];
                let opts = Opts::parse(opts, &allowed, &["idle", "seeded"])?;
                if opts.get("since").is_some() == opts.get("age").is_some() {
                    return Err("one of since= and age= is needed".to_owned());
                }
                Ok(What::Wait {
                    key: self.key(owner, class, &opts)?,
                    stage: named(stage)?,
                    n: number_of(n)?,
                    opts,
                })
            }
            ["backlog", "owner", owner, n] => Ok(What::Backlog(Backlog {
                dev: None,
                owner: Some(owner_of(owner)?),
                dirty: bytes_of(n)?,
                writeback: 0,
            })),
            ["backlog", dev, n] => Ok(What::Backlog(Backlog {
                dev: Some(dev_of(dev)?),
                owner: None,
                dirty: bytes_of(n)?,
                writeback: 0,
            })),
            ["lose", kind, n] => Ok(What::Lose(named(kind)?, number_of(n)?)),
            _ => Err("unknown event".to_owned()),
        }
    }

    /// The disk is the first one unless `dev=` says otherwise.
    fn key(&self, owner: &str, class: &str, opts: &Opts) -> Result<GroupKey, String> {
        let first = self.facts.iter().find_map(|f| match f {
            Fact::Device(d) => Some(d.dev),
            _ => None,
        });
        Ok(GroupKey {
            dev: match opts.get("dev") {
                Some(dev) => dev_of(dev)?,
                None => first.ok_or("no device before this line")?,
            },
            owner: owner_of(owner)?,
            class: named(class)?,
        })
    }

    /// The observations of the whole run.
    pub fn observations(&self) -> Result<Vec<(u64, Observation)>, String> {
        let mut samples: BTreeMap<DevId, DeviceSample> = BTreeMap::new();
        let mut loss: BTreeMap<LossKind, u64> = BTreeMap::new();
        let mut all = Vec::new();
        for at_ms in (0..=self.end_ms).step_by(self.tick_ms as usize) {
            let mono_ns = (BASE_NS + (at_ms * MS) as i64) as u64;
            let mut o = Observation {
                mono_ns,
                wall_ns: mono_ns as i64,
                ..Observation::default()
            };
            if at_ms == 0 {
                o.facts.clone_from(&self.facts);
            }
            for phase in &self.phases {
                let counts = phase.from_ms < at_ms && at_ms <= phase.to_ms;
                let is = phase.from_ms <= at_ms && at_ms < phase.to_ms;
                match &phase.what {
                    What::Lose(kind, n) if counts => *loss.entry(*kind).or_default() += n,
                    What::Issue { .. } if counts => apply(&phase.what, &mut o, &mut samples)?,
                    What::Wait { .. } | What::Backlog(_) if is => {
                        apply(&phase.what, &mut o, &mut samples)?
                    }
                    _ => {}
                }
            }
            for w in &o.waiting {
                samples
                    .entry(w.key.dev)
                    .or_insert_with(|| sample(w.key.dev));
            }
            o.devices = samples.values().copied().collect();
            o.loss = loss.iter().map(|(k, n)| (*k, *n)).collect();
            all.push((at_ms, o));
        }
        Ok(all)
    }

    /// Runs it and compares; every difference is a line of the error.
    pub fn check(&self) -> Result<(), String> {
        let mut pipeline = Pipeline::new(self.settings.clone());
        let mut met = vec![false; self.expect.len()];
        let mut wrong = Vec::new();
        for (at_ms, o) in self.observations()? {
            for change in pipeline.feed(&o) {
                let (event, finding) = match &change {
                    Change::Open(f) => (Event::Open, f),
                    Change::Update(f) => (Event::Update, f),
                    Change::Close(f) => (Event::Close, f),
                };
                let mut why = Vec::new();
                let hit = self.expect.iter().enumerate().find(|(i, e)| {
                    let named = e.what == event && e.kind == finding.kind.name() && !met[*i];
                    let fits = named && e.fits(at_ms, finding).map_err(|w| why.push(w)).is_ok();
                    fits
                });
                match hit {
                    Some((i, _)) => met[i] = true,
                    None if event == Event::Update => {}
                    None => wrong.push(format!(
                        "at {at_ms} ms, not expected ({}): {}",
                        why.join("; "),
                        serde_json::to_string(finding).map_err(|e| e.to_string())?
                    )),
                }
            }
            let verdict = pipeline.snapshot().verdict;
            for (i, e) in self.expect.iter().enumerate() {
                if e.what == Event::Verdict && e.at_ms.0 <= at_ms && at_ms <= e.at_ms.1 {
                    met[i] = true;
                    if !verdict.contains(&e.text) {
                        wrong.push(format!("line {}: the verdict is `{verdict}`", e.line));
                    }
                }
            }
        }
        let missed = self.expect.iter().zip(met).filter(|(_, met)| !met);
        wrong.extend(missed.map(|(e, _)| format!("line {}: did not happen", e.line)));
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("\n"))
        }
    }

    /// How many opens it expects, and whether one of them names a loss.
    pub fn opens(&self) -> (usize, bool) {
        let opens = || self.expect.iter().filter(|e| e.what == Event::Open);
        let lossy = |e: &Expect| {
            e.opts.get("missing").is_some() || e.opts.get("lost").is_some_and(|n| n != "0")
        };
        (opens().count(), opens().any(lossy))
    }

    /// The kinds of finding that it expects.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.expect.iter().map(|e| e.kind.as_str())
    }
}

impl Expect {
    fn fits(&self, at_ms: u64, f: &Finding) -> Result<(), String> {
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

fn expect(line: usize, rest: &str) -> Result<Expect, String> {
    const OPTS: [&str; 22] = [
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
        }],
        mechanism: Mechanism::Device,
        stage: Stage::Queued,
        duration_ns: 0,
        longest_ns: 0,
        threshold_ns: 0,
        evidence: Evidence::default(),
        advice: Vec::new(),
        loss: LossNote::default(),
    }
}

fn sample(dev: DevId) -> DeviceSample {
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

fn apply(
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
        What::Lose(..) => Ok(()),
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
