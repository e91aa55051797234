//! One disk: the stages of each class, what it is set to, and its owners.

use io_starve_common::class::Class;
use ratatui::text::Line;

use super::{
    Screen, details,
    part::Part,
    text::{Align, width as text_width, window},
    times,
};
use crate::{
    detect::fsync_words,
    model::{
        observation::{Owner, Stage},
        snapshot::{DeviceView, Dist, HoldView, OwnerView},
    },
    output::{format, text::journal as words},
    tui::{app::Hit, theme::Role},
};

/// The page.
pub fn page(screen: &Screen<'_>, width: usize, room: usize) -> Part {
    let Some(device) = screen.app.device() else {
        let out = vec![
            screen.bar("disk", "", width),
            screen
                .row()
                .rest(
                    "no disk had I/O yet",
                    width,
                    Align::Left,
                    screen.style(Role::Dim),
                )
                .line(),
        ];
        return Part::of(out);
    };
    let order = screen.app.device_order();
    let at = order
        .iter()
        .position(|i| screen.snap.devices[*i].dev == device.dev)
        .unwrap_or(0)
        + 1;
    let title = format!("disk {} ({})", screen.safe(&device.name), device.dev);
    let note = format!("{at} of {}, [ ]", order.len());
    let mut out = Part::of(vec![screen.bar(&title, &note, width)]);
    if room >= 14 {
        let mut about = details::device(screen, device, width);
        about.truncate(if room >= 24 { 4 } else { 2 });
        out.extend(about);
    }
    if room >= 12 {
        out.extend(stages(screen, device, width, room / 3));
    }
    if room >= 30 && width >= 79 {
        out.extend(times::heat(screen, device, width));
    }
    if room >= 20 {
        let waiters = times::waiters(screen, device, width);
        out.extend(waiters.into_iter().take(1 + room / 8));
    }
    let owners = screen.app.owner_order(device);
    let title = format!("owners: {}", owners.len());
    let note = format!("Enter: times, s sort: {}", screen.app.owner_sort.name());
    out.push(screen.bar(&title, &note, width));
    let left = room.saturating_sub(out.len());
    let table = table(screen, device, &owners, width, left);
    out.page = table.page;
    out.append(table);
    out
}

/// Times of every stage by class; a stage that nothing left in the window has none.
pub fn stages(
    screen: &Screen<'_>,
    device: &DeviceView,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let title = screen.style(Role::Title);
    let plain = screen.style(Role::Plain);
    // A narrow screen shows the one stage in which a scheduler starves.
    let (stages, with_p99): (&[Stage], bool) = match width {
        96.. => (&Stage::ALL, true),
        68.. => (&Stage::ALL, false),
        _ => (&[Stage::Queued], false),
    };
    let (heads, each): (&str, usize) = if with_p99 {
        ("p50 p99 max", 8)
    } else {
        ("p50 max", 9)
    };
    let block = if with_p99 { 3 * each + 2 } else { 2 * each };
    let name = (width - block * stages.len()).min(22);
    let mut head = screen.row().column("class", name, Align::Left, title);
    for stage in stages {
        head = head.column(
            &format!("{} {heads}", stage.name()),
            block,
            Align::Right,
            title,
        );
    }
    let mut out = vec![head.line()];
    for class in &device.classes {
        let mut row = screen
            .row()
            .column(class.class.name(), name, Align::Left, plain);
        for stage in stages {
            let Dist {
                count: _,
                p50_ns,
                p99_ns,
                max_ns,
                rows: _,
            } = class.stages[stage.index()];
            let times = if with_p99 {
                vec![p50_ns, p99_ns, max_ns]
            } else {
                vec![p50_ns, max_ns]
            };
            row = row.column("", block - each * times.len(), Align::Left, plain);
            for time in times {
                row = row.column(
                    &format::or_dash(time, format::duration),
                    each,
                    Align::Right,
                    plain,
                );
            }
        }
        out.push(row.line());
    }
    out.truncate(room.max(2));
    out
}

/// A column of the owners' table.
struct Column {
    head: &'static str,
    room: usize,
    /// The narrowest screen that shows it.
    from: usize,
    figure: fn(&OwnerView) -> String,
}

fn waiting(owner: &OwnerView, stage: Stage) -> String {
    format::short_count(owner.waiting[stage.index()])
}

fn mean(owner: &OwnerView, stage: Stage) -> String {
    format::or_dash(owner.mean_ns[stage.index()], format::duration)
}

