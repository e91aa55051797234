//! Tables: stages, blame, hooks, losses.

use maud::{Markup, html};

use crate::{
    history::summary::{GroupRow, Summary},
    model::observation::Verdict,
    output::format::{bytes, count, duration, or_dash, printable, share},
};

/// Rows of a table at most.
const MOST: usize = 200;

/// A table that may be wider than the page, with its caption.
pub fn table(caption: &str, head: &[&str], names: usize, rows: Vec<Vec<Markup>>) -> Markup {
    let more = rows.len().saturating_sub(MOST);
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead {
                    tr {
                        @for (i, title) in head.iter().enumerate() {
                            th.n[i >= names] scope="col" { (title) }
                        }
                    }
                }
                tbody {
                    @for row in rows.into_iter().take(MOST) {
                        tr {
                            @for (i, cell) in row.into_iter().enumerate() {
                                @if i == 0 { th scope="row" { (cell) } }
                                @else { td.n[i >= names] { (cell) } }
                            }
                        }
                    }
                }
            }
        }
        @if more > 0 { p { "and " (count(more as u64)) " more" } }
    }
}

/// Text in a cell.
pub fn said(text: impl AsRef<str>) -> Markup {
    html! { (printable(text.as_ref())) }
}

fn name(text: &str) -> Markup {
    html! { code { (printable(text)) } }
}

/// Where the time went: by group, and percentiles by class.
pub fn stages(summary: &Summary) -> Markup {
    if summary.groups.is_empty() {
        return html! { p.none { "No disk had I/O while this was watched." } };
    }
    let longest = summary.groups.iter().filter_map(GroupRow::mean_ns).max();
    let groups = summary.groups.iter().map(|g| {
        vec![
            name(&g.device),
            name(&g.cgroup),
            said(g.class.name()),
            said(count(g.requests)),
            said(or_dash(g.share, share)),
            said(bytes(g.bytes)),
            said(or_dash(g.stages[0].mean_ns, duration)),
            said(or_dash(g.stages[1].mean_ns, duration)),
            said(or_dash(g.stages[2].mean_ns, duration)),
            said(or_dash(
                g.stages.iter().filter_map(|s| s.max_ns).max(),
                duration,
            )),
            bar(g, longest),
        ]
    });
    let classes = summary.classes.iter().flat_map(|c| {
        let dist = |stage: usize| c.stages[stage];
        [(1, "queued"), (2, "device"), (0, "admission")]
            .into_iter()
            .filter_map(move |(stage, title)| {
                let d = dist(stage);
                (d.count > 0).then(|| {
                    vec![
                        name(&c.device),
                        said(c.scheduler.as_deref().unwrap_or("-")),
                        said(c.class.name()),
                        said(title),
                        said(count(d.count)),
                        said(or_dash(d.p50_ns, duration)),
                        said(or_dash(d.p99_ns, duration)),
                        said(or_dash(d.max_ns, duration)),
                    ]
                })
            })
    });
    html! {
        p.legend {
            span.key.admission {} " admission: before there is a request for it "
            span.key.queued {} " queued: in the scheduler "
            span.key.device {} " device: issued, not completed"
        }
        (table(
            "By disk, owner and class: means of each stage",
            &["Disk", "Owner", "Class", "Requests", "Share", "Data", "Admission", "Queued", "Device", "Longest", "A request in the mean"],
            3,
            groups.collect(),
        ))
        (table(
            "By disk and class: how the times are spread",
            &["Disk", "Scheduler", "Class", "Stage", "Requests", "Median", "99th percentile", "Longest"],
            4,
            classes.collect(),
        ))
    }
}

/// The stages of a mean request, one after the other, as long as they take.
fn bar(g: &GroupRow, longest: Option<u64>) -> Markup {
    let (Some(longest), requests) = (longest.filter(|l| *l > 0), g.requests) else {
        return said("-");
    };
    if requests == 0 {
        return said("-");
    }
    let width = |ns: u64| 160.0 * (ns as f64 / requests as f64) / longest as f64;
    let mut x = 0.0;
    let parts = ["admission", "queued", "device"]
        .iter()
        .zip(&g.stages)
        .map(|(class, s)| {
            let part = (x, width(s.sum_ns), *class);
            x += part.1;
            part
        });
    let parts: Vec<_> = parts.collect();
    html! {
        // What it shows stands in the cells beside it.
        svg.bar viewBox="0 0 160 10" width="160" height="10" aria-hidden="true" {
            rect.ground x="0" y="0" width="160" height="10" {}
            @for (x, width, class) in parts {
                @if width > 0.0 {
                    rect class=(class) x=(format!("{x:.1}")) y="0" width=(format!("{:.1}", width.max(0.8))) height="10" {}
                }
            }
        }
    }
}

/// Who waited for whom.
pub fn blame(summary: &Summary) -> Markup {
    let most = summary
        .blame
        .iter()
        .map(|b| b.delay_ns)
        .max()
        .unwrap_or(1)
        .max(1);
    let rows = summary.blame.iter().map(|b| {
        let width = format!("{:.1}", 160.0 * b.delay_ns as f64 / most as f64);
        vec![
            name(&b.victim),
            name(&b.culprit),
            said(b.mechanism.name()),
            said(duration(b.delay_ns)),
            html! {
                svg.bar viewBox="0 0 160 10" width="160" height="10" aria-hidden="true" {
                    rect.ground x="0" y="0" width="160" height="10" {}
                    rect.delay x="0" y="0" width=(width) height="10" {}
                }
            },
        ]
    });
    html! {
        p { "The delay that each caused another over the whole run. Waits that overlap are added." }
        (table("Delays by victim, culprit and mechanism", &["Victim", "Waited for", "Through", "Delay", "Beside the others"], 3, rows.collect()))
    }
}

/// Hooks and losses.
pub fn seen(summary: &Summary) -> Markup {
    let (attached, wanted) = summary.hooks_attached();
    let hooks = summary.hooks.iter().map(|h| {
        let (verdict, why) = match &h.verdict {
            Verdict::Attached { via } => ("attached", via.as_str()),
            Verdict::Absent => ("absent", "this kernel does not have it"),
            Verdict::Refused { why } => ("refused", why.as_str()),
            Verdict::NotNeeded => ("not needed", "nothing on this machine needs it"),
            Verdict::Waits => ("waits", "its module is not loaded"),
        };
        vec![name(&h.name), said(verdict), said(why), said(&h.question)]
    });
    let losses = summary
        .loss
        .iter()
        .map(|(kind, n)| vec![said(kind.name()), said(count(*n))]);
    html! {
        @if summary.loss.is_empty() {
            p { "Nothing was lost: every event that the hooks should see was seen." }
        } @else {
            p.warning { "Some events were not seen. Figures may be too low where they are missing." }
            (table("What was lost, by kind", &["Kind", "Events"], 1, losses.collect()))
        }
        @if summary.hooks.is_empty() {
            p { "Which hooks were attached is not known: this is a trace that another program recorded." }
        } @else {
            p { (attached) " of " (wanted) " hooks were attached." }
            (table("Hooks in the kernel", &["Hook", "Verdict", "How, or why not", "What it answers"], 4, hooks.collect()))
        }
    }
}
