//! Lines about pauses for dirty memory and loop devices.

use std::collections::BTreeMap;

use io_starve::model::observation::*;

use super::parse::*;
use super::{BASE_NS, MS};

/// `loop 7:0 loop0 8:0 file=/srv/a.img fs=8:1 [dio] [deleted]`: a loop device on a disk; `-` for one in memory.
pub fn looped(words: &[&str]) -> Result<Fact, String> {
    let [dev, name, below, opts @ ..] = words else {
        return Err("loop MAJOR:MINOR NAME DISK".to_owned());
    };
    let opts = Opts::parse(opts, &["file", "fs", "offset"], &["dio", "deleted"])?;
    Ok(Fact::Loop(LoopFact {
        dev: dev_of(dev)?,
        name: (*name).to_owned(),
        file: opts.get("file").unwrap_or("/srv/a.img").to_owned(),
        deleted: opts.flag("deleted"),
        fs: opts.get("fs").map(dev_of).transpose()?,
        below: match *below {
            "-" => Vec::new(),
            dev => vec![dev_of(dev)?],
        },
        direct_io: Some(opts.flag("dio")),
        offset: opts.bytes("offset")?.or(Some(0)),
    }))
}

/// Something about dirty memory.
pub enum Dirty {
    /// A pause each so often.
    Pauses {
        first: Pause,
        every_ms: u64,
        for_ms: u64,
    },
    /// A disk is busy for this part of the time, in per cent.
    Busy(DevId, u64),
    /// A fact that becomes known.
    Fact(Fact),
}

/// `pauses BDI OWNER TID every=100ms for=80ms [worker=loop0] [pooled] [comm=dd] [dirty=10MiB,limit=16MiB,background=8MiB,own=9MiB]`,
/// `busy DISK PERCENT`, `loop ...` and `unloop DISK` for facts in mid-run.
pub fn dirty(words: &[&str]) -> Result<Option<Dirty>, String> {
    Ok(Some(match words {
        ["pauses", bdi, owner, tid, opts @ ..] => {
            let allowed = [
                "every",
                "for",
                "worker",
                "comm",
                "dirty",
                "limit",
                "background",
                "own",
                "share",
            ];
            let opts = Opts::parse(opts, &allowed, &["pooled"])?;
            let time = |name: &str| {
                let word = opts.get(name).ok_or_else(|| format!("{name}= is needed"))?;
                duration_ms(word)
            };
            let tid = u32::try_from(number_of(tid)?).map_err(|e| e.to_string())?;
            let figures = match opts.bytes("limit")? {
                None => None,
                Some(limit) => Some(DirtyFigures {
                    limit,
                    background: opts.bytes("background")?.unwrap_or(limit / 2),
                    dirty: opts.bytes("dirty")?.unwrap_or(limit),
                    bdi_limit: opts.bytes("share")?.unwrap_or(limit),
                    bdi_dirty: opts.bytes("own")?.unwrap_or(0),
                    bdi_rate: 1 << 20,
                    task_rate: 1 << 20,
                }),
            };
            Dirty::Pauses {
                first: Pause {
                    bdi: (*bdi).to_owned(),
                    dev: dev_of(bdi).ok(),
                    owner: owner_of(owner)?,
                    tid,
                    task: Some(Task {
                        pid: tid,
                        comm: opts.get("comm").unwrap_or("dd").to_owned(),
                    }),
                    worker: opts.get("worker").map(|name| Worker {
                        name: name.to_owned(),
                        pooled: opts.flag("pooled"),
                    }),
                    begin_ns: 0,
                    end_ns: 0,
                    figures,
                },
                every_ms: time("every")?.max(1),
                for_ms: time("for")?,
            }
        }
        ["busy", dev, percent] => Dirty::Busy(dev_of(dev)?, number_of(percent)?),
        ["loop", words @ ..] => Dirty::Fact(looped(words)?),
        ["unloop", dev] => Dirty::Fact(Fact::LoopGone { dev: dev_of(dev)? }),
        _ => return Ok(None),
    }))
}

/// How busy disks have been, in ms.
pub type BusyMs = BTreeMap<DevId, u64>;

impl Dirty {
    /// Adds it to the observation of a tick: pauses that began since the last one.
    pub fn tell(
        &self,
        o: &mut Observation,
        span: (u64, u64),
        tick_ms: u64,
        at_ms: u64,
        busy: &mut BusyMs,
    ) {
        let (from_ms, to_ms) = span;
        let lasts = from_ms < at_ms && at_ms <= to_ms;
        match self {
            Dirty::Fact(fact) => {
                if from_ms <= at_ms && at_ms < from_ms + tick_ms {
                    o.facts.push(fact.clone());
                }
            }
            Dirty::Busy(dev, percent) => {
                if lasts {
                    *busy.entry(*dev).or_default() += tick_ms * percent / 100;
                }
                o.busy.push(Busy {
                    dev: *dev,
                    busy_ms: busy.get(dev).copied().unwrap_or(0),
                });
            }
            Dirty::Pauses {
                first,
                every_ms,
                for_ms,
            } => {
                let begins = (from_ms..to_ms).step_by(*every_ms as usize);
                let new = begins.filter(|ms| at_ms < ms + tick_ms && *ms <= at_ms);
                for ms in new {
                    let begin_ns = (BASE_NS as u64) + ms * MS;
                    o.pauses.push(Pause {
                        begin_ns,
                        end_ns: begin_ns + for_ms * MS,
                        ..first.clone()
                    });
                    o.pause_counts.push(PauseDelta {
                        bdi: first.bdi.clone(),
                        owner: first.owner,
                        worker: first.worker.as_ref().map(|w| w.name.clone()),
                        count: 1,
                        sum_ns: for_ms * MS,
                    });
                }
            }
        }
    }
}
