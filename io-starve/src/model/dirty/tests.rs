use super::*;
use crate::model::Model;
use crate::model::observation::{
    Busy, Call, DeviceFact, Fact, FilesystemFact, Fsync, GroupKey, PauseDelta, Stage, Waiter,
};

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const LOOP: DevId = DevId::new(7, 0);
const DISK: DevId = DevId::new(8, 0);

fn looped(dev: DevId, name: &str, below: DevId) -> Fact {
    Fact::Loop(LoopFact {
        dev,
        name: name.to_owned(),
        file: format!("/srv/{name}.img"),
        deleted: false,
        fs: Some(below),
        below: vec![below],
        direct_io: Some(false),
        offset: Some(0),
    })
}

fn pause(bdi: &str, owner: u64, tid: u32, worker: Option<&str>, begin_ms: u64, ms: u64) -> Pause {
    Pause {
        bdi: bdi.to_owned(),
        dev: (bdi == "7:0").then_some(LOOP),
        owner: Owner::Cgroup(owner),
        tid,
        task: Some(Task {
            pid: tid,
            comm: "dd".to_owned(),
        }),
        worker: worker.map(|name| Worker {
            name: name.to_owned(),
            pooled: false,
        }),
        begin_ns: begin_ms * MS,
        end_ns: (begin_ms + ms) * MS,
        figures: None,
    }
}

fn waiter(owner: u64, class: Class, comm: &str, pid: u32, since_ms: u64) -> Waiter {
    Waiter {
        key: GroupKey {
            dev: LOOP,
            owner: Owner::Cgroup(owner),
            class,
        },
        stage: Stage::Device,
        since_ns: since_ms * MS,
        task: Some(Task {
            pid,
            comm: comm.to_owned(),
        }),
        sector: 0,
        bytes: 4096,
        bypasses: 0,
        seeded: false,
        waits_for: None,
    }
}

fn at(ms: u64) -> Observation {
    Observation {
        mono_ns: ms * MS,
        ..Observation::default()
    }
}

#[test]
fn tasks_that_pause_at_once_are_one_time_and_two_sums() {
    let mut model = Model::default();
    model.apply(&at(10_000));
    model.apply(&Observation {
        facts: vec![looped(LOOP, "loop0", DISK)],
        pauses: vec![
            pause("7:0", 28, 100, None, 10_000, 100),
            pause("7:0", 28, 101, None, 10_050, 100),
            pause("7:0", 29, 102, None, 10_300, 100),
            pause("8:0", 1, 9, Some("loop0"), 10_010, 60),
        ],
        pause_counts: vec![
            PauseDelta {
                bdi: "7:0".to_owned(),
                owner: Owner::Cgroup(28),
                worker: None,
                count: 5,
                sum_ns: 500 * MS,
            },
            PauseDelta {
                bdi: "8:0".to_owned(),
                owner: Owner::Cgroup(1),
                worker: Some("loop0".to_owned()),
                count: 1,
                sum_ns: 60 * MS,
            },
        ],
        ..at(10_350)
    });
    let dirty = model.dirty();
    let (from, now) = (5 * S, 10_350 * MS);
    let on_loop = dirty.paused(from, now, |(bdi, _, _), _| bdi == "7:0");
    assert_eq!(
        on_loop.sum(),
        200 * MS,
        "what is still to come does not count"
    );
    assert_eq!(dirty.worker_paused(LOOP, from, now).sum(), 60 * MS);
    assert_eq!(dirty.totals()[&("7:0".to_owned(), None)], (5, 500 * MS));
    let stream = &dirty.streams()[&("7:0".to_owned(), Owner::Cgroup(29), None)];
    assert_eq!(stream.tasks_at(now).count(), 1, "paused now");
    assert_eq!(stream.longest(from), 100 * MS);
    let stream = &dirty.streams()[&("7:0".to_owned(), Owner::Cgroup(28), None)];
    assert_eq!(
        (stream.tasks_at(now).count(), stream.since(from)),
        (0, (5, 500 * MS))
    );
}

