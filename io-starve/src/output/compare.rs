//! Two runs side by side: what changed in stages, shares and findings, with the counts behind it. Pure.
//!
//! Owners and disks are matched by name: their numbers differ from one run to the next.

use std::{collections::BTreeMap, fmt::Write};

use io_starve_common::class::Class;
use serde::Serialize;

use super::{
    format::{DASH, count, duration, or_dash, printable, share},
    text::columns::aligned,
};
use crate::{
    detect::finding::{Kind, Severity},
    history::summary::{GroupRow, StageSum, Summary},
};

/// A figure that rests on fewer requests than this is shown, but not called a change: one slow request would make it.
const FEW: u64 = 30;
/// A mean that moved by less than this factor is not called a change: two runs of the same load differ by as much.
const FACTOR: f64 = 1.25;

/// What changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Of each disk, owner and class.
    pub groups: Vec<GroupChange>,
    /// Of each kind of finding, disk and victim.
    pub findings: Vec<FindingChange>,
    /// Lengths of the runs, before and after, in ns.
    pub elapsed_ns: [u64; 2],
    /// Events lost, before and after.
    pub lost: [u64; 2],
}

/// A group before and after; null where it was not there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupChange {
    /// Name of the disk.
    pub device: String,
    /// Who pays.
    pub cgroup: String,
    /// What kind.
    pub class: Class,
    /// Before and after.
    pub sides: [Option<Side>; 2],
    /// By stage (admission, queued, device), mean after by mean before; null where either is not known or rests on few requests.
    pub factors: [Option<f64>; 3],
}

/// One side of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Side {
    /// Requests that ended.
    pub requests: u64,
    /// Requests a second.
    pub per_s: f64,
    /// Part of the disk's requests, 0 to 1.
    pub share: Option<f64>,
    /// By stage: admission, queued, device.
    pub stages: [StageSum; 3],
}

/// Findings of one kind about one victim, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FindingChange {
    /// Which disease.
    pub kind: Kind,
    /// Name of the disk; null when it is about none.
    pub device: Option<String>,
    /// Whom it is about.
    pub victim: String,
    /// Before and after; null where there was none.
    pub sides: [Option<FindingSide>; 2],
}

/// One side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FindingSide {
    /// How many.
    pub count: u64,
    /// The worst.
    pub severity: Severity,
    /// The longest wait of all, in ms.
    pub longest_ms: u64,
}

impl Comparison {
    /// Puts two runs side by side.
    pub fn new(before: &Summary, after: &Summary) -> Comparison {
        let both = [before, after];
        Comparison {
            groups: groups(both),
            findings: findings(both),
            elapsed_ns: both.map(|s| s.elapsed_ns),
            lost: both.map(|s| s.loss.iter().map(|(_, n)| n).sum()),
        }
    }

    /// In text. `before` and `after` are names of the runs.
    pub fn to_text(&self, before: &str, after: &str) -> String {
        let mut text = format!(
            "before: {}, {}\nafter:  {}, {}\n",
            printable(before),
            duration(self.elapsed_ns[0]),
            printable(after),
            duration(self.elapsed_ns[1])
        );
        text.push_str(&self.findings_in_text());
        text.push_str(&self.groups_in_text());
        match self.lost {
            [0, 0] => text.push_str("nothing was lost in either\n"),
            [a, b] => {
                let _ = writeln!(
                    text,
                    "lost: {} events before, {} after: figures may be too low",
                    count(a),
                    count(b)
                );
            }
        }
        text
    }

    fn findings_in_text(&self) -> String {
        if self.findings.is_empty() {
            return "findings: none in either\n".to_owned();
        }
        let side = |s: &Option<FindingSide>| match s {
            None => "none".to_owned(),
            Some(s) => format!(
                "{} {}, longest {}",
                count(s.count),
                s.severity.name(),
                duration(s.longest_ms * 1_000_000)
            ),
        };
        let mut rows = vec![
            ["FINDING", "DISK", "VICTIM", "BEFORE", "AFTER", ""]
                .map(str::to_owned)
                .to_vec(),
        ];
        for f in &self.findings {
            let verdict = match &f.sides {
                [Some(_), None] => "gone",
                [None, Some(_)] => "new",
                [Some(a), Some(b)] if a.longest_ms as f64 > b.longest_ms as f64 * FACTOR => {
                    "better"
                }
                [Some(a), Some(b)] if b.longest_ms as f64 > a.longest_ms as f64 * FACTOR => "worse",
                _ => "as before",
            };
            rows.push(vec![
                f.kind.name().to_owned(),
                f.device
                    .as_deref()
                    .map_or(DASH.to_owned(), |d| printable(d).into_owned()),
                printable(&f.victim).into_owned(),
                side(&f.sides[0]),
                side(&f.sides[1]),
                verdict.to_owned(),
            ]);
        }
        format!("findings:\n{}", aligned(&rows, 6))
    }

