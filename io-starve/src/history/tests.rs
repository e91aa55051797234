use super::{summary::Summary, *};
use crate::{
    detect::{finding::Severity, settings::Settings},
    output::{
        alert::StopReason,
        focus::Focus,
        reporter::{Audience, Reporter},
    },
    source::recording::Recording,
};

/// A demo as a whole run.
pub(crate) fn demo(name: &str) -> (History, Pipeline) {
    let path = format!("{}/demos/{name}.rec", env!("CARGO_MANIFEST_DIR"));
    let mut recording = Recording::open(std::path::Path::new(&path)).unwrap();
    let settings = Settings::default();
    let audience = Audience {
        ignore: Default::default(),
        min_severity: Severity::Info,
        focus: Focus::default(),
        status_ns: 60_000_000_000,
    };
    let mut reporter = Reporter::new(settings.clone(), BTreeMap::new(), 250, audience);
    let mut pipeline = Pipeline::new(settings);
    let mut history = History::default();
    while let Some(o) = recording.next_observation() {
        let changes = pipeline.feed(&o);
        let alerts = reporter.tick(&o, &changes, &pipeline);
        history.take(&o, &alerts, &pipeline);
    }
    let changes = pipeline.detach();
    history.note(&reporter.stop(StopReason::RecordingEnded, &changes, &pipeline));
    (history, pipeline)
}

/// The figures of a demo.
pub(crate) fn replayed(name: &str) -> Summary {
    let (history, pipeline) = demo(name);
    Summary::new(&history, &pipeline, format!("the whole of {name}"))
}

#[test]
fn sums_are_those_of_the_model() {
    let (history, pipeline) = demo("async-write-starvation");
    let summary = Summary::new(&history, &pipeline, String::new());
    for account in pipeline.accounts() {
        let rows = summary
            .groups
            .iter()
            .filter(|r| r.dev == account.device && r.class == account.class);
        let (requests, bytes) = rows.fold((0, 0), |(n, b), r| (n + r.requests, b + r.bytes));
        assert_eq!((requests, bytes), (account.finished, account.bytes));
    }
    assert_eq!(
        summary.groups.iter().map(|r| r.seen).sum::<u64>(),
        summary.requests_seen
    );
    // Each that left a stage is in its heat map.
    for heat in &summary.heats {
        let class = summary
            .classes
            .iter()
            .find(|c| c.device == heat.device && c.class == heat.class);
        let stage = class.unwrap().stages[heat.stage.index()];
        assert_eq!(stage.count, heat.grid.total(), "{heat:?}");
    }
}

#[test]
fn who_waits_has_a_lane() {
    let (history, pipeline) = demo("fsync-serialization");
    let summary = Summary::new(&history, &pipeline, String::new());
    let lanes = |lane| summary.lanes.iter().filter(move |l| l.lane == lane);
    assert!(lanes(Lane::Fsyncs).any(|l| l.whose.ends_with("/free") && l.total_ns > 0));
    assert!(lanes(Lane::Holds).any(|l| l.whose.ends_with("/slow")));
    assert!(lanes(Lane::Commits).all(|l| l.is_filesystem));
    assert!(
        summary
            .blame
            .iter()
            .any(|b| b.victim.ends_with("/free") && b.culprit.ends_with("/slow") && b.delay_ns > 0)
    );
    assert!(
        summary
            .lanes
            .iter()
            .all(|l| l.bars.len() <= 2 * axis::MAX_COLUMNS)
    );
}
