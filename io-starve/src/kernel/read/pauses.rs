//! Pauses for dirty memory: those that began since the last look, sums of all, and how busy the disks behind them are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use io_starve_common::dirty::{PAUSE_ROWS, PauseFigures, PauseRow, PauseSpan};

use super::{
    super::{
        AttachError,
        devices::{Devices, clean, kernel_name, parse_dev},
        loops::Loops,
        table::Table,
        tasks::Names,
    },
    counters,
};
use crate::model::observation::{Busy, DevId, DirtyFigures, Owner, Pause, PauseDelta, Worker};

/// Pauses that are kept until it is known how long a jiffy is, which takes two looks.
const MAX_EARLY: usize = 1024;
/// How long after a pause the disks behind it are still asked how busy they are, in ns: twice the window of the detectors.
const ASK_NS: u64 = 10_000_000_000;
/// Disks that are asked at a tick at most; a read of sysfs each.
const MAX_ASKED: usize = 64;

/// What was read.
#[derive(Debug, Default)]
pub struct Read {
    pub pauses: Vec<Pause>,
    pub counts: Vec<PauseDelta>,
    pub busy: Vec<Busy>,
}

impl Read {
    /// Owners that want a name.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.counts.iter().map(|c| c.owner)
    }
}

/// The table, and what was last read.
pub struct Pauses {
    sys: PathBuf,
    rows: Table<PauseRow>,
    told: BTreeMap<u32, (u64, u64)>,
    early: Vec<PauseSpan>,
    missed: u64,
    names: Names,
    asked: BTreeMap<DevId, u64>,
    page: u64,
}

impl Pauses {
    pub fn map(ebpf: &aya::Ebpf, sys: &Path) -> Result<Pauses, AttachError> {
        Ok(Pauses {
            sys: sys.to_owned(),
            rows: Table::map(ebpf, "PAUSES", PAUSE_ROWS, false)?,
            told: BTreeMap::new(),
            early: Vec::new(),
            missed: 0,
            names: Names::default(),
            asked: BTreeMap::new(),
            page: rustix::param::page_size() as u64,
        })
    }

    /// Pauses for which there was no room until the length of a jiffy was known.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Takes what came through the ring. `wanted`: disks that `--device` chose, empty for all.
    pub fn read(
        &mut self,
        mut spans: Vec<PauseSpan>,
        jiffy_ns: Option<u64>,
        disks: Disks<'_>,
        wanted: &[DevId],
        now: u64,
    ) -> Read {
        let Some(jiffy_ns) = jiffy_ns else {
            let room = MAX_EARLY - self.early.len().min(MAX_EARLY);
            self.missed += spans.len().saturating_sub(room) as u64;
            spans.truncate(room);
            self.early.append(&mut spans);
            return Read::default();
        };
        spans.splice(..0, self.early.drain(..));
        let mut read = Read {
            counts: self.counts(jiffy_ns),
            ..Read::default()
        };
        for span in &spans {
            let pause = self.pause(span, jiffy_ns, now);
            read.pauses.push(pause);
        }
        if !wanted.is_empty() {
            let lies_on = |bdi: &str| disk_of(bdi).is_none_or(|dev| disks.touch(dev, wanted));
            read.pauses.retain(|p| lies_on(&p.bdi));
            read.counts.retain(|c| lies_on(&c.bdi));
        }
        read.pauses.sort_by_key(|p| (p.begin_ns, p.tid));
        read.counts
            .sort_by(|a, b| (&a.bdi, a.owner, &a.worker).cmp(&(&b.bdi, b.owner, &b.worker)));
        for dev in read.counts.iter().filter_map(|c| disk_of(&c.bdi)) {
            for dev in disks.with_below(dev) {
                self.asked.insert(dev, now);
            }
        }
        self.asked.retain(|_, at| now.saturating_sub(*at) < ASK_NS);
        let asked = self.asked.keys().take(MAX_ASKED);
        read.busy = asked
            .filter_map(|dev| {
                Some(Busy {
                    dev: *dev,
                    busy_ms: busy_ms(&self.sys, disks.name(*dev)?)?,
                })
            })
            .collect();
        self.names.forget_old(now);
        read
    }

    fn pause(&mut self, span: &PauseSpan, jiffy_ns: u64, now: u64) -> Pause {
        let bdi = bdi_name(&span.name, span.bdi);
        let worker = words(&span.worker);
        Pause {
            dev: disk_of(&bdi),
            bdi,
            owner: counters::owner(span.owner),
            tid: span.tid,
            task: self.names.of(span.tid, now),
            worker: (!worker.is_empty()).then_some(Worker {
                name: worker,
                pooled: span.pooled != 0,
            }),
            begin_ns: span.begin_ns,
            end_ns: span
                .begin_ns
                .saturating_add(u64::from(span.jiffies).saturating_mul(jiffy_ns)),
            figures: figures(&span.figures, self.page),
        }
    }

