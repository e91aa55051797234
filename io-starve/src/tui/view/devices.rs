//! The table of disks, one line each: where I/O waits now, how long the oldest has, and how that went in the last minute.

use ratatui::text::Line;

use super::{
    Screen,
    part::Part,
    spark,
    text::{Align, window},
};
use crate::{
    model::snapshot::DeviceView,
    output::format,
    tui::{
        app::{Hit, Target},
        theme::Role,
    },
};

/// Columns of each part; 0 where the screen has no room for it.
struct Columns {
    name: usize,
    scheduler: usize,
    bar: usize,
    words: usize,
    spark: usize,
    iops: usize,
    megabytes: usize,
}

/// Columns of an age.
const AGE: usize = 9;

fn columns(width: usize) -> Columns {
    let (name, scheduler, bar, spark, iops, megabytes) = match width {
        112.. => (18, 12, 14, 20, 8, 8),
        79.. => (14, 12, 8, 12, 0, 0),
        60.. => (14, 0, 8, 10, 0, 0),
        _ => (12, 0, 0, 0, 0, 0),
    };
    // A bar and a line have a space on each side.
    let gaps = |n: usize| if n > 0 { 2 } else { 0 };
    let fixed = name + scheduler + bar + gaps(bar) + AGE + spark + gaps(spark) + iops + megabytes;
    Columns {
        name,
        scheduler,
        bar,
        words: width.saturating_sub(fixed),
        spark,
        iops,
        megabytes,
    }
}

/// The table in `room` lines.
pub fn table(screen: &Screen<'_>, width: usize, room: usize, bar: bool) -> Part {
    let columns = columns(width);
    let devices = &screen.snap.devices;
    let mut out = Part::default();
    if bar {
        let legend = match width {
            100.. => format!("{}{}", spark::legend(screen), screen.look.theme.dot()),
            _ => String::new(),
        };
        let note = format!("{legend}s sort: {}", screen.app.device_sort.name());
        out.push(screen.bar(&format!("disks: {}", devices.len()), &note, width));
    }
    out.page = 1;
    if devices.is_empty() {
        let words = match screen.app.filter.is_empty() {
            true => "no disk had I/O yet",
            false => "no disk and none of its cgroups has that in its name",
        };
        let style = screen.style(Role::Dim);
        out.push(screen.row().rest(words, width, Align::Left, style).line());
        out.truncate(room);
        return out;
    }
    out.push(heads(screen, &columns));
    let room = room.saturating_sub(out.len());
    out.page = room.max(1);
    let target = screen.app.target();
    let order = screen.app.device_order();
    let is_selected = |i: &usize| target == Some(Target::Device(devices[*i].dev));
    let at = order.iter().position(is_selected).unwrap_or(0);
    // Nothing is said of disks that are not in sight: a machine may have hundreds.
    let start = window(order.len(), at, at, room);
    let mut body = Part::default();
    for index in order.iter().skip(start).take(room) {
        let hit = Hit::Target(Target::Device(devices[*index].dev));
        body.push_hit(
            [line(screen, &devices[*index], &columns, is_selected(index))],
            &hit,
        );
    }
    let below = order.len().saturating_sub(start + room);
    if below > 0 && room > 2 {
        body.truncate(room - 1);
        let more = format!("  {} more below, Down", below + 1);
        body.push(screen.row().text(more, screen.style(Role::Dim)).line());
    }
    out.append(body);
    out
}

fn heads(screen: &Screen<'_>, c: &Columns) -> Line<'static> {
    let style = screen.style(Role::Title);
    let mut row = screen.row().column("  disk", c.name, Align::Left, style);
    row = row.column("scheduler", c.scheduler, Align::Left, style);
    if c.bar > 0 {
        row = row.column(" where I/O is now", c.bar + 2 + c.words, Align::Left, style);
    } else {
        row = row.column("now", c.words, Align::Left, style);
    }
    row = row.column("oldest", AGE, Align::Right, style);
    if c.spark > 0 {
        row = row.column(" last minute", c.spark + 2, Align::Left, style);
    }
    row.column("IOPS", c.iops, Align::Right, style)
        .column("MB/s", c.megabytes, Align::Right, style)
        .line()
}

fn line(screen: &Screen<'_>, d: &DeviceView, c: &Columns, selected: bool) -> Line<'static> {
    let style = screen.selectable(Role::Plain, selected);
    let mark = if selected { "> " } else { "  " };
    let name = format!("{mark}{}", screen.safe(&d.name));
    let scheduler = format::or_dash(d.scheduler.as_ref(), |s| screen.safe(s));
    let mut row = screen
        .row()
        .column(&name, c.name.saturating_sub(1), Align::Left, style)
        .text(" ", style)
        .column(&scheduler, c.scheduler, Align::Left, style);
    if c.bar > 0 {
        let bar = spark::places(screen, &d.places, c.bar);
        row = row.text(format!(" {bar} "), style);
    }
    row = row
        .column(&words(d, c.words), c.words, Align::Left, style)
        .column(
            &format::or_dash(d.oldest_ns, format::duration),
            AGE,
            Align::Right,
            style,
        );
    if c.spark > 0 {
        let line = spark::waits(screen, &d.trail, c.spark);
        row = row.text(format!(" {line} "), style);
    }
    row.column(
        &number(c.iops, || format::rate(d.iops)),
        c.iops,
        Align::Right,
        style,
    )
    .column(
        &number(c.megabytes, || format::megabytes(d.bytes_per_s)),
        c.megabytes,
        Align::Right,
        style,
    )
    .line()
}

fn number(room: usize, text: impl FnOnce() -> String) -> String {
    if room == 0 { String::new() } else { text() }
}

/// Where I/O is, and on a disk without a queue the times that take the place of the queue's.
fn words(d: &DeviceView, room: usize) -> String {
    let places = spark::in_words(&d.places);
    let Some(p99) = d.instead.and_then(|i| i.p99_ns) else {
        return places;
    };
    let full = format!("{places}; no queue, device p99 {}", format::duration(p99));
    let short = format!("{places}, p99 {}", format::duration(p99));
    [full, short]
        .into_iter()
        .find(|w| super::text::width(w) <= room)
        .unwrap_or(places)
}
