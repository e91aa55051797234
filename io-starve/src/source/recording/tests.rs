use std::io::{Read, Write};

use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;
use crate::model::observation::{DevId, DeviceSample, Pressure};

/// `n` observations, 250 ms apart, each unlike the others.
pub(crate) fn observations(n: u64) -> Vec<Observation> {
    (0..n)
        .map(|i| Observation {
            mono_ns: 5_000_000_000 + i * 250_000_000,
            wall_ns: 1_700_000_000_000_000_000 + i as i64 * 250_000_000,
            devices: vec![DeviceSample {
                dev: DevId::new(8, 0),
                issued: i * 75,
                sync_issued: i,
                completed: i * 74,
                last_issue_ns: Some(u64::MAX - i),
                last_complete_ns: None,
                tag_waits: i,
            }],
            pressure: vec![Pressure {
                owner: None,
                some_avg10: 0.1 + i as f64 / 3.0,
                full_avg10: f64::MIN_POSITIVE * i as f64,
            }],
            ..Observation::default()
        })
        .collect()
}

pub(crate) fn checkpoint() -> Checkpoint {
    Checkpoint {
        settings: Settings::default(),
        labels: BTreeMap::from([("site".to_owned(), "x".to_owned())]),
        interval_ms: 250,
        observations: 0,
        pipeline: serde_json::json!({"a": 1}),
        reporter: serde_json::Value::Null,
    }
}

/// The bytes of a recording of these.
pub(crate) fn recorded(list: &[Observation]) -> Vec<u8> {
    let file = NamedTempFile::new().unwrap();
    let place = Recorder::place(file.path()).unwrap();
    let mut recorder = Recorder::create(place, &checkpoint()).unwrap();
    for o in list {
        recorder.write(o).unwrap();
    }
    assert_eq!(recorder.finish().unwrap(), list.len() as u64);
    std::fs::read(file.path()).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Observation>, Ending, Option<String>), RecordingError> {
    let mut recording = Recording::new(bytes, "test.rec")?;
    let mut list = Vec::new();
    while let Some(o) = recording.next_observation() {
        list.push(o);
    }
    let ending = recording.ending().unwrap().clone();
    Ok((list, ending, recording.warning()))
}

#[test]
fn what_goes_in_comes_out() {
    let list = observations(23);
    let bytes = recorded(&list);
    let recording = Recording::new(&bytes[..], "test.rec").unwrap();
    assert_eq!(recording.header(), &Header::of_this_build());
    assert_eq!(recording.checkpoint(), &checkpoint());
    let (back, ending, warning) = read(&bytes).unwrap();
    assert_eq!(back, list);
    assert_eq!(ending, Ending::Whole);
    assert_eq!(warning, None);
}

#[test]
fn it_is_lines_of_json_in_frames_of_a_second_with_checksums() {
    let bytes = recorded(&observations(23));
    let text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2 + 23 + 1);
    assert_eq!(lines[0]["io_starve_recording"], 1);
    assert!(lines[1]["checkpoint"]["settings"].is_object());
    assert_eq!(lines[2]["observation"]["mono_ns"], 5_000_000_000_u64);
    assert_eq!(lines[25]["end"]["observations"], 23);

    let mut rest = &bytes[..];
    let mut frames = 0;
    while !rest.is_empty() {
        // Frame header descriptor, RFC 8878 section 3.1.1.1.1: bit 2 says that a checksum follows the data.
        assert_eq!(rest[4] & 4, 4, "frame {frames} has no checksum");
        rest = &rest[zstd::zstd_safe::find_frame_compressed_size(rest).unwrap()..];
        frames += 1;
    }
    // Header; 23 observations of 250 ms are 6 frames.
    assert_eq!(frames, 7);
}

