//! Limits storms: how many findings of one kind and victim are told in a minute. Pure.
//!
//! In: findings that would be told. Out: whether this one is, and how many before it were not. A finding that is worse
//! than all that were told of its kind and victim in that minute is always told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use crate::{
    detect::finding::{Finding, Kind, Severity},
    model::observation::Owner,
};

/// For how long a told finding counts, in ns.
const WINDOW_NS: u64 = 60_000_000_000;
/// Findings of one kind and victim that are told in that time. One whose condition comes and goes opens every 10 s at most, since it
/// is held open for so long: half of those are told.
const PER_OWNER: usize = 3;
/// Findings of one kind that are told in that time, whoever waits: more of them say nothing new.
const PER_KIND: usize = 30;

/// What was told of late, and what was not.
#[serde_as]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Storm {
    #[serde_as(as = "Vec<(_, _)>")]
    groups: BTreeMap<(Kind, Owner), Group>,
    /// Open findings that are not told.
    hidden: BTreeSet<String>,
    folded: u64,
}

/// Findings of one kind and victim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Group {
    /// (when, how bad) of those told of late, oldest first.
    told: VecDeque<(u64, Severity)>,
    /// Not told since the last that was.
    folded: u64,
    /// When one was last seen, ns monotonic.
    seen_ns: u64,
}

impl Storm {
    /// True when an untold finding is to be told now.
    pub fn admits(&mut self, now: u64, finding: &Finding) -> bool {
        self.forget(now);
        let of_kind: usize = self
            .groups
            .iter()
            .filter(|((kind, _), _)| *kind == finding.kind)
            .map(|(_, g)| g.told.len())
            .sum();
        let key = (finding.kind, finding.victim);
        let group = self.groups.entry(key).or_default();
        group.seen_ns = now;
        let worst = group.told.iter().map(|(_, severity)| *severity).max();
        let worse = worst.is_some_and(|worst| finding.severity > worst);
        let room = group.told.len() < PER_OWNER && of_kind < PER_KIND;
        if !(worse || room) {
            if self.hidden.insert(finding.id.clone()) {
                group.folded += 1;
                self.folded += 1;
            }
            return false;
        }
        group.told.push_back((now, finding.severity));
        if self.hidden.remove(&finding.id) {
            group.folded = group.folded.saturating_sub(1);
            self.folded = self.folded.saturating_sub(1);
        }
        true
    }

    /// A finding ended that was not told.
    pub fn ended(&mut self, id: &str) {
        self.hidden.remove(id);
    }

    /// How many findings like this were folded since this was last asked.
    pub fn take_folded(&mut self, finding: &Finding) -> u64 {
        let group = self.groups.get_mut(&(finding.kind, finding.victim));
        group.map_or(0, |g| std::mem::take(&mut g.folded))
    }

    /// How many findings were never told.
    pub fn folded(&self) -> u64 {
        self.folded
    }

    fn forget(&mut self, now: u64) {
        let old = |at: u64| now.saturating_sub(at) >= WINDOW_NS;
        self.groups.retain(|_, group| {
            while group.told.front().is_some_and(|(at, _)| old(*at)) {
                group.told.pop_front();
            }
            // What was folded is kept for a while, so that the next one can tell it.
            !(group.told.is_empty()
                && (group.folded == 0 || now.saturating_sub(group.seen_ns) >= 60 * WINDOW_NS))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    const S: u64 = 1_000_000_000;

    fn finding(id: u64, victim: u64, severity: Severity) -> Finding {
        Finding {
            id: id.to_string(),
            victim: Owner::Cgroup(victim),
            severity,
            ..fixtures::starving().findings[0].clone()
        }
    }

    #[test]
    fn the_fourth_in_a_minute_is_folded_and_the_next_told_one_says_so() {
        let mut storm = Storm::default();
        let told: Vec<bool> = (0..6)
            .map(|i| storm.admits(i * 5 * S, &finding(i, 7, Severity::Warning)))
            .collect();
        assert_eq!(told, [true, true, true, false, false, false]);
        assert_eq!(storm.folded(), 3);
        let next = finding(9, 7, Severity::Warning);
        assert!(storm.admits(61 * S, &next));
        assert_eq!(storm.take_folded(&next), 3);
        assert_eq!(storm.take_folded(&next), 0, "told once");
        assert_eq!(storm.folded(), 3);
    }

    #[test]
    fn another_victim_and_a_worse_finding_are_told() {
        let mut storm = Storm::default();
        for i in 0..4 {
            storm.admits(S, &finding(i, 7, Severity::Warning));
        }
        assert!(storm.admits(S, &finding(10, 8, Severity::Warning)));
        assert!(storm.admits(S, &finding(11, 7, Severity::Critical)));
        assert!(!storm.admits(S, &finding(12, 7, Severity::Critical)));
    }

    #[test]
    fn a_folded_finding_that_lasts_is_told_when_there_is_room_and_no_longer_counts() {
        let mut storm = Storm::default();
        for i in 0..4 {
            storm.admits(S, &finding(i, 7, Severity::Warning));
        }
        assert_eq!(storm.folded(), 1);
        assert!(!storm.admits(11 * S, &finding(3, 7, Severity::Warning)));
        assert_eq!(storm.folded(), 1, "counted once");
        assert!(storm.admits(62 * S, &finding(3, 7, Severity::Warning)));
        assert_eq!(storm.folded(), 0);
    }

    #[test]
    fn many_victims_of_one_kind_are_limited_too_and_all_is_forgotten() {
        let mut storm = Storm::default();
        let told = (0..200)
            .filter(|i| storm.admits(S, &finding(*i, *i, Severity::Warning)))
            .count();
        assert_eq!((told, storm.folded()), (30, 170));
        for i in 0..200 {
            storm.ended(&i.to_string());
        }
        storm.admits(4_000 * S, &finding(0, 0, Severity::Warning));
        assert_eq!((storm.groups.len(), storm.hidden.len()), (1, 0));
    }
}
