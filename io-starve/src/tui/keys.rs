//! Keys: one table that both acts and explains itself. The help page and the hints in the last line are made from
//! the table that [`on_key`] looks into, so neither can name a key that does something else.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::View;

/// A key press, without what no binding uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character as typed, shift applied.
    Char(char),
    /// A letter with the control key, in lower case.
    Ctrl(char),
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tabulator.
    Tab,
    /// Tabulator with shift.
    BackTab,
}

impl Key {
    /// The key of a terminal event; `None` for releases and for keys that nothing is bound to.
    pub fn from_event(event: &KeyEvent) -> Option<Key> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        Some(match event.code {
            KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::CONTROL) => {
                Key::Ctrl(c.to_ascii_lowercase())
            }
            KeyCode::Char(c) => Key::Char(c),
            KeyCode::Up => Key::Up,
            KeyCode::Down => Key::Down,
            KeyCode::Left => Key::Left,
            KeyCode::Right => Key::Right,
            KeyCode::PageUp => Key::PageUp,
            KeyCode::PageDown => Key::PageDown,
            KeyCode::Home => Key::Home,
            KeyCode::End => Key::End,
            KeyCode::Enter => Key::Enter,
            KeyCode::Esc | KeyCode::Backspace => Key::Esc,
            KeyCode::Tab => Key::Tab,
            KeyCode::BackTab => Key::BackTab,
            _ => return None,
        })
    }

    /// What is written on the key.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Key::Char(' ') => "Space",
            Key::Char(c) => return c.to_string().into(),
            Key::Ctrl(c) => return format!("Ctrl-{}", c.to_ascii_uppercase()).into(),
            Key::Up => "Up",
            Key::Down => "Down",
            Key::Left => "Left",
            Key::Right => "Right",
            Key::PageUp => "PgUp",
            Key::PageDown => "PgDn",
            Key::Home => "Home",
            Key::End => "End",
            Key::Enter => "Enter",
            Key::Esc => "Esc",
            Key::Tab => "Tab",
            Key::BackTab => "Shift-Tab",
        })
    }
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The key is not bound.
    Nothing,
    /// Leave the program.
    Quit,
    /// Give the terminal back and stop, until continued by the shell.
    Suspend,
    /// Draw everything anew, in case something else wrote on the terminal.
    Redraw,
    /// Show or hide the keys.
    Help,
    /// Hold the picture, or follow the machine again.
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
}

const fn bind(
    keys: &'static [Key],
    action: Action,
    hint: Option<&'static str>,
    help: &'static str,
) -> Binding {
    Binding {
        keys,
        action,
        help,
        hint,
    }
}

/// Every binding, in the order of the help page.
pub const BINDINGS: &[Binding] = &[
    bind(
        &[Key::Char('q'), Key::Ctrl('c')],
        Action::Quit,
        Some("quit"),
        "quit",
    ),
    bind(
        &[Key::Char('?')],
        Action::Help,
        Some("help"),
        "show or hide this page",
    ),
    bind(
        &[Key::Char('p'), Key::Char(' ')],
        Action::Pause,
        Some("pause"),
        "hold the picture, go on",
    ),
    bind(
        &[Key::Char('s')],
        Action::Sort,
        Some("sort"),
        "next order of the disks or owners",
    ),
    bind(
        &[Key::Enter],
        Action::Open,
        Some("open"),
        "a finding or fsync in full, or the owners of a disk",
    ),
    bind(&[Key::Esc], Action::Back, Some("back"), "back"),
    bind(&[Key::Tab], Action::NextView, Some("view"), "next view"),
    bind(&[Key::BackTab], Action::PreviousView, None, "view before"),
    bind(
        &[Key::Char('1')],
        Action::Show(View::Overview),
        None,
        "overview: findings and disks",
    ),
    bind(
        &[Key::Char('2')],
        Action::Show(View::Device),
        None,
        "disk: its stages, tunables and owners",
    ),
    bind(
        &[Key::Char('3')],
        Action::Show(View::Findings),
        None,
        "findings: open and recently closed",
    ),
    bind(
        &[Key::Char('4')],
        Action::Show(View::Fsync),
        None,
        "fsync: slow ones, whom they wait for, limits that hold",
    ),
    bind(
        &[Key::Char('5')],
        Action::Show(View::Coverage),
        None,
        "coverage: hooks, losses, what they hide",
    ),
    bind(
        &[Key::Char('6')],
        Action::Show(View::Dirty),
        None,
        "dirty: writers that are paused, loop devices",
    ),
    bind(
        &[Key::Char('7')],
        Action::Show(View::Shares),
        None,
        "cgroups: shares of disks, by weight and got",
    ),
    bind(&[Key::Up, Key::Char('k')], Action::Up, None, "up"),
    bind(&[Key::Down, Key::Char('j')], Action::Down, None, "down"),
    bind(
        &[Key::PageUp, Key::Ctrl('b')],
        Action::PageUp,
        None,
        "a page up",
    ),
    bind(
        &[Key::PageDown, Key::Ctrl('f')],
        Action::PageDown,
        None,
        "a page down",
    ),
    bind(
        &[Key::Home, Key::Char('g')],
        Action::First,
        None,
        "to the first",
    ),
    bind(
        &[Key::End, Key::Char('G')],
        Action::Last,
        None,
        "to the last",
    ),
    bind(
        &[Key::Left, Key::Char('h')],
        Action::PreviousDevice,
        None,
        "in view 2: disk before",
    ),
    bind(
        &[Key::Right, Key::Char('l')],
        Action::NextDevice,
        None,
        "in view 2: next disk",
    ),
    bind(
        &[Key::Ctrl('l')],
        Action::Redraw,
        None,
        "draw the screen anew",
    ),
    bind(
        &[Key::Ctrl('z')],
        Action::Suspend,
        None,
        "back to the shell; fg returns",
    ),
];

/// What a key asks for.
pub fn on_key(key: Key) -> Action {
    BINDINGS
        .iter()
        .find(|b| b.keys.contains(&key))
        .map_or(Action::Nothing, |b| b.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_is_reached_and_no_key_has_two() {
        for binding in BINDINGS {
            for key in binding.keys {
                assert_eq!(on_key(*key), binding.action, "{}", key.name());
            }
        }
        let mut keys: Vec<_> = BINDINGS.iter().flat_map(|b| b.keys).collect();
        let all = keys.len();
        keys.dedup();
        keys.sort_by_key(|k| k.name());
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert_eq!(on_key(Key::Char('x')), Action::Nothing);
    }

    #[test]
    fn events_become_keys() {
        let event = |code, modifiers| KeyEvent::new(code, modifiers);
        let ctrl_c = event(
            KeyCode::Char('C'),
            KeyModifiers::CONTROL | KeyModifiers::SHIFT,
        );
        assert_eq!(Key::from_event(&ctrl_c), Some(Key::Ctrl('c')));
        let shifted = event(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(Key::from_event(&shifted), Some(Key::Char('G')));
        assert_eq!(
            Key::from_event(&event(KeyCode::F(7), KeyModifiers::NONE)),
            None
        );
        let mut released = event(KeyCode::Char('q'), KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(Key::from_event(&released), None);
    }
}
