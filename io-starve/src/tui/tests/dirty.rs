//! The page of dirty memory, and a finding about it in full.

use super::*;
use crate::model::observation::Verdict;

#[test]
fn dirty_memory_looks_as_reviewed() {
    let shown = |keys: &[Key], color: bool| {
        let look = look(color, !color);
        at_every_size(&fixtures::throttled(), Mode::Live, &look, keys)
    };
    let dirty = [Key::Char('4')];
    // Beside those of the other pages.
    insta::with_settings!({ snapshot_path => "../snapshots" }, {
        insta::assert_snapshot!("dirty_throttled", shown(&dirty, true));
        insta::assert_snapshot!("dirty_throttled_ascii", shown(&dirty, false));
        insta::assert_snapshot!("details_throttled", shown(&[Key::Enter], true));
    });
}

#[test]
fn nobody_paused_is_told_from_not_seen() {
    let page = |verdict: Option<Verdict>| {
        let mut snap = fixtures::healthy();
        snap.hooks.extend(verdict.map(fixtures::dirty_hook));
        let mut app = app(snap);
        press(&mut app, &[Key::Char('4')]);
        screen(&mut app, 160, 24)
    };
    let via = "tp_btf".to_owned();
    let healthy = page(Some(Verdict::Attached { via }));
    let words = "nobody was paused for dirty memory in the last 5 s";
    assert!(healthy.contains(words), "{healthy}");
    let why = "Operation not permitted".to_owned();
    let refused = page(Some(Verdict::Refused { why }));
    let words = "not known: the hook balance_dirty_pages was refused: Operation not permitted";
    assert!(refused.contains(words), "{refused}");
    assert!(page(Some(Verdict::Absent)).contains("is not to be had here"));
    assert!(page(None).contains("there is no hook for it"));
}

#[test]
fn a_long_page_can_be_scrolled() {
    let mut app = app(fixtures::throttled());
    press(&mut app, &[Key::Char('4')]);
    let first = screen(&mut app, 40, 10);
    assert!(first.contains("more lines below"), "{first}");
    press(&mut app, &[Key::End]);
    let last = screen(&mut app, 40, 10);
    let line = last.lines().rev().nth(1).unwrap();
    assert!(line.contains("sda") && line.ends_with("78 %"), "{last}");
}

#[test]
fn loop_devices_on_which_nobody_is_paused_are_counted_only() {
    let mut snap = fixtures::throttled();
    let quiet = crate::model::snapshot::LoopView {
        depth: 0,
        paused_share: 0.0,
        worker_share: Some(0.0),
        ..snap.loops[1].clone()
    };
    let page = |snap: &Snapshot| {
        let mut app = app(snap.clone());
        press(&mut app, &[Key::Char('4')]);
        screen(&mut app, 120, 40)
    };
    snap.loops.extend([quiet.clone(), quiet.clone()]);
    let some = page(&snap);
    assert!(some.contains("its worker; 2 more without"), "{some}");
    assert_eq!(some.matches("/srv/a.img").count(), 1, "{some}");
    snap.loops = vec![quiet];
    let none = page(&snap);
    assert!(
        none.contains("loop devices: 1, nobody paused on them"),
        "{none}"
    );
}
