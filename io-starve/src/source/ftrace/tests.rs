use io_starve_common::class::Class;
use proptest::prelude::*;

use super::*;
use crate::model::observation::DevId;

fn one(line: &str) -> Event {
    match parse(line.as_bytes()) {
        Some(Item::Event(e)) => e,
        other => panic!("{line:?}: {other:?}"),
    }
}

#[test]
fn the_three_programs_print_the_same_event() {
    let payload = "8,16 R 4096 () 107746 + 8 be,0,4 [fio]";
    for head in [
        "             fio-797     [000] .....    61.072584: block_rq_issue: ",
        "             fio-797     (    797) [000] .N.1.    61.072584: block_rq_issue: ",
        "             fio-797     (-------) [000] ....    61.072584: block_rq_issue: ",
        "             fio-797   [000]    61.072584: block_rq_issue:       ",
        "             fio-797   [000] .....    61.072584000: block_rq_issue:       ",
        "fio   797 [000]    61.072584: block:block_rq_issue: ",
        "fio   796/797   [000]    61.072584:       block:block_rq_issue: ",
        "fio   797    61.072584: block:block_rq_issue: ",
        "     fio-797     0.N..1    61.072584: block_rq_issue:       ",
    ] {
        let e = one(&format!("{head}{payload}"));
        assert_eq!((e.ns, e.what), (61_072_584_000, What::Issue), "{head}");
        assert_eq!((e.dev, e.class), (DevId::new(8, 16), Class::SyncRead));
        assert_eq!((e.sector, e.sectors), (107_746, 8));
        assert_eq!((e.tid, e.comm), (797, Comm::new(b"fio")), "{head}");
        assert!(!e.idle_prio);
    }
}

#[test]
fn every_event_has_its_own_words() {
    let head = "  kworker/u4:2-12    [001] ....    10.000001: ";
    let e = one(&format!(
        "{head}block_rq_issue: 8,0 WS 4096 () 100 + 8 [a + b: c]"
    ));
    assert_eq!((e.class, e.sector, e.sectors), (Class::SyncWrite, 100, 8));
    assert_eq!(e.comm.text(), "kworker/u4:2");
    let e = one(&format!(
        "{head}block_rq_complete: 8,0 FF () 18446744073709551615 + 0 [0]"
    ));
    assert_eq!((e.class, e.sector, e.sectors), (Class::Flush, u64::MAX, 0));
    let e = one(&format!("{head}block_split: 8,0 W 40 / 1280 [fio]"));
    assert_eq!((e.what, e.sector, e.sectors), (What::Split, 40, 1_240));
    let e = one(&format!(
        "{head}block_rq_issue: 8,0 N 36 (12 00 00 00 24 00 ..) 0 + 0 none,0,0 [smartd]"
    ));
    assert_eq!((e.class, e.sectors), (Class::Other, 0));
    let e = one(&format!(
        "{head}block_rq_insert: 8,0 W 4096 () 100 + 8 idle,0,7 [ionice]"
    ));
    assert!(e.idle_prio);
    let perf =
        "ionice 8585 [001] 40626.159261:      block:block_rq_insert: 7,0 RS 4096 () 33392 + 8";
    assert!(one(&format!("{perf} 0x3,0,7 [ionice]")).idle_prio);
    assert!(!one(&format!("{perf} 0x2,0,4 [ionice]")).idle_prio);
    let e = one(&format!("{head}block_bio_queue: 259,1048575 R 1 + 2 [x]"));
    assert_eq!(
        (e.dev, e.what),
        (DevId::new(259, 1_048_575), What::BioQueue)
    );
}

#[test]
fn the_tracer_blk_is_read_too() {
    let head = "              dd-14823   [001] d..1. 39773.063119:   7,0    ";
    let e = one(&format!("{head}D  WS 8 + 16 [dd]"));
    assert_eq!(
        (e.what, e.ns, e.dev),
        (What::Issue, 39_773_063_119_000, DevId::new(7, 0))
    );
    assert_eq!((e.sector, e.sectors, e.tid), (8, 16, 14_823));
    assert_eq!(e.comm.text(), "dd");
    let item = |rest: &str| parse(format!("{head}{rest}").as_bytes());
    assert_eq!(item("P   N [dd]"), Some(Item::Foreign));
    assert_eq!(item("D  WS 8 + 1"), Some(Item::Unreadable));
}

