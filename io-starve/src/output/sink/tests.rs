use std::io::{BufRead, BufReader};

use super::*;
use crate::files::tests::{fifo, reader};

fn to_file(path: &Path) -> (Sink, Reopener) {
    Sink::file(Sink::place(path).unwrap()).unwrap()
}

#[test]
fn lines_are_appended_in_order_and_a_rotated_file_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let (log, old) = (dir.path().join("log"), dir.path().join("log.1"));
    std::fs::write(&log, "before\n").unwrap();
    let (mut sink, reopener) = to_file(&log);
    sink.write("one\n").unwrap();
    drop(reopener);
    sink.finish().unwrap();
    let (mut sink, reopener) = to_file(&log);
    std::fs::rename(&log, &old).unwrap();
    reopener.reopen();
    sink.write("two\n").unwrap();
    drop(reopener);
    sink.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "before\none\n");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "two\n");
}

#[test]
fn a_file_that_cannot_be_opened_is_said_at_once() {
    let error = Sink::place(Path::new("/proc/none/log")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot append to /proc/none/log: No such file or directory (os error 2); make its folder first"
    );
}

#[test]
fn a_full_disk_does_not_end_the_sink() {
    let (mut sink, reopener) = to_file(Path::new("/dev/full"));
    for _ in 0..3 {
        sink.write("x\n").unwrap();
    }
    drop(reopener);
    assert_eq!(
        sink.finish().unwrap_err().to_string(),
        "3 lines could not be written to /dev/full: No space left on device (os error 28); \
         free space or choose another disk"
    );
}

#[test]
fn lines_that_a_stopped_reader_left_are_counted_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = fifo(dir.path());
    let reader = reader(&path);
    let (mut sink, reopener) = to_file(&path);
    // The first fits into the pipe, the second does not.
    let long = "x".repeat(1 << 20) + "\n";
    for line in ["taken\n".to_owned(), long, "waiting\n".to_owned()] {
        sink.write(line).unwrap();
    }
    drop(reopener);
    let said = sink.finish().unwrap_err().to_string();
    assert!(said.starts_with("2 lines could not be written: "), "{said}");
    drop(reader);
}

#[test]
fn a_pipe_keeps_lines_for_a_reader_that_comes_late() {
    let dir = tempfile::tempdir().unwrap();
    let path = fifo(dir.path());
    let (mut sink, reopener) = to_file(&path);
    sink.write("early\n").unwrap();
    let reader = reader(&path);
    drop(reopener);
    sink.finish().unwrap();
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    assert_eq!(line, "early\n");
}
