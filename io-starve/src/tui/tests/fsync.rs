//! The page of fsyncs, the table of blame, and what is said where there is neither.

use super::*;
use crate::model::observation::{CgroupMode, Hook, Verdict};

fn fsync_index(app: &App) -> Option<usize> {
    app.fsync_index(&app.fsync_order())
}

fn page(snapshot: Snapshot, width: u16, height: u16) -> String {
    let mut app = app(snapshot);
    press(&mut app, &[Key::Char('3')]);
    screen(&mut app, width, height)
}

fn with_hooks(verdict: Verdict) -> Snapshot {
    let mut snap = fixtures::healthy();
    snap.hooks.extend(fixtures::journal_hooks(verdict));
    snap
}

#[test]
fn no_slow_fsync_is_told_from_none_seen() {
    let via = || "raw_tp".to_owned();
    let quiet = page(fixtures::quiet(), 80, 24);
    let words = "no fsync took longer than 20 ms; 41,210 seen";
    assert!(quiet.contains(words), "{quiet}");
    assert!(quiet.contains("limits: nothing seen held now"), "{quiet}");
    let none = page(with_hooks(Verdict::Attached { via: via() }), 80, 24);
    assert!(none.contains("no fsync seen yet"), "{none}");

    let refused = Verdict::Refused {
        why: "Operation not permitted (os error 1)".to_owned(),
    };
    let all = page(with_hooks(refused.clone()), 120, 24);
    assert!(
        all.contains("fsyncs are not followed: the hook ext4_sync_file_exit was refused: Operation not permitted"),
        "{all}"
    );
    let mut snap = fixtures::quiet();
    let commit = |h: &&mut Hook| h.name == "jbd2_start_commit";
    snap.hooks.iter_mut().find(commit).unwrap().verdict = refused;
    let one = page(snap, 120, 24);
    assert!(
        one.contains("41,210 seen; cannot tell: which journal commits an fsync waits for"),
        "{one}"
    );

    let waits = page(with_hooks(Verdict::Waits), 80, 24);
    assert!(waits.contains("ext4 is not loaded"), "{waits}");
    let old = page(fixtures::healthy(), 80, 24);
    assert!(old.contains("there is no hook for them"), "{old}");
    assert!(page(Snapshot::default(), 80, 24).contains("not known yet"));
    for state in [quiet, all, waits, old] {
        assert!(!state.contains("no fsync seen yet"), "{state}");
    }
}

#[test]
fn a_bar_has_the_parts_in_their_order_and_its_width() {
    let shown = page(fixtures::serialized(), 120, 40);
    for bar in [
        // 31 ms of 12.4 s are less than half of a cell.
        " ████████████ ",
        // 8.1 s own data, 1.0 s other, at ticks.
        "~░░░░░░░░░░░· ",
        " ███████████▒ ",
        "~██████████·· ",
        // Nothing seen.
        "~············ ",
        " ░░░█████▒▒▒▒ ",
    ] {
        assert!(shown.contains(bar), "{bar}: {shown}");
    }
}

#[test]
fn what_is_not_sure_or_not_seen_is_called_so() {
    let line = |snap: &Snapshot, start: &str| {
        let shown = page(snap.clone(), 160, 40);
        let line = shown.lines().find(|l| l.contains(start));
        line.unwrap_or_else(|| panic!("{start}: {shown}"))
            .to_owned()
    };
    let snap = fixtures::serialized();
    assert!(line(&snap, "pg_control").contains("transaction: likely /backup.service"));
    assert!(line(&snap, "state.json").ends_with("journal-queue: not seen"));
    assert!(line(&snap, "FAILED").ends_with("not seen"));
    assert!(line(&snap, "RUNNING     9.1 s").contains("data-queue: itself, held by its io.max"));
    let mut snap = snap;
    snap.host.as_mut().unwrap().cgroups = CgroupMode::V1;
    assert!(line(&snap, "RUNNING     9.1 s").contains("held by its blkio.throttle"));
}

