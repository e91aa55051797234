//! A machine that never was: 16 readers of one cgroup keep the background write of another from the disk.

use std::collections::BTreeMap;

use io_starve::{
    detect::{finding::Severity, settings::Settings},
    model::observation::{
        CgroupFact, CgroupMode, DevId, DeviceFact, DeviceSample, Fact, GroupDelta, GroupKey, Hook,
        HostFact, Observation, Owner, Stage, StageDelta, Task, Topic, Verdict, Waiter, Waiting,
    },
    output::{
        alert::{Alert, StopReason},
        focus::Focus,
        reporter::{Audience, Reporter},
    },
    pipeline::Pipeline,
    source::recording::{Checkpoint, Recorder},
};
use io_starve_common::class::Class;
use tempfile::NamedTempFile;

const MS: u64 = 1_000_000;
const TICK: u64 = 250 * MS;
const BEGIN: u64 = 1_000_000 * MS;
const SDA: DevId = DevId::new(8, 0);
const BACKUP: Owner = Owner::Cgroup(28);
const READER: Owner = Owner::Cgroup(29);
const READS: u64 = 75;

fn facts() -> Vec<Fact> {
    let hook = |name: &str, verdict| Hook {
        name: name.to_owned(),
        verdict,
        question: format!("what {name} tells"),
        topic: Topic::Requests,
    };
    let attached = || Verdict::Attached {
        via: "tp_btf".to_owned(),
    };
    let cgroup = |id, unit: &str| {
        Fact::Cgroup(CgroupFact {
            id,
            path: format!("/system.slice/{unit}"),
            unit: Some(unit.to_owned()),
            ..CgroupFact::default()
        })
    };
    vec![
        Fact::Host(HostFact {
            name: "db1".to_owned(),
            kernel: "6.12.0".to_owned(),
            cgroups: CgroupMode::V2,
        }),
        Fact::Hooks {
            hooks: vec![
                hook("block_rq_insert", attached()),
                hook("block_rq_issue", attached()),
                hook(
                    "block_getrq",
                    Verdict::Refused {
                        why: "Operation not permitted".to_owned(),
                    },
                ),
            ],
        },
        Fact::Device(DeviceFact {
            dev: SDA,
            name: "sda".to_owned(),
            scheduler: Some("mq-deadline".to_owned()),
            tunables: vec![("iosched/writes_starved".to_owned(), "100000".to_owned())],
            below: Vec::new(),
            rotational: Some(true),
            iocost: Some(false),
            backing_file: None,
        }),
        cgroup(28, "backup.service"),
        cgroup(29, "reader.service"),
    ]
}

