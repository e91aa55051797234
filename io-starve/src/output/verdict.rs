//! The verdict of a run in text: findings, where the time went, who waited for whom, what fio says of the same, losses. Pure.

use std::fmt::Write;

use super::{
    format::{DASH, bytes, count, duration, or_dash, printable, share},
    text::{self, columns::aligned},
};
use crate::{
    fio::{
        FioView,
        join::{JobPart, JobRow, Seen},
    },
    history::summary::{GroupRow, StageSum, Summary},
    model::observation::Stage,
};

/// Rows of a table, so that a verdict stays on a page or two. The report has all of them.
const MOST: usize = 16;

/// The verdict. Several lines, each ended.
pub fn verdict(summary: &Summary, fio: Option<&FioView>) -> String {
    let mut text = stages(summary);
    text.push_str(&blame(summary));
    if let Some(fio) = fio {
        text.push_str(&jobs(fio));
    }
    text.push_str(&text::verdict(summary.alerts(), &summary.verdict));
    text
}

fn stages(summary: &Summary) -> String {
    let head = [
        "DISK",
        "CGROUP",
        "CLASS",
        "REQUESTS",
        "SHARE",
        "DATA",
        "ADMISSION",
        "QUEUED",
        "DEVICE",
        "LONGEST",
    ];
    let row = |g: &GroupRow| {
        vec![
            printable(&g.device).into_owned(),
            printable(&g.cgroup).into_owned(),
            g.class.name().to_owned(),
            count(g.requests),
            or_dash(g.share, share),
            bytes(g.bytes),
            mean(&g.stages[0]),
            mean(&g.stages[1]),
            mean(&g.stages[2]),
            or_dash(g.stages.iter().filter_map(|s| s.max_ns).max(), duration),
        ]
    };
    let rows = summary.groups.iter().map(row).collect();
    table("where the time went, a request in the mean", &head, 3, rows)
}

fn mean(stage: &StageSum) -> String {
    or_dash(stage.mean_ns, duration)
}

fn blame(summary: &Summary) -> String {
    let head = ["VICTIM", "WAITED FOR", "THROUGH", "FOR"];
    let rows = summary.blame.iter().map(|b| {
        vec![
            printable(&b.victim).into_owned(),
            printable(&b.culprit).into_owned(),
            b.mechanism.name().to_owned(),
            duration(b.delay_ns),
        ]
    });
    table("who waited for whom", &head, 3, rows.collect())
}

fn jobs(fio: &FioView) -> String {
    let head = [
        "JOB",
        "CLASS",
        "I/OS",
        "BY FIO",
        "P99",
        "ADMISSION",
        "QUEUED",
        "DEVICE",
        "OF ITS TIME",
    ];
    let mut rows = Vec::new();
    for job in &fio.jobs {
        rows.extend(job.parts.iter().map(|part| job_row(job, part)));
    }
    let mut text = table("fio's jobs, an I/O in the mean", &head, 2, rows);
    for job in &fio.jobs {
        if let Some(error) = job.error {
            let _ = writeln!(
                text,
                "  {} failed, by fio with error {error}",
                printable(&job.name)
            );
        }
        if let Some(syncs) = &job.syncs {
            let _ = writeln!(
                text,
                "  {}: {} fsyncs of {} in the mean",
                printable(&job.name),
                count(syncs.count),
                or_dash(syncs.mean_ns.map(|ns| ns as u64), duration)
            );
        }
    }
    if !fio.agreement.is_empty() {
        text.push_str("agreement with fio:\n");
    }
    for a in &fio.agreement {
        let _ = writeln!(
            text,
            "  {} {}: fio {} I/Os, {}; seen {} requests, {}: {}",
            printable(&a.jobs.join(", ")),
            a.class.name(),
            count(a.fio_ios),
            bytes(a.fio_bytes),
            count(a.requests),
            bytes(a.bytes),
            a.words()
        );
    }
    for note in &fio.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

fn job_row(job: &JobRow, part: &JobPart) -> Vec<String> {
    let ns = |ns: Option<f64>| or_dash(ns.map(|ns| ns as u64), duration);
    let mut row = vec![
        printable(&job.name).into_owned(),
        part.class.name().to_owned(),
        count(part.ios),
        ns(part.mean_ns),
        ns(part.p99_ns),
    ];
    row.extend(match &part.seen {
        Seen::Alone { stages, .. } => by_io(stages, part),
        Seen::Shared { with, .. } => said(&format!("with {}", printable(&with.join(", ")))),
        Seen::Buffered => said("not attributable to a job"),
        Seen::Unknown => said("not known"),
        Seen::Nothing => said("nothing reached a disk"),
    });
    row
}

fn said(words: &str) -> Vec<String> {
    vec![
        DASH.to_owned(),
        DASH.to_owned(),
        DASH.to_owned(),
        words.to_owned(),
    ]
}

/// What a stage took of each I/O in the mean: not only of those that were in it, so that the stages add up to fio's figure.
fn by_io(stages: &[StageSum; 3], part: &JobPart) -> Vec<String> {
    let each = Stage::ALL.map(|stage| {
        let s = stages[stage.index()];
        match (s.count, part.ios) {
            (0, _) | (_, 0) => DASH.to_owned(),
            (_, ios) => duration(s.sum_ns / ios),
        }
    });
    let mut row = each.to_vec();
    row.push(or_dash(of_its_time(stages, part), share));
    row
}

/// The part of fio's time for an I/O that the stages account for; `None` where either is not known.
pub fn of_its_time(stages: &[StageSum; 3], part: &JobPart) -> Option<f64> {
    let theirs = part.mean_ns? * part.ios as f64;
    let ours: f64 = stages.iter().map(|s| s.sum_ns as f64).sum();
    (theirs > 0.0).then(|| ours / theirs)
}

fn table(title: &str, head: &[&str], left: usize, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let more = rows.len().saturating_sub(MOST);
    let mut all = vec![head.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()];
    all.extend(rows.into_iter().take(MOST));
    let mut text = format!("{title}:\n{}", aligned(&all, left));
    if more > 0 {
        let _ = writeln!(text, "  and {} more", count(more as u64));
    }
    text
}