#[test]
fn names_of_threads_may_be_anything() {
    for (head, tid, comm) in [
        (
            "  my prog [1]-2-77    [001] ....    10.000001: ",
            77,
            "my prog [1]-2",
        ),
        ("     <idle>-0     [001] ..s.    10.000001: ", 0, "<idle>"),
        (
            " block_rq_issue: -5  [001] ..s.    10.000001: ",
            5,
            "block_rq_issue:",
        ),
        ("     <...>-4123  [001] ..s.    10.000001: ", 4_123, "<...>"),
    ] {
        let e = one(&format!("{head}block_getrq: 8,0 R 8 + 8 [x]"));
        assert_eq!((e.tid, e.comm.text().as_str()), (tid, comm));
    }
}

#[test]
fn what_is_no_block_event_is_told_apart() {
    let item = |line: &str| parse(line.as_bytes());
    assert_eq!(item("# tracer: nop"), None);
    assert_eq!(item("  "), None);
    assert_eq!(
        item("# entries-in-buffer/entries-written: 5/5   #P:2"),
        None
    );
    assert_eq!(
        item("# entries-in-buffer/entries-written: 15842/20000   #P:2"),
        Some(Item::Overwritten(4_158))
    );
    assert_eq!(item("CPU:1 [LOST 123 EVENTS]"), Some(Item::Lost(Some(123))));
    assert_eq!(
        item("CPU:0 [12 EVENTS DROPPED]"),
        Some(Item::Lost(Some(12)))
    );
    assert_eq!(item("CPU:0 [EVENTS DROPPED]"), Some(Item::Lost(None)));
    assert_eq!(
        item("##### CPU 1 buffer started ####"),
        Some(Item::Lost(None))
    );
    assert_eq!(
        item("fio 797 [000] 61.072584: PERF_RECORD_LOST lost 7"),
        Some(Item::Lost(Some(7)))
    );
    let head = "  fio-12    [001] ....    10.000001: ";
    assert_eq!(
        item(&format!("{head}sched_switch: prev=x")),
        Some(Item::Foreign)
    );
    assert_eq!(
        item(&format!("{head}block_plug: [fio]")),
        Some(Item::Foreign)
    );
    assert_eq!(item("cpus=2"), Some(Item::Foreign));
}

#[test]
fn a_cut_event_is_unreadable_and_never_a_wrong_number() {
    let line = "   fio-797   [000] .....    61.072584: block_rq_issue: 8,16 R 4096 () 107746 + 80 be,0,4 [fio]";
    let whole = one(line);
    for end in 0..line.len() {
        match parse(&line.as_bytes()[..end]) {
            Some(Item::Event(e)) => assert_eq!(e, whole, "{end}"),
            None | Some(Item::Foreign | Item::Unreadable) => {}
            other => panic!("{end}: {other:?}"),
        }
    }
    for bad in [
        "x-1 [000] . 9.001953: block_rq_insert: 8,0 Q 4096 () 1 + 8 [x]",
        "x-1 [000] . 9.0: block_rq_insert: 8,0 R 4096 () 1 + 8 [x]",
        "x-1 [000] . 90019530000: block_rq_insert: 8,0 R 4096 () 1 + 8 [x]",
        "x-1 [000] . 9.001953: block_rq_insert: 8 R 4096 () 1 + 8 [x]",
        "x-1 [000] . 9.001953: block_rq_insert: 8,0 R 4096 () 1 / 8 [x]",
        "x-1 [000] . 9.001953: block_rq_insert: 8,0 R 4096 () 99999999999999999999 + 8 [x]",
    ] {
        assert_eq!(parse(bad.as_bytes()), Some(Item::Unreadable), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_bytes_are_fatal(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut reader = Ftrace::new(&bytes[..]);
        while reader.next_item().unwrap().is_some() {}
    }

    #[test]
    fn no_text_around_events_is_fatal(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "block_", "rq_issue:", "block:", " 8,0 ", "R", "WS", "4096", "()", "(", ")", " + ", "8",
                "[x]", "-", "[000]", "1.000001:", " ", "/", "\n", "\r", "CPU:", "[LOST", "##### CPU",
                "# entries-in-buffer/entries-written:", "18446744073709551615",
            ]),
            0..40,
        )
    ) {
        let text = parts.concat();
        let mut reader = Ftrace::new(text.as_bytes());
        while reader.next_item().unwrap().is_some() {}
    }
}
