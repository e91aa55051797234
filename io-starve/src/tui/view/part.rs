//! A part of a page: its lines, what each of them stands for, and how far it goes.

use ratatui::text::Line;

use crate::tui::app::Hit;

/// Lines one below the other.
#[derive(Debug, Default)]
pub struct Part {
    /// The lines.
    pub lines: Vec<Line<'static>>,
    /// What lines stand for, by their index.
    pub hits: Vec<(usize, Hit)>,
    /// Rows of one page.
    pub page: usize,
    /// How far it can be scrolled, in lines.
    pub max_scroll: usize,
}

impl Part {
    /// Lines that stand for nothing.
    pub fn of(lines: Vec<Line<'static>>) -> Part {
        Part {
            lines,
            page: 1,
            ..Part::default()
        }
    }

    /// Lines so far.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Adds a line.
    pub fn push(&mut self, line: Line<'static>) {
        self.lines.push(line);
    }

    /// Adds lines that stand for something.
    pub fn push_hit(&mut self, lines: impl IntoIterator<Item = Line<'static>>, hit: &Hit) {
        for line in lines {
            self.hits.push((self.lines.len(), hit.clone()));
            self.lines.push(line);
        }
    }

    /// Adds lines that stand for nothing.
    pub fn extend(&mut self, lines: impl IntoIterator<Item = Line<'static>>) {
        self.lines.extend(lines);
    }

    /// Adds another part below.
    pub fn append(&mut self, other: Part) {
        let above = self.lines.len();
        let hits = other.hits.into_iter();
        self.hits.extend(hits.map(|(at, hit)| (above + at, hit)));
        self.lines.extend(other.lines);
    }

    /// The lines from `start` on, `room` of them.
    pub fn window(mut self, start: usize, room: usize) -> Part {
        self.lines = self.lines.into_iter().skip(start).take(room).collect();
        let end = start + self.lines.len();
        self.hits.retain(|(at, _)| (start..end).contains(at));
        for (at, _) in &mut self.hits {
            *at -= start;
        }
        self
    }

    /// Cuts off what is below `room` lines.
    pub fn truncate(&mut self, room: usize) {
        self.lines.truncate(room);
        self.hits.retain(|(at, _)| *at < room);
    }
}
