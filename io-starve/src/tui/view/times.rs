//! Times of a disk: histograms by class, how they moved in the last minute, the oldest waiters.

use ratatui::text::Line;

use super::{
    Screen, details, names, spark,
    text::{self, Align},
};
use crate::{
    model::{
        observation::Stage,
        snapshot::{ClassView, DeviceView},
        trail::{ROWS, STEPS, Step},
    },
    output::format,
    tui::theme::Role,
};

/// Columns of a row's name.
const NAME: usize = 8;

/// The page in full, as a text to scroll.
pub fn lines(screen: &Screen<'_>, d: &DeviceView, width: usize) -> Vec<Line<'static>> {
    let mut out = details::device(screen, d, width);
    out.extend(waiters(screen, d, width));
    for stage in [Stage::Queued, Stage::Device] {
        out.extend(histogram(screen, d, stage, width));
    }
    out.extend(heat(screen, d, width));
    out
}

/// The oldest in flight, below a bar, with owner and task.
pub fn waiters(screen: &Screen<'_>, d: &DeviceView, width: usize) -> Vec<Line<'static>> {
    if d.waiters.is_empty() {
        return vec![screen.bar("oldest in flight: nothing seen at this tick", "", width)];
    }
    let mut out = vec![screen.bar("oldest in flight", "", width)];
    let style = screen.style(Role::Plain);
    let task = if width >= 79 { width / 4 } else { 0 };
    let owner = width.saturating_sub(9 + 2 + 10 + 12 + task);
    for w in &d.waiters {
        let name = screen.owner(w.owner);
        let stage = match w.stage {
            Stage::Admission => "admission",
            Stage::Queued => "queued",
            Stage::Device => "device",
        };
        let row = screen
            .row()
            .column(&format::duration(w.age_ns), 9, Align::Right, style)
            .text("  ", style)
            .column(stage, 10, Align::Left, style)
            .column(w.class.name(), 12, Align::Left, style)
            .column(&name, owner, Align::Path, style);
        let who = match (&w.task, w.waits_for) {
            (Some(t), None) => format!("  {}", screen.task(t)),
            (Some(t), Some(what)) => {
                format!("  {}, waits for {}", screen.task(t), names::waits_for(what))
            }
            (None, _) => String::new(),
        };
        out.push(row.column(&who, task, Align::Left, style).line());
    }
    out
}

/// How many left a stage in the last 10 s, by duration and class. Rows before the first and behind the last are left out.
fn histogram(
    screen: &Screen<'_>,
    d: &DeviceView,
    stage: Stage,
    width: usize,
) -> Vec<Line<'static>> {
    let of = |c: &ClassView| c.stages[stage.index()];
    let title = match stage {
        Stage::Queued => "time in the queue, last 10 s",
        _ => "time in the device, last 10 s",
    };
    let classes: Vec<&ClassView> = d.classes.iter().filter(|c| of(c).count > 0).collect();
    if classes.is_empty() {
        let why = match (stage, d.instead) {
            (Stage::Queued, Some(_)) => "this disk has no queue; see the time in the device",
            _ => "nothing left it",
        };
        return vec![screen.bar(&format!("{title}: {why}"), "", width)];
    }
    let mut out = vec![screen.bar(title, "", width)];
    let each = (width.saturating_sub(NAME) / classes.len()).min(44);
    let style = screen.style(Role::Plain);
    let mut heads = screen
        .row()
        .column("", NAME, Align::Left, screen.style(Role::Title));
    for c in &classes {
        let dist = of(c);
        let time = |ns| format::or_dash(ns, format::duration);
        let forms = [
            format!(
                "{} p50 {} p99 {} max {}",
                c.class.name(),
                time(dist.p50_ns),
                time(dist.p99_ns),
                time(dist.max_ns)
            ),
            format!("{} p99 {}", c.class.name(), time(dist.p99_ns)),
        ];
        let fits = forms.iter().find(|f| text::width(f) < each);
        let head = fits.map_or(c.class.name(), String::as_str);
        heads = heads.column(head, each, Align::Left, screen.style(Role::Title));
    }
    out.push(heads.line());
    let most = classes.iter().flat_map(|c| of(c).rows).max().unwrap_or(0);
    let seen = |row: &usize| classes.iter().any(|c| of(c).rows[*row] > 0);
    let first = (0..ROWS).find(seen).unwrap_or(0);
    let last = (0..ROWS).rev().find(seen).unwrap_or(0);
    for at in first..=last {
        let name = spark::row_name(at);
        let mut row = screen
            .row()
            .column(&name, NAME - 2, Align::Right, screen.style(Role::Dim))
            .text("  ", style);
        for c in &classes {
            let n = of(c).rows[at];
            let count = format::short_count(n);
            let room = each.saturating_sub(10);
            let cells = (u128::from(n) * room as u128)
                .div_ceil(u128::from(most.max(1)))
                .min(room as u128) as usize;
            let glyph = screen.look.theme.parts()[1].to_string();
            let bar = match n {
                0 => String::new(),
                _ => format!("{} {count}", glyph.repeat(cells)),
            };
            row = row.column(&bar, each, Align::Left, style);
        }
        out.push(row.line());
    }
    out
}

/// The last minute as a map: a column for each second, a row for each duration; darker is more. Of the queue where there is one.
pub fn heat(screen: &Screen<'_>, d: &DeviceView, width: usize) -> Vec<Line<'static>> {
    let title = match d.instead {
        Some(_) => "time in the device, last minute",
        None => "time in the queue, last minute",
    };
    let of = |step| rows_of(step, d.instead.is_some());
    let [few, _, _, many] = screen.look.theme.shades();
    let note = format!("{few} 1  {many} 1,000 a second");
    let mut out = vec![screen.bar(title, &note, width)];
    let columns = width.saturating_sub(NAME).min(STEPS);
    let steps = &d.trail[d.trail.len().saturating_sub(columns)..];
    let rows = || steps.iter().flat_map(of).map(|(row, _)| usize::from(*row));
    let (Some(first), Some(last)) = (rows().min(), rows().max()) else {
        let style = screen.style(Role::Plain);
        out.push(screen.row().text("  nothing left it", style).line());
        return out;
    };
    for at in (first..=last.min(ROWS - 1)).rev() {
        let cells: String = steps
            .iter()
            .map(|s| {
                let here = of(s).iter().find(|(row, _)| usize::from(*row) == at);
                here.map_or(' ', |(_, n)| shade(screen, *n))
            })
            .collect();
        let row = screen.row().column(
            &spark::row_name(at),
            NAME - 2,
            Align::Right,
            screen.style(Role::Dim),
        );
        out.push(
            row.text(format!("  {cells}"), screen.style(Role::Plain))
                .line(),
        );
    }
    let ago = format!("{}60 s ago", " ".repeat(NAME));
    let gap = " ".repeat((NAME + columns).saturating_sub(text::width(&ago) + 3));
    let axis = screen
        .row()
        .text(format!("{ago}{gap}now"), screen.style(Role::Dim));
    if columns == STEPS {
        out.push(axis.line());
    }
    out
}

fn rows_of(step: &Step, in_device: bool) -> &[(u8, u64)] {
    if in_device {
        &step.device
    } else {
        &step.queued
    }
}

/// A step for each ten times as many.
fn shade(screen: &Screen<'_>, n: u64) -> char {
    let shades = screen.look.theme.shades();
    match n {
        0 => ' ',
        1..10 => shades[0],
        10..100 => shades[1],
        100..1_000 => shades[2],
        _ => shades[3],
    }
}
