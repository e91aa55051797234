//! The page of cgroups and their shares.

use super::*;

#[test]
fn shares_look_as_reviewed() {
    let shown = |color: bool| {
        let look = look(color, !color);
        let keys = [Key::Char('7')];
        at_every_size(&fixtures::shared(), Mode::Live, &look, &keys)
    };
    // Beside those of the other pages.
    insta::with_settings!({ snapshot_path => "../snapshots" }, {
        insta::assert_snapshot!("shares_not_enforced", shown(true));
        insta::assert_snapshot!("shares_not_enforced_ascii", shown(false));
    });
}

#[test]
fn where_nothing_is_counted_the_page_says_why() {
    let mut app = app(fixtures::healthy());
    press(&mut app, &[Key::Char('7')]);
    let shown = screen(&mut app, 160, 24);
    assert!(
        shown.contains("device time is counted on disks where BFQ or iocost is active"),
        "{shown}"
    );
}

#[test]
fn a_long_page_can_be_scrolled() {
    let mut app = app(fixtures::shared());
    press(&mut app, &[Key::Char('7')]);
    let first = screen(&mut app, 40, 10);
    assert!(first.contains("more lines below"), "{first}");
    press(&mut app, &[Key::End]);
    let last = screen(&mut app, 40, 10);
    assert!(last.contains("root cgroup"), "{last}");
}
