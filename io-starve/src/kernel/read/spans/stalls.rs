//! Calls that wait for a journal in create, mkdir, write, umount: found at ticks among the tasks in uninterruptible sleep, and only while
//! a commit or a checkpoint takes long. No hook on what every such call does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use io_starve_common::{span::SleepingTask, wire::dev_of_key};

use super::{
    super::{
        super::{
            cgroups::unescape,
            devices::parse_dev,
            load::read_iterator,
            stacks::{self, JournalWait, journal_wait},
        },
        Attached, counters,
    },
    Read, STACK_NS, Spans,
};
use crate::model::observation::{Call, Checkpoint, Commit, DevId, Fsync, Holder, Owner, SyncWait};

/// Stacks read at a tick at most, of tasks that were not seen in the same sleep before. Where more sleep, they take turns.
const STACKS: usize = 64;
/// Open files looked at of a task of which nothing else tells the filesystem.
const FILES: usize = 64;
/// How often a task may have gone to sleep between two ticks and still be in the same wait: it is woken when a transaction was
/// committed, and may have to wait for the next one.
const SWITCHES: u64 = 2;

/// The hook and the program that tell of tasks in uninterruptible sleep.
const SLEEPING: (&str, &str) = ("bpf_iter_task", "sleeping_task");

/// A filesystem whose journal may make somebody wait, and the thread that makes room in it.
type Busy = (DevId, Option<u32>);

/// Calls that wait.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    waits: BTreeMap<u32, Wait>,
    /// Waits of which the filesystem is not known: counted once each.
    nowhere: BTreeSet<u32>,
    /// The last task whose stack was read.
    last: u32,
    missed: u64,
}

#[derive(Debug)]
struct Wait {
    switches: u64,
    at: JournalWait,
    span: Fsync,
    /// It was seen at two ticks, and so has a length.
    told: bool,
}

/// What was found at a tick.
#[derive(Debug, Default)]
struct Found {
    pub calls: Vec<Fsync>,
    /// Owners and threads that sleep for something else with a handle open.
    pub holders: Vec<(Owner, u32)>,
}

