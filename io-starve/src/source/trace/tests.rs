use std::collections::BTreeMap;

use io_starve_common::{class::Class, wire::LossKind};

use super::*;
use crate::{
    model::observation::{DevId, Fact, GroupDelta, Observation, Owner, Stage, Verdict},
    source::{ftrace::Ftrace, input::Progress, replay::Tape},
};

const SDA: DevId = DevId::new(8, 0);

/// A read of 8 sectors is submitted at this time.
pub fn event(ns: u64) -> Event {
    Event {
        ns,
        what: What::BioQueue,
        dev: SDA,
        class: Class::SyncRead,
        sector: 1_000,
        sectors: 8,
        idle_prio: false,
        owner: Owner::Unknown,
        tid: 7,
        comm: Comm::new(b"fio"),
    }
}

/// Observations and notes of a text.
pub fn replayed(text: &str) -> (Vec<Observation>, notes::Notes) {
    let bytes = text.as_bytes().to_vec();
    let mut import = Import::new(
        Box::new(Ftrace::new(std::io::Cursor::new(bytes))),
        Progress::default(),
    );
    let all = std::iter::from_fn(|| import.next_observation()).collect();
    (all, import.notes().clone())
}

/// Counters of a group over a whole trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    seen: u64,
    finished: u64,
    merged: u64,
    expired: u64,
    inserts: u64,
    issues: u64,
    requeues: u64,
    bytes: u64,
    queued: (u64, u64),
    device: (u64, u64),
}

impl Sum {
    fn add(&mut self, d: &GroupDelta) {
        for (to, more) in [
            (&mut self.seen, d.seen),
            (&mut self.finished, d.finished),
            (&mut self.merged, d.merged),
            (&mut self.expired, d.expired),
            (&mut self.inserts, d.inserts),
            (&mut self.issues, d.issues),
            (&mut self.requeues, d.requeues),
            (&mut self.bytes, d.bytes),
            (&mut self.queued.0, d.stages[1].count),
            (&mut self.queued.1, d.stages[1].sum_ns),
            (&mut self.device.0, d.stages[2].count),
            (&mut self.device.1, d.stages[2].sum_ns),
        ] {
            *to += more;
        }
    }
}

fn sums(all: &[Observation]) -> BTreeMap<(DevId, Class), Sum> {
    let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
    for d in all.iter().flat_map(|o| &o.groups) {
        sums.entry((d.key.dev, d.key.class)).or_default().add(d);
    }
    sums
}

fn in_flight(o: &Observation) -> u64 {
    o.waiting.iter().map(|w| w.count.iter().sum::<u64>()).sum()
}

fn loss(o: &Observation, kind: LossKind) -> u64 {
    o.loss.iter().find(|l| l.0 == kind).map_or(0, |l| l.1)
}

/// A line of ftrace at this time in µs.
fn line(us: u64, what: &str, rest: &str) -> String {
    format!(
        "             fio-7       [000] .....  {:>4}.{:06}: {what}: 8,0 {rest} [fio]\n",
        us / 1_000_000,
        us % 1_000_000
    )
}

const S: u64 = 1_000_000;

mod fs_histories;
mod histories;

#[test]
fn a_wait_is_seen_while_it_lasts() {
    let mut text = line(S, "block_rq_insert", "W 4096 () 100 + 8");
    for i in 0..200 {
        let (at, sector) = (S + i * 10_000, 1_000 + i * 8);
        text += &line(at, "block_rq_insert", &format!("R 4096 () {sector} + 8"));
        text += &line(
            at + 1_000,
            "block_rq_issue",
            &format!("R 4096 () {sector} + 8"),
        );
        text += &line(
            at + 9_000,
            "block_rq_complete",
            &format!("R () {sector} + 8"),
        );
    }
    let (all, notes) = replayed(&text);
    // The first event, a tick each 250 ms, the end.
    let at: Vec<u64> = all.iter().map(|o| o.mono_ns / 1_000_000).collect();
    assert_eq!(
        at,
        [
            1_000, 1_250, 1_500, 1_750, 2_000, 2_250, 2_500, 2_750, 2_999
        ]
    );
    let last = all.last().unwrap();
    let write = last
        .waiters
        .iter()
        .find(|w| w.key.class == Class::AsyncWrite)
        .unwrap();
    assert_eq!(
        (write.since_ns, write.stage),
        (1_000_000_000, Stage::Queued)
    );
    assert!(write.bypasses > 150, "{}", write.bypasses);
    assert_eq!(write.task.as_ref().unwrap().comm, "fio");
    assert_eq!(in_flight(last), 1);
    assert_eq!(last.devices[0].issued, 200);
    assert_eq!((notes.events, notes.ambiguous), (601, 0));
}

