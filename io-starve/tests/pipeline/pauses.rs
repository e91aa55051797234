//! Pauses for dirty memory and loop devices of every shape, also with facts that go round.

use io_starve::model::observation::*;
use proptest::prelude::*;

use super::{count, dev, moment, owner};

fn worker() -> impl Strategy<Value = Option<Worker>> {
    prop::option::of((0u32..4, any::<bool>()).prop_map(|(n, pooled)| Worker {
        name: format!("loop{n}"),
        pooled,
    }))
}

/// A loop device on any disk.
pub fn looped() -> impl Strategy<Value = Fact> {
    (dev(), 0u32..4, prop::collection::vec(dev(), 0..3)).prop_map(|(dev, n, below)| {
        Fact::Loop(LoopFact {
            dev,
            name: format!("loop{n}"),
            file: "/srv/a.img".to_owned(),
            deleted: n == 0,
            fs: below.first().copied(),
            below,
            direct_io: (n > 1).then_some(n > 2),
            offset: (n > 1).then_some(u64::MAX),
        })
    })
}

/// Adds pauses to the observation of a tick.
pub fn pauses(now: u64) -> impl Strategy<Value = Observation> {
    let figures = (count(), count()).prop_map(|(limit, dirty)| DirtyFigures {
        limit,
        background: limit / 2,
        dirty,
        bdi_limit: limit,
        bdi_dirty: dirty,
        bdi_rate: limit,
        task_rate: dirty,
    });
    let pause = (
        dev(),
        owner(),
        1u32..4,
        worker(),
        moment(now),
        moment(now),
        prop::option::of(figures),
    )
        .prop_map(
            |(dev, owner, tid, worker, begin_ns, end_ns, figures)| Pause {
                bdi: dev.to_string(),
                dev: Some(dev),
                owner,
                tid,
                task: (tid > 1).then(|| Task {
                    pid: tid,
                    comm: "dd".to_owned(),
                }),
                worker,
                begin_ns,
                end_ns,
                figures,
            },
        );
    let counted =
        (dev(), owner(), worker(), count()).prop_map(|(dev, owner, worker, n)| PauseDelta {
            bdi: dev.to_string(),
            owner,
            worker: worker.map(|w| w.name),
            count: n,
            sum_ns: n,
        });
    let busy = (dev(), count()).prop_map(|(dev, busy_ms)| Busy { dev, busy_ms });
    (
        prop::collection::vec(pause, 0..8),
        prop::collection::vec(counted, 0..4),
        prop::collection::vec(busy, 0..3),
    )
        .prop_map(|(pauses, pause_counts, busy)| Observation {
            pauses,
            pause_counts,
            busy,
            ..Observation::default()
        })
}
