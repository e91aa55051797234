//! Who waited for whom in the last minute.

use ratatui::text::Line;

use super::{
    Screen,
    text::{self, Align},
};
use crate::{output::format, tui::theme::Role};

/// The first rows under a bar; nothing where nobody waited.
pub fn table(screen: &Screen<'_>, width: usize, rows: usize) -> Vec<Line<'static>> {
    let blame = &screen.snap.blame;
    if blame.is_empty() || rows == 0 {
        return Vec::new();
    }
    let mut notes = Vec::new();
    if blame.len() > rows {
        notes.push(format!("{} more", blame.len() - rows));
    }
    if width >= 100 {
        notes.push("waits that overlap are added".to_owned());
    }
    let mut out = vec![screen.bar("who waited for whom, last minute", &notes.join(", "), width)];
    let style = screen.style(Role::Plain);
    let ellipsis = screen.look.theme.ellipsis();
    let mechanism = if width >= 60 { 14 } else { 0 };
    let psi = if width >= 79 { 14 } else { 0 };
    let room = width.saturating_sub(2 + 4 + mechanism + psi + 9);
    let shown = || blame.iter().take(rows).map(|b| b.edge);
    // Victims have one width, so that culprits stand below each other.
    let longest =
        |names: &mut dyn Iterator<Item = String>| names.map(|n| text::width(&n)).max().unwrap_or(0);
    let victims = longest(&mut shown().map(|e| screen.owner(e.victim)));
    let culprits = longest(&mut shown().map(|e| screen.owner(e.culprit)));
    let victims = victims.min((room / 2).max(room.saturating_sub(culprits)));
    for b in blame.iter().take(rows) {
        let culprit = text::cut(
            &screen.owner(b.edge.culprit),
            room.saturating_sub(victims),
            Align::Path,
            ellipsis,
        );
        let row = screen
            .row()
            .text("  ", style)
            .column(&screen.owner(b.edge.victim), victims, Align::Path, style)
            .text(" <- ", style)
            .column(&culprit, room - victims, Align::Left, style);
        let row = match mechanism {
            0 => row,
            n => row
                .text(" ", style)
                .column(b.edge.mechanism.name(), n - 1, Align::Left, style),
        };
        let row = match psi {
            0 => row,
            n => row.column(&pressure(screen, b.edge.victim), n, Align::Left, style),
        };
        out.push(
            row.column(&format::duration(b.ns), 9, Align::Right, style)
                .line(),
        );
    }
    out
}

/// PSI of the one who waits, as its column says.
fn pressure(screen: &Screen<'_>, owner: crate::model::observation::Owner) -> String {
    match screen.snap.pressure_of(owner) {
        Some((some, full)) => format!("psi {some:.0}/{full:.0} %"),
        None => String::new(),
    }
}
