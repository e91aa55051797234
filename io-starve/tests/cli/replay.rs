//! Recordings replayed by the program.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use io_starve::{detect::settings::Settings, output::alert::Alert};
use tempfile::NamedTempFile;

use crate::{
    io_starve, outcome,
    stream::{Run, about_findings, starvation},
};

fn replay(file: &NamedTempFile, args: &[&str]) -> (i32, String, String) {
    outcome(io_starve(["replay"]).arg(file.path()).args(args))
}

fn with_bytes(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// The lines of the run itself from the `from`th observation on.
fn live(from: usize) -> (Run, Vec<String>) {
    let list = starvation();
    let mut run = Run::new();
    for o in &list[..from] {
        run.feed(o);
    }
    let mut rest = run.clone();
    let mut alerts: Vec<Alert> = list[from..].iter().flat_map(|o| rest.feed(o)).collect();
    alerts.extend(rest.stop());
    let lines: Vec<String> = alerts.iter().map(|a| a.to_line().unwrap()).collect();
    let lines = about_findings(lines.iter().map(|l| l.trim_end()));
    (run, lines)
}

#[test]
fn a_replay_tells_what_the_run_told_byte_for_byte() {
    // From the beginning; in the middle of the finding; between its end and its close.
    for from in [0, 30, 70] {
        let (run, told) = live(from);
        assert!(!told.is_empty());
        let (code, out, err) = replay(&run.record(&starvation()[from..]), &["--format", "json"]);
        assert_eq!((code, err.as_str()), (0, ""), "from {from}");
        assert_eq!(about_findings(out.lines()), told, "from {from}");
        assert!(out.lines().next().unwrap().contains("\"event\":\"start\""));
        assert!(
            out.lines()
                .last()
                .unwrap()
                .contains("\"reason\":\"recording-ended\"")
        );
    }
}

#[test]
fn the_text_reads_well() {
    let (code, out, err) = replay(
        &Run::new().record(&starvation()[..90]),
        &["--format", "text"],
    );
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out);
}

#[test]
fn without_a_terminal_text_is_what_you_get() {
    let file = Run::new().record(&starvation()[..30]);
    assert_eq!(replay(&file, &[]), replay(&file, &["--format", "text"]));
}

#[test]
fn other_thresholds_judge_anew_from_the_beginning_only() {
    let list = starvation();
    let file = Run::new().record(&list);
    let (code, out, _) = replay(
        &file,
        &[
            "--format",
            "json",
            "--withheld-ms",
            "60000",
            "--withheld-critical-ms",
            "60000",
            "--crawling-ms",
            "9999999",
            "--crawling-critical-ms",
            "9999999",
        ],
    );
    assert_eq!(code, 0);
    assert_eq!(about_findings(out.lines()), Vec::<String>::new());
    let middle = live(30).0.record(&list[30..]);
    let (code, _, err) = replay(&middle, &["--format", "json", "--withheld-ms", "6000"]);
    assert_eq!(code, 2);
    assert!(err.contains("in the middle of a run"), "{err}");
}

