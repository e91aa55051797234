use proptest::prelude::*;

use super::*;

/// Numbers of a record.
#[derive(Debug, Clone, Copy)]
struct Fields {
    sequence: u32,
    ns: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    pid: u32,
    cpu: u32,
}

const ISSUE: u64 = 7 | (1 << 6) << SHIFT;
const QUEUE: u64 = 1 | (1 << 4) << SHIFT;
const SPLIT: u64 = 13;
const PROCESS: u64 = NOTIFY << SHIFT;

fn record(version: u8, order: Order, f: Fields, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |n: u64, length: usize| match order {
        Order::Little => out.extend_from_slice(&n.to_le_bytes()[..length]),
        Order::Big => out.extend_from_slice(&n.to_be_bytes()[8 - length..]),
    };
    put(u64::from(MAGIC | u32::from(version)), 4);
    put(u64::from(f.sequence), 4);
    put(f.ns, 8);
    put(f.sector, 8);
    put(u64::from(f.bytes), 4);
    if version == 7 {
        put(f.action, 4);
        put(u64::from(f.pid), 4);
    } else {
        put(u64::from(f.pid), 4);
        put(f.action, 8);
    }
    put(8 << 20 | 16, 4);
    put(u64::from(f.cpu), 4);
    put(0, 2);
    put(data.len() as u64, 2);
    if version == 8 {
        out.extend_from_slice(&[0; 12]);
    }
    out.extend_from_slice(data);
    out
}

fn fields(sequence: u32, ns: u64, action: u64) -> Fields {
    Fields {
        sequence,
        ns,
        sector: 4_096,
        bytes: 8_192,
        action,
        pid: 77,
        cpu: 0,
    }
}

fn items(files: &[&[u8]]) -> Vec<Item> {
    let mut reader = Blktrace::new(files.iter().copied());
    std::iter::from_fn(|| reader.next_item().unwrap()).collect()
}

fn events(files: &[&[u8]]) -> Vec<Event> {
    let of = |item| match item {
        Item::Event(e) => Some(e),
        _ => None,
    };
    items(files).into_iter().filter_map(of).collect()
}

#[test]
fn both_versions_in_both_byte_orders() {
    for (version, order) in [
        (7, Order::Little),
        (7, Order::Big),
        (8, Order::Little),
        (8, Order::Big),
    ] {
        let issue = fields(1, 5_000, ISSUE | (WRITE | SYNC) << SHIFT);
        let file = [
            record(version, order, fields(0, 4_000, PROCESS), b"fio\0\0\0"),
            record(version, order, issue, b""),
        ]
        .concat();
        assert!(is_typical(&file));
        let [e] = events(&[&file])[..] else {
            panic!("{version} {order:?}")
        };
        assert_eq!(
            (e.ns, e.what, e.dev),
            (5_000, What::Issue, DevId::new(8, 16))
        );
        assert_eq!(
            (e.class, e.sector, e.sectors),
            (Class::SyncWrite, 4_096, 16)
        );
        assert_eq!((e.tid, e.comm.text().as_str()), (77, "fio"));
        assert_eq!(e.owner, Owner::Unknown);
    }
}

#[test]
fn classes_are_in_the_categories() {
    let class = |categories: u64, bytes: u32| {
        let f = Fields {
            bytes,
            ..fields(1, 1, ISSUE | categories << SHIFT)
        };
        events(&[&record(7, Order::Little, f, b"")])[0].class
    };
    const READ: u64 = 1;
    assert_eq!(class(READ, 512), Class::SyncRead);
    assert_eq!(class(WRITE, 512), Class::AsyncWrite);
    assert_eq!(class(WRITE | SYNC, 512), Class::SyncWrite);
    assert_eq!(class(WRITE | FUA, 512), Class::SyncWrite);
    assert_eq!(class(WRITE | FLUSH, 512), Class::SyncWrite);
    assert_eq!(class(READ | FLUSH, 0), Class::Flush);
    assert_eq!(class(WRITE | DISCARD, 512), Class::Discard);
    assert_eq!(class(READ | PC, 36), Class::Other);
}

#[test]
fn the_cgroup_comes_before_other_data() {
    let data = [&28u64.to_le_bytes()[..], &4_200u64.to_be_bytes()[..]].concat();
    let queue = record(7, Order::Little, fields(1, 1, QUEUE | CGROUP), &data[..8]);
    let split = record(7, Order::Little, fields(2, 2, SPLIT | CGROUP), &data);
    let e = events(&[&queue, &split]);
    assert_eq!((e[0].owner, e[0].what), (Owner::Cgroup(28), What::BioQueue));
    assert_eq!((e[1].what, e[1].sectors), (What::Split, 104));
    let bare = record(7, Order::Little, fields(1, 1, SPLIT), b"");
    assert_eq!(items(&[&bare]), [Item::Unreadable]);
}

#[test]
fn files_are_read_by_time_and_missing_numbers_are_losses() {
    let at = |sequence, ns, cpu| {
        record(
            7,
            Order::Little,
            Fields {
                cpu,
                ..fields(sequence, ns, ISSUE)
            },
            b"",
        )
    };
    let a = [at(1, 10, 0), at(2, 30, 0), at(5, 50, 0)].concat();
    let b = [at(1, 20, 1), at(2, 40, 1)].concat();
    let times: Vec<u64> = events(&[&a, &b]).iter().map(|e| e.ns).collect();
    assert_eq!(times, [10, 20, 30, 40, 50]);
    let lost: Vec<Item> = items(&[&a, &b])
        .into_iter()
        .filter(|i| !matches!(i, Item::Event(_)))
        .collect();
    assert_eq!(lost, [Item::Lost(Some(2))]);
}

#[test]
fn the_wall_clock_is_told() {
    let data = [&1_700_000_000u32.to_le_bytes()[..], &5u32.to_le_bytes()[..]].concat();
    let note = record(7, Order::Little, fields(0, 99, PROCESS | 1), &data);
    assert_eq!(
        items(&[&note]),
        [Item::Wall {
            ns: 99,
            wall_ns: 1_700_000_000_000_000_005
        }]
    );
}

#[test]
fn a_damaged_place_is_passed_over() {
    let good = record(7, Order::Little, fields(1, 1, ISSUE), b"");
    let file = [&good[..], &[1, 2, 3, 4, 5, 6, 7], &good[..], &good[..20]].concat();
    let all = items(&[&file]);
    assert_eq!(
        all.iter().filter(|i| matches!(i, Item::Event(_))).count(),
        2
    );
    assert_eq!(all.iter().filter(|i| **i == Item::Unreadable).count(), 1);
}

proptest! {
    #[test]
    fn no_bytes_are_fatal(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        version in 7u8..9,
        at in 0usize..100,
    ) {
        let mut file = record(version, Order::Little, fields(1, 1, ISSUE), b"abc");
        let at = at.min(file.len());
        file.splice(at.., bytes);
        items(&[&file, &file]);
    }
}
