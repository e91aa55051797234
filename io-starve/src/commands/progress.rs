//! How far a long replay has come, for whoever sends its lines elsewhere and looks at a terminal meanwhile.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use tokio::time::Instant;

use crate::{output::format, source::input::Progress};

/// Time between two looks: a second is long to wait for, and more often is not seen.
const EVERY: Duration = Duration::from_millis(250);

/// A line on standard error that is written over again and again.
pub(super) struct Bar {
    progress: Option<Progress>,
    due: Option<Instant>,
    shown: bool,
}

impl Bar {
    /// A bar, where it is seen and disturbs nothing: standard error is a terminal, and standard output is none.
    pub(super) fn new(progress: Option<Progress>) -> Bar {
        let wanted = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
        Bar {
            progress: progress.filter(|_| wanted),
            due: None,
            shown: false,
        }
    }

    /// Shows how far it has come, when that was not done just now.
    pub(super) fn tick(&mut self) {
        let Some(progress) = &self.progress else {
            return;
        };
        let now = Instant::now();
        // What takes no longer than this needs no bar.
        let due = *self.due.get_or_insert(now + EVERY);
        if now >= due {
            self.due = Some(now + EVERY);
            self.shown = true;
            let _ = write!(std::io::stderr(), "\r{}\x1b[K", words(progress));
        }
    }

    /// Leaves an empty line.
    pub(super) fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn words(progress: &Progress) -> String {
    let read = progress.read();
    match progress.total() {
        Some(total) if total > 0 => {
            let part = (read as f64 / total as f64).min(1.0);
            let filled = (part * 30.0) as usize;
            format!(
                "[{}{}] {:3.0} % of {}",
                "#".repeat(filled),
                ".".repeat(30 - filled),
                part * 100.0,
                format::bytes(total)
            )
        }
        _ => format!("{} read", format::bytes(read)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_where_the_end_is_known_and_a_size_elsewhere() {
        let half = Progress::default();
        half.add_total(2 << 20);
        half.count(1 << 20);
        assert_eq!(
            words(&half),
            "[###############...............]  50 % of 2 MiB"
        );
        let pipe = Progress::default();
        pipe.count(3 << 20);
        assert_eq!(words(&pipe), "3 MiB read");
        // A file that grows meanwhile.
        half.count(9 << 20);
        assert!(words(&half).contains("100 %"));
    }
}
