//! Every file under `tests/scenarios/`: what must be found, what must not, and that losses are said.
//!
//! Files are named `DETECTOR.fires.WHAT.txt`, `DETECTOR.quiet.WHAT.txt` and `DETECTOR.lossy.WHAT.txt`.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in a function that several share"
)]

use std::collections::BTreeSet;
use std::path::Path;

use io_starve::detect::DETECTORS;

mod scenario;
use scenario::Scenario;

fn files() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<(String, String)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn scenarios_are_judged_as_they_expect() {
    let mut failed = Vec::new();
    for (name, text) in files() {
        let result = Scenario::parse(&text).and_then(|s| s.check());
        if let Err(why) = result {
            failed.push(format!("{name}:\n{why}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn no_detector_lacks_a_scenario_that_fires_one_that_is_quiet_and_one_with_losses() {
    let mut have: BTreeSet<(String, String)> = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for (name, text) in files() {
        let parts: Vec<&str> = name.split('.').collect();
        let [detector, what, _, "txt"] = parts[..] else {
            panic!("{name} is not DETECTOR.fires|quiet|lossy.WHAT.txt");
        };
        let of: BTreeSet<&str> = DETECTORS
            .iter()
            .filter(|d| d.name() == detector)
            .flat_map(|d| d.kinds())
            .map(|k| k.name())
            .collect();
        assert!(!of.is_empty(), "{name}: no such detector");
        let scenario = Scenario::parse(&text).unwrap();
        let (opens, lossy) = scenario.opens();
        let own = scenario.kinds().filter(|k| of.contains(k)).count();
        match what {
            "fires" => {
                assert!(
                    own > 0 && opens > 0,
                    "{name} expects nothing of its detector"
                );
                kinds.extend(scenario.kinds().map(str::to_owned));
            }
            "quiet" => assert_eq!(
                own, 0,
                "{name} expects a finding of the detector that must be quiet"
            ),
            "lossy" => assert!(lossy, "{name} does not ask for a loss"),
            other => panic!("{name}: {other} is not fires, quiet or lossy"),
        }
        have.insert((detector.to_owned(), what.to_owned()));
    }
    for detector in DETECTORS {
        for what in ["fires", "quiet", "lossy"] {
            let pair = (detector.name().to_owned(), what.to_owned());
            assert!(
                have.contains(&pair),
                "{} has no file {}.{what}.*.txt",
                detector.name(),
                detector.name()
            );
        }
        for kind in detector.kinds() {
            assert!(
                kinds.contains(kind.name()),
                "no scenario makes {}",
                kind.name()
            );
        }
    }
}

#[test]
fn a_typo_fails() {
    let good = "device 8:0 sda none\nend 1s\nfrom 0s to 1s: issue 28 sync-read 5\n";
    assert!(Scenario::parse(good).unwrap().check().is_ok());
    for bad in [
        "device 8:0 sda nome\nend 1s",
        "device 8:0 sda none writes_starfed=3\nend 1s",
        "device 8:0 sda none",
        "end 1s\ndevise 8:0 sda none",
        "end 1s\nset withheld_msec 5",
        "device 8:0 sda none\nend 1s\nfrom 0s to 1s: issue 28 sync-reed 5",
        "device 8:0 sda none\nend 1s\nfrom 0s to 1s: issue 28 sync-read 5 qeued=3ms",
        "device 8:0 sda none\nend 1s\nfrom 0s to 1s: wait 28 sync-read queued 5",
        "device 8:0 sda none\nend 1s\nfrom 0s to 1s: wait 28 sync-read qeued 5 age=1s",
        "device 8:0 sda none\nend 1s\nfrom 0s to 1s: wait 28 sync-read queued 5 age=1x",
        "device 8:0 sda none\nend 1s\nfrom 0s to 1s: lose slots-ful 5",
        "end 1s\nexpect open read-starvatoin at 1s",
        "end 1s\nexpect open read-starvation at 1s rule=witheld",
        "end 1s\nexpect open read-starvation at 1s victm=3",
        "end 1s\nexpect open read-starvation at 1s victim=x",
        "end 1s\nexpect open read-starvation 1s",
        "end 1s\nexpect close read-starvation at 1s reason=bored",
        "end 1s\nexpect quiet read-starvation at 1s",
    ] {
        assert!(Scenario::parse(bad).is_err(), "was read: {bad}");
    }
}

#[test]
fn an_expectation_that_is_not_met_fails() {
    let quiet = "device 8:0 sda none\nend 1s\nfrom 0s to 1s: issue 28 sync-read 5\n";
    let open = format!("{quiet}expect open read-starvation at 1s\n");
    assert!(Scenario::parse(&open).unwrap().check().is_err());
    let verdict = format!("{quiet}expect verdict at 1s sda: all is lost\n");
    assert!(Scenario::parse(&verdict).unwrap().check().is_err());
    let file = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/scenarios/starvation.fires.mq-deadline.txt"),
    )
    .unwrap();
    let unexpected: String = file
        .lines()
        .filter(|l| !l.starts_with("expect open"))
        .map(|l| format!("{l}\n"))
        .collect();
    assert!(Scenario::parse(&unexpected).unwrap().check().is_err());
}
