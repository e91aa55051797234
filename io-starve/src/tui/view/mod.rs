//! Draws the state of the screen into the area that a frame has, whatever its size.

mod blame;
mod coverage;
mod details;
mod device;
mod devices;
mod dirty;
mod findings;
mod followed;
mod footer;
mod fsync;
mod header;
mod help;
mod holds;
mod names;
mod overview;
mod part;
mod shares;
mod spark;
mod text;
mod times;

use jiff::tz::TimeZone;
use ratatui::{Frame, layout::Rect, style::Style, text::Line, widgets::Paragraph};

use self::{
    part::Part,
    text::{Align, Row},
};
use super::{
    app::{App, Extent},
    pages::View,
    theme::{Role, Theme},
};
use crate::model::snapshot::Snapshot;

/// The narrowest screen that is drawn, in columns.
pub const MIN_WIDTH: u16 = 40;
/// The lowest screen that is drawn, in lines.
pub const MIN_HEIGHT: u16 = 10;

/// What does not change while the screen is open.
#[derive(Debug, Clone)]
pub struct Look {
    /// Colours and glyphs.
    pub theme: Theme,
    /// For times of day.
    pub time_zone: TimeZone,
}

/// Draws everything; the answer goes to [`App::fit`].
pub fn draw(frame: &mut Frame<'_>, app: &App, look: &Look) -> Extent {
    let screen = Screen {
        app,
        snap: app.shown(),
        look,
    };
    let area = frame.area();
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        screen.too_small(frame, area);
        return Extent::default();
    }
    let width = usize::from(area.width);
    let mut all = header::part(&screen, width, area.height);
    let room = usize::from(area.height - 1).saturating_sub(all.len());
    let body = screen.body(width, room);
    let (page, max_scroll) = (body.page, body.max_scroll);
    all.append(body);
    let hits = all.hits.into_iter();
    let hits = hits.map(|(at, hit)| (u16::try_from(at).unwrap_or(u16::MAX), hit));
    let extent = Extent {
        page,
        max_scroll,
        hits: hits.filter(|(at, _)| *at < area.height - 1).collect(),
    };
    put(
        frame,
        Rect {
            height: area.height - 1,
            ..area
        },
        all.lines,
    );
    put(
        frame,
        Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        },
        vec![footer::line(&screen, width)],
    );
    extent
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

/// What every part of the screen draws from.
pub(super) struct Screen<'a> {
    app: &'a App,
    snap: &'a Snapshot,
    look: &'a Look,
}

impl Screen<'_> {
    fn style(&self, role: Role) -> Style {
        self.look.theme.style(role)
    }

    /// The style of a line that can be selected.
    fn selectable(&self, role: Role, selected: bool) -> Style {
        let style = self.style(role);
        if selected {
            style
                .remove_modifier(ratatui::style::Modifier::DIM)
                .reversed()
        } else {
            style
        }
    }

    fn row(&self) -> Row {
        Row::new(self.look.theme.ellipsis())
    }

    /// A title with a line through the rest of the width, and a note at its right end.
    fn bar(&self, title: &str, note: &str, width: usize) -> Line<'static> {
        let rule = self.look.theme.rule();
        let note = if note.is_empty() {
            String::new()
        } else {
            format!(" {note} {rule}")
        };
        let row = self.row().text(rule.repeat(2), self.style(Role::Dim)).rest(
            &format!(" {title} "),
            width.saturating_sub(text::width(&note)),
            Align::Left,
            self.style(Role::Title),
        );
        let fill = rule.repeat(width.saturating_sub(row.width() + text::width(&note)));
        row.text(fill + &note, self.style(Role::Dim)).line()
    }

    fn body(&self, width: usize, room: usize) -> Part {
        if self.app.help {
            return self.scrolled(self.bar("keys", "", width), help::lines(self, width), room);
        }
        match self.app.view {
            View::Overview | View::Findings if self.app.details => {
                let Some(finding) = self.app.finding() else {
                    return self.gone("finding", width, room);
                };
                let title = format!("finding {}", self.safe(&finding.id));
                let lines = details::finding(self, finding, width);
                self.scrolled(self.bar(&title, "", width), lines, room)
            }
            View::Fsync if self.app.details => {
                let Some(f) = self.app.fsync() else {
                    return self.gone("fsync", width, room);
                };
                let lines = fsync::in_full(self, f, width);
                self.scrolled(self.bar("fsync", "", width), lines, room)
            }
            View::Device if self.app.details => {
                let Some(d) = self.app.device() else {
                    return self.gone("disk", width, room);
                };
                let title = format!("disk {} in full", self.safe(&d.name));
                self.scrolled(
                    self.bar(&title, "", width),
                    times::lines(self, d, width),
                    room,
                )
            }
            View::Overview => overview::page(self, width, room),
            View::Fsync => fsync::page(self, width, room),
            View::Dirty => self.scrolled(
                self.bar(&dirty::title(self), "", width),
                dirty::lines(self, width),
                room,
            ),
            View::Shares => self.scrolled(
                self.bar(&shares::title(self), "", width),
                shares::lines(self, width),
                room,
            ),
            View::Findings => findings::page(self, width, room),
            View::Device => device::page(self, width, room),
            View::Coverage => self.scrolled(
                self.bar("coverage", "", width),
                coverage::lines(self, width),
                room,
            ),
        }
    }

    /// What was being read and is not in the snapshot.
    fn gone(&self, what: &str, width: usize, room: usize) -> Part {
        let words = format!("This {what} is not kept at this moment.");
        let line = self.row().text(words, self.style(Role::Plain)).line();
        self.scrolled(self.bar(what, "", width), vec![line], room)
    }

    /// A text under its bar, from the line that it is scrolled to.
    fn scrolled(&self, bar: Line<'static>, lines: Vec<Line<'static>>, room: usize) -> Part {
        let page = room.saturating_sub(1);
        let max_scroll = lines.len().saturating_sub(page);
        let scroll = self.app.scroll.min(max_scroll);
        let hidden = lines.len().saturating_sub(scroll + page);
        let mut out = vec![bar];
        out.extend(lines.into_iter().skip(scroll).take(page));
        if hidden > 0 && page > 1 {
            out.pop();
            let more = format!("  {} more lines below, Down", hidden + 1);
            out.push(self.row().text(more, self.style(Role::Dim)).line());
        }
        Part {
            page: page.max(1),
            max_scroll,
            ..Part::of(out)
        }
    }

    /// Says what is needed, in as many words as fit.
    fn too_small(&self, frame: &mut Frame<'_>, area: Rect) {
        let width = usize::from(area.width);
        let (word, role) = header::state(self.snap);
        let needs = format!("io-starve needs {MIN_WIDTH}x{MIN_HEIGHT}");
        let needs = if text::width(&needs) <= width {
            needs
        } else {
            format!("{MIN_WIDTH}x{MIN_HEIGHT}")
        };
        let has = format!("has {}x{}", area.width, area.height);
        let lines = vec![
            self.row()
                .rest(&needs, width, Align::Left, self.style(Role::Plain))
                .line(),
            self.row()
                .rest(word, width, Align::Left, self.style(role))
                .line(),
            self.row()
                .rest(&has, width, Align::Left, self.style(Role::Dim))
                .line(),
        ];
        put(frame, area, lines);
    }
}
