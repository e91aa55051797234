//! Limits of blk-throttle, by cgroup.
//!
//! In: the cgroups that there are, and their `io.max` (v1: `blkio.throttle.*`). Out: facts, only those that changed. A file that
//! cannot be read tells no limit.
//!
//! Nothing tells that a limit changes, so the files are read again and again. One costs some 4 us of CPU, and there may be 10,000
//! cgroups with four of them each (v1), so a second has room for [`FILES_PER_S`]:
//!
//! - cgroups that had a limit: all of them every second, as long as there are 2,048 of these at most (512 with v1);
//! - cgroups that were just made, whose limits are set by whoever made them: at every call, for [`YOUNG_NS`];
//! - cgroups that hold an I/O back at this moment, so must have a limit: at once;
//! - the others in turn: each is read every second with up to 2,048 cgroups (512 with v1), every 5 s with 10,000 (20 s).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::File,
    io::Read as _,
    path::Path,
};

use super::{cgroups::Cgroups, devices::parse_dev};
use crate::model::observation::{CgroupMode, DevId, Fact, LimitFact, Limits};

/// How many files are read in a second at most to find new limits, and as many to see known ones change.
const FILES_PER_S: u64 = 2_048;
/// How long a new cgroup is read at every call, in ns. Container runtimes and systemd set limits within milliseconds; a script
/// takes a second.
const YOUNG_NS: u64 = 3_000_000_000;
/// How many new cgroups are read at every call, the newest; the others come in turn.
const MAX_YOUNG: usize = 64;
/// A longer file is cut: this is room for 10,000 disks.
const MAX_FILE: u64 = 1 << 20;

type Field = fn(&mut Limits) -> &mut Option<u64>;

/// The files of v1, and the limit that each of them sets.
const V1_FILES: [(&str, Field); 4] = [
    ("blkio.throttle.read_bps_device", |l| &mut l.rbps),
    ("blkio.throttle.write_bps_device", |l| &mut l.wbps),
    ("blkio.throttle.read_iops_device", |l| &mut l.riops),
    ("blkio.throttle.write_iops_device", |l| &mut l.wiops),
];

/// All limits, as last read.
#[derive(Debug, Default)]
pub struct LimitReader {
    /// Cgroups with a limit.
    known: BTreeMap<u64, Vec<(DevId, Limits)>>,
    /// The last of the known that was read again.
    reread: u64,
    /// The last of all that was read in turn.
    walked: u64,
    /// New cgroups, and until when they count as new.
    young: VecDeque<(u64, u64)>,
    /// The highest id so far: the kernel counts ids of a hierarchy up and gives none twice (`__kernfs_new_node`).
    newest: u64,
    last_ns: Option<u64>,
    buffer: Vec<u8>,
}

impl LimitReader {
    /// Reads those whose turn it is, all at the first call, and says what changed. `now` is ns monotonic.
    pub fn refresh(&mut self, cgroups: &Cgroups, now: u64) -> Vec<Fact> {
        let files = match cgroups.hierarchy().map(|h| h.mode) {
            Some(CgroupMode::V2) => 1,
            Some(CgroupMode::V1) => V1_FILES.len() as u64,
            Some(CgroupMode::None) | None => return Vec::new(),
        };
        let all = cgroups.alive();
        let mut due = BTreeSet::new();
        if let Some(last) = self.last_ns {
            for id in all
                .range(self.newest.saturating_add(1)..)
                .map(|(id, _)| *id)
            {
                self.young.push_back((id, now.saturating_add(YOUNG_NS)));
            }
            let crowd = self.young.len().saturating_sub(MAX_YOUNG);
            self.young.drain(..crowd);
            due.extend(self.young.iter().map(|(id, _)| *id));
            self.young.retain(|(_, until)| now < *until);

            let since = now.saturating_sub(last);
            let turn = |count: usize| turn(count, FILES_PER_S / files, since);
            due.extend(take_turn(
                &self.known,
                &mut self.reread,
                turn(self.known.len()),
            ));
            due.extend(take_turn(all, &mut self.walked, turn(all.len())));
        } else {
            due.extend(all.keys());
        }
        if let Some((id, _)) = all.last_key_value() {
            self.newest = self.newest.max(*id);
        }
        self.last_ns = Some(now);
        self.read(cgroups, due)
    }

