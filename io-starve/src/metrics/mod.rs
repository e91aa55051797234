//! Figures for Prometheus.
//!
//! In: observations and snapshots. Out: families of samples ([`families`]), written in the notation that a scraper asks for
//! ([`text`]) and served by [`server`], the only part that is not pure. Counters only grow while their series is there. The number of
//! series is bounded: disks and owners beyond the bound are summed as "other". Labels are names and paths, never ids.

pub mod families;
mod owners;
pub mod server;
pub mod tally;
pub mod text;

use io_starve_common::hist;

/// Upper bounds of the classic histograms, as shifts of 1 ns: 66 us to 69 s, each four times the one before. They
/// are bounds of the programs' own buckets, so that nothing is guessed.
const BOUND_SHIFTS: [u32; 11] = [16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36];

/// Buckets of a histogram, the last of which has no upper bound.
pub const BUCKETS: usize = BOUND_SHIFTS.len() + 1;

/// Upper bound of a bucket in seconds; infinite for the last.
pub fn upper_bound(bucket: usize) -> f64 {
    match BOUND_SHIFTS.get(bucket) {
        Some(shift) => (1_u64 << shift) as f64 / 1e9,
        None => f64::INFINITY,
    }
}

/// The bucket that holds one of the programs' buckets.
fn bucket_of(fine: u8) -> usize {
    let low = hist::lower_bound(u32::from(fine).min(hist::BUCKETS as u32 - 1));
    BOUND_SHIFTS
        .iter()
        .filter(|shift| low >= 1 << **shift)
        .count()
}

/// What a family holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// Samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name without the suffix of its type; ends with its unit.
    pub name: &'static str,
    /// Base unit; empty for plain numbers.
    pub unit: &'static str,
    /// What it says, in a sentence.
    pub help: &'static str,
    /// What it holds.
    pub kind: Type,
    /// One for each set of labels.
    pub samples: Vec<Sample>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The figure.
    pub value: Value,
}

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
    /// Counts by bucket, not summed up, and the sum of all values.
    Histogram([u64; BUCKETS], f64),
}

impl Family {
    /// How many series it has.
    pub fn series(&self) -> usize {
        let each = match self.kind {
            Type::Histogram => BUCKETS + 2,
            Type::Counter | Type::Gauge => 1,
        };
        self.samples.len() * each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fine_bucket_lies_within_its_coarse_one() {
        for fine in 0..hist::BUCKETS as u8 {
            let coarse = bucket_of(fine);
            let low = hist::lower_bound(u32::from(fine)) as f64 / 1e9;
            let high = hist::lower_bound(u32::from(fine) + 1) as f64 / 1e9;
            assert!(low < upper_bound(coarse) && (coarse == 0 || low >= upper_bound(coarse - 1)));
            if usize::from(fine) + 1 < hist::BUCKETS {
                assert!(high <= upper_bound(coarse), "{fine}");
            }
        }
    }
}
