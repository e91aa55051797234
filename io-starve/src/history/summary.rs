//! The figures of a whole run, computed once for the verdict, the report and the comparison.

use io_starve_common::{class::Class, hist, wire::LossKind};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    History, Lane, Sums, Told, Whose,
    axis::{Bar, Counts, Grid},
};
use crate::{
    model::{
        cgroups::nameless,
        mechanism::Mechanism,
        observation::{DevId, Hook, HostFact, Owner, Stage},
        snapshot::Dist,
        trail,
    },
    output::alert::FindingAlert,
    pipeline::Pipeline,
};

/// A run as it is told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The host, where it is known.
    pub host: Option<HostFact>,
    /// Wall clock of the first observation, ns since 1970.
    pub begin_wall_ns: i64,
    /// The same by CLOCK_MONOTONIC, in ns.
    pub begin_ns: u64,
    /// From the first to the last observation, in ns.
    pub elapsed_ns: u64,
    /// Every hook with its verdict.
    pub hooks: Vec<Hook>,
    /// Losses since attach, only kinds above 0.
    pub loss: Vec<(LossKind, u64)>,
    /// Requests seen since attach.
    pub requests_seen: u64,
    /// The run in a sentence.
    pub verdict: String,
    /// By disk, owner and class, most time first.
    pub groups: Vec<GroupRow>,
    /// By disk and class.
    pub classes: Vec<ClassRow>,
    /// Who kept whom waiting over the whole run, most delay first.
    pub blame: Vec<BlameRow>,
    /// Worst first.
    pub findings: Vec<Told>,
    /// Findings that there was no room for.
    pub findings_lost: u64,
    /// Stretches of time, by whom.
    pub lanes: Vec<LaneRow>,
    /// Issues by owner and column, most first.
    pub issued: Vec<(String, Counts)>,
    /// Lanes that there was no room for.
    pub lanes_lost: u64,
    /// Latencies over time.
    pub heats: Vec<Heat>,
    /// Width of a column of the heat maps, in ns.
    pub column_ns: u64,
}

/// One owner's requests of one class on one disk, over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GroupRow {
    /// Number of the disk.
    #[serde(skip)]
    pub dev: DevId,
    /// Name of the disk.
    pub device: String,
    /// Who pays.
    #[serde(skip)]
    pub owner: Owner,
    /// Its path, or a word for those that have none.
    pub cgroup: String,
    /// What kind.
    pub class: Class,
    /// Requests that ended by a completion.
    pub requests: u64,
    /// Requests that became part of another.
    pub merged: u64,
    /// Lives begun.
    pub seen: u64,
    /// Bytes that were completed.
    pub bytes: u64,
    /// Part of the disk's completed requests, 0 to 1; `None` when there were none.
    pub share: Option<f64>,
    /// By stage: admission, queued, device.
    pub stages: [StageSum; 3],
}

/// What left a stage over a whole run. `None` where nothing did, or the sum is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StageSum {
    /// How many.
    pub count: u64,
    /// Sum of their times in ns.
    pub sum_ns: u64,
    /// Mean in ns.
    pub mean_ns: Option<u64>,
    /// Longest in ns.
    pub max_ns: Option<u64>,
}

impl GroupRow {
    /// Time in all stages together, in ns.
    pub fn total_ns(&self) -> u64 {
        let sums = self.stages.iter().map(|s| s.sum_ns);
        sums.fold(0, u64::saturating_add)
    }

    /// Mean time of a request from its first stage to its end, in ns; `None` when none ended.
    pub fn mean_ns(&self) -> Option<u64> {
        self.total_ns().checked_div(self.requests)
    }
}

/// One class on one disk over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassRow {
    /// Name of the disk.
    pub device: String,
    /// Its scheduler at the end; `None` when it has none or it is not known.
    pub scheduler: Option<String>,
    /// What kind.
    pub class: Class,
    /// Requests that ended by a completion.
    pub requests: u64,
    /// Bytes that were completed.
    pub bytes: u64,
    /// By stage: admission, queued, device.
    pub stages: [Dist; 3],
}

