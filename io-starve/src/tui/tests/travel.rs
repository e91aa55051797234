//! Going back in time, filters, the mouse, and what the screen asks of others.

use super::*;
use crate::tui::{
    app::Hit,
    bindings::Action,
    request::{Pace, Request, Status},
};

const MS: u64 = 1_000_000;

fn at(mut snap: Snapshot, ms: u64) -> Arc<Snapshot> {
    snap.mono_ns = 5_000_000 * MS + ms * MS;
    Arc::new(snap)
}

/// Healthy for five ticks, then something starves for five.
fn watched(mode: Mode) -> App {
    let mut app = App::new(mode, at(fixtures::healthy(), 0));
    for tick in 1..10 {
        let snap = match tick {
            1..5 => fixtures::healthy(),
            _ => fixtures::starving(),
        };
        app.update(shown(at(snap, tick * 250)));
    }
    app
}

fn replay() -> Mode {
    Mode::Replay {
        name: "x.rec".to_owned(),
    }
}

fn key(app: &mut App, key: Key) -> Option<Request> {
    app.apply(on_key(key, app.context()))
}

fn moment(app: &App) -> u64 {
    app.shown().mono_ns / MS - 5_000_000
}

#[test]
fn left_and_right_step_through_ticks_and_p_follows_again() {
    let mut app = watched(Mode::Live);
    assert!(key(&mut app, Key::Left).is_none());
    assert_eq!((moment(&app), app.behind_ns()), (2_000, Some(250 * MS)));
    for _ in 0..4 {
        key(&mut app, Key::Left);
    }
    assert_eq!(moment(&app), 1_000);
    let held = screen(&mut app, 80, 24);
    assert!(
        held.contains("HELD, 1.3 s back · live") && held.contains("OK: "),
        "{held}"
    );
    app.update(shown(at(fixtures::starving(), 2_500)));
    assert_eq!(moment(&app), 1_000, "a held picture stays");
    key(&mut app, Key::Right);
    assert_eq!(moment(&app), 1_250);
    key(&mut app, Key::Char('p'));
    assert_eq!((moment(&app), app.behind_ns()), (2_500, None));
    assert!(key(&mut app, Key::Right).is_none());
    assert!(screen(&mut app, 80, 24).contains("nothing came later yet"));
    key(&mut app, Key::Down);
    assert!(!screen(&mut app, 80, 24).contains("nothing came later yet"));
    for _ in 0..50 {
        key(&mut app, Key::Left);
    }
    assert_eq!(moment(&app), 0);
    assert!(screen(&mut app, 80, 24).contains("nothing earlier is kept"));
}

#[test]
fn findings_are_jumped_to() {
    let mut app = watched(Mode::Live);
    assert!(key(&mut app, Key::Char('N')).is_none());
    assert_eq!(moment(&app), 1_250);
    key(&mut app, Key::Char('N'));
    assert_eq!(moment(&app), 1_250);
    assert!(app.note.is_some());
    for _ in 0..3 {
        key(&mut app, Key::Left);
    }
    key(&mut app, Key::Char('n'));
    assert_eq!(moment(&app), 1_250);
}

#[test]
fn a_replay_is_held_stepped_sought_and_paced() {
    let mut app = watched(replay());
    let asks = |app: &mut App, k| match key(app, k) {
        Some(Request::Pace(pace)) => Some(pace),
        _ => None,
    };
    assert_eq!(asks(&mut app, Key::Left), Some(Pace::Hold));
    assert_eq!(asks(&mut app, Key::Right), Some(Pace::Hold), "kept already");
    assert_eq!(
        asks(&mut app, Key::Right),
        Some(Pace::Step),
        "not played yet"
    );
    assert_eq!(asks(&mut app, Key::Char('n')), Some(Pace::Seek));
    assert_eq!(asks(&mut app, Key::Char(' ')), Some(Pace::Play));
    assert_eq!(asks(&mut app, Key::Char('+')), Some(Pace::Faster));
    assert_eq!(asks(&mut app, Key::Char('-')), Some(Pace::Slower));
    assert!(key(&mut app, Key::Char('r')).is_none(), "it is a recording");
    app.ended = true;
    assert_eq!(asks(&mut app, Key::Left), None);
    assert_eq!(
        moment(&app),
        2_000,
        "what is kept stays when the replay is over"
    );
    assert_eq!(asks(&mut app, Key::Char('n')), None);
}

