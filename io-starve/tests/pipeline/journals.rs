//! fsyncs, commits, holds and handles of every shape.

use io_starve::model::observation::*;
use proptest::prelude::*;

use super::{count, dev, moment, owner};

fn sync_wait() -> impl Strategy<Value = Option<SyncWait>> {
    prop::option::of(prop::sample::select(vec![
        SyncWait::Data,
        SyncWait::Journal,
        SyncWait::JournalBlocks,
        SyncWait::Transaction,
        SyncWait::JournalSpace,
        SyncWait::Flush,
        SyncWait::Other,
    ]))
}

/// fsyncs, commits, holds and handles of a tick.
pub fn journals(now: u64) -> impl Strategy<Value = Observation> {
    let end = move || prop::option::of(moment(now));
    let fsync = (
        dev(),
        owner(),
        1u32..4,
        moment(now),
        end(),
        end(),
        end(),
        sync_wait(),
    )
        .prop_map(
            |(fs, owner, tid, begin_ns, end_ns, journal_ns, flush_ns, waits_for)| Fsync {
                call: Call::Fsync,
                fs,
                ino: u64::from(tid),
                file: None,
                owner,
                tid,
                task: None,
                begin_ns,
                end_ns,
                datasync: false,
                journal_ns,
                commit: journal_ns.map(|_| tid),
                flush_ns,
                waits_for,
                result: -5,
            },
        );
    let commit = (
        dev(),
        owner(),
        1u32..4,
        moment(now),
        end(),
        end(),
        sync_wait(),
    )
        .prop_map(
            |(fs, owner, commit, begin_ns, end_ns, locking_ns, waits_for)| Commit {
                fs,
                commit,
                tid: 1,
                begin_ns,
                end_ns,
                locking_ns,
                flushing_ns: end_ns,
                logging_ns: None,
                waited: locking_ns.map(|since_ns| InodeWait {
                    ino: 2,
                    owner,
                    since_ns,
                }),
                waits_for,
            },
        );
    let hold = (dev(), owner(), owner(), any::<bool>(), count()).prop_map(
        |(dev, group, owner, write, count)| Hold {
            dev,
            group,
            write,
            owner,
            count,
            file: write.then_some((dev, 2)),
            since_ns: count,
        },
    );
    let handle = (dev(), owner(), moment(now)).prop_map(|(fs, owner, end_ns)| Handle {
        fs,
        commit: 1,
        owner,
        task: None,
        begin_ns: end_ns / 2,
        end_ns,
    });
    let counted = (dev(), owner(), count()).prop_map(|(fs, owner, n)| FsyncDelta {
        fs,
        owner,
        count: n,
        sum_ns: n,
    });
    (
        prop::collection::vec(fsync, 0..4),
        prop::collection::vec(commit, 0..3),
        prop::collection::vec(hold, 0..3),
        prop::collection::vec(handle, 0..2),
        prop::collection::vec(counted, 0..2),
    )
        .prop_map(
            |(fsyncs, commits, holds, handles, fsync_counts)| Observation {
                fsyncs,
                fsync_counts,
                commits,
                holds,
                handles,
                ..Observation::default()
            },
        )
}