    /// Reads those that hold something back, unless their limits are known.
    pub fn of_holders(
        &mut self,
        cgroups: &Cgroups,
        holders: impl Iterator<Item = u64>,
    ) -> Vec<Fact> {
        let new: BTreeSet<u64> = holders.filter(|id| !self.known.contains_key(id)).collect();
        self.read(cgroups, new)
    }

    fn read(&mut self, cgroups: &Cgroups, ids: BTreeSet<u64>) -> Vec<Fact> {
        let Some(mode) = cgroups.hierarchy().map(|h| h.mode) else {
            return Vec::new();
        };
        let mut facts = Vec::new();
        for id in ids {
            let now = match cgroups.dir(id) {
                Some(dir) => limits(&dir, mode, &mut self.buffer),
                None => Vec::new(),
            };
            if self.known.get(&id).map_or(&[][..], Vec::as_slice) == now {
                continue;
            }
            if now.is_empty() {
                self.known.remove(&id);
            } else {
                self.known.insert(id, now.clone());
            }
            facts.push(Fact::Limits(LimitFact { id, disks: now }));
        }
        facts
    }
}

/// How many of `count` are read after `since` ns, so that none waits longer than a second, or `per_s` are read in a second.
fn turn(count: usize, per_s: u64, since: u64) -> usize {
    let a_second = per_s.min(count as u64);
    (a_second * since.min(1_000_000_000)).div_ceil(1_000_000_000) as usize
}

/// The next `count` after the last one, beginning anew behind the end; each once.
fn take_turn<V>(of: &BTreeMap<u64, V>, last: &mut u64, count: usize) -> Vec<u64> {
    let behind = of.range(last.saturating_add(1)..);
    let next: Vec<u64> = behind
        .chain(of.range(..=*last))
        .take(count)
        .map(|(id, _)| *id)
        .collect();
    if let Some(id) = next.last() {
        *last = *id;
    }
    next
}

fn limits(dir: &Path, mode: CgroupMode, buffer: &mut Vec<u8>) -> Vec<(DevId, Limits)> {
    let mut disks: BTreeMap<DevId, Limits> = BTreeMap::new();
    if mode == CgroupMode::V1 {
        for (file, limit) in V1_FILES {
            for line in text(&dir.join(file), buffer).lines() {
                let parsed = line
                    .split_once(' ')
                    .and_then(|(dev, n)| Some((parse_dev(dev)?, n.trim().parse().ok()?)));
                if let Some((dev, n)) = parsed {
                    *limit(disks.entry(dev).or_default()) = Some(n);
                }
            }
        }
    } else {
        for line in text(&dir.join("io.max"), buffer).lines() {
            let mut words = line.split_whitespace();
            let Some(dev) = words.next().and_then(parse_dev) else {
                continue;
            };
            let all = disks.entry(dev).or_default();
            for (key, value) in words.filter_map(|w| w.split_once('=')) {
                // `max` is no number, so no limit.
                let value = value.parse().ok();
                match key {
                    "rbps" => all.rbps = value,
                    "wbps" => all.wbps = value,
                    "riops" => all.riops = value,
                    "wiops" => all.wiops = value,
                    _ => {}
                }
            }
        }
    }
    disks.retain(|_, l| !l.is_empty());
    disks.into_iter().collect()
}

/// Without asking for the size first: it is 0 here, and the question costs as much as reading.
fn text<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> std::borrow::Cow<'a, str> {
    buffer.clear();
    buffer.reserve(4_096);
    let read = File::open(path).and_then(|f| f.take(MAX_FILE).read_to_end(buffer));
    if read.is_err() {
        buffer.clear();
    }
    String::from_utf8_lossy(buffer)
}

/// A cgroup that has a limit needs a name, though it may do no I/O itself: it may be above those who do.
pub fn limited(fact: &Fact) -> Option<u64> {
    match fact {
        Fact::Limits(l) if !l.disks.is_empty() => Some(l.id),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
