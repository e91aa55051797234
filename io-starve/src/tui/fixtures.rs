//! Snapshots to draw: figures of a starvation as it was met in a VM, and machines around it.

mod crowd;
mod dirty;
mod fsync;
mod shares;
mod trail;

use io_starve_common::{class::Class, hist, wire::LossKind};

use crate::{
    detect::finding::{
        CloseReason, Confidence, Culprit, Evidence, Finding, Kind, LossNote, Mechanism, Place,
        Rule, Severity,
    },
    model::{
        observation::{
            CgroupFact, CgroupMode, DevId, Hook, HostFact, Owner, Stage, Task, Topic, Verdict,
            WaitsFor,
        },
        snapshot::{
            ClassView, DeviceView, Dist, OwnerName, OwnerView, Places, Snapshot, WaiterView,
        },
        trail::{ROWS, row},
    },
};

pub use self::crowd::crowded;
pub use self::dirty::{dirty_hook, throttled};
pub use self::fsync::{journal_hooks, quiet, serialized};
pub use self::shares::shared;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const NOW: u64 = 5_000 * S;
const SDA: DevId = DevId::new(8, 0);
const READER: Owner = Owner::Cgroup(4_711);
const BACKUP: Owner = Owner::Cgroup(4_712);

fn name(id: u64, path: &str) -> OwnerName {
    let unit = path
        .rsplit('/')
        .next()
        .filter(|n| n.ends_with(".service"))
        .map(str::to_owned);
    let cgroup = CgroupFact {
        id,
        path: path.to_owned(),
        unit,
        ..CgroupFact::default()
    };
    OwnerName {
        owner: Owner::Cgroup(id),
        cgroup,
        gone: false,
        pressure: None,
    }
}

fn task(pid: u32, comm: &str) -> Task {
    Task {
        pid,
        comm: comm.to_owned(),
    }
}

fn hook(name: &str, verdict: Verdict, question: &str) -> Hook {
    Hook {
        name: name.to_owned(),
        verdict,
        question: question.to_owned(),
        topic: Topic::Requests,
    }
}

fn hooks() -> Vec<Hook> {
    let tp_btf = || Verdict::Attached {
        via: "tp_btf".to_owned(),
    };
    vec![
        hook(
            "block_rq_insert",
            tp_btf(),
            "how long requests wait in the scheduler",
        ),
        hook("block_rq_issue", tp_btf(), "what is served"),
        hook(
            "block_rq_requeue",
            tp_btf(),
            "which requests were sent back",
        ),
        hook(
            "block_rq_merge",
            tp_btf(),
            "which requests became part of others",
        ),
        hook("block_rq_complete", tp_btf(), "how long the device takes"),
        hook(
            "block_bio_queue",
            tp_btf(),
            "what is kept back before the scheduler",
        ),
        hook(
            "block_getrq",
            tp_btf(),
            "what is kept back before the scheduler",
        ),
        hook(
            "block_rq_tag_wait",
            Verdict::Absent,
            "which requests wait for a tag",
        ),
    ]
}

/// Attached, nothing read yet but the facts.
pub fn attached() -> Snapshot {
    Snapshot {
        mono_ns: NOW,
        // 2026-03-14 13:03:22 UTC.
        wall_ns: 1_773_493_402_000_000_000,
        host: Some(HostFact {
            name: "db-07".to_owned(),
            kernel: "6.12.48+deb13-amd64".to_owned(),
            cgroups: CgroupMode::V2,
        }),
        hooks: hooks(),
        verdict: "attached; no request seen yet".to_owned(),
        pressure: Some((0.0, 0.0)),
        ..Snapshot::default()
    }
}

fn dist(count: u64, p50: u64, p99: u64, max: u64) -> Dist {
    Dist {
        count,
        p50_ns: Some(p50),
        p99_ns: Some(p99),
        max_ns: Some(max),
        rows: rows(&[(count - count / 50, p50), (count / 50, p99)]),
    }
}

fn rows(counts: &[(u64, u64)]) -> [u64; ROWS] {
    let mut rows = [0; ROWS];
    for (count, ns) in counts {
        rows[row(hist::bucket(*ns) as usize)] += count;
    }
    rows
}

fn waiter(owner: Owner, class: Class, age_ns: u64, task: Task) -> WaiterView {
    WaiterView {
        owner,
        class,
        stage: Stage::Queued,
        age_ns,
        task: Some(task),
        bypasses: 0,
        waits_for: None,
    }
}

