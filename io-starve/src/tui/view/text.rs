//! Text in columns: cutting, padding and wrapping by display width. Everything here takes text that is already
//! printable and gives text of the width asked for.

use ratatui::{
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthChar;

/// Which side of a column text stands on, and which end is cut when it does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left; the end is cut.
    Left,
    /// Left; the beginning is cut, as the last part of a path tells most.
    Path,
    /// Right; the end is cut.
    Right,
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

fn head(text: &str, room: usize) -> (&str, usize) {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        let w = c.width().unwrap_or(0);
        if used + w > room {
            return (&text[..at], used);
        }
        used += w;
    }
    (text, used)
}

fn tail(text: &str, room: usize) -> (&str, usize) {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        let w = c.width().unwrap_or(0);
        if used + w > room {
            return (&text[at + c.len_utf8()..], used);
        }
        used += w;
    }
    (text, used)
}

/// The text, cut where it is wider than `room`, with `ellipsis` (one column) in the place of what was cut.
pub fn cut(text: &str, room: usize, align: Align, ellipsis: &str) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    match room {
        0 => String::new(),
        1 => ellipsis.to_owned(),
        _ if align == Align::Path => format!("{ellipsis}{}", tail(text, room - 1).0),
        _ => format!("{}{ellipsis}", head(text, room - 1).0),
    }
}

/// The text cut and padded to exactly `room` columns.
pub fn pad(text: &str, room: usize, align: Align, ellipsis: &str) -> String {
    let text = cut(text, room, align, ellipsis);
    let blank = " ".repeat(room.saturating_sub(width(&text)));
    match align {
        Align::Left | Align::Path => text + &blank,
        Align::Right => blank + &text,
    }
}

/// The text in lines of at most `room` columns, broken at spaces, or within a word that is wider than a line.
pub fn wrap(text: &str, room: usize) -> Vec<String> {
    if room == 0 {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    for mut word in text.split_whitespace() {
        let used = width(&line);
        if used > 0 && used + 1 + width(word) <= room {
            line.push(' ');
            line.push_str(word);
            continue;
        }
        if used > 0 {
            lines.push(std::mem::take(&mut line));
        }
        while width(word) > room {
            let (mut first, _) = head(word, room);
            if first.is_empty() {
                // One character wider than the line: it goes alone, and the screen cuts it.
                first = &word[..word.chars().next().map_or(0, char::len_utf8)];
            }
            lines.push(first.to_owned());
            word = &word[first.len()..];
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Part of `len` lines that shows the lines from `first` to `last` in `room`: where it begins.
pub fn window(len: usize, first: usize, last: usize, room: usize) -> usize {
    let middle = first + last.saturating_sub(first) / 2;
    let lowest = (last + 1).saturating_sub(room);
    // `first` comes last: the beginning of what is selected is on screen even when not all of it fits.
    middle
        .saturating_sub(room / 2)
        .max(lowest)
        .min(first)
        .min(len.saturating_sub(room))
}

/// A line under construction, in columns.
#[derive(Debug)]
pub struct Row {
    spans: Vec<Span<'static>>,
    ellipsis: &'static str,
}

impl Row {
    /// An empty line.
    pub fn new(ellipsis: &'static str) -> Row {
        Row {
            spans: Vec::new(),
            ellipsis,
        }
    }

    /// Adds a column of exactly `room`.
    pub fn column(mut self, text: &str, room: usize, align: Align, style: Style) -> Row {
        self.spans
            .push(Span::styled(pad(text, room, align, self.ellipsis), style));
        self
    }

    /// Adds text as wide as it is.
    pub fn text(mut self, text: impl Into<String>, style: Style) -> Row {
        self.spans.push(Span::styled(text.into(), style));
        self
    }

    /// Adds text as wide as it is, cut so that the line has at most `total` columns.
    pub fn rest(self, text: &str, total: usize, align: Align, style: Style) -> Row {
        let room = total.saturating_sub(self.width());
        let text = cut(text, room, align, self.ellipsis);
        self.text(text, style)
    }

    /// Columns so far.
    pub fn width(&self) -> usize {
        self.spans.iter().map(|s| width(&s.content)).sum()
    }

    /// The line.
    pub fn line(self) -> Line<'static> {
        Line::from(self.spans)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_cut_at_the_end_that_tells_less() {
        assert_eq!(pad("/a/backup.service", 8, Align::Path, "…"), "…service");
        assert_eq!(pad("mq-deadline", 8, Align::Left, "…"), "mq-dead…");
        assert_eq!(pad("17.0 s", 8, Align::Right, "…"), "  17.0 s");
        assert_eq!(pad("备份备份", 5, Align::Left, "…"), "备份…");
        assert_eq!(pad("备份备份", 4, Align::Path, "…"), "…份 ");
    }

    #[test]
    fn lines_break_at_spaces_or_inside_a_long_word() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("备", 1), ["备"]);
        assert!(wrap("word", 0).is_empty());
    }

    #[test]
    fn what_is_selected_is_in_the_window() {
        assert_eq!(window(5, 4, 4, 10), 0);
        assert_eq!(window(100, 0, 3, 10), 0);
        assert_eq!(window(100, 99, 99, 10), 90);
        assert_eq!(window(100, 50, 80, 10), 50);
    }

    proptest! {
        #[test]
        fn padded_text_has_its_width(text in "\\PC*", room in 0usize..40) {
            for align in [Align::Left, Align::Path, Align::Right] {
                prop_assert_eq!(width(&pad(&text, room, align, "~")), room);
            }
        }

        #[test]
        fn wrapping_loses_nothing(text in "[a-z ]{0,80}", room in 1usize..20) {
            let lines = wrap(&text, room);
            prop_assert!(lines.iter().all(|l| width(l) <= room && !l.is_empty()));
            let all = |s: &str| s.split_whitespace().collect::<String>();
            prop_assert_eq!(all(&lines.join(" ")), all(&text));
        }

        #[test]
        fn windows_hold_the_selected_line(len in 1usize..300, at in 0usize..300, more in 0usize..8, room in 1usize..60) {
            let first = at.min(len - 1);
            let last = (first + more).min(len - 1);
            let start = window(len, first, last, room);
            prop_assert!(start <= first && first < start + room);
            prop_assert!(last < start + room || last - first >= room);
            prop_assert!(start + room <= len || start == 0);
        }
    }
}
