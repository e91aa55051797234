//! The keys, from the table that they act by.

use ratatui::text::Line;

use super::{
    Screen,
    text::{self, Align},
};
use crate::tui::{
    bindings::{Context, bindings},
    pages::PAGES,
    theme::Role,
};

const WORDS: [(&str, &str); 13] = [
    (
        "admit",
        "how many are submitted and kept back by wbt, iocost or for want of a tag",
    ),
    ("queued", "how many are inserted and not yet issued"),
    ("device", "how many are issued and not yet completed"),
    (
        "q p50 p99 max",
        "time from insert to issue; what was never inserted has none",
    ),
    (
        "IOPS",
        "issues a second; MB/s counts completed bytes, 10^6 each",
    ),
    (
        "owner",
        "the cgroup that pays for the I/O, not the task that happens to run",
    ),
    ("passed", "how many later ones overtook it, a lower bound"),
    (
        "io pressure",
        "PSI: per cent of 10 s in which some/all tasks waited for I/O; io psi: those of an owner",
    ),
    ("a <- b", "a waits while b is served, or for b"),
    (
        "last minute",
        "sums by who waited for whom; waits that overlap are added",
    ),
    (
        "~ at a bar",
        "its parts were seen at ticks only, not as they changed",
    ),
    (
        "likely",
        "only circumstances point to it; not every link was seen",
    ),
    ("-", "not known, or there is none; never 0"),
];

/// The page.
pub fn lines(screen: &Screen<'_>, width: usize) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    for page in PAGES {
        pair(
            screen,
            &mut out,
            &page.view.key().to_string(),
            page.help,
            width,
        );
    }
    let at = Context {
        typing: false,
        ..screen.app.context()
    };
    for binding in bindings(at) {
        let keys: Vec<_> = binding.keys.iter().map(|k| k.name()).collect();
        pair(screen, &mut out, &keys.join(" "), binding.help, width);
    }
    pair(
        screen,
        &mut out,
        "mouse",
        "a click selects, a second one opens; tabs too; with Shift the terminal selects text",
        width,
    );
    out.push(Line::default());
    for (word, meaning) in WORDS {
        pair(screen, &mut out, word, meaning, width);
    }
    out
}

fn pair(screen: &Screen<'_>, out: &mut Vec<Line<'static>>, left: &str, right: &str, width: usize) {
    const LEFT: usize = 14;
    for (i, line) in text::wrap(right, width.saturating_sub(LEFT))
        .into_iter()
        .enumerate()
    {
        let left = if i == 0 { left } else { "" };
        let row = screen
            .row()
            .column(left, LEFT, Align::Left, screen.style(Role::Strong));
        out.push(row.text(line, screen.style(Role::Plain)).line());
    }
}
