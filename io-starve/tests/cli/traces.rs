//! Traces of other programs, replayed by the program. The files in tests/traces were recorded in guests of `cargo xtask vm` (5.10, 6.1)
//! beside a live run, whose findings are the expectation, and on a loop device by the kernel's blktrace.

use std::path::PathBuf;

use io_starve::{
    model::observation::StageDelta,
    source::{
        input::{self, Opened},
        replay::Tape,
    },
};
use io_starve_common::class::Class;
use serde_json::Value;

use crate::{io_starve, outcome};

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/traces", name]
        .iter()
        .collect()
}

/// (alerts, standard error) of a file.
fn replayed(name: &str, args: &[&str]) -> (Vec<Value>, String) {
    let (code, out, err) = outcome(
        io_starve(["replay", "--format", "json"])
            .args(args)
            .arg(file(name)),
    );
    assert_eq!(code, 0, "{err}");
    let alerts = out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    (alerts, err)
}

fn ms(alert: &Value, name: &str) -> u64 {
    alert[name].as_u64().unwrap()
}

/// What began when, in ms of the trace's clock.
fn findings(alerts: &[Value]) -> Vec<(String, String, String, u64)> {
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    alerts
        .iter()
        .filter(|a| a["event"] == "open")
        .map(|a| {
            let since = ms(a, "mono_ns") / 1_000_000 - ms(a, "duration_ms");
            (
                text(&a["kind"]),
                text(&a["victim"]["class"]),
                text(&a["mechanism"]),
                since,
            )
        })
        .collect()
}

#[test]
fn a_trace_gives_the_findings_of_the_run_beside_it() {
    // The live run said: the same kind, class and mechanism, since 25.375 s, 111.395 s and 109.753 s.
    for (name, kind, class, mechanism, since) in [
        (
            "async-write-5.10.txt.xz",
            "async-write-starvation",
            "async-write",
            "scheduler",
            25_375,
        ),
        (
            "device-stall-6.1.txt.xz",
            "device-stall",
            "sync-read",
            "device",
            111_395,
        ),
        (
            "queue-stuck-6.1.txt.xz",
            "queue-stuck",
            "sync-read",
            "device",
            109_753,
        ),
    ] {
        let (alerts, _) = replayed(name, &[]);
        let [(k, c, m, s)] = &findings(&alerts)[..] else {
            panic!("{name}: {:?}", findings(&alerts))
        };
        assert_eq!(
            (k.as_str(), c.as_str(), m.as_str()),
            (kind, class, mechanism),
            "{name}"
        );
        assert!(s.abs_diff(since) <= 1, "{name}: {s}");
    }
    let (alerts, err) = replayed("readers-only-6.1.txt.xz", &[]);
    assert!(findings(&alerts).is_empty());
    assert!(err.contains("block events"), "{err}");
}

#[test]
fn fsyncs_and_pauses_are_judged_as_in_the_run_beside() {
    // The live run on 6.12 said: the same kind and mechanism, the same threads, since 115.119 s, 23.221 s and 177.246 s; its longest
    // fsyncs took 4,592 and 3,807 ms.
    for (name, kind, mechanism, tid, since, longest) in [
        (
            "fsync-data-queue-6.12.txt.xz",
            "fsync-serialization",
            "data-queue",
            1030,
            115_119,
            4_592,
        ),
        (
            "fsync-journal-data-6.12.txt.xz",
            "fsync-serialization",
            "journal-data",
            375,
            23_221,
            3_807,
        ),
        (
            "dirty-throttle-6.12.txt.xz",
            "dirty-throttle",
            "dirty-limit",
            1282,
            177_246,
            52,
        ),
    ] {
        let (alerts, err) = replayed(name, &[]);
        let of_thread = |event: &str| {
            let is = |a: &&Value| a["event"] == event && a["victim"]["task"]["pid"] == tid;
            alerts.iter().find(is).unwrap_or_else(|| panic!("{name}"))
        };
        let open = of_thread("open");
        assert_eq!(open["kind"], kind, "{name}");
        assert_eq!(open["mechanism"], mechanism, "{name}");
        // Whose the rest is, nobody says: it may be the victim's own cgroup.
        assert_eq!(open["confidence"], "likely");
        assert_eq!(open["culprits"][0]["owner"], "unknown");
        let begin = ms(open, "mono_ns") / 1_000_000 - ms(open, "duration_ms");
        assert!(begin.abs_diff(since) <= 5, "{name}: {begin}");
        assert!(ms(of_thread("close"), "longest_ms").abs_diff(longest) <= 1);
        assert!(
            err.contains("events of fsyncs, journals and pauses"),
            "{err}"
        );
    }
    let (alerts, _) = replayed("quiet-fsync-default-6.12.txt.xz", &[]);
    assert!(findings(&alerts).is_empty());
}

#[test]
fn what_the_trace_cannot_tell_is_said_and_nothing_is_lost() {
    let (alerts, err) = replayed("async-write-5.10.txt.xz", &[]);
    let stop = alerts.last().unwrap();
    assert_eq!(stop["loss"]["events"], 0);
    let missing = stop["loss"]["missing"].to_string();
    assert!(missing.contains("who pays for a request"), "{missing}");
    assert_eq!(alerts[0]["host"], Value::Null);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(
        err.starts_with("io-starve: text of ftrace: 3,261 block events"),
        "{err}"
    );
}

