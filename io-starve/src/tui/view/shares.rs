//! Cgroups by disk: what each is entitled to and what it got, as a tree with two bars a line.

use ratatui::text::Line;

use super::{
    Screen,
    text::{self, Align},
};
use crate::{
    model::snapshot::{ShareRow, ShareView},
    output::{
        format,
        text::shares::{rest, title as disk_title},
    },
    tui::theme::Role,
};

/// From this width on names have more room, and figures stand beside the bars.
const WIDE: usize = 64;

/// The page, as a text to scroll.
pub fn lines(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    if screen.snap.shares.is_empty() {
        let words = "device time is counted on disks where BFQ or iocost is active, or a weight is set for somebody who uses them; on none of \
                     them was something in flight in the last 5 s";
        for line in text::wrap(words, width) {
            out.push(screen.row().text(line, screen.style(Role::Plain)).line());
        }
    }
    for view in &screen.snap.shares {
        if !out.is_empty() {
            out.push(Line::default());
        }
        disk(screen, view, width, &mut out);
    }
    out
}

fn disk(screen: &Screen<'_>, view: &ShareView, width: usize, out: &mut Vec<Line<'static>>) {
    let style = screen.style(Role::Title);
    for line in text::wrap(&screen.safe(&disk_title(view)), width) {
        out.push(screen.row().text(line, style).line());
    }
    let (name, bar) = columns(width);
    out.push(
        screen
            .row()
            .column("  cgroup", name + 2, Align::Left, style)
            .column("weight", 7, Align::Right, style)
            .text(" ", style)
            .column("entitled", bar + 5, Align::Left, style)
            .text(" ", style)
            .column("got", bar + 5, Align::Left, style)
            .line(),
    );
    for row in &view.rows {
        out.push(line(screen, row, width));
        if width < WIDE {
            continue;
        }
        let dim = screen.style(Role::Dim);
        for part in text::wrap(&screen.safe(&rest(row).join(", ")), width.saturating_sub(6)) {
            out.push(screen.row().text(format!("      {part}"), dim).line());
        }
    }
}

/// Room for a name, and for a bar.
fn columns(width: usize) -> (usize, usize) {
    let bar = if width >= WIDE { 10 } else { 3 };
    let name = width.saturating_sub(2 + 7 + 2 * (1 + bar + 5));
    (name.min(48), bar)
}

fn line(screen: &Screen<'_>, row: &ShareRow, width: usize) -> Line<'static> {
    let (room, bar) = columns(width);
    let style = screen.style(Role::Plain);
    // The part below the line above it says all, as far as there is one.
    let last = match row.path.rsplit_once('/') {
        Some((_, last)) if row.depth > 0 => last,
        _ => &row.path,
    };
    let name = match row.path.as_str() {
        "/" => "/ (root cgroup)".to_owned(),
        _ => format!("{}{}", "  ".repeat(row.depth.min(6)), screen.safe(last)),
    };
    let short = row.entitled.is_some_and(|e| row.obtained < 0.75 * e);
    let got = screen.style(if short { Role::Strong } else { Role::Plain });
    let share = |s: f64| format!("{:.0} %", s * 100.0);
    screen
        .row()
        .text("  ", style)
        .column(&name, room, Align::Path, style)
        .column(
            &format::or_dash(row.weight, |w| w.to_string()),
            7,
            Align::Right,
            style,
        )
        .text(
            format!(" {}", filled(screen, row.entitled.unwrap_or(0.0), bar)),
            style,
        )
        .column(
            &format::or_dash(row.entitled, share),
            5,
            Align::Right,
            style,
        )
        .text(format!(" {}", filled(screen, row.obtained, bar)), got)
        .column(&share(row.obtained), 5, Align::Right, got)
        .line()
}

fn filled(screen: &Screen<'_>, share: f64, columns: usize) -> String {
    let [_, full, _, empty] = screen.look.theme.parts();
    let cells = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
    let mut out = full.to_string().repeat(cells);
    out += &empty.to_string().repeat(columns.saturating_sub(cells));
    out
}

/// What the bar above the page says.
pub fn title(screen: &Screen<'_>) -> String {
    let short =
        |r: &&ShareRow| r.owner.is_some() && r.entitled.is_some_and(|e| r.obtained < 0.75 * e);
    let rows = screen.snap.shares.iter().flat_map(|v| &v.rows);
    match rows.filter(short).count() {
        0 => "cgroups: shares by weight".to_owned(),
        1 => "cgroups: 1 got less than three quarters of its share".to_owned(),
        n => format!("cgroups: {n} got less than three quarters of their share"),
    }
}
