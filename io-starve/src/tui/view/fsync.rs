//! fsyncs that run or were slow lately, each with where its time went and whom it waited for.

use ratatui::{style::Style, text::Line};

use super::{
    Screen, details, followed, holds,
    part::Part,
    text::{self, Align, Row, window},
};
use crate::{
    detect::fsync_words,
    model::{observation::Owner, snapshot::FsyncView, syncs::Split},
    output::{format, text::journal as words},
    tui::{
        app::{Hit, fsync_id},
        theme::Role,
    },
};

/// Below this width an fsync has one line without a bar.
const NARROW: usize = 64;
/// From this width on it has one line with everything.
const WIDE: usize = 112;
/// Columns of a bar.
const BAR: usize = 12;
/// Columns of what stands before a name: when, how long, a bar.
const BEFORE: usize = 2 + 8 + 9 + 3 + BAR;

/// The page, and how many fsyncs it has room for.
pub fn page(screen: &Screen<'_>, width: usize, room: usize) -> Part {
    let snap = screen.snap;
    let each = if (NARROW..WIDE).contains(&width) {
        2
    } else {
        1
    };
    if room < 12 {
        return low(screen, width, room, each);
    }
    let holds = holds::lines(screen, width, room / 5);
    let pane = match screen.app.fsync() {
        Some(f) if room >= 24 => about(screen, f, width, true),
        _ => Vec::new(),
    };
    // Owners take what the list leaves, and a quarter of the page at least.
    let owners = (2 + snap.syncers.len().max(1)).min(room / 4);
    let fixed = holds.len() + pane.len() + owners + 1;
    let heads = usize::from(width >= WIDE);
    let list_room = (snap.fsyncs.len() * each + heads).min(room.saturating_sub(fixed));
    let mut out = list(screen, width, list_room, each);
    out.extend(pane);
    out.extend(holds);
    let left = room.saturating_sub(out.len());
    out.extend(holds::syncers(screen, width, left));
    out
}

/// For low screens: the list, the first of what is held, and owners where both leave room.
fn low(screen: &Screen<'_>, width: usize, room: usize, each: usize) -> Part {
    let below = usize::from(!screen.snap.holds.is_empty());
    let mut out = list(screen, width, room.saturating_sub(1 + below), each);
    let held = holds::lines(screen, width, 1);
    out.truncate(room.saturating_sub(below));
    out.extend(held.into_iter().skip(1).take(below));
    let left = room.saturating_sub(out.len());
    if left >= 3 {
        out.extend(holds::syncers(screen, width, left));
    }
    out
}

/// A bar and `room` lines at most.
fn list(screen: &Screen<'_>, width: usize, room: usize, each: usize) -> Part {
    let fsyncs = screen.app.fsync_order();
    let running = fsyncs.iter().filter(|f| f.running).count();
    let title = match (running, fsyncs.len() - running) {
        (0, 0) => "fsync: nothing slow".to_owned(),
        (0, n) => format!("fsync: {n} slow lately"),
        (n, 0) => format!("fsync: {n} running"),
        (n, m) => format!("fsync: {n} running, {m} slow lately"),
    };
    if fsyncs.is_empty() {
        let mut out = vec![screen.bar("fsync", "", width)];
        for line in text::wrap(&followed::healthy(screen), width) {
            out.push(screen.row().text(line, screen.style(Role::Plain)).line());
        }
        return Part::of(out);
    }
    let order = format!("s sort: {}", screen.app.fsync_sort.name());
    let note = match width {
        WIDE.. => format!("{}{}{order}", legend(screen), screen.look.theme.dot()),
        NARROW.. => legend(screen),
        _ => String::new(),
    };
    let mut out = Part::of(vec![screen.bar(&title, &note, width)]);
    if width >= WIDE && room > 2 {
        out.push(heads(screen, width));
    }
    let page = (room.saturating_sub(out.len() - 1) / each).max(1);
    let chosen = screen.app.fsync_index(&fsyncs).unwrap_or(0);
    let start = window(fsyncs.len(), chosen, chosen, page);
    for (i, f) in fsyncs.iter().enumerate().skip(start).take(page) {
        let selected = i == chosen;
        let hit = Hit::Fsync(fsync_id(f));
        match width {
            WIDE.. => out.push_hit([wide(screen, f, width, selected)], &hit),
            NARROW.. => out.push_hit(two_lines(screen, f, width, selected), &hit),
            _ => out.push_hit([narrow(screen, f, width, selected)], &hit),
        }
    }
    out.truncate(room + 1);
    out.page = page;
    out
}

fn legend(screen: &Screen<'_>) -> String {
    let [data, journal, flush, other] = screen.look.theme.parts();
    format!("{data} own data {journal} journal {flush} flush {other} other")
}

