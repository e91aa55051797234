//! Who waited when: a lane for each owner, with what it was served, its waits, and lines from a victim to its culprit.

use std::{collections::BTreeMap, fmt::Write};

use maud::{Markup, html};

use super::{
    scale::{Scale, round},
    tables::{said, table},
};
use crate::{
    history::{
        Lane, Told,
        axis::{Bar, Counts},
        summary::{LaneRow, Summary},
    },
    output::{
        alert::{Cgroup, OwnerKind},
        format::{count, duration, or_dash, printable},
        text,
    },
};

/// Owners that have a lane.
const OWNERS: usize = 12;
/// Filesystems that have one.
const FILESYSTEMS: usize = 4;
/// Lines from victims to culprits.
const LINES: usize = 24;
/// Geometry, in units of the picture.
const WIDTH: f64 = 1_000.0;
const LEFT: f64 = 230.0;
const SERVED: f64 = 26.0;
const ROW: f64 = 15.0;
/// Characters of a name that fit left of the plot.
const NAME: usize = 34;

/// The lane of one owner or filesystem.
struct Lines<'a> {
    whose: &'a str,
    served: Option<&'a Counts>,
    findings: Vec<&'a Told>,
    rows: Vec<&'a LaneRow>,
    top: f64,
}

impl Lines<'_> {
    fn height(&self) -> f64 {
        let rows = self.rows.len() + usize::from(!self.findings.is_empty());
        SERVED + ROW * rows as f64 + 8.0
    }
}

/// The picture with its table; `None` when there is nothing to show.
pub fn body(summary: &Summary) -> Option<Markup> {
    let lanes = lanes(summary);
    let last = lanes.last()?;
    let bottom = last.top + last.height();
    let most = lanes
        .iter()
        .filter_map(|l| l.served)
        .flat_map(|c| c.columns())
        .max()
        .copied();
    let scale = Scale::new(summary, LEFT, WIDTH - LEFT - 24.0);
    let drawn: Vec<&str> = lanes.iter().map(|l| l.whose).collect();
    let owners = summary
        .issued
        .iter()
        .filter(|(name, _)| !drawn.contains(&name.as_str()));
    let left_out = owners.count();
    Some(html! {
        p {
            "A lane for each owner of I/O. The grey shape is what it was issued; bars are its waits. A line leads from a victim, when its wait began, to whom it waited for."
        }
        (legend(&lanes))
        div.scroll role="region" aria-label="Timeline" tabindex="0" {
            svg.timeline viewBox=(format!("0 0 {WIDTH} {}", round(bottom + 24.0))) role="img" aria-labelledby="timeline-svg timeline-desc" {
                title id="timeline-svg" { "Waits by owner over " (duration(summary.elapsed_ns)) }
                desc id="timeline-desc" { (lanes.len()) " lanes. The table below has every bar of it." }
                (scale.marks(0.0, bottom))
                @for lane in &lanes { (one(lane, &scale, most, summary)) }
                (to_culprits(&lanes, &scale))
            }
        }
        @if left_out > 0 { p { (count(left_out as u64)) " more owners had I/O and are not drawn." } }
        @if summary.lanes_lost > 0 { p.warning { "Some waits had no room and are not drawn." } }
        details {
            summary { "The same as a table" }
            (as_table(summary, &scale))
        }
    })
}

fn lanes(summary: &Summary) -> Vec<Lines<'_>> {
    // Victims and culprits first, worst finding first; then whoever waited longest, or did most.
    let mut order: Vec<&str> = Vec::new();
    let add = |name: &'_ _, order: &mut Vec<_>| {
        if !order.contains(name) {
            order.push(*name);
        }
    };
    for told in &summary.findings {
        add(&victim(told), &mut order);
        if let Some(culprit) = culprit(told) {
            add(&culprit, &mut order);
        }
    }
    let mut waits: BTreeMap<&str, u64> = BTreeMap::new();
    for row in summary.lanes.iter().filter(|l| !l.is_filesystem) {
        *waits.entry(&row.whose).or_default() += row.total_ns;
    }
    let mut by_wait: Vec<(&str, u64)> = waits.into_iter().collect();
    by_wait.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    for (name, _) in by_wait {
        add(&name, &mut order);
    }
    for (name, _) in &summary.issued {
        add(&name.as_str(), &mut order);
    }
    order.truncate(OWNERS);
    let mut filesystems: Vec<&str> = summary
        .lanes
        .iter()
        .filter(|l| l.is_filesystem)
        .map(|l| l.whose.as_str())
        .collect();
    filesystems.dedup();
    filesystems.truncate(FILESYSTEMS);
    let owners = order.into_iter().map(|name| (name, false));
    let mut top = 4.0;
    let mut lanes = Vec::new();
    for (whose, is_filesystem) in owners.chain(filesystems.into_iter().map(|name| (name, true))) {
        let lane = Lines {
            whose,
            served: summary
                .issued
                .iter()
                .find(|(n, _)| n == whose && !is_filesystem)
                .map(|(_, c)| c),
            findings: match is_filesystem {
                true => Vec::new(),
                false => summary
                    .findings
                    .iter()
                    .filter(|t| victim(t) == whose)
                    .collect(),
            },
            rows: summary
                .lanes
                .iter()
                .filter(|l| l.whose == whose && l.is_filesystem == is_filesystem)
                .collect(),
            top,
        };
        top += lane.height();
        lanes.push(lane);
    }
    lanes
}

