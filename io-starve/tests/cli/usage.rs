//! What is said to those who ask for something that cannot be, and the commands that only print.

use io_starve::detect::finding::Kind;

use crate::{as_nobody, io_starve, outcome};

#[track_caller]
fn says(args: &[&str], code: i32, part: &str) {
    let (got, _, err) = outcome(&mut io_starve(args));
    assert_eq!(got, code, "{args:?}: {err}");
    assert!(err.contains(part), "{args:?}: {err}");
}

#[test]
fn usage_errors_have_their_code_and_name_what_is_wrong() {
    says(&["frobnicate"], 2, "frobnicate");
    says(&["watch", "--interval", "5s"], 2, "from 50ms to 1s");
    says(&["watch", "--duration", "10"], 2, "with its unit");
    says(&["watch", "--duration", "0s"], 2, "above 0");
    says(&["watch", "--interval", "0s"], 2, "from 50ms to 1s");
    says(&["watch", "--label", "berlin"], 2, "KEY=VALUE");
    says(
        &["watch", "--min-severity", "bad"],
        2,
        "info, warning, critical",
    );
    says(
        &["top", "--crawling-share", "nan"],
        2,
        "a share from 0 to 1",
    );
    says(
        &["watch", "--withheld-ms", "20000"],
        2,
        "--withheld-ms 20000 is above --withheld-critical-ms 10000",
    );
    says(&["--crawling-critical-ms", "5"], 2, "is above");
    says(&["record", "-o", "/x/y", "--stuck-ms", "0"], 2, "1 or more");
    says(&["top", "--slots", "0"], 2, "0");
    says(
        &["explain", "read-starvatoin"],
        2,
        "did you mean `read-starvation`?",
    );
    says(&["replay"], 2, "<FILE>");
}

#[test]
fn a_recording_does_not_go_to_standard_output_by_accident() {
    says(&["record", "-o", "-"], 2, "/dev/stdout");
    says(&["watch", "--record", "-"], 2, "/dev/stdout");
    says(&["run", "--record", "-", "--", "true"], 125, "/dev/stdout");
    says(&["run", "--json", "-", "--", "true"], 125, "/dev/stdout");
}

#[test]
fn run_keeps_2_for_its_command() {
    says(&["run"], 125, "<CMD>");
    says(
        &["run", "--fail-on", "queue-stuk", "--", "true"],
        125,
        "did you mean `queue-stuck`?",
    );
    says(
        &["run", "--crawling-ms", "0", "--", "true"],
        125,
        "--crawling-ms 0",
    );
    says(
        &["--interval", "1h", "run", "--", "true"],
        125,
        "from 50ms to 1s",
    );
}

#[test]
fn help_and_version_go_to_standard_output_and_are_no_error() {
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let (code, out, err) = outcome(&mut io_starve(args));
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains("io-starve"), "{out}");
    }
}

#[test]
fn every_kind_is_explained_within_100_columns() {
    for kind in Kind::ALL {
        let (code, out, err) = outcome(&mut io_starve(["explain", kind.name()]));
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.starts_with(kind.name()), "{out}");
        assert!(out.contains("What to do"), "{out}");
        for line in out.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
    let (code, out, _) = outcome(&mut io_starve(["explain"]));
    assert_eq!(code, 0);
    for kind in Kind::ALL {
        assert_eq!(
            out.lines().filter(|l| l.starts_with(kind.name())).count(),
            1,
            "{out}"
        );
    }
}

#[test]
fn completions_know_the_commands() {
    let (code, out, _) = outcome(&mut io_starve(["completions", "bash"]));
    assert_eq!(code, 0);
    assert!(out.contains("explain") && out.contains("--fail-on"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["explain"][..], &["schema"], &["completions", "zsh"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_io-starve"))
            .args(args)
            .stdout(writer)
            .output();
        let output = command.unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(output.stderr, b"", "{args:?}");
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_io-starve"))
        .arg("schema")
        .stdout(full)
        .output();
    let output = command.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        err.starts_with("io-starve: cannot write to standard output: No space left"),
        "{err}"
    );
}

#[test]
fn demos_play_and_show_what_they_are_named_after() {
    let (code, names, _) = outcome(&mut io_starve(["demo", "--list"]));
    assert_eq!(code, 0);
    for name in names.lines() {
        let (code, out, err) = outcome(&mut io_starve(["demo", name, "--format", "json"]));
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        let open = |l: &str| {
            l.contains("\"event\":\"open\"") && l.contains(&format!("\"kind\":\"{name}\""))
        };
        assert!(out.lines().any(open), "{name}: {out}");
    }
    let (code, _, err) = outcome(&mut io_starve(["demo", "no-such-demo", "--format", "json"]));
    match names.is_empty() {
        true => assert!(
            code == 1 && err.contains("no recording inside"),
            "{code} {err}"
        ),
        false => assert!(code == 2 && err.contains("There are: "), "{code} {err}"),
    }
}

#[test]
fn how_to_read_the_kernel_is_no_question_of_a_replay() {
    for option in [
        &["--interval", "1s"][..],
        &["--without-hook", "block_rq_insert"],
        &["--slots", "5"],
    ] {
        let file = crate::stream::Run::new().record(&[]);
        let (code, _, err) = outcome(io_starve(["replay"]).arg(file.path()).args(option));
        assert_eq!(code, 2, "{err}");
        assert!(
            err.contains(option[0]) && err.contains("when a recording is made"),
            "{err}"
        );
    }
}

#[test]
fn run_without_permission_is_its_own_failure_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("it-ran");
    let (code, _, err) = outcome(as_nobody(["run", "--", "touch"]).arg(&trace));
    assert_eq!(code, 125, "{err}");
    assert!(err.starts_with("io-starve: "), "{err}");
    assert!(!trace.exists());
}

#[test]
fn without_permission_that_is_said_with_its_own_code() {
    for command in [["watch"], ["top"]] {
        let (code, out, err) = outcome(&mut as_nobody(command));
        assert_eq!((code, out.as_str()), (4, ""), "{err}");
        assert!(
            err.contains("not permitted") && err.contains("sudo"),
            "{err}"
        );
    }
    let (code, out, _) = outcome(&mut as_nobody(["doctor"]));
    assert_eq!(code, 4);
    assert!(out.contains("not permitted"), "{out}");
}

#[test]
fn a_full_standard_error_ends_nothing() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.rec");
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_io-starve"))
        .arg("replay")
        .arg(&missing)
        .stderr(full())
        .status()
        .unwrap();
    assert_eq!(
        status.code(),
        Some(1),
        "the failure's own code, not a panic's"
    );
}
