//! The live screen with a finding open: however it ends, the finding stays in the terminal.

use std::{collections::BTreeSet, ffi::OsStr, process::Command};

use rustix::process::Signal;

use crate::{
    endings::{Group, Load, READERS, SHORT_WAITS, idle_reader, starving_disk},
    machine::{Disk, fio_in_background, io_starve, programs, programs_of, until},
    pty::{ENTER, LEAVE, Session},
};

/// An idle reader that starves behind others for as long as this is there.
struct Starving {
    _loads: [Load; 2],
    group: Group,
    disk: Disk,
}

impl Starving {
    fn new(name: &str) -> Starving {
        let (disk, group) = (starving_disk(), Group::new(name));
        let readers = Load(fio_in_background(&disk, READERS));
        let mut idle = Command::new("sh");
        idle.args(["-c", &idle_reader(&disk, &group, 60)]);
        Starving {
            _loads: [readers, Load(idle.spawn().unwrap())],
            group,
            disk,
        }
    }

    /// `top`, once it shows the finding.
    fn on_screen(&self, faults: &OsStr) -> Session {
        let mut top = io_starve();
        top.args(["top", "--ascii", "--device", self.disk.name()])
            .args(SHORT_WAITS)
            .env("TERM", "xterm-256color")
            .env("IO_STARVE_FAULTS", faults);
        let mut screen = Session::start(&mut top);
        screen.expect(ENTER);
        until("the finding is on the screen", || {
            // Drawn anew it ends with the keys; otherwise only what changed is written, which may be some letters of it.
            screen.keys("\u{c}");
            let drawn = screen.expect("quit");
            drawn.contains("read-starvation on").then_some(())
        });
        assert!(!screen.is_as_before(), "the terminal is in raw mode");
        screen
    }

    /// Reads the line of the finding that the end closed.
    fn is_told(&self, screen: &mut Session) {
        let disk = self.disk.name();
        screen.expect(&format!("close: info read-starvation on {disk}: "));
        let line = screen.expect("\r\n");
        assert!(line.contains(self.group.name()), "{line}");
        assert!(
            line.ends_with("; still open when the observer left"),
            "{line}"
        );
    }
}

fn are_gone(ours: &BTreeSet<u64>) {
    until("the kernel has dropped the programs", || {
        ours.is_disjoint(&programs()).then_some(())
    });
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn what_is_open_when_the_screen_is_left_is_told() {
    let starving = Starving::new("left");
    let ways: [fn(&mut Session); 2] = [|s| s.keys("q"), |s| s.signal(Signal::TERM)];
    for leave in ways {
        let mut screen = starving.on_screen(OsStr::new(""));
        let ours = programs_of(screen.pid().as_raw_nonzero().get().unsigned_abs());
        assert!(ours.len() > 10, "{ours:?} are attached");
        leave(&mut screen);
        screen.expect(LEAVE);
        starving.is_told(&mut screen);
        screen.expect("io-starve: ");
        assert_eq!(screen.end().code(), Some(0));
        are_gone(&ours);
    }
}

#[cfg(feature = "faults")]
#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn a_panic_in_drawing_ends_it_in_order() {
    let starving = Starving::new("panic");
    let faults = tempfile::tempdir().unwrap();
    let mut screen = starving.on_screen(faults.path().as_os_str());
    let ours = programs_of(screen.pid().as_raw_nonzero().get().unsigned_abs());
    assert!(ours.len() > 10, "{ours:?} are attached");
    std::fs::write(faults.path().join("panic-in-drawing"), "").unwrap();
    screen.expect(LEAVE);
    screen.expect("the fault panic-in-drawing is on");
    starving.is_told(&mut screen);
    let rest = screen.expect("io-starve: the screen was closed because drawing it");
    assert!(!rest.contains(ENTER), "it stays closed");
    assert_eq!(screen.end().code(), Some(1));
    are_gone(&ours);
}
