//! A run as one page of HTML. Pure: figures in, text out.
//!
//! The page stands alone: no network, no script, its style inside. It is read on a screen, light or dark, on paper, by keyboard and by
//! screen readers: every picture has its figures in a table beside it. What is drawn is bounded, however long the run was.

mod findings;
mod fio;
mod heat;
mod scale;
mod tables;
mod timeline;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{
    fio::FioView,
    history::summary::Summary,
    output::format::{count, duration, printable},
    source::recording::VERSION,
};

const STYLE: &str = include_str!("style.css");

/// What the figures do not say of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// What was run, or the name of the recording.
    pub command: Option<String>,
    /// Why the command is no success, in words; `None` when it is one, or there was none.
    pub ended: Option<String>,
    /// What a reader must know of the source, as that a recording is torn.
    pub warning: Option<String>,
}

/// The page.
pub fn page(summary: &Summary, fio: Option<&FioView>, about: &About) -> String {
    let worst = summary.alerts().next();
    let title = match (&about.command, worst) {
        (Some(command), _) => format!("{} - io-starve", printable(command)),
        (None, Some(f)) => format!("{} - io-starve", f.kind.name()),
        (None, None) => "io-starve".to_owned(),
    };
    let sections = sections(summary, fio);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#verdict" { "To the verdict" }
                (header(summary, about))
                nav aria-label="Parts of this page" {
                    ul {
                        @for s in &sections {
                            li { a href={ "#" (s.id) } { (s.title) } }
                        }
                    }
                }
                main {
                    @for s in &sections {
                        section id=(s.id) aria-labelledby={ (s.id) "-title" } {
                            h2 id={ (s.id) "-title" } { (s.title) }
                            (s.body)
                        }
                    }
                }
                footer {
                    p { "Made by io-starve " (VERSION) ". Times of stages are of requests that left the stage; a dash means not known, or none." }
                }
            }
        }
    }
    .into_string()
}

struct Section {
    id: &'static str,
    title: &'static str,
    body: Markup,
}

fn sections(summary: &Summary, fio: Option<&FioView>) -> Vec<Section> {
    let section = |id, title, body| Section { id, title, body };
    let mut list = vec![section("verdict", "Verdict", findings::body(summary))];
    if let Some(body) = timeline::body(summary) {
        list.push(section("timeline", "Who waited when", body));
    }
    if !summary.blame.is_empty() {
        list.push(section(
            "blame",
            "Who waited for whom",
            tables::blame(summary),
        ));
    }
    if let Some(fio) = fio {
        list.push(section("fio", "fio's jobs", fio::body(fio)));
    }
    list.push(section(
        "stages",
        "Where the time went",
        tables::stages(summary),
    ));
    if let Some(body) = heat::body(summary) {
        list.push(section("latency", "Latencies over time", body));
    }
    list.push(section(
        "seen",
        "What was seen and what not",
        tables::seen(summary),
    ));
    list
}

fn header(summary: &Summary, about: &About) -> Markup {
    let host = summary.host.as_ref();
    let begin = Timestamp::from_nanosecond(i128::from(summary.begin_wall_ns))
        .unwrap_or(Timestamp::UNIX_EPOCH);
    html! {
        header {
            p.brand { "io-starve" }
            h1 {
                @match &about.command {
                    Some(command) => code { (printable(command)) },
                    None => "Who starved whom of block I/O",
                }
            }
            p.verdict { (summary.verdict) }
            @if let Some(ended) = &about.ended {
                p.warning { "The command is no success: " (ended) "." }
            }
            @if let Some(warning) = &about.warning {
                p.warning { (printable(warning)) }
            }
            dl.facts {
                div { dt { "Host" } dd { (host.map_or("not known", |h| &h.name)) } }
                div { dt { "Kernel" } dd { (host.map_or("not known", |h| &h.kernel)) } }
                div { dt { "Began" } dd { time datetime=(format!("{begin:.0}")) { (format!("{begin:.0}").replace('T', " ").replace('Z', " UTC")) } } }
                div { dt { "Length" } dd { (duration(summary.elapsed_ns)) } }
                div { dt { "Requests" } dd { (count(summary.requests_seen)) } }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
