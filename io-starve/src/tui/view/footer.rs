//! The last line: keys that exist here, a word to the user, the filter while it is typed, and what watching costs.

use ratatui::text::Line;

use super::{
    Screen,
    text::{self, Align, Row},
};
use crate::tui::{bindings::bindings, theme::Role};

/// The line.
pub fn line(screen: &Screen<'_>, width: usize) -> Line<'static> {
    let app = screen.app;
    if app.typing {
        return typed(screen, width).line();
    }
    if let Some(note) = &app.note {
        let note = format!("  {}", screen.safe(note));
        // The way out is always named.
        let row = hints(screen, screen.row(), " q quit ".len());
        return row
            .rest(&note, width, Align::Left, screen.style(Role::Strong))
            .line();
    }
    let cost = cost(screen);
    let row = hints(
        screen,
        screen.row(),
        width.saturating_sub(text::width(&cost)),
    );
    let gap = width.saturating_sub(row.width() + text::width(&cost));
    row.text(" ".repeat(gap), screen.style(Role::Plain))
        .text(cost, screen.style(Role::Dim))
        .line()
}

/// CPU time of this program, where it is known; of a recording it is that of the recorder.
fn cost(screen: &Screen<'_>) -> String {
    match screen.snap.own_cpu {
        Some(share) => format!(" own CPU {:.1} % ", share * 100.0),
        None => String::new(),
    }
}

fn hints(screen: &Screen<'_>, mut row: Row, width: usize) -> Row {
    for binding in bindings(screen.app.context()) {
        let (Some(hint), Some(key)) = (binding.hint, binding.keys.first()) else {
            continue;
        };
        let key = key.name();
        if row.width() + text::width(&key) + hint.len() + 3 > width {
            break;
        }
        row = row
            .text(format!(" {key}"), screen.style(Role::Strong))
            .text(format!(" {hint} "), screen.style(Role::Dim));
    }
    row
}

fn typed(screen: &Screen<'_>, width: usize) -> Row {
    const HINTS: usize = 24;
    let filter = screen.safe(&screen.app.filter);
    let room = width.saturating_sub(HINTS);
    let text = text::cut(
        &format!(" filter: {filter}_"),
        room,
        Align::Path,
        screen.look.theme.ellipsis(),
    );
    let row = screen.row().text(text, screen.style(Role::Strong));
    hints(screen, row.text(" ", screen.style(Role::Plain)), width)
}
