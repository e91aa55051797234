use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::source::{
    recording::tests::{observations, recorded},
    replay::Tape,
};

const LINE: &str = "   fio-797   [000] .....    61.072584: block_rq_issue: 8,16 R 4096 () 107746 + 8 be,0,4 [fio]\n";

/// Hands out a few bytes at a time, as pipes do.
struct Trickle(Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(7);
        self.0.read(&mut out[..n])
    }
}

fn opened(bytes: &[u8], from: Option<Format>) -> Result<Opened, InputError> {
    let trickle = BufReader::with_capacity(16, Trickle(Cursor::new(bytes.to_vec())));
    read(Box::new(trickle), "test", from)
}

/// How many events an input holds when it is a trace.
fn events(bytes: &[u8]) -> Option<u64> {
    match opened(bytes, None) {
        Ok(Opened::Trace(mut import)) => {
            while import.next_observation().is_some() {}
            Some(import.notes().events)
        }
        _ => None,
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = liblzma::write::XzEncoder::new(Vec::new(), 1);
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 1).unwrap()
}

#[test]
fn packed_or_not_a_trace_is_found_by_looking() {
    let text = LINE.repeat(3_000);
    for bytes in [
        text.clone().into_bytes(),
        gzip(text.as_bytes()),
        xz(text.as_bytes()),
        zstd(text.as_bytes()),
        // Several members, as logrotate and pigz make.
        [
            gzip(&text.as_bytes()[..LINE.len()]),
            gzip(&text.as_bytes()[LINE.len()..]),
        ]
        .concat(),
    ] {
        assert_eq!(events(&bytes), Some(3_000));
    }
    // Headers and foreign lines come first.
    let late = format!("# a comment\ncpus=2\n{}{LINE}", "x: y\n".repeat(5_000));
    assert_eq!(events(late.as_bytes()), Some(1));
    assert_eq!(events(b"# tracer: nop\n#\n"), Some(0));
    assert_eq!(events(LINE.trim_end().as_bytes()), Some(1));
}

#[test]
fn a_recording_stays_a_recording_however_slowly_it_comes() {
    let file = recorded(&observations(3));
    match opened(&file, None) {
        Ok(Opened::Recording(mut recording)) => {
            let mut n = 0;
            while recording.next_observation().is_some() {
                n += 1;
            }
            assert_eq!((n, recording.is_whole()), (3, true));
        }
        _ => panic!("not taken for a recording"),
    }
}

#[test]
fn what_cannot_be_read_says_what_to_do() {
    let words = |bytes: &[u8], from| match opened(bytes, from) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("opened"),
    };
    assert!(words(b"\x17\x08\x44tracing6\0", None).contains("trace-cmd report"));
    assert!(words(b"PERFILE2xxxxxxxxxxxx", None).contains("perf script"));
    assert!(words(b"hello\nworld\n", None).contains("--from"));
    assert!(words(b"", None).contains("empty"));
    assert!(words(&gzip(b"hello")[..12], None).contains("unpack"));
    assert!(words(LINE.as_bytes(), Some(Format::Recording)).contains("not a recording"));
}

#[test]
fn what_is_forced_is_not_looked_at() {
    match opened(b"hello\nworld\n", Some(Format::Perf)) {
        Ok(Opened::Trace(mut import)) => {
            while import.next_observation().is_some() {}
            assert_eq!(import.notes().foreign, 2);
        }
        _ => panic!("not taken for a trace"),
    }
}

#[test]
fn a_damaged_end_keeps_what_came_before() {
    let text: String = (0..20_000)
        .map(|i| {
            LINE.replace("107746", &i.to_string())
                .replace("61.07", &format!("{}.07", 61 + i / 1_000))
        })
        .collect();
    let packed = xz(text.as_bytes());
    match opened(&packed[..packed.len() / 2], None) {
        Ok(Opened::Trace(mut import)) => {
            while import.next_observation().is_some() {}
            assert!(!import.is_whole());
            assert!(import.notes().events > 1_000);
            assert!(import.warning().unwrap().contains("damaged"));
        }
        _ => panic!("not taken for a trace"),
    }
}

proptest! {
    #[test]
    fn no_bytes_are_fatal(
        magic in prop::sample::select(vec![
            &b""[..], b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"\x07tae", b"eat\x08", b"# tracer: nop\n", b"PERFILE2",
        ]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        from in prop::sample::select(vec![
            None, Some(Format::Ftrace), Some(Format::Blkparse), Some(Format::Blktrace), Some(Format::Recording),
        ]),
    ) {
        if let Ok(Opened::Trace(mut import)) = opened(&[magic, &bytes].concat(), from) {
            let mut observations = 0;
            while import.next_observation().is_some() {
                observations += 1;
            }
            prop_assert!(observations > 0);
            prop_assert!(import.warning().is_some());
        }
    }

    #[test]
    fn a_packed_trace_with_a_wrong_byte_is_read_as_far_as_it_goes(at in 0.0..1.0, xor in 1u8..) {
        let text: String = (0..500)
            .map(|i| LINE.replace("107746", &(i * 977).to_string()))
            .collect();
        for mut packed in [gzip(text.as_bytes()), xz(text.as_bytes()), zstd(text.as_bytes())] {
            let at = (packed.len() as f64 * at) as usize;
            packed[at] ^= xor;
            if let Ok(Opened::Trace(mut import)) = opened(&packed, None) {
                while import.next_observation().is_some() {}
                // A wrong length may repeat what came before, so that there may be more lines than there were.
                prop_assert!(import.is_whole() || import.warning().is_some());
            }
        }
    }
}