fn owner_view(owner: Owner, class: Class, iops: f64, waiting: [u64; 3]) -> OwnerView {
    OwnerView {
        owner,
        class,
        iops,
        bytes_per_s: iops * 4096.0,
        waiting,
        mean_ns: [None, Some(46 * MS), Some(6_600_000)],
        oldest_ns: Some(58 * MS),
        pressure: None,
    }
}

fn sda() -> DeviceView {
    let read = waiter(READER, Class::SyncRead, 58 * MS, task(812, "fio"));
    let write = WaiterView {
        bypasses: 4_802,
        ..waiter(
            BACKUP,
            Class::AsyncWrite,
            17 * S,
            task(231, "kworker/u8:2+flush-8:0"),
        )
    };
    let tunables = [
        ("iosched/async_depth", "48"),
        ("iosched/read_expire", "500"),
        ("iosched/write_expire", "5000"),
        ("iosched/writes_starved", "100000"),
        ("nr_requests", "64"),
        ("wbt_lat_usec", "0"),
    ];
    DeviceView {
        dev: SDA,
        name: "sda".to_owned(),
        scheduler: Some("mq-deadline".to_owned()),
        tunables: tunables.map(|(f, v)| (f.to_owned(), v.to_owned())).to_vec(),
        iops: 300.2,
        bytes_per_s: 300.2 * 4096.0,
        waiting: [0, 62, 2],
        places: Places {
            dirty: Some(0),
            held: Some(0),
            admission: Some(0),
            queued: Some(62),
            device: Some(2),
        },
        classes: vec![
            ClassView {
                class: Class::SyncRead,
                iops: 300.2,
                bytes_per_s: 300.2 * 4096.0,
                share: 1.0,
                stages: [
                    Dist::default(),
                    dist(1501, 46 * MS, 55 * MS, 61 * MS),
                    dist(1501, 6_600_000, 7 * MS, 9 * MS),
                ],
                waiting: [0, 14, 2],
                oldest: Some(read.clone()),
            },
            ClassView {
                class: Class::AsyncWrite,
                iops: 0.0,
                bytes_per_s: 0.0,
                share: 0.0,
                stages: [Dist::default(); 3],
                waiting: [0, 48, 0],
                oldest: Some(write.clone()),
            },
        ],
        owners: vec![
            OwnerView {
                mean_ns: [None; 3],
                bytes_per_s: 0.0,
                oldest_ns: Some(17 * S),
                pressure: Some((96.2, 96.0)),
                ..owner_view(BACKUP, Class::AsyncWrite, 0.0, [0, 48, 0])
            },
            OwnerView {
                pressure: Some((99.0, 98.7)),
                ..owner_view(READER, Class::SyncRead, 300.2, [0, 14, 2])
            },
        ],
        waiters: vec![write.clone(), read],
        oldest: Some(write),
        oldest_ns: Some(17 * S),
        trail: trail::ramp(17),
        instead: None,
    }
}

fn starved() -> Finding {
    Finding {
        id: "async-write-starvation-8:0-1".to_owned(),
        kind: Kind::AsyncWriteStarvation,
        severity: Severity::Critical,
        confidence: Confidence::Sure,
        since_ns: NOW - 17 * S,
        opened_ns: NOW - 16 * S,
        last_met_ns: NOW,
        closed: None,
        device: Some(SDA),
        victim: BACKUP,
        class: Some(Class::AsyncWrite),
        task: Some(task(231, "kworker/u8:2+flush-8:0")),
        culprits: vec![Culprit {
            owner: READER,
            class: Class::SyncRead,
            share: 1.0,
            issues: 5_103,
            tasks: vec![task(812, "fio"), task(813, "fio"), task(814, "fio")],
            delay_ns: None,
            limit: None,
        }],
        mechanism: Mechanism::Scheduler,
        stage: Place::Queued,
        duration_ns: 17 * S,
        longest_ns: 17 * S,
        threshold_ns: S,
        evidence: Evidence {
            rule: Some(Rule::Withheld),
            scheduler: Some("mq-deadline".to_owned()),
            tunables: vec![("iosched/writes_starved".to_owned(), "100000".to_owned())],
            oldest_ms: Some(17_000),
            waiting: Some(48),
            backlog_bytes: Some(201 << 20),
            backlog_needs_ms: None,
            gap_ms: Some(17_000),
            issues: Some(0),
            issues_of_others: Some(5_103),
            issue_share: Some(0.0),
            waited_share: Some(1.0),
            bypasses: Some(4_802),
            before_attach: false,
            fsync: None,
            looped: None,
            dirty: None,
            weights: None,
        },
        advice: vec![
            "Lower /sys/block/sda/queue/iosched/writes_starved (100000 now, 2 by default): it is how many batches of reads go before one of writes.".to_owned(),
            "Limit the readers: io.max on /reader.service.".to_owned(),
        ],
        loss: LossNote::default(),
        sync: None,
    }
}