/// The parts of an fsync's time as a bar.
fn bar(screen: &Screen<'_>, split: &Split) -> String {
    let parts = [
        split.data_ns,
        split.journal_ns,
        split.flush_ns,
        split.other_ns,
    ];
    let glyphs = screen.look.theme.parts();
    let sum = |n: usize| parts[..n].iter().map(|ns| u128::from(*ns)).sum::<u128>();
    let total = sum(parts.len());
    if total == 0 {
        return glyphs[3].to_string().repeat(BAR);
    }
    // Borders are rounded, not parts, so that the bar has its width.
    let border = |n: usize| (sum(n) * BAR as u128 * 2 + total) / (total * 2);
    glyphs
        .into_iter()
        .enumerate()
        .map(|(i, glyph)| {
            let cells = border(i + 1).saturating_sub(border(i));
            glyph
                .to_string()
                .repeat(usize::try_from(cells).unwrap_or(0))
        })
        .collect()
}

/// Columns of a wide line behind the bar: owner, file, whom it waits for.
fn shares(width: usize) -> [usize; 3] {
    let rest = width.saturating_sub(BEFORE + 3);
    let (owner, file) = (rest / 4, rest / 4);
    [owner, file, rest - owner - file]
}

fn heads(screen: &Screen<'_>, width: usize) -> Line<'static> {
    let style = screen.style(Role::Title);
    let [owner, file, whom] = shares(width);
    screen
        .row()
        .column("  ended", 10, Align::Left, style)
        .column("took", 9, Align::Right, style)
        .column("   time in", BAR + 4, Align::Left, style)
        .column("owner", owner + 1, Align::Left, style)
        .column("file on filesystem", file + 1, Align::Left, style)
        .column("waited for", whom, Align::Left, style)
        .line()
}

/// When it ended, how long it took and where the time went.
fn begin(screen: &Screen<'_>, f: &FsyncView, style: Style, selected: bool) -> Row {
    let (state, role) = match (f.running, f.result) {
        (true, _) => ("RUNNING".to_owned(), Role::Strong),
        (false, 0) => (
            screen.clock(f.begin_ns.saturating_add(f.took_ns)),
            Role::Dim,
        ),
        (false, _) => ("FAILED".to_owned(), Role::Warning),
    };
    let mark = if selected { "> " } else { "  " };
    let exact = if f.split.exact { " " } else { "~" };
    screen
        .row()
        .text(mark, style)
        .column(&state, 8, Align::Left, screen.selectable(role, selected))
        .column(&format::duration(f.took_ns), 9, Align::Right, style)
        .text(format!(" {exact}{} ", bar(screen, &f.split)), style)
}

fn wide(screen: &Screen<'_>, f: &FsyncView, width: usize, selected: bool) -> Line<'static> {
    let style = screen.selectable(Role::Plain, selected);
    let [owner, file, room] = shares(width);
    let whom = waits_for(screen, f, room);
    begin(screen, f, style, selected)
        .text(" ", style)
        .column(&screen.owner(f.owner), owner, Align::Path, style)
        .text(" ", style)
        .column(&file_on(screen, f, file), file, Align::Left, style)
        .text(" ", style)
        .column(&whom, room, Align::Left, style)
        .line()
}

fn two_lines(
    screen: &Screen<'_>,
    f: &FsyncView,
    width: usize,
    selected: bool,
) -> [Line<'static>; 2] {
    let style = screen.selectable(Role::Plain, selected);
    let ellipsis = screen.look.theme.ellipsis();
    let room = width.saturating_sub(BEFORE + 1);
    let full = screen.owner(f.owner);
    let file = file_on(
        screen,
        f,
        (room * 11 / 20).max(room.saturating_sub(text::width(&full) + 2)),
    );
    let owner = text::cut(
        &full,
        room.saturating_sub(text::width(&file) + 2),
        Align::Path,
        ellipsis,
    );
    let first = begin(screen, f, style, selected)
        .text(" ", style)
        .column(&format!("{owner}  {file}"), room, Align::Left, style)
        .line();
    let plain = screen.style(Role::Plain);
    let indent = 21;
    let whom = waits_for(screen, f, width.saturating_sub(indent + 3));
    let second = screen
        .row()
        .text(" ".repeat(indent), plain)
        .text("<- ", plain)
        .rest(&whom, width, Align::Left, plain)
        .line();
    [first, second]
}

fn narrow(screen: &Screen<'_>, f: &FsyncView, width: usize, selected: bool) -> Line<'static> {
    let style = screen.selectable(Role::Plain, selected);
    let ellipsis = screen.look.theme.ellipsis();
    let (state, role) = match (f.running, f.result) {
        (true, _) => ("RUNS", Role::Strong),
        (false, 0) => ("done", Role::Dim),
        (false, _) => ("FAIL", Role::Warning),
    };
    let mark = if selected { ">" } else { " " };
    let row = screen
        .row()
        .text(mark, style)
        .text(state, screen.selectable(role, selected))
        .column(&format::duration(f.took_ns), 8, Align::Right, style)
        .text(" ", style);
    let room = width.saturating_sub(row.width() + 4);
    let whom = match f.waits.and_then(|w| w.culprit) {
        Some(culprit) if culprit == f.owner => "itself".to_owned(),
        Some(culprit) => screen.owner(culprit),
        None => "not seen".to_owned(),
    };
    let owner = screen.owner(f.owner);
    // What one of the two does not need is the other's.
    let half = (room / 2).max(room.saturating_sub(text::width(&whom)));
    let owner = text::cut(&owner, half, Align::Path, ellipsis);
    let left = room.saturating_sub(text::width(&owner));
    row.text(owner, style)
        .text(" <- ", style)
        .column(&whom, left, Align::Path, style)
        .line()
}

/// `base.db on /srv` in at most `room` columns.
fn file_on(screen: &Screen<'_>, f: &FsyncView, room: usize) -> String {
    let ellipsis = screen.look.theme.ellipsis();
    let file = screen.safe(f.what());
    let place = screen.safe(&f.filesystem);
    let free = room.saturating_sub(4);
    let place = text::cut(
        &place,
        (free / 2).max(free.saturating_sub(text::width(&file))),
        Align::Path,
        ellipsis,
    );
    let file = text::cut(
        &file,
        free.saturating_sub(text::width(&place)),
        Align::Left,
        ellipsis,
    );
    format!("{file} on {place}")
}

/// Whom it waits for through what, in at most `room` columns: names give way first, then the limit.
fn waits_for(screen: &Screen<'_>, f: &FsyncView, room: usize) -> String {
    /// What is left of a name tells it from others.
    const NAME: usize = 12;
    let file = words::limit_file(screen.snap);
    let name = |most: usize| {
        move |owner: Owner| {
            let ellipsis = screen.look.theme.ellipsis();
            text::cut(&screen.owner(owner), most, Align::Path, ellipsis)
        }
    };
    let form = |limit: bool, short: bool, most: usize| {
        let limit = limit.then_some(file);
        let words = words::waits_for(f.waits.as_ref(), f.owner, limit, &name(most));
        if short {
            words.replace(", held by ", ", ")
        } else {
            words
        }
    };
    for (limit, short) in [(true, false), (true, true), (false, false)] {
        let full = form(limit, short, usize::MAX);
        if text::width(&full) <= room {
            return full;
        }
        // Without its limit a wait looks like another's; a shorter name is still that name.
        let longest = (NAME..room).rev().map(|most| form(limit, short, most));
        if let Some(cut) = longest.into_iter().find(|w| text::width(w) <= room) {
            return cut;
        }
    }
    form(false, false, NAME)
}

/// What is known of one fsync, under its title.
fn about(screen: &Screen<'_>, f: &FsyncView, width: usize, short: bool) -> Vec<Line<'static>> {
    let mut out = Vec::new();
    let place = file_on(screen, f, usize::MAX);
    if short {
        out.push(screen.bar(&place, "Enter: more", width));
    }
    let mut who = screen.owner(f.owner);
    if let Some(task) = &f.task {
        who += &format!(", task {}", screen.task(task));
    }
    let began = format!("began at {}", screen.clock(f.begin_ns));
    let state = match (f.running, f.result) {
        (true, _) => format!("{began}, runs for {}", format::duration(f.took_ns)),
        (false, 0) => format!("{began}, took {}", format::duration(f.took_ns)),
        (false, error) => format!(
            "{began}, FAILED with error {} after {}: what was written may be lost",
            error.unsigned_abs(),
            format::duration(f.took_ns)
        ),
    };
    if !short {
        details::labelled(screen, &mut out, "file", [place], width);
    }
    details::labelled(screen, &mut out, "who", [who], width);
    details::labelled(screen, &mut out, "when", [state], width);
    details::labelled(screen, &mut out, "time in", [words::split(&f.split)], width);
    let label = if f.running { "waits" } else { "waited" };
    details::labelled(screen, &mut out, label, [waited(screen, f)], width);
    out
}

fn waited(screen: &Screen<'_>, f: &FsyncView) -> String {
    let Some(w) = f.waits else {
        return "for whom was not seen".to_owned();
    };
    let name = |owner: Owner| screen.owner(owner);
    let file = words::limit_file(screen.snap);
    let mut out = format!(
        "{} of it, {}",
        format::duration(w.ns),
        words::waits_for(Some(&w), f.owner, Some(file), &name)
    );
    let mut holds = screen.snap.holds.iter();
    if let Some(h) = holds.find(|h| h.write && Some(h.group) == w.limit) {
        let limits = fsync_words::limits(&h.limits);
        out += &format!(" ({limits}; {} now)", words::held_amount(h));
    }
    if w.culprit.is_some() && !w.sure {
        out += "; not every link was seen";
    }
    out
}

/// One fsync in full.
pub fn in_full(screen: &Screen<'_>, f: &FsyncView, width: usize) -> Vec<Line<'static>> {
    let mut out = about(screen, f, width, false);
    let waits = f.waits.map(|w| [w.culprit, w.limit]);
    let mut owners: Vec<Owner> = waits.into_iter().flatten().flatten().collect();
    owners.insert(0, f.owner);
    owners.dedup();
    let names = owners.into_iter().filter_map(|owner| {
        let aliases = screen.aliases(owner);
        (!aliases.is_empty()).then(|| format!("{}: {}", screen.owner(owner), aliases.join(", ")))
    });
    details::labelled(screen, &mut out, "names", names, width);
    out
}
