//! Loop devices, the kernel's trace and a running `watch`, each put away when dropped.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Nothing here takes longer than this on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the condition gives something, with a bound.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "the bound of a wait")]
    let begin = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn io_starve() -> Command {
    Command::new(env!("CARGO_BIN_EXE_io-starve"))
}

pub fn output(cmd: &mut Command) -> String {
    let out = cmd.output().unwrap();
    assert!(
        out.status.success(),
        "{cmd:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// A loop device on a file in memory.
pub struct Disk {
    path: String,
    pub tmpfs: Mount,
}

impl Disk {
    pub fn new(bytes: u64, scheduler: &str) -> Disk {
        let tmpfs = Mount::new("tmpfs");
        let file = tmpfs.path().join("disk");
        fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        let path = output(
            Command::new("losetup")
                .args(["--find", "--show"])
                .arg(&file),
        );
        let disk = Disk { path, tmpfs };
        disk.tune("scheduler", scheduler);
        disk
    }

    /// Sets a file below queue/.
    pub fn tune(&self, file: &str, value: &str) {
        fs::write(format!("/sys/block/{}/queue/{file}", self.name()), value).unwrap();
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    /// (major, minor) as the trace writes it.
    pub fn dev(&self) -> String {
        let dev = fs::read_to_string(format!("/sys/block/{}/dev", self.name())).unwrap();
        dev.trim().replace(':', ",")
    }

    /// Waits until nothing is in flight and nothing is dirty.
    pub fn settle(&self) {
        output(Command::new("blockdev").args(["--flushbufs", &self.path]));
        until("the disk is idle", || {
            let text = fs::read_to_string(format!("/sys/block/{}/inflight", self.name())).unwrap();
            text.split_whitespace().all(|n| n == "0").then_some(())
        });
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.path])
            .status();
    }
}

/// A file system mounted in a directory of our own.
pub struct Mount(TempDir);

impl Mount {
    fn new(kind: &str) -> Mount {
        let dir = tempfile::tempdir().unwrap();
        output(
            Command::new("mount")
                .args(["-t", kind, kind])
                .arg(dir.path()),
        );
        Mount(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
    }
}

/// The kernel's own trace of one disk, in an instance of its own.
pub struct Trace {
    instance: PathBuf,
    dev: String,
    _tracefs: Mount,
}

const EVENTS: [&str; 5] = [
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_requeue",
    "block_rq_merge",
    "block_rq_complete",
];

impl Trace {
    pub fn start(disk: &Disk) -> Trace {
        let tracefs = Mount::new("tracefs");
        let instance = tracefs
            .path()
            .join(format!("instances/io-starve-{}", std::process::id()));
        fs::create_dir(&instance).unwrap();
        let put = |file: &str, text: &str| fs::write(instance.join(file), text).unwrap();
        put("trace_clock", "mono");
        put("buffer_size_kb", "131072");
        let (major, minor) = disk
            .dev()
            .split_once(',')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        let dev = major.parse::<u64>().unwrap() << 20 | minor.parse::<u64>().unwrap();
        for event in EVENTS {
            put(
                &format!("events/block/{event}/filter"),
                &format!("dev == {dev}"),
            );
            put(&format!("events/block/{event}/enable"), "1");
        }
        Trace {
            instance,
            dev: disk.dev(),
            _tracefs: tracefs,
        }
    }

    pub fn stop(self) -> Traced {
        fs::write(self.instance.join("tracing_on"), "0").unwrap();
        let mut traced = Traced::default();
        for cpu in fs::read_dir(self.instance.join("per_cpu")).unwrap() {
            let stats = fs::read_to_string(cpu.unwrap().path().join("stats")).unwrap();
            traced.overrun += stats
                .lines()
                .filter_map(|l| l.strip_prefix("overrun: ")?.parse::<u64>().ok())
                .sum::<u64>();
        }
        let text = fs::read_to_string(self.instance.join("trace")).unwrap();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            traced.line(line, &self.dev);
        }
        traced
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
    }
}

/// What the trace says.
#[derive(Default)]
pub struct Traced {
    pub overrun: u64,
    classes: BTreeMap<&'static str, TracedClass>,
    requests: BTreeMap<(&'static str, u64), Requests>,
}

/// Requests of one class at one sector, oldest first; times in seconds.
#[derive(Default)]
struct Requests {
    inserted: VecDeque<f64>,
    /// First insert and last issue.
    issued: VecDeque<(Option<f64>, f64)>,
    /// Given back, and not inserted again so far.
    given_back: usize,
}

#[derive(Default, Clone, Copy)]
pub struct TracedClass {
    pub inserts: u64,
    pub issues: u64,
    pub requeues: u64,
    pub longest_queued_ms: f64,
}

impl Traced {
    pub fn class(&self, name: &str) -> TracedClass {
        self.classes.get(name).copied().unwrap_or_default()
    }

    /// `fio-7 [001] ..... 12.345678: block_rq_insert: 7,0 WS 4096 () 1234 + 8 none,0,0 [fio]`
    fn line(&mut self, line: &str, dev: &str) {
        let Some(at) = line.find(": block_rq_") else {
            return;
        };
        let (head, tail) = line.split_at(at);
        let time: f64 = head.rsplit(' ').next().unwrap().parse().unwrap();
        let mut words = tail.trim_start_matches(": ").split_whitespace();
        let event = words.next().unwrap().trim_end_matches(':');
        assert_eq!(words.next(), Some(dev));
        let class = class_of_rwbs(words.next().unwrap());
        let rest: Vec<&str> = words.collect();
        let plus = rest.iter().position(|w| *w == "+").unwrap();
        let sector: u64 = rest[plus - 1].parse().unwrap();
        let sectors: u64 = rest[plus + 1].parse().unwrap();
        if event == "block_rq_issue" {
            self.moved_to_its_front(class, sector, sectors);
        }
        let of = self.classes.entry(class).or_default();
        let at = self.requests.entry((class, sector)).or_default();
        match event {
            "block_rq_insert" => {
                of.inserts += 1;
                if at.given_back > 0 {
                    at.given_back -= 1;
                } else {
                    at.inserted.push_back(time);
                }
            }
            "block_rq_issue" => {
                of.issues += 1;
                at.issued.push_back((at.inserted.pop_front(), time));
            }
            "block_rq_requeue" => {
                of.requeues += 1;
                if let Some((Some(insert), _)) = at.issued.pop_back() {
                    at.inserted.push_front(insert);
                    at.given_back += 1;
                }
            }
            "block_rq_merge" => {
                at.inserted.pop_back();
            }
            "block_rq_complete" => {
                if let Some((Some(insert), issue)) = at.issued.pop_front() {
                    of.longest_queued_ms = of.longest_queued_ms.max((issue - insert) * 1e3);
                }
            }
            other => panic!("{other} was not asked for"),
        }
    }

    /// A bio merged to the front of a request moved its first sector: it was inserted at one that lies within.
    fn moved_to_its_front(&mut self, class: &'static str, sector: u64, sectors: u64) {
        let waits = |r: &Requests| !r.inserted.is_empty();
        if self.requests.get(&(class, sector)).is_some_and(waits) {
            return;
        }
        let within = (class, sector)..(class, sector + sectors);
        let found = self.requests.range_mut(within).find(|(_, r)| waits(r));
        let inserted = found.and_then(|(_, r)| r.inserted.pop_front());
        let at = self.requests.entry((class, sector)).or_default();
        at.inserted.extend(inserted);
    }
}

/// blk_fill_rwbs (kernel/trace/blktrace.c): an F before the operation is a preflush, one after it FUA, S is sync.
pub fn class_of_rwbs(rwbs: &str) -> &'static str {
    let (preflush, op) = match rwbs.strip_prefix('F') {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, rwbs),
    };
    match op.as_bytes()[0] {
        b'R' => "sync-read",
        b'W' if preflush || op.contains(['S']) || op.contains('F') => "sync-write",
        b'W' => "async-write",
        b'F' => "flush",
        b'D' => "discard",
        _ => "other",
    }
}

