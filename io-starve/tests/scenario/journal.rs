//! Lines about fsyncs, journals and limits.

use io_starve::model::observation::*;

use super::parse::*;
use super::{BASE_NS, MS};

/// `fs 8:1 ext4 /data 8:0 dioread_lock`: a filesystem, the disk below it, its options.
pub fn filesystem(words: &[&str]) -> Result<Fact, String> {
    let [dev, fstype, mountpoint, queue, options @ ..] = words else {
        return Err("fs MAJOR:MINOR TYPE MOUNTPOINT DISK [OPTIONS]".to_owned());
    };
    Ok(Fact::Filesystem(FilesystemFact {
        dev: dev_of(dev)?,
        fstype: (*fstype).to_owned(),
        mountpoint: (*mountpoint).to_owned(),
        source: format!("/dev/{dev}"),
        options: options.join(","),
        queues: vec![dev_of(queue)?],
    }))
}

/// `limit 28 8:0 wbps=1MiB`.
pub fn limit(words: &[&str]) -> Result<Fact, String> {
    let [id, dev, opts @ ..] = words else {
        return Err("limit CGROUP DISK wbps=N".to_owned());
    };
    let opts = Opts::parse(opts, &["rbps", "wbps", "riops", "wiops"], &[])?;
    let limits = Limits {
        rbps: opts.bytes("rbps")?,
        wbps: opts.bytes("wbps")?,
        riops: opts.number("riops")?,
        wiops: opts.number("wiops")?,
    };
    Ok(Fact::Limits(LimitFact {
        id: number_of(id)?,
        disks: vec![(dev_of(dev)?, limits)],
    }))
}

/// Something that lasts from the beginning of its line to the end.
pub enum Span {
    Fsync(Fsync),
    Commit(Commit),
    Hold(Hold),
    Checkpoint(Checkpoint),
    Holder(Holder),
    Limit(Fact),
}

fn task(pid: u32) -> Task {
    Task {
        pid,
        comm: "db".to_owned(),
    }
}

fn ns(ms: i64) -> u64 {
    (BASE_NS + ms * MS as i64) as u64
}

fn at(opts: &Opts, name: &str) -> Result<Option<u64>, String> {
    Ok(opts.get(name).map(signed_ms).transpose()?.map(ns))
}

fn fs_of(word: &str) -> Result<(DevId, u64), String> {
    let (dev, ino) = word.rsplit_once('/').ok_or("MAJOR:MINOR/INODE")?;
    Ok((dev_of(dev)?, number_of(ino)?))
}

