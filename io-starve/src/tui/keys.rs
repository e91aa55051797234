//! Keys as they come from a terminal, and what is written on them.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

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
    /// Backspace.
    Backspace,
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
            KeyCode::Esc => Key::Esc,
            KeyCode::Backspace => Key::Backspace,
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
            Key::Backspace => "Backspace",
            Key::Tab => "Tab",
            Key::BackTab => "Shift-Tab",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