impl Stalls {
    /// True while some wait has not been seen to end.
    fn any(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Waits that could not be told, since it is not known for which journal they are, and looks that failed.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Looks at all of `sleeping`. `syncing`: threads in fsync, which are followed already.
    fn look(
        &mut self,
        proc_: &Path,
        sleeping: &[SleepingTask],
        busy: &[Busy],
        syncing: &BTreeSet<u32>,
        now: u64,
    ) -> Found {
        let mut before = std::mem::take(&mut self.waits);
        let mut found = Found::default();
        let mut nowhere = BTreeSet::new();
        let mut stacks = 0;
        let others = sleeping.iter().filter(|t| !syncing.contains(&t.tid));
        // Those that are known to wait come first, then those after the last that was looked at, all around.
        let mut others: Vec<_> = others.collect();
        let last = self.last;
        others.sort_by_key(|t| (!before.contains_key(&t.tid), t.tid <= last, t.tid));
        for task in others {
            let known = before.remove(&task.tid).filter(|w| {
                let slept = task.switches.saturating_sub(w.switches);
                slept <= SWITCHES || w.at.checkpoints
            });
            let same_sleep = known.as_ref().filter(|w| w.switches == task.switches);
            let at = match same_sleep {
                Some(w) => Some(w.at),
                None if stacks < STACKS => {
                    stacks += 1;
                    self.last = task.tid;
                    journal_wait(proc_, task.tid)
                }
                None => {
                    // Looked at later; until then what was known goes on.
                    if let Some(wait) = known {
                        found.calls.extend(wait.told.then(|| wait.span.clone()));
                        self.waits.insert(task.tid, wait);
                    }
                    continue;
                }
            };
            match (at, known) {
                (None, _) if task.handle != 0 => {
                    found.holders.push((counters::owner(task.owner), task.tid));
                }
                (None, _) => {}
                (Some(at), Some(mut wait)) => {
                    wait.switches = task.switches;
                    wait.at = at;
                    wait.told = true;
                    wait.span.waits_for = Some(at.waits_for);
                    found.calls.push(wait.span.clone());
                    self.waits.insert(task.tid, wait);
                }
                (Some(at), None) => match journal_of(proc_, task.tid, at, busy) {
                    Some(fs) => {
                        let span = span(task, fs, at, now);
                        let switches = task.switches;
                        self.waits.insert(
                            task.tid,
                            Wait {
                                switches,
                                at,
                                span,
                                told: false,
                            },
                        );
                    }
                    None => {
                        nowhere.insert(task.tid);
                    }
                },
            }
        }
        self.missed += nowhere.difference(&self.nowhere).count() as u64;
        self.nowhere = nowhere;
        let ended = before.into_values().filter(|w| w.told);
        found.calls.extend(ended.map(|w| Fsync {
            end_ns: Some(now),
            waits_for: None,
            ..w.span
        }));
        found
    }
}

impl Attached {
    /// Calls that wait for a journal, where one makes somebody wait. A look that fails is a loss, and the next may not.
    pub(in super::super) fn add_stalled(&mut self, read: &mut Read, now: u64) {
        if !self.is_attached(SLEEPING.0) || !self.spans.wants_sleepers(read, now) {
            return;
        }
        let file = read_iterator(&mut self.ebpf, SLEEPING.1).ok();
        match file.and_then(|file| sleeping(file).ok()) {
            Some(tasks) => self.spans.add_stalled(read, &tasks, now),
            None => self.spans.stalls.missed += 1,
        }
    }
}

impl Spans {
    /// Those that go on, each of which is seen on the stack of its task.
    pub(super) fn running_checkpoints(&mut self) -> Vec<Checkpoint> {
        let mut running = Vec::new();
        for row in 0..self.journals.rows() {
            if self.journals.key(row) == 0 {
                continue;
            }
            let j = self.journals.read(row);
            let fs = DevId(dev_of_key(j.claim.key));
            if j.checkpoint_ns == 0 || self.checkpoints_over.get(&fs) == Some(&j.checkpoint_ns) {
                continue;
            }
            if stacks::checkpoints("/proc".as_ref(), j.checkpoint_tid) {
                running.push(Checkpoint {
                    fs,
                    owner: counters::owner(j.checkpoint_owner),
                    tid: j.checkpoint_tid,
                    begin_ns: j.checkpoint_ns,
                });
            } else {
                self.checkpoints_over.insert(fs, j.checkpoint_ns);
            }
        }
        running.sort();
        running
    }

    /// True when a journal makes somebody wait for long, or did at the last tick.
    fn wants_sleepers(&self, read: &Read, now: u64) -> bool {
        let old = |c: &Commit| c.end_ns.is_none() && now.saturating_sub(c.begin_ns) >= STACK_NS;
        self.same_tids
            && (self.stalls.any() || !read.checkpoints.is_empty() || read.commits.iter().any(old))
    }

