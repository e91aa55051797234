//! `watch` as a daemon, fed by a recording: every output, rotation, a killed writer.

use std::{
    io::{BufRead, BufReader, Read},
    net::UdpSocket,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{
    PATIENCE, io_starve, outcome,
    stream::{Run, starvation},
};

/// 65 s with one finding.
pub fn recording() -> NamedTempFile {
    Run::new().record(&starvation())
}

/// A `watch` that runs in the background, killed when dropped.
pub struct Daemon {
    pub child: Child,
    said: Option<JoinHandle<String>>,
}

impl Daemon {
    pub fn start(args: &[&str]) -> Daemon {
        Daemon::start_until(args, "watching the recording").0
    }

    /// Starts it and waits until it has said this; returns what it said so far.
    pub fn start_until(args: &[&str], part: &str) -> (Daemon, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_io-starve"))
            .arg("watch")
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        // Signals are caught before anything is said.
        while !first.contains(part) {
            assert!(err.read_line(&mut first).unwrap() > 0, "{first}");
        }
        let so_far = first.clone();
        let said = std::thread::spawn(move || {
            let mut rest = String::new();
            err.read_to_string(&mut rest).unwrap();
            first + &rest
        });
        let daemon = Daemon {
            child,
            said: Some(said),
        };
        (daemon, so_far)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it said on standard error in all, once it has ended by itself or by this signal.
    pub fn end(mut self, signal: Option<Signal>) -> String {
        if let Some(signal) = signal {
            self.signal(signal);
        }
        self.child.wait().unwrap();
        self.said.take().unwrap().join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until there is an answer, not for ever.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain: {what}");
}

pub fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
        .collect()
}

pub fn events(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|l| l["event"].as_str().unwrap()).collect()
}

/// Name and value of each field of a datagram to journald.
fn journal_fields(mut datagram: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    while !datagram.is_empty() {
        let end = datagram.iter().position(|b| *b == b'\n').unwrap();
        let line = std::str::from_utf8(&datagram[..end]).unwrap();
        datagram = &datagram[end + 1..];
        match line.split_once('=') {
            Some((name, value)) => fields.push((name.to_owned(), value.to_owned())),
            None => {
                let (length, rest) = datagram.split_at(8);
                let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
                fields.push((
                    line.to_owned(),
                    String::from_utf8(rest[..length].into()).unwrap(),
                ));
                datagram = &rest[length + 1..];
            }
        }
    }
    fields
}

const ALL: [&str; 6] = ["start", "open", "update", "close", "status", "stop"];

#[test]
fn every_output_gets_every_alert() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let journald = UnixDatagram::bind(at("journal")).unwrap();
    let syslog = UnixDatagram::bind(at("log")).unwrap();
    let remote = UdpSocket::bind("127.0.0.1:0").unwrap();
    journald.set_read_timeout(Some(PATIENCE)).unwrap();
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    remote.set_read_timeout(Some(PATIENCE)).unwrap();
    let recording = recording();
    let outputs = [
        "-".to_owned(),
        at("file").display().to_string(),
        format!("journald:{}", at("journal").display()),
        format!("syslog:{}", at("log").display()),
        format!("syslog:{}", remote.local_addr().unwrap()),
    ];
    let mut command = io_starve(["watch", "--label", "site=berlin", "--replay"]);
    command.arg(recording.path());
    for output in &outputs {
        command.args(["--output", output]);
    }
    let (code, out, err) = {
        let n = lines_of_a_run();
        let readers = [
            messages(n, move |b| journald.recv(b).unwrap()),
            messages(n, move |b| syslog.recv(b).unwrap()),
            messages(n, move |b| remote.recv(b).unwrap()),
        ];
        let result = outcome(&mut command);
        let [journal, local, remote] = readers.map(|r| r.join().unwrap());
        let file = lines(&at("file"));
        assert_eq!(file.len(), n);
        for (i, line) in file.iter().enumerate() {
            let fields = journal_fields(&journal[i]);
            let field = |name: &str| {
                let found = fields.iter().find(|(n, _)| n == name);
                found.map(|(_, v)| v.as_str())
            };
            let json: Value = serde_json::from_str(field("IO_STARVE_JSON").unwrap()).unwrap();
            assert_eq!(&json, line);
            assert_eq!(field("IO_STARVE_EVENT"), line["event"].as_str());
            assert!(
                field("MESSAGE")
                    .unwrap()
                    .contains(line["event"].as_str().unwrap())
            );
            if line["event"] == "open" {
                assert_eq!(field("PRIORITY"), Some("4"));
                assert_eq!(field("IO_STARVE_KIND"), Some("async-write-starvation"));
                assert_eq!(field("IO_STARVE_DEVICE"), Some("sda"));
                assert_eq!(
                    field("IO_STARVE_VICTIM"),
                    Some("/system.slice/backup.service")
                );
                assert_eq!(
                    field("IO_STARVE_CULPRIT"),
                    Some("/system.slice/reader.service")
                );
                assert_eq!(field("IO_STARVE_LABEL_SITE"), Some("berlin"));
            }
            for message in [&local[i], &remote[i]] {
                let message = std::str::from_utf8(message).unwrap();
                let (header, body) = message.split_once(" \u{feff}").unwrap();
                assert_eq!(&serde_json::from_str::<Value>(body).unwrap(), line);
                assert!(
                    header.starts_with('<') && header.contains(">1 2023-11-14T22:1"),
                    "{header}"
                );
                assert!(header.ends_with("\"]"), "{header}");
                if line["event"] == "open" {
                    assert!(header.starts_with("<28>1 "), "{header}");
                    assert!(header.contains(" db1 io-starve "), "{header}");
                    assert!(
                        header.contains("[io-starve@32473 event=\"open\" id="),
                        "{header}"
                    );
                    assert!(
                        header.contains(" victim=\"/system.slice/backup.service\""),
                        "{header}"
                    );
                }
            }
        }
        result
    };
    assert_eq!((code, out.lines().count()), (0, lines_of_a_run()), "{err}");
    assert_eq!(out, std::fs::read_to_string(at("file")).unwrap());
}