#[test]
fn blktrace_and_its_text_give_the_figures_of_btt() {
    let accounts = |name: &str| {
        let (alerts, _) = replayed(name, &[]);
        alerts.last().unwrap()["accounts"].clone()
    };
    let binary = accounts("loop.blktrace.0.xz");
    assert_eq!(binary, accounts("loop.blktrace.1.xz"));
    assert_eq!(binary, accounts("loop.blkparse.txt.xz"));
    let rows = binary.as_array().unwrap();
    let sum = |name: &str| rows.iter().map(|r| ms(r, name)).sum::<u64>();
    // `btt` on the same files: I2D of 100 requests, 4.789 us at most.
    assert_eq!(sum("inserts"), 100);
    let longest = rows
        .iter()
        .filter_map(|r| r["queued_max_ms"].as_f64())
        .fold(0.0, f64::max);
    assert!((longest - 0.004_789).abs() < 1e-9, "{longest}");
}

#[test]
fn blktraces_files_are_found_by_their_folder_and_one_may_be_empty() {
    let dir = tempfile::tempdir().unwrap();
    for cpu in ["0", "1"] {
        let packed = std::fs::read(file(&format!("loop.blktrace.{cpu}.xz"))).unwrap();
        std::fs::write(dir.path().join(format!("loop0.blktrace.{cpu}.xz")), packed).unwrap();
    }
    std::fs::write(dir.path().join("loop0.blktrace.2.xz"), "").unwrap();
    let path = |name: &str| dir.path().join(name);
    for path in [path(""), path("loop0"), path("loop0.blktrace.2.xz")] {
        let (code, out, err) = outcome(io_starve(["replay", "--format", "json"]).arg(&path));
        assert_eq!(code, 0, "{err}");
        let stop: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        assert!(
            stop["summary"]
                .as_str()
                .unwrap()
                .contains("101 requests seen"),
            "{stop}"
        );
    }
}

#[test]
fn times_of_stages_are_those_of_btt() {
    let Ok(Opened::Trace(mut trace)) = input::open(&file("loop.blktrace.0.xz"), None) else {
        panic!("not taken for a trace")
    };
    let mut stages = [StageDelta::default(); 3];
    while let Some(o) = trace.next_observation() {
        for d in o.groups.iter().filter(|g| g.key.class != Class::Flush) {
            for (sum, stage) in stages.iter_mut().zip(d.stages) {
                sum.count += stage.count;
                sum.sum_ns += stage.sum_ns;
                sum.max_ns = sum.max_ns.max(stage.max_ns);
            }
        }
    }
    let [admission, queued, device] = stages;
    // btt on the same files, in us: Q2G 15.636 and 59.469 at most (N 100), Q2M 0.277 (N 1016), I2D 1.211 and 4.789 at most (N 100), D2C
    // 6605.142 at most.
    // btt leaves out the bio of fsync without data, which waited 6.011 us.
    assert_eq!((admission.count, admission.max_ns), (101 + 1_016, 59_469));
    assert_eq!(queued.count, 100);
    let expected = 15_636 * 100 + 277 * 1_016 + 6_011;
    assert!(admission.sum_ns.abs_diff(expected) <= 600, "{admission:?}");
    assert!(queued.sum_ns.abs_diff(121_100) <= 50, "{queued:?}");
    assert_eq!(queued.max_ns, 4_789);
    // btt counts D2C by bio; this is the sum over requests in blkparse's text.
    assert_eq!(
        (device.count, device.sum_ns, device.max_ns),
        (100, 52_171_183, 6_605_142)
    );
}

#[test]
fn a_trace_can_be_piped_in_and_forced() {
    let bytes = std::fs::read(file("queue-stuck-6.1.txt.xz")).unwrap();
    let mut piped = io_starve(["replay", "-", "--format", "json", "--from", "ftrace"]);
    let (code, out, _) = outcome(piped.write_stdin(bytes));
    assert_eq!(code, 0);
    assert!(out.contains("queue-stuck"), "{out}");
    let (code, _, err) =
        outcome(io_starve(["replay", "--from", "recording"]).arg(file("queue-stuck-6.1.txt.xz")));
    assert_eq!(code, 1);
    assert!(err.contains("is not a recording"), "{err}");
}

#[test]
fn thresholds_judge_a_trace_and_attaching_is_refused() {
    let (alerts, _) = replayed("async-write-5.10.txt.xz", &["--withheld-ms", "3000"]);
    let open = alerts.iter().find(|a| a["event"] == "open").unwrap();
    assert!(ms(open, "duration_ms") >= 3_000);
    let (alerts, _) = replayed("async-write-5.10.txt.xz", &["--device", "8:0"]);
    assert!(findings(&alerts).is_empty());
    let (code, _, err) =
        outcome(io_starve(["replay", "--interval", "50ms"]).arg(file("async-write-5.10.txt.xz")));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn the_text_reads_well() {
    let (code, out, _) =
        outcome(io_starve(["replay", "--format", "text"]).arg(file("async-write-5.10.txt.xz")));
    assert_eq!(code, 0);
    insta::assert_snapshot!(out);
}

#[test]
fn a_script_for_machines_without_io_starve() {
    let (code, out, err) = outcome(&mut io_starve(["capture-script", "--tool", "trace-cmd"]));
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out);
    let (code, out, _) = outcome(&mut io_starve(["capture-script", "--device", "nvme0n1"]));
    assert_eq!(code, 0);
    assert!(out.contains("-d /dev/nvme0n1"), "{out}");
}
