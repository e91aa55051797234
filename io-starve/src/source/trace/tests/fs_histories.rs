//! Texts of fsyncs, commits and pauses made from known histories.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::model::observation::SyncWait;

/// What one thread does, one after the other: fsyncs and pauses.
#[derive(Debug, Clone)]
enum Act {
    /// (its own data, waiting for the journal) in us; by a system call alone; fdatasync; the error.
    Sync {
        data: u64,
        journal: u64,
        by_call: bool,
        datasync: bool,
        error: i32,
    },
    /// Length in ms.
    Pause(u64),
    /// Does nothing, in us.
    Rest(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (
            1u64..2 * S,
            0u64..2 * S,
            any::<bool>(),
            any::<bool>(),
            prop::sample::select(vec![0, 0, 0, -5, -28])
        )
            .prop_map(|(data, journal, by_call, datasync, error)| Act::Sync {
                data,
                journal,
                by_call,
                datasync,
                error
            }),
        (1u64..200).prop_map(Act::Pause),
        (1u64..S).prop_map(Act::Rest),
    ]
}

fn said(tid: u64, us: u64, text: &str) -> (u64, String) {
    let (s, us_of) = (us / S, us % S);
    let line = format!("             db-{tid}       [000] .....  {s:>4}.{us_of:06}: {text}\n");
    (us, line)
}

/// What must come back.
#[derive(Debug, Default, PartialEq)]
struct Expected {
    /// (thread, begin, end, fdatasync, error) of those of 20 ms and more. ns.
    slow: BTreeSet<(u32, u64, u64, bool, i32)>,
    /// (how many, how long in ns) by thread.
    syncs: BTreeMap<u32, (u64, u64)>,
    pauses: BTreeMap<u32, (u64, u64)>,
}

fn write(threads: &[Vec<Act>], expected: &mut Expected) -> Vec<(u64, String)> {
    let mut lines = Vec::new();
    for (i, acts) in threads.iter().enumerate() {
        let tid = 100 + i as u64;
        let mut now = S + i as u64;
        for (n, act) in acts.iter().enumerate() {
            match act {
                Act::Rest(us) => now += us,
                Act::Pause(ms) => {
                    lines.push(said(tid, now, &format!(
                        "balance_dirty_pages: bdi 8:0: limit=100 setpoint=88 dirty=90 wb_setpoint=8 wb_dirty=9 dirty_ratelimit=4 \
                         task_ratelimit=4 dirtied=1 dirtied_pause=1 paused=0 pause={ms} period=8 think=0 cgroup_ino=1"
                    )));
                    let sum = expected.pauses.entry(tid as u32).or_default();
                    *sum = (sum.0 + 1, sum.1 + ms * 1_000_000);
                    now += ms * 1_000;
                }
                Act::Sync {
                    data,
                    journal,
                    by_call,
                    datasync,
                    error,
                } => {
                    let call = if *datasync { "fdatasync" } else { "fsync" };
                    let (enter, exit) = match by_call {
                        true => (
                            format!("sys_{call}(fd: 3)"),
                            format!("sys_{call} -> 0x{:x}", i64::from(*error)),
                        ),
                        false => (
                            format!(
                                "ext4_sync_file_enter: dev 8,0 ino 13 parent 2 datasync {} ",
                                u8::from(*datasync)
                            ),
                            format!("ext4_sync_file_exit: dev 8,0 ino 13 ret {error}"),
                        ),
                    };
                    let sector = 1_000_000 * (i as u64 + 1) + 8 * n as u64;
                    let end = now + 1 + data + journal + 1;
                    lines.push(said(tid, now, &enter));
                    lines.push(said(
                        tid,
                        now + 1,
                        &format!("block_bio_queue: 8,0 WS {sector} + 8 [db]"),
                    ));
                    lines.push(said(
                        0,
                        now + 1 + data,
                        &format!("block_rq_complete: 8,0 WS () {sector} + 8 [0]"),
                    ));
                    lines.push(said(tid, end, &exit));
                    let (begin_ns, end_ns) = (now * 1_000, end * 1_000);
                    let sum = expected.syncs.entry(tid as u32).or_default();
                    *sum = (sum.0 + 1, sum.1 + end_ns - begin_ns);
                    if end_ns - begin_ns >= 20_000_000 {
                        expected
                            .slow
                            .insert((tid as u32, begin_ns, end_ns, *datasync, *error));
                    }
                    now = end + 1;
                }
            }
            now += 1;
        }
    }
    lines
}

