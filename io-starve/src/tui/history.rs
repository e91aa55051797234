//! What the screen showed in the last ten minutes, to go back to: every snapshot of the last minute, then one in five seconds.
//!
//! Kept compressed, so that a busy machine fits too; where even that is too much the oldest go first.

use std::{collections::VecDeque, sync::Arc};

use crate::model::snapshot::Snapshot;

/// How far back it goes, in ns.
const KEEP_NS: u64 = 600_000_000_000;
/// For so long every snapshot is kept, in ns.
const EVERY_NS: u64 = 60_000_000_000;
/// Of what is older, one in so long, in ns.
const STEP_NS: u64 = 5_000_000_000;
/// All that is kept, in bytes; the budget of the design.
const MAX_BYTES: usize = 24 << 20;
/// The fastest level: the text of figures shrinks to a tenth by it.
const LEVEL: i32 = 1;

/// Snapshots of the past, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    moments: VecDeque<Moment>,
    bytes: usize,
    /// Ids of the findings that were open in the newest.
    open: Vec<String>,
    /// The step in which older ones were thinned last.
    thinned: u64,
}

#[derive(Debug, Clone)]
struct Moment {
    mono_ns: u64,
    /// A finding is open in it that was not in the one before.
    opened: bool,
    /// JSON, compressed.
    packed: Box<[u8]>,
}

impl Moment {
    fn bytes(&self) -> usize {
        self.packed.len() + size_of::<Moment>()
    }
}

fn pack(snapshot: &Snapshot) -> Option<Box<[u8]>> {
    let json = serde_json::to_vec(snapshot).ok()?;
    let packed = zstd::bulk::compress(&json, LEVEL).ok()?;
    Some(packed.into_boxed_slice())
}

fn unpack(packed: &[u8]) -> Option<Snapshot> {
    let json = zstd::stream::decode_all(packed).ok()?;
    serde_json::from_slice(&json).ok()
}

impl History {
    /// Keeps a snapshot; one that is not later than the newest is not.
    pub fn push(&mut self, snapshot: &Snapshot) {
        let newest = self.moments.back().map(|m| m.mono_ns);
        if newest.is_some_and(|ns| snapshot.mono_ns <= ns) || snapshot.mono_ns == 0 {
            return;
        }
        let Some(packed) = pack(snapshot) else { return };
        let open: Vec<String> = snapshot
            .findings
            .iter()
            .filter(|f| f.closed.is_none())
            .map(|f| f.id.clone())
            .collect();
        let opened = open.iter().any(|id| !self.open.contains(id));
        self.open = open;
        let moment = Moment {
            mono_ns: snapshot.mono_ns,
            opened,
            packed,
        };
        self.bytes += moment.bytes();
        self.moments.push_back(moment);
        self.thin(snapshot.mono_ns);
    }

    fn thin(&mut self, now: u64) {
        let step = now / STEP_NS;
        if step != self.thinned {
            self.thinned = step;
            let every_from = now.saturating_sub(EVERY_NS);
            let mut border = self.moments.partition_point(|m| m.mono_ns < every_from);
            let mut at = 1;
            while at < border {
                let step = |i: usize| self.moments[i].mono_ns / STEP_NS;
                if step(at) != step(at - 1) {
                    at += 1;
                    continue;
                }
                // The earlier of the two goes, with its mark to the one that stays, in which a finding is still open.
                if let Some(gone) = self.moments.remove(at - 1) {
                    self.bytes -= gone.bytes();
                    self.moments[at - 1].opened |= gone.opened;
                }
                border -= 1;
            }
        }
        while let Some(first) = self.moments.front() {
            let old = now.saturating_sub(first.mono_ns) > KEEP_NS;
            if !old && (self.bytes <= MAX_BYTES || self.moments.len() == 1) {
                break;
            }
            self.bytes -= first.bytes();
            self.moments.pop_front();
        }
    }

    /// The moment of the last kept before this one, ns monotonic.
    pub fn before(&self, ns: u64) -> Option<u64> {
        let at = self.moments.partition_point(|m| m.mono_ns < ns);
        Some(self.moments.get(at.checked_sub(1)?)?.mono_ns)
    }