/// One tick: reads go on until 14 s, a write waits from 1 s on and is served then.
fn tick(i: u64) -> Observation {
    let now = BEGIN + i * TICK;
    let (reading, waiting) = (i <= 56, (4..=56).contains(&i));
    let inserted = BEGIN + 4 * TICK;
    let group = |owner, class, n, seen, queued_ns| GroupDelta {
        key: GroupKey {
            dev: SDA,
            owner,
            class,
        },
        seen,
        finished: n,
        merged: 0,
        expired: 0,
        inserts: seen,
        issues: n,
        requeues: 0,
        bytes: n * 4_096,
        stages: [
            StageDelta::default(),
            StageDelta {
                count: n,
                sum_ns: n * queued_ns,
                max_ns: queued_ns,
            },
            StageDelta {
                count: n,
                sum_ns: n * MS,
                max_ns: MS,
            },
        ],
        last_issue_ns: (n > 0).then_some(now - MS),
    };
    let mut groups = Vec::new();
    match i {
        4 => groups.push(group(BACKUP, Class::AsyncWrite, 0, 8, 0)),
        57 => groups.push(group(BACKUP, Class::AsyncWrite, 8, 0, now - MS - inserted)),
        _ => {}
    }
    if reading {
        groups.insert(0, group(READER, Class::SyncRead, READS, READS, 40 * MS));
        groups.sort_by_key(|g| g.key);
    }
    let key = GroupKey {
        dev: SDA,
        owner: BACKUP,
        class: Class::AsyncWrite,
    };
    let reads = READS * (i.min(56) + 1);
    let writes = if i >= 57 { 8 } else { 0 };
    Observation {
        mono_ns: now,
        wall_ns: 1_700_000_000_000_000_000 + (now - BEGIN) as i64,
        facts: if i == 0 { facts() } else { Vec::new() },
        groups,
        devices: vec![DeviceSample {
            dev: SDA,
            issued: reads + writes,
            sync_issued: reads,
            tag_waits: 0,
            completed: reads + writes,
            last_issue_ns: Some(now.min(BEGIN + 57 * TICK) - MS),
            last_complete_ns: Some(now.min(BEGIN + 57 * TICK) - MS),
        }],
        waiting: if waiting {
            vec![Waiting {
                key,
                count: [0, 8, 0],
                bytes: [0, 8 * 4_096, 0],
                oldest_ns: [None, Some(inserted), None],
                idle_prio: false,
            }]
        } else {
            Vec::new()
        },
        waiters: if waiting {
            vec![Waiter {
                key,
                stage: Stage::Queued,
                since_ns: inserted,
                task: Some(Task {
                    pid: 77,
                    comm: "kworker/u4:1".to_owned(),
                }),
                sector: 2_048,
                bytes: 4_096,
                bypasses: (i - 4) * READS,
                seeded: false,
                waits_for: None,
            }]
        } else {
            Vec::new()
        },
        ..Observation::default()
    }
}

/// 65 s: the finding opens at 2 s, gets critical at 11 s, closes 10 s after the readers stop; a status follows.
pub fn starvation() -> Vec<Observation> {
    (0..=260).map(tick).collect()
}

/// A run in this process, as `watch --label site=berlin` makes it.
#[derive(Clone)]
pub struct Run {
    pipeline: Pipeline,
    reporter: Reporter,
    observations: u64,
}

impl Run {
    pub fn new() -> Run {
        Run::judged_by(Settings::default())
    }

    pub fn judged_by(settings: Settings) -> Run {
        let audience = Audience {
            min_severity: Severity::Info,
            focus: Focus::default(),
            status_ns: 60_000_000_000,
            ignore: Vec::new(),
        };
        Run {
            pipeline: Pipeline::new(settings.clone()),
            reporter: Reporter::new(settings, labels(), 250, audience),
            observations: 0,
        }
    }

    pub fn feed(&mut self, o: &Observation) -> Vec<Alert> {
        self.observations += 1;
        let changes = self.pipeline.feed(o);
        self.reporter.tick(o, &changes, &self.pipeline)
    }

    pub fn stop(&mut self) -> Vec<Alert> {
        let changes = self.pipeline.detach();
        self.reporter
            .stop(StopReason::Signal, &changes, &self.pipeline)
    }

    /// A recording that goes on from here.
    pub fn record(&self, rest: &[Observation]) -> NamedTempFile {
        let file = NamedTempFile::new().unwrap();
        let checkpoint = Checkpoint {
            settings: self.pipeline.settings().clone(),
            labels: labels(),
            interval_ms: 250,
            observations: self.observations,
            pipeline: serde_json::to_value(&self.pipeline).unwrap(),
            reporter: serde_json::to_value(&self.reporter).unwrap(),
        };
        let place = Recorder::place(file.path()).unwrap();
        let mut recorder = Recorder::create(place, &checkpoint).unwrap();
        for o in rest {
            recorder.write(o).unwrap();
        }
        recorder.finish().unwrap();
        file
    }
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("site".to_owned(), "berlin".to_owned())])
}

/// The lines of the run that are the same in its replay: about findings.
pub fn about_findings<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let events = [
        "\"event\":\"open\"",
        "\"event\":\"update\"",
        "\"event\":\"close\"",
    ];
    let about = |line: &&str| events.iter().any(|e| line.contains(e));
    lines.into_iter().filter(about).map(str::to_owned).collect()
}