/// The next messages of a socket, read meanwhile: a unix datagram socket holds ten.
fn messages(
    n: usize,
    mut receive: impl FnMut(&mut [u8]) -> usize + Send + 'static,
) -> JoinHandle<Vec<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        (0..n)
            .map(|_| {
                let length = receive(&mut buffer);
                buffer[..length].to_vec()
            })
            .collect()
    })
}

/// How many alerts the recording gives.
fn lines_of_a_run() -> usize {
    let recording = recording();
    let mut command = io_starve(["watch", "--replay"]);
    let (code, out, err) = outcome(command.arg(recording.path()));
    assert_eq!(code, 0, "{err}");
    for event in ALL {
        assert!(
            out.contains(&format!("\"event\":\"{event}\"")),
            "no {event}"
        );
    }
    out.lines().count()
}

#[test]
fn a_reader_that_goes_away_leaves_the_other_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let recording = recording();
    let mut child = Command::new(env!("CARGO_BIN_EXE_io-starve"))
        .args(["watch", "--output", "-", "--speed", "200", "--output"])
        .arg(&file)
        .arg("--replay")
        .arg(recording.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(lines(&file).len(), lines_of_a_run());
}

#[test]
fn nothing_is_lost_across_rotations() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let (recording, path) = (recording(), file.display().to_string());
    let speed = ["--speed", "60", "--status-every", "500ms", "--replay"];
    let all: Vec<&str> = speed
        .into_iter()
        .chain([recording.path().to_str().unwrap(), "--output", &path])
        .collect();
    let daemon = Daemon::start(&all);
    let mut parts = Vec::new();
    for i in 0..4 {
        until("a line in the log", || {
            (!lines_so_far(&file).is_empty()).then_some(())
        });
        let old = dir.path().join(format!("log.{i}"));
        std::fs::rename(&file, &old).unwrap();
        daemon.signal(Signal::HUP);
        until("the log is there again", || file.exists().then_some(()));
        parts.push(old);
    }
    daemon.end(None);
    parts.push(file);
    let rotated: Vec<Value> = parts.iter().flat_map(|p| lines(p)).collect();
    let whole = dir.path().join("whole");
    let whole_path = whole.display().to_string();
    let args = ["--status-every", "500ms", "--replay"];
    let mut command = io_starve(["watch"].into_iter().chain(args));
    let result = outcome(
        command
            .arg(recording.path())
            .args(["--output", &whole_path]),
    );
    assert_eq!(result.0, 0, "{}", result.2);
    assert_eq!(rotated, lines(&whole));
}

/// Whole lines, while somebody writes.
pub fn lines_so_far(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|l| l.ends_with('\n'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_killed_writer_leaves_lines_that_parse() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let (recording, path) = (recording(), file.display().to_string());
    let args = [
        "--speed",
        "400",
        "--status-every",
        "250ms",
        "--output",
        &path,
        "--replay",
    ];
    let args: Vec<&str> = args
        .into_iter()
        .chain([recording.path().to_str().unwrap()])
        .collect();
    let mut before = 0;
    for _ in 0..5 {
        let daemon = Daemon::start(&args);
        until("lines are written", || {
            (lines_so_far(&file).len() > before + 20).then_some(())
        });
        daemon.end(Some(Signal::KILL));
        before = lines_so_far(&file).len();
    }
    // As a kill in the middle of a write that crosses a page leaves it: the next start takes it back.
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(
        &file,
        [&whole[..], b"{\"schema\":1,\"version\":\"0"].concat(),
    )
    .unwrap();
    let daemon = Daemon::start(&args);
    daemon.end(None);
    assert!(lines(&file).len() > before);
}

#[test]
fn an_output_that_cannot_be_reached_is_said_before_anything_begins() {
    for (output, part) in [
        (
            "journald:/nowhere/s",
            "cannot send to journald (/nowhere/s): No such file",
        ),
        (
            "syslog:/nowhere/s",
            "cannot send to syslog (/nowhere/s): No such file",
        ),
        ("/nowhere/log", "cannot append to /nowhere/log"),
    ] {
        let (code, _, err) = outcome(&mut io_starve(["watch", "--output", output]));
        assert!(code == 1 && err.contains(part), "{code} {err}");
    }
}

#[test]
fn a_service_manager_hears_of_the_first_tick_of_every_tick_and_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let recording = recording();
    // A watchdog names the process that it means.
    let line = "WATCHDOG_PID=$$ exec \"$0\" watch --speed 100 --replay \"$1\"";
    let mut child = Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_io-starve")])
        .arg(recording.path())
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "30000000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut heard = Vec::new();
    let mut buffer = [0; 256];
    while heard.last().is_none_or(|h| h != "STOPPING=1") {
        let n = manager.recv(&mut buffer).unwrap();
        heard.push(String::from_utf8_lossy(&buffer[..n]).trim_end().to_owned());
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(heard[..2], ["READY=1", "WATCHDOG=1"]);
    let alive = heard.iter().filter(|h| *h == "WATCHDOG=1").count();
    assert_eq!(alive, starvation().len());
}
