//! What keys do: one table that both acts and explains itself. The help page and the hints in the last line are made from
//! the table that [`on_key`] looks into, so neither can name a key that does something else, or one that does nothing here.

use super::{keys::Key, pages::View};

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The key is not bound.
    Nothing,
    /// Nobody pressed anything.
    Ignored,
    /// Leave the program.
    Quit,
    /// Give the terminal back and stop, until continued by the shell.
    Suspend,
    /// Draw everything anew, in case something else wrote on the terminal.
    Redraw,
    /// Show or hide the keys.
    Help,
    /// Hold the picture, or follow the machine or the replay again.
    Pause,
    /// The next order of the list on screen.
    Sort,
    /// Select or scroll one up.
    Up,
    /// Select or scroll one down.
    Down,
    /// Select or scroll a page up.
    PageUp,
    /// Select or scroll a page down.
    PageDown,
    /// To the first line.
    First,
    /// To the last line.
    Last,
    /// The disk before, in the device view.
    PreviousDevice,
    /// The disk after, in the device view.
    NextDevice,
    /// Show what is selected in full.
    Open,
    /// Back to where `Open` or `Help` was pressed.
    Back,
    /// The next view.
    NextView,
    /// The view before.
    PreviousView,
    /// This view.
    Show(View),
    /// Begin to type a filter.
    Filter,
    /// One more character of it.
    Type(char),
    /// One character less of it.
    Erase,
    /// Keep the filter that was typed.
    Keep,
    /// Drop the filter.
    Drop,
    /// One tick back.
    Earlier,
    /// One tick on.
    Later,
    /// To the next moment in which a finding opens.
    NextFinding,
    /// To the last moment before in which a finding opened.
    PreviousFinding,
    /// Replay twice as fast.
    Faster,
    /// Replay half as fast.
    Slower,
    /// Write what is shown to files.
    Write,
    /// Begin a recording, or end it.
    Record,
    /// The left button at this column and line.
    Click(u16, u16),
}

/// Where the screen is, as far as the meaning of a key depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Context {
    /// The page.
    pub view: View,
    /// Something is being read in full.
    pub details: bool,
    /// The snapshots are those of a recording.
    pub replay: bool,
    /// A filter is being typed.
    pub typing: bool,
}

/// Keys that ask for the same.
#[derive(Debug)]
pub struct Binding {
    /// The keys; the first is the one to name in a hint.
    pub keys: &'static [Key],
    /// What they ask for.
    pub action: Action,
    /// The line in the help page.
    pub help: &'static str,
    /// The word in the last line of the screen, most important bindings first; `None` when it is not named there.
    pub hint: Option<&'static str>,
    /// Where the keys exist.
    pub when: fn(Context) -> bool,
}

const fn bind(
    keys: &'static [Key],
    action: Action,
    hint: Option<&'static str>,
    help: &'static str,
    when: fn(Context) -> bool,
) -> Binding {
    Binding {
        keys,
        action,
        help,
        hint,
        when,
    }
}

const fn always(_: Context) -> bool {
    true
}

const fn live(at: Context) -> bool {
    !at.replay
}

const fn replay(at: Context) -> bool {
    at.replay
}

const fn on_disk(at: Context) -> bool {
    matches!(at.view, View::Device)
}

const fn in_list(at: Context) -> bool {
    !at.details && !matches!(at.view, View::Coverage | View::Dirty | View::Shares)
}

const fn with_order(at: Context) -> bool {
    !at.details && matches!(at.view, View::Overview | View::Device | View::Fsync)
}

