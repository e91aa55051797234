//! fio's jobs beside what was seen of them.

use maud::{Markup, html};

use super::tables::{said, table};
use crate::{
    fio::{
        FioView,
        join::{AgreementVerdict, JobPart, JobRow, Seen},
    },
    output::{
        format::{DASH, bytes, count, duration, or_dash, printable, share},
        verdict::of_its_time,
    },
};

/// The section.
pub fn body(fio: &FioView) -> Markup {
    let rows = fio
        .jobs
        .iter()
        .flat_map(|job| job.parts.iter().map(|part| row(job, part)));
    let agreement = fio.agreement.iter().map(|a| {
        vec![
            said(a.jobs.join(", ")),
            said(a.class.name()),
            said(count(a.fio_ios)),
            said(count(a.requests)),
            said(bytes(a.fio_bytes)),
            said(bytes(a.bytes)),
            html! { span.agrees[a.verdict == AgreementVerdict::Agrees].differs[a.verdict != AgreementVerdict::Agrees] { (a.words()) } },
        ]
    });
    let agreement: Vec<_> = agreement.collect();
    html! {
        @if !fio.version.is_empty() { p { "Latencies by " (printable(&fio.version)) ", stages by io-starve. Stages are of each I/O in the mean, so that they add up." } }
        (table(
            "Latency by fio beside time by stage",
            &["Job", "Class", "Cgroup", "Disk", "I/Os", "Mean by fio", "99th percentile", "Longest", "Admission", "Queued", "Device", "Accounted for"],
            4,
            rows.collect(),
        ))
        @for job in &fio.jobs {
            @if let Some(error) = job.error { p.warning { (printable(&job.name)) " failed, by fio with error " (error) "." } }
            @if let Some(rate) = &job.rate { p { (printable(&job.name)) " is limited by its own options: " code { (printable(rate)) } "." } }
            @if let Some(syncs) = &job.syncs {
                p { (printable(&job.name)) ": " (count(syncs.count)) " fsyncs of " (or_dash(syncs.mean_ns.map(|ns| ns as u64), duration)) " in the mean." }
            }
        }
        @if !agreement.is_empty() {
            (table(
                "Do fio and io-starve agree on what was done?",
                &["Jobs", "Class", "I/Os by fio", "Requests seen", "Data by fio", "Data seen", "Verdict"],
                2,
                agreement,
            ))
        }
        @if !fio.notes.is_empty() {
            ul { @for note in &fio.notes { li { (printable(note)) } } }
        }
    }
}

fn row(job: &JobRow, part: &JobPart) -> Vec<Markup> {
    let ns = |ns: Option<f64>| said(or_dash(ns.map(|ns| ns as u64), duration));
    let list = |names: &[String]| match names {
        [] => said(DASH),
        names => said(names.join(", ")),
    };
    let mut row = vec![
        said(&job.name),
        said(part.class.name()),
        list(&job.cgroups),
        list(&job.devices),
        said(count(part.ios)),
        ns(part.mean_ns),
        ns(part.p99_ns),
        ns(part.max_ns),
    ];
    let words = |words: String| vec![said(DASH), said(DASH), said(DASH), said(words)];
    row.extend(match &part.seen {
        Seen::Alone { stages, .. } => {
            let mut cells: Vec<Markup> = stages
                .iter()
                .map(|s| match s.count {
                    0 => said(DASH),
                    _ => said(or_dash(s.sum_ns.checked_div(part.ios), duration)),
                })
                .collect();
            cells.push(said(or_dash(of_its_time(stages, part), share)));
            cells
        }
        Seen::Shared { with, .. } => words(format!("together with {}", with.join(", "))),
        Seen::Buffered => words("not attributable to a job".to_owned()),
        Seen::Unknown => words("not known".to_owned()),
        Seen::Nothing => words("nothing reached a disk".to_owned()),
    });
    row
}
