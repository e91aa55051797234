//! One finding in words: who waits for what, who was served instead, the figures behind it, what to do.

use ratatui::text::Line;

use super::{
    Screen, header, names,
    text::{self, Align},
};
use crate::{
    detect::{
        explain,
        finding::{CloseReason, Confidence, Evidence, Finding, Place, Rule, SyncNote},
        fsync_words, words,
    },
    model::{
        observation::{Call, Owner},
        snapshot::DeviceView,
    },
    output::format,
    tui::{app::Target, theme::Role},
};

/// Columns of a label.
const LABEL: usize = 10;

/// What is selected, under a bar: a finding, or a disk in short.
pub fn selected(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let (title, lines) = match screen.app.target() {
        Some(Target::Finding(_)) => match screen.app.finding() {
            Some(f) => (f.kind.name().to_owned(), body(screen, f, width, true)),
            None => return Vec::new(),
        },
        Some(Target::Device(dev)) => match screen.snap.devices.iter().find(|d| d.dev == dev) {
            Some(d) => (screen.safe(&d.name), device(screen, d, width)),
            None => return Vec::new(),
        },
        None => return Vec::new(),
    };
    let mut out = vec![screen.bar(&title, "Enter: more", width)];
    out.extend(lines);
    out
}

/// A finding in full, with its title.
pub fn finding(screen: &Screen<'_>, finding: &Finding, width: usize) -> Vec<Line<'static>> {
    let (word, role) = match finding.closed {
        Some(_) => ("closed", Role::Dim),
        None => (header::word(finding.severity), Role::of(finding.severity)),
    };
    let device = finding.device.map_or_else(String::new, |d| {
        format!(" on {}", screen.snap.device_name(d))
    });
    let title = format!(" {}{}", finding.kind.name(), screen.safe(&device));
    let mut out = vec![
        screen
            .row()
            .text(word, screen.style(role))
            .rest(&title, width, Align::Left, screen.style(Role::Title))
            .line(),
    ];
    out.extend(body(screen, finding, width, false));
    let mut names = vec![finding.victim];
    names.extend(finding.culprits.iter().map(|c| c.owner));
    let names = names
        .into_iter()
        .filter(|o| matches!(o, Owner::Cgroup(_)))
        .filter_map(|owner| {
            let aliases = screen.aliases(owner);
            (!aliases.is_empty())
                .then(|| format!("{}: {}", screen.owner(owner), aliases.join(", ")))
        });
    labelled(screen, &mut out, "names", names, width);
    out.push(Line::default());
    let explained = explain(finding.kind).split("\n\n");
    labelled(
        screen,
        &mut out,
        "meaning",
        explained.map(str::to_owned),
        width,
    );
    out
}

/// `short` puts the advice first: there the verdict stands above, and the end may be cut.
fn body(screen: &Screen<'_>, f: &Finding, width: usize, short: bool) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let advice = f.advice.iter().map(|a| format!("- {}", screen.safe(a)));
    if short {
        labelled(screen, &mut out, "advice", advice.clone().take(1), width);
    }
    labelled(screen, &mut out, "victim", [victim(screen, f)], width);
    let label = match &f.sync {
        Some(_) => "behind",
        None if is_dirty(f) => "writers",
        None => "served",
    };
    labelled(screen, &mut out, label, served(screen, f), width);
    if !short {
        labelled(screen, &mut out, "advice", advice, width);
    }
    if !short && f.sync.is_none() {
        let chain = words::chain(f, &|owner| screen.owner(owner));
        let links = chain.iter().map(|link| screen.safe(link));
        labelled(screen, &mut out, "way", links, width);
    }
    labelled(screen, &mut out, "evidence", [evidence(screen, f)], width);
    labelled(screen, &mut out, "sure?", [confidence(screen, f)], width);
    labelled(screen, &mut out, "when", [when(screen, f)], width);
    out
}

/// What a disk is set to and who waits longest on it.
pub fn device(screen: &Screen<'_>, d: &DeviceView, width: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let scheduler = d
        .scheduler
        .as_ref()
        .map_or_else(|| "none known".to_owned(), |s| screen.safe(s));
    labelled(screen, &mut out, "scheduler", [scheduler], width);
    let oldest = match &d.oldest {
        Some(w) => screen.waiter(w, usize::MAX),
        None => "nothing waits in admission or queued".to_owned(),
    };
    labelled(screen, &mut out, "oldest", [oldest], width);
    let tunables: Vec<_> = d
        .tunables
        .iter()
        .map(|(file, value)| screen.safe(&format!("{file} {value}")))
        .collect();
    let tunables = if tunables.is_empty() {
        format::DASH.to_owned()
    } else {
        tunables.join(", ")
    };
    labelled(screen, &mut out, "tunables", [tunables], width);
    out
}

/// Adds paragraphs, the first beside its label.
pub fn labelled(
    screen: &Screen<'_>,
    out: &mut Vec<Line<'static>>,
    label: &str,
    paragraphs: impl IntoIterator<Item = String>,
    width: usize,
) {
    let mut label = label;
    for paragraph in paragraphs {
        for line in text::wrap(&paragraph, width.saturating_sub(LABEL)) {
            let row = screen
                .row()
                .column(label, LABEL, Align::Left, screen.style(Role::Dim));
            out.push(row.text(line, screen.style(Role::Plain)).line());
            label = "";
        }
    }
}

fn victim(screen: &Screen<'_>, f: &Finding) -> String {
    if let Some(sync) = &f.sync {
        return fsync(screen, f, sync);
    }
    let class = f.class.map_or("I/O", |c| c.name());
    let mut out = format!("{class} of {}", screen.owner(f.victim));
    let e = &f.evidence;
    let what = match e.rule {
        Some(Rule::Withheld) => " is issued nothing",
        Some(Rule::Crawling) => " is issued next to nothing",
        Some(Rule::Overtaken) => " is passed inside the device",
        Some(Rule::Stuck) => " does not move, nor does anything else",
        None => " waits",
    };
    out += what;
    out += &format!(
        " for {}, in {}",
        format::duration(f.duration_ns),
        names::in_place(f.stage)
    );
    if let Some(task) = &f.task {
        out += &format!(", task {}", screen.task(task));
    }
    out
}

fn fsync(screen: &Screen<'_>, f: &Finding, sync: &SyncNote) -> String {
    let file = sync.file.as_ref().map(|n| screen.safe(n));
    let call = f.evidence.fsync.as_ref().map_or(Call::Fsync, |e| e.call);
    let called = fsync_words::called(call, file.as_deref());
    let mut out = format!("{called} by {}", screen.owner(f.victim));
    if let Some(mountpoint) = &sync.mountpoint {
        out += &format!(", on {}", screen.safe(mountpoint));
    }
    out += &match sync.ended_ns {
        None => format!(", waits for {}", format::duration(f.duration_ns)),
        Some(_) => format!(", waited, longest {}", format::duration(f.longest_ns)),
    };
    // Its own data is held, or that of another, for which it waits.
    out += &match f.stage {
        Place::Held => ", for what blk-throttle holds".to_owned(),
        place => format!(", in {}", names::in_place(place)),
    };
    if let Some(task) = &f.task {
        out += &format!(", task {}", screen.task(task));
    }
    out
}

fn is_dirty(f: &Finding) -> bool {
    f.evidence.looped.is_some() || f.evidence.dirty.is_some()
}

fn served(screen: &Screen<'_>, f: &Finding) -> Vec<String> {
    if f.culprits.is_empty() {
        return vec!["nobody instead".to_owned()];
    }
    f.culprits
        .iter()
        .map(|c| {
            let mut line = match c.delay_ns {
                Some(ns) => format!(
                    "{}, waited for during {} ({} of that part)",
                    screen.owner(c.owner),
                    format::duration(ns),
                    format::share(c.share)
                ),
                None => format!(
                    "{} of {}, {} of the {} ({})",
                    c.class.name(),
                    screen.owner(c.owner),
                    format::share(c.share),
                    if is_dirty(f) {
                        "writes"
                    } else {
                        "issues of others"
                    },
                    format::count(c.issues)
                ),
            };
            if let Some(limit) = &c.limit {
                line += &format!(
                    ", held by the limit of {}: {}, {}",
                    screen.owner(limit.group),
                    fsync_words::limits(&limit.limits),
                    fsync_words::bite(limit.used, limit.held_share)
                );
            }
            if !c.tasks.is_empty() {
                let tasks: Vec<_> = c.tasks.iter().take(4).map(|t| screen.task(t)).collect();
                line += &format!(", seen {}", tasks.join(" "));
            }
            line
        })
        .collect()
}

fn evidence(screen: &Screen<'_>, f: &Finding) -> String {
    let Evidence {
        rule: _,
        scheduler,
        tunables,
        oldest_ms,
        waiting,
        backlog_bytes,
        backlog_needs_ms,
        gap_ms,
        issues,
        issues_of_others,
        issue_share,
        waited_share,
        bypasses,
        before_attach,
        fsync,
        looped: _,
        dirty: _,
        weights: _,
    } = &f.evidence;
    let mut out = Vec::new();
    let mut add = |text: Option<String>| out.extend(text);
    add(scheduler
        .as_ref()
        .map(|s| format!("scheduler {}", screen.safe(s))));
    for (file, value) in tunables {
        add(Some(screen.safe(&format!("{file} {value}"))));
    }
    add(oldest_ms.map(|ms| format!("oldest {}", format::duration_ms(ms))));
    add(waiting.map(|n| format!("{} waiting", format::count(n))));
    add(gap_ms.map(|ms| format!("no issue for {}", format::duration_ms(ms))));
    add(match (issues, issues_of_others) {
        (Some(own), Some(others)) => Some(format!(
            "{} issues against {} of others",
            format::count(*own),
            format::count(*others)
        )),
        (Some(own), None) => Some(format!("{} issues", format::count(*own))),
        (None, Some(others)) => Some(format!("{} issues of others", format::count(*others))),
        (None, None) => None,
    });
    add(issue_share.map(|s| format!("{} of the issues", format::share(s))));
    add(waited_share.map(|s| format!("waited {} of the time", format::share(s))));
    add(backlog_bytes.map(|n| format!("backlog {}", format::bytes(n))));
    add(backlog_needs_ms.map(|ms| format!("which needs {} at this rate", format::duration_ms(ms))));
    add(bypasses.map(|n| format!("oldest passed at least {} times", format::count(n))));
    if let Some(e) = fsync {
        let part =
            |name: &str, ms: u64| (ms > 0).then(|| format!("{name} {}", format::duration_ms(ms)));
        add(Some(format!("took {}", format::duration_ms(e.took_ms))));
        add(part("own data", e.own_data_ms));
        add(part("journal", e.journal_ms));
        add(part("flush", e.flush_ms));
        add(part("not told apart", e.unseen_ms));
        add(Some(format!(
            "alone about {}",
            format::duration_ms(e.alone_ms)
        )));
        for what in &e.not_seen {
            add(Some(format!("not seen: {what}")));
        }
    }
    out.extend(words::figures(&f.evidence).iter().map(|p| screen.safe(p)));
    let mut add = |text: Option<String>| out.extend(text);
    add(before_attach.then(|| "it waited before io-starve was attached".to_owned()));
    if out.is_empty() {
        format::DASH.to_owned()
    } else {
        out.join(", ")
    }
}

fn confidence(screen: &Screen<'_>, f: &Finding) -> String {
    let mut out = match f.confidence {
        Confidence::Sure => "yes, the mechanism was seen at work".to_owned(),
        Confidence::Likely => {
            "likely; only circumstances point to it, or evidence was lost".to_owned()
        }
    };
    if f.loss.events > 0 {
        out += &format!(
            "; {} events were lost meanwhile",
            format::count(f.loss.events)
        );
    }
    for question in &f.loss.missing {
        out += &format!("; cannot tell: {}", screen.safe(question));
    }
    out
}

fn when(screen: &Screen<'_>, f: &Finding) -> String {
    let mut out = format!(
        "since {}, longest {}, threshold {}",
        screen.clock(f.since_ns),
        format::duration(f.longest_ns),
        format::duration(f.threshold_ns)
    );
    if let Some((at, reason)) = f.closed {
        let why = match reason {
            CloseReason::Resolved => "as it was over",
            CloseReason::Detached => "as io-starve went away, not as it was over",
        };
        out += &format!("; closed {} {why}", screen.clock(at));
    }
    out
}