    fn groups_in_text(&self) -> String {
        let mut rows = vec![
            [
                "DISK",
                "CGROUP",
                "CLASS",
                "REQUESTS",
                "A SECOND",
                "SHARE",
                "ADMISSION",
                "QUEUED",
                "DEVICE",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for g in &self.groups {
            let pair = |figure: &dyn Fn(&Side) -> String| {
                let of = |side: &Option<Side>| side.as_ref().map_or(DASH.to_owned(), figure);
                format!("{} > {}", of(&g.sides[0]), of(&g.sides[1]))
            };
            let stage = |i: usize| {
                let means = pair(&|s| or_dash(s.stages[i].mean_ns, duration));
                match g.factors[i] {
                    _ if means == "- > -" => DASH.to_owned(),
                    Some(f) if !(1.0 / FACTOR..=FACTOR).contains(&f) => {
                        format!("{means} ({})", factor(f))
                    }
                    _ => means,
                }
            };
            rows.push(vec![
                printable(&g.device).into_owned(),
                printable(&g.cgroup).into_owned(),
                g.class.name().to_owned(),
                pair(&|s| count(s.requests)),
                pair(&|s| super::format::rate(s.per_s)),
                pair(&|s| or_dash(s.share, share)),
                stage(0),
                stage(1),
                stage(2),
            ]);
        }
        if rows.len() == 1 {
            return "no disk had I/O in either\n".to_owned();
        }
        format!(
            "means of each stage, before > after; a factor stands where it is {FACTOR} and more, over {FEW} requests and more:\n{}",
            aligned(&rows, 3)
        )
    }
}

/// `x3.1` for three times as long, `x0.20` for a fifth.
fn factor(f: f64) -> String {
    if f >= 10.0 {
        format!("x{f:.0}")
    } else if f >= 1.0 {
        format!("x{f:.1}")
    } else {
        format!("x{f:.2}")
    }
}

fn groups(both: [&Summary; 2]) -> Vec<GroupChange> {
    let mut by_name: BTreeMap<(&str, &str, Class), [Option<Side>; 2]> = BTreeMap::new();
    for (i, summary) in both.iter().enumerate() {
        for g in &summary.groups {
            let key = (g.device.as_str(), g.cgroup.as_str(), g.class);
            by_name.entry(key).or_default()[i] = Some(side(g, summary.elapsed_ns));
        }
    }
    let mut list: Vec<GroupChange> = by_name
        .into_iter()
        .map(|((device, cgroup, class), sides)| GroupChange {
            device: device.to_owned(),
            cgroup: cgroup.to_owned(),
            class,
            factors: [0, 1, 2].map(|stage| {
                let [Some(a), Some(b)] = sides.map(|s| s.map(|s| s.stages[stage])) else {
                    return None;
                };
                let enough = a.count >= FEW && b.count >= FEW;
                let (a, b) = (a.mean_ns? as f64, b.mean_ns? as f64);
                (enough && a > 0.0).then(|| b / a)
            }),
            sides,
        })
        .collect();
    let weight = |g: &GroupChange| {
        g.sides
            .iter()
            .flatten()
            .flat_map(|s| s.stages)
            .map(|s| s.sum_ns)
            .sum::<u64>()
    };
    list.sort_by(|a, b| {
        a.device
            .cmp(&b.device)
            .then(weight(b).cmp(&weight(a)))
            .then_with(|| a.cgroup.cmp(&b.cgroup))
    });
    list
}

fn side(g: &GroupRow, elapsed_ns: u64) -> Side {
    Side {
        requests: g.requests,
        per_s: match elapsed_ns {
            0 => 0.0,
            ns => g.requests as f64 * 1e9 / ns as f64,
        },
        share: g.share,
        stages: g.stages,
    }
}

fn findings(both: [&Summary; 2]) -> Vec<FindingChange> {
    type Key = (Kind, Option<String>, String);
    let mut by_victim: BTreeMap<Key, [Option<FindingSide>; 2]> = BTreeMap::new();
    for (i, summary) in both.iter().enumerate() {
        for f in summary.alerts() {
            let device = f.device.as_ref().map(|d| {
                d.name
                    .clone()
                    .unwrap_or_else(|| format!("{}:{}", d.major, d.minor))
            });
            let victim = f.victim.cgroup.as_ref().and_then(|c| c.path.clone());
            let key = (
                f.kind,
                device,
                victim.unwrap_or_else(|| "several or unknown owners".to_owned()),
            );
            let side = by_victim.entry(key).or_default();
            let side = side[i].get_or_insert(FindingSide {
                count: 0,
                severity: f.severity,
                longest_ms: 0,
            });
            side.count += 1;
            side.severity = side.severity.max(f.severity);
            side.longest_ms = side.longest_ms.max(f.longest_ms);
        }
    }
    by_victim
        .into_iter()
        .map(|((kind, device, victim), sides)| FindingChange {
            kind,
            device,
            victim,
            sides,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::replayed;

    #[test]
    fn a_run_beside_itself_did_not_change() {
        let summary = replayed("fsync-serialization");
        let c = Comparison::new(&summary, &summary);
        assert!(
            c.groups
                .iter()
                .flat_map(|g| g.factors)
                .flatten()
                .all(|f| f == 1.0)
        );
        let text = c.to_text("a", "b");
        assert!(text.contains("as before"), "{text}");
        assert!(!text.contains("(x"), "{text}");
    }

    #[test]
    fn what_came_went_and_moved_is_said_with_counts() {
        let before = replayed("fsync-serialization");
        let mut after = before.clone();
        after.findings.clear();
        for g in &mut after.groups {
            for s in &mut g.stages {
                s.sum_ns *= 4;
                s.mean_ns = s.mean_ns.map(|ns| ns * 4);
            }
        }
        let text = Comparison::new(&before, &after).to_text("old kernel", "new kernel");
        assert!(text.contains("before: old kernel"), "{text}");
        assert!(text.contains("none") && text.contains("gone"), "{text}");
        assert!(text.contains("(x4.0)"), "{text}");
        let back = Comparison::new(&after, &before).to_text("new", "old");
        assert!(back.contains("new\n") && back.contains("(x0.25)"), "{back}");
    }

    #[test]
    fn few_requests_are_no_change() {
        let mut before = replayed("fsync-serialization");
        for s in before.groups.iter_mut().flat_map(|g| &mut g.stages) {
            s.count = s.count.min(FEW - 1);
        }
        let c = Comparison::new(&before, &before);
        assert!(c.groups.iter().flat_map(|g| g.factors).all(|f| f.is_none()));
    }
}
