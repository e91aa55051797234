//! Each comparison, with results that fit and with one thing that does not.

use super::*;
use crate::vm::results::parse_alerts;

const SCENARIO: &str = r#"
    title = "t"
    reproduces = "r"
    load_limit_s = 20
    trace = true
    [[disk]]
    size_mib = 64
    queue_depth = 2
    scheduler = "mq-deadline"
    [script]
    load = "true"
    [expect]
    never = ["queue-stuck"]
    must_close = true
    [[expect.finding]]
    kind = "async-write-starvation"
    rule = "withheld"
    mechanism = "scheduler"
    victim_class = "async-write"
    victim_cgroup = "/writer"
    top_culprit_cgroup = "/readers"
    [[expect.fio]]
    job = "readers"
    class = "sync-read"
"#;

/// Reads every 10 ms for 8 s, beside them one write inserted at 1 s and issued at 7 s.
fn trace() -> String {
    let line = |ms: u64, event: &str, rwbs: &str, sector: u64| {
        let bytes = if event.starts_with("rq") {
            "4096 () "
        } else {
            ""
        };
        let after = if event == "rq_complete" {
            "[0]"
        } else {
            "[fio]"
        };
        let bytes = if event == "rq_complete" { "() " } else { bytes };
        (
            ms,
            format!(
                " fio-1 [000] ..... {:5}.{:03}000: block_{event}: 8,0 {rwbs} {bytes}{sector} + 8 {after}\n",
                ms / 1000,
                ms % 1000
            ),
        )
    };
    let mut lines = vec![
        line(1_000, "rq_insert", "W", 8),
        line(7_000, "rq_issue", "W", 8),
        line(7_005, "rq_complete", "W", 8),
    ];
    for i in 0..800 {
        let sector = 1_000_000 + i * 8;
        lines.push(line(i * 10, "getrq", "R", sector));
        lines.push(line(i * 10 + 1, "rq_insert", "R", sector));
        lines.push(line(i * 10 + 3, "rq_issue", "R", sector));
        lines.push(line(i * 10 + 8, "rq_complete", "R", sector));
    }
    lines.sort();
    lines.into_iter().map(|(_, l)| l).collect()
}

fn finding(event: &str, ms: u64, more: &str) -> String {
    format!(
        "{{\"event\":\"{event}\",\"id\":\"f1\",\"kind\":\"async-write-starvation\",\"mono_ns\":{},\
         \"device\":{{\"major\":8,\"minor\":0}},\
         \"victim\":{{\"class\":\"async-write\",\"cgroup\":{{\"path\":\"/x/writer\"}}}},\
         \"culprits\":[{{\"cgroup\":{{\"path\":\"/x/readers\"}}}}],\"mechanism\":\"scheduler\",\
         \"evidence\":{{\"rule\":\"withheld\"}}{more}}}\n",
        ms * MS
    )
}

fn account(class: &str, n: u64, queued_max_ms: f64) -> String {
    format!(
        "{{\"device\":\"sda\",\"class\":\"{class}\",\"seen\":{n},\"finished\":{n},\"merged\":0,\"expired\":0,\
         \"in_flight\":0,\"inserts\":{n},\"issues\":{n},\"requeues\":0,\"queued_max_ms\":{queued_max_ms}}}"
    )
}

fn alerts() -> String {
    [
        "{\"event\":\"start\"}\n".to_string(),
        finding("open", 2_200, ""),
        finding("close", 17_250, ",\"reason\":\"resolved\""),
        format!(
            "{{\"event\":\"stop\",\"loss\":{{\"kinds\":{{}}}},\"accounts\":[{},{}]}}\n",
            account("sync-read", 800, 2.0),
            account("async-write", 1, 6000.0)
        ),
    ]
    .concat()
}

/// Both sides of a run.
struct Run {
    r: Results,
    o: Observed,
}

fn results(trace: &str, alerts: &str) -> Run {
    let parsed = parse_alerts(alerts).unwrap();
    Run {
        r: Results {
            device: ("sda".to_string(), "8:0".to_string()),
            trace: trace.to_string(),
            marks: BTreeMap::new(),
            fio: BTreeMap::from([(
                "readers".to_string(),
                serde_json::json!({"jobs": [{"read": {"total_ios": 800}, "write": {"total_ios": 0}}]}),
            )]),
            ..Results::default()
        },
        o: Observed {
            marks: BTreeMap::from([
                ("attached".to_string(), 0),
                ("stop".to_string(), 20_000 * MS),
            ]),
            replay: parsed.iter().filter(|a| a.is_finding()).cloned().collect(),
            alerts: parsed,
            codes: BTreeMap::from(["watch", "replay"].map(|n| (n.to_string(), "0".to_string()))),
            ..Observed::default()
        },
    }
}

