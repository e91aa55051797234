//! fsyncs that wait for a neighbour's data, that only seem to, that end badly.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    endings::{Group, Load},
    filesystem::{Appender, Ext4, Recording, Syncs, v1},
    machine::{Disk, Watch, output, until},
};

/// Bytes a second of whoever is limited: 1 MiB takes two seconds.
const LIMIT: u64 = 512 << 10;
/// With `dioread_lock` a commit waits for the data of new blocks; by default it does not.
const DISEASE: &str = "dioread_lock";

/// Two groups on one filesystem, one of them limited.
struct Machine {
    slow: Group,
    free: Group,
    fs: Ext4,
    disk: Disk,
}

impl Machine {
    fn new(options: &str) -> Machine {
        let disk = Disk::new(256 << 20, "none");
        let fs = Ext4::new(&disk, options);
        let slow = Group::new("slow");
        slow.limit_writes(&disk, Some(LIMIT));
        Machine {
            slow,
            free: Group::new("free"),
            fs,
            disk,
        }
    }

    /// Both append and sync; what either saw.
    fn append(&self, seconds: u32) -> (Syncs, Syncs) {
        let slow = Appender::start(&self.slow, &self.fs.file("slow"), "1m", "0", seconds);
        let free = Appender::start(&self.free, &self.fs.file("free"), "16k", "200ms", seconds);
        (slow.end(), free.end())
    }

    /// Writes one file and syncs it.
    fn write_once(&self, group: &Group, file: &str) -> Child {
        let dd = group.shell(&format!(
            "dd if=/dev/zero of={} bs=1M count=1 conv=fsync status=none",
            self.fs.file(file).display()
        ));
        let mut sh = Command::new("sh");
        sh.args(["-c", &dd]).stderr(Stdio::piped());
        sh.spawn().unwrap()
    }
}

impl Machine {
    /// The limited one is accused of what the free one waits for, and nobody of anything else. The first and the last event.
    fn accuse_slow<'a>(&self, events: &'a [Value], seen: Syncs) -> (&'a Value, &'a Value) {
        assert!(
            seen.longest_ms > 1_000.0,
            "the free one waits for the limited one: {seen:?}"
        );
        let free = of(events, &self.free);
        let first = free.iter().find(|e| e["event"] == "open");
        let last = free.iter().rfind(|e| e["event"] == "close");
        let (open, close) = (*first.expect("a finding for the free one"), *last.unwrap());
        for f in &free {
            assert_eq!(f["kind"], "fsync-serialization", "{f:#}");
            assert_eq!(f["severity"], "warning", "{f:#}");
            assert_eq!(f["mechanism"], "journal-data", "{f:#}");
            assert_eq!(accused(f), [self.slow.path()], "{f:#}");
            let limit = &f["culprits"][0]["limit"];
            assert_eq!(limit["cgroup"]["path"], self.slow.path().as_str(), "{f:#}");
            assert_eq!(limit["device"]["name"], self.disk.name(), "{f:#}");
            assert_eq!(limit["wbps"], LIMIT, "{f:#}");
        }
        let slow = of(events, &self.slow);
        assert!(
            slow.iter().all(|e| e["severity"] == "info"),
            "its own limit: {slow:#?}"
        );
        let opened = |e: &&Value| e["event"] == "open";
        let known = free.into_iter().chain(slow).filter(opened).count();
        assert_eq!(events.iter().filter(opened).count(), known, "{events:#?}");
        (open, close)
    }
}

/// What a finding says that it does not know.
fn not_seen(finding: &Value) -> Vec<&str> {
    texts(&finding["evidence"]["fsync"]["not_seen"])
}

fn of<'a>(events: &'a [Value], victim: &Group) -> Vec<&'a Value> {
    let theirs = |e: &&Value| e["victim"]["cgroup"]["path"] == victim.path().as_str();
    events.iter().filter(theirs).collect()
}

/// Paths of those whom a finding accuses.
fn accused(finding: &Value) -> Vec<&str> {
    let culprits = finding["culprits"].as_array().unwrap().iter();
    culprits
        .map(|c| c["cgroup"]["path"].as_str().unwrap_or("unknown"))
        .collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect()
}

