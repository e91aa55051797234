//! fio and other commands under `run`: what their user sees, what is said of the jobs, and what goes wrong.

use std::{fs, process::Output};

use serde_json::Value;

use crate::machine::{Disk, io_starve};

/// Two jobs of one cgroup that are told apart by what they do.
const JOBS: &str = "[global]\nioengine=psync\ndirect=1\nbs=4k\nsize=16m\n[reader]\nrw=randread\nnumber_ios=2000\n[writer]\nstonewall\nrw=write\nnumber_ios=1000\n";

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn shown(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Lines without figures, which differ from run to run.
fn shape(text: &str) -> Vec<String> {
    let words = |line: &str| line.chars().filter(|c| c.is_alphabetic()).collect();
    let fixed = |line: &&str| {
        line.contains("rw=")
            || line.starts_with("Starting")
            || line.contains("Run status")
            || line.is_empty()
    };
    text.lines().filter(fixed).map(words).collect()
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn fio_says_what_it_always_says_and_its_counts_agree() {
    let disk = Disk::new(64 << 20, "mq-deadline");
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let job = at("job.fio");
    fs::write(
        &job,
        JOBS.replace(
            "[reader]",
            &format!("filename=/dev/{}\n[reader]", disk.name()),
        ),
    )
    .unwrap();
    let alone = std::process::Command::new("fio")
        .arg(&job)
        .output()
        .unwrap();
    let out = io_starve()
        .args([
            "run",
            "--device",
            disk.name(),
            "--json",
            &at("json"),
            "--report",
            &at("html"),
            "--junit",
            &at("xml"),
            "--",
            "fio",
            &job,
        ])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let text = shown(&out);
    assert_eq!(shape(&text), shape(&shown(&alone)));
    assert!(!text.contains("\"jobname\""), "{text}");
    let lines = fs::read_to_string(at("json")).unwrap();
    let events: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(events.last().unwrap()["event"], "stop");
    let result = &events[events.len() - 2];
    assert_eq!(
        (result["event"].as_str(), result["exit_code"].as_u64()),
        (Some("result"), Some(0))
    );
    let agreement = result["fio"]["agreement"].as_array().unwrap();
    for (job, ios) in [("reader", 2_000), ("writer", 1_000)] {
        let a = agreement.iter().find(|a| a["jobs"][0] == job).unwrap();
        assert_eq!(a["fio_ios"], ios);
        assert_eq!(
            (&a["requests"], &a["bytes"], &a["verdict"]),
            (&ios.into(), &(ios * 4_096).into(), &"agrees".into()),
            "{a}"
        );
    }
    assert!(
        said(&out).contains("reader sync-read: fio 2,000 I/Os"),
        "{}",
        said(&out)
    );
    assert!(
        fs::read_to_string(at("html"))
            .unwrap()
            .contains("Latency by fio beside time by stage")
    );
    assert!(
        fs::read_to_string(at("xml"))
            .unwrap()
            .contains("failures=\"0\" errors=\"0\"")
    );
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn fios_failures_are_passed_on_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("bad.fio");
    fs::write(&job, "[one]\nrw=nonsense\n").unwrap();
    let run = |path: &str, args: &[&str]| {
        io_starve()
            .arg("run")
            .args(args)
            .env("PATH", path)
            .arg("--")
            .arg("fio")
            .arg(&job)
            .output()
            .unwrap()
    };
    let path = std::env::var("PATH").unwrap();
    let bad = run(&path, &[]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        said(&bad).contains("fio: failed parsing rw=nonsense"),
        "{}",
        said(&bad)
    );
    assert!(
        said(&bad).contains("fio ended without its figures"),
        "{}",
        said(&bad)
    );
    // A report that was asked for, and nothing to report on.
    let page = dir.path().join("page.html");
    let missing = run("/nowhere", &["--report", page.to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(
        said(&missing).contains("fio is not installed here"),
        "{}",
        said(&missing)
    );
    assert!(!page.exists());
    fs::write(
        &job,
        "[one]\nioengine=null\nsize=1g\ntime_based\nruntime=100\nthread\n",
    )
    .unwrap();
    let killed = io_starve()
        .args([
            "run",
            "--",
            "sh",
            "-c",
            "fio --output=/dev/null $0 & kill -9 $!; wait $!",
            job.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert_eq!(killed.status.code(), Some(137), "{}", said(&killed));
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn the_users_own_json_and_file_stay_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    let common = ["--name=a", "--ioengine=null", "--size=1m", "--rw=read"];
    let run = |args: &[&str]| {
        let out = io_starve()
            .args(["run", "--", "fio"])
            .args(args)
            .args(common)
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", said(&out));
        shown(&out)
    };
    let json: Value = serde_json::from_str(&run(&["--output-format=json"])).unwrap();
    assert_eq!(json["jobs"][0]["jobname"], "a");
    assert_eq!(run(&["--output", file.to_str().unwrap()]), "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("a: (groupid=0, jobs=1): err= 0") && !text.contains("\"jobname\""),
        "{text}"
    );
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn a_command_may_leave_children_and_a_process_that_runs_already_is_watched() {
    let out = io_starve()
        .args([
            "run",
            "--",
            "sh",
            "-c",
            "sleep 300 >/dev/null 2>&1 & echo $!; exit 4",
        ])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(4));
    let left: i32 = shown(&out).trim().parse().unwrap();
    let left = rustix::process::Pid::from_raw(left).unwrap();
    rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();

    let mut sleeper = std::process::Command::new("sleep")
        .arg("1")
        .spawn()
        .unwrap();
    let pid = sleeper.id().to_string();
    let waiter = std::thread::spawn(move || sleeper.wait());
    let out = io_starve().args(["run", "--pid", &pid]).output().unwrap();
    waiter.join().unwrap().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let out = io_starve().args(["run", "--pid", &pid]).output().unwrap();
    assert_eq!(out.status.code(), Some(125));
    assert!(said(&out).contains("there is no process"), "{}", said(&out));
}