proptest! {
    #[test]
    fn fsyncs_and_pauses_come_back_from_their_text(
        threads in prop::collection::vec(prop::collection::vec(act(), 1..12), 1..6),
        late in 0u64..400_000,
        crlf in any::<bool>(),
    ) {
        let mut expected = Expected::default();
        let mut lines = write(&threads, &mut expected);
        // Two CPUs, one of which is written out late.
        lines.sort_by_key(|(us, text)| (us + if us % 2 == 0 { late } else { 0 }, text.clone()));
        let mut text: String = lines.into_iter().map(|(_, line)| line).collect();
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let (all, notes) = replayed(&text);
        let mut found = Expected::default();
        for o in &all {
            for f in o.fsyncs.iter().filter_map(|f| Some((f, f.end_ns?))) {
                let (f, end) = f;
                let new = found.slow.insert((f.tid, f.begin_ns, end, f.datasync, f.result));
                prop_assert!(new, "told twice: {f:?}");
            }
            // What runs is told at every tick, and not beyond its end.
            for f in o.fsyncs.iter().filter(|f| f.end_ns.is_none()) {
                prop_assert!(f.begin_ns <= o.mono_ns);
                let begun = (f.tid, f.begin_ns);
                let of = expected.slow.iter().find(|e| (e.0, e.1) == begun);
                prop_assert!(of.is_none_or(|e| e.2 > o.mono_ns), "{f:?} at {}", o.mono_ns);
            }
            for d in &o.fsync_counts {
                let Owner::Task(tid) = d.owner else { panic!("{d:?}") };
                let sum = found.syncs.entry(tid).or_default();
                *sum = (sum.0 + d.count, sum.1 + d.sum_ns);
            }
            for d in &o.pause_counts {
                let Owner::Task(tid) = d.owner else { panic!("{d:?}") };
                let sum = found.pauses.entry(tid).or_default();
                *sum = (sum.0 + d.count, sum.1 + d.sum_ns);
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert!(all.iter().all(|o| o.loss.iter().all(|(kind, _)| *kind != LossKind::SpansDropped)));
        prop_assert_eq!((notes.late, notes.unreadable, notes.clock_jumps), (0, 0, 0));
    }

    #[test]
    fn commits_come_back_with_their_parts(
        commits in prop::collection::vec((1u64..S, 1u64..S, 1u64..S, 1u64..S, 1u64..S), 1..10),
        stats in any::<bool>(),
    ) {
        let mut lines = String::new();
        let mut expected = Vec::new();
        let mut now = S;
        for (number, parts) in commits.iter().enumerate() {
            let at = [parts.0, parts.1, parts.2, parts.3].iter().scan(now, |at, part| {
                *at += part;
                Some(*at)
            }).collect::<Vec<_>>();
            for (us, name) in [(now, "start_commit"), (at[0], "commit_locking"), (at[1], "commit_flushing"), (at[2], "commit_logging")] {
                lines += &said(99, us, &format!("jbd2_{name}: dev 8,1 transaction {number} sync 0")).1;
            }
            if stats {
                lines += &said(99, at[3], &format!("jbd2_run_stats: dev 8,1 tid {number} wait 0 logging 8")).1;
            }
            lines += &said(99, at[3], &format!("jbd2_end_commit: dev 8,1 transaction {number} sync 0 head 1")).1;
            let ns = |us: u64| us * 1_000;
            if at[3] - now >= 20_000 {
                expected.push((number as u32, ns(now), ns(at[0]), ns(at[1]), ns(at[2]), ns(at[3])));
            }
            now = at[3] + parts.4;
        }
        let (all, _) = replayed(&lines);
        let found: Vec<_> = all.iter().flat_map(|o| &o.commits).filter_map(|c| {
            Some((c.commit, c.begin_ns, c.locking_ns?, c.flushing_ns?, c.logging_ns?, c.end_ns?))
        }).collect();
        prop_assert_eq!(found, expected);
        prop_assert!(all.iter().all(|o| o.loss.is_empty()));
    }
}

/// What an fsync, and the commit that runs, wait for at the tick after this text.
fn waits(text: &[(u64, String)]) -> (Option<SyncWait>, Option<SyncWait>) {
    let lines: String = text.iter().map(|(_, line)| line.as_str()).collect();
    let (all, _) = replayed(&lines);
    let last = all.last().unwrap();
    let commit = last.commits.iter().find(|c| c.end_ns.is_none());
    (last.fsyncs[0].waits_for, commit.and_then(|c| c.waits_for))
}

#[test]
fn what_is_waited_for_is_what_is_in_flight() {
    let mut text = vec![
        said(
            7,
            S,
            "ext4_sync_file_enter: dev 8,0 ino 13 parent 2 datasync 0 ",
        ),
        said(7, S + 1, "block_bio_queue: 8,0 WS 800 + 8 [db]"),
    ];
    assert_eq!(waits(&text), (Some(SyncWait::Data), None));
    text.push(said(
        0,
        S + 100,
        "block_rq_complete: 8,0 WS () 792 + 64 [0]",
    ));
    assert_eq!(waits(&text), (None, None));
    for (at, name) in [(200, "start_commit"), (201, "commit_locking")] {
        text.push(said(
            99,
            S + at,
            &format!("jbd2_{name}: dev 8,0 transaction 5 sync 0"),
        ));
    }
    // For handles, of which a trace tells nothing before they end.
    assert_eq!(waits(&text), (Some(SyncWait::Journal), None));
    for (at, name) in [(202, "commit_flushing"), (203, "commit_logging")] {
        text.push(said(
            99,
            S + at,
            &format!("jbd2_{name}: dev 8,0 transaction 5 sync 0"),
        ));
    }
    text.push(said(
        99,
        S + 204,
        "block_bio_queue: 8,0 WS 9000 + 16 [jbd2/sda-8]",
    ));
    assert_eq!(
        waits(&text),
        (Some(SyncWait::Journal), Some(SyncWait::JournalBlocks))
    );
    let flush = "block_rq_issue: 8,0 FF 0 () 18446744073709551615 + 0 [kworker/0:1H]";
    text.push(said(12, S + 250, flush));
    text.push(said(
        0,
        S + 300,
        "block_rq_complete: 8,0 WS () 9000 + 16 [0]",
    ));
    assert_eq!(waits(&text), (Some(SyncWait::Journal), None));
    let flushed = "block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]";
    text.push(said(0, S + 400, flushed));
    assert_eq!(waits(&text), (Some(SyncWait::Journal), None), "too soon");
    text.push(said(
        12,
        S + 250_000,
        "block_bio_queue: 8,0 R 70000 + 16 [x]",
    ));
    assert_eq!(
        waits(&text),
        (Some(SyncWait::Journal), Some(SyncWait::Data))
    );
}

#[test]
fn an_fsync_that_has_written_nothing_may_wait_for_its_own_limit() {
    let text = [
        said(
            7,
            S,
            "ext4_sync_file_enter: dev 8,0 ino 13 parent 2 datasync 0 ",
        ),
        said(99, S + 1, "jbd2_start_commit: dev 8,0 transaction 5 sync 0"),
    ];
    assert_eq!(waits(&text), (None, None));
}

#[test]
fn threads_that_sync_stand_for_owners_and_no_others_do() {
    let text = [
        said(
            7,
            S,
            "ext4_sync_file_enter: dev 8,0 ino 13 parent 2 datasync 0 ",
        ),
        said(7, S + 1, "block_rq_insert: 8,0 WS 4096 () 800 + 8 [db]"),
        said(
            8,
            S + 2,
            "block_rq_insert: 8,0 W 4096 () 1800 + 8 [kworker]",
        ),
    ];
    let lines: String = text.iter().map(|(_, line)| line.as_str()).collect();
    let (all, _) = replayed(&lines);
    let owners: Vec<Owner> = all
        .last()
        .unwrap()
        .waiting
        .iter()
        .map(|w| w.key.owner)
        .collect();
    assert_eq!(owners, [Owner::Unknown, Owner::Task(7)]);
}

#[test]
fn after_a_gap_nothing_is_believed_to_run() {
    let mut text = said(
        7,
        S,
        "ext4_sync_file_enter: dev 8,0 ino 13 parent 2 datasync 0 ",
    )
    .1;
    text += "CPU:0 [LOST 3 EVENTS]\n";
    text += &line(3 * S, "block_rq_insert", "W 4096 () 100 + 8");
    let (all, _) = replayed(&text);
    let last = all.last().unwrap();
    assert!(last.fsyncs.is_empty());
    assert_eq!(loss(last, LossKind::SpansDropped), 1);
}
