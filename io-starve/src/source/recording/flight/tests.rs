use super::*;
use crate::source::recording::{
    Ending, Recording,
    tests::{checkpoint, observations},
};

const ROOM: Room = Room {
    bytes: 64 << 20,
    kept: 3,
};

fn begin(dir: &Path, room: Room) -> Flight {
    // Observations come faster here than any disk takes them.
    Flight::with_queue(dir, room, 10_000).unwrap()
}

fn feed(flight: &mut Flight, o: &Observation) {
    if flight.wants_checkpoint(o) {
        flight.segment(&checkpoint(), o).unwrap();
    }
    flight.write(o).unwrap();
}

fn names(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_str().unwrap().starts_with(prefix))
        .collect();
    all.sort();
    all
}

fn read(path: &Path) -> (Vec<Observation>, Ending) {
    let mut recording = Recording::open(path).unwrap();
    let list = std::iter::from_fn(|| recording.next_observation()).collect();
    (list, recording.ending().unwrap().clone())
}

#[test]
fn a_finding_has_what_came_before_and_after_it_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let mut flight = begin(dir.path(), ROOM);
    let list = observations(800);
    let mut path = None;
    for (i, o) in list.iter().enumerate() {
        feed(&mut flight, o);
        // 70 s: in the third segment.
        if i == 280 {
            path = flight.keep("queue-stuck", o);
        }
        if i == 300 {
            assert_eq!(flight.keep("device-stall", o), path, "one at a time");
        }
    }
    flight.finish();
    let path = path.unwrap();
    assert!(
        path.ends_with("finding-20231114T221430.000Z-queue-stuck.rec"),
        "{path:?}"
    );
    let (kept, ending) = read(&path);
    assert_eq!(ending, Ending::Whole);
    // From the beginning of the segment before, 30 s, to 30 s after.
    assert_eq!(kept, list[120..=400]);
    let ring: Vec<_> = names(dir.path(), RING).iter().map(|p| read(p)).collect();
    assert!(
        ring[..6]
            .iter()
            .all(|(_, ending)| *ending == Ending::NoEndMark)
    );
    assert_eq!(ring[6].1, Ending::Whole);
    let all: Vec<_> = ring.into_iter().flat_map(|(list, _)| list).collect();
    assert_eq!(all, list);
}

#[test]
fn what_is_killed_replays_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut flight = begin(dir.path(), ROOM);
    let list = observations(200);
    for (i, o) in list.iter().enumerate() {
        feed(&mut flight, o);
        if i == 190 {
            flight.keep("queue-stuck", o);
        }
    }
    // Ends the thread as if the process had been killed: what it was given is written, no end mark is.
    let Flight { queue, done, .. } = flight;
    drop(queue);
    done.recv_timeout(LAST_WRITE).unwrap();
    let (kept, ending) = read(&names(dir.path(), KEPT)[0]);
    assert_eq!((kept.as_slice(), ending), (&list[..199], Ending::NoEndMark));
}

#[test]
fn the_oldest_go_by_size_and_count_and_nothing_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| fs::write(dir.path().join(name), [0; 100]).unwrap();
    let left = |prefix| {
        let paths = names(dir.path(), prefix);
        let name = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
        paths.iter().map(name).collect::<Vec<_>>()
    };
    for name in [
        "ring-1.rec",
        "ring-2.rec",
        "ring-3.rec",
        "ring-0.txt",
        "finding-1.rec",
    ] {
        file(name);
    }
    prune(dir.path(), RING, 250, usize::MAX).unwrap();
    assert_eq!(left("ring-"), ["ring-0.txt", "ring-2.rec", "ring-3.rec"]);
    prune(dir.path(), RING, 1_000, 1).unwrap();
    assert_eq!(left("ring-"), ["ring-0.txt", "ring-3.rec"]);
    prune(dir.path(), RING, 0, 0).unwrap();
    assert_eq!(
        left("ring-"),
        ["ring-0.txt", "ring-3.rec"],
        "the youngest may be written to"
    );
    assert_eq!(left("finding-"), ["finding-1.rec"]);
}

#[test]
fn a_segment_that_has_grown_to_its_size_makes_room_for_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let small = Room {
        bytes: 16 << 10,
        kept: 3,
    };
    let mut flight = begin(dir.path(), small);
    let list = observations(100);
    list.iter().for_each(|o| feed(&mut flight, o));
    for _ in 0..1_000 {
        if flight.full.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(flight.wants_checkpoint(&list[99]));
    flight.finish();
}

#[test]
fn other_thresholds_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut flight = begin(dir.path(), ROOM);
    let list = observations(40);
    for (i, o) in list.iter().enumerate() {
        if i == 20 {
            flight.restart();
            assert!(flight.wants_checkpoint(o));
        }
        feed(&mut flight, o);
    }
    let kept = flight.keep("queue-stuck", &list[39]).unwrap();
    flight.finish();
    assert_eq!(read(&kept).0, list[20..]);
}