fn closed() -> Finding {
    Finding {
        id: "read-starvation-8:0-0".to_owned(),
        kind: Kind::ReadStarvation,
        severity: Severity::Warning,
        confidence: Confidence::Likely,
        since_ns: NOW - 95 * S,
        closed: Some((NOW - 60 * S, CloseReason::Resolved)),
        victim: READER,
        class: Some(Class::SyncRead),
        task: Some(task(812, "fio")),
        culprits: vec![Culprit {
            owner: BACKUP,
            class: Class::AsyncWrite,
            share: 0.91,
            issues: 812,
            tasks: vec![],
            delay_ns: None,
            limit: None,
        }],
        duration_ns: 25 * S,
        longest_ns: 2_412 * MS,
        ..starved()
    }
}

/// 16 direct readers keep the writeback of a backup waiting on mq-deadline with `writes_starved` raised.
pub fn starving() -> Snapshot {
    Snapshot {
        elapsed_ns: 40 * S,
        requests_seen: 12_034,
        devices: vec![sda()],
        findings: vec![starved(), closed()],
        verdict: "async-write of /backup.service on sda is issued nothing for 17.0 s while /reader.service is served; the scheduler prefers it".to_owned(),
        owners: vec![name(4_711, "/reader.service"), name(4_712, "/backup.service")],
        pressure: Some((98.7, 96.1)),
        own_cpu: Some(0.021),
        ..attached()
    }
}

/// The same disk with nobody in need.
pub fn healthy() -> Snapshot {
    let mut device = sda();
    device.waiting = [0, 1, 2];
    device.oldest = None;
    device.waiters.clear();
    device.oldest_ns = Some(4 * MS);
    device.places.queued = Some(1);
    device.trail = trail::ramp(0);
    for class in &mut device.classes {
        class.waiting = [0, 0, 1];
        class.oldest = None;
        class.iops = 150.1;
        class.bytes_per_s = 150.1 * 4096.0;
        class.stages = [
            Dist::default(),
            dist(751, 3 * MS, 9 * MS, 14 * MS),
            dist(751, 3 * MS, 7 * MS, 9 * MS),
        ];
    }
    for owner in &mut device.owners {
        owner.oldest_ns = None;
        owner.iops = 150.1;
        owner.bytes_per_s = 150.1 * 4096.0;
        owner.waiting = [0, 0, 1];
        owner.mean_ns = [None, Some(3 * MS), Some(3 * MS)];
        owner.pressure = Some((3.2, 1.0));
    }
    Snapshot {
        devices: vec![device],
        findings: vec![],
        verdict: "no findings; 12,034 requests seen, hooks 7 of 7, nothing lost".to_owned(),
        pressure: Some((4.1, 0.9)),
        ..starving()
    }
}

/// Hooks were refused and events lost, while something starves.
pub fn lossy() -> Snapshot {
    let mut snap = starving();
    let refused = || Verdict::Refused {
        why: "Operation not permitted (os error 1)".to_owned(),
    };
    for hook in &mut snap.hooks {
        if matches!(
            hook.name.as_str(),
            "block_bio_queue" | "block_getrq" | "block_rq_merge"
        ) {
            hook.verdict = refused();
        }
    }
    snap.loss = vec![(LossKind::SlotsFull, 1_204), (LossKind::SkippedRuns, 17)];
    let finding = &mut snap.findings[0];
    finding.severity = Severity::Warning;
    finding.confidence = Confidence::Likely;
    finding.victim = Owner::Other;
    finding.culprits[0].owner = Owner::Unknown;
    finding.loss = LossNote {
        events: 1_221,
        missing: vec!["what is kept back before the scheduler".to_owned()],
    };
    finding.evidence = Evidence {
        rule: Some(Rule::Crawling),
        issue_share: Some(0.04),
        ..Evidence::default()
    };
    snap.devices[0].scheduler = None;
    snap.devices[0].tunables.clear();
    snap.pressure = None;
    snap
}

/// Every snapshot with its name.
pub fn all() -> [(&'static str, Snapshot); 8] {
    [
        ("empty", Snapshot::default()),
        ("attached", attached()),
        ("healthy", healthy()),
        ("starving", starving()),
        ("lossy", lossy()),
        ("crowded", crowded()),
        ("serialized", serialized()),
        ("throttled", throttled()),
    ]
}
