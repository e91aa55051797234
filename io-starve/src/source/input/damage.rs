//! Real texts and files, damaged at random, through every reader.

use std::{fs::File, io::Cursor, path::PathBuf};

use liblzma::read::XzDecoder;
use proptest::prelude::*;

use super::*;
use crate::{
    model::observation::{Observation, Owner},
    pipeline::Pipeline,
    source::replay::Tape,
};

/// How much of a real input is taken: some hundred events.
const PIECE: usize = 40_000;

/// The beginning of a file of tests/traces, unpacked.
fn corpus(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/traces", name]
        .iter()
        .collect();
    let mut bytes = Vec::new();
    XzDecoder::new(File::open(path).unwrap())
        .take(PIECE as u64)
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

const FILES: [(&str, Format); 5] = [
    ("async-write-5.10.txt.xz", Format::Ftrace),
    ("device-stall-6.1.txt.xz", Format::TraceCmd),
    ("fsync-data-queue-6.12.txt.xz", Format::Perf),
    ("loop.blkparse.txt.xz", Format::Blkparse),
    ("loop.blktrace.1.xz", Format::Blktrace),
];

/// What happens to an input on its way, at a place given in parts of its length.
#[derive(Debug, Clone, Copy)]
enum Damage {
    FlipBit(u8),
    Cut(u16),
    Twice(u16),
    Insert(&'static [u8]),
    Lost,
    Number,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0u8..8).prop_map(Damage::FlipBit),
        (1u16..2_000).prop_map(Damage::Cut),
        (1u16..2_000).prop_map(Damage::Twice),
        prop::sample::select(vec![
            &b"\r\n"[..],
            b"\n",
            b"\0",
            b"\xff\xfe",
            b"block_rq_issue: ",
            b"jbd2_start_commit: dev ",
            b"sys_fsync(",
            b" [",
            b"] ",
        ])
        .prop_map(Damage::Insert),
        Just(Damage::Lost),
        Just(Damage::Number),
    ]
}

fn harm(bytes: &mut Vec<u8>, at: u16, damage: Damage) {
    let at = bytes.len() * usize::from(at) / (usize::from(u16::MAX) + 1);
    let until = |n: u16| (at + usize::from(n)).min(bytes.len());
    match damage {
        Damage::FlipBit(bit) => {
            if let Some(b) = bytes.get_mut(at) {
                *b ^= 1 << bit;
            }
        }
        Damage::Cut(n) => {
            let end = until(n);
            bytes.drain(at..end);
        }
        Damage::Twice(n) => {
            let piece = bytes[at..until(n)].to_vec();
            bytes.splice(at..at, piece);
        }
        Damage::Insert(text) => {
            bytes.splice(at..at, text.iter().copied());
        }
        Damage::Lost => {
            let line = |b: &u8| *b == b'\n';
            let at = at + bytes[at..].iter().position(line).map_or(0, |n| n + 1);
            let lost = b"CPU:1 [LOST 18446744073709551615 EVENTS]\n";
            bytes.splice(at..at, lost.iter().copied());
        }
        Damage::Number => {
            if let Some(n) = bytes[at..].iter().position(u8::is_ascii_digit) {
                let most = b"99999999999999999999";
                bytes.splice(at + n..=at + n, most.iter().copied());
            }
        }
    }
}

fn read_all(bytes: Vec<u8>, format: Format) -> Vec<Observation> {
    let opened = read(Box::new(Cursor::new(bytes)), "damaged", Some(format)).unwrap();
    let Opened::Trace(mut trace) = opened else {
        panic!("no trace")
    };
    let all = std::iter::from_fn(|| trace.next_observation()).collect();
    assert!(trace.warning().is_some());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_damage_makes_a_reader_fail_or_lose_count(
        file in 0..FILES.len(),
        damages in prop::collection::vec((any::<u16>(), damage()), 0..40),
        crlf in any::<bool>(),
    ) {
        let (name, format) = FILES[file];
        let mut bytes = corpus(name);
        if crlf && format != Format::Blktrace {
            bytes = String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes();
        }
        for (at, damage) in damages {
            harm(&mut bytes, at, damage);
        }
        let events = bytes.len() / 32;
        let all = read_all(bytes, format);
        let mut pipeline = Pipeline::default();
        let (mut begun, mut ended) = (0, 0);
        for o in &all {
            pipeline.feed(o);
            begun += o.groups.iter().map(|g| g.seen).sum::<u64>();
            ended += o.groups.iter().map(|g| g.finished + g.merged + g.expired).sum::<u64>();
            // What is held at a time is bounded by what is in flight, and that by what was read.
            prop_assert!(o.waiters.len() + o.fsyncs.len() + o.pauses.len() <= events);
            let owners = o.waiting.iter().map(|w| w.key.owner);
            prop_assert!(owners.into_iter().all(|o| !matches!(o, Owner::Other)));
        }
        pipeline.detach();
        let left: u64 = all.last().unwrap().waiting.iter().map(|w| w.count[1] + w.count[2]).sum();
        prop_assert_eq!(begun, ended + left);
    }
}
