//! A hook that is gone for a moment, while requests go on.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{
    endings::Load,
    machine::{Disk, Watch, fio_in_background, io_starve, programs_of, until},
};

/// What goes on all the while.
const STEADY: &str = "[steady]\nthread\nrw=randread\nbs=4k\ndirect=1\nioengine=libaio\niodepth=4\nsize=64m\n\
    time_based\nruntime=600\n";
/// So deep that most of its requests are not used again when it ends.
const DEEP: &str = "[deep]\nthread\nrw=randrw\nbs=4k\ndirect=1\nioengine=libaio\niodepth=128\noffset=64m\nsize=64m\n\
    time_based\nruntime=600\n";
/// Readers that leave a scheduler with `writes_starved` no time for writes.
const READERS: &str = "[readers]\nthread\nrw=randread\nbs=1m\ndirect=1\nioengine=libaio\niodepth=384\nnumjobs=4\n\
    size=128m\ntime_based\nruntime=600\n";
const WRITER: &str = "[writer]\nthread\nrw=write\nbs=64k\nioengine=psync\nsync_file_range=write:16\noffset=128m\nsize=128m\n\
    time_based\nruntime=600\n";
/// Some hundred milliseconds of such loads.
const MISSED: u64 = 20_000;

/// Requests that the disk completed since it is there (Documentation/block/stat.rst): reads and writes.
fn completions(disk: &Disk) -> u64 {
    let stat = fs::read_to_string(format!("/sys/block/{}/stat", disk.name())).unwrap();
    let field = |n| -> u64 { stat.split_whitespace().nth(n).unwrap().parse().unwrap() };
    field(0) + field(4)
}

fn sum(event: &Value, field: &str) -> u64 {
    let accounts = event["accounts"].as_array().unwrap();
    accounts.iter().map(|a| a[field].as_u64().unwrap()).sum()
}

fn lost(event: &Value, kind: &str) -> u64 {
    event["loss"]["kinds"][kind].as_u64().unwrap_or(0)
}

fn load(disk: &Disk, job: &str) -> Load {
    Load(fio_in_background(disk, job))
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn a_hook_that_is_gone_for_a_moment_leaves_no_ghost() {
    let disk = Disk::new(256 << 20, "mq-deadline");
    let faults = tempfile::tempdir().unwrap();
    let gone = faults.path().join("without-block_rq_complete");
    let mut command = io_starve();
    command.env("IO_STARVE_FAULTS", faults.path());
    let watch = Watch::spawn(&disk, &["--stuck-ms", "1000"], &mut command);
    let steady = load(&disk, STEADY);
    let deep = load(&disk, DEEP);
    watch.wait_for("the loads are seen", |watch| {
        (sum(&watch.last_status()?, "finished") > 1_000).then_some(())
    });

    let with = programs_of(watch.pid());
    fs::write(&gone, "").unwrap();
    let without: BTreeSet<u64> = until("the hook is detached", || {
        let now = programs_of(watch.pid());
        (now.len() + 1 == with.len()).then_some(now)
    });
    assert!(without.is_subset(&with));
    let begin = completions(&disk);
    until("completions that the program does not see", || {
        (completions(&disk) >= begin + MISSED).then_some(())
    });
    // Its last completions are missed too, and its requests are gone for good.
    drop(deep);
    let missed = completions(&disk) - begin;
    fs::remove_file(&gone).unwrap();
    until("the hook is attached again", || {
        (programs_of(watch.pid()).len() == with.len()).then_some(())
    });

    // Each life whose end was missed ends when its request begins a new one, or is given up.
    watch.wait_for("what was missed is given up", |watch| {
        let status = watch.last_status()?;
        (sum(&status, "expired") >= missed && lost(&status, "expired") > 0).then_some(())
    });
    let given_up = watch.last_status().unwrap();
    // A request that was believed to be in the device still would be found when it seems to be 1 s old, or with its disk.
    watch.wait_for("a ghost has had its time", |watch| {
        let now = watch.last_status()?["mono_ns"].as_u64()?;
        (now > given_up["mono_ns"].as_u64()? + 2_500_000_000).then_some(())
    });
    let recovered = watch.last_status().unwrap();
    assert_eq!(watch.events("open"), Vec::<Value>::new(), "a ghost");
    drop(steady);
    disk.settle();
    watch.settle();

    disk.tune("iosched/writes_starved", "100000");
    // Writeback throttling would let no more than some twenty writes in.
    disk.tune("wbt_lat_usec", "0");
    let loads = [load(&disk, READERS), load(&disk, WRITER)];
    watch.wait_for("writes that starve are found", |watch| {
        watch
            .events("open")
            .iter()
            .any(|f| f["kind"] == "async-write-starvation")
            .then_some(())
    });
    drop(loads);
    disk.settle();
    watch.settle();
    let stop = watch.stop();
    for account in stop["accounts"].as_array().unwrap() {
        let n = |field: &str| account[field].as_u64().unwrap();
        assert_eq!(n("in_flight"), 0, "{account:#}");
        assert_eq!(
            n("seen"),
            n("finished") + n("merged") + n("expired"),
            "{account:#}"
        );
    }
    let told = lost(&stop, "lost-completion") + lost(&stop, "expired");
    assert_eq!(sum(&stop, "expired"), told, "each is told: {stop:#}");
    // The hook answers again. One kind of machine runs no program for some completions, with nothing detached.
    let since = |field: &str| sum(&stop, field) - sum(&recovered, field);
    assert!(
        since("finished") > 1_000 && since("expired") * 200 <= since("finished"),
        "{recovered:#} {stop:#}"
    );
}
