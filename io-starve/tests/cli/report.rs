//! Reports and comparisons of recordings.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{io_starve, outcome};

fn demo(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("demos")
        .join(name)
        .with_extension("rec")
}

#[test]
fn a_report_is_written_where_it_is_wanted_and_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let recording = demo("fsync-serialization");
    let (code, out, err) = outcome(io_starve(["report"]).arg(&recording).arg("-o").arg(&page));
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(
        err.contains("2 findings") && err.contains("page.html"),
        "{err}"
    );
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>"));
    assert!(html.contains("fsync-serialization") && html.ends_with("</html>"));
    let (code, out, _) = outcome(io_starve(["report"]).arg(&recording).args(["-o", "-"]));
    assert_eq!((code, out), (0, html));
    // Beside the recording.
    let copy = dir.path().join("a.rec");
    fs::copy(&recording, &copy).unwrap();
    assert_eq!(outcome(io_starve(["report"]).arg(&copy)).0, 0);
    assert!(dir.path().join("a.rec.html").exists());
}

#[test]
fn traces_have_reports_too() {
    let trace =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces/queue-stuck-6.1.txt.xz");
    let (code, out, err) = outcome(io_starve(["report"]).arg(trace).args(["-o", "-"]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("queue-stuck"));
}

#[test]
fn what_cannot_be_written_or_read_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let recording = demo("fsync-serialization");
    let nowhere = dir.path().join("no/page.html");
    let (code, _, err) = outcome(io_starve(["report"]).arg(&recording).arg("-o").arg(nowhere));
    assert_eq!(code, 1);
    assert!(err.contains("make its folder first"), "{err}");
    let page = dir.path().join("page.html");
    let (code, _, err) = outcome(io_starve(["report", "/nowhere.rec"]).arg("-o").arg(&page));
    assert_eq!(code, 1, "{err}");
    assert!(!page.exists());
    let (code, _, err) = outcome(
        io_starve(["report"])
            .arg(&recording)
            .args(["-o", "/dev/full"]),
    );
    assert_eq!(code, 1);
    assert!(err.contains("free space"), "{err}");
}

#[test]
fn two_runs_are_compared_by_name() {
    let (a, b) = (demo("async-write-starvation"), demo("fsync-serialization"));
    let (code, out, err) = outcome(io_starve(["compare"]).args([&a, &b]));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("before: async-write-starvation.rec"), "{out}");
    assert!(out.contains("gone") && out.contains("new"), "{out}");
    let (_, out, _) = outcome(io_starve(["compare", "--json"]).args([&a, &a]));
    let json: Value = serde_json::from_str(&out).unwrap();
    let factors = json["groups"].as_array().unwrap().iter();
    let factors = factors.flat_map(|g| g["factors"].as_array().unwrap());
    assert!(factors.clone().any(|f| f == 1.0));
    assert!(factors.into_iter().all(|f| f.is_null() || f == 1.0));
    let (code, _, err) = outcome(&mut io_starve(["compare", "-", "-"]));
    assert_eq!(code, 2);
    assert!(err.contains("only one of the two"), "{err}");
}
