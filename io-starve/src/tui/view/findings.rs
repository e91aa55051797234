//! The list of findings: the open ones, worst first, then the closed ones, dimmed and called so.

use ratatui::text::Line;

use super::{
    Screen, details, header,
    part::Part,
    text::{Align, window},
};
use crate::{
    detect::finding::{CloseReason, Finding},
    output::format,
    tui::{
        app::{Hit, Target},
        theme::Role,
    },
};

/// Below this width a finding has one line.
const NARROW: usize = 64;

/// The list in `room` lines, and a bar above it where `bar` says so.
pub fn list(screen: &Screen<'_>, width: usize, room: usize, bar: bool) -> Part {
    let findings = &screen.snap.findings;
    let open = findings.iter().filter(|f| f.closed.is_none()).count();
    let tall = bar && width >= NARROW;
    let room = if tall { room - room % 2 } else { room };
    let target = screen.app.target();
    let mut shown = (0, 0);
    let mut body = Part::default();
    for finding in findings {
        let selected = matches!(&target, Some(Target::Finding(id)) if *id == finding.id);
        let first = body.len();
        let hit = Hit::Target(Target::Finding(finding.id.clone()));
        if tall {
            body.push_hit(two_lines(screen, finding, width, selected), &hit);
        } else {
            body.push_hit([one_line(screen, finding, width, selected)], &hit);
        }
        if selected {
            shown = (first, body.len() - 1);
        }
    }
    let start = window(body.len(), shown.0, shown.1, room);
    let mut out = Part::default();
    if bar {
        let mut notes = Vec::new();
        if open < findings.len() {
            notes.push(format!("{} closed", findings.len() - open));
        }
        if body.len() > start + room {
            notes.push("more: Down".to_owned());
        }
        let title = match open {
            0 => "findings: none open".to_owned(),
            n => format!("findings: {n} open"),
        };
        out.push(screen.bar(&title, &notes.join(", "), width));
    }
    out.append(body.window(start, room));
    out
}

/// The page of findings: the list, and the selected one as far as there is room.
pub fn page(screen: &Screen<'_>, width: usize, room: usize) -> Part {
    if screen.snap.findings.is_empty() {
        let out = vec![
            screen.bar("findings: none open", "", width),
            screen
                .row()
                .rest(
                    "Nobody starves, and nobody did lately.",
                    width,
                    Align::Left,
                    screen.style(Role::Plain),
                )
                .line(),
        ];
        return Part::of(out);
    }
    let each = if width >= NARROW { 2 } else { 1 };
    let list_room = if room >= 12 {
        (room / 3).min(screen.snap.findings.len() * each).max(2)
    } else {
        room - 1
    };
    let mut out = list(screen, width, list_room, true);
    if room >= 12 {
        out.extend(details::selected(screen, width));
        if out.len() > room {
            out.truncate(room - 1);
            out.push(
                screen
                    .row()
                    .text("  more: Enter", screen.style(Role::Dim))
                    .line(),
            );
        }
    }
    out.page = (list_room / each).max(1);
    out
}

struct Words {
    severity: &'static str,
    role: Role,
    device: String,
    victim: String,
    culprits: String,
    lasted: String,
    longest: String,
}

fn words(screen: &Screen<'_>, finding: &Finding) -> Words {
    let (severity, role) = match finding.closed {
        Some(_) => ("closed", Role::Dim),
        None => (header::word(finding.severity), Role::of(finding.severity)),
    };
    let culprits = match finding.culprits.as_slice() {
        [] => String::new(),
        [first, rest @ ..] => {
            let more = match rest.len() {
                0 => String::new(),
                n => format!(", {n} more"),
            };
            format!(
                "{} {}{more}",
                screen.owner(first.owner),
                format::share(first.share)
            )
        }
    };
    let lasted = match finding.closed {
        None => format!("for {}", format::duration(finding.duration_ns)),
        Some((at, CloseReason::Resolved)) => format!("over at {}", screen.clock(at)),
        Some((_, CloseReason::Detached)) => "not followed".to_owned(),
    };
    Words {
        severity,
        role,
        device: finding.device.map_or_else(
            || format::DASH.to_owned(),
            |d| screen.safe(&screen.snap.device_name(d)),
        ),
        victim: screen.owner(finding.victim),
        culprits,
        lasted,
        longest: format::duration(finding.longest_ns),
    }
}

/// For narrow and low screens: what, where, how long.
fn one_line(screen: &Screen<'_>, finding: &Finding, width: usize, selected: bool) -> Line<'static> {
    let w = words(screen, finding);
    let style = screen.selectable(
        if finding.closed.is_some() {
            Role::Dim
        } else {
            Role::Plain
        },
        selected,
    );
    let severity = if finding.closed.is_some() {
        "done"
    } else {
        header::short_word(finding.severity)
    };
    let mark = if selected { ">" } else { " " };
    let tail = format!(" {} {} {}", finding.kind.name(), w.device, w.longest);
    screen
        .row()
        .text(
            format!("{mark}{severity}"),
            screen.selectable(w.role, selected),
        )
        .rest(&tail, width, Align::Left, style)
        .line()
}

fn two_lines(
    screen: &Screen<'_>,
    finding: &Finding,
    width: usize,
    selected: bool,
) -> [Line<'static>; 2] {
    let w = words(screen, finding);
    let style = screen.selectable(
        if finding.closed.is_some() {
            Role::Dim
        } else {
            Role::Plain
        },
        selected,
    );
    let mark = if selected { "> " } else { "  " };
    let head = format!(
        "{} on {} by {}",
        finding.kind.name(),
        w.device,
        finding.mechanism.name()
    );
    let tail = format!("{}, longest {}", w.lasted, w.longest);
    let room = width.saturating_sub(11 + super::text::width(&tail) + 1);
    let first = screen
        .row()
        .column(
            &format!("{mark}{}", w.severity),
            11,
            Align::Left,
            screen.selectable(w.role, selected),
        )
        .column(&head, room, Align::Left, style)
        .text(" ", style)
        .rest(&tail, width, Align::Left, style)
        .line();
    let plain = screen.style(if finding.closed.is_some() {
        Role::Dim
    } else {
        Role::Plain
    });
    let indent = screen.row().text(" ".repeat(11), plain);
    let room = width.saturating_sub(11);
    let second = if w.culprits.is_empty() {
        let victim = super::text::cut(&w.victim, room, Align::Path, screen.look.theme.ellipsis());
        indent.text(victim, plain)
    } else {
        let victim = super::text::cut(
            &w.victim,
            room / 2,
            Align::Path,
            screen.look.theme.ellipsis(),
        );
        indent
            .text(victim, plain)
            .text(" <- ", plain)
            .rest(&w.culprits, width, Align::Path, plain)
    };
    [first, second.line()]
}