#[test]
fn those_that_waited_before_it_pass_nobody() {
    let read = |i: u64| format!("R 4096 () {} + 8", 1_000 + i * 8);
    let mut text: String = (0..5)
        .map(|i| line(S, "block_rq_insert", &read(i)))
        .collect();
    text += &line(S + 1, "block_rq_insert", "W 4096 () 100 + 8");
    // A tick later they are issued, one of them twice, and then two that came after the write.
    for i in 0..5 {
        text += &line(S + 300_000, "block_rq_issue", &read(i));
    }
    text += &line(S + 300_001, "block_rq_requeue", "R () 1000 + 8");
    text += &line(S + 300_002, "block_rq_issue", &read(0));
    let bypasses = |text: &str| {
        let (all, _) = replayed(text);
        let last = all.last().unwrap();
        let write = last
            .waiters
            .iter()
            .find(|w| w.key.class == Class::AsyncWrite);
        write.unwrap().bypasses
    };
    assert_eq!(bypasses(&text), 0);
    // A lower bound: of the six that waited at its first tick it may be the first itself.
    for i in 5..8 {
        text += &line(S + 300_003, "block_rq_issue", &read(i));
    }
    assert_eq!(bypasses(&text), 2);
}

#[test]
fn what_is_not_in_the_trace_is_said_once() {
    let text: String = (0..300)
        .map(|i| {
            let what = ["block_rq_issue", "block_rq_complete"][i as usize % 2];
            let size = ["4096 ()", "()"][i as usize % 2];
            line(S + i * 10_000, what, &format!("R {size} {} + 8", i / 2))
        })
        .collect();
    let (all, _) = replayed(&text);
    let told: Vec<_> = all
        .iter()
        .flat_map(|o| &o.facts)
        .filter_map(|f| match f {
            Fact::Hooks { hooks } => Some(hooks),
            _ => None,
        })
        .collect();
    let insert = told
        .last()
        .unwrap()
        .iter()
        .find(|h| h.name == "block_rq_insert");
    assert!(
        matches!(&insert.unwrap().verdict, Verdict::Refused { why } if why.contains("record block_rq_insert"))
    );
    assert!(told.len() <= 2, "{}", told.len());
}

#[test]
fn a_request_grows_by_merges_that_were_recorded_and_by_those_that_were_not() {
    for recorded in [true, false] {
        let mut text = line(S, "block_rq_insert", "W 4096 () 100 + 8");
        text += &line(S + 1, "block_rq_insert", "W 4096 () 116 + 8");
        if recorded {
            text += &line(S + 2, "block_bio_backmerge", "W 108 + 8");
            text += &line(S + 3, "block_rq_merge", "W 4096 () 116 + 8");
            text += &line(S + 4, "block_bio_frontmerge", "W 92 + 8");
        }
        text += &line(S + 5, "block_rq_issue", "W 16384 () 92 + 32");
        text += &line(S + 10, "block_rq_complete", "W () 92 + 32");
        let (all, _) = replayed(&text);
        let sum = sums(&all)[&(SDA, Class::AsyncWrite)];
        assert_eq!(
            (sum.seen, sum.finished, sum.merged),
            (2, 1, 1),
            "{recorded}"
        );
        assert_eq!((sum.queued, sum.device), ((1, 5_000), (1, 5_000)));
        assert_eq!(sum.bytes, 16_384);
        assert_eq!(in_flight(all.last().unwrap()), 0);
    }
}

