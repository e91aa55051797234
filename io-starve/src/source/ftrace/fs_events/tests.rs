use super::*;

fn one(line: &str) -> FsEvent {
    match parse(line.as_bytes()) {
        Some(Item::Fs(e)) => e,
        other => panic!("{line:?}: {other:?}"),
    }
}

const SDA1: DevId = DevId::new(8, 1);

#[test]
fn the_three_programs_print_the_same_event() {
    let rest = "dev 8,1 ino 13 parent 2 datasync 1 ";
    for head in [
        "             fio-797     [000] .....    61.072584: ext4_sync_file_enter: ",
        "             fio-797   [000]    61.072584: ext4_sync_file_enter: ",
        "fio   797 [000]    61.072584: ext4:ext4_sync_file_enter: ",
    ] {
        let e = one(&format!("{head}{rest}"));
        assert_eq!(
            (e.ns, e.tid, e.comm),
            (61_072_584_000, 797, Comm::new(b"fio"))
        );
        let (fs, ino, datasync) = (SDA1, 13, true);
        assert_eq!(e.what, FsWhat::SyncEnter { fs, ino, datasync }, "{head}");
    }
}

#[test]
fn every_event_has_its_own_words() {
    let head = "     jbd2/sda1-8-99      [001] ....    10.000001: ";
    let what = |text: &str| one(&format!("{head}{text}")).what;
    let commit = |step| FsWhat::Commit {
        fs: SDA1,
        commit: 5,
        step,
    };
    for (text, step) in [
        (
            "jbd2_start_commit: dev 8,1 transaction 5 sync 0",
            CommitStep::Start,
        ),
        (
            "jbd2_commit_locking: dev 8,1 transaction 5 sync 0",
            CommitStep::Locking,
        ),
        (
            "jbd2_commit_flushing: dev 8,1 transaction 5 sync 0",
            CommitStep::Flushing,
        ),
        (
            "jbd2_commit_logging: dev 8,1 transaction 5 sync 0",
            CommitStep::Logging,
        ),
        (
            "jbd2_end_commit: dev 8,1 transaction 5 sync 0 head 3",
            CommitStep::End,
        ),
        (
            "jbd2_run_stats: dev 8,1 tid 5 wait 0 request_delay 0 running 12 locked 0 flushing 0 logging 8 handle_count 2 blocks 3 blocks_logged 4",
            CommitStep::End,
        ),
    ] {
        assert_eq!(what(text), commit(step), "{text}");
    }
    assert_eq!(
        what(
            "jbd2_handle_stats: dev 8,1 tid 5 type 2 line_no 302 interval 40 sync 0 requested_blocks 2 dirtied_blocks 1"
        ),
        FsWhat::Handle {
            fs: SDA1,
            commit: 5,
            jiffies: 40
        }
    );
    assert_eq!(
        what("jbd2_checkpoint: dev 8,1 result 0"),
        FsWhat::Checkpoint(SDA1)
    );
    assert_eq!(
        what(
            "jbd2_checkpoint_stats: dev 8,1 tid 4 chp_time 8 forced_to_close 0 written 3 dropped 0"
        ),
        FsWhat::CheckpointDone(SDA1)
    );
    assert_eq!(
        what("ext4_sync_file_exit: dev 8,1 ino 13 ret -5"),
        FsWhat::SyncExit(-5)
    );
}

#[test]
fn system_calls_are_told_in_three_ways() {
    let at = "  db-7 [001] .....    10.000001: ";
    for text in ["sys_fsync(fd: 3)", "sys_enter_fsync: fd: 0x00000003"] {
        let e = one(&format!("{at}{text}"));
        assert_eq!(e.what, FsWhat::CallEnter { datasync: false }, "{text}");
    }
    let e = one("db     7 [001]    10.000001: syscalls:sys_enter_fdatasync: fd: 0x00000003");
    assert_eq!(e.what, FsWhat::CallEnter { datasync: true });
    for (text, result) in [
        ("sys_fdatasync -> 0x0", 0),
        ("sys_exit_fsync: 0xfffffffffffffffb", -5),
    ] {
        let e = one(&format!("{at}{text}"));
        assert_eq!(e.what, FsWhat::CallExit(result), "{text}");
    }
    let other = parse(format!("{at}sys_openat(dfd: 3)").as_bytes());
    assert_eq!(other, Some(Item::Foreign));
}

#[test]
fn both_lists_of_a_pause_are_read() {
    let head = "  dd-812 [001] .....    10.000001: balance_dirty_pages: bdi 254:0: ";
    let rest = "dirty_ratelimit=2048 task_ratelimit=1024 dirtied=32 dirtied_pause=32 paused=0 pause=200 period=200 think=0";
    for (wb, last) in [
        ("bdi", ""),
        ("wb", " cgroup_ino=1"),
        ("wb", " cgroup_ino=77"),
    ] {
        let text = format!(
            "{head}limit=100 setpoint=88 dirty=90 {wb}_setpoint=8 {wb}_dirty=9 {rest}{last}"
        );
        let FsWhat::Pause(p) = one(&text).what else {
            panic!("{text}")
        };
        assert_eq!((p.bdi.text().as_str(), p.pause_ms), ("254:0", 200));
        assert_eq!((p.limit, p.setpoint, p.dirty), (100, 88, 90));
        assert_eq!((p.bdi_setpoint, p.bdi_dirty), (8, 9));
        assert_eq!((p.bdi_rate, p.task_rate), (2_048, 1_024));
        // The root is also what cgroup v1 makes of everybody.
        assert_eq!(p.cgroup, last.ends_with("77").then_some(77));
    }
    let free = format!("{head}limit=1 setpoint=1 dirty=1 wb_setpoint=1 wb_dirty=1 pause=-4");
    assert_eq!(parse(free.as_bytes()), Some(Item::Foreign));
}

#[test]
fn what_is_cut_is_unreadable_and_what_is_not_needed_foreign() {
    let head = "  x-7 [001] .....    10.000001: ";
    for text in [
        "jbd2_start_commit: dev 8,1 transac",
        "ext4_sync_file_enter: dev 8",
        "balance_dirty_pages: bdi 254:0: limit=1",
        "sys_fsync -> ",
    ] {
        let item = parse(format!("{head}{text}").as_bytes());
        assert_eq!(item, Some(Item::Unreadable), "{text}");
    }
    for text in [
        "jbd2_drop_transaction: dev 8,1 transaction 4 sync 0",
        "jbd2_shr",
    ] {
        let item = parse(format!("{head}{text}").as_bytes());
        assert_eq!(item, Some(Item::Foreign), "{text}");
    }
    assert_eq!(parse(b"  jbd2_start_commit x"), None);
}
