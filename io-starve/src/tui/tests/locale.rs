//! Which glyphs a terminal may be given.

use crate::tui::names_utf8;

#[test]
fn locales_with_utf8_are_told_from_others() {
    assert!(names_utf8("de_DE.UTF-8") && names_utf8("C.utf8"));
    assert!(!names_utf8("C") && !names_utf8("de_DE.ISO-8859-1"));
}
