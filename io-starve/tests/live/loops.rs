//! A loop device on a loop device, each with a strict limit for its dirty memory, the lower one slowed down: the writer is paused on the
//! upper one, the upper one's worker on the lower one. What is told is compared with the kernel's own events of the same run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    filesystem::Ext4,
    machine::{Disk, Watch, io_hierarchy, output, until},
};

/// A loop device on a file, with a filesystem.
struct Upper {
    dir: TempDir,
    path: String,
}

impl Upper {
    fn new(file: &Path) -> Upper {
        fs::File::create(file).unwrap().set_len(300 << 20).unwrap();
        let mut losetup = Command::new("losetup");
        let path = output(losetup.args(["--find", "--show"]).arg(file));
        output(Command::new("mkfs.ext4").args(["-q", &path]));
        let dir = tempfile::tempdir().unwrap();
        output(Command::new("mount").arg(&path).arg(dir.path()));
        Upper { dir, path }
    }

    fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }
}

impl Drop for Upper {
    fn drop(&mut self) {
        until("the upper filesystem can be unmounted", || {
            let umount = Command::new("umount").arg(self.dir.path()).status();
            umount.unwrap().success().then_some(())
        });
        let _ = Command::new("losetup")
            .args(["--detach", &self.path])
            .status();
    }
}

fn number(name: &str) -> String {
    let dev = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    dev.trim().to_owned()
}

/// The kernel's own events of pauses, of the whole machine.
struct Pauses(PathBuf);

impl Pauses {
    fn start() -> Pauses {
        let name = format!("io-starve-pauses-{}", std::process::id());
        let dir = Path::new("/sys/kernel/tracing/instances").join(name);
        fs::create_dir(&dir).unwrap();
        let pauses = Pauses(dir);
        pauses.set("buffer_size_kb", "4096");
        pauses.set("events/writeback/balance_dirty_pages/enable", "1");
        pauses
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }

    /// (count, sum in ms) by backing device, of those that made a task sleep.
    fn read(&self) -> BTreeMap<String, (u64, u64)> {
        self.set("tracing_on", "0");
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in fs::read_to_string(self.0.join("trace")).unwrap().lines() {
            let event = line.split_once(": balance_dirty_pages: bdi ");
            let Some((bdi, figures)) = event.and_then(|(_, e)| e.split_once(": ")) else {
                continue;
            };
            let pause = figures.split(' ').find_map(|w| w.strip_prefix("pause="));
            // Without a sleep it is 0 or less.
            if let Some(ms) = pause
                .and_then(|p| p.parse::<u64>().ok())
                .filter(|ms| *ms > 0)
            {
                let sum = sums.entry(bdi.to_owned()).or_default();
                *sum = (sum.0 + 1, sum.1 + ms);
            }
        }
        sums
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Slows a disk down for all, until it is dropped.
struct Slow(PathBuf, String);

impl Slow {
    fn down(file: PathBuf, dev: &str) -> Slow {
        fs::write(&file, format!("{dev} 10485760")).unwrap();
        Slow(file, dev.to_owned())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, format!("{} 0", self.1));
    }
}

/// A strict limit of 8 MiB of dirty memory for a backing device. That of a loop device outlives the detachment, so that it must be taken
/// back.
struct Strict(PathBuf);

impl Strict {
    fn new(dev: &str) -> Strict {
        let bdi = Path::new("/sys/class/bdi").join(dev);
        fs::write(bdi.join("strict_limit"), "1").unwrap();
        fs::write(bdi.join("max_bytes"), "8388608").unwrap();
        Strict(bdi)
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("strict_limit"), "0");
        let _ = fs::write(self.0.join("max_ratio"), "100");
    }
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn a_writer_and_the_worker_below_are_paused_as_the_kernel_tells() {
    let disk = Disk::new(512 << 20, "none");
    let below = disk.dev().replace(',', ":");
    let strict = |dev: &str| Path::new("/sys/class/bdi").join(dev).join("strict_limit");
    let limit = io_hierarchy()
        .unwrap()
        .join("blkio.throttle.write_bps_device");
    if !strict(&below).exists() || !limit.exists() {
        eprintln!(
            "skipped: needs strict limits for dirty memory (6.2) and cgroup v1, whose root can be limited"
        );
        return;
    }
    let lower = Ext4::new(&disk, "defaults");
    let upper = Upper::new(&lower.file("upper image"));
    let dev = number(upper.name());
    let _strict = [&below, &dev].map(|dev| Strict::new(dev));
    let slow = Slow::down(limit, &below);
    let pauses = Pauses::start();
    let watch = Watch::start(&disk, &["--device", upper.name()]);
    let mut dd = Command::new("dd");
    let file = upper.dir.path().join("f");
    dd.args(["if=/dev/zero", "bs=1M", "count=100", "status=none"]);
    output(dd.arg(format!("of={}", file.display())));
    watch.wait_for("a finding", |w| {
        let opened = w.events("open");
        let is = |e: &Value| e["kind"] == "loop-double-throttle";
        opened.iter().any(is).then_some(())
    });
    drop(slow);
    output(Command::new("sync").arg("-f").arg(&file));
    let told = watch.stop_by(Signal::TERM);
    let truth = pauses.read();

    let open = told.iter().find(|e| e["kind"] == "loop-double-throttle");
    let open = open.unwrap();
    assert_eq!(open["device"]["name"], upper.name(), "{open:#}");
    assert_eq!(open["mechanism"], "loop-worker", "{open:#}");
    let looped = &open["evidence"]["looped"];
    let file = looped["file"].as_str().unwrap();
    assert!(file.ends_with("/upper image"), "{open:#}");
    assert_eq!(looped["direct_io"], false, "{open:#}");
    let layers = looped["layers"].as_array().unwrap();
    assert_eq!(layers[0]["name"], upper.name(), "{open:#}");
    assert_eq!(layers[1]["name"], disk.name(), "{open:#}");

    let stop = told.iter().find(|e| e["event"] == "stop").unwrap();
    let sums = stop["pauses"].as_array().unwrap();
    for (bdi, worker) in [(&dev, Value::Null), (&below, upper.name().into())] {
        let row = sums
            .iter()
            .find(|p| p["bdi"] == bdi.as_str() && p["worker"] == worker);
        let row = row.unwrap_or_else(|| panic!("{bdi} {worker}: {sums:#?}"));
        let (count, ms) = truth[bdi];
        assert!(count > 5, "{truth:?}");
        let near = |told: &Value, truth: u64| told.as_u64().unwrap().abs_diff(truth) * 20 <= truth;
        assert!(
            near(&row["pauses"], count) && near(&row["paused_ms"], ms),
            "{row:#}: {truth:?}"
        );
    }
}