#[test]
fn blktrace_has_one_action_for_merges_of_bios_and_of_requests() {
    let text = b"  8,0 0 1 1.000000001 7 I  W 100 + 8 [x]
  8,0 0 1 1.000000002 7 I  W 108 + 8 [x]
  8,0 0 1 1.100000001 7 M  W 116 + 8 [x]
  8,0 0 1 1.200000000 7 M  W 108 + 16 [x]
  8,0 0 1 2.000000001 7 D  W 100 + 24 [x]
";
    let reader = crate::source::blktrace::text::Blkparse::new(&text[..]);
    let mut import = Import::new(Box::new(reader), Progress::default());
    let all: Vec<_> = std::iter::from_fn(|| import.next_observation()).collect();
    assert_eq!((in_flight(&all[0]), in_flight(&all[1])), (0, 1));
    let sum = sums(&all)[&(SDA, Class::AsyncWrite)];
    assert_eq!((sum.seen, sum.merged, sum.issues), (2, 1, 1));
}

#[test]
fn after_a_gap_nothing_waits_until_it_is_seen_again() {
    // This one is before everything, and no gap.
    let mut text = "CPU:0 [LOST 9 EVENTS]\n".to_owned();
    text += &line(S, "block_rq_insert", "W 4096 () 100 + 8");
    text += &line(S, "block_rq_insert", "W 4096 () 200 + 8");
    text += &line(2 * S, "block_rq_insert", "R 4096 () 300 + 8");
    text += "CPU:1 [LOST 5 EVENTS]\n";
    text += &line(3 * S, "block_rq_insert", "R 4096 () 400 + 8");
    text += &line(4 * S, "block_rq_issue", "W 4096 () 100 + 8");
    text += &line(5 * S, "block_rq_complete", "W () 100 + 8");
    let (all, notes) = replayed(&text);
    let waiting = |s: u64| {
        let o = all.iter().find(|o| o.mono_ns == s * 1_000_000_000).unwrap();
        in_flight(o)
    };
    assert_eq!((waiting(2), waiting(3)), (3, 1));
    let last = all.last().unwrap();
    assert_eq!((notes.gaps, notes.lost, notes.overwritten), (1, 5, 9));
    assert_eq!(loss(last, LossKind::TraceLost), 5);
    let sum = sums(&all)[&(SDA, Class::AsyncWrite)];
    // The one that was issued had waited all the time.
    assert_eq!((sum.seen, sum.expired, sum.finished), (3, 2, 1));
    assert_eq!(sum.queued, (1, 3_000_000_000));
}

#[test]
fn bios_of_a_partition_wait_for_the_disk_that_it_is_on() {
    let part = |us, what: &str, rest: &str| line(us, what, rest).replace("8,0", "8,2");
    let mut text = part(S, "block_bio_queue", "W 900 + 8");
    text += &part(S + 1, "block_getrq", "W 900 + 8");
    text += &line(S + 2, "block_rq_insert", "W 4096 () 900 + 8");
    text += &part(S + 10, "block_bio_queue", "R 916 + 8");
    text += &part(2 * S, "block_getrq", "R 916 + 8");
    text += &line(2 * S + 1, "block_rq_issue", "R 4096 () 916 + 8");
    let (all, _) = replayed(&text);
    let tick = all.iter().find(|o| o.mono_ns > 1_500_000_000).unwrap();
    let reads = tick
        .waiting
        .iter()
        .find(|w| w.key.class == Class::SyncRead)
        .unwrap();
    assert_eq!((reads.key.dev, reads.count), (SDA, [1, 0, 0]));
    let admitted: Vec<_> = all
        .iter()
        .flat_map(|o| &o.groups)
        .filter(|g| g.stages[0].count > 0)
        .map(|g| (g.key.dev, g.key.class, g.stages[0].sum_ns))
        .collect();
    assert_eq!(
        admitted,
        [
            (SDA, Class::AsyncWrite, 1_000),
            (SDA, Class::SyncRead, 999_990_000)
        ]
    );
    assert!(all.iter().flat_map(|o| &o.devices).all(|d| d.dev == SDA));
}