#[test]
fn ten_seconds_later_only_the_totals_are_left() {
    let mut model = Model::default();
    model.apply(&Observation {
        pauses: vec![pause("7:0", 28, 100, None, 10_000, 100)],
        pause_counts: vec![PauseDelta {
            bdi: "7:0".to_owned(),
            owner: Owner::Cgroup(28),
            worker: None,
            count: 1,
            sum_ns: 100 * MS,
        }],
        busy: vec![Busy {
            dev: DISK,
            busy_ms: 7,
        }],
        ..at(10_250)
    });
    model.apply(&at(20_000));
    assert_eq!(model.dirty().streams().len(), 1);
    model.apply(&at(20_250));
    assert_eq!(model.dirty().streams().len(), 0);
    assert_eq!(model.dirty().busy_share(DISK, 0, 30 * S), None);
    assert_eq!(model.dirty().totals().len(), 1);
}

#[test]
fn busy_is_told_by_two_looks_and_idle_by_the_ticks_of_the_pauses() {
    let mut model = Model::default();
    let busy = |ms: u64, busy_ms: u64| Observation {
        busy: vec![Busy { dev: DISK, busy_ms }],
        ..at(ms)
    };
    model.apply(&busy(10_000, 5_000));
    assert_eq!(model.dirty().busy_share(DISK, 0, 10 * S), None);
    model.apply(&busy(10_250, 5_250));
    model.apply(&busy(10_500, 5_250));
    let share = model.dirty().busy_share(DISK, 0, 11 * S).unwrap();
    assert!((share - 0.5).abs() < 1e-9, "{share}");
    let mut times = Intervals::default();
    times.add(10_300 * MS, 10_400 * MS);
    assert_eq!(model.dirty().idle_share(DISK, &times), Some(1.0));
    times.add(10_100 * MS, 10_200 * MS);
    assert_eq!(model.dirty().idle_share(DISK, &times), Some(0.5));
    assert_eq!(model.dirty().idle_share(DISK, &Intervals::default()), None);
    assert_eq!(model.dirty().busy_share(LOOP, 0, 11 * S), None, "not told");
}

#[test]
fn who_waits_behind_the_worker_is_who_is_not_braked_himself() {
    let mut model = Model::default();
    model.apply(&Observation {
        facts: vec![looped(LOOP, "loop0", DISK)],
        ..at(10_000)
    });
    let waiters = vec![
        waiter(30, Class::SyncRead, "cat", 300, 9_900),
        waiter(30, Class::SyncRead, "cat", 301, 10_100),
        waiter(28, Class::SyncWrite, "dd", 100, 10_000),
        waiter(31, Class::SyncWrite, "db", 310, 10_050),
        waiter(1, Class::SyncWrite, "jbd2/loop0-8", 50, 10_000),
        waiter(28, Class::AsyncWrite, "kworker/u4:1", 51, 10_000),
    ];
    model.apply(&Observation {
        pauses: vec![
            pause("7:0", 28, 100, None, 10_000, 200),
            // A small writer is paused too, for less than a tenth of the time.
            pause("7:0", 31, 310, None, 10_000, 20),
            pause("8:0", 1, 9, Some("loop0"), 10_000, 200),
        ],
        waiters,
        ..at(10_250)
    });
    let of = |owner: u64, class| {
        model
            .dirty()
            .behind(LOOP)
            .find(|(o, c, _)| *o == Owner::Cgroup(owner) && *c == class)
            .map(|(_, _, b)| b.since(5 * S))
    };
    assert_eq!(of(30, Class::SyncRead), Some((200 * MS, 200 * MS)));
    assert_eq!(of(31, Class::SyncWrite), Some((150 * MS, 150 * MS)));
    assert_eq!(
        of(28, Class::SyncWrite),
        None,
        "the writer waits for itself"
    );
    assert_eq!(model.dirty().behind(LOOP).count(), 2);
    assert_eq!(model.dirty().behind(DISK).count(), 0);
    // What goes on waiting counts on from the last tick.
    model.apply(&Observation {
        pauses: vec![pause("8:0", 1, 9, Some("loop0"), 10_300, 200)],
        waiters: vec![waiter(30, Class::SyncRead, "cat", 300, 9_900)],
        ..at(10_500)
    });
    let (_, _, cat) = model.dirty().behind(LOOP).next().unwrap();
    assert_eq!(cat.since(5 * S), (400 * MS, 400 * MS));
}