/// A `watch` that runs until it is stopped.
pub struct Watch {
    child: Child,
    events: Arc<Mutex<Vec<Value>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    pub fn start(disk: &Disk, args: &[&str]) -> Watch {
        Watch::spawn(disk, args, &mut io_starve())
    }

    /// The same, of a command that has its environment.
    pub fn spawn(disk: &Disk, args: &[&str], io_starve: &mut Command) -> Watch {
        let mut child = io_starve
            .args(["watch", "--device", disk.name(), "--status-every", "1s"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        assert!(said.contains("attached"), "{said}");
        // Whatever else it says goes on to whoever reads the test's output.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            for line in stdout.lines() {
                let event = serde_json::from_str(&line.unwrap()).unwrap();
                sink.lock().unwrap().push(event);
            }
        });
        Watch {
            child,
            events,
            reader: Some(reader),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn events(&self, kind: &str) -> Vec<Value> {
        let all = self.events.lock().unwrap();
        all.iter().filter(|e| e["event"] == kind).cloned().collect()
    }

    pub fn last_status(&self) -> Option<Value> {
        self.events("status").pop()
    }

    pub fn wait_for(&self, what: &str, mut condition: impl FnMut(&Watch) -> Option<()>) {
        until(what, || condition(self));
    }

    /// Waits until a new status says that nothing is in flight: an end that was missed is given up after half a second.
    pub fn settle(&self) {
        let told = self.events("status").len();
        self.wait_for("all that was seen has ended", |watch| {
            let mut new = watch.events("status").split_off(told);
            let status = new.pop()?;
            let mut accounts = status["accounts"].as_array()?.iter();
            accounts.all(|a| a["in_flight"] == 0).then_some(())
        });
    }

    /// Ends it by SIGTERM and returns its last event.
    pub fn stop(self) -> Value {
        let last = self.stop_by(rustix::process::Signal::TERM).pop();
        let stop = last.filter(|e| e["event"] == "stop");
        stop.expect("a stop event")
    }

    /// Ends it by a signal and returns all of its events.
    pub fn stop_by(mut self, signal: rustix::process::Signal) -> Vec<Value> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn fio(disk: &Disk, job: &str) {
    let status = fio_in_background(disk, job).wait().unwrap();
    assert!(status.success(), "fio: {status}");
}

pub fn fio_in_background(disk: &Disk, job: &str) -> Child {
    let mut child = Command::new("fio")
        .args([
            &format!("--filename={}", disk.path()),
            "--output=/dev/null",
            "-",
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(job.as_bytes()).unwrap();
    child
}

/// (name, steps that the verifier took) of the programs that a process holds, where the kernel tells.
pub fn verifier_steps(pid: u32) -> Vec<(String, u64)> {
    let ours = programs_of(pid);
    let text = output(Command::new("bpftool").args(["--json", "prog", "show"]));
    let all: Value = serde_json::from_str(&text).unwrap();
    let names: BTreeMap<u64, String> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["id"].as_u64().unwrap(), p["name"].to_string()))
        .collect();
    let steps = |info: &str, id: u64| {
        let field = |name: &str| {
            let value = info.lines().find_map(|l| l.strip_prefix(name))?;
            value.trim().parse::<u64>().ok()
        };
        (field("prog_id:")? == id)
            .then(|| field("verified_insns:"))
            .flatten()
    };
    let infos: Vec<String> = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .unwrap()
        .filter_map(|fd| fs::read_to_string(fd.ok()?.path()).ok())
        .collect();
    ours.into_iter()
        .filter_map(|id| {
            let n = infos.iter().find_map(|i| steps(i, id))?;
            Some((names.get(&id).cloned().unwrap_or_default(), n))
        })
        .collect()
}

/// Ids of the BPF programs that a process holds.
pub fn programs_of(pid: u32) -> BTreeSet<u64> {
    let dir = format!("/proc/{pid}/fdinfo");
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|fd| fs::read_to_string(fd.ok()?.path()).ok())
        .filter_map(|info| {
            let id = info.lines().find_map(|l| l.strip_prefix("prog_id:"))?;
            id.trim().parse().ok()
        })
        .collect()
}

/// Ids of every BPF program that the kernel has.
pub fn programs() -> BTreeSet<u64> {
    let text = output(Command::new("bpftool").args(["--json", "prog", "show"]));
    let all: Value = serde_json::from_str(&text).unwrap();
    let ids = all.as_array().unwrap().iter().map(|p| p["id"].as_u64());
    ids.map(Option::unwrap).collect()
}

/// Where a cgroup can be made whose I/O is charged to it.
pub fn io_hierarchy() -> Option<PathBuf> {
    ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"]
        .map(PathBuf::from)
        .into_iter()
        .find(|p| p.join("cgroup.procs").exists())
}