fn inode(file: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(file).unwrap().ino()
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn an_fsync_that_waits_for_what_a_neighbours_limit_holds_is_found() {
    let m = Machine::new(DISEASE);
    // So seldom that a duration read off the ticks would be wrong.
    let watch = Watch::start(&m.disk, &["--interval", "1s"]);
    let (_, seen) = m.append(6);
    m.disk.settle();
    watch.settle();
    let events = watch.stop_by(Signal::TERM);
    let (open, close) = m.accuse_slow(&events, seen);
    for f in [open, close] {
        // A held bio tells its file and who pays for it, so that nothing is open.
        assert_eq!(f["confidence"], "sure", "{f:#}");
        assert!(not_seen(f).is_empty(), "{f:#}");
        let waited = &f["evidence"]["fsync"]["inode"];
        assert_eq!(*waited, inode(&m.fs.file("slow")), "{f:#}");
    }
    let longest = close["longest_ms"].as_f64().unwrap();
    let slack = (seen.longest_ms * 0.05).max(10.0);
    assert!(
        (longest - seen.longest_ms).abs() <= slack,
        "longest {longest} ms, by its own clock {seen:?}"
    );
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn who_pays_for_a_file_is_likely_where_the_kernel_does_not_say() {
    let m = Machine::new(DISEASE);
    if !v1() {
        eprintln!("skipped: cgroup v2 tells who pays for a file's data");
        return;
    }
    let watch = Watch::start(&m.disk, &[]);
    // Of two files only the first held bio's is known, and a commit waits for either.
    let other = Appender::start(&m.slow, &m.fs.file("other"), "1m", "0", 8);
    let (_, seen) = m.append(8);
    other.end();
    m.disk.settle();
    watch.settle();
    let events = watch.stop_by(Signal::TERM);
    m.accuse_slow(&events, seen);
    let told = of(&events, &m.free);
    for f in &told {
        let why = not_seen(f);
        let who_pays = why.iter().any(|t| t.contains("who pays"));
        assert!(
            f["confidence"] == "sure" && why.is_empty() || f["confidence"] == "likely" && who_pays,
            "{f:#}"
        );
    }
    assert!(
        told.iter().any(|f| f["confidence"] == "likely"),
        "{told:#?}"
    );
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn two_who_do_not_wait_for_each_other_are_not_told_of() {
    let m = Machine::new("defaults");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.rec");
    let watch = Watch::start(&m.disk, &["--record", file.to_str().unwrap()]);
    // What has no disk has no fsync to wait for.
    let memory = Group::new("memory");
    let tmpfs = m.disk.tmpfs.path().join("synced");
    let in_memory = Appender::start(&memory, &tmpfs, "16k", "10ms", 2);
    assert!(in_memory.end().count > 10);
    let (slow, free) = m.append(4);
    m.disk.settle();
    watch.settle();
    let events = watch.stop_by(Signal::TERM);

    let told = of(&events, &m.free);
    assert!(told.is_empty(), "{free:?}: {told:#?}");
    for e in of(&events, &m.slow) {
        assert_eq!(e["severity"], "info", "{slow:?}: {e:#}");
    }
    let recording = Recording::read(&file);
    let counted = |group| -> u64 { recording.counted(group).iter().map(|(_, n)| n).sum() };
    // fio counts an fsync that its end interrupts, or does not.
    assert!(
        counted(&m.free).abs_diff(free.count) <= 1 && free.count > 5,
        "{free:?}, and {} were followed",
        counted(&m.free)
    );
    assert_eq!(counted(&memory), 0, "no fsync of ext4");
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn nobody_is_accused_wrongly_without_a_hook() {
    let m = Machine::new(DISEASE);
    // Held as well, but no commit waits for it: its blocks are there already.
    let bystander = Group::new("bystander");
    bystander.limit_writes(&m.disk, Some(LIMIT));
    let blocks = m.fs.file("bystander");
    output(
        Command::new("dd")
            .arg("if=/dev/zero")
            .arg(format!("of={}", blocks.display()))
            .args(["bs=1M", "count=4", "conv=fsync", "status=none"]),
    );
    let overwrite = bystander.shell(&format!(
        "fio --name=bystander --output=/dev/null --filename={} --rw=write --bs=256k --direct=1 --ioengine=libaio \
         --iodepth=8 --overwrite=1 --size=4m --thread --time_based --runtime=60",
        blocks.display()
    ));
    let run = |hook: &str, with_bystander: bool| {
        let watch = Watch::start(&m.disk, &["--without-hook", hook]);
        let bystander = with_bystander.then(|| {
            let fio = Command::new("sh").args(["-c", &overwrite]).spawn();
            Load(fio.unwrap())
        });
        let (_, seen) = m.append(3);
        drop(bystander);
        let events = watch.stop_by(Signal::TERM);
        assert!(seen.longest_ms > 1_000.0, "without {hook}: {seen:?}");
        let opened = events.into_iter().filter(|e| e["event"] == "open");
        opened.collect::<Vec<_>>()
    };

    let opened = run("folio_wait_writeback", false);
    let of_free = of(&opened, &m.free);
    let lone = of_free.first().expect("a lone suspect is likely");
    assert_eq!(accused(lone), [m.slow.path()], "{lone:#}");
    assert_eq!(lone["confidence"], "likely", "{lone:#}");
    assert!(
        not_seen(lone).iter().any(|t| t.contains("the file")),
        "{lone:#}"
    );
    let missing = texts(&lone["loss"]["missing"]);
    assert!(missing.iter().any(|t| t.contains("whose data")), "{lone:#}");

    for hook in [
        "folio_wait_writeback",
        "jbd2_start_commit",
        "jbd2_end_commit",
        "jbd2_commit_flushing",
        "ext4_sync_file_enter",
        "ext4_sync_file_exit",
    ] {
        let opened = run(hook, true);
        for f in of(&opened, &m.free) {
            assert_eq!(accused(f), [m.slow.path()], "without {hook}: {f:#}");
            let missing = texts(&f["loss"]["missing"]);
            assert!(!missing.is_empty(), "without {hook}: {f:#}");
            assert_eq!(f["confidence"], "likely", "without {hook}: {f:#}");
        }
        for f in &opened {
            assert_eq!(f["kind"], "fsync-serialization", "without {hook}: {f:#}");
            let known = [&m.free, &m.slow].map(|g| of(std::slice::from_ref(f), g).len());
            assert!(known.contains(&1), "without {hook}: {f:#}");
        }
        // Two suspects, or nothing that is known of any fsync or commit.
        match hook {
            "folio_wait_writeback" | "jbd2_start_commit" | "jbd2_end_commit" => {
                assert!(
                    of(&opened, &m.free).is_empty(),
                    "without {hook}: {opened:#?}"
                );
            }
            hook if hook.starts_with("ext4") => {
                assert!(opened.is_empty(), "without {hook}: {opened:#?}");
            }
            _ => {}
        }
    }
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn an_fsync_whose_task_is_killed_ends_when_the_kernel_lets_go_of_it() {
    let m = Machine::new(DISEASE);
    m.slow.limit_writes(&m.disk, Some(32 << 10));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.rec");
    let watch = Watch::start(&m.disk, &["--record", file.to_str().unwrap()]);
    let mut dd = Load(m.write_once(&m.slow, "killed"));
    let tid = dd.0.id();
    watch.wait_for("its own limit is found", |watch| {
        (!of(&watch.events("open"), &m.slow).is_empty()).then_some(())
    });
    dd.0.kill().unwrap();
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let pending = status.lines().find_map(|l| l.strip_prefix("ShdPnd:"));
    let pending = u64::from_str_radix(pending.unwrap().trim(), 16).unwrap();
    assert_eq!(pending >> 8 & 1, 1, "SIGKILL waits for the fsync: {status}");
    let tick = |watch: &Watch| {
        let told = watch.events("status").len();
        let new = || watch.events("status").split_off(told).pop();
        until("a new status", new)["mono_ns"].as_u64().unwrap()
    };
    let still = tick(&watch);
    m.slow.limit_writes(&m.disk, None);
    dd.0.wait().unwrap();
    let gone = tick(&watch);
    watch.stop();

    let recording = Recording::read(&file);
    let theirs: Vec<_> = recording
        .fsyncs()
        .filter(|(_, f)| f["tid"] == tid)
        .collect();
    let running = theirs
        .iter()
        .any(|(now, f)| *now == still && f["end_ns"].is_null());
    assert!(running, "killed, it still waits: {theirs:?}");
    let ends: Vec<u64> = theirs
        .iter()
        .filter_map(|(_, f)| f["end_ns"].as_u64())
        .collect();
    assert!(
        matches!(ends[..], [end] if end > still && end < gone),
        "{ends:?} between {still} and {gone}"
    );
    assert_eq!(recording.left_running(tid), 0, "{theirs:?}");
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn an_fsync_that_fails_ends_with_its_error() {
    let m = Machine::new(DISEASE);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.rec");
    let watch = Watch::start(&m.disk, &["--record", file.to_str().unwrap()]);
    m.disk.fill_up();
    let dd = m.write_once(&m.slow, "failing");
    let tid = dd.id();
    let said = dd.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.contains("fsync failed"),
        "the disk takes nothing: {said}"
    );
    watch.settle();
    watch.stop();
    let recording = Recording::read(&file);
    let ends: Vec<&Value> = recording
        .fsyncs()
        .filter(|(_, f)| f["tid"] == tid && !f["end_ns"].is_null())
        .map(|(_, f)| f)
        .collect();
    let error = |f: &Value| {
        let code = i32::try_from(f["result"].as_i64().unwrap()).unwrap();
        let text = std::io::Error::from_raw_os_error(-code).to_string();
        text.split(" (os").next().unwrap().to_owned()
    };
    assert!(
        matches!(ends[..], [f] if f["result"] != 0 && said.contains(&error(f))),
        "{said}: {ends:?}"
    );
    assert_eq!(recording.left_running(tid), 0);
}