/// Admission times in ns of a text in which sda is known as a disk that makes requests.
fn admissions(lines: &str) -> (Vec<u64>, Vec<(LossKind, u64)>) {
    let mut text = line(S, "block_bio_queue", "R 8 + 8");
    text += &line(S, "block_getrq", "R 8 + 8");
    text += &line(S, "block_rq_issue", "R 4096 () 8 + 8");
    text += &line(S, "block_rq_complete", "R () 8 + 8");
    let (all, _) = replayed(&(text + lines));
    let times = all
        .iter()
        .flat_map(|o| &o.groups)
        .map(|g| g.stages[0])
        .filter(|s| s.sum_ns > 0)
        .map(|s| s.sum_ns)
        .collect();
    (times, all.last().unwrap().loss.clone())
}

#[test]
fn a_bio_that_is_cut_waits_on_as_its_rest() {
    let mut text = line(2 * S, "block_bio_queue", "W 100 + 2560");
    text += &line(2 * S + 1, "block_split", "W 100 / 1380");
    text += &line(2 * S + 5, "block_getrq", "W 100 + 1280");
    text += &line(2 * S + 9, "block_getrq", "W 1380 + 1280");
    assert_eq!(admissions(&text), (vec![9_000], Vec::new()));
}

#[test]
fn a_bio_waits_until_its_thread_submits_another_or_it_fails() {
    let mut text = line(2 * S, "block_bio_queue", "W 100 + 8");
    text += &line(2 * S + 5, "block_bio_queue", "W 200 + 8");
    text += &line(2 * S + 9, "block_getrq", "W 200 + 8");
    // The first one is given up, and no later event can be its own.
    text += &line(3 * S, "block_getrq", "W 100 + 8");
    assert_eq!(
        admissions(&text),
        (vec![4_000], vec![(LossKind::AdmissionExpired, 1)])
    );
    let mut text = line(2 * S, "block_bio_queue", "W 100 + 8");
    text += &line(2 * S + 5, "block_bio_complete", "W 100 + 8");
    text += &line(2 * S + 9, "block_getrq", "W 100 + 8");
    assert_eq!(admissions(&text), (Vec::new(), Vec::new()));
}

#[test]
fn of_two_bios_at_one_sector_a_thread_ends_its_own() {
    let other = |text: String| text.replace("fio-7 ", "dd-8  ");
    let mut text = line(2 * S, "block_bio_queue", "W 100 + 8");
    text += &other(line(2 * S + 5, "block_bio_queue", "W 100 + 8"));
    text += &other(line(2 * S + 9, "block_getrq", "W 100 + 8"));
    assert_eq!(admissions(&text), (vec![4_000], Vec::new()));
}

#[test]
fn a_bio_device_has_no_admission() {
    let mut text = String::new();
    for i in 0..5_000 {
        text +=
            &line(S + i, "block_bio_queue", &format!("R {} + 8", i * 8)).replace("8,0", "253,0");
    }
    let (all, _) = replayed(&text);
    assert_eq!(in_flight(all.last().unwrap()), 0);
    assert!(
        all.iter()
            .all(|o| o.groups.is_empty() && o.devices.is_empty())
    );
}

#[test]
fn requests_that_began_before_or_end_after_are_no_loss() {
    let mut text = line(S, "block_rq_complete", "R () 50 + 8");
    text += &line(S + 1, "block_rq_issue", "R 4096 () 60 + 8");
    let (all, notes) = replayed(&text);
    assert_eq!(notes.earlier, 1);
    let last = all.last().unwrap();
    assert!(last.loss.is_empty());
    assert_eq!(in_flight(last), 1);
    text += &line(20 * S, "block_rq_complete", "R () 70 + 8");
    let (all, _) = replayed(&text);
    assert_eq!(loss(all.last().unwrap(), LossKind::UnmatchedCompletion), 1);
}

