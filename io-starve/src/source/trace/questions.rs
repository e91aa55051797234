//! Which questions a trace can answer, by the events that are in it, and what to record to have the others answered.

use super::event::{Event, What};
use super::fs_event::{FsEvent, FsSubject};
use crate::model::observation::{Fact, Hook, Topic, Verdict};

/// After so many events of requests, one that is not among them was not recorded: every request is issued and completes,
/// and on a disk that has a scheduler nearly every one is submitted, allocated and inserted.
const ENOUGH: u64 = 256;

/// What cannot be said without an event that all busy disks have.
const NEEDED: &[(What, &str)] = &[
    (
        What::Complete,
        "when requests end: nothing can be said about this machine",
    ),
    (
        What::Issue,
        "who is served: starvation cannot be told from a slow device",
    ),
    (
        What::Insert,
        "who waits in the scheduler: starvation there cannot be seen",
    ),
    (What::BioQueue, "who waits for wbt, iocost or a tag"),
    (What::GetRq, "who waits for wbt, iocost or a tag"),
];

/// Events that others stand in for: told only when they are there.
const OTHERS: &[What] = &[
    What::Requeue,
    What::Merge,
    What::AnyMerge,
    What::BackMerge,
    What::FrontMerge,
    What::Split,
    What::BioComplete,
];

/// What a trace does not hold, whoever recorded it: (name, question, what to do, topic).
const NEVER: &[(&str, &str, &str, Topic)] = &[
    (
        "queue",
        "which scheduler and tunables the disks have",
        "a trace has no settings; keep /sys/block/*/queue with it, or use io-starve record",
        Topic::Requests,
    ),
    (
        "throttle",
        "what limits hold",
        "no event tells; use io-starve record",
        Topic::Journal,
    ),
    (
        "loop",
        "which loop device a worker serves, and on which disk its file is",
        "no event tells; use io-starve record",
        Topic::Dirty,
    ),
];

/// Events that are only there when somebody syncs, a journal commits or somebody is paused: (subject, name, question, topic).
const SELDOM: &[(FsSubject, &str, &str, Topic)] = &[
    (
        FsSubject::Syncs,
        "ext4_sync_file_enter",
        "which fsyncs wait",
        Topic::Journal,
    ),
    (
        FsSubject::Journals,
        "jbd2_start_commit",
        "for which commit an fsync waits",
        Topic::Journal,
    ),
    (
        FsSubject::Pauses,
        "balance_dirty_pages",
        "who is paused for dirty memory",
        Topic::Dirty,
    ),
];

/// Keeps account of what was seen.
#[derive(Debug, Default)]
pub struct Questions {
    seen: [bool; What::COUNT],
    seen_fs: [bool; SELDOM.len()],
    requests: u64,
    owners: bool,
    told: Vec<Hook>,
}

impl Questions {
    /// Takes notice of an event.
    pub fn see(&mut self, e: &Event) {
        self.seen[e.what as usize] = true;
        self.requests += u64::from(matches!(
            e.what,
            What::Insert | What::Issue | What::Complete
        ));
        self.owners |= matches!(e.owner, crate::model::observation::Owner::Cgroup(_));
    }

    /// Takes notice of an event of a filesystem, a journal or writeback.
    pub fn see_fs(&mut self, e: &FsEvent) {
        let subject = e.what.subject();
        for (seen, (of, ..)) in self.seen_fs.iter_mut().zip(SELDOM) {
            *seen |= *of == subject;
        }
    }

    /// The hooks as a fact, when it is another than was told.
    pub fn fact(&mut self, format: &str, end: bool) -> Option<Fact> {
        let hooks = self.hooks(format, end);
        if hooks == self.told {
            return None;
        }
        self.told.clone_from(&hooks);
        Some(Fact::Hooks { hooks })
    }

    fn hooks(&self, format: &str, end: bool) -> Vec<Hook> {
        let attached = || Verdict::Attached {
            via: format.to_owned(),
        };
        let refused = |why: String| Verdict::Refused { why };
        let hook = |name: &str, question: &str, verdict, topic| Hook {
            name: name.to_owned(),
            verdict,
            question: question.to_owned(),
            topic,
        };
        let mut hooks = Vec::new();
        for (what, question) in NEEDED {
            let Some(name) = what.tracepoint() else {
                continue;
            };
            if self.seen[*what as usize] {
                hooks.push(hook(name, question, attached(), Topic::Requests));
            } else if self.requests >= ENOUGH || end {
                let why = format!("not in this trace; record {name} too");
                hooks.push(hook(name, question, refused(why), Topic::Requests));
            }
        }
        for what in OTHERS.iter().filter(|w| self.seen[**w as usize]) {
            let name = what.tracepoint().unwrap_or("M of blktrace");
            hooks.push(hook(name, "", attached(), Topic::Requests));
        }
        for (seen, (_, name, question, topic)) in self.seen_fs.iter().zip(SELDOM) {
            if *seen {
                hooks.push(hook(name, question, attached(), *topic));
            } else if self.requests >= ENOUGH || end {
                let why = format!("none in this trace; if {name} was not recorded, record it too");
                hooks.push(hook(name, question, refused(why), *topic));
            }
        }
        if !self.owners {
            let why = "requests carry no cgroup here; use io-starve record, or blktrace with the option blk_cgroup";
            hooks.push(hook(
                "owner",
                "who pays for a request",
                refused(why.to_owned()),
                Topic::Requests,
            ));
        }
        for (name, question, why, topic) in NEVER {
            hooks.push(hook(name, question, refused((*why).to_owned()), *topic));
        }
        hooks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::trace::tests::event;

    fn of(fact: Option<Fact>, name: &str) -> Option<Hook> {
        let Some(Fact::Hooks { hooks }) = fact else {
            panic!("no hooks told")
        };
        hooks.into_iter().find(|h| h.name == name)
    }

    #[test]
    fn an_event_is_missing_only_after_enough_others() {
        let mut q = Questions::default();
        let issue = Event {
            what: What::Issue,
            ..event(1)
        };
        q.see(&issue);
        assert_eq!(of(q.fact("text", false), "block_rq_insert"), None);
        assert_eq!(q.fact("text", false), None, "told once");
        for _ in 0..ENOUGH {
            q.see(&issue);
        }
        let missing = of(q.fact("text", false), "block_rq_insert").unwrap();
        assert!(matches!(&missing.verdict, Verdict::Refused { why } if why.contains("record")));
        // It comes late all the same.
        q.see(&Event {
            what: What::Insert,
            ..event(1)
        });
        let late = of(q.fact("text", false), "block_rq_insert").unwrap();
        assert!(matches!(late.verdict, Verdict::Attached { .. }));
    }

    #[test]
    fn owners_are_unknown_until_one_is_told() {
        let mut q = Questions::default();
        q.see(&event(1));
        assert!(of(q.fact("text", true), "owner").is_some());
        q.see(&Event {
            owner: crate::model::observation::Owner::Cgroup(7),
            ..event(2)
        });
        assert!(of(q.fact("text", true), "owner").is_none());
    }
}