    fn counts(&mut self, jiffy_ns: u64) -> Vec<PauseDelta> {
        let mut deltas = Vec::new();
        for at in 0..self.rows.rows() {
            if self.rows.key(at) == 0 {
                continue;
            }
            let row = self.rows.read(at);
            let before = self.told.get(&at).copied().unwrap_or_default();
            let count = row.count.saturating_sub(before.0);
            if count == 0 {
                continue;
            }
            self.told.insert(at, (row.count, row.jiffies));
            let worker = words(&row.worker);
            deltas.push(PauseDelta {
                bdi: bdi_name(&row.name, row.bdi),
                owner: counters::owner(row.owner),
                worker: (!worker.is_empty()).then_some(worker),
                count,
                sum_ns: row
                    .jiffies
                    .saturating_sub(before.1)
                    .saturating_mul(jiffy_ns),
            });
        }
        deltas
    }
}

/// What lies below what.
#[derive(Clone, Copy)]
pub struct Disks<'a> {
    pub devices: &'a Devices,
    pub loops: &'a Loops,
}

impl Disks<'_> {
    /// A disk with all below it, through dm, md and loop devices.
    fn with_below(&self, dev: DevId) -> BTreeSet<DevId> {
        let mut found = BTreeSet::new();
        let mut todo = vec![dev];
        while let Some(dev) = todo.pop() {
            if found.insert(dev) {
                todo.extend(self.loops.below(dev));
                todo.extend(self.devices.below(dev));
            }
        }
        found
    }

    /// True when one of these is below the disk, or above it.
    fn touch(&self, dev: DevId, these: &[DevId]) -> bool {
        let below = self.with_below(dev);
        these
            .iter()
            .any(|d| below.contains(d) || self.with_below(*d).contains(&dev))
    }

    fn name(&self, dev: DevId) -> Option<&str> {
        self.devices.name(dev).map(kernel_name)
    }
}

fn figures(f: &PauseFigures, page: u64) -> Option<DirtyFigures> {
    let bytes = |pages: u64| pages.saturating_mul(page);
    // No kernel has a limit of nothing: that is what could not be read.
    (f.limit != 0).then(|| DirtyFigures {
        limit: bytes(f.limit),
        background: bytes(f.background),
        dirty: bytes(f.dirty),
        bdi_limit: bytes(f.bdi_limit),
        bdi_dirty: bytes(f.bdi_dirty),
        bdi_rate: bytes(f.bdi_rate),
        task_rate: bytes(f.task_rate),
    })
}

/// Text in words, up to its NUL.
fn words(words: &[u64]) -> String {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|w| w.to_ne_bytes())
        .take_while(|b| *b != 0)
        .collect();
    clean(&String::from_utf8_lossy(&bytes))
}

fn bdi_name(name: &[u64], id: u64) -> String {
    let name = words(name);
    if name.is_empty() {
        format!("bdi {id}")
    } else {
        name
    }
}

/// The disk that a backing device is named after. Major 0 is no disk: NFS, FUSE, 9p.
fn disk_of(bdi: &str) -> Option<DevId> {
    parse_dev(bdi).filter(|dev| dev.major() != 0)
}

/// The tenth field of stat (Documentation/block/stat.rst), `None` where the disk does not count.
fn busy_ms(sys: &Path, name: &str) -> Option<u64> {
    let dir = sys.join("block").join(name);
    if fs::read_to_string(dir.join("queue/iostats")).is_ok_and(|s| s.trim() == "0") {
        return None;
    }
    let stat = fs::read_to_string(dir.join("stat")).ok()?;
    stat.split_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_words<const N: usize>(text: &str) -> [u64; N] {
        let mut out = [0; N];
        for (word, bytes) in out.iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        out
    }

    #[test]
    fn names_end_at_their_nul_and_only_disks_are_disks() {
        assert_eq!(words(&in_words::<2>("loop0")), "loop0");
        assert_eq!(
            words(&in_words::<2>("0123456789abcdef")),
            "0123456789abcdef"
        );
        assert_eq!(words(&[0, u64::MAX]), "");
        assert_eq!(bdi_name(&in_words::<4>("7:0"), 9), "7:0");
        assert_eq!(bdi_name(&[0; 4], 9), "bdi 9");
        assert_eq!(disk_of("7:0"), Some(DevId::new(7, 0)));
        assert_eq!(disk_of("0:52"), None, "NFS");
        assert_eq!(disk_of("btrfs-1"), None);
    }

    #[test]
    fn figures_are_bytes_and_a_limit_of_nothing_is_none() {
        assert_eq!(figures(&PauseFigures::default(), 4096), None);
        let f = PauseFigures {
            limit: 4096,
            background: 2048,
            ..PauseFigures::default()
        };
        let f = figures(&f, 4096).unwrap();
        assert_eq!((f.limit, f.background), (16 << 20, 8 << 20));
        assert_eq!((f.free_run(), f.setpoint()), (12 << 20, 14 << 20));
    }

    #[test]
    fn a_disk_that_does_not_count_is_not_idle() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("block/sda");
        fs::create_dir_all(disk.join("queue")).unwrap();
        assert_eq!(busy_ms(dir.path(), "sda"), None);
        let stat = "  1 2 3 4 5 6 7 8 0 1234 99 0 0 0 0 0 0\n";
        fs::write(disk.join("stat"), stat).unwrap();
        assert_eq!(busy_ms(dir.path(), "sda"), Some(1234));
        fs::write(disk.join("queue/iostats"), "0\n").unwrap();
        assert_eq!(busy_ms(dir.path(), "sda"), None);
    }
}
