//! The flight recorder: what it keeps replays, also after a kill.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    io_starve, outcome,
    watch::{Daemon, lines, recording, until},
};

#[test]
fn a_finding_is_kept_with_what_surrounds_it_and_replays_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (flight, log) = (dir.path().join("flight"), dir.path().join("log"));
    let recording = recording();
    let daemon = Daemon::start(&[
        "--flight",
        flight.to_str().unwrap(),
        "--output",
        log.to_str().unwrap(),
        "--speed",
        "40",
        "--replay",
        recording.path().to_str().unwrap(),
    ]);
    daemon.end(None);
    let told = lines(&log);
    let open = told.iter().find(|l| l["event"] == "open").unwrap();
    let kept = open["recording"].as_str().unwrap();
    assert!(kept.starts_with(flight.to_str().unwrap()), "{kept}");
    let (code, out, err) = outcome(&mut io_starve(["replay", kept, "--format", "json"]));
    assert_eq!((code, err.as_str()), (0, ""));
    let again: Value = out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .find(|l: &Value| l["event"] == "open")
        .unwrap();
    assert_eq!(again["id"], open["id"]);
    let ring = std::fs::read_dir(&flight).unwrap().count();
    assert_eq!(ring, 4, "three segments and the finding");
}

#[test]
fn a_killed_flight_recorder_leaves_a_ring_that_replays() {
    let dir = tempfile::tempdir().unwrap();
    let flight = dir.path().join("flight");
    let recording = recording();
    let daemon = Daemon::start(&[
        "--flight",
        flight.to_str().unwrap(),
        "--speed",
        "30",
        "--replay",
        recording.path().to_str().unwrap(),
    ]);
    let files = || std::fs::read_dir(&flight).map_or(0, Iterator::count);
    until("the second segment", || (files() >= 3).then_some(()));
    daemon.end(Some(Signal::KILL));
    for entry in std::fs::read_dir(&flight).unwrap() {
        let path = entry.unwrap().path();
        let mut command = io_starve(["replay", "--format", "json"]);
        let (code, out, err) = outcome(command.arg(&path));
        // The segment may have been killed in its first moment.
        if std::fs::metadata(&path).unwrap().len() > 0 {
            assert_eq!(code, 0, "{path:?}: {err}");
            assert!(
                out.lines()
                    .all(|l| serde_json::from_str::<Value>(l).is_ok())
            );
        }
    }
}
