//! What the screen shows, drawn into a buffer.

mod cost;
mod demos;
mod dirty;
mod fsync;
mod help;
mod locale;
mod screens;
mod shares;
mod travel;

use std::sync::Arc;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};

use super::{
    TuiError,
    app::{App, Mode},
    bindings::{BINDINGS, on_key},
    caught, fixtures,
    keys::Key,
    pages::View,
    request::Update,
    theme::Theme,
    view::{self, Look},
};
use crate::{model::snapshot::Snapshot, output::format};

#[tokio::test]
async fn a_panic_of_the_screen_is_its_error_whenever_it_comes() {
    let panics = async {
        tokio::task::yield_now().await;
        panic!("in a view")
    };
    assert!(matches!(caught(panics).await, Err(TuiError::Panicked)));
    let quits = async {
        tokio::task::yield_now().await;
        Ok(())
    };
    assert!(caught(quits).await.is_ok());
}

fn look(color: bool, ascii: bool) -> Look {
    Look {
        theme: Theme { color, ascii },
        time_zone: TimeZone::UTC,
    }
}

fn app(snapshot: Snapshot) -> App {
    App::new(Mode::Live, Arc::new(snapshot))
}

fn shown(snapshot: Arc<Snapshot>) -> Update {
    Update {
        snapshot,
        ..Update::default()
    }
}

fn buffer(app: &mut App, look: &Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| app.fit(view::draw(frame, app, look)))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip > 0 {
                skip -= 1;
                continue;
            }
            line.push_str(symbol);
            skip = unicode_width::UnicodeWidthStr::width(symbol).saturating_sub(1);
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    text(&buffer(app, &look(true, false), width, height))
}

fn press(app: &mut App, keys: &[Key]) {
    for key in keys {
        app.apply(on_key(*key, app.context()));
    }
}

/// The sizes of a page, one below the other.
fn at_every_size(snapshot: &Snapshot, mode: Mode, look: &Look, keys: &[Key]) -> String {
    [(120, 40), (80, 24), (60, 20), (40, 10)]
        .map(|(width, height)| {
            let mut app = App::new(mode.clone(), Arc::new(snapshot.clone()));
            press(&mut app, keys);
            format!(
                "{width}x{height}\n{}",
                text(&buffer(&mut app, look, width, height))
            )
        })
        .join("\n")
}

fn page_keys(page: &str) -> Vec<Key> {
    match page {
        "overview" => vec![],
        "details" => vec![Key::Enter],
        "device" => vec![Key::Char('2')],
        "times" => vec![Key::Char('2'), Key::Enter],
        "fsync" => vec![Key::Char('3')],
        "one_fsync" => vec![Key::Char('3'), Key::Enter],
        "dirty" => vec![Key::Char('4')],
        "findings" => vec![Key::Char('5')],
        "coverage" => vec![Key::Char('6')],
        "shares" => vec![Key::Char('7')],
        "help" => vec![Key::Char('?')],
        other => panic!("no page {other}"),
    }
}

const PAGES: [&str; 11] = [
    "overview",
    "details",
    "device",
    "times",
    "findings",
    "fsync",
    "one_fsync",
    "coverage",
    "dirty",
    "shares",
    "help",
];

#[test]
fn pages_look_as_reviewed() {
    let states = fixtures::all();
    let shown = |page: &str, state: &str| {
        // It has no fsync to read.
        if page == "one_fsync" && state == "starving" {
            return false;
        }
        page == "overview"
            || state == "starving"
            || state == "crowded"
            || page == "coverage" && state == "lossy"
            || page != "help" && state == "serialized"
    };
    for (state, snapshot) in &states {
        for page in PAGES.into_iter().filter(|page| shown(page, state)) {
            let screens = at_every_size(snapshot, Mode::Live, &look(true, false), &page_keys(page));
            insta::assert_snapshot!(format!("{page}_{state}"), screens);
        }
    }
    for (page, state, snapshot) in [
        ("overview", "crowded", fixtures::crowded()),
        ("fsync", "serialized", fixtures::serialized()),
    ] {
        let ascii = at_every_size(&snapshot, Mode::Live, &look(false, true), &page_keys(page));
        insta::assert_snapshot!(format!("{page}_{state}_ascii"), ascii);
    }
    let quiet = at_every_size(
        &fixtures::quiet(),
        Mode::Live,
        &look(true, false),
        &page_keys("fsync"),
    );
    insta::assert_snapshot!("fsync_quiet", quiet);
    let demo = Mode::Demo {
        name: "async-write-starvation".to_owned(),
    };
    insta::assert_snapshot!(
        "overview_demo",
        at_every_size(&fixtures::starving(), demo, &look(true, false), &[])
    );
}