#[test]
fn what_goes_on_beside_is_marked() {
    let mut app = watched(Mode::Live);
    assert!(matches!(
        key(&mut app, Key::Char('r')),
        Some(Request::Record)
    ));
    let mut status = Status {
        recording: Some("a.rec".to_owned()),
        ..Status::default()
    };
    status.say("recording to a.rec; r ends it".to_owned());
    let update = Update {
        snapshot: at(fixtures::starving(), 9_000),
        status: status.clone(),
    };
    app.update(update.clone());
    let recording = screen(&mut app, 80, 24);
    assert!(recording.contains(" REC · live"), "{recording}");
    assert!(recording.contains("recording to a.rec; r ends it"));
    key(&mut app, Key::Down);
    app.update(update);
    assert!(!screen(&mut app, 80, 24).contains("r ends it"), "said once");
    match key(&mut app, Key::Char('w')) {
        Some(Request::Write(snap)) => assert_eq!(snap.mono_ns, app.shown().mono_ns),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_filter_is_typed_kept_and_dropped() {
    let mut app = app(fixtures::crowded());
    let all = app.shown().devices.len();
    press(
        &mut app,
        &[
            Key::Char('/'),
            Key::Char('s'),
            Key::Char('q'),
            Key::Backspace,
        ],
    );
    press(&mut app, &[Key::Char('d')]);
    let typed = screen(&mut app, 80, 24);
    assert!(typed.contains(" filter: sd_"), "{typed}");
    assert_eq!(app.shown().devices.len(), 1);
    press(&mut app, &[Key::Enter]);
    assert!(screen(&mut app, 80, 24).contains("/sd · live"));
    // It holds for what comes too.
    let mut later = fixtures::crowded();
    later.mono_ns += 250 * MS;
    app.update(shown(Arc::new(later)));
    assert_eq!(app.shown().devices.len(), 1);
    press(&mut app, &[Key::Esc]);
    assert_eq!(app.shown().devices.len(), all);
    press(
        &mut app,
        &[
            Key::Char('/'),
            Key::Char('x'),
            Key::Char('y'),
            Key::Char('z'),
        ],
    );
    assert!(screen(&mut app, 80, 24).contains("no disk and none of its cgroups"));
    press(&mut app, &[Key::Esc]);
    assert_eq!((app.filter.as_str(), app.typing), ("", false));
}

#[test]
fn a_click_selects_and_a_second_one_opens() {
    let mut app = app(fixtures::crowded());
    let drawn = screen(&mut app, 120, 40);
    let line_of = |drawn: &str, what: &str| {
        let line = drawn.lines().position(|l| l.contains(what));
        line.unwrap_or_else(|| panic!("{what}: {drawn}")) as u16
    };
    let line = line_of(&drawn, "device-stall on nvme4n1");
    app.apply(Action::Click(20, line));
    let chosen = app.finding().unwrap().id.clone();
    assert_eq!(chosen, "device-stall-259:4-4");
    screen(&mut app, 120, 40);
    let drawn = screen(&mut app, 120, 40);
    app.apply(Action::Click(20, line_of(&drawn, "> INFO")));
    assert!(app.details);
    // The tabs are in the second line.
    let tabs = drawn.lines().nth(1).unwrap();
    let column = tabs.find("fsync").unwrap() as u16;
    screen(&mut app, 120, 40);
    app.apply(Action::Click(column, 1));
    assert_eq!((app.view, app.details), (View::Fsync, false));
    app.apply(Action::Click(119, 39));
    assert_eq!(app.view, View::Fsync, "nothing is there");
}

#[test]
fn every_hit_is_on_the_line_that_it_stands_for() {
    for (width, height) in [(120, 40), (80, 24), (60, 20), (40, 10)] {
        for page in PAGES {
            let mut app = app(fixtures::crowded());
            press(&mut app, &page_keys(page));
            press(&mut app, &[Key::Down; 9]);
            buffer(&mut app, &look(true, false), width, height);
            let drawn = screen(&mut app, width, height);
            let lines: Vec<&str> = drawn.lines().collect();
            for (line, hit) in &app.extent.hits {
                if let Hit::Target(crate::tui::app::Target::Device(dev)) = hit {
                    let name = app.shown().device_name(*dev);
                    let begin: String = format::printable(&name).chars().take(5).collect();
                    let line = lines[usize::from(*line)];
                    assert!(line.contains(&begin), "{page} {begin}: {line}");
                }
            }
        }
    }
}
