//! The first lines: which machine, how much of it is seen, and the state in words.

use ratatui::text::Line;

use super::{
    Screen,
    part::Part,
    text::{self, Align},
};
use crate::{
    detect::finding::Severity,
    model::{
        observation::{Hook, Verdict},
        snapshot::Snapshot,
    },
    output::format,
    tui::{
        app::{Hit, Mode},
        pages::{PAGES, Page, View},
        theme::Role,
    },
};

/// The state in one word.
pub fn state(snap: &Snapshot) -> (&'static str, Role) {
    let worst = snap
        .findings
        .iter()
        .filter(|f| f.closed.is_none())
        .map(|f| f.severity)
        .max();
    match worst {
        Some(severity) => (word(severity), Role::of(severity)),
        None if snap.hooks.is_empty() => ("STARTING", Role::Strong),
        None if missing(snap).next().is_some() || !snap.loss.is_empty() => {
            ("PARTLY SEEN", Role::Warning)
        }
        None if snap.requests_seen == 0 => ("IDLE", Role::Strong),
        None => ("OK", Role::Good),
    }
}

/// A severity as it stands at the beginning of a line.
pub const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "INFO",
        Severity::Warning => "WARNING",
        Severity::Critical => "CRITICAL",
    }
}

/// A severity in four letters, for narrow screens.
pub const fn short_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "INFO",
        Severity::Warning => "WARN",
        Severity::Critical => "CRIT",
    }
}

/// Hooks that this kernel has and refuses.
pub fn missing(snap: &Snapshot) -> impl Iterator<Item = &Hook> {
    snap.hooks
        .iter()
        .filter(|h| matches!(h.verdict, Verdict::Refused { .. }))
}

/// The lines, for a screen of this size.
pub fn part(screen: &Screen<'_>, width: usize, height: u16) -> Part {
    let mut out = Part::of(vec![first(screen, width)]);
    if height >= 14 {
        out.append(tabs(screen, width));
        out.push(second(screen, width));
    }
    let mut questions = Vec::new();
    for hook in missing(screen.snap) {
        let question = screen.safe(&hook.question);
        if !questions.contains(&question) {
            questions.push(question);
        }
    }
    if !questions.is_empty() && height >= 14 {
        let row = screen
            .row()
            .text("cannot tell: ", screen.style(Role::Warning));
        out.push(
            row.rest(
                &questions.join("; "),
                width,
                Align::Left,
                screen.style(Role::Plain),
            )
            .line(),
        );
    }
    out.extend(verdict(
        screen,
        width,
        if height >= 20 || width < 60 { 2 } else { 1 },
    ));
    out
}

/// The pages with their keys; the present one reversed. Where there is no room for all names, only that of the present one.
fn tabs(screen: &Screen<'_>, width: usize) -> Part {
    let name = |page: &Page| {
        let open = screen.snap.findings.iter();
        let open = open.filter(|f| f.closed.is_none()).count();
        match page.view {
            View::Findings if open > 0 => format!("{} ({open})", page.name),
            _ => page.name.to_owned(),
        }
    };
    // Key and name with blanks around them, and one more between two tabs where there is room.
    let close: usize = PAGES.iter().map(|p| text::width(&name(p)) + 4).sum();
    let between = if close + PAGES.len() <= width {
        " "
    } else {
        ""
    };
    let mut row = screen.row();
    let mut hits = Vec::new();
    for page in PAGES {
        let key = page.view.key();
        let here = page.view == screen.app.view;
        let label = if close <= width || here {
            format!(" {key} {} ", name(page))
        } else {
            format!(" {key} ")
        };
        let from = row.width();
        let style = screen.selectable(if here { Role::Strong } else { Role::Dim }, here);
        row = row.text(label, style);
        let column = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        hits.push((0, Hit::Tab(page.view, column(from), column(row.width()))));
        row = row.text(between, screen.style(Role::Plain));
    }
    Part {
        hits,
        ..Part::of(vec![row.line()])
    }
}

