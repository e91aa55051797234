//! The pages of the screen: one small table that numbers them, names their tabs and writes their lines in the help.

/// A page of the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Verdict, findings, who waited for whom, disks.
    #[default]
    Overview,
    /// One disk with its owners.
    Device,
    /// fsyncs, and what limits hold.
    Fsync,
    /// Writers that are paused for dirty memory, and loop devices.
    Dirty,
    /// All findings.
    Findings,
    /// Hooks and losses.
    Coverage,
    /// Shares of disks by cgroup.
    Shares,
}

/// What is to be known of a page before it is drawn.
#[derive(Debug)]
pub struct Page {
    /// Which.
    pub view: View,
    /// The word in its tab.
    pub name: &'static str,
    /// Its line in the help.
    pub help: &'static str,
}

/// Every page, in the order of the tabs. A page's key is its place, from 1 on.
pub const PAGES: &[Page] = &[
    Page {
        view: View::Overview,
        name: "overview",
        help: "overview: who starves, who waited for whom, disks",
    },
    Page {
        view: View::Device,
        name: "disk",
        help: "one disk: its stages, waiters, owners",
    },
    Page {
        view: View::Fsync,
        name: "fsync",
        help: "fsyncs that are slow, whom they wait for, limits that hold",
    },
    Page {
        view: View::Dirty,
        name: "dirty",
        help: "writers that are paused for dirty memory, loop devices",
    },
    Page {
        view: View::Findings,
        name: "findings",
        help: "findings, open and recently closed",
    },
    Page {
        view: View::Coverage,
        name: "coverage",
        help: "hooks, losses, and what they hide",
    },
    Page {
        view: View::Shares,
        name: "cgroups",
        help: "cgroups: what weights entitle them to, and what they got",
    },
];

impl View {
    fn place(self) -> usize {
        PAGES.iter().position(|p| p.view == self).unwrap_or(0)
    }

    /// The page behind it; the first behind the last.
    pub fn next(self) -> View {
        PAGES[(self.place() + 1) % PAGES.len()].view
    }

    /// The page before it; the last before the first.
    pub fn previous(self) -> View {
        PAGES[(self.place() + PAGES.len() - 1) % PAGES.len()].view
    }

    /// Its key, as a character.
    pub fn key(self) -> char {
        char::from_digit(self.place() as u32 + 1, 10).unwrap_or(' ')
    }

    /// The page of a key.
    pub fn of_key(key: char) -> Option<View> {
        let place = key.to_digit(10)?.checked_sub(1)?;
        PAGES.get(place as usize).map(|p| p.view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_key_and_the_steps_go_round() {
        let mut view = View::default();
        for (i, page) in PAGES.iter().enumerate() {
            assert_eq!(view, page.view);
            assert_eq!(View::of_key(page.view.key()), Some(page.view));
            assert_eq!(page.view.key().to_string(), (i + 1).to_string());
            assert_eq!(view.next().previous(), view);
            view = view.next();
        }
        assert_eq!(view, View::default());
        assert_eq!(View::of_key('0'), None);
        assert_eq!(View::of_key('9'), None);
        assert!(PAGES.len() <= 9, "a page's key is one digit");
    }
}
