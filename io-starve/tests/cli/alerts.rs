//! Alerts against their schema, judged by validators that this project did not write.

use std::{io::Write, process::Stdio};

use io_starve::output::alert::{Alert, schema_text};
use serde_json::Value;

use crate::{
    io_starve, outcome,
    stream::{Run, starvation},
};

/// A run with every event.
fn lines() -> Vec<Value> {
    let mut run = Run::new();
    let mut alerts: Vec<Alert> = starvation().iter().flat_map(|o| run.feed(o)).collect();
    alerts.extend(run.stop());
    // A second run that is left while its finding is open.
    let mut left = Run::new();
    alerts.extend(starvation()[..20].iter().flat_map(|o| left.feed(o)));
    alerts.extend(left.stop());
    alerts
        .iter()
        .map(|a| serde_json::from_str(&a.to_line().unwrap()).unwrap())
        .collect()
}

fn of_event<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    let found: Vec<_> = lines.iter().filter(|l| l["event"] == event).collect();
    assert!(!found.is_empty(), "no {event}");
    found
}

#[test]
fn the_committed_schema_is_that_of_the_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/alert.schema.json");
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == schema_text(),
        "docs/alert.schema.json is not current: `cargo run -p io-starve -- schema > docs/alert.schema.json`"
    );
    assert_eq!(outcome(&mut io_starve(["schema"])).1, committed);
}

#[test]
fn every_event_is_valid_and_damage_is_noticed() {
    let schema: Value = serde_json::from_str(&schema_text()).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(&schema)
        .unwrap();
    let lines = lines();
    for event in ["start", "status", "open", "update", "close", "stop"] {
        for line in of_event(&lines, event) {
            let errors: Vec<_> = validator
                .iter_errors(line)
                .map(|e| format!("{} {e}", e.instance_path))
                .collect();
            assert!(errors.is_empty(), "{errors:?}\n{line}");
            for field in line.as_object().unwrap().keys() {
                let mut damaged = line.clone();
                damaged.as_object_mut().unwrap().remove(field);
                assert!(
                    !validator.is_valid(&damaged),
                    "{event} without {field} is valid"
                );
            }
            for (field, wrong) in [
                ("mono_ns", "1".into()),
                ("time", "yesterday".into()),
                ("schema", 2.into()),
            ] {
                let mut damaged = line.clone();
                damaged[field] = wrong;
                assert!(
                    !validator.is_valid(&damaged),
                    "{event} with a wrong {field} is valid"
                );
            }
        }
    }
}

#[test]
fn the_validator_of_python_agrees() {
    let script = "import json, sys, jsonschema\n\
                  lines = [json.loads(l) for l in sys.stdin]\n\
                  schema = lines.pop(0)\n\
                  jsonschema.Draft202012Validator.check_schema(schema)\n\
                  v = jsonschema.Draft202012Validator(schema)\n\
                  for l in lines: v.validate(l)\n\
                  print(len(lines))\n";
    let python = |args: &[&str]| {
        let mut command = std::process::Command::new("python3");
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let present = python(&["-c", "from jsonschema import Draft202012Validator"]).output();
    if !present.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: python3-jsonschema is not installed");
        return;
    }
    let lines = lines();
    let mut child = python(&["-c", script]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let schema: Value = serde_json::from_str(&schema_text()).unwrap();
    for line in std::iter::once(&schema).chain(&lines) {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(out.trim(), lines.len().to_string(), "{err}");
}

#[test]
fn a_finding_names_victim_culprit_and_what_to_do() {
    let lines = lines();
    let open = of_event(&lines, "open")[0];
    assert_eq!(open["kind"], "async-write-starvation");
    assert_eq!(open["severity"], "warning");
    assert_eq!(open["host"], "db1");
    assert_eq!(open["kernel"], "6.12.0");
    assert_eq!(open["labels"]["site"], "berlin");
    assert_eq!(
        open["device"],
        serde_json::json!({"major": 8, "minor": 0, "name": "sda"})
    );
    assert_eq!(open["filesystem"], Value::Null);
    assert_eq!(
        open["victim"]["cgroup"]["path"],
        "/system.slice/backup.service"
    );
    assert_eq!(open["victim"]["cgroup"]["unit"], "backup.service");
    assert_eq!(open["victim"]["cgroup"]["pod"], Value::Null);
    assert_eq!(open["victim"]["task"]["comm"], "kworker/u4:1");
    assert_eq!(open["victim"]["class"], "async-write");
    assert_eq!(
        open["culprits"][0]["cgroup"]["path"],
        "/system.slice/reader.service"
    );
    assert_eq!(open["culprits"][0]["class"], "sync-read");
    assert_eq!(open["mechanism"], "scheduler");
    assert_eq!(open["stage"], "queued");
    assert_eq!(open["evidence"]["rule"], "withheld");
    assert_eq!(open["threshold_ms"], 1_000);
    assert_eq!(open["pressure"], Value::Null);
    assert_eq!(open["reason"], Value::Null);
    let advice = open["advice"].to_string();
    assert!(advice.contains("writes_starved"), "{advice}");
    // Inserted at 1 s of the run, which began at 22:13:20.
    assert_eq!(open["since"], "2023-11-14T22:13:21.000Z");
    let close = of_event(&lines, "close")[0];
    assert_eq!(close["id"], open["id"]);
    assert_eq!(close["since"], open["since"]);
    assert_eq!(close["severity"], "critical");
    assert_eq!(close["reason"], "resolved");
}

#[test]
fn the_totals_of_the_run_add_up() {
    let lines = lines();
    let stop = of_event(&lines, "stop")[0];
    assert_eq!(stop["findings"], 1);
    assert_eq!(stop["open"], serde_json::json!([]));
    assert_eq!(stop["hooks"]["attached"], 2);
    assert_eq!(stop["hooks"]["wanted"], 3);
    assert_eq!(stop["hooks"]["list"][2]["why"], "Operation not permitted");
    assert_eq!(
        stop["loss"]["missing"],
        serde_json::json!(["what block_getrq tells"])
    );
    assert_eq!(stop["requests_seen"], 57 * 75 + 8);
    let account = |class: &str| {
        let list = stop["accounts"].as_array().unwrap();
        list.iter()
            .find(|a| a["device"] == "sda" && a["class"] == class)
            .unwrap()
            .clone()
    };
    assert_eq!(account("sync-read")["finished"], 57 * 75);
    let writes = account("async-write");
    assert_eq!(
        (&writes["seen"], &writes["finished"], &writes["in_flight"]),
        (&8.into(), &8.into(), &0.into())
    );
    assert_eq!(writes["queued_max_ms"], 13_249.0);
    let status = of_event(&lines, "status");
    assert_eq!(status.len(), 1, "one in 65 s");
    assert_eq!(status[0]["time"], "2023-11-14T22:14:20.000Z");
}

#[test]
fn a_finding_that_is_open_at_the_end_is_closed_as_detached() {
    let lines = lines();
    let last: Vec<_> = lines
        .iter()
        .rev()
        .take(2)
        .map(|l| l["event"].clone())
        .collect();
    assert_eq!(last, ["stop", "close"]);
    assert_eq!(lines[lines.len() - 2]["reason"], "detached");
}
