//! How runs end: signals, commands, findings that are open, a screen that is closed.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;

use crate::machine::{
    Disk, Watch, fio_in_background, io_hierarchy, io_starve, programs, programs_of, until,
};

/// Readers that always have more waiting than the disk has tags: each request takes it far longer than them.
pub const READERS: &str = "[readers]\nthread\nrw=randread\nbs=256k\ndirect=1\nioengine=libaio\niodepth=512\nsize=32m\ntime_based\nruntime=60\n";

/// A cgroup of the test's own, removed with it.
pub struct Group(PathBuf);

impl Group {
    pub fn new(name: &str) -> Group {
        let root = io_hierarchy().unwrap();
        let dir = root.join(format!("io-starve-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        Group(dir)
    }

    /// Its last name.
    pub fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// A shell command in it.
    pub fn shell(&self, command: &str) -> String {
        format!(
            "echo $$ > {}/cgroup.procs && exec {command}",
            self.0.display()
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        until("the cgroup can be removed", || {
            std::fs::remove_dir(&self.0).ok()
        });
    }
}

/// Ended when dropped.
pub struct Load(pub Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One that only reads when nobody else does, which on a busy disk is seldom.
pub fn idle_reader(disk: &Disk, group: &Group, seconds: u32) -> String {
    group.shell(&format!(
        "fio --name=idle --output=/dev/null --filename={} --rw=randread --bs=4k --direct=1 --ioengine=psync \
         --prioclass=3 --thread --offset=40m --size=16m --time_based --runtime={seconds}",
        disk.path()
    ))
}

/// The idle reader waits for tens of milliseconds again and again.
pub const SHORT_WAITS: [&str; 6] = [
    "--interval",
    "50ms",
    "--withheld-ms",
    "10",
    "--withheld-others",
    "8",
];

pub fn starving_disk() -> Disk {
    let disk = Disk::new(64 << 20, "mq-deadline");
    disk.tune("nr_requests", "1024");
    // After that long an idle reader is served all the same, and until then its process cannot end.
    disk.tune("iosched/prio_aging_expire", "500");
    disk
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn signals_detach_everything_and_say_so() {
    let disk = Disk::new(64 << 20, "none");
    for signal in [Signal::TERM, Signal::INT] {
        let watch = Watch::start(&disk, &[]);
        let ours = programs_of(watch.pid());
        assert!(
            ours.len() > 10 && ours.is_subset(&programs()),
            "{ours:?} are attached"
        );
        let stop = watch.stop_by(signal).pop().unwrap();
        assert_eq!(stop["reason"], "signal", "{stop:#}");
        until("the kernel has dropped the programs", || {
            ours.is_disjoint(&programs()).then_some(())
        });
    }
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn an_open_finding_is_closed_as_detached() {
    let disk = starving_disk();
    let group = Group::new("idle");
    let watch = Watch::start(&disk, &SHORT_WAITS);
    let readers = Load(fio_in_background(&disk, READERS));
    let idle = Load(
        Command::new("sh")
            .args(["-c", &idle_reader(&disk, &group, 60)])
            .spawn()
            .unwrap(),
    );
    watch.wait_for("the idle reader is found", |watch| {
        watch.events("open").pop().map(|_| ())
    });
    let events = watch.stop_by(Signal::INT);
    drop((readers, idle));
    let of = |event: &str| events.iter().find(|e| e["event"] == event).unwrap();
    let (open, close) = (of("open"), of("close"));
    assert_eq!(open["kind"], "read-starvation", "{open:#}");
    assert_eq!(
        open["severity"], "info",
        "an idle victim asked for it: {open:#}"
    );
    assert_eq!(open["victim"]["task"]["comm"], "fio", "{open:#}");
    assert_eq!(close["id"], open["id"]);
    assert_eq!(close["reason"], "detached", "{close:#}");
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn run_passes_the_commands_exit_code_on() {
    let code = |args: &[&str]| {
        let out = io_starve().arg("run").args(args).output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]).0, Some(7));
    assert_eq!(code(&["--", "/nonexistent/program"]).0, Some(127));
    assert_eq!(code(&["--", "/etc/passwd"]).0, Some(126));
    let (ok, said) = code(&["--", "true"]);
    assert_eq!(ok, Some(0));
    assert!(said.contains("no findings"), "{said}");
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn run_fails_on_a_finding_that_it_was_told_to_fail_on() {
    let disk = starving_disk();
    let group = Group::new("fail-on");
    let readers = Load(fio_in_background(&disk, READERS));
    let dir = tempfile::tempdir().unwrap();
    let code = |fail_on: &str| {
        let alerts = dir.path().join(fail_on);
        // Reads until it is found to be starving.
        let command = format!(
            "sh -c '{}' & reader=$!; i=0; until grep -q '\"event\":\"open\"' {alerts}; do \
             sleep 0.1; i=$((i+1)); [ $i -lt 600 ] || break; done; kill $reader; wait; exit 0",
            idle_reader(&disk, &group, 60),
            alerts = alerts.display()
        );
        let out = io_starve()
            .args(["run", "--device", disk.name(), "--fail-on", fail_on])
            .args(["--json", alerts.to_str().unwrap()])
            .args(SHORT_WAITS)
            .args(["--", "sh", "-c", &command])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains("read-starvation"), "{said}");
        out.status.code()
    };
    assert_eq!(code("read-starvation"), Some(3));
    assert_eq!(code("read-starvation:critical"), Some(0), "it was less");
    assert_eq!(code("queue-stuck"), Some(0), "it was another");
    drop(readers);
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn the_live_screen_leaves_terminal_and_kernel_as_they_were() {
    let disk = Disk::new(64 << 20, "mq-deadline");
    let before = programs();
    let top = format!(
        "{} top --device {}",
        env!("CARGO_BIN_EXE_io-starve"),
        disk.name()
    );
    // script(1) of util-linux gives it a terminal and passes on what is typed and drawn.
    let mut script = Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &top,
            "/dev/null",
        ])
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = script.stdin.take().unwrap();
    until("its programs are attached", || {
        (programs().difference(&before).count() > 10).then_some(())
    });
    // Typed before the screen is there it waits in the terminal.
    keys.write_all(b"q").unwrap();
    let out = script.wait_with_output().unwrap();
    let drawn = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(0), "{drawn}");
    let (enter, leave) = (drawn.find("\u{1b}[?1049h"), drawn.rfind("\u{1b}[?1049l"));
    assert!(enter.is_some() && leave > enter, "{drawn:?}");
    assert!(drawn.contains("no findings"), "{drawn:?}");
    until("the kernel has dropped the programs", || {
        programs().is_subset(&before).then_some(())
    });
}