/// Every binding but those of the pages, in the order of the help page.
pub const BINDINGS: &[Binding] = &[
    bind(
        &[Key::Char('q'), Key::Ctrl('c')],
        Action::Quit,
        Some("quit"),
        "quit",
        always,
    ),
    bind(
        &[Key::Char('?')],
        Action::Help,
        Some("keys"),
        "show or hide this page",
        always,
    ),
    bind(
        &[Key::Enter],
        Action::Open,
        Some("open"),
        "what is selected in full",
        in_list,
    ),
    bind(
        &[Key::Esc, Key::Backspace],
        Action::Back,
        Some("back"),
        "back; drops the filter",
        always,
    ),
    bind(
        &[Key::Tab],
        Action::NextView,
        Some("page"),
        "next page",
        always,
    ),
    bind(
        &[Key::BackTab],
        Action::PreviousView,
        None,
        "page before",
        always,
    ),
    bind(
        &[Key::Char(' '), Key::Char('p')],
        Action::Pause,
        Some("play"),
        "play, hold",
        replay,
    ),
    bind(
        &[Key::Char('p'), Key::Char(' ')],
        Action::Pause,
        Some("freeze"),
        "hold the picture, follow again",
        live,
    ),
    bind(
        &[Key::Left, Key::Char('h')],
        Action::Earlier,
        Some("time"),
        "a tick back, up to ten minutes",
        always,
    ),
    bind(
        &[Key::Right, Key::Char('l')],
        Action::Later,
        None,
        "a tick on",
        always,
    ),
    bind(
        &[Key::Char('n')],
        Action::NextFinding,
        None,
        "to where the next finding opens",
        always,
    ),
    bind(
        &[Key::Char('N')],
        Action::PreviousFinding,
        None,
        "to where a finding opened before",
        always,
    ),
    bind(
        &[Key::Char('+'), Key::Char('=')],
        Action::Faster,
        Some("faster"),
        "replay twice as fast",
        replay,
    ),
    bind(
        &[Key::Char('-')],
        Action::Slower,
        None,
        "replay half as fast",
        replay,
    ),
    bind(
        &[Key::Char('/')],
        Action::Filter,
        Some("filter"),
        "only disks and cgroups with a text in their names",
        always,
    ),
    bind(
        &[Key::Char('s')],
        Action::Sort,
        Some("sort"),
        "next order of the list",
        with_order,
    ),
    bind(
        &[Key::Char('r')],
        Action::Record,
        Some("record"),
        "begin a recording to a file here, end it",
        live,
    ),
    bind(
        &[Key::Char('w')],
        Action::Write,
        Some("write"),
        "write what is shown to files here, as text and JSON",
        always,
    ),
    bind(
        &[Key::Char('['), Key::Char('<')],
        Action::PreviousDevice,
        None,
        "disk before",
        on_disk,
    ),
    bind(
        &[Key::Char(']'), Key::Char('>')],
        Action::NextDevice,
        Some("next disk"),
        "next disk",
        on_disk,
    ),
    bind(&[Key::Up, Key::Char('k')], Action::Up, None, "up", always),
    bind(
        &[Key::Down, Key::Char('j')],
        Action::Down,
        None,
        "down",
        always,
    ),
    bind(
        &[Key::PageUp, Key::Ctrl('b')],
        Action::PageUp,
        None,
        "a page up",
        always,
    ),
    bind(
        &[Key::PageDown, Key::Ctrl('f')],
        Action::PageDown,
        None,
        "a page down",
        always,
    ),
    bind(
        &[Key::Home, Key::Char('g')],
        Action::First,
        None,
        "to the first",
        always,
    ),
    bind(
        &[Key::End, Key::Char('G')],
        Action::Last,
        None,
        "to the last",
        always,
    ),
    bind(
        &[Key::Ctrl('l')],
        Action::Redraw,
        None,
        "draw the screen anew",
        always,
    ),
    bind(
        &[Key::Ctrl('z')],
        Action::Suspend,
        None,
        "back to the shell; fg returns",
        always,
    ),
];

/// Keys while a filter is typed; other characters are its text.
pub const TYPING: &[Binding] = &[
    bind(&[Key::Enter], Action::Keep, Some("keep"), "keep", always),
    bind(&[Key::Esc], Action::Drop, Some("drop"), "drop", always),
    bind(&[Key::Backspace], Action::Erase, None, "erase", always),
    bind(&[Key::Ctrl('c')], Action::Quit, None, "quit", always),
    bind(&[Key::Ctrl('z')], Action::Suspend, None, "suspend", always),
];

/// The bindings that exist here.
pub fn bindings(at: Context) -> impl Iterator<Item = &'static Binding> {
    let table = if at.typing { TYPING } else { BINDINGS };
    table.iter().filter(move |b| (b.when)(at))
}

/// What a key asks for here.
pub fn on_key(key: Key, at: Context) -> Action {
    let bound = bindings(at).find(|b| b.keys.contains(&key));
    match (bound, key) {
        (Some(binding), _) => binding.action,
        (None, Key::Char(c)) if at.typing => Action::Type(c),
        (None, Key::Char(c)) => View::of_key(c).map_or(Action::Nothing, Action::Show),
        _ => Action::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::PAGES;
    use super::*;

    fn everywhere() -> impl Iterator<Item = Context> {
        PAGES.iter().flat_map(|page| {
            (0..8).map(|bits| Context {
                view: page.view,
                details: bits & 1 > 0,
                replay: bits & 2 > 0,
                typing: bits & 4 > 0,
            })
        })
    }

    #[test]
    fn every_binding_is_reached_and_no_key_has_two_meanings_in_one_place() {
        for at in everywhere() {
            let mut seen = Vec::new();
            for binding in bindings(at) {
                for key in binding.keys {
                    assert_eq!(on_key(*key, at), binding.action, "{} {at:?}", key.name());
                    assert!(!seen.contains(key), "{} {at:?}", key.name());
                    seen.push(*key);
                }
            }
        }
        for binding in BINDINGS {
            let at = everywhere().find(|at| !at.typing && (binding.when)(*at));
            assert!(at.is_some(), "{}", binding.help);
        }
    }

    #[test]
    fn pages_have_their_numbers_and_a_filter_takes_every_character() {
        let at = Context::default();
        for page in PAGES {
            let key = Key::Char(page.view.key());
            assert_eq!(on_key(key, at), Action::Show(page.view));
        }
        assert_eq!(on_key(Key::Char('x'), at), Action::Nothing);
        let typing = Context { typing: true, ..at };
        for c in ['q', '1', '?', '/', '备'] {
            assert_eq!(on_key(Key::Char(c), typing), Action::Type(c));
        }
    }
}