fn victim(told: &Told) -> &str {
    name_of(told.alert.victim.owner, told.alert.victim.cgroup.as_ref())
}

fn culprit(told: &Told) -> Option<&str> {
    let first = told.alert.culprits.first()?;
    Some(name_of(first.owner, first.cgroup.as_ref()))
}

fn name_of(kind: OwnerKind, cgroup: Option<&Cgroup>) -> &str {
    match cgroup.and_then(|c| c.path.as_deref()) {
        Some(path) => path,
        None if kind == OwnerKind::Several => "several owners",
        None => "unknown owner",
    }
}

fn one(lane: &Lines<'_>, scale: &Scale, most: Option<u64>, summary: &Summary) -> Markup {
    let mut y = lane.top + SERVED;
    let mut rows = Vec::new();
    if !lane.findings.is_empty() {
        rows.push((y, "starves, or waits by a finding", html! {
            @for told in &lane.findings {
                @let end = told.begin_ns + told.alert.duration_ms * 1_000_000;
                (bar(scale, told.begin_ns, end, y, told.alert.severity.name(), &text::sentence(&told.alert, "waited")))
            }
        }));
        y += ROW;
    }
    for row in &lane.rows {
        rows.push((y, row.lane.name(), html! {
            @for b in &row.bars {
                (bar(scale, b.begin_ns, b.end_ns, y, class(row.lane), &words(row.lane, b, scale)))
            }
        }));
        y += ROW;
    }
    html! {
        g {
            line.border x1="0" x2=(WIDTH) y1=(round(lane.top - 2.0)) y2=(round(lane.top - 2.0)) {}
            text.whose x="4" y=(round(lane.top + 15.0)) { title { (printable(lane.whose)) } (shortened(lane.whose)) }
            @if let Some(served) = lane.served { (shape(served, lane.top, scale, most, summary)) }
            @for (y, title, bars) in rows {
                text.what x=(round(LEFT - 8.0)) y=(round(y + 9.5)) text-anchor="end" { (title) }
                (bars)
            }
        }
    }
}

fn bar(scale: &Scale, begin_ns: u64, end_ns: u64, y: f64, class: &str, title: &str) -> Markup {
    let (from, to) = (scale.x(begin_ns), scale.x(end_ns));
    html! {
        rect class=(class) x=(round(from)) y=(round(y + 1.0)) width=(round((to - from).max(1.5))) height=(round(ROW - 4.0)) rx="1.5" {
            title { (title) }
        }
    }
}

/// What an owner was issued, as an area.
fn shape(served: &Counts, top: f64, scale: &Scale, most: Option<u64>, summary: &Summary) -> Markup {
    let most = most.unwrap_or(1).max(1) as f64;
    let base = top + SERVED - 3.0;
    let at = |i: usize| scale.x(summary.begin_ns + summary.column_ns * i as u64);
    let mut path = format!("M{} {}", round(at(0)), round(base));
    for (i, n) in served.columns().iter().enumerate() {
        // The square root: what is served little is seen beside what is served a thousand times as much.
        let height = (SERVED - 5.0) * (*n as f64 / most).sqrt();
        let y = round(base - height);
        let _ = write!(path, "L{} {y}L{} {y}", round(at(i)), round(at(i + 1)));
    }
    let _ = write!(
        path,
        "L{} {}Z",
        round(at(served.columns().len())),
        round(base)
    );
    let total: u64 = served.columns().iter().sum();
    html! { path.served d=(path) { title { (count(total)) " requests issued" } } }
}