#[test]
fn a_screen_that_is_too_small_says_what_it_needs() {
    let at = |width, height| screen(&mut app(fixtures::starving()), width, height);
    assert_eq!(
        at(39, 10),
        "io-starve needs 40x10\nCRITICAL\nhas 39x10\n\n\n\n\n\n\n\n"
    );
    assert_eq!(at(8, 3), "40x10\nCRITICAL\nhas 8x3\n");
    assert_eq!(at(40, 9).lines().next(), Some("io-starve needs 40x10"));
    assert!(at(40, 10).contains("CRIT async-write-starvation sda"));
}

#[test]
fn what_was_never_issued_has_no_time_in_the_queue() {
    let mut app = app(fixtures::starving());
    press(&mut app, &page_keys("device"));
    let screen = screen(&mut app, 120, 40);
    let row = screen.lines().find(|l| l.starts_with("async-write "));
    let cells: Vec<_> = row.unwrap().split_whitespace().collect();
    assert_eq!(cells[1..], ["-"; 9], "{screen}");
}

#[test]
fn a_healthy_machine_is_called_so_only_when_all_of_it_was_seen() {
    let verdict = |snapshot: Snapshot| {
        let screen = screen(&mut app(snapshot), 120, 40);
        screen
            .lines()
            .find(|l| l.contains(": ") && l.starts_with(char::is_uppercase))
            .unwrap()
            .to_owned()
    };
    assert!(verdict(fixtures::healthy()).starts_with("OK: no findings"));
    assert!(verdict(fixtures::attached()).starts_with("IDLE: "));
    assert!(verdict(Snapshot::default()).starts_with("STARTING: "));
    let mut refused = fixtures::lossy();
    refused.findings.clear();
    assert!(verdict(refused.clone()).starts_with("PARTLY SEEN: "));
    refused.hooks = fixtures::healthy().hooks;
    assert!(verdict(refused.clone()).starts_with("PARTLY SEEN: "));
    refused.loss.clear();
    assert!(verdict(refused).starts_with("OK: "));
}

#[test]
fn a_pause_holds_the_picture_and_says_how_old_it_is() {
    let mut app = app(fixtures::healthy());
    press(&mut app, &[Key::Char('p')]);
    let mut later = fixtures::starving();
    later.mono_ns += 12_000_000_000;
    app.update(shown(Arc::new(later)));
    let held = screen(&mut app, 80, 24);
    assert!(
        held.contains("HELD, 12.0 s back") && held.contains("OK: no findings"),
        "{held}"
    );
    press(&mut app, &[Key::Char('p')]);
    let live = screen(&mut app, 80, 24);
    assert!(
        !live.contains("HELD") && live.contains("CRITICAL: "),
        "{live}"
    );
}

#[test]
fn an_ended_feed_is_marked() {
    let mut app = App::new(
        Mode::Replay {
            name: "x.iostarve".to_owned(),
        },
        Arc::new(fixtures::starving()),
    );
    assert!(!screen(&mut app, 80, 24).contains("ended"));
    app.ended = true;
    assert!(screen(&mut app, 80, 24).contains("replay x.iostarve, ended"));
}

