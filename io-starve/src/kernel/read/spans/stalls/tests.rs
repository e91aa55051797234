use super::*;

/// A procfs with tasks whose stacks, folders and calls are given.
struct Proc(tempfile::TempDir);

const SPACE: &[&str] = &[
    "mutex_lock_io",
    "__jbd2_log_wait_for_space",
    "do_mkdirat",
    "__x64_sys_mkdir",
];
const WRITE: &[&str] = &[
    "wait_transaction_locked",
    "start_this_handle",
    "ksys_write",
    "__x64_sys_write",
];
const ROOM: &[&str] = &[
    "__wait_on_buffer",
    "jbd2_log_do_checkpoint",
    "__x64_sys_openat",
];
const A: DevId = DevId::new(8, 1);
const B: DevId = DevId::new(8, 2);
const C: DevId = DevId::new(8, 3);

impl Proc {
    fn new() -> Proc {
        Proc(tempfile::tempdir().unwrap())
    }

    fn stack(&self, tid: u32, functions: &[&str]) {
        let lines: String = functions
            .iter()
            .map(|f| format!("[<0>] {f}+0x1/0x2\n"))
            .collect();
        self.write(tid, "stack", &lines);
    }

    fn write(&self, tid: u32, name: &str, text: &str) {
        let file = self.0.path().join(tid.to_string()).join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn mounts(&self, tid: u32) {
        let root = "21 1 8:9 / / rw - ext4 /dev/r rw\n";
        let a = "30 21 8:1 / /srv/a\\040b rw - ext4 /dev/a rw\n";
        let b = "31 21 8:2 / /srv rw - ext4 /dev/b rw\n";
        self.write(tid, "mountinfo", &format!("{root}{b}{a}"));
    }
}

fn task(tid: u32, switches: u64) -> SleepingTask {
    SleepingTask {
        owner: 7,
        switches,
        tid,
        handle: 0,
    }
}

fn look(
    stalls: &mut Stalls,
    proc_: &Proc,
    tasks: &[SleepingTask],
    busy: &[Busy],
    now: u64,
) -> Found {
    stalls.look(proc_.0.path(), tasks, busy, &BTreeSet::from([99]), now)
}

#[test]
fn a_wait_has_a_length_from_its_second_tick_to_the_first_without_it() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    proc_.stack(5, SPACE);
    let mut at =
        |tasks: &[SleepingTask], now| look(&mut stalls, &proc_, tasks, &[(A, None)], now).calls;
    assert_eq!(at(&[task(5, 3)], 100), []);
    let [running] = &at(&[task(5, 4)], 200)[..] else {
        panic!()
    };
    assert_eq!(
        (running.begin_ns, running.end_ns, running.call, running.fs),
        (100, None, Call::Mkdir, A)
    );
    let [ended] = &at(&[], 300)[..] else { panic!() };
    assert_eq!((ended.begin_ns, ended.end_ns), (100, Some(300)));
    assert_eq!(at(&[], 400), []);
}

#[test]
fn who_was_awake_in_between_waits_anew() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    proc_.stack(5, SPACE);
    let mut begins = |switches, now| {
        let calls = look(&mut stalls, &proc_, &[task(5, switches)], &[(A, None)], now).calls;
        calls
            .iter()
            .map(|c| (c.begin_ns, c.end_ns))
            .collect::<Vec<_>>()
    };
    assert_eq!(begins(3, 100), []);
    assert_eq!(begins(5, 200), [(100, None)]);
    assert_eq!(begins(50, 300), [], "another wait: seen once");
    assert_eq!(begins(50, 400), [(300, None)]);
}

#[test]
fn who_makes_room_sleeps_often_in_one_wait() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    proc_.stack(5, ROOM);
    for (switches, now) in [(1, 100), (500, 200), (900, 300)] {
        let calls = look(
            &mut stalls,
            &proc_,
            &[task(5, switches)],
            &[(A, Some(5))],
            now,
        )
        .calls;
        assert!(calls.iter().all(|c| c.begin_ns == 100), "{calls:?}");
    }
    assert!(stalls.any());
}

