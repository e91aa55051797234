//! Calls other than fsync that wait for a journal.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    endings::{Group, Load},
    filesystem::Ext4,
    machine::{Disk, Watch, output},
};

/// Writes a second: room for one transaction of the small journal takes some ten seconds.
const LIMIT: u64 = 20;
/// Folders that lie apart, so that each new file changes blocks of its own and the journal is soon full.
const FOLDERS: u32 = 60;
/// Length of a tick: a wait is seen from one to another.
const TICK_MS: f64 = 250.0;

/// fio that creates files, with a clock of its own.
struct Creator {
    fio: Child,
    said: PathBuf,
    _dir: TempDir,
}

impl Creator {
    fn start(group: &Group, fs: &Ext4) -> Creator {
        let dir = tempfile::tempdir().unwrap();
        let said = dir.path().join("fio.json");
        fs::create_dir(fs.file("web")).unwrap();
        let fio = group.shell(&format!(
            "fio --name=web --ioengine=filecreate --output-format=json --output={} --directory={} --nrfiles=1000 --filesize=1k \
             --bs=1k --rate_iops=10 --openfiles=1 --thread",
            said.display(),
            fs.file("web").display()
        ));
        let fio = Command::new("sh").args(["-c", &fio]).spawn().unwrap();
        Creator {
            fio,
            said,
            _dir: dir,
        }
    }

    /// Ends it. The longest of its calls, in ms.
    fn end(mut self) -> f64 {
        kill_process(Pid::from_child(&self.fio), Signal::INT).unwrap();
        self.fio.wait().unwrap();
        let text = fs::read_to_string(&self.said).unwrap();
        let json = text.find('{').map_or("", |at| &text[at..]);
        let all: Value = serde_json::from_str(json).unwrap();
        all["jobs"][0]["read"]["clat_ns"]["max"].as_f64().unwrap() / 1e6
    }
}

impl Drop for Creator {
    fn drop(&mut self) {
        let _ = self.fio.kill();
        let _ = self.fio.wait();
    }
}

fn stalls<'a>(events: &'a [Value], victim: &Group) -> Vec<&'a Value> {
    let theirs = |e: &&Value| {
        e["kind"] == "journal-stall" && e["victim"]["cgroup"]["path"] == victim.path().as_str()
    };
    events.iter().filter(theirs).collect()
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn who_creates_files_waits_for_the_limit_of_whoever_makes_room_in_the_journal() {
    let disk = Disk::new(256 << 20, "none");
    let ext4 = Ext4::made(&disk, &["-b", "1024", "-J", "size=1"], "defaults");
    let (capped, web) = (Group::new("capped"), Group::new("web"));
    for i in 0..FOLDERS {
        fs::create_dir(ext4.file(&format!("c{i}"))).unwrap();
    }
    output(&mut Command::new("sync"));
    capped.limit_write_count(&disk, Some(LIMIT));

    let watch = Watch::start(&disk, &[]);
    let blind = Watch::start(&disk, &["--without-hook", "bpf_iter_task"]);
    let half_blind = Watch::start(&disk, &["--without-hook", "jbd2_checkpoint"]);
    let creator = Creator::start(&web, &ext4);
    // It writes no data at all: a hundred empty files a second.
    let touch = capped.shell(&format!(
        "sh -c 'i=0; while :; do i=$((i + 1)); : >{}$((i % {FOLDERS}))/f$i; [ $((i % 5)) = 0 ] && sleep 0.05; done'",
        ext4.file("c").display()
    ));
    let touch = Load(Command::new("sh").args(["-c", &touch]).spawn().unwrap());
    watch.wait_for("a stall of the one that is not limited", |watch| {
        (!stalls(&watch.events("open"), &web).is_empty()).then_some(())
    });
    capped.limit_write_count(&disk, None);
    drop(touch);
    let longest_ms = creator.end();
    disk.settle();
    watch.settle();
    let events = watch.stop_by(Signal::TERM);

    let told = stalls(&events, &web);
    for f in &told {
        assert_eq!(f["severity"], "warning", "{f:#}");
        assert_eq!(f["mechanism"], "checkpoint", "{f:#}");
        assert_eq!(f["stage"], "held", "{f:#}");
        assert_eq!(f["confidence"], "sure", "{f:#}");
        assert_eq!(f["evidence"]["fsync"]["call"], "create", "{f:#}");
        let culprits = f["culprits"].as_array().unwrap();
        assert_eq!(culprits.len(), 1, "{f:#}");
        assert_eq!(
            culprits[0]["cgroup"]["path"],
            capped.path().as_str(),
            "{f:#}"
        );
        let limit = &culprits[0]["limit"];
        assert_eq!(limit["cgroup"]["path"], capped.path().as_str(), "{f:#}");
        assert_eq!(limit["wiops"], LIMIT, "{f:#}");
        let share = limit["held_share"].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{f:#}");
    }
    let opened = told.iter().find(|f| f["event"] == "open").unwrap();
    let waited = opened["duration_ms"].as_f64().unwrap();
    assert!(
        waited < 1_000.0 + 2.0 * TICK_MS,
        "found while it waits: {opened:#}"
    );
    let longest = told.iter().map(|f| f["longest_ms"].as_f64().unwrap());
    let longest = longest.fold(0.0, f64::max);
    assert!(
        (longest - longest_ms).abs() <= TICK_MS * 1.5,
        "longest {longest} ms, by its own clock {longest_ms} ms"
    );
    for f in stalls(&events, &capped) {
        assert_eq!(f["severity"], "info", "its own limit: {f:#}");
    }
    let strangers = |e: &&Value| {
        e["event"] == "open"
            && stalls(std::slice::from_ref(e), &web).is_empty()
            && stalls(std::slice::from_ref(e), &capped).is_empty()
    };
    assert_eq!(events.iter().filter(strangers).count(), 0, "{events:#?}");

    let missing = |e: &Value| e["hooks"].to_string();
    let blind = blind.stop_by(Signal::TERM);
    assert!(
        blind.iter().all(|e| e["kind"] != "journal-stall"),
        "{blind:#?}"
    );
    assert!(
        missing(&blind[0]).contains("who waits for a journal in create"),
        "{:#}",
        blind[0]
    );
    for f in half_blind
        .stop_by(Signal::TERM)
        .iter()
        .filter(|e| e["kind"] == "journal-stall")
    {
        let culprits = f["culprits"].as_array().unwrap().iter();
        let paths: Vec<_> = culprits
            .map(|c| c["cgroup"]["path"].as_str().unwrap_or("unknown"))
            .collect();
        assert_eq!(paths, [capped.path()], "{f:#}");
        assert!(
            f["confidence"] == "likely" || f["severity"] == "info",
            "{f:#}"
        );
    }
}
