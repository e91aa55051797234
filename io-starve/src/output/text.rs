//! Text for people without a screen: alerts as lines, the state as a table, the end in a sentence. Pure.

pub mod columns;
pub mod dirty;
pub mod journal;
pub mod shares;

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::{
    alert::{Alert, Cgroup, Event, FindingAlert, Hooks, OwnerKind},
    format::{DASH, count, duration, duration_ms, megabytes, or_dash, printable, rate, share},
};
use crate::detect::{finding::Place, fsync_words, words};
use crate::model::{
    observation::Stage,
    snapshot::{ClassView, DeviceView, Snapshot},
};

/// An alert as one line without a newline.
pub fn line(alert: &Alert) -> String {
    match &alert.event {
        Event::Start(start) => format!(
            "{} start: {}, host {}, kernel {}",
            start.stamp.time,
            hooks(&start.hooks),
            word(start.stamp.host.as_deref()),
            word(start.stamp.kernel.as_deref()),
        ),
        Event::Status(status) => format!(
            "{} status: {} open, {} requests seen, {}, {}",
            status.stamp.time,
            count(status.open.len() as u64),
            count(status.totals.requests_seen),
            hooks(&status.totals.hooks),
            lost(
                status.totals.loss.events,
                status
                    .totals
                    .loss
                    .kinds
                    .iter()
                    .map(|(k, n)| (k.as_str(), *n))
            ),
        ),
        Event::Open(finding) => format!(
            "{} open: {}",
            finding.stamp.time,
            sentence(finding, "waits")
        ),
        Event::Update(finding) => format!(
            "{} update: {}",
            finding.stamp.time,
            sentence(finding, "waits")
        ),
        Event::Close(finding) => format!(
            "{} close: {}",
            finding.stamp.time,
            sentence(finding, "waited")
        ),
        Event::Result(result) => format!(
            "{} result: {}",
            result.stamp.time,
            match (result.exit_code, result.signal) {
                (Some(code), _) => format!("the command ended with code {code}"),
                (None, Some(signal)) => format!("the command was killed by signal {signal}"),
                (None, None) => "the process ended".to_owned(),
            }
        ),
        Event::Stop(stop) => format!("{} stop: {}", stop.stamp.time, stop.summary),
    }
}

/// A finding in one sentence without its end; `waits` is the verb.
pub fn sentence(f: &FindingAlert, waits: &str) -> String {
    let mut s = format!("{} {}", f.severity.name(), f.kind.name());
    if let Some(device) = &f.device {
        let number = || format!("{}:{}", device.major, device.minor);
        let name = device.name.clone().unwrap_or_else(number);
        let _ = write!(s, " on {}", printable(&name));
    }
    if let Some(mountpoint) = &f.mountpoint {
        let _ = write!(s, " ({})", printable(mountpoint));
    }
    let fsync = f.evidence.fsync.as_ref();
    let everything = match fsync {
        Some(e) => e.call.name(),
        None if f.stage == Place::Dirty => "writes",
        None => "everything",
    };
    let class = f.victim.class.map_or(everything, |class| class.name());
    let _ = write!(
        s,
        ": {class} of {}",
        owner(f.victim.owner, f.victim.cgroup.as_ref())
    );
    if let Some(task) = &f.victim.task {
        let _ = write!(s, " ({} {})", printable(&task.comm), task.pid);
    }
    let _ = write!(
        s,
        " {waits} {} {}",
        duration_ms(f.duration_ms),
        place(f.stage)
    );
    if f.longest_ms > 0 {
        let _ = write!(s, ", longest {}", duration_ms(f.longest_ms));
    }
    if let Some(culprit) = f.culprits.first() {
        let class = match culprit.delay_ms {
            Some(_) => String::new(),
            None => format!("{} of ", culprit.class.name()),
        };
        let verb = if f.evidence.looped.is_some() {
            "writer"
        } else {
            "behind"
        };
        let _ = write!(
            s,
            ", {verb} {class}{} ({})",
            owner(culprit.owner, culprit.cgroup.as_ref()),
            share(culprit.share)
        );
        if let Some(limit) = &culprit.limit {
            let _ = write!(
                s,
                ", held by the limit of {} ({})",
                owner(OwnerKind::Cgroup, limit.cgroup.as_ref()),
                fsync_words::limits(&limit.limits)
            );
        }
    }
    let _ = write!(s, "; {}", f.mechanism.name());
    for figure in words::figures(&f.evidence) {
        let _ = write!(s, ", {}", printable(&figure));
    }
    if let Some(scheduler) = f
        .evidence
        .scheduler
        .as_deref()
        .filter(|_| f.mechanism.name() == "scheduler")
    {
        let _ = write!(s, " {}", printable(scheduler));
    }
    if f.confidence == crate::detect::finding::Confidence::Likely {
        s.push_str(" (likely)");
    }
    if f.loss.events > 0 {
        let _ = write!(s, "; {} events lost meanwhile", count(f.loss.events));
    }
    match f.reason {
        Some(crate::detect::finding::CloseReason::Resolved) => s.push_str("; resolved"),
        Some(crate::detect::finding::CloseReason::Detached) => {
            s.push_str("; still open when the observer left")
        }
        None => {}
    }
    s
}

fn place(place: Place) -> &'static str {
    match place {
        Place::Held => "held by blk-throttle",
        Place::Admission => "for admission",
        Place::Queued => "in the queue",
        Place::Device => "in the device",
        Place::Journal => "in the journal",
        Place::Dirty => "paused for dirty memory",
    }
}

