//! Colours and glyphs. Only the terminal's own palette and no background of ours, so that light and dark screens both
//! work; every colour repeats what a word on the same line says.

use ratatui::style::{Color, Modifier, Style};

use crate::detect::finding::Severity;

/// How the screen may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    /// Colours may be used; bold, dim and reversed always are.
    pub color: bool,
    /// Nothing but ASCII is written.
    pub ascii: bool,
}

/// What a piece of text is, as far as its looks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Ordinary.
    Plain,
    /// A title or a column's name.
    Title,
    /// Of less interest: closed, nothing, a label.
    Dim,
    /// Worth a look.
    Strong,
    /// All is well.
    Good,
    /// Something needs attention, or could not be seen.
    Warning,
    /// Something is badly wrong.
    Critical,
}

impl Role {
    /// The role of a severity.
    pub const fn of(severity: Severity) -> Role {
        match severity {
            Severity::Info => Role::Strong,
            Severity::Warning => Role::Warning,
            Severity::Critical => Role::Critical,
        }
    }
}

impl Theme {
    /// The style of a role.
    pub fn style(self, role: Role) -> Style {
        // Magenta, because yellow cannot be read on white and blue cannot on black.
        let (modifier, color) = match role {
            Role::Plain => (Modifier::empty(), None),
            Role::Title => (Modifier::BOLD, None),
            Role::Dim => (Modifier::DIM, None),
            Role::Strong => (Modifier::BOLD, None),
            Role::Good => (Modifier::empty(), Some(Color::Green)),
            Role::Warning => (Modifier::BOLD, Some(Color::Magenta)),
            Role::Critical => (Modifier::BOLD, Some(Color::Red)),
        };
        let style = Style::new().add_modifier(modifier);
        match color.filter(|_| self.color) {
            Some(color) => style.fg(color),
            None => style,
        }
    }

    /// What a horizontal line is made of.
    pub const fn rule(self) -> &'static str {
        if self.ascii { "-" } else { "─" }
    }

    /// Stands where text was cut.
    pub const fn ellipsis(self) -> &'static str {
        if self.ascii { "~" } else { "…" }
    }

    /// What a bar's parts are made of: own data, journal, flush, other. Neighbours differ most.
    pub const fn parts(self) -> [char; 4] {
        if self.ascii {
            ['-', '#', '=', '.']
        } else {
            ['░', '█', '▒', '·']
        }
    }

    /// What the bar of places is made of: dirty, held, admission, queued, device. Neighbours differ most.
    pub const fn places(self) -> [char; 5] {
        if self.ascii {
            ['w', 'h', 'a', 'Q', '.']
        } else {
            ['▓', '▚', '░', '█', '·']
        }
    }

    /// Low to high, in one column.
    pub const fn levels(self) -> [char; 8] {
        if self.ascii {
            ['_', '.', '-', '=', '+', '*', '%', '#']
        } else {
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        }
    }

    /// Few to many, in one column; none is blank.
    pub const fn shades(self) -> [char; 4] {
        if self.ascii {
            ['.', '+', '*', '#']
        } else {
            ['·', '░', '▒', '█']
        }
    }

    /// Between things of a list on one line.
    pub const fn dot(self) -> &'static str {
        if self.ascii { " | " } else { " · " }
    }
}