fn first(screen: &Screen<'_>, width: usize) -> Line<'static> {
    let (app, snap) = (screen.app, screen.snap);
    let mode = match &app.mode {
        Mode::Live => "live".to_owned(),
        Mode::Replay { name } => format!("replay {}", screen.safe(name)),
        Mode::Demo { name } => format!("demo {}", screen.safe(name)),
    };
    let mode = if app.ended {
        format!("{mode}, ended")
    } else {
        mode
    };
    let marks = marks(screen);
    // What was recorded may be of another day.
    let time = match app.mode {
        Mode::Replay { .. } | Mode::Demo { .. } if width >= 80 => {
            screen.date_and_clock(snap.mono_ns)
        }
        _ => screen.clock(snap.mono_ns),
    };
    let mark = marks.as_str();
    // The mark and the time are never cut, the mode only after the machine's name.
    let fixed = text::width(mark) + time.len() + 2;
    let mode = text::cut(
        &mode,
        width.saturating_sub(fixed + 12),
        Align::Left,
        screen.look.theme.ellipsis(),
    );
    let right = fixed + text::width(&mode);
    let host = match &snap.host {
        Some(host) => format!(
            " {}{}{}",
            screen.safe(&host.name),
            screen.look.theme.dot(),
            screen.safe(&host.kernel)
        ),
        None => " host not known yet".to_owned(),
    };
    let row = screen
        .row()
        .text("io-starve", screen.style(Role::Title))
        .rest(
            &host,
            width.saturating_sub(right + 1),
            Align::Left,
            screen.style(Role::Plain),
        );
    let gap = width.saturating_sub(row.width() + right);
    let mode_role = if app.ended { Role::Strong } else { Role::Dim };
    row.text(" ".repeat(gap), screen.style(Role::Plain))
        .text(mark, screen.style(Role::Warning))
        .text(format!("{mode}  "), screen.style(mode_role))
        .text(time, screen.style(Role::Plain))
        .line()
}

/// What is not as usual, each with a dot behind it: recording, a held picture, a filter, the pace of a replay.
fn marks(screen: &Screen<'_>) -> String {
    let app = screen.app;
    let mut marks = Vec::new();
    if app.status.recording.is_some() {
        marks.push("REC".to_owned());
    }
    if !app.filter.is_empty() && !app.typing {
        marks.push(format!("/{}", screen.safe(&app.filter)));
    }
    let play = app.status.play.filter(|_| !app.ended);
    marks.extend(match (app.behind_ns(), play) {
        (Some(0), _) => Some("HELD".to_owned()),
        (Some(behind), _) => Some(format!("HELD, {} back", format::duration(behind))),
        (None, Some(play)) if play.seeking => Some("SEEKING".to_owned()),
        (None, Some(play)) if play.held => Some("HELD".to_owned()),
        (None, Some(play)) if play.speed != 1.0 => Some(format!("x{}", play.speed)),
        (None, _) => None,
    });
    let dot = screen.look.theme.dot();
    marks.into_iter().map(|mark| mark + dot).collect()
}

fn second(screen: &Screen<'_>, width: usize) -> Line<'static> {
    let snap = screen.snap;
    let dot = screen.look.theme.dot();
    let (attached, wanted) = snap.hooks_attached();
    if snap.hooks.is_empty() {
        return screen
            .row()
            .rest(
                "hooks not known yet",
                width,
                Align::Left,
                screen.style(Role::Plain),
            )
            .line();
    }
    let hooks = format!("hooks {attached} of {wanted}");
    let hooks_role = if attached < wanted {
        Role::Warning
    } else {
        Role::Plain
    };
    let (loss, loss_role) = match snap.loss_total() {
        0 => ("nothing lost".to_owned(), Role::Plain),
        n => (
            format!("LOST {} (key {})", format::count(n), View::Coverage.key()),
            Role::Warning,
        ),
    };
    let pressure = snap
        .pressure
        .map(|(some, full)| format!("{dot}io pressure {some:.0}/{full:.0} %"));
    let rest = format!(
        "{}{dot}{} requests seen",
        pressure.unwrap_or_default(),
        format::count(snap.requests_seen)
    );
    screen
        .row()
        .rest(&hooks, width, Align::Left, screen.style(hooks_role))
        .rest(dot, width, Align::Left, screen.style(Role::Dim))
        .rest(&loss, width, Align::Left, screen.style(loss_role))
        .rest(&rest, width, Align::Left, screen.style(Role::Plain))
        .line()
}

fn verdict(screen: &Screen<'_>, width: usize, most: usize) -> Vec<Line<'static>> {
    let (word, role) = state(screen.snap);
    let words = match screen.snap.verdict.as_str() {
        "" => "waiting for the first reading".to_owned(),
        words => screen.safe(words),
    };
    let mut lines = text::wrap(&format!("{word}: {words}"), width);
    if lines.len() > most {
        let rest = lines.split_off(most - 1).join(" ");
        lines.push(text::cut(
            &rest,
            width,
            Align::Left,
            screen.look.theme.ellipsis(),
        ));
    }
    let mut out = Vec::new();
    for line in lines {
        // Only the word is coloured; it may be broken only where the screen is too narrow for it.
        let (mark, words) = match line.strip_prefix(word) {
            Some(words) if out.is_empty() => (word, words),
            _ => ("", line.as_str()),
        };
        out.push(
            screen
                .row()
                .text(mark, screen.style(role))
                .text(words, screen.style(Role::Plain))
                .line(),
        );
    }
    out
}