    /// The moment of the first kept after this one, ns monotonic.
    pub fn after(&self, ns: u64) -> Option<u64> {
        let at = self.moments.partition_point(|m| m.mono_ns <= ns);
        self.moments.get(at).map(|m| m.mono_ns)
    }

    /// The moment of the first kept after this one in which a finding opened.
    pub fn opened_after(&self, ns: u64) -> Option<u64> {
        let mut later = self.moments.iter().filter(|m| m.mono_ns > ns);
        later.find(|m| m.opened).map(|m| m.mono_ns)
    }

    /// The moment of the last kept before this one in which a finding opened.
    pub fn opened_before(&self, ns: u64) -> Option<u64> {
        let mut earlier = self.moments.iter().rev().filter(|m| m.mono_ns < ns);
        earlier.find(|m| m.opened).map(|m| m.mono_ns)
    }

    /// The snapshot of a moment that is kept.
    pub fn at(&self, ns: u64) -> Option<Arc<Snapshot>> {
        let at = self.moments.partition_point(|m| m.mono_ns < ns);
        let moment = self.moments.get(at).filter(|m| m.mono_ns == ns)?;
        unpack(&moment.packed).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;

    fn filled(snapshot: &Snapshot, ticks: u64) -> History {
        let mut history = History::default();
        let mut snap = snapshot.clone();
        for tick in 0..ticks {
            snap.mono_ns = 5_000 * S + tick * 250 * MS;
            snap.requests_seen += tick;
            history.push(&snap);
        }
        history
    }

    #[test]
    fn a_snapshot_comes_back_as_it_was() {
        for (name, mut snap) in fixtures::all() {
            snap.mono_ns = 7 * S;
            let mut history = History::default();
            history.push(&snap);
            assert_eq!(*history.at(7 * S).unwrap(), snap, "{name}");
        }
    }

    #[test]
    fn the_last_minute_is_kept_by_the_tick_and_ten_minutes_by_five_seconds() {
        let history = filled(&fixtures::starving(), 4 * 700);
        let now = 5_000 * S + (4 * 700 - 1) * 250 * MS;
        assert!(
            (340..=380).contains(&history.moments.len()),
            "{}",
            history.moments.len()
        );
        let mut at = now;
        for _ in 0..240 {
            let before = history.before(at).unwrap();
            assert_eq!(at - before, 250 * MS);
            at = before;
        }
        let mut steps = 0;
        while let Some(before) = history.before(at) {
            assert!(at - before <= 10 * S, "{steps}: {}", at - before);
            assert_eq!(history.after(before), Some(at));
            at = before;
            steps += 1;
        }
        assert!((106..=132).contains(&steps), "{steps}");
        assert!((590 * S..=600 * S).contains(&(now - at)));
        let sum: usize = history.moments.iter().map(Moment::bytes).sum();
        assert_eq!(sum, history.bytes);
    }

    #[test]
    fn a_crowded_machine_fits_too() {
        let snap = fixtures::crowded();
        let each = pack(&snap).unwrap().len();
        assert!(each * 350 < MAX_BYTES, "{each}");
        // Too much all the same: the oldest go.
        let mut history = filled(&snap, 12);
        history.bytes += MAX_BYTES - 6 * each;
        let mut later = snap;
        later.mono_ns = 6_000 * S;
        history.push(&later);
        assert!(history.moments.len() < 10, "{}", history.moments.len());
        assert!(history.at(6_000 * S).is_some(), "the newest stays");
    }

    #[test]
    fn moments_of_findings_are_found_and_survive_thinning() {
        let mut history = History::default();
        let mut at = |second: u64, snap: &Snapshot| {
            let mut snap = snap.clone();
            snap.mono_ns = 1_000 * S + second * S;
            history.push(&snap);
        };
        for second in 0..200 {
            match second {
                33..50 => at(second, &fixtures::starving()),
                _ => at(second, &fixtures::healthy()),
            }
        }
        let begin = 1_000 * S;
        let found = history.opened_after(begin).unwrap();
        assert!(
            (33 * S..=35 * S).contains(&(found - begin)),
            "{}",
            found - begin
        );
        assert_eq!(history.opened_after(found), None);
        assert_eq!(history.opened_before(begin + 199 * S), Some(found));
        assert_eq!(history.opened_before(found), None);
    }
}