#[test]
fn the_selection_stays_with_what_was_chosen() {
    let mut app = app(fixtures::crowded());
    assert_eq!(app.finding().unwrap().id, "async-write-starvation-8:0-1");
    press(&mut app, &[Key::Down, Key::Down]);
    let chosen = app.finding().unwrap().id.clone();
    let mut later = fixtures::crowded();
    later.findings.rotate_right(3);
    app.update(shown(Arc::new(later.clone())));
    assert_eq!(app.finding().unwrap().id, chosen);
    later.findings.retain(|f| f.id != chosen);
    let first = later.findings[0].id.clone();
    app.update(shown(Arc::new(later)));
    assert_eq!(
        app.finding().unwrap().id,
        first,
        "what is gone gives way to the first"
    );
}

#[test]
fn a_finding_being_read_is_not_replaced_by_a_worse_one() {
    let mut app = app(fixtures::starving());
    press(&mut app, &[Key::Enter]);
    let mut later = fixtures::starving();
    let mut worse = later.findings[0].clone();
    worse.id = "worse".to_owned();
    later.findings.insert(0, worse);
    app.update(shown(Arc::new(later)));
    assert!(screen(&mut app, 80, 24).contains("finding async-write-starvation-8:0-1"));
    let mut later = fixtures::starving();
    later.findings.remove(0);
    app.update(shown(Arc::new(later)));
    let gone = screen(&mut app, 80, 24);
    assert!(
        gone.contains("is not kept at this moment") && !gone.contains("finding read-starvation"),
        "{gone}"
    );
    press(&mut app, &[Key::Esc]);
    assert!(!app.details);
}

#[test]
fn enter_goes_from_a_disk_to_its_owners_and_back() {
    let mut app = app(fixtures::crowded());
    let findings = app.shown().findings.len();
    press(&mut app, &vec![Key::Down; findings + 1]);
    press(&mut app, &[Key::Enter]);
    assert_eq!(
        (app.view, app.device().unwrap().name.as_str()),
        (View::Device, "nvme5n1")
    );
    press(&mut app, &[Key::Char(']')]);
    assert_eq!(app.device().unwrap().name, "nvme4n1");
    press(&mut app, &[Key::Esc]);
    assert_eq!(app.view, View::Overview);
}

#[test]
fn the_device_view_begins_with_the_disk_of_the_selected_finding() {
    let mut app = app(fixtures::crowded());
    press(&mut app, &[Key::Down, Key::Char('2')]);
    assert_eq!(app.device().unwrap().name, "nvme5n1");
}

#[test]
fn sorting_goes_through_every_order_and_is_named() {
    let mut app = app(fixtures::crowded());
    let first = |app: &App| app.shown().devices[app.device_order()[0]].name.clone();
    let mut seen = Vec::new();
    for name in ["findings first", "longest wait", "IOPS", "name"] {
        let bar = format!("sort: {name} ");
        assert!(screen(&mut app, 120, 40).contains(&bar), "{bar}");
        seen.push(first(&app));
        press(&mut app, &[Key::Char('s')]);
    }
    assert_eq!(
        seen,
        [
            "sda",
            "sda",
            "nvme28n1",
            "dm-3 (vg-the\u{7}very long name of it)"
        ]
    );
    assert_eq!(first(&app), "sda", "after the last comes the first");

    press(&mut app, &[Key::Char('2')]);
    let first = |app: &App| {
        app.shown()
            .owner_name(app.owner_order(app.device().unwrap())[0].owner)
    };
    assert_eq!(first(&app), "/backup.service");
    press(&mut app, &[Key::Char('s'), Key::Char('s')]);
    assert!(screen(&mut app, 120, 40).contains("sort: IOPS "));
    let busiest = app
        .device()
        .unwrap()
        .owners
        .iter()
        .map(|o| o.iops)
        .fold(0.0, f64::max);
    assert_eq!(app.owner_order(app.device().unwrap())[0].iops, busiest);
}

