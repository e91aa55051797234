//! Dirty memory: behind which devices writers are paused, who they are, and loop devices with a bar for each layer.

use ratatui::{style::Style, text::Line};

use super::{
    Screen,
    text::{self, Align},
};
use crate::{
    detect::dirty_words::bytes,
    model::{
        observation::{Topic, Verdict},
        snapshot::{BdiView, LoopView, PausedView},
    },
    output::format,
    tui::theme::Role,
};

/// Columns of a bar.
const BAR: usize = 10;
/// From this width on a line has room for figures beside names.
const WIDE: usize = 64;

/// The page, as a text to scroll.
pub fn lines(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let snap = screen.snap;
    let mut out = Vec::new();
    if snap.bdis.is_empty() {
        for line in text::wrap(&healthy(screen), width) {
            out.push(screen.row().text(line, screen.style(Role::Plain)).line());
        }
    } else {
        out.push(heading(screen, "paused behind, in the last 5 s", width));
        out.extend(snap.bdis.iter().map(|b| bdi(screen, b, width)));
        out.push(Line::default());
        out.push(heading(screen, "who is paused", width));
        for p in &snap.paused {
            out.extend(paused(screen, p, width));
        }
    }
    if !snap.loops.is_empty() {
        out.push(Line::default());
        out.extend(loops(screen, width));
    }
    out
}

/// Stacks with a pause in them; machines with dozens of loop devices that are only read are common.
fn loops(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let trees = || screen.snap.loops.chunk_by(|_, next| next.depth > 0);
    let is_paused = |l: &LoopView| l.paused_share > 0.0 || l.worker_share.is_some_and(|s| s > 0.0);
    let quiet = trees().filter(|t| !t.iter().any(is_paused)).count();
    let shown: Vec<&LoopView> = trees()
        .filter(|t| t.iter().any(is_paused))
        .flatten()
        .collect();
    let title = match (shown.is_empty(), quiet) {
        (true, n) => format!("loop devices: {n}, nobody paused on them"),
        (false, 0) => "loop devices: paused on each, and its worker".to_owned(),
        (false, n) => format!("loop devices: paused on each, and its worker; {n} more without"),
    };
    let mut out = vec![heading(screen, &title, width)];
    out.extend(shown.into_iter().map(|l| layer(screen, l, width)));
    out
}

/// What the bar above the page says.
pub fn title(screen: &Screen<'_>) -> String {
    let now: usize = screen.snap.paused.iter().map(|p| p.now.len()).sum();
    match now {
        0 => "dirty memory".to_owned(),
        1 => "dirty memory: 1 task paused now".to_owned(),
        n => format!("dirty memory: {n} tasks paused now"),
    }
}

/// What is to be said while nobody is paused: that nobody is, or that it could not be seen.
fn healthy(screen: &Screen<'_>) -> String {
    let mut hooks = screen.snap.hooks.iter();
    let Some(hook) = hooks.find(|h| h.topic == Topic::Dirty) else {
        return "whether writers are paused is not known: there is no hook for it".to_owned();
    };
    match &hook.verdict {
        Verdict::Attached { .. } => "nobody was paused for dirty memory in the last 5 s".to_owned(),
        Verdict::Refused { why } => screen.safe(&format!(
            "whether writers are paused is not known: the hook {} was refused: {why}",
            hook.name
        )),
        Verdict::Absent | Verdict::NotNeeded | Verdict::Waits => format!(
            "whether writers are paused is not known: {} is not to be had here",
            hook.name
        ),
    }
}