/// A delay of one owner by another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BlameRow {
    /// Who waited.
    pub victim: String,
    /// Whom for.
    pub culprit: String,
    /// Through what.
    pub mechanism: Mechanism,
    /// Delay in ns; waits that overlap are added.
    pub delay_ns: u64,
}

/// One lane of the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    /// Whose it is.
    pub whose: String,
    /// Set for a filesystem's.
    pub is_filesystem: bool,
    /// What went on.
    pub lane: Lane,
    /// When.
    pub bars: Vec<Bar>,
    /// For how long in all, in ns.
    pub total_ns: u64,
}

/// Latencies of one class in one stage on one disk, over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heat {
    /// Name of the disk.
    pub device: String,
    /// What kind.
    pub class: Class,
    /// Where.
    pub stage: Stage,
    /// Counts by column and octave.
    pub grid: Grid,
}

impl Summary {
    /// The run as it is now. `verdict` is its sentence.
    pub fn new(history: &History, pipeline: &Pipeline, verdict: String) -> Summary {
        let model = pipeline.model();
        let (begin_ns, begin_wall_ns) = history.first.unwrap_or_default();
        Summary {
            host: model.host().cloned(),
            begin_wall_ns,
            begin_ns,
            elapsed_ns: history.now_ns.saturating_sub(begin_ns),
            hooks: model.hooks().to_vec(),
            loss: model.loss(),
            requests_seen: model.requests_seen(),
            verdict,
            groups: history.group_rows(),
            classes: history.class_rows(),
            blame: model
                .blame()
                .totals()
                .into_iter()
                .map(|b| BlameRow {
                    victim: history.owner_or(b.edge.victim, model.cgroups.path(b.edge.victim)),
                    culprit: history.owner_or(b.edge.culprit, model.cgroups.path(b.edge.culprit)),
                    mechanism: b.edge.mechanism,
                    delay_ns: b.ns,
                })
                .collect(),
            findings: history.findings_by_weight(),
            findings_lost: history.findings_lost,
            lanes: history.lane_rows(),
            issued: history.issued_rows(),
            lanes_lost: history.lanes_lost,
            heats: history.heat_rows(),
            column_ns: history.axis.width_ns(),
        }
    }

    /// (attached, wanted): hooks that run, of those that this kernel should have and this machine needs.
    pub fn hooks_attached(&self) -> (usize, usize) {
        crate::model::snapshot::hooks_attached(&self.hooks)
    }

    /// The last word on each finding, worst first.
    pub fn alerts(&self) -> impl Iterator<Item = &FindingAlert> {
        self.findings.iter().map(|f| &f.alert)
    }
}

impl History {
    fn owner_or(&self, owner: Owner, path: Option<&str>) -> String {
        let known = path.or(self.names.get(&owner).map(String::as_str));
        known.map_or_else(|| nameless(owner), str::to_owned)
    }

    fn device_name(&self, dev: DevId) -> String {
        let known = self.devices.get(&dev).map(|(name, _)| name.clone());
        known.unwrap_or_else(|| dev.to_string())
    }

