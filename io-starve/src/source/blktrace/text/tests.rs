use proptest::prelude::*;

use super::*;

fn one(line: &str) -> Event {
    match parse(line.as_bytes()) {
        (Item::Event(e), _) => e,
        other => panic!("{line:?}: {other:?}"),
    }
}

#[test]
fn the_default_format_and_others_hold_the_same_event() {
    for line in [
        "  7,0    1     7678     2.360945284    22  D  WS 105384 + 8 [fio]",
        "7,0 1 7678 2.360945284 22 D WS 105384 + 8 [fio]",
        // -f "%T.%t %D %p %a %d %S + %n %C"; -f "%D %p %T.%t %a %d %S + %n [%C]".
        "    2.360945284 7,0 22 D WS 105384 + 8 [fio]",
        "7,0 2.360945284    22  D  WS 105384 + 8 ( 7148) [fio]",
    ] {
        let e = one(line);
        assert_eq!((e.ns, e.what), (2_360_945_284, What::Issue), "{line}");
        assert_eq!((e.dev, e.class), (DevId::new(7, 0), Class::SyncWrite));
        assert_eq!((e.sector, e.sectors), (105_384, 8));
        assert_eq!((e.tid, e.comm.text().as_str()), (22, "fio"), "{line}");
    }
}

#[test]
fn every_action_has_its_own_words() {
    let head = "  8,0    3        1     0.000000001   697  ";
    let e = one(&format!("{head}X   W 100 / 228 [a b]"));
    assert_eq!((e.what, e.sector, e.sectors), (What::Split, 100, 128));
    assert_eq!(e.comm.text(), "a b");
    let e = one(&format!("{head}C  WS 223490 + 8 [0]"));
    assert_eq!((e.what, e.comm), (What::Complete, Comm::default()));
    let e = one(&format!("{head}D  FN [kworker/1:1H]"));
    assert_eq!((e.class, e.sector, e.sectors), (Class::Flush, 0, 0));
    let e = one(&format!("{head}C  FN 0 [0]"));
    assert_eq!(
        (e.what, e.class, e.sectors),
        (What::Complete, Class::Flush, 0)
    );
    let e = one(&format!("{head}D   R 36 (12 00 00 00 24 00 ..) [smartd]"));
    assert_eq!((e.class, e.sector, e.sectors), (Class::Other, 0, 0));
    assert_eq!(e.comm.text(), "smartd");
    // blkparse's word for a name that it does not know.
    assert_eq!(
        one(&format!("{head}Q   R 8 + 8 [(null)]")).comm,
        Comm::default()
    );
}

#[test]
fn what_is_no_event_is_told_apart() {
    for line in [
        "  8,0    3        2     0.000000001   697  P   N [fio]",
        "  8,0    3        2     0.000000001   697  U   N [fio] 1",
        "  8,0    3        2     0.000000001   697  A   W 223490 + 8 <- (8,1) 223427",
        "  8,0    3        0     0.000000001     0  m   N cfq schedule dispatch",
        "CPU0 (8,0):",
        " Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB",
        "Total (sda):",
        "Throughput (R/W): 677KiB/s / 2413KiB/s",
        "D WS 1 + 8 [x]",
    ] {
        assert_eq!(parse(line.as_bytes()).0, Item::Foreign, "{line}");
    }
    for line in [
        "  8,0    3        2     0.000000001   697  D   Q 8 + 8 [fio]",
        "  8,0    3        2     0.000000001   697  D   W 8 + x [fio]",
        "  8,0    3        2     0.000000001   697  D   W 8 - 8 [fio]",
        "  8,0    3        2     0.000000001   697  X   W 8 + 8 [fio]",
        "  8,0    3        2     0.000000001   697  D",
    ] {
        assert_eq!(parse(line.as_bytes()).0, Item::Unreadable, "{line}");
    }
}

#[test]
fn a_last_number_without_an_end_of_line_may_be_cut() {
    let text = "7,0 2.360945284 22 D WS 105384 + 80";
    let items = |text: &str| {
        let mut reader = Blkparse::new(text.as_bytes());
        reader.next_item().unwrap().unwrap()
    };
    assert_eq!(items(text), Item::Unreadable);
    assert!(matches!(items(&format!("{text}\n")), Item::Event(e) if e.sectors == 80));
    assert!(matches!(items(&format!("{text} [fio]")), Item::Event(_)));
}

proptest! {
    #[test]
    fn no_bytes_are_fatal(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut reader = Blkparse::new(&bytes[..]);
        while reader.next_item().unwrap().is_some() {}
    }

    #[test]
    fn no_words_are_fatal(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "8,0", "1.5", "1.123456789", "Q", "D", "X", "C", "R", "WS", "FN", "8", "+", "/", "[x]", "[", "]", "(12", "..)",
                "99999999999999999999", "18446744073709551615", "\n", "\r\n", "m", "N",
            ]),
            0..60,
        )
    ) {
        let text = words.join(" ");
        let mut reader = Blkparse::new(text.as_bytes());
        while reader.next_item().unwrap().is_some() {}
    }
}