#[test]
fn fsyncs_and_other_sleeps_are_no_waits_and_an_open_handle_is_told() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    proc_.stack(99, SPACE);
    proc_.stack(6, &["io_schedule", "__x64_sys_read"]);
    let holder = SleepingTask {
        handle: 1,
        ..task(6, 1)
    };
    let found = look(
        &mut stalls,
        &proc_,
        &[task(99, 1), holder, task(7, 1)],
        &[(A, None)],
        100,
    );
    assert!(!stalls.any());
    assert_eq!(found.holders, [(Owner::Cgroup(7), 6)]);
}

#[test]
fn among_several_journals_the_file_or_the_folder_tells_and_else_nobody() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    let busy = [(A, Some(9)), (B, Some(8)), (C, None)];
    let folder = |tid: u32, folder: &str| {
        let cwd = proc_.0.path().join(tid.to_string()).join("cwd");
        std::os::unix::fs::symlink(folder, cwd).unwrap();
    };
    for tid in [5, 6, 7, 10] {
        proc_.stack(tid, if tid == 5 { WRITE } else { SPACE });
        proc_.mounts(tid);
    }
    proc_.write(
        5,
        "syscall",
        "1 0x4 0x7ffc 0x10 0x0 0x0 0x0 0x7ffc 0x7f00\n",
    );
    proc_.write(5, "fdinfo/4", "pos:\t0\nflags:\t01\nmnt_id:\t30\n");
    folder(6, "/srv/a b/deep");
    folder(7, "/home");
    proc_.stack(8, ROOM);
    folder(10, "/home");
    proc_.write(10, "fdinfo/0", "pos:\t0\nmnt_id:\t21\n");
    proc_.write(10, "fdinfo/7", "pos:\t0\nmnt_id:\t31\n");
    let tasks = [task(5, 1), task(6, 1), task(7, 1), task(8, 1), task(10, 1)];
    let mut at = |now| look(&mut stalls, &proc_, &tasks, &busy, now).calls;
    at(100);
    let fs: Vec<_> = at(200).iter().map(|c| (c.tid, c.fs)).collect();
    assert_eq!(fs, [(5, A), (6, A), (8, B), (10, B)]);
    at(300);
    assert_eq!(
        stalls.missed(),
        1,
        "one wait of no known journal, counted once"
    );
}

#[test]
fn who_waits_for_room_waits_for_the_one_journal_in_which_some_is_made() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    proc_.stack(5, SPACE);
    for now in [100, 200] {
        look(
            &mut stalls,
            &proc_,
            &[task(5, 1)],
            &[(A, None), (B, Some(8)), (C, None)],
            now,
        );
    }
    let fs: Vec<_> = stalls.waits.values().map(|w| w.span.fs).collect();
    assert_eq!(fs, [B]);
}

#[test]
fn where_more_sleep_than_can_be_looked_at_they_take_turns_and_a_known_wait_goes_on() {
    let (proc_, mut stalls) = (Proc::new(), Stalls::default());
    let busy = [(A, None)];
    let waiter = 1_000;
    proc_.stack(waiter, SPACE);
    // More than can be looked at in one tick, awake in between each time, and before the waiter in the list.
    let crowd = |n: u64| -> Vec<SleepingTask> {
        let others = (1..=STACKS as u32 + 20).map(|tid| task(tid, n * 100));
        others.chain([task(waiter, n)]).collect()
    };
    let mut at = |n| look(&mut stalls, &proc_, &crowd(n), &busy, n * 100).calls;
    assert_eq!(at(1), []);
    assert_eq!(at(2), [], "its turn: seen once");
    for n in 3..6 {
        let [running] = &at(n)[..] else {
            panic!("lost at tick {n}")
        };
        assert_eq!((running.begin_ns, running.end_ns), (200, None));
    }
}
