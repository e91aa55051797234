//! Events of ext4, jbd2, writeback and system calls in text of ftrace.
//!
//! In: a line. Out: the event in it. Values are found by the names before them, since their order and number differ between kernels:
//! `wb_setpoint` was `bdi_setpoint` up to 5.x, `jbd2_end_commit` got a `head`, and some numbers changed their places.

use super::{before_event, find, thread};
use crate::{
    model::observation::DevId,
    source::{
        lines::{Words, device, number},
        trace::{Comm, CommitStep, FsEvent, FsWhat, Item, PauseEvent},
    },
};

/// How the names begin, with the system that `perf script` prints before them.
const PREFIXES: [(&[u8], &[u8]); 4] = [
    (b"jbd2_", b"jbd2:"),
    (b"ext4_sync_file_", b"ext4:"),
    (b"balance_dirty_pages", b"writeback:"),
    (b"sys_", b"syscalls:"),
];

/// What a line holds; `None` when it holds none of these.
pub fn parse(line: &[u8]) -> Option<Item> {
    PREFIXES.iter().find_map(|(prefix, system)| {
        let mut from = 0;
        while let Some(at) = find(&line[from..], prefix) {
            let at = from + at;
            if let Some((head, ns)) = before_event(&line[..at], system) {
                return Some(item(head, ns, &line[at..]));
            }
            from = at + 1;
        }
        None
    })
}

/// What the event in `text`, which begins with its name, is.
fn item(head: &[u8], ns: Option<u64>, text: &[u8]) -> Item {
    let what = match Fields::split(text) {
        Some((name, fields)) => of_name(name, fields),
        None => call(text),
    };
    match (what, ns) {
        (Read::Event(what), Some(ns)) => {
            let (tid, comm) = thread(head);
            Item::Fs(FsEvent {
                ns,
                tid,
                comm,
                what,
            })
        }
        (Read::Foreign, _) => Item::Foreign,
        (Read::Event(_) | Read::Unreadable, _) => Item::Unreadable,
    }
}

enum Read {
    Event(FsWhat),
    Foreign,
    Unreadable,
}

impl From<Option<FsWhat>> for Read {
    fn from(what: Option<FsWhat>) -> Read {
        what.map_or(Read::Unreadable, Read::Event)
    }
}

fn of_name(name: &[u8], fields: Fields<'_>) -> Read {
    let step = |step| -> Read {
        // `jbd2_run_stats` calls the number of the transaction `tid`.
        let commit = fields.number(b"transaction").or(fields.number(b"tid"));
        let of = |fs: DevId| {
            let commit = u32::try_from(commit?).ok()?;
            Some(FsWhat::Commit { fs, commit, step })
        };
        fields.dev().and_then(of).into()
    };
    match name {
        b"jbd2_start_commit" => step(CommitStep::Start),
        b"jbd2_commit_locking" => step(CommitStep::Locking),
        b"jbd2_commit_flushing" => step(CommitStep::Flushing),
        b"jbd2_commit_logging" => step(CommitStep::Logging),
        b"jbd2_end_commit" | b"jbd2_run_stats" => step(CommitStep::End),
        b"jbd2_handle_stats" => handle(fields).into(),
        b"jbd2_checkpoint" => fields.dev().map(FsWhat::Checkpoint).into(),
        b"jbd2_checkpoint_stats" => fields.dev().map(FsWhat::CheckpointDone).into(),
        b"ext4_sync_file_enter" => sync_enter(fields).into(),
        b"ext4_sync_file_exit" => {
            let result = fields.dev().and(fields.signed(b"ret"));
            result.map(FsWhat::SyncExit).into()
        }
        b"balance_dirty_pages" => pause(fields),
        b"sys_enter_fsync" | b"sys_enter_msync" => {
            Read::Event(FsWhat::CallEnter { datasync: false })
        }
        b"sys_enter_fdatasync" => Read::Event(FsWhat::CallEnter { datasync: true }),
        b"sys_exit_fsync" | b"sys_exit_msync" | b"sys_exit_fdatasync" => {
            Words(fields.0).next().and_then(result).into()
        }
        _ => Read::Foreign,
    }
}