#[test]
fn colour_is_never_the_only_sign() {
    for (state, snapshot) in fixtures::all() {
        for page in PAGES {
            let draw = |color| {
                let mut app = app(snapshot.clone());
                press(&mut app, &page_keys(page));
                buffer(&mut app, &look(color, false), 120, 40)
            };
            let (colored, plain) = (draw(true), draw(false));
            assert_eq!(text(&colored), text(&plain), "{page} {state}");
            assert!(
                colored.content().iter().all(|c| c.bg == Color::Reset),
                "{page} {state}: a background of ours"
            );
            assert!(
                plain.content().iter().all(|c| c.fg == Color::Reset),
                "{page} {state}: a colour with NO_COLOR"
            );
        }
    }
    let critical = buffer(&mut app(fixtures::starving()), &look(true, false), 120, 40);
    assert!(critical.content().iter().any(|c| c.fg == Color::Red));
}

#[test]
fn ascii_means_ascii_and_names_cannot_steer_the_terminal() {
    for page in PAGES {
        for (width, height) in [(120, 40), (80, 24), (40, 10), (30, 5)] {
            let mut app = app(fixtures::crowded());
            press(&mut app, &page_keys(page));
            let ascii = buffer(&mut app, &look(true, true), width, height);
            assert!(
                ascii
                    .content()
                    .iter()
                    .all(|c| c.symbol().chars().all(|c| (' '..='~').contains(&c))),
                "{page}"
            );
            let full = text(&buffer(&mut app, &look(true, false), width, height)).replace('\n', "");
            assert_eq!(format::printable(&full), full, "{page}");
        }
    }
    let mut app = app(fixtures::crowded());
    press(&mut app, &page_keys("device"));
    assert!(screen(&mut app, 120, 40).contains("/备份.service"));
}

/// Below the smallest screen every page is the same, so that this begins just there.
#[test]
fn every_page_is_drawn_at_the_smallest_sizes() {
    for (_, snapshot) in fixtures::all() {
        for page in PAGES {
            let mut app = app(snapshot.clone());
            press(&mut app, &page_keys(page));
            for (width, height) in (39..=46).flat_map(|w| (9..=15).map(move |h| (w, h))) {
                buffer(&mut app, &look(true, false), width, height);
            }
        }
    }
}

/// Every size once, with the next page of the next state each time; 80 of them and 61 heights have no common factor,
/// so that every page of every state meets every part of the range.
#[test]
fn every_size_is_drawn() {
    let states = fixtures::all();
    let mut apps: Vec<_> = PAGES
        .into_iter()
        .flat_map(|page| states.iter().map(move |(_, snapshot)| (page, snapshot)))
        .map(|(page, snapshot)| {
            let mut app = app(snapshot.clone());
            press(&mut app, &page_keys(page));
            app
        })
        .collect();
    let sizes = (0..=200).flat_map(|width| (0..=60).map(move |height| (width, height)));
    for (i, (width, height)) in sizes.enumerate() {
        let next = i % apps.len();
        buffer(&mut apps[next], &look(true, false), width, height);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_keys_and_no_size_break_the_screen(
        steps in prop::collection::vec((0..BINDINGS.len(), 0usize..8, 0u16..=200, 0u16..=60, any::<bool>()), 1..24),
    ) {
        let states: Vec<_> = fixtures::all().into_iter().map(|(_, s)| Arc::new(s)).collect();
        let mut app = App::new(Mode::Live, Arc::clone(&states[0]));
        for (binding, state, width, height, new) in steps {
            app.apply(BINDINGS[binding].action);
            if new {
                app.update(shown(Arc::clone(&states[state])));
            }
            let drawn = buffer(&mut app, &look(true, false), width, height);
            prop_assert_eq!((drawn.area.width, drawn.area.height), (width, height));
            if width >= view::MIN_WIDTH && height >= view::MIN_HEIGHT {
                let last = text(&drawn).lines().last().unwrap_or_default().to_owned();
                let way_out = if app.typing { "keep" } else { "q quit" };
                prop_assert!(last.contains(way_out), "the way out is always named: {}", last);
            }
        }
    }
}