#[test]
fn an_fsync_on_a_loop_device_waits_behind_its_worker_whoever_writes_its_journal() {
    let fs = FilesystemFact {
        dev: LOOP,
        fstype: "ext4".to_owned(),
        mountpoint: "/mnt/in".to_owned(),
        source: "/dev/loop0".to_owned(),
        options: String::new(),
        queues: vec![LOOP],
    };
    let fsync = |tid: u32, end_ms: Option<u64>| Fsync {
        call: Call::Fsync,
        fs: LOOP,
        ino: 12,
        file: None,
        owner: Owner::Cgroup(31),
        tid,
        task: Some(Task {
            pid: tid,
            comm: "db".to_owned(),
        }),
        begin_ns: 10_050 * MS,
        end_ns: end_ms.map(|ms| ms * MS),
        datasync: false,
        journal_ns: None,
        commit: None,
        flush_ns: None,
        waits_for: None,
        result: 0,
    };
    let mut model = Model::default();
    model.apply(&Observation {
        facts: vec![looped(LOOP, "loop0", DISK), Fact::Filesystem(fs)],
        ..at(10_000)
    });
    model.apply(&Observation {
        pauses: vec![
            pause("7:0", 28, 100, None, 10_000, 200),
            pause("8:0", 1, 9, Some("loop0"), 10_000, 200),
        ],
        // The writer's own sync is no victim's.
        fsyncs: vec![fsync(310, Some(10_150)), fsync(100, None)],
        ..at(10_250)
    });
    let behind: Vec<_> = model.dirty().behind(LOOP).collect();
    let [(Owner::Cgroup(31), Class::SyncWrite, b)] = behind[..] else {
        panic!("{behind:?}");
    };
    assert_eq!(b.since(5 * S), (100 * MS, 100 * MS), "until it ended");
    assert_eq!(b.task.as_ref().map(|t| t.pid), Some(310));
}

#[test]
fn stacks_go_down_through_loops_and_dm() {
    let mut model = Model::default();
    let (upper, dm) = (DevId::new(7, 1), DevId::new(254, 0));
    let fact = DeviceFact {
        dev: dm,
        name: "dm-0 (vg-root)".to_owned(),
        scheduler: None,
        tunables: Vec::new(),
        below: vec![DISK],
        rotational: None,
        iocost: None,
        backing_file: None,
    };
    model.apply(&Observation {
        facts: vec![
            looped(upper, "loop1", LOOP),
            looped(LOOP, "loop0", dm),
            Fact::Device(fact),
        ],
        ..at(1)
    });
    assert_eq!(model.stack(upper), [upper, LOOP, dm, DISK]);
    assert_eq!(model.bottom(upper), [DISK]);
    assert!(model.writes_to(upper, upper) && model.writes_to(dm, DISK));
    assert!(
        !model.writes_to(upper, LOOP),
        "a loop device is a writer itself"
    );
    model.apply(&Observation {
        facts: vec![Fact::LoopGone { dev: LOOP }, looped(DISK, "loop9", DISK)],
        ..at(2)
    });
    assert_eq!(model.stack(upper), [upper, LOOP]);
    assert_eq!(
        model.dirty().loops()[&LOOP].fact.name,
        "loop0",
        "its name stays"
    );
    assert_eq!(model.stack(DISK), [DISK], "facts that go round");
}