const COLUMNS: [Column; 10] = [
    Column {
        head: "IOPS",
        room: 7,
        from: 60,
        figure: |o| format::rate(o.iops),
    },
    Column {
        head: "MB/s",
        room: 7,
        from: 79,
        figure: |o| format::megabytes(o.bytes_per_s),
    },
    Column {
        head: "admit",
        room: 7,
        from: 112,
        figure: |o| waiting(o, Stage::Admission),
    },
    Column {
        head: "queued",
        room: 7,
        from: 0,
        figure: |o| waiting(o, Stage::Queued),
    },
    Column {
        head: "device",
        room: 7,
        from: 112,
        figure: |o| waiting(o, Stage::Device),
    },
    Column {
        head: "mean admit",
        room: 11,
        from: 112,
        figure: |o| mean(o, Stage::Admission),
    },
    Column {
        head: "mean queue",
        room: 11,
        from: 79,
        figure: |o| mean(o, Stage::Queued),
    },
    Column {
        head: "mean dev",
        room: 9,
        from: 79,
        figure: |o| mean(o, Stage::Device),
    },
    Column {
        head: "oldest",
        room: 8,
        from: 0,
        figure: |o| format::or_dash(o.oldest_ns, format::duration),
    },
    Column {
        head: "io psi",
        room: 8,
        from: 112,
        figure: psi,
    },
];

fn psi(owner: &OwnerView) -> String {
    format::or_dash(owner.pressure, |(some, full)| {
        format!("{some:.0}/{full:.0}")
    })
}

/// What a limit holds of an owner, below its first line of that direction: 'held by its io.max: 12 writes for 3.2 s'.
fn held(screen: &Screen<'_>, hold: &HoldView, owner: Owner, width: usize) -> Line<'static> {
    let style = screen.style(Role::Warning);
    let file = words::limit_file(screen.snap);
    let name = |owner| screen.owner(owner);
    let whose = words::whose(hold.group, Some(owner), file, &name);
    let amount = words::held_amount(hold);
    let limits = fsync_words::limits(&hold.limits);
    // Numbers are whole or not there.
    let forms = [
        format!("held by {whose}: {amount}, {limits}"),
        format!("held by {whose}: {amount}"),
        format!("held by a limit: {amount}"),
    ];
    let room = width.saturating_sub(4);
    let fits = forms.iter().find(|f| text_width(f) <= room);
    screen
        .row()
        .text("    ", style)
        .rest(fits.unwrap_or(&forms[2]), width, Align::Left, style)
        .line()
}

/// The hold of each owner's line; each is told once.
fn holds<'a>(
    screen: &Screen<'a>,
    device: &DeviceView,
    owners: &[&OwnerView],
) -> Vec<(usize, &'a HoldView)> {
    let here = screen.snap.holds.iter().filter(|h| h.device == device.name);
    here.filter_map(|h| {
        let same = |o: &&&OwnerView| h.write != (o.class == Class::SyncRead);
        let of = |whose: Owner| {
            let lines = owners.iter().enumerate();
            lines.clone().find(|(_, o)| o.owner == whose && same(o))
        };
        let (at, _) = of(h.owner).or_else(|| of(h.group))?;
        Some((at, h))
    })
    .collect()
}

fn table(
    screen: &Screen<'_>,
    device: &DeviceView,
    owners: &[&OwnerView],
    width: usize,
    room: usize,
) -> Part {
    let columns: Vec<_> = COLUMNS.iter().filter(|c| width >= c.from).collect();
    let fixed: usize = columns.iter().map(|c| c.room).sum();
    let class = if width >= 79 { 12 } else { 0 };
    let name = width.saturating_sub(fixed + class);
    let style = screen.style(Role::Title);
    let mut head = screen.row().column("  owner", name, Align::Left, style);
    if class > 0 {
        head = head.column(" class", class, Align::Left, style);
    }
    for column in &columns {
        head = head.column(column.head, column.room, Align::Right, style);
    }
    let mut out = Part::of(vec![head.line()]);
    let rows = room.saturating_sub(1);
    let chosen = screen.app.owner_index(owners);
    let holds = holds(screen, device, owners);
    let mut body = Part::default();
    let mut shown = (0, 0);
    for (i, owner) in owners.iter().enumerate() {
        let selected = i == chosen;
        let style = screen.selectable(Role::Plain, selected);
        let mark = if selected { "> " } else { "  " };
        let mut row = screen.row().text(mark, style);
        let label = screen.owner(owner.owner);
        let label = if class > 0 {
            label
        } else {
            format!("{label} {}", owner.class.name())
        };
        row = row.column(&label, name.saturating_sub(2), Align::Path, style);
        if class > 0 {
            row = row
                .text(" ", style)
                .column(owner.class.name(), class - 1, Align::Left, style);
        }
        for column in &columns {
            row = row.column(&(column.figure)(owner), column.room, Align::Right, style);
        }
        let first = body.len();
        body.push_hit([row.line()], &Hit::Owner(owner.owner, owner.class));
        let held_here = holds.iter().filter(|(at, _)| *at == i);
        body.extend(held_here.map(|(_, h)| held(screen, h, owner.owner, width)));
        if selected {
            shown = (first, body.len() - 1);
        }
    }
    let start = window(body.len(), shown.0, shown.1, rows);
    out.append(body.window(start, rows));
    out.page = rows.max(1);
    out
}