#[test]
fn no_number_of_a_limit_is_cut() {
    let whole = ["wbps=262144", "rbps=1048576", "riops=100"];
    let mut seen = 0;
    for width in view::MIN_WIDTH..200 {
        for key in ['2', '3'] {
            let mut app = app(fixtures::serialized());
            press(&mut app, &[Key::Char(key)]);
            let shown = screen(&mut app, width, 40);
            // The verdict above the first bar is a sentence that is cut where the screen ends.
            let page = shown.split_once("── ").unwrap().1;
            for word in page.split([' ', '(', ';', ',', '\n']) {
                if word.contains("ps=") {
                    assert!(whole.contains(&word), "{width}: {word}: {shown}");
                    seen += 1;
                }
            }
            let held = page.matches("12 writes for 3.2 s").count();
            assert!(held > 0, "{width}: {shown}");
        }
    }
    assert!(seen > 300, "{seen}");
}

#[test]
fn the_selected_fsync_stays_selected_when_it_ends_and_is_read_to_its_end() {
    let mut app = app(fixtures::serialized());
    press(&mut app, &[Key::Char('3')]);
    assert_eq!(fsync_index(&app), Some(0));
    press(&mut app, &[Key::Down, Key::Enter]);
    let read = screen(&mut app, 80, 24);
    assert!(
        read.contains("daily-2026-03-14.tar on /var/lib/postgresql"),
        "{read}"
    );
    let mut later = fixtures::serialized();
    let mut ended = later.fsyncs.remove(1);
    ended.running = false;
    later.fsyncs.insert(3, ended);
    app.update(shown(Arc::new(later.clone())));
    assert_eq!(fsync_index(&app), Some(3));
    later.fsyncs.remove(3);
    app.update(shown(Arc::new(later)));
    assert!(screen(&mut app, 80, 24).contains("is not kept at this moment"));
    press(&mut app, &[Key::Esc]);
    assert_eq!((app.view, fsync_index(&app)), (View::Fsync, Some(0)));
    press(&mut app, &vec![Key::Down; 50]);
    assert_eq!(fsync_index(&app), Some(5));
    press(&mut app, &[Key::Tab]);
    assert_eq!(app.view, View::Dirty);
    press(&mut app, &[Key::BackTab, Key::BackTab]);
    assert_eq!(app.view, View::Device);
}

#[test]
fn blame_is_on_the_overview_where_there_is_some_and_room() {
    const TITLE: &str = "who waited for whom, last minute";
    let overview = |snap: Snapshot, width, height| screen(&mut app(snap), width, height);
    for (width, height) in [(120, 40), (80, 24)] {
        let shown = overview(fixtures::serialized(), width, height);
        let row = shown
            .lines()
            .skip_while(|l| !l.contains(TITLE))
            .nth(1)
            .unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "/postgres.service",
                "<-",
                "/backup.service",
                "journal-data",
                "51.3",
                "s"
            ]
        );
        assert!(!overview(fixtures::quiet(), width, height).contains(TITLE));
    }
    assert!(!overview(fixtures::serialized(), 40, 10).contains(TITLE));
}

#[test]
fn a_held_owner_is_called_so_once_on_its_disk() {
    let device = |snap: Snapshot, width| {
        let mut app = app(snap);
        press(&mut app, &[Key::Char('2')]);
        let shown = screen(&mut app, width, 24);
        shown.split_once("── owners").unwrap().1.to_owned()
    };
    let shown = device(fixtures::serialized(), 80);
    let held = "held by its io.max: 12 writes for 3.2 s, wbps=262144";
    assert_eq!(shown.matches(held).count(), 1, "{shown}");
    assert!(
        shown.contains("held by io.max of /batch.slice: 1 read for 41 ms"),
        "{shown}"
    );
    let mut elsewhere = fixtures::serialized();
    for hold in &mut elsewhere.holds {
        hold.device = "sdb".to_owned();
    }
    let shown = device(elsewhere, 80);
    assert!(!shown.contains("held by"), "{shown}");
}
