use super::*;
use crate::model::observation::Owner;

const DISK: DevId = DevId::new(7, 0);

fn group(cgroup: &str, class: Class, requests: u64, bytes: u64) -> GroupRow {
    GroupRow {
        dev: DISK,
        device: "loop0".to_owned(),
        owner: Owner::Unknown,
        cgroup: cgroup.to_owned(),
        class,
        requests,
        merged: 0,
        seen: requests,
        bytes,
        share: None,
        stages: [
            StageSum::default(),
            StageSum {
                count: requests,
                sum_ns: 900 * requests,
                mean_ns: Some(900),
                max_ns: Some(5_000),
            },
            StageSum {
                count: requests,
                sum_ns: 90 * requests,
                mean_ns: Some(90),
                max_ns: Some(100),
            },
        ],
    }
}

fn summary(groups: Vec<GroupRow>) -> Summary {
    Summary {
        groups,
        ..Summary::default()
    }
}

fn job(name: &str, options: &str, read: u64, write: u64) -> String {
    let direction = |n: u64| {
        format!(
            r#"{{"io_bytes": {}, "total_ios": {n}, "iops": 1.5, "clat_ns": {{"min": 1, "max": 6000, "mean": 1000.0, "N": {n}, "percentile": {{"99.000000": 4000}}}}}}"#,
            n * 4096
        )
    };
    format!(
        r#"{{"jobname": "{name}", "groupid": 0, "error": 0, "job options": {{{options}}}, "read": {}, "write": {}, "sync": {{"total_ios": 0, "lat_ns": {{"mean": 0.0}}}}}}"#,
        direction(read),
        direction(write)
    )
}

fn output(jobs: &[String]) -> Output {
    let json = format!(
        r#"{{"fio version": "fio-3.33", "global options": {{"direct": "1", "directory": "/mnt"}}, "jobs": [{}]}}"#,
        jobs.join(",")
    );
    Output::parse(&json).unwrap()
}

fn joined(output: &Output, pids: &[u32], cgroups: &[(u32, &str)], summary: &Summary) -> FioView {
    let processes = Processes {
        cgroups: cgroups
            .iter()
            .map(|(pid, c)| (*pid, (*c).to_owned()))
            .collect(),
    };
    let disks = |path: &Path| {
        assert!(path.starts_with("/mnt"), "{}", path.display());
        vec![DISK]
    };
    join(output, pids, &processes, &disks, Path::new("/cwd"), summary)
}

#[test]
fn jobs_in_cgroups_of_their_own_are_told_apart() {
    let output = output(&[job("a", r#""rw": "randread""#, 100, 0), job("b", "", 50, 0)]);
    let seen = summary(vec![
        group("/a", Class::SyncRead, 100, 409_600),
        group("/b", Class::SyncRead, 50, 204_800),
    ]);
    let view = joined(
        &output,
        &[11, 12],
        &[(10, "/"), (11, "/a"), (12, "/b")],
        &seen,
    );
    assert_eq!(view.jobs[0].cgroups, ["/a"]);
    assert_eq!(view.jobs[1].devices, ["loop0"]);
    for (job, n) in [(0, 100), (1, 50)] {
        let part = &view.jobs[job].parts[0];
        let Seen::Alone { stages, requests } = &part.seen else {
            panic!("{part:?}")
        };
        assert_eq!((*requests, stages[1].sum_ns), (n, 900 * n));
        assert_eq!(view.agreement[job].verdict, AgreementVerdict::Agrees);
        assert_eq!(view.agreement[job].words(), "agrees, I/O by I/O");
    }
    assert_eq!(view.notes, Vec::<String>::new());
}

#[test]
fn jobs_that_share_a_cgroup_are_compared_together_and_blamed_for_nothing() {
    let output = output(&[
        job("a", "", 100, 0),
        job("b", r#""direct": "1""#, 50, 0),
        job("w", "", 0, 7),
    ]);
    let seen = summary(vec![
        group("/x", Class::SyncRead, 140, 150 * 4_096),
        group("/x", Class::SyncWrite, 7, 7 * 4_096),
    ]);
    let view = joined(&output, &[], &[(11, "/x"), (12, "/x")], &seen);
    let part = &view.jobs[0].parts[0];
    assert!(
        matches!(&part.seen, Seen::Shared { with, requests: 140, .. } if with == &["b"]),
        "{part:?}"
    );
    // The only one that writes.
    assert!(matches!(
        view.jobs[2].parts[0].seen,
        Seen::Alone { requests: 7, .. }
    ));
    assert_eq!(view.agreement.len(), 2);
    assert_eq!(view.agreement[0].jobs, ["a", "b"]);
    assert_eq!(
        view.agreement[0].words(),
        "agrees: 10 I/Os were merged before they were requests"
    );
    assert!(view.notes[0].contains("a cgroup of its own"));
}

#[test]
fn buffered_writes_are_nobodys() {
    let output = output(&[
        job("w", r#""direct": "0""#, 0, 9),
        job("r", r#""direct": "0""#, 5, 0),
    ]);
    let seen = summary(vec![
        group("/x", Class::AsyncWrite, 3, 9 * 4_096),
        group("/x", Class::SyncRead, 2, 5 * 4_096),
    ]);
    let view = joined(&output, &[], &[(11, "/x")], &seen);
    assert_eq!(view.jobs[0].parts[0].seen, Seen::Buffered);
    assert!(matches!(view.jobs[1].parts[0].seen, Seen::Alone { .. }));
    // Neither can be counted.
    assert_eq!(view.agreement, []);
    assert!(view.notes[0].contains("not attributable to a job"));
}

#[test]
fn what_differs_is_said_and_what_is_not_known_stays_so() {
    let output = output(&[job("a", r#""ramp_time": "2s", "rate": "4m""#, 100, 0)]);
    let more = summary(vec![group("/x", Class::SyncRead, 130, 130 * 4_096)]);
    let view = joined(&output, &[11], &[(11, "/x")], &more);
    assert_eq!(view.agreement[0].verdict, AgreementVerdict::MoreSeen);
    assert!(view.agreement[0].words().starts_with("120 KiB more seen"));
    assert!(view.notes[0].contains("ramp_time"));
    assert_eq!(view.jobs[0].rate.as_deref(), Some("rate=4m"));
    let less = summary(vec![group("/x", Class::SyncRead, 90, 90 * 4_096)]);
    let view = joined(&output, &[11], &[(11, "/x")], &less);
    assert_eq!(
        view.agreement[0].words(),
        "40 KiB less seen than fio counts"
    );
    let view = joined(&output, &[], &[], &more);
    assert_eq!(view.jobs[0].parts[0].seen, Seen::Unknown);
    assert_eq!(view.agreement, []);
    let view = joined(&output, &[], &[(11, "/other")], &more);
    assert_eq!(view.jobs[0].parts[0].seen, Seen::Nothing);
}

#[test]
fn names_are_split_as_fio_does() {
    assert_eq!(split_names("a:b\\:c"), ["a", "b:c"]);
    assert_eq!(split_names(""), Vec::<String>::new());
}