/// Lines from the beginning of a wait to the lane of whom it waited for.
fn to_culprits(lanes: &[Lines<'_>], scale: &Scale) -> Markup {
    let mut lines = Vec::new();
    for lane in lanes {
        for told in &lane.findings {
            let target = lanes.iter().find(|l| culprit(told) == Some(l.whose));
            if let Some(target) = target.filter(|t| t.whose != lane.whose)
                && lines.len() < LINES
            {
                let x = scale.x(told.begin_ns);
                let from = lane.top + SERVED + ROW / 2.0 - 1.0;
                let to = target.top + SERVED / 2.0;
                lines.push((x, from, to, told));
            }
        }
    }
    html! {
        @for (x, from, to, told) in lines {
            @let tip = if to > from { to - 6.0 } else { to + 6.0 };
            g.blame {
                title { (victim(told)) " waited for " (culprit(told).unwrap_or("-")) ", through " (told.alert.mechanism.name()) }
                circle cx=(round(x)) cy=(round(from)) r="3" {}
                line x1=(round(x)) x2=(round(x)) y1=(round(from)) y2=(round(tip)) {}
                path d=(format!("M{} {}L{} {}L{} {}Z", round(x - 4.0), round(tip), round(x + 4.0), round(tip), round(x), round(to))) {}
            }
        }
    }
}

fn class(lane: Lane) -> &'static str {
    match lane {
        Lane::Waits => "waits",
        Lane::Fsyncs | Lane::Calls => "fsyncs",
        Lane::Holds => "holds",
        Lane::Pauses | Lane::WorkerPauses => "pauses",
        Lane::Commits => "commits",
    }
}

fn words(lane: Lane, b: &Bar, scale: &Scale) -> String {
    let many = match b.count {
        0 | 1 => String::new(),
        n => format!(", {} of them", count(n)),
    };
    format!(
        "{}: from {} on for {}{many}, longest {}",
        lane.name(),
        scale.since(b.begin_ns),
        duration(b.end_ns - b.begin_ns),
        duration(b.longest_ns)
    )
}

fn legend(lanes: &[Lines<'_>]) -> Markup {
    let has = |wanted: &str| {
        lanes
            .iter()
            .flat_map(|l| &l.rows)
            .any(|r| class(r.lane) == wanted)
    };
    let severity = |name: &str| {
        lanes
            .iter()
            .flat_map(|l| &l.findings)
            .any(|t| t.alert.severity.name() == name)
    };
    let keys = [
        ("critical", "finding, critical", severity("critical")),
        ("warning", "finding, warning", severity("warning")),
        ("info", "finding, info", severity("info")),
        ("waits", "its oldest request waits", has("waits")),
        ("fsyncs", "fsync, or another call, waits", has("fsyncs")),
        ("holds", "held by a limit", has("holds")),
        ("pauses", "paused for dirty memory", has("pauses")),
        ("commits", "journal commit", has("commits")),
        ("served", "requests issued (square root)", true),
    ];
    html! {
        p.legend {
            @for (class, title, _) in keys.iter().filter(|(.., there)| *there) {
                span { span.key.(class) {} " " (title) }
            }
        }
    }
}

fn as_table(summary: &Summary, scale: &Scale) -> Markup {
    let mut rows = Vec::new();
    for told in &summary.findings {
        rows.push(vec![
            said(victim(told)),
            said(format!(
                "{} {}",
                told.alert.severity.name(),
                told.alert.kind.name()
            )),
            said(scale.since(told.begin_ns)),
            said(duration(told.alert.duration_ms * 1_000_000)),
            said("1"),
            said(duration(told.alert.longest_ms * 1_000_000)),
        ]);
    }
    for lane in &summary.lanes {
        for b in &lane.bars {
            rows.push(vec![
                said(&lane.whose),
                said(lane.lane.name()),
                said(scale.since(b.begin_ns)),
                said(duration(b.end_ns - b.begin_ns)),
                said(or_dash((b.count > 0).then_some(b.count), count)),
                said(duration(b.longest_ns)),
            ]);
        }
    }
    table(
        "What is drawn above",
        &[
            "Whose",
            "What",
            "Begins after",
            "Lasts",
            "How many",
            "Longest",
        ],
        2,
        rows,
    )
}

/// The end of a name, which tells more than its beginning.
fn shortened(name: &str) -> String {
    let name = printable(name);
    let length = name.chars().count();
    if length <= NAME {
        return name.into_owned();
    }
    let end: String = name.chars().skip(length - NAME + 1).collect();
    format!("…{end}")
}