#[test]
fn a_long_pause_is_left_out_unless_something_waits() {
    let pair = |us| {
        line(us, "block_rq_issue", "R 4096 () 60 + 8")
            + &line(us + 5, "block_rq_complete", "R () 60 + 8")
    };
    let (idle, _) = replayed(&(pair(S) + &pair(3_000 * S)));
    assert!(idle.len() < 260, "{}", idle.len());
    let waits = line(S, "block_rq_insert", "W 4096 () 10 + 8");
    let (busy, _) = replayed(&(waits + &pair(3_000 * S)));
    assert!(busy.len() > 11_000, "{}", busy.len());
    let damaged = line(S, "block_rq_insert", "W 4096 () 10 + 8") + &pair(100 * 86_400 * S);
    let (damaged, _) = replayed(&damaged);
    assert!(damaged.len() < 16_000, "{}", damaged.len());
}

#[test]
fn a_driver_that_gives_back_ends_no_life_whether_or_not_it_is_told() {
    for told in [true, false] {
        let mut text = line(S, "block_rq_insert", "R 4096 () 10 + 8");
        text += &line(S + 10, "block_rq_issue", "R 4096 () 10 + 8");
        if told {
            text += &line(S + 20, "block_rq_requeue", "R () 10 + 8");
        }
        text += &line(S + 30, "block_rq_insert", "R 4096 () 10 + 8");
        text += &line(S + 40, "block_rq_issue", "R 4096 () 10 + 8");
        text += &line(S + 50, "block_rq_complete", "R () 10 + 8");
        let (all, _) = replayed(&text);
        let sum = sums(&all)[&(SDA, Class::SyncRead)];
        assert_eq!((sum.seen, sum.finished, sum.issues), (1, 1, 2), "{told}");
        assert_eq!(
            (sum.queued, sum.device),
            ((1, 40_000), (1, 10_000)),
            "{told}"
        );
    }
}

#[test]
fn flushes_and_passthrough_commands_have_no_place() {
    let mut text = line(S, "block_rq_issue", "FF 0 () 0 + 0 none,0,0");
    text += &line(
        S,
        "block_rq_issue",
        "N 36 (12 00 00 00 24 00 ..) 0 + 0 none,0,0",
    );
    text += &line(
        S + 10,
        "block_rq_complete",
        "FF () 18446744073709551615 + 0",
    );
    text += &line(
        S + 20,
        "block_rq_complete",
        "N (12 00 00 00 24 00 ..) 18446744073709551615 + 1",
    );
    // One of a controller, which has no disk.
    text += &line(S, "block_rq_issue", "N 0 () 0 + 0 none,0,0").replace("8,0", "0,0");
    // The second completion of a write with a flush behind it, where its data ended.
    text += &line(S + 30, "block_rq_complete", "WS () 108 + 0");
    let (all, notes) = replayed(&text);
    let sums = sums(&all);
    assert_eq!(sums[&(SDA, Class::Flush)].device, (1, 10_000));
    assert_eq!(sums[&(SDA, Class::Other)].device, (1, 20_000));
    assert_eq!((in_flight(all.last().unwrap()), notes.earlier), (0, 0));
    assert_eq!(notes.foreign, 1);
}

#[test]
fn two_requests_at_one_sector_are_taken_by_age_and_counted() {
    let mut text = String::new();
    for us in [0, 100] {
        text += &line(S + us, "block_rq_insert", "R 4096 () 10 + 8");
    }
    for us in [200, 300] {
        text += &line(S + us, "block_rq_issue", "R 4096 () 10 + 8").replace("fio-7 ", "dd-8  ");
    }
    for us in [400, 500] {
        text += &line(S + us, "block_rq_complete", "R () 10 + 8");
    }
    let (all, notes) = replayed(&text);
    let sum = sums(&all)[&(SDA, Class::SyncRead)];
    assert_eq!((sum.queued, sum.device), ((2, 400_000), (2, 400_000)));
    assert_eq!(notes.ambiguous, 2);
}

#[test]
fn no_more_is_followed_than_there_is_room_for() {
    let mut text = String::new();
    for i in 0..132_000 {
        text += &line(
            S + i,
            "block_rq_insert",
            &format!("R 4096 () {} + 8", i * 8),
        );
    }
    let (all, _) = replayed(&text);
    let last = all.last().unwrap();
    assert_eq!(in_flight(last), 131_072);
    assert_eq!(loss(last, LossKind::SlotsFull), 132_000 - 131_072);
}
