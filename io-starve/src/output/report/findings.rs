//! Each finding: a sentence, the way from victim to culprit, what to do.

use maud::{Markup, html};

use crate::{
    history::summary::Summary,
    output::{
        alert::FindingAlert,
        format::{count, duration_ms, printable, share},
        text,
    },
};

/// Findings that are told in full; the rest in one line each.
const IN_FULL: usize = 12;

/// The findings, or that there are none.
pub fn body(summary: &Summary) -> Markup {
    let list: Vec<&FindingAlert> = summary.alerts().collect();
    html! {
        @if list.is_empty() {
            p.none { "No findings: nobody was starved by the rules of io-starve while this was watched." }
        }
        @for (i, finding) in list.iter().take(IN_FULL).enumerate() {
            (in_full(i, finding))
        }
        @if list.len() > IN_FULL {
            details {
                summary { (count((list.len() - IN_FULL) as u64)) " more findings" }
                ul {
                    @for finding in &list[IN_FULL..] {
                        li { (text::sentence(finding, "waited")) }
                    }
                }
            }
        }
        @if summary.findings_lost > 0 {
            p.warning { (count(summary.findings_lost)) " later findings are not on this page: it has room for those that opened first." }
        }
    }
}

fn in_full(i: usize, f: &FindingAlert) -> Markup {
    let id = format!("finding-{}", i + 1);
    html! {
        article.finding.(f.severity.name()) aria-labelledby=(id) {
            h3 id=(id) {
                span.badge { (f.severity.name()) }
                " " (f.kind.name())
            }
            p.sentence { (text::sentence(f, "waited")) }
            dl.facts {
                div { dt { "Lasted" } dd { (duration_ms(f.duration_ms)) } }
                div { dt { "Longest wait" } dd { @if f.longest_ms > 0 { (duration_ms(f.longest_ms)) } @else { "-" } } }
                div { dt { "Through" } dd { (f.mechanism.name()) } }
                div { dt { "Confidence" } dd { (if f.confidence == crate::detect::finding::Confidence::Sure { "sure" } else { "likely" }) } }
                div { dt { "Since" } dd { (f.since) } }
            }
            @if !f.chain.is_empty() {
                h4 { "From the victim to the culprit" }
                ol.chain {
                    @for link in &f.chain { li { (printable(link)) } }
                }
            }
            @if f.culprits.len() > 1 {
                h4 { "Who else was served" }
                ul {
                    @for c in &f.culprits {
                        li {
                            @match c.cgroup.as_ref().and_then(|g| g.path.as_deref()) {
                                Some(path) => code { (printable(path)) },
                                None => "an owner that is not known",
                            }
                            ", " (c.class.name()) ", " (share(c.share))
                        }
                    }
                }
            }
            @if !f.advice.is_empty() {
                h4 { "What to try" }
                ul {
                    @for advice in &f.advice { li { (printable(advice)) } }
                }
            }
            @if f.loss.events > 0 || !f.loss.missing.is_empty() {
                h4 { "What was not seen meanwhile" }
                ul {
                    @if f.loss.events > 0 { li { (count(f.loss.events)) " events were lost" } }
                    @for question in &f.loss.missing { li { (printable(question)) } }
                }
            }
        }
    }
}