    fn group_rows(&self) -> Vec<GroupRow> {
        let of_disk = |dev: DevId| -> u64 {
            let same = self.groups.iter().filter(|(k, _)| k.dev == dev);
            same.map(|(_, s)| s.finished).sum()
        };
        let mut rows: Vec<GroupRow> = self
            .groups
            .iter()
            .filter(|(_, s)| s.seen > 0 || s.issues > 0)
            .map(|(key, s)| {
                let all = of_disk(key.dev);
                GroupRow {
                    dev: key.dev,
                    device: self.device_name(key.dev),
                    owner: key.owner,
                    cgroup: self.owner_or(key.owner, None),
                    class: key.class,
                    requests: s.finished,
                    merged: s.merged,
                    seen: s.seen,
                    bytes: s.bytes,
                    share: (all > 0).then(|| s.finished as f64 / all as f64),
                    stages: stage_sums(s),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            (
                &a.device,
                std::cmp::Reverse(a.total_ns()),
                &a.cgroup,
                a.class,
            )
                .cmp(&(
                    &b.device,
                    std::cmp::Reverse(b.total_ns()),
                    &b.cgroup,
                    b.class,
                ))
        });
        rows
    }

    fn class_rows(&self) -> Vec<ClassRow> {
        let mut sums: std::collections::BTreeMap<(DevId, Class), Sums> = Default::default();
        for (key, s) in self.groups.iter().filter(|(_, s)| s.seen > 0) {
            let sum = sums.entry((key.dev, key.class)).or_default();
            sum.finished += s.finished;
            sum.bytes = sum.bytes.saturating_add(s.bytes);
            for (all, one) in sum.stages.iter_mut().zip(s.stages) {
                all.count += one.count;
                all.max_ns = all.max_ns.max(one.max_ns);
            }
        }
        let mut rows: Vec<ClassRow> = sums
            .iter()
            .map(|((dev, class), s)| ClassRow {
                device: self.device_name(*dev),
                scheduler: self.devices.get(dev).and_then(|(_, s)| s.clone()),
                class: *class,
                requests: s.finished,
                bytes: s.bytes,
                stages: Stage::ALL.map(|stage| {
                    let told = s.stages[stage.index()];
                    let hist = self.hists.get(&(*dev, *class, stage));
                    let max_ns = (told.count > 0).then_some(told.max_ns);
                    let at = |permille| {
                        let middle = hist::percentile(hist?, permille)?;
                        // A bucket's middle may lie above the longest that was in it.
                        Some(max_ns.map_or(middle, |max| middle.min(max)))
                    };
                    Dist {
                        count: told.count,
                        p50_ns: at(500),
                        p99_ns: at(990),
                        max_ns,
                        rows: hist.map(|counts| trail::coarse(counts)).unwrap_or_default(),
                    }
                }),
            })
            .collect();
        rows.sort_by(|a, b| (&a.device, a.class).cmp(&(&b.device, b.class)));
        rows
    }

    fn findings_by_weight(&self) -> Vec<Told> {
        let mut list: Vec<Told> = self.findings.values().cloned().collect();
        list.sort_by(|a, b| {
            (b.alert.severity, b.alert.longest_ms, &a.alert.id).cmp(&(
                a.alert.severity,
                a.alert.longest_ms,
                &b.alert.id,
            ))
        });
        list
    }

    fn lane_rows(&self) -> Vec<LaneRow> {
        let rows = self.lanes.iter().map(|((whose, lane), bars)| LaneRow {
            whose: match whose {
                Whose::Owner(owner) => self.owner_or(*owner, None),
                Whose::Filesystem(fs) => self
                    .filesystems
                    .get(fs)
                    .cloned()
                    .unwrap_or_else(|| fs.to_string()),
            },
            is_filesystem: matches!(whose, Whose::Filesystem(_)),
            lane: *lane,
            bars: bars.iter().copied().collect(),
            total_ns: bars.total_ns(),
        });
        rows.collect()
    }

    fn issued_rows(&self) -> Vec<(String, Counts)> {
        let total = |c: &Counts| c.columns().iter().fold(0u64, |a, b| a.saturating_add(*b));
        let named = self
            .issued
            .iter()
            .map(|(o, c)| (self.owner_or(*o, None), c.clone()));
        let mut rows: Vec<_> = named.filter(|(_, c)| total(c) > 0).collect();
        rows.sort_by(|(a, ca), (b, cb)| total(cb).cmp(&total(ca)).then_with(|| a.cmp(b)));
        rows
    }

    fn heat_rows(&self) -> Vec<Heat> {
        let mut rows: Vec<Heat> = self
            .heats
            .iter()
            .filter(|(_, grid)| grid.total() > 0)
            .map(|((dev, class, stage), grid)| Heat {
                device: self.device_name(*dev),
                class: *class,
                stage: *stage,
                grid: grid.clone(),
            })
            .collect();
        rows.sort_by(|a, b| (&a.device, a.class, a.stage).cmp(&(&b.device, b.class, b.stage)));
        rows
    }
}

fn stage_sums(s: &Sums) -> [StageSum; 3] {
    s.stages.map(|stage| StageSum {
        count: stage.count,
        sum_ns: stage.sum_ns,
        mean_ns: stage.sum_ns.checked_div(stage.count),
        max_ns: (stage.count > 0).then_some(stage.max_ns),
    })
}