/// tracefs prints system calls as `sys_fsync(fd: 3)` and `sys_fsync -> 0x0`.
fn call(text: &[u8]) -> Read {
    let end = text.iter().position(|b| matches!(b, b'(' | b' '));
    let Some((name, rest)) = end.and_then(|end| text.split_at_checked(end)) else {
        return Read::Foreign;
    };
    let datasync = match name {
        b"sys_fsync" | b"sys_msync" => false,
        b"sys_fdatasync" => true,
        _ => return Read::Foreign,
    };
    match rest.strip_prefix(b" -> ") {
        Some(code) => Words(code).next().and_then(result).into(),
        None if rest.starts_with(b"(") => Read::Event(FsWhat::CallEnter { datasync }),
        None => Read::Unreadable,
    }
}

/// `0x0`, or an error as a number of 64 bits: `0xfffffffffffffffb`.
fn result(word: &[u8]) -> Option<FsWhat> {
    let digits = std::str::from_utf8(word.strip_prefix(b"0x")?).ok()?;
    let code = u64::from_str_radix(digits, 16).ok()?.cast_signed();
    i32::try_from(code).ok().map(FsWhat::CallExit)
}

fn sync_enter(fields: Fields<'_>) -> Option<FsWhat> {
    Some(FsWhat::SyncEnter {
        fs: fields.dev()?,
        ino: fields.number(b"ino")?,
        datasync: fields.number(b"datasync")? != 0,
    })
}

fn handle(fields: Fields<'_>) -> Option<FsWhat> {
    let u32_of = |name: &[u8]| u32::try_from(fields.number(name)?).ok();
    Some(FsWhat::Handle {
        fs: fields.dev()?,
        commit: u32_of(b"tid")?,
        jiffies: u32_of(b"interval")?,
    })
}

/// One with a pause of 0 or less lets the writer go on.
fn pause(fields: Fields<'_>) -> Read {
    let Some(ms) = fields.signed(b"pause") else {
        return Read::Unreadable;
    };
    let Ok(pause_ms) = u32::try_from(ms) else {
        return Read::Foreign;
    };
    if pause_ms == 0 {
        return Read::Foreign;
    }
    let either = |new: &[u8], old: &[u8]| fields.number(new).or(fields.number(old));
    let event = || {
        Some(FsWhat::Pause(PauseEvent {
            bdi: Comm::new(fields.word(b"bdi")?.strip_suffix(b":")?),
            pause_ms,
            cgroup: fields.number(b"cgroup_ino").filter(|ino| *ino > 1),
            limit: fields.number(b"limit")?,
            setpoint: fields.number(b"setpoint")?,
            dirty: fields.number(b"dirty")?,
            bdi_setpoint: either(b"wb_setpoint", b"bdi_setpoint")?,
            bdi_dirty: either(b"wb_dirty", b"bdi_dirty")?,
            bdi_rate: fields.number(b"dirty_ratelimit")?,
            task_rate: fields.number(b"task_ratelimit")?,
        }))
    };
    event().into()
}

/// Values by name: `dev 8,1 transaction 5` or `limit=100 dirty=7`.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Splits `name: fields`. `None` where the name ends otherwise.
    fn split(text: &'a [u8]) -> Option<(&'a [u8], Fields<'a>)> {
        let end = text
            .iter()
            .position(|b| !b.is_ascii_alphanumeric() && *b != b'_')?;
        let (name, rest) = text.split_at_checked(end)?;
        Some((name, Fields(rest.strip_prefix(b":")?)))
    }

    fn word(self, name: &[u8]) -> Option<&'a [u8]> {
        let mut words = Words(self.0);
        while let Some(word) = words.next() {
            if word == name {
                return words.next();
            }
            if let Some(value) = word.strip_prefix(name).and_then(|w| w.strip_prefix(b"=")) {
                return Some(value);
            }
        }
        None
    }

    fn number(self, name: &[u8]) -> Option<u64> {
        self.word(name).and_then(number)
    }

    fn signed(self, name: &[u8]) -> Option<i32> {
        std::str::from_utf8(self.word(name)?).ok()?.parse().ok()
    }

    fn dev(self) -> Option<DevId> {
        self.word(b"dev").and_then(device)
    }
}

#[cfg(test)]
mod tests;
