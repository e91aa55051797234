//! What limits hold now, and fsyncs by owner: below the list of slow ones.

use ratatui::text::Line;

use super::{
    Screen,
    text::{self, Align},
};
use crate::{
    detect::fsync_words,
    model::snapshot::HoldView,
    output::{format, text::journal as words},
    tui::theme::Role,
};

/// What limits hold, below a bar, in at most `most` lines.
pub fn lines(screen: &Screen<'_>, width: usize, most: usize) -> Vec<Line<'static>> {
    let holds = &screen.snap.holds;
    if holds.is_empty() {
        return vec![screen.bar("limits: nothing seen held now", "", width)];
    }
    let note = match holds.len().saturating_sub(most) {
        0 => String::new(),
        n => format!("{n} more"),
    };
    let mut out = vec![screen.bar("limits hold now", &note, width)];
    let indent = if width >= 64 { "  " } else { "" };
    for hold in holds.iter().take(most) {
        let line = held(screen, hold, width.saturating_sub(indent.len()));
        let style = screen.style(Role::Plain);
        let row = screen.row().text(indent, style);
        out.push(row.rest(&line, width, Align::Left, style).line());
    }
    out
}

/// A hold in a sentence; what is set is left out where it does not fit, since half a number is a wrong one.
fn held(screen: &Screen<'_>, hold: &HoldView, room: usize) -> String {
    const NAMES: [usize; 8] = [usize::MAX, 48, 40, 32, 24, 16, 12, 8];
    let ellipsis = screen.look.theme.ellipsis();
    let device = screen.safe(&hold.device);
    let device = text::cut(&device, (room / 4).min(16), Align::Left, ellipsis);
    let form = |most: usize| {
        let name = |owner| text::cut(&screen.owner(owner), most, Align::Path, ellipsis);
        words::held(hold, &device, &name)
    };
    let limits = format!(", {}", fsync_words::limits(&hold.limits));
    let bite = format!(
        "{limits}, {}",
        fsync_words::bite(hold.used, hold.held_share)
    );
    // Who holds says more than what is set: names are not cut to pieces for that.
    let ends = [
        (bite.as_str(), &NAMES[..1]),
        (limits.as_str(), &NAMES[..7]),
        ("", &NAMES[..]),
    ];
    for (end, names) in ends {
        let free = room.saturating_sub(text::width(end));
        let mut forms = names.iter().map(|most| form(*most));
        if let Some(words) = forms.find(|w| text::width(w) <= free) {
            return words + end;
        }
    }
    format!("held on {device}: {}", words::held_amount(hold))
}

/// fsyncs by owner, below a bar; nothing where there were none.
pub fn syncers(screen: &Screen<'_>, width: usize, room: usize) -> Vec<Line<'static>> {
    let syncers = &screen.snap.syncers;
    if syncers.is_empty() {
        return Vec::new();
    }
    let rows = room.saturating_sub(2);
    let note = match syncers.len().saturating_sub(rows) {
        0 => String::new(),
        n => format!("{n} more"),
    };
    let mut out = vec![screen.bar("fsyncs by owner since attach", &note, width)];
    let place = if width >= 64 { width / 4 } else { 0 };
    let owner = width.saturating_sub(2 + place + 9 + 9);
    let style = screen.style(Role::Title);
    let mut head = screen
        .row()
        .column("  owner", owner + 2, Align::Left, style);
    if place > 0 {
        head = head.column("  filesystem", place, Align::Left, style);
    }
    out.push(
        head.column("fsyncs", 9, Align::Right, style)
            .column("mean", 9, Align::Right, style)
            .line(),
    );
    let style = screen.style(Role::Plain);
    for s in syncers.iter().take(rows) {
        let name = screen.owner(s.owner);
        let mut row = screen
            .row()
            .text("  ", style)
            .column(&name, owner, Align::Path, style);
        if place > 0 {
            let filesystem = screen.safe(&s.filesystem);
            row = row
                .text("  ", style)
                .column(&filesystem, place - 2, Align::Path, style);
        }
        out.push(
            row.column(&format::short_count(s.count), 9, Align::Right, style)
                .column(&format::duration(s.mean_ns), 9, Align::Right, style)
                .line(),
        );
    }
    out.truncate(room);
    out
}