fn heading(screen: &Screen<'_>, text: &str, width: usize) -> Line<'static> {
    let style = screen.style(Role::Title);
    screen.row().rest(text, width, Align::Left, style).line()
}

/// A share as a bar.
fn bar(screen: &Screen<'_>, share: f64) -> String {
    let [_, full, _, empty] = screen.look.theme.parts();
    let cells = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    // What is there at all is seen.
    let cells = if share > 0.0 { cells.max(1) } else { 0 };
    let mut out = full.to_string().repeat(cells);
    out += &empty.to_string().repeat(BAR.saturating_sub(cells));
    out
}

fn style_of(screen: &Screen<'_>, share: f64) -> Style {
    screen.style(if share >= 0.2 {
        Role::Strong
    } else {
        Role::Plain
    })
}

fn bdi(screen: &Screen<'_>, b: &BdiView, width: usize) -> Line<'static> {
    let style = screen.style(Role::Plain);
    let name = screen.safe(&b.name);
    let mut figures = Vec::new();
    if let (Some(dirty), Some(limit)) = (b.dirty, b.limit) {
        figures.push(format!("{} dirty of {}", bytes(dirty), bytes(limit)));
    }
    figures.push(format!(
        "{} pauses, longest {}",
        format::count(b.pauses),
        format::duration(b.longest_ns)
    ));
    figures.extend(b.rate.map(|rate| format!("held to {}/s", bytes(rate))));
    figures.extend(b.busy_share.map(|s| format!("{:.0} % busy", s * 100.0)));
    screen
        .row()
        .text("  ", style)
        .column(&name, name_columns(width), Align::Left, style)
        .text(format!(" {} ", bar(screen, b.paused_share)), style)
        .column(
            &format!("{:.0} %", b.paused_share * 100.0),
            5,
            Align::Right,
            style_of(screen, b.paused_share),
        )
        .rest(
            &format!("  {}", figures.join(", ")),
            width,
            Align::Left,
            style,
        )
        .line()
}

const fn name_columns(width: usize) -> usize {
    if width >= WIDE { 20 } else { 8 }
}

/// Who, and below the tasks that are paused at this moment.
fn paused(screen: &Screen<'_>, p: &PausedView, width: usize) -> Vec<Line<'static>> {
    let style = screen.style(Role::Plain);
    let on = format!("on {}", screen.safe(&p.name));
    let who = match &p.worker {
        Some(worker) => format!("worker of {}", screen.safe(worker)),
        None => screen.owner(p.owner),
    };
    let figures = format!(
        "{on}, {} pauses, {} over all tasks",
        format::count(p.pauses),
        format::duration(p.sum_ns)
    );
    let first = screen
        .row()
        .text("  ", style)
        .column(&who, name_columns(width), Align::Path, style)
        .text(format!(" {} ", bar(screen, p.paused_share)), style)
        .column(
            &format!("{:.0} %", p.paused_share * 100.0),
            5,
            Align::Right,
            style_of(screen, p.paused_share),
        )
        .rest(&format!("  {figures}"), width, Align::Left, style)
        .line();
    let mut out = vec![first];
    if !p.now.is_empty() {
        let tasks: Vec<String> = p.now.iter().take(6).map(|t| screen.task(t)).collect();
        let more = match p.now.len().saturating_sub(6) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let text = format!("    now {}{more}", tasks.join(" "));
        let dim = screen.style(Role::Dim);
        out.push(screen.row().rest(&text, width, Align::Left, dim).line());
    }
    out
}

fn layer(screen: &Screen<'_>, l: &LoopView, width: usize) -> Line<'static> {
    let style = screen.style(Role::Plain);
    let indent = "  ".repeat(l.depth.min(4));
    let name = format!("{indent}{}", screen.safe(&l.name));
    let mut parts = Vec::new();
    if let Some(share) = l.worker_share {
        parts.push(format!("worker {:.0} %", share * 100.0));
    }
    parts.extend(l.direct_io.map(|on| {
        let state = if on { "on" } else { "off" };
        format!("direct-io {state}")
    }));
    if let Some(file) = &l.file {
        let deleted = if l.deleted { " (deleted)" } else { "" };
        parts.push(format!("{}{deleted}", screen.safe(file)));
    }
    screen
        .row()
        .text("  ", style)
        .column(&name, name_columns(width), Align::Left, style)
        .text(format!(" {} ", bar(screen, l.paused_share)), style)
        .column(
            &format!("{:.0} %", l.paused_share * 100.0),
            5,
            Align::Right,
            style_of(screen, l.paused_share.max(l.worker_share.unwrap_or(0.0))),
        )
        .rest(
            &format!("  {}", parts.join(", ")),
            width,
            Align::Left,
            style,
        )
        .line()
}
