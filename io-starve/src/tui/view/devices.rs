//! The table of disks: one line each, and one for each class below it.

use ratatui::text::Line;

use super::{
    Screen,
    text::{Align, Row, window},
};
use crate::{
    model::{
        observation::Stage,
        snapshot::{ClassView, DeviceView, WaiterView},
    },
    output::format,
    tui::{app::Target, theme::Role},
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Iops,
    Megabytes,
    Waiting(Stage),
    P50,
    P99,
    Max,
    Oldest,
    Owner,
}

impl Column {
    fn head(self) -> (&'static str, usize, Align) {
        match self {
            Column::Iops => ("IOPS", 7, Align::Right),
            Column::Megabytes => ("MB/s", 7, Align::Right),
            Column::Waiting(Stage::Admission) => ("admit", 7, Align::Right),
            Column::Waiting(Stage::Queued) => ("queued", 7, Align::Right),
            Column::Waiting(Stage::Device) => ("device", 7, Align::Right),
            Column::P50 => ("q p50", 8, Align::Right),
            Column::P99 => ("q p99", 8, Align::Right),
            Column::Max => ("q max", 8, Align::Right),
            Column::Oldest => ("oldest", 8, Align::Right),
            Column::Owner => ("whose", 0, Align::Path),
        }
    }

    /// What stands above a group of columns.
    const fn group(self) -> &'static str {
        match self {
            Column::Iops | Column::Megabytes => "a second",
            Column::Waiting(_) => "in flight now",
            Column::P50 | Column::P99 | Column::Max => "time in queue",
            Column::Oldest | Column::Owner => "waiting longest now",
        }
    }
}

struct Columns {
    name: usize,
    columns: Vec<(Column, usize, Align)>,
}

/// The columns that this width has room for. The queue's times go before the longest present wait: a group that is
/// issued nothing has no times, only waiters.
fn columns(width: usize) -> Columns {
    use Column::*;
    let waiting = Stage::ALL.map(Waiting);
    let (least, chosen): (usize, Vec<Column>) = match width {
        112.. => (
            22,
            [Iops, Megabytes]
                .into_iter()
                .chain(waiting)
                .chain([P50, P99, Max, Oldest, Owner])
                .collect(),
        ),
        79.. => (
            20,
            [Iops, Megabytes]
                .into_iter()
                .chain(waiting)
                .chain([P50, P99, Max])
                .collect(),
        ),
        60.. => (20, vec![Iops, Waiting(Stage::Queued), P50, P99, Max]),
        _ => (14, vec![Iops, Waiting(Stage::Queued), Oldest]),
    };
    let fixed: usize = chosen.iter().map(|c| c.head().1).sum();
    let spare = width.saturating_sub(fixed + least);
    let has_owner = chosen.contains(&Owner);
    // Names take a part of what is left over, an owner's path the rest of it.
    let name = least
        + if has_owner {
            (spare / 4).min(12)
        } else {
            spare.min(20)
        };
    let columns = chosen
        .into_iter()
        .map(|c| {
            let (_, room, align) = c.head();
            (
                c,
                if c == Owner {
                    width.saturating_sub(fixed + name)
                } else {
                    room
                },
                align,
            )
        })
        .collect();
    Columns { name, columns }
}

/// The table in `room` lines, and how many disks a page has.
pub fn table(
    screen: &Screen<'_>,
    width: usize,
    room: usize,
    bar: bool,
) -> (Vec<Line<'static>>, usize) {
    let columns = columns(width);
    let mut out = Vec::new();
    if bar {
        let title = format!("disks: {}", screen.snap.devices.len());
        out.push(screen.bar(
            &title,
            &format!("s sort: {}", screen.app.device_sort.name()),
            width,
        ));
    }
    if screen.snap.devices.is_empty() {
        out.push(
            screen
                .row()
                .rest(
                    "no disk had I/O yet",
                    width,
                    Align::Left,
                    screen.style(Role::Dim),
                )
                .line(),
        );
        out.truncate(room);
        return (out, 1);
    }
    if room >= 8 {
        out.push(groups(screen, &columns));
    }
    out.push(heads(screen, &columns));
    let room = room.saturating_sub(out.len());
    let target = screen.app.target();
    let mut body = Vec::new();
    let mut shown = (0, 0);
    let order = screen.app.device_order();
    for index in &order {
        let device = &screen.snap.devices[*index];
        let selected = target == Some(Target::Device(device.dev));
        let first = body.len();
        body.extend(block(screen, device, &columns, width, selected));
        if selected {
            shown = (first, body.len() - 1);
        }
    }
    let each = (body.len() / order.len().max(1)).max(1);
    let start = window(body.len(), shown.0, shown.1, room);
    let below = body.len().saturating_sub(start + room);
    out.extend(body.into_iter().skip(start).take(room));
    if below > 0 && room > 4 {
        out.pop();
        let more = format!("  {} more lines below, Down", below + 1);
        out.push(screen.row().text(more, screen.style(Role::Dim)).line());
    }
    (out, (room / each).max(1))
}

