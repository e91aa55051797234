//! What was seen and what was not: hooks with the question each answers, losses by kind, what the cgroups can tell.

use io_starve_common::wire::LossKind;
use ratatui::text::Line;

use super::{Screen, details::labelled, text::Align};
use crate::{
    model::observation::{CgroupMode, Verdict},
    output::format,
    tui::theme::Role,
};

/// The page.
pub fn lines(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let snap = screen.snap;
    let mut out = Vec::new();
    let (attached, wanted) = snap.hooks_attached();
    let title = if snap.hooks.is_empty() {
        "Hooks: not known yet".to_owned()
    } else {
        format!("Hooks: {attached} of {wanted} attached")
    };
    heading(screen, &mut out, &title, width);
    for hook in &snap.hooks {
        let (word, role, note) = match &hook.verdict {
            Verdict::Attached { via } => {
                ("attached", Role::Good, format!("{} by {}", hook.name, via))
            }
            Verdict::NotNeeded => (
                "unneeded",
                Role::Dim,
                format!("{}: nothing on this machine needs it now", hook.name),
            ),
            Verdict::Waits => (
                "waits",
                Role::Dim,
                format!("{}: attached when its module is loaded", hook.name),
            ),
            Verdict::Absent => (
                "absent",
                Role::Dim,
                format!(
                    "{}: this kernel does not have it; not seen here: {}",
                    hook.name, hook.question
                ),
            ),
            Verdict::Refused { why } => (
                "REFUSED",
                Role::Warning,
                format!("{}: {why}; cannot tell: {}", hook.name, hook.question),
            ),
        };
        let note = screen.safe(&note);
        for (i, line) in super::text::wrap(&note, width.saturating_sub(10))
            .into_iter()
            .enumerate()
        {
            let word = if i == 0 { word } else { "" };
            let row = screen
                .row()
                .column(word, 10, Align::Left, screen.style(role));
            out.push(row.text(line, screen.style(Role::Plain)).line());
        }
    }
    out.push(Line::default());
    let title = match snap.loss_total() {
        0 => "Losses since attach: none".to_owned(),
        n => format!("Losses since attach: {}", format::count(n)),
    };
    heading(screen, &mut out, &title, width);
    for (kind, n) in &snap.loss {
        let text = format!("{} {}: {}", format::count(*n), kind.name(), meaning(*kind));
        labelled(screen, &mut out, "lost", [text], width);
    }
    out.push(Line::default());
    heading(screen, &mut out, "Owners", width);
    let cgroups = match snap.host.as_ref().map(|h| h.cgroups) {
        Some(CgroupMode::V2) => {
            "cgroup v2: buffered writes are charged to whoever dirtied the file."
        }
        Some(CgroupMode::V1) => {
            "cgroup v1: buffered writes are charged to the root, whoever dirtied the file."
        }
        Some(CgroupMode::None) => "No cgroup hierarchy for I/O was found: owners have no names.",
        None => "Not known yet.",
    };
    labelled(screen, &mut out, "", [cgroups.to_owned()], width);
    let pressure = match snap.pressure {
        Some((some, full)) => {
            format!("{some:.1} % of the last 10 s some task waited for I/O, {full:.1} % all did")
        }
        None => "this kernel does not tell it (PSI is off or not built in)".to_owned(),
    };
    labelled(screen, &mut out, "pressure", [pressure], width);
    out
}

fn heading(screen: &Screen<'_>, out: &mut Vec<Line<'static>>, text: &str, width: usize) {
    out.push(
        screen
            .row()
            .rest(text, width, Align::Left, screen.style(Role::Title))
            .line(),
    );
}

/// What a loss means for who reads the figures.
const fn meaning(kind: LossKind) -> &'static str {
    match kind {
        LossKind::SlotsFull => "requests found no slot and were not followed",
        LossKind::BiosFull => "bios found no slot; their admission was not followed",
        LossKind::GroupsFull => "owners found no row and are summed as several owners",
        LossKind::DevicesFull => "requests of disks that found no row were not followed",
        LossKind::LostCompletion => "ends of requests were missed; their device times are unknown",
        LossKind::Expired => "requests were gone when checked; they no longer count as waiting",
        LossKind::UnmatchedCompletion => "completions of requests whose beginning was not seen",
        LossKind::ClockBackwards => "the clock ran backwards; those times were dropped",
        LossKind::AdmissionExpired => "bios whose admission could not be confirmed were given up",
        LossKind::SkippedRuns => "the kernel skipped runs of a program; any figure may be too low",
        LossKind::LateTick => "ticks came late; longest times between them may be missing",
        LossKind::TraceLost => "events that the trace lost, or that cannot be read in it",
        LossKind::SpansDropped => {
            "fsyncs, commits, holds or pauses found no room, or an end was missed"
        }
    }
}
