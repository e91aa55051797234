//! Counts what is observed, and puts it on the page of metrics.

use std::collections::BTreeMap;

use rustix::param::{clock_ticks_per_second, page_size};

use crate::{
    commands::{outputs::Outputs, session::Session},
    detect::finding::Kind,
    metrics::{
        families::{Own, families},
        server::Publisher,
        tally::Tally,
    },
    model::observation::Observation,
    output::alert::{Alert, Event},
};

/// Time between two pages, in ns: nobody scrapes more often than that to any use.
const PAGE_NS: u64 = 1_000_000_000;

/// The figures of a run.
pub(super) struct Gauge {
    tally: Tally,
    told: BTreeMap<Kind, u64>,
    publisher: Publisher,
    due_ns: u64,
}

impl Gauge {
    pub(super) fn new(publisher: Publisher, max_series: u32) -> Gauge {
        Gauge {
            tally: Tally::new(max_series as usize),
            told: BTreeMap::new(),
            publisher,
            due_ns: 0,
        }
    }

    /// Counts; publishes when it is time.
    pub(super) fn tick(
        &mut self,
        o: &Observation,
        alerts: &[Alert],
        session: &Session,
        outputs: &Outputs,
    ) {
        self.tally.take(o);
        for alert in alerts {
            if let Event::Open(f) = &alert.event {
                *self.told.entry(f.kind).or_default() += 1;
            }
        }
        if o.mono_ns < self.due_ns {
            return;
        }
        self.due_ns = o.mono_ns + PAGE_NS;
        self.tally.settle();
        let own = Own {
            cpu_seconds: cpu_seconds(),
            rss_bytes: rss_bytes(),
            told: self.told.clone(),
            folded: session.folded(),
            outputs: by_target(outputs),
            blame: session.pipeline().blame_totals().clone(),
        };
        let snapshot = session.pipeline().snapshot();
        self.publisher
            .publish(families(&self.tally, &snapshot, &own));
    }
}

/// Outputs with the same name are one series.
fn by_target(outputs: &Outputs) -> Vec<(String, u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for tally in outputs.tallies() {
        let sum = sums.entry(tally.target().to_owned()).or_default();
        *sum = (sum.0 + tally.written(), sum.1 + tally.lost());
    }
    sums.into_iter()
        .map(|(name, (written, lost))| (name, written, lost))
        .collect()
}

/// User and system time, fields 14 and 15 of proc_pid_stat(5).
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / clock_ticks_per_second() as f64)
}

/// The second field of proc_pid_statm(5), in pages.
fn rss_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}