fn problems(run: &Run) -> Vec<String> {
    let mut all = check(
        &Scenario::parse("x", SCENARIO).unwrap(),
        &run.r,
        Some(&run.o),
    )
    .problems;
    all.extend(check_observer(&run.o).problems);
    all
}

/// Exactly one problem, and it is about this.
fn only(r: &Run, about: &str) {
    let p = problems(r);
    assert!(
        p.len() == 1 && p[0].contains(about),
        "expected one about {about:?}: {p:#?}"
    );
}

fn changed(from: &str, to: &str) -> Run {
    let text = alerts().replace(from, to);
    assert_ne!(text, alerts(), "{from}");
    results(&trace(), &text)
}

#[test]
fn what_fits_has_no_problem() {
    assert_eq!(problems(&results(&trace(), &alerts())), [] as [String; 0]);
}

#[test]
fn every_count_is_compared() {
    only(
        &changed("\"inserts\":800", "\"inserts\":799"),
        "799 inserts, the kernel's trace has 800",
    );
    only(
        &changed("\"issues\":1,", "\"issues\":2,"),
        "async-write: 2 issues",
    );
    only(
        &changed(
            "\"requeues\":0,\"queued_max_ms\":2",
            "\"requeues\":1,\"queued_max_ms\":2",
        ),
        "1 requeues",
    );
    only(&changed("\"seen\":1,", "\"seen\":2,"), "does not balance");
    only(
        &changed("\"queued_max_ms\":6000", "\"queued_max_ms\":5600"),
        "longest in the queue 5600.0 ms",
    );
    only(
        &changed("\"kinds\":{}", "\"kinds\":{\"ring-full\":3}"),
        "3 events were lost: ring-full",
    );
    only(
        &changed("\"loss\"", "\"gone\""),
        "says nothing about losses",
    );
    assert_eq!(
        problems(&changed("\"kinds\":{}", "\"kinds\":{\"late-tick\":3}")),
        [] as [String; 0]
    );
}

#[test]
fn a_request_still_in_flight_at_the_end_is_a_ghost() {
    let ghost = account("async-write", 1, 6000.0)
        .replace("\"seen\":1", "\"seen\":2")
        .replace("\"in_flight\":0", "\"in_flight\":1");
    let r = changed(&account("async-write", 1, 6000.0), &ghost);
    only(&r, "the device is idle, yet the account has 1 in flight");
}

#[test]
fn other_devices_are_not_this_scenario() {
    let other = finding("open", 500, "")
        .replace("\"f1\"", "\"f2\"")
        .replace("\"minor\":0", "\"minor\":16");
    let accounts = account("sync-read", 7, 1.0).replace("sda", "sdb");
    let text = alerts().replace("\"accounts\":[", &format!("\"accounts\":[{accounts},")) + &other;
    assert_eq!(problems(&results(&trace(), &text)), [] as [String; 0]);
}

#[test]
fn alerts_must_come_in_time_and_not_before() {
    let at = |ms: u64| {
        changed(
            "\"event\":\"open\",\"id\":\"f1\",\"kind\":\"async-write-starvation\",\"mono_ns\":2200000000",
            &format!(
                "\"event\":\"open\",\"id\":\"f1\",\"kind\":\"async-write-starvation\",\"mono_ns\":{}",
                ms * MS
            ),
        )
    };
    assert_eq!(problems(&at(2_740)), [] as [String; 0]);
    only(&at(2_800), "later than allowed");
    only(&at(1_500), "before its rule was met");
}

#[test]
fn a_finding_without_its_rule_and_a_rule_without_its_finding() {
    let without: String = alerts()
        .lines()
        .filter(|l| !l.contains("f1"))
        .map(|l| format!("{l}\n"))
        .collect();
    let p = problems(&results(&trace(), &without));
    assert!(
        p.iter().any(|p| p.contains("was not found, though")),
        "{p:#?}"
    );
    let r = changed("async-write-starvation", "read-starvation");
    let p = problems(&r);
    assert!(
        p.iter()
            .any(|p| p.contains("read-starvation was found at") && p.contains("never met")),
        "{p:#?}"
    );
}