/// `fsync OWNER FS/INODE TID [file=] [journal=T] [flush=T] [commit=N] [for=data|journal|...] [result=N] [range]`,
/// `commit FS N [locking=T] [flushing=T] [logging=T] [waits=INODE:OWNER:T] [for=]`,
/// `hold DISK GROUP N [owner=] [file=FS/INODE] [reads]`,
/// `call CALL OWNER FS TID for=transaction|journal-space|journal`, `checkpoint OWNER FS TID`, `holder OWNER TID`,
/// `limit CGROUP DISK [wbps=N]`: set when it begins.
pub fn span(words: &[&str], from_ms: u64) -> Result<Option<Span>, String> {
    let begin_ns = ns(from_ms as i64);
    Ok(Some(match words {
        ["fsync", owner, file, tid, opts @ ..] => {
            let allowed = ["file", "journal", "flush", "commit", "for", "result"];
            let opts = Opts::parse(opts, &allowed, &["datasync", "range"])?;
            let (fs, ino) = fs_of(file)?;
            let tid = u32::try_from(number_of(tid)?).map_err(|e| e.to_string())?;
            Span::Fsync(Fsync {
                call: if opts.flag("range") {
                    Call::SyncRange
                } else {
                    Call::Fsync
                },
                fs,
                ino,
                file: opts.get("file").map(str::to_owned),
                owner: owner_of(owner)?,
                tid,
                task: Some(task(tid)),
                begin_ns,
                end_ns: None,
                datasync: opts.flag("datasync"),
                journal_ns: at(&opts, "journal")?,
                commit: opts.number("commit")?.map(|n| n as u32),
                flush_ns: at(&opts, "flush")?,
                waits_for: opts.get("for").map(named).transpose()?,
                result: opts.get("result").map_or(Ok(0), |r| {
                    r.parse().map_err(|_| format!("`{r}` is no number"))
                })?,
            })
        }
        ["call", call, owner, fs, tid, opts @ ..] => {
            let opts = Opts::parse(opts, &["for"], &[])?;
            let tid = u32::try_from(number_of(tid)?).map_err(|e| e.to_string())?;
            Span::Fsync(Fsync {
                call: named(call)?,
                fs: dev_of(fs)?,
                ino: 0,
                file: None,
                owner: owner_of(owner)?,
                tid,
                task: Some(task(tid)),
                begin_ns,
                end_ns: None,
                datasync: false,
                journal_ns: None,
                commit: None,
                flush_ns: None,
                waits_for: opts.get("for").map(named).transpose()?,
                result: 0,
            })
        }
        ["checkpoint", owner, fs, tid] => Span::Checkpoint(Checkpoint {
            fs: dev_of(fs)?,
            owner: owner_of(owner)?,
            tid: u32::try_from(number_of(tid)?).map_err(|e| e.to_string())?,
            begin_ns,
        }),
        ["limit", words @ ..] => Span::Limit(limit(words)?),
        ["holder", owner, tid] => Span::Holder(Holder {
            owner: owner_of(owner)?,
            task: task(u32::try_from(number_of(tid)?).map_err(|e| e.to_string())?),
        }),
        ["commit", fs, n, opts @ ..] => {
            let allowed = ["locking", "flushing", "logging", "waits", "for", "tid"];
            let opts = Opts::parse(opts, &allowed, &[])?;
            let waited = match opts.get("waits") {
                None => None,
                Some(w) => {
                    let [ino, owner, since] = w.split(':').collect::<Vec<_>>()[..] else {
                        return Err("waits=INODE:OWNER:T".to_owned());
                    };
                    Some(InodeWait {
                        ino: number_of(ino)?,
                        owner: owner_of(owner)?,
                        since_ns: ns(signed_ms(since)?),
                    })
                }
            };
            Span::Commit(Commit {
                fs: dev_of(fs)?,
                commit: number_of(n)? as u32,
                tid: opts.number("tid")?.unwrap_or(99) as u32,
                begin_ns,
                end_ns: None,
                locking_ns: at(&opts, "locking")?,
                flushing_ns: at(&opts, "flushing")?,
                logging_ns: at(&opts, "logging")?,
                waited,
                waits_for: opts.get("for").map(named).transpose()?,
            })
        }
        ["hold", dev, group, n, opts @ ..] => {
            let opts = Opts::parse(opts, &["owner", "file"], &["reads"])?;
            let group = owner_of(group)?;
            Span::Hold(Hold {
                dev: dev_of(dev)?,
                group,
                write: !opts.flag("reads"),
                owner: opts.get("owner").map_or(Ok(group), owner_of)?,
                count: number_of(n)?,
                file: opts.get("file").map(fs_of).transpose()?,
                since_ns: begin_ns,
            })
        }
        _ => return Ok(None),
    }))
}

impl Span {
    /// Adds it to the observation of a tick, if it is there: while it lasts, and once more when it has just ended.
    pub fn tell(&self, o: &mut Observation, from_ms: u64, to_ms: u64, tick_ms: u64, at_ms: u64) {
        let lasts = from_ms <= at_ms && at_ms < to_ms;
        let ended = to_ms <= at_ms && at_ms < to_ms + tick_ms;
        let end_ns = ended.then(|| ns(to_ms as i64));
        if !(lasts || ended) {
            return;
        }
        // Nothing that is still to come is known.
        let known = |t: Option<u64>| t.filter(|t| *t <= o.mono_ns);
        match self {
            Span::Fsync(f) => {
                let journal_ns = known(f.journal_ns);
                let f = Fsync {
                    end_ns,
                    journal_ns,
                    commit: f.commit.filter(|_| journal_ns.is_some()),
                    flush_ns: known(f.flush_ns),
                    waits_for: f.waits_for.filter(|_| lasts),
                    ..f.clone()
                };
                o.fsyncs.push(f);
            }
            Span::Commit(c) => {
                let c = Commit {
                    end_ns,
                    locking_ns: known(c.locking_ns),
                    flushing_ns: known(c.flushing_ns),
                    logging_ns: known(c.logging_ns),
                    waited: c.waited.filter(|w| w.since_ns <= o.mono_ns),
                    waits_for: c.waits_for.filter(|_| lasts),
                    ..c.clone()
                };
                o.commits.push(c);
            }
            Span::Hold(h) if lasts => o.holds.push(*h),
            Span::Checkpoint(c) if lasts => o.checkpoints.push(c.clone()),
            Span::Holder(h) if lasts => o.holders.push(h.clone()),
            Span::Limit(fact) if lasts && at_ms < from_ms + tick_ms => o.facts.push(fact.clone()),
            Span::Limit(_) | Span::Hold(_) | Span::Checkpoint(_) | Span::Holder(_) => {}
        }
    }
}