fn owner(kind: OwnerKind, cgroup: Option<&Cgroup>) -> String {
    match (kind, cgroup) {
        (OwnerKind::Several, _) => "several owners".to_owned(),
        (OwnerKind::Cgroup, Some(cgroup)) => match &cgroup.path {
            Some(path) => printable(path).into_owned(),
            None => format!("cgroup {}", cgroup.id),
        },
        (OwnerKind::Task, _) => "one thread".to_owned(),
        (OwnerKind::Unknown | OwnerKind::Cgroup, _) => "unknown owner".to_owned(),
    }
}

fn word(text: Option<&str>) -> String {
    text.map_or_else(|| "unknown".to_owned(), |t| printable(t).into_owned())
}

fn hooks(hooks: &Hooks) -> String {
    format!("hooks {} of {}", hooks.attached, hooks.wanted)
}

fn lost<'a>(events: u64, kinds: impl Iterator<Item = (&'a str, u64)>) -> String {
    if events == 0 {
        return "nothing lost".to_owned();
    }
    let kinds: Vec<String> = kinds
        .map(|(kind, n)| format!("{kind} {}", count(n)))
        .collect();
    format!("{} events lost ({})", count(events), kinds.join(", "))
}

/// The run so far: `no findings; 12,034 requests seen, hooks 9 of 9, nothing lost`.
pub fn summary(snapshot: &Snapshot, findings: u64) -> String {
    let findings = match findings {
        0 => "no findings".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{} findings", count(n)),
    };
    let (attached, wanted) = snapshot.hooks_attached();
    let kinds = snapshot.loss.iter().map(|(kind, n)| (kind.name(), *n));
    format!(
        "{findings}; {} requests seen, hooks {attached} of {wanted}, {}",
        count(snapshot.requests_seen),
        lost(snapshot.loss_total(), kinds)
    )
}

/// The verdict of a run: every finding with its advice, then the summary. Several lines, each ended.
pub fn verdict<'a>(findings: impl Iterator<Item = &'a FindingAlert>, summary: &str) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{}", sentence(finding, "waited"));
        for advice in &finding.advice {
            let _ = writeln!(text, "  try: {}", printable(advice));
        }
        for question in &finding.loss.missing {
            let _ = writeln!(text, "  not seen: {}", printable(question));
        }
    }
    let _ = writeln!(text, "{summary}");
    text
}

/// The state at a tick as a table, with its verdict above, what is known of fsyncs and limits below, and an empty line at the end.
/// Several lines, each ended.
pub fn table(snapshot: &Snapshot) -> String {
    let mut text = format!("{}\n", snapshot.verdict);
    text.push_str(&disks(snapshot));
    text.push_str(&journal::lines(snapshot));
    text.push_str(&dirty::lines(snapshot));
    text.push_str(&shares::lines(snapshot));
    text.push('\n');
    text
}

fn disks(snapshot: &Snapshot) -> String {
    let mut rows = vec![
        [
            "DEVICE",
            "SCHEDULER",
            "CLASS",
            "IOPS",
            "MB/s",
            "ADM",
            "QUEUE",
            "DEV",
            "Q-P50",
            "Q-P99",
            "Q-MAX",
            "OLDEST",
        ]
        .map(str::to_owned),
    ];
    for device in &snapshot.devices {
        for (i, class) in device.classes.iter().enumerate() {
            rows.push(row(snapshot, device, class, i == 0));
        }
    }
    if rows.len() == 1 {
        return "no disk had I/O yet\n".to_owned();
    }
    let mut text = String::new();
    let mut widths = [0; 12];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    for row in &rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
            let padding = " ".repeat(width - cell.width());
            // Names and the oldest waiter are read from the left, figures from the right.
            let _ = match i {
                0..=2 => write!(line, "{cell}{padding}  "),
                11 => write!(line, "{cell}"),
                _ => write!(line, "{padding}{cell}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(snapshot: &Snapshot, device: &DeviceView, class: &ClassView, first: bool) -> [String; 12] {
    let queued = class.stages[Stage::Queued.index()];
    let oldest = class.oldest.as_ref().map(|w| {
        let task = w
            .task
            .as_ref()
            .map(|t| format!(" {} {}", printable(&t.comm), t.pid));
        let owner = snapshot.owner_name(w.owner);
        format!(
            "{} {}{}",
            duration(w.age_ns),
            printable(&owner),
            task.unwrap_or_default()
        )
    });
    // A disk is named once, in its first line.
    let once = |text: &str| {
        if first {
            printable(text).into_owned()
        } else {
            String::new()
        }
    };
    [
        once(&device.name),
        once(device.scheduler.as_deref().unwrap_or(DASH)),
        class.class.name().to_owned(),
        rate(class.iops),
        megabytes(class.bytes_per_s),
        count(class.waiting[Stage::Admission.index()]),
        count(class.waiting[Stage::Queued.index()]),
        count(class.waiting[Stage::Device.index()]),
        or_dash(queued.p50_ns, duration),
        or_dash(queued.p99_ns, duration),
        or_dash(queued.max_ns, duration),
        oldest.unwrap_or_else(|| DASH.to_owned()),
    ]
}

/// The columns that long texts are wrapped at: what fits beside something else on most screens.
const COLUMNS: usize = 100;

/// A text with its paragraphs wrapped, those of a list below their own beginning, and a newline at the end.
pub fn wrapped(text: &str) -> String {
    let wrap = |line: &str| {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        // `  withheld   something waited`: what follows goes below the explanation.
        let hanging = match body.find("  ") {
            Some(end) if indent > 0 => {
                indent + end + body[end..].len() - body[end..].trim_start().len()
            }
            _ => indent,
        };
        let below = " ".repeat(hanging);
        let options = textwrap::Options::new(COLUMNS).subsequent_indent(&below);
        textwrap::fill(line, options) + "\n"
    };
    text.lines().map(wrap).collect()
}
