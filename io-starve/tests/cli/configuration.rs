//! The configuration file of `watch`: its names, reading it again, the one that is shipped.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    io_starve, outcome,
    watch::{Daemon, events, lines, lines_so_far, recording, until},
};

#[test]
fn a_configuration_has_the_names_of_the_options() {
    let dir = tempfile::tempdir().unwrap();
    let (config, log) = (dir.path().join("c.toml"), dir.path().join("log"));
    let check = |text: &str| {
        std::fs::write(&config, text).unwrap();
        outcome(io_starve(["watch", "--check-config", "--config"]).arg(&config))
    };
    let (code, _, err) = check("# all of it\nmin-severty = \"info\"\n");
    let said = format!(
        "io-starve: {}:2: no option is called `min-severty`; did you mean `min-severity`?\n",
        config.display()
    );
    assert_eq!((code, err), (2, said));
    let (code, _, err) = check("interval = \"5s\"\n");
    assert!(
        code == 2 && err.contains("'--interval <TIME>': give a time from 50ms to 1s"),
        "{err}"
    );
    let (code, _, err) = check("withheld-ms = 20000\n");
    assert!(
        code == 2 && err.contains("is above --withheld-critical-ms"),
        "{err}"
    );
    let text = format!(
        "output = [\"{}\"]\nmin-severity = \"info\"\nlabels = {{ site = \"x\", rack = \"7\" }}\n",
        log.display()
    );
    let (code, out, err) = check(&text);
    assert!(code == 0 && out.ends_with("makes sense\n"), "{out}{err}");
    let recording = recording();
    let mut command = io_starve(["watch", "--config"]);
    let result = outcome(command.arg(&config).arg("--replay").arg(recording.path()));
    assert_eq!((result.0, result.1.as_str()), (0, ""), "{}", result.2);
    let open = lines(&log);
    assert_eq!(
        open[1]["labels"],
        serde_json::json!({"site": "x", "rack": "7"})
    );
    // What is ignored is not told; the rest is.
    std::fs::write(
        &config,
        text + "[[ignore]]\nkind = \"async-write-starvation\"\ncgroup = \"back*.service\"\n",
    )
    .unwrap();
    std::fs::remove_file(&log).unwrap();
    let mut command = io_starve(["watch", "--config"]);
    let result = outcome(command.arg(&config).arg("--replay").arg(recording.path()));
    assert_eq!(result.0, 0, "{}", result.2);
    assert_eq!(events(&lines(&log)), ["start", "status", "stop"]);
}

#[test]
fn a_configuration_is_read_again_and_a_broken_one_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (config, log) = (dir.path().join("c.toml"), dir.path().join("log"));
    let write = |site: &str| {
        std::fs::write(&config, format!("labels = {{ site = \"{site}\" }}\n")).unwrap()
    };
    write("one");
    let recording = recording();
    let (config_path, log_path) = (config.display().to_string(), log.display().to_string());
    let daemon = Daemon::start(&[
        "--config",
        &config_path,
        "--output",
        &log_path,
        "--status-every",
        "250ms",
        "--speed",
        "15",
        "--replay",
        recording.path().to_str().unwrap(),
    ]);
    let last_site = || {
        let last = lines_so_far(&log).pop()?;
        let last: Value = serde_json::from_str(&last).unwrap();
        last["labels"]["site"].as_str().map(str::to_owned)
    };
    until("the first label", || last_site().filter(|s| s == "one"));
    write("two");
    daemon.signal(Signal::HUP);
    until("the second label", || last_site().filter(|s| s == "two"));
    std::fs::write(&config, "lables = 1\n").unwrap();
    daemon.signal(Signal::HUP);
    let said = daemon.end(None);
    assert!(
        said.contains("read ") && said.contains("did you mean `labels`?"),
        "{said}"
    );
    assert!(
        said.contains("going on with what was read before"),
        "{said}"
    );
    assert_eq!(last_site().unwrap(), "two");
}

#[test]
fn the_shipped_configuration_makes_sense() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/config/config.toml");
    let (code, _, err) = outcome(&mut io_starve([
        "watch",
        "--check-config",
        "--config",
        path,
    ]));
    assert_eq!(code, 0, "{err}");
}