    /// Adds calls that wait for a journal, and those that keep one open, of all tasks in uninterruptible sleep.
    fn add_stalled(&mut self, read: &mut Read, sleeping: &[SleepingTask], now: u64) {
        let checkpoints = read.checkpoints.iter();
        let mut busy: Vec<Busy> = checkpoints.map(|c| (c.fs, Some(c.tid))).collect();
        let running = read.commits.iter().filter(|c| c.end_ns.is_none());
        let commits: Vec<DevId> = running.map(|c| c.fs).collect();
        for fs in commits {
            if busy.iter().all(|(other, _)| *other != fs) {
                busy.push((fs, None));
            }
        }
        let syncing = read.fsyncs.iter().map(|f| f.tid).collect();
        let found = self
            .stalls
            .look("/proc".as_ref(), sleeping, &busy, &syncing, now);
        for mut call in found.calls {
            call.task = self.names.of(call.tid, now);
            read.fsyncs.push(call);
        }
        read.fsyncs.sort_by_key(|f| (f.begin_ns, f.tid));
        let mut named = |(owner, tid)| {
            let task = self.names.of(tid, now)?;
            Some(Holder { owner, task })
        };
        read.holders = found.holders.into_iter().filter_map(&mut named).collect();
    }
}

fn span(task: &SleepingTask, fs: DevId, at: JournalWait, now: u64) -> Fsync {
    Fsync {
        call: at.call,
        fs,
        ino: 0,
        file: None,
        owner: counters::owner(task.owner),
        tid: task.tid,
        task: None,
        begin_ns: now,
        end_ns: None,
        datasync: false,
        journal_ns: None,
        commit: None,
        flush_ns: None,
        waits_for: Some(at.waits_for),
        result: 0,
    }
}

/// Whose journal a task waits for: the only one that it can be; else that of the file it writes, of the folder it works in, or the only
/// one of which it has a file open. None of its memory is read, and no file of it is opened: that might wait for the same as it does.
fn journal_of(proc_: &Path, tid: u32, at: JournalWait, busy: &[Busy]) -> Option<DevId> {
    if let Some((fs, _)) = busy.iter().find(|(_, thread)| *thread == Some(tid)) {
        return Some(*fs);
    }
    // Room is made by one task, for which all others that need some wait.
    let mut candidates: Vec<DevId> = busy.iter().map(|(fs, _)| *fs).collect();
    if at.waits_for == SyncWait::JournalSpace && busy.iter().any(|(_, thread)| thread.is_some()) {
        let made = busy.iter().filter(|(_, thread)| thread.is_some());
        candidates = made.map(|(fs, _)| *fs).collect();
    }
    if let [one] = candidates[..] {
        return Some(one);
    }
    let task = proc_.join(tid.to_string());
    let mounts = std::fs::read(task.join("mountinfo")).ok()?;
    let mounts = String::from_utf8_lossy(&mounts);
    let candidate = |fs: &DevId| candidates.contains(fs);
    let of_fd = |fd: &Path| {
        let info = std::fs::read_to_string(fd).ok()?;
        let id = info.lines().find_map(|l| l.strip_prefix("mnt_id:"))?.trim();
        let line = mounts.lines().find(|l| l.split(' ').next() == Some(id))?;
        device(line).filter(candidate)
    };
    let fds = task.join("fdinfo");
    if at.call == Call::Write {
        let fd = first_argument(&std::fs::read_to_string(task.join("syscall")).ok()?)?;
        return of_fd(&fds.join(fd.to_string()));
    }
    let folder = std::fs::read_link(task.join("cwd")).ok()?;
    let mountpoint = |l: &&str| {
        let at = unescape(l.split(' ').nth(4)?);
        folder.starts_with(&at).then_some(at.len())
    };
    let of_folder = mounts.lines().max_by_key(mountpoint).and_then(device);
    of_folder.filter(candidate).or_else(|| {
        let open = std::fs::read_dir(&fds).ok()?.flatten().take(FILES);
        let open: BTreeSet<DevId> = open.filter_map(|e| of_fd(&e.path())).collect();
        open.first().copied().filter(|_| open.len() == 1)
    })
}

/// Device of a line of mountinfo.
fn device(line: &str) -> Option<DevId> {
    parse_dev(line.split(' ').nth(2)?)
}

/// The first argument of the call that a task is in (/proc/TID/syscall): number, then arguments in hexadecimal.
fn first_argument(text: &str) -> Option<u64> {
    let word = text.split_whitespace().nth(1)?;
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Reads what an iterator wrote.
///
/// # Errors
///
/// The kernel's.
fn sleeping(mut file: File) -> io::Result<Vec<SleepingTask>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let (records, _) = bytes.as_chunks::<{ size_of::<SleepingTask>() }>();
    // SAFETY: integers only, for which any bytes are a value; read unaligned.
    Ok(records
        .iter()
        .map(|r| unsafe { r.as_ptr().cast::<SleepingTask>().read_unaligned() })
        .collect())
}

#[cfg(test)]
mod tests;