#[test]
fn thresholds_must_go_together_with_those_that_were_recorded() {
    let odd = Settings {
        withheld_ms: 500,
        withheld_critical_ms: 400,
        ..Settings::default()
    };
    let fast = Settings {
        withheld_critical_ms: 600,
        ..odd.clone()
    };
    let play = |settings: &Settings, args: &[&str]| {
        let file = Run::judged_by(settings.clone()).record(&starvation()[..2]);
        replay(&file, args)
    };
    // 1000 would be more than 800, but it is not what is asked for.
    let (code, _, err) = play(&fast, &["--withheld-critical-ms", "800"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let (code, _, err) = play(&fast, &["--withheld-ms", "800"]);
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("--withheld-ms 800 is above --withheld-critical-ms 600"),
        "{err}"
    );
    // There was a time when anything could be given.
    let (code, _, err) = play(&odd, &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    for args in [["--stuck-ms", "0"], ["--crawling-share", "nan"]] {
        let (code, _, err) = play(&odd, &args);
        assert_eq!(code, 2, "{err}");
        assert!(
            err.starts_with(&format!("io-starve: {} ", args[0])),
            "{err}"
        );
    }
}

#[test]
fn severity_filters_and_the_first_that_passes_opens() {
    let file = Run::new().record(&starvation());
    let (_, out, _) = replay(&file, &["--format", "json", "--min-severity", "critical"]);
    let lines = about_findings(out.lines());
    assert!(
        lines[0].contains("\"event\":\"open\"") && lines[0].contains("\"severity\":\"critical\""),
        "{lines:?}"
    );
    assert!(lines.last().unwrap().contains("\"event\":\"close\""));
    assert!(lines[1..].iter().all(|l| !l.contains("\"event\":\"open\"")));
}

#[test]
fn a_torn_recording_replays_up_to_the_tear_and_says_so() {
    let whole = Run::new().record(&starvation()[..60]);
    let bytes = std::fs::read(whole.path()).unwrap();
    let expected = replay(&whole, &["--format", "json"]).1;
    let torn = with_bytes(&bytes[..bytes.len() * 2 / 3]);
    let (code, out, err) = replay(&torn, &["--format", "json"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        err.starts_with("io-starve: the recording is damaged after "),
        "{err}"
    );
    assert!(
        err.contains("observations up to 2023-11-14T22:13:"),
        "{err}"
    );
    let (whole_lines, torn_lines) = (
        about_findings(expected.lines()),
        about_findings(out.lines()),
    );
    // The last one is the close of what was open at the tear.
    let (close, before) = torn_lines.split_last().unwrap();
    assert_eq!(before, &whole_lines[..before.len()]);
    assert!(close.contains("\"reason\":\"detached\""), "{close}");
    assert!(
        out.lines()
            .last()
            .unwrap()
            .contains("\"reason\":\"recording-torn\""),
        "{out}"
    );
}

#[test]
fn what_is_no_recording_is_named_as_such() {
    let says = |file: &NamedTempFile| {
        let (code, out, err) = replay(file, &["--format", "json"]);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(&file.path().display().to_string()), "{err}");
        err
    };
    assert!(says(&with_bytes(b"")).contains("is empty"));
    assert!(says(&with_bytes(b"hello\n")).contains("neither a recording of io-starve nor a trace"));
    let whole = std::fs::read(Run::new().record(&starvation()[..2]).path()).unwrap();
    assert!(says(&with_bytes(&whole[..40])).contains("damaged in its first frame"));
    let (code, _, err) = outcome(&mut io_starve(["replay", "/nowhere/x.rec"]));
    assert_eq!(code, 1);
    assert!(
        err.contains("cannot read /nowhere/x.rec: No such file"),
        "{err}"
    );
    let (code, _, err) = outcome(&mut io_starve(["replay", "/"]));
    assert_eq!(code, 1);
    assert!(err.contains("directory"), "{err}");
}

#[test]
fn a_recording_can_be_piped_in() {
    let file = Run::new().record(&starvation()[..60]);
    let bytes = std::fs::read(file.path()).unwrap();
    let from_file = replay(&file, &["--format", "json"]);
    let mut piped = io_starve(["replay", "-", "--format", "json"]);
    assert_eq!(outcome(piped.write_stdin(bytes)), from_file);
    let (code, _, err) = outcome(&mut io_starve(["replay", "-"]));
    assert_eq!(code, 1);
    assert!(
        err.starts_with("io-starve: standard input is empty"),
        "{err}"
    );
}

#[test]
fn what_was_piped_in_is_told_while_its_recorder_still_runs() {
    let file = Run::new().record(&starvation()[..20]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_io-starve"))
        .args(["replay", "-", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut recorder = child.stdin.take().unwrap();
    recorder
        .write_all(&std::fs::read(file.path()).unwrap())
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(lines.by_ref().any(|l| l.contains("\"event\":\"open\"")));
    drop(recorder);
    assert!(lines.last().unwrap().contains("recording-ended"));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_ends_it_in_order() {
    for signal in ["INT", "TERM", "HUP"] {
        let file = Run::new().record(&starvation());
        let mut child = Command::new(env!("CARGO_BIN_EXE_io-starve"))
            .args(["replay", "--format", "json", "--speed", "20"])
            .arg(file.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        assert!(lines.by_ref().any(|l| l.contains("\"event\":\"open\"")));
        // From here on the recording goes on for 3 s.
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        let rest: Vec<String> = lines.collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
        let [.., close, stop] = &rest[..] else {
            panic!("{rest:?}");
        };
        assert!(
            close.contains("\"event\":\"close\"") && close.contains("\"reason\":\"detached\""),
            "{close}"
        );
        assert!(
            stop.contains("\"event\":\"stop\"") && stop.contains("\"reason\":\"signal\""),
            "{stop}"
        );
    }
}

#[test]
fn a_reader_that_leaves_ends_it_quietly_and_soon() {
    let healthy: Vec<_> = starvation().into_iter().skip(60).collect();
    let file = Run::new().record(&healthy[..180]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_io-starve"))
        .args(["replay", "--format", "json", "--speed", "1"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "how long the program takes is the question"
    )]
    let begin = std::time::Instant::now();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.contains("\"event\":\"start\""));
    let output = child.wait_with_output().unwrap();
    // The recording takes 45 s and has no second line.
    assert!(
        begin.elapsed().as_secs() < 20,
        "only the next line showed that nobody reads"
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_focus_tells_what_a_cgroup_or_disk_has_part_in() {
    let file = Run::new().record(&starvation()[..60]);
    let told = |option: &str, value: &str| {
        let (code, out, err) = replay(&file, &["--format", "json", option, value]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.lines().next().unwrap().contains("\"event\":\"start\""));
        !about_findings(out.lines()).is_empty()
    };
    // Victim, culprit, a cgroup above both.
    for cgroup in ["backup.service", "/system.slice/reader*", "/system.slice"] {
        assert!(told("--cgroup", cgroup), "{cgroup}");
    }
    assert!(!told("--cgroup", "/user.slice"));
    assert!(told("--device", "sd*") && told("--device", "/dev/sda"));
    assert!(!told("--device", "sdb"));
}

#[test]
fn a_focus_narrows_the_table_and_says_that_there_is_more() {
    let file = Run::new().record(&starvation()[..30]);
    let (_, out, _) = replay(&file, &["--format", "text", "--cgroup", "/user.slice"]);
    assert!(!out.contains("backup.service async writes"), "{out}");
    assert!(
        out.contains("no findings; ") && out.contains("; 1 open elsewhere"),
        "{out}"
    );
    let (_, out, _) = replay(&file, &["--format", "text", "--device", "sdb"]);
    assert!(out.contains("no disk had I/O yet"), "{out}");
}
