//! Small pictures of figures: where I/O waits as a bar, the longest wait of each second as a line.

use super::Screen;
use crate::model::{
    snapshot::Places,
    trail::{self, Step},
};

/// Waits from which on a step is drawn higher, in ns: fixed, so that a picture does not change its meaning while it is looked at.
const LEVELS: [u64; 8] = [
    0,
    5_000_000,
    20_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    20_000_000_000,
];

/// The longest wait of each second, the latest at the right end, in `room` columns: where there are more seconds than columns,
/// a column has the longest of several.
pub fn waits(screen: &Screen<'_>, trail: &[Step], room: usize) -> String {
    let glyphs = screen.look.theme.levels();
    let Some(each) = trail.len().checked_div(room).map(|n| n.max(1)) else {
        return String::new();
    };
    let columns = trail.rchunks(each).take(room).map(|steps| {
        match steps.iter().filter_map(|s| s.oldest_ns).max() {
            None => ' ',
            Some(ns) => glyphs[LEVELS.iter().rposition(|least| ns >= *least).unwrap_or(0)],
        }
    });
    let mut columns: Vec<char> = columns.collect();
    columns.resize(room, ' ');
    columns.into_iter().rev().collect()
}

/// Where I/O is, in proportion, in `room` columns; what is there at all has a column. Blank where nothing is.
pub fn places(screen: &Screen<'_>, places: &Places, room: usize) -> String {
    let glyphs = screen.look.theme.places();
    let counts = places.all().map(|(_, n)| n.unwrap_or(0));
    let total: u128 = counts.iter().map(|n| u128::from(*n)).sum();
    if total == 0 {
        return " ".repeat(room);
    }
    let mut cells = counts.map(|n| {
        let part = u128::from(n) * room as u128 / total;
        usize::try_from(part).unwrap_or(0).max(usize::from(n > 0))
    });
    // The longest part takes what is left over, or gives what the others need.
    let sum: usize = cells.iter().sum();
    if let Some(longest) = cells.iter_mut().max_by_key(|n| **n) {
        *longest = (*longest + room).saturating_sub(sum);
    }
    let bar = glyphs.iter().zip(cells);
    bar.flat_map(|(glyph, n)| std::iter::repeat_n(*glyph, n))
        .take(room)
        .collect()
}

/// What each part of the bar is made of.
pub fn legend(screen: &Screen<'_>) -> String {
    let glyphs = screen.look.theme.places();
    let names = Places::default().all();
    let parts: Vec<String> = glyphs
        .iter()
        .zip(names)
        .map(|(glyph, (name, _))| format!("{glyph} {name}"))
        .collect();
    parts.join(" ")
}

/// How many at each place, in words.
pub fn in_words(places: &Places) -> String {
    let there: Vec<String> = places
        .all()
        .into_iter()
        .filter_map(|(name, n)| {
            let n = n.filter(|n| *n > 0)?;
            Some(format!("{} {name}", crate::output::format::short_count(n)))
        })
        .collect();
    match there.is_empty() {
        true => "nothing waits".to_owned(),
        false => there.join(", "),
    }
}

/// The beginning of a coarse row in a few characters: `16us`, `1ms`, `17s`; `<16us` for the first.
pub fn row_name(row: usize) -> String {
    let ns = trail::row_begins_ns(row);
    match ns {
        0 => format!("<{}", row_name(1)),
        1..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}