fn heads(screen: &Screen<'_>, columns: &Columns) -> Line<'static> {
    let style = screen.style(Role::Title);
    let mut row = screen
        .row()
        .column("  disk, class", columns.name, Align::Left, style);
    for (column, room, align) in &columns.columns {
        row = match column {
            Column::Owner => row.text("  ", style).column(
                column.head().0,
                room.saturating_sub(2),
                Align::Left,
                style,
            ),
            _ => row.column(column.head().0, *room, *align, style),
        };
    }
    row.line()
}

fn groups(screen: &Screen<'_>, columns: &Columns) -> Line<'static> {
    let style = screen.style(Role::Dim);
    let mut row = screen.row().column("", columns.name, Align::Left, style);
    let mut rest = columns.columns.as_slice();
    while let Some((first, ..)) = rest.first() {
        let same = rest
            .iter()
            .take_while(|(c, ..)| c.group() == first.group())
            .count();
        let room = rest[..same].iter().map(|(_, room, _)| room).sum();
        row = if *first == Column::Oldest {
            row.text("  ", style).column(
                first.group(),
                usize::saturating_sub(room, 2),
                Align::Left,
                style,
            )
        } else {
            row.column(first.group(), room, Align::Right, style)
        };
        rest = &rest[same..];
    }
    row.line()
}

/// A disk, its classes, and in words who waits longest.
fn block(
    screen: &Screen<'_>,
    device: &DeviceView,
    columns: &Columns,
    width: usize,
    selected: bool,
) -> Vec<Line<'static>> {
    let mut name = screen.safe(&device.name);
    name += &format!(
        "  {}",
        format::or_dash(device.scheduler.as_ref(), |s| screen.safe(s))
    );
    let marker = if selected { "> " } else { "  " };
    let style = screen.selectable(Role::Strong, selected);
    let row = screen
        .row()
        .column(&format!("{marker}{name}"), columns.name, Align::Left, style);
    let figures = Figures {
        iops: device.iops,
        bytes_per_s: device.bytes_per_s,
        waiting: device.waiting,
        class: None,
        oldest: device.oldest.as_ref(),
    };
    let mut out = vec![figures.line(screen, row, columns, style)];
    let style = screen.style(Role::Plain);
    for class in &device.classes {
        let row = screen.row().column(
            &format!("    {}", class.class.name()),
            columns.name,
            Align::Left,
            style,
        );
        let figures = Figures {
            iops: class.iops,
            bytes_per_s: class.bytes_per_s,
            waiting: class.waiting,
            class: Some(class),
            oldest: class.oldest.as_ref(),
        };
        out.push(figures.line(screen, row, columns, style));
    }
    if let Some(oldest) = device.oldest.as_ref().filter(|_| width >= 60) {
        let row = screen.row().text("    oldest: ", screen.style(Role::Dim));
        out.push(
            row.rest(&screen.waiter(oldest, width / 3), width, Align::Left, style)
                .line(),
        );
    }
    out
}

struct Figures<'a> {
    iops: f64,
    bytes_per_s: f64,
    waiting: [u64; 3],
    /// Times are told by class only: those of a disk would mix reads that somebody waits for with writeback.
    class: Option<&'a ClassView>,
    oldest: Option<&'a WaiterView>,
}

impl Figures<'_> {
    fn line(
        &self,
        screen: &Screen<'_>,
        mut row: Row,
        columns: &Columns,
        style: ratatui::style::Style,
    ) -> Line<'static> {
        let queued = self.class.map(|c| c.stages[Stage::Queued.index()]);
        let time = |ns: Option<u64>| match self.class {
            Some(_) => format::or_dash(ns, format::duration),
            None => String::new(),
        };
        for (column, room, align) in &columns.columns {
            let text = match column {
                Column::Iops => format::rate(self.iops),
                Column::Megabytes => format::megabytes(self.bytes_per_s),
                Column::Waiting(stage) => format::short_count(self.waiting[stage.index()]),
                Column::P50 => time(queued.and_then(|d| d.p50_ns)),
                Column::P99 => time(queued.and_then(|d| d.p99_ns)),
                Column::Max => time(queued.and_then(|d| d.max_ns)),
                Column::Oldest => format::or_dash(self.oldest.map(|w| w.age_ns), format::duration),
                Column::Owner => {
                    let oldest = self.oldest.filter(|_| self.class.is_some());
                    let room = room.saturating_sub(2);
                    let text = oldest.map_or_else(String::new, |w| screen.owner(w.owner));
                    row = row.text("  ", style).column(&text, room, *align, style);
                    continue;
                }
            };
            row = row.column(&text, *room, *align, style);
        }
        row.line()
    }
}
