//! Which owners have series of their own. Pure.
//!
//! A fixed number of places goes to those that wait most. One keeps its place, so that its counters only grow, until somebody else waits
//! twice as much; then its series end. Whoever has no place is counted as "other" from that moment on. Owners are told
//! apart by their path: a cgroup that is made again goes on.

use std::collections::BTreeMap;

/// How long a wait counts: it counts half after this time, in ns.
const HALF_LIFE_NS: u64 = 60_000_000_000;
/// How much more somebody without a place must wait than somebody with one, so that two do not take turns.
const LEAD: f64 = 2.0;
/// Owners without a place that are weighed; beyond that those that wait least are forgotten.
const CANDIDATES: usize = 4_096;

/// The name of all that have no place.
pub const OTHER: &str = "other";

/// What is counted for an owner since it has its place. Times are in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that ended.
    pub finished: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time in admission.
    pub admission_ns: u64,
    /// Time between insert and issue.
    pub queued_ns: u64,
    /// Time in which a limit of it held something.
    pub hold_ns: u64,
    /// Time for which it was paused for dirty memory.
    pub pause_ns: u64,
}

impl Counts {
    fn add(&mut self, more: &Counts) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.finished, more.finished);
        sum(&mut self.bytes, more.bytes);
        sum(&mut self.admission_ns, more.admission_ns);
        sum(&mut self.queued_ns, more.queued_ns);
        sum(&mut self.hold_ns, more.hold_ns);
        sum(&mut self.pause_ns, more.pause_ns);
    }
}

#[derive(Debug, Clone, Default)]
struct Place {
    counts: Counts,
    score: f64,
}

/// Owners with and without a place.
#[derive(Debug, Clone)]
pub struct Owners {
    limit: usize,
    places: BTreeMap<String, Place>,
    other: Counts,
    candidates: BTreeMap<String, f64>,
    aged_ns: u64,
}

impl Owners {
    /// With so many places.
    pub fn new(limit: usize) -> Owners {
        Owners {
            limit,
            places: BTreeMap::new(),
            other: Counts::default(),
            candidates: BTreeMap::new(),
            aged_ns: 0,
        }
    }

    /// Adds what came of an owner in a tick, and how long something of it waited in it, in ns.
    pub fn add(&mut self, name: &str, more: &Counts, waited_ns: u64) {
        let has_room = self.places.len() < self.limit && name != OTHER;
        if has_room && !self.places.contains_key(name) {
            self.places.insert(name.to_owned(), Place::default());
            self.candidates.remove(name);
        }
        match self.places.get_mut(name) {
            Some(place) => {
                place.counts.add(more);
                place.score += waited_ns as f64;
            }
            None => {
                self.other.add(more);
                if waited_ns > 0 && name != OTHER {
                    *self.candidates.entry(name.to_owned()).or_default() += waited_ns as f64;
                }
            }
        }
    }

    /// Gives places to those that wait more than who has one, and forgets old waits.
    pub fn settle(&mut self, now: u64) {
        while let Some((least, score)) = self.least() {
            let most = self.candidates.iter().max_by(|a, b| a.1.total_cmp(b.1));
            let Some((name, waits)) = most.filter(|(_, waits)| **waits > score * LEAD + 1.0) else {
                break;
            };
            let (name, score) = (name.clone(), *waits);
            self.candidates.remove(&name);
            if let Some(old) = self.places.remove(&least) {
                self.candidates.insert(least, old.score);
            }
            let counts = Counts::default();
            self.places.insert(name, Place { counts, score });
        }
        let passed = now.saturating_sub(std::mem::replace(&mut self.aged_ns, now));
        let factor = 0.5_f64.powf(passed as f64 / HALF_LIFE_NS as f64);
        for score in self.candidates.values_mut() {
            *score *= factor;
        }
        for place in self.places.values_mut() {
            place.score *= factor;
        }
        // Less than 1 us of waiting is none.
        self.candidates.retain(|_, score| *score > 1_000.0);
        if self.candidates.len() > CANDIDATES {
            let mut all: Vec<_> = std::mem::take(&mut self.candidates).into_iter().collect();
            all.sort_by(|a, b| b.1.total_cmp(&a.1));
            all.truncate(CANDIDATES);
            self.candidates.extend(all);
        }
    }

    fn least(&self) -> Option<(String, f64)> {
        if self.places.len() < self.limit {
            return None;
        }
        let least = self
            .places
            .iter()
            .min_by(|a, b| a.1.score.total_cmp(&b.1.score));
        least.map(|(name, place)| (name.clone(), place.score))
    }

    /// Those with a place, then all others together.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Counts)> {
        let placed = self
            .places
            .iter()
            .map(|(name, p)| (name.as_str(), &p.counts));
        placed.chain([(OTHER, &self.other)])
    }

    /// True for an owner with a place.
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn one(finished: u64) -> Counts {
        Counts {
            finished,
            ..Counts::default()
        }
    }

    fn rows(owners: &Owners) -> Vec<(String, u64)> {
        owners
            .rows()
            .map(|(n, c)| (n.to_owned(), c.finished))
            .collect()
    }

    fn row(name: &str, n: u64) -> (String, u64) {
        (name.to_owned(), n)
    }

    #[test]
    fn the_first_get_the_places_and_the_rest_is_other() {
        let mut owners = Owners::new(2);
        for (name, n) in [("/a", 1), ("/b", 2), ("/c", 3), ("other", 4), ("/a", 10)] {
            owners.add(name, &one(n), 0);
        }
        assert_eq!(
            rows(&owners),
            [row("/a", 11), row("/b", 2), row("other", 7)]
        );
    }

    #[test]
    fn who_waits_twice_as_much_takes_the_place_and_nothing_ever_shrinks() {
        let mut owners = Owners::new(2);
        owners.add("/a", &one(1), 10 * S);
        owners.add("/b", &one(1), 5 * S);
        owners.add("/c", &one(1), 9 * S);
        owners.settle(S);
        assert!(owners.has("/b"), "9 is not twice 5");
        owners.add("/c", &one(1), 9 * S);
        owners.settle(2 * S);
        assert_eq!(rows(&owners), [row("/a", 1), row("/c", 0), row("other", 2)]);
        owners.add("/b", &one(5), 0);
        owners.add("/c", &one(5), 0);
        assert_eq!(rows(&owners), [row("/a", 1), row("/c", 5), row("other", 7)]);
    }

    #[test]
    fn the_dead_are_forgotten_and_memory_is_bounded() {
        let mut owners = Owners::new(4);
        for i in 0..20_000_u64 {
            owners.add(&format!("/{i}"), &one(1), S);
            if i % 100 == 0 {
                owners.settle(i * S / 100);
            }
        }
        owners.settle(200 * S);
        assert!(owners.candidates.len() <= CANDIDATES);
        assert_eq!(owners.places.len(), 4);
        let all: u64 = owners.rows().map(|(_, c)| c.finished).sum();
        assert!(all <= 20_000);
        owners.settle(10_000 * S);
        assert_eq!(owners.candidates.len(), 0);
    }
}