#[test]
fn cut_anywhere_it_yields_a_prefix_and_says_so() {
    let list = observations(9);
    let bytes = recorded(&list);
    let mut most = 0;
    for cut in 0..bytes.len() {
        match read(&bytes[..cut]) {
            Ok((back, ending, warning)) => {
                assert_eq!(back, list[..back.len()], "cut at {cut}");
                assert!(back.len() >= most, "cut at {cut}: a longer file gave less");
                most = back.len();
                assert_ne!(ending, Ending::Whole, "cut at {cut}");
                let warning = warning.unwrap();
                if let Ending::Torn { bytes, .. } = ending {
                    assert!(
                        bytes <= cut as u64 && warning.contains(&format!("after {bytes} bytes")),
                        "{warning}"
                    );
                }
                if most > 0 {
                    assert!(warning.contains("2023-11-14T22:13:2"), "{warning}");
                }
            }
            Err(RecordingError::Empty { .. }) => assert_eq!(cut, 0),
            Err(RecordingError::Damaged { .. }) => assert_eq!(most, 0, "cut at {cut}"),
            Err(e) => panic!("cut at {cut}: {e}"),
        }
    }
    assert_eq!(most, 8, "only the last frame is lost by a cut in it");
}

#[test]
fn an_empty_or_foreign_file_is_named_as_such() {
    let says = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert!(says(b"").starts_with("test.rec is empty"), "{}", says(b""));
    assert!(says(b"hello").contains("does not begin with a zstd frame"));
    let packed = zstd::encode_all(&b"hello\n"[..], 3).unwrap();
    assert!(
        says(&packed).contains("not a recording of io-starve"),
        "{}",
        says(&packed)
    );
    let empty_frame = zstd::encode_all(&b""[..], 3).unwrap();
    assert!(says(&empty_frame).contains("not a recording of io-starve"));
    let nonsense = zstd::encode_all(
        &b"{\"io_starve_recording\":1,\"version\":\"0.1.0\",\"build\":null}\n{}\n"[..],
        3,
    )
    .unwrap();
    assert!(
        says(&nonsense).contains("checkpoint"),
        "{}",
        says(&nonsense)
    );
}

#[test]
fn a_newer_format_is_refused_with_the_version_to_use() {
    let line = "{\"io_starve_recording\":2,\"version\":\"3.4.5\",\"shape\":\"new\"}\n";
    let packed = zstd::encode_all(line.as_bytes(), 3).unwrap();
    let says = read(&packed).unwrap_err().to_string();
    assert!(
        says.contains("format 2") && says.contains("replay it with version 3.4.5 or later"),
        "{says}"
    );
}

#[test]
fn a_file_packed_anew_is_read_alike() {
    let list = observations(9);
    let text = zstd::decode_all(&recorded(&list)[..]).unwrap();
    for split in [text.len(), text.len() / 2, text.len() - 3] {
        let mut bytes = zstd::encode_all(&text[..split], 1).unwrap();
        bytes.extend(zstd::encode_all(&text[split..], 19).unwrap());
        let (back, ending, _) = read(&bytes).unwrap();
        assert_eq!((back, ending), (list.clone(), Ending::Whole));
    }
}

#[test]
fn a_frame_that_would_eat_the_memory_is_refused() {
    let mut bytes = recorded(&observations(2));
    bytes.extend(zstd::encode_all(std::io::repeat(b'x').take(80 << 20), 1).unwrap());
    let (back, ending, _) = read(&bytes).unwrap();
    assert_eq!(back.len(), 2);
    assert!(matches!(ending, Ending::Torn { why, .. } if why.contains("64 MiB")));
}

#[test]
fn no_place_to_record_to_is_said_at_once() {
    let place = |path| Recorder::place(std::path::Path::new(path));
    let error = place("/proc/none/x.rec").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot record to /proc/none/x.rec: No such file or directory (os error 2); make its folder first"
    );
    let error = Recorder::create(place("/dev/full").unwrap(), &checkpoint()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("No space left on device (os error 28); free space or choose another disk"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_flipped_byte_never_panics_and_yields_a_prefix(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let list = observations(9);
        let mut bytes = recorded(&list);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok((back, ending, _)) = read(&bytes) {
            prop_assert!(back.len() <= list.len());
            prop_assert_eq!(&back[..], &list[..back.len()]);
            let torn = matches!(ending, Ending::Torn { .. });
            prop_assert!(torn || back.len() == list.len(), "{:?}", ending);
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000), zstd_magic in any::<bool>()) {
        let mut file = Vec::new();
        if zstd_magic {
            file.write_all(&0xFD2F_B528_u32.to_le_bytes()).unwrap();
        }
        file.extend(bytes);
        let _ = read(&file);
    }
}
