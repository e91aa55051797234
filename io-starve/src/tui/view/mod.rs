//! Draws the state of the screen into the area that a frame has, whatever its size.

mod blame;
mod coverage;
mod details;
mod device;
mod devices;
mod dirty;
mod findings;
mod followed;
mod fsync;
mod header;
mod help;
mod holds;
mod names;
mod shares;
mod text;

use jiff::tz::TimeZone;
use ratatui::{Frame, layout::Rect, style::Style, text::Line, widgets::Paragraph};

use self::text::{Align, Row};
use super::{
    app::{App, Extent, View},
    keys::BINDINGS,
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
    let mut top = header::lines(&screen, width, area.height);
    let footer = screen.footer(width);
    let body = area.height.saturating_sub(1).saturating_sub(lines_of(&top));
    let (lines, extent) = screen.body(width, usize::from(body));
    top.extend(lines);
    put(
        frame,
        Rect {
            height: area.height - 1,
            ..area
        },
        top,
    );
    put(
        frame,
        Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        },
        vec![footer],
    );
    extent
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

fn lines_of(lines: &[Line<'_>]) -> u16 {
    u16::try_from(lines.len()).unwrap_or(u16::MAX)
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

    fn body(&self, width: usize, room: usize) -> (Vec<Line<'static>>, Extent) {
        if self.app.help {
            return self.scrolled(self.bar("keys", "", width), help::lines(self, width), room);
        }
        match self.app.view {
            View::Overview | View::Findings if self.app.details => match self.app.finding() {
                Some(finding) => {
                    let title = format!("finding {}", self.safe(&finding.id));
                    self.scrolled(
                        self.bar(&title, "", width),
                        details::finding(self, finding, width),
                        room,
                    )
                }
                None => self.scrolled(
                    self.bar("finding", "", width),
                    vec![
                        self.row()
                            .text("This finding is no longer kept.", self.style(Role::Plain))
                            .line(),
                    ],
                    room,
                ),
            },
            View::Fsync if self.app.details => {
                let lines = match self.app.fsync() {
                    Some(f) => fsync::in_full(self, f, width),
                    None => {
                        let gone = "This fsync is no longer kept.";
                        vec![self.row().text(gone, self.style(Role::Plain)).line()]
                    }
                };
                self.scrolled(self.bar("fsync", "", width), lines, room)
            }
            View::Overview => self.overview(width, room),
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

    /// A text under its bar, from the line that it is scrolled to.
    fn scrolled(
        &self,
        bar: Line<'static>,
        lines: Vec<Line<'static>>,
        room: usize,
    ) -> (Vec<Line<'static>>, Extent) {
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
        (
            out,
            Extent {
                page: page.max(1),
                max_scroll,
            },
        )
    }

    /// Findings, the selected one in short, who waited for whom, disks.
    fn overview(&self, width: usize, room: usize) -> (Vec<Line<'static>>, Extent) {
        let bars = room >= 12;
        let list_room = (room / 4).max(2);
        let mut out = findings::list(self, width, list_room, bars);
        if room >= 15 {
            let pane_room = if room >= 26 { room / 3 } else { 5 };
            let mut pane = details::selected(self, width);
            if pane.len() > pane_room {
                pane.truncate(pane_room);
            }
            out.extend(pane);
        }
        let blame = if room >= 15 {
            blame::table(self, width, if room >= 26 { 5 } else { 2 })
        } else {
            Vec::new()
        };
        // The least that shows a disk with its classes.
        if room.saturating_sub(out.len() + blame.len()) >= 6 {
            out.extend(blame);
        }
        let left = room.saturating_sub(out.len());
        let (devices, page) = devices::table(self, width, left, bars);
        out.extend(devices);
        (
            out,
            Extent {
                page,
                max_scroll: 0,
            },
        )
    }

    fn footer(&self, width: usize) -> Line<'static> {
        let mut row = self.row();
        for binding in BINDINGS {
            let (Some(hint), Some(key)) = (binding.hint, binding.keys.first()) else {
                continue;
            };
            let key = key.name();
            if row.width() + text::width(&key) + hint.len() + 3 > width {
                break;
            }
            row = row
                .text(format!(" {key}"), self.style(Role::Strong))
                .text(format!(" {hint} "), self.style(Role::Dim));
        }
        row.line()
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