#[test]
fn what_a_scenario_expects_is_looked_at() {
    only(
        &changed("/x/readers", "/x/other"),
        "/culprits/0/cgroup/path is \"/x/other\"",
    );
    only(
        &changed("\"mechanism\":\"scheduler\"", "\"mechanism\":\"wbt\""),
        "/mechanism is \"wbt\"",
    );
    only(
        &changed("\"reason\":\"resolved\"", "\"reason\":\"detached\""),
        "closed as detached",
    );
    only(
        &changed("\"mono_ns\":17250000000", "\"mono_ns\":9000000000"),
        "sooner than its hold-down",
    );
}

#[test]
fn other_sources_must_agree() {
    let mut r = results(&trace(), &alerts());
    r.r.fio.insert(
        "readers".into(),
        serde_json::json!({"jobs": [{"read": {"total_ios": 801}}]}),
    );
    only(&r, "fio (readers) counts 801 I/Os, the trace 800");
    let mut r = results(&trace(), &alerts());
    r.r.trace_lost = 1;
    only(&r, "the trace lost 1 events");
    let mut r = results(&trace(), &alerts());
    r.o.replay.pop();
    only(&r, "the replay differs from the live run at finding line 2");
    let mut r = results(&trace(), &alerts());
    r.o.codes.insert("watch".into(), "101".into());
    only(&r, "io-starve watch ended with 101");
    let mut r = results(&trace(), &alerts());
    r.r.errors.push("setup failed".into());
    only(&r, "guest: setup failed");
}

#[test]
fn a_trace_in_which_the_disease_is_absent_fails_the_scenario() {
    let calm: String = trace()
        .lines()
        .filter(|l| !l.contains(" W "))
        .map(|l| format!("{l}\n"))
        .collect();
    let p = problems(&results(&calm, &alerts()));
    assert!(
        p.iter().any(|p| p.contains("the disease did not show")),
        "{p:#?}"
    );
}

/// The same run with what the replay of its trace said: what the live run did, after a change.
fn imported(from: &str, to: &str) -> Run {
    let mut run = results(&trace(), &alerts());
    let text = alerts().replace("\"sda\"", "\"8:0\"");
    let changed = text.replace(from, to);
    assert!(from.is_empty() || text != changed, "{from}");
    run.r.imported = parse_alerts(&changed).unwrap();
    run
}

#[test]
fn the_replayed_trace_must_tell_what_the_live_run_told() {
    assert_eq!(problems(&imported("", "")), [] as [String; 0]);
    only(
        &imported("\"issues\":800", "\"issues\":801"),
        "the trace, replayed: sync-read: 801 issues",
    );
    only(
        &imported("\"seen\":1,", "\"seen\":2,"),
        "the trace, replayed: async-write: the account",
    );
    for (from, to) in [
        (
            "\"kind\":\"async-write-starvation\"",
            "\"kind\":\"queue-stuck\"",
        ),
        (
            "\"class\":\"async-write\",\"cgroup\"",
            "\"class\":\"sync-write\",\"cgroup\"",
        ),
        ("\"mechanism\":\"scheduler\"", "\"mechanism\":\"tags\""),
        // It begins three ticks later.
        ("\"mono_ns\":2200", "\"mono_ns\":2950"),
    ] {
        only(
            &imported(from, to),
            "the trace, replayed, does not show async-write-starvation",
        );
    }
}

/// Between the rule a little looser and a little stricter, a tick's place decides whether the live run finds it.
#[test]
fn on_the_edge_the_replayed_trace_need_not_tell() {
    let mut run = imported("", "");
    run.r.imported.retain(|a| !a.is_finding());
    let live: Vec<&Alert> = run.o.alerts.iter().filter(|a| a.is_finding()).collect();
    let mut truth = truth(&run.r, u64::MAX, &mut Report::default()).unwrap();
    let s = Scenario::parse("x", SCENARIO).unwrap();
    let told = |truth: &Truth| {
        let mut report = Report::default();
        imported::check(&s, &run.r, truth, &live, &mut report);
        let about = |of: &[String]| of.iter().any(|p| p.contains("does not show"));
        (about(&report.problems), about(&report.notes))
    };
    assert_eq!(told(&truth), (true, false));
    truth.strict.clear();
    assert_eq!(told(&truth), (false, true));
}
