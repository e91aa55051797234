//! Counts of tests, with what is to be said of those that failed.

/// How many passed and were skipped, and which failed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: usize,
    /// What failed, each with its reasons below it: it is told again at the very end, since a log in between may be cut.
    pub failed: Vec<String>,
    /// Skipped.
    pub skipped: usize,
}

impl Tally {
    /// Adds other counts.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped += other.skipped;
    }

    /// Nothing failed.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    /// Names what failed, then the counts.
    pub fn print(&self) {
        for failed in &self.failed {
            println!("failed {failed}");
        }
        println!(
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failed.len(),
            self.skipped
        );
    }
}
