//! Scenario files: a machine in a few lines, and what must be found in it.
//!
//! In: the text of a file under `tests/scenarios/`. Out: the observations it describes and a check of every change that the
//! pipeline makes of them. A word that is not known fails the file, so that a typo cannot switch an expectation off.
//!
//! ```text
//! device 8:0 sda mq-deadline iosched/writes_starved=100000      a disk; options below=8:16 iocost=yes backing=FILE
//! cgroup 28 /backup.service
//! host v1                                                       its cgroup hierarchy; v2 unless said otherwise
//! fs 8:1 ext4 /data 8:0 dioread_lock                            a filesystem on a disk, its options
//! limit 28 8:0 wbps=1MiB                                        of a cgroup on a disk
//! refuse block_bio_queue "what waits for admission"             a hook that was refused; `attach NAME` for one that runs
//! set withheld_ms 500                                           a threshold
//! tick 250ms                                                    the default
//! end 30s                                                       last tick
//! from 0s to 12s: issue 29 sync-read 75 bytes=300KiB queued=41ms     each tick in (0 s, 12 s]; also device= admission= max= finish= dev=
//! from 1s to 18s: wait 28 async-write queued 12 since=1s bytes=48KiB each tick in [1 s, 18 s); or age=41ms; idle seeded task=PID:COMM
//!                                                                    bypasses=N for=wbt|iocost|tags dev=
//! from 0s to 12s: backlog 8:0 512MiB                                 or `backlog owner 28 512MiB`
//! from 3s to 4s: lose slots-full 2                                   each tick
//! from 3s to 4s: lack tags 8:0 5                                     each tick: tasks that slept for want of a tag
//! from 1s to 4s: fsync 28 8:1/13 101 file=log journal=1.1s commit=5  until it ends at 4 s; also flush= for= result= datasync
//! from 1.1s to 4s: commit 8:1 5 logging=1.2s waits=12:29:1.3s   also locking= flushing= for= tid=
//! from 1s to 4s: hold 8:0 29 3 file=8:1/12                      also owner= reads
//! loop 7:0 loop0 8:0 file=/srv/a.img fs=8:1                        a loop device on a disk, `-` for one in memory; dio deleted
//! from 0s to 9s: pauses 7:0 28 100 every=100ms for=80ms limit=16MiB  also worker= pooled comm= dirty= background= own= share=
//! from 0s to 9s: busy 8:0 95                                         per cent
//! from 5s to 6s: loop 7:0 loop0 8:0 dio                              in mid-run; `unloop 7:0`
//! weight /backup.service io=500                                    also bfq= on=DISK class=
//! from 0s to 20s: clock 8:0 busy=98                                  device time is counted; per cent; also idle-waited=
//! from 0s to 20s: serve 28 device=40 waits=95                        an owner's part; also active= group-wait= idle= dev=
//! expect open KIND at 2s..2.5s rule= victim= class= culprit= share= mechanism= stage= severity= confidence= lost= advice= since= attach=
//! expect update KIND at 11s..12s severity=critical              updates may also come unexpected
//! expect close KIND at 28s..28.5s duration=17s..17.5s longest= reason=
//! expect verdict at 12s sda: /backup.service async writes wait
//! ```
//!
//! An owner is a cgroup id, `unknown` or `other`. Opens and closes must be those expected and no others.

use std::collections::BTreeMap;

use io_starve::detect::Change;
use io_starve::detect::settings::Settings;
use io_starve::model::observation::*;
use io_starve::pipeline::Pipeline;
use io_starve_common::wire::LossKind;

mod dirty;
mod expect;
mod journal;
mod observe;
mod parse;
mod weights;
use expect::{Event, Expect, expect};
use observe::{apply, sample};
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
    TagWaits(DevId, u64),
    Span(journal::Span),
    Dirty(dirty::Dirty),
    Shares(weights::Shares),
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
            "fs" => self.facts.push(journal::filesystem(&words)?),
            "loop" => self.facts.push(dirty::looped(&words)?),
            "weight" => self.facts.push(weights::weight(&words)?),
            "limit" => self.facts.push(journal::limit(&words)?),
            "host" => self.facts.push(host(&words)?),
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
        let span = journal::span(&words, duration_ms(from)?)?;
        let dirty = dirty::dirty(&words)?.map(What::Dirty);
        let shares = weights::shares(&words, self.first_disk())?.map(What::Shares);
        let what = match span.map(What::Span).or(dirty).or(shares) {
            Some(what) => what,
            None => self.what(&words)?,
        };
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
            ["lack", "tags", dev, n] => Ok(What::TagWaits(dev_of(dev)?, number_of(n)?)),
            ["lose", kind, n] => Ok(What::Lose(named(kind)?, number_of(n)?)),
            _ => Err("unknown event".to_owned()),
        }
    }

    fn first_disk(&self) -> Option<DevId> {
        self.facts.iter().find_map(|f| match f {
            Fact::Device(d) => Some(d.dev),
            _ => None,
        })
    }

    /// The disk is the first one unless `dev=` says otherwise.
    fn key(&self, owner: &str, class: &str, opts: &Opts) -> Result<GroupKey, String> {
        let first = self.first_disk();
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
        let mut busy = dirty::BusyMs::new();
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
                    What::Issue { .. } | What::TagWaits(..) if counts => {
                        apply(&phase.what, &mut o, &mut samples)?
                    }
                    What::Shares(shares) if counts => shares.tell(&mut o, self.tick_ms * MS),
                    What::Span(span) => {
                        span.tell(&mut o, phase.from_ms, phase.to_ms, self.tick_ms, at_ms);
                    }
                    What::Dirty(dirty) => {
                        let span = (phase.from_ms, phase.to_ms);
                        dirty.tell(&mut o, span, self.tick_ms, at_ms, &mut busy);
                    }
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
                    named && e.fits(at_ms, finding).map_err(|w| why.push(w)).is_ok()
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
