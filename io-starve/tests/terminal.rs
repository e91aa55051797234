//! The screen on a real (pseudo) terminal: on every way out the terminal is as it was.
//!
//! A test starts this file's own binary on the far end of a pseudo-terminal, in a process group of its own as a shell
//! would, and speaks to it as a user does. No step waits for a time, each waits for bytes or for the process.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in test functions, but not in what these call"
)]

use std::{
    fs::File,
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use io_starve::{
    model::snapshot::Snapshot,
    tui::{self, Mode, Options, TuiError, terminal::Guard},
};
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const WHAT: &str = "IO_STARVE_TERMINAL_TEST";
/// For a machine that is very slow; nothing takes this long when the test passes.
const AT_MOST: Duration = Duration::from_secs(60);

/// What the other tests start; does nothing when it is run as a test.
#[test]
fn child() {
    let Ok(what) = std::env::var(WHAT) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let snapshot = Snapshot {
        verdict: "drawn".to_owned(),
        ..Snapshot::default()
    };
    let (sender, feed) = tokio::sync::watch::channel(Arc::new(snapshot));
    let options = Options {
        ascii: true,
        ..Options::new(Mode::Live)
    };
    match what.as_str() {
        "run" => {
            runtime.block_on(tui::run(feed, options)).unwrap();
            drop(sender);
        }
        "end" => {
            drop(sender);
            runtime.block_on(tui::run(feed, options)).unwrap();
        }
        "refused" => match runtime.block_on(tui::run(feed, options)) {
            Err(TuiError::NotATerminal) => println!("no terminal"),
            other => panic!("{other:?}"),
        },
        "panic elsewhere" => {
            let result = runtime.block_on(async {
                let failing = async {
                    // Polled after the screen, which draws before it waits for the first time.
                    assert!(thread::spawn(|| panic!("elsewhere")).join().is_err());
                    sender.send(Arc::new(Snapshot::default())).unwrap();
                };
                tokio::join!(biased; tui::run(feed, options), failing).0
            });
            assert!(matches!(result, Err(TuiError::Lost)), "{result:?}");
            println!("returned");
        }
        "panic in drawing" => {
            let _guard = Guard::take().unwrap();
            let backend = ratatui::backend::CrosstermBackend::new(std::io::stdout());
            ratatui::Terminal::new(backend)
                .unwrap()
                .draw(|_| panic!("in drawing"))
                .unwrap();
        }
        other => panic!("no child {other}"),
    }
}

struct Session {
    child: Child,
    master: File,
    slave: OwnedFd,
    before: String,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Session {
    fn start(what: &str) -> Session {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = ptsname(&master, vec![]).unwrap();
        let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let before = modes(&slave);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command(what)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .process_group(0)
            .spawn()
            .unwrap();
        let (sender, output) = channel();
        let mut reader = File::from(master.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Session {
            child,
            master: File::from(master),
            slave,
            before,
            output,
            seen: String::new(),
        }
    }

    fn on_screen(what: &str) -> Session {
        let mut session = Session::start(what);
        session.expect(ENTER);
        session.expect("drawn");
        assert_ne!(
            modes(&session.slave),
            session.before,
            "the terminal is in raw mode"
        );
        session
    }

    /// Reads until this comes, and forgets all up to it.
    fn expect(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.output.recv_timeout(AT_MOST) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} did not come after {:?}", self.seen),
            }
        }
    }

    fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn wait_until_stopped(&self) {
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED)
            .unwrap()
            .unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    /// Waits for the end; the terminal must be as it was.
    fn end(mut self) -> ExitStatus {
        self.expect(LEAVE);
        let status = self.child.wait().unwrap();
        assert_eq!(modes(&self.slave), self.before);
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only after a failed assertion is it still there.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(WHAT, what);
    command
}

fn modes(terminal: &OwnedFd) -> String {
    let t = tcgetattr(terminal).unwrap();
    format!(
        "{:?} {:?} {:?} {:?}",
        t.input_modes, t.output_modes, t.local_modes, t.control_modes
    )
}

#[test]
fn a_key_ends_it() {
    for key in ["q", "\u{3}"] {
        let mut session = Session::on_screen("run");
        session.keys(key);
        assert!(session.end().success(), "{key:?}");
    }
}

#[test]
fn a_signal_ends_it_as_a_key_does() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let session = Session::on_screen("run");
        session.signal(signal);
        let status = session.end();
        assert!(status.success(), "{signal:?}: {status}");
    }
}

#[test]
fn it_stops_on_ctrl_z_and_comes_back() {
    let mut session = Session::on_screen("run");
    for _ in 0..2 {
        session.keys("\u{1a}");
        session.wait_until_stopped();
        session.expect(LEAVE);
        assert_eq!(
            modes(&session.slave),
            session.before,
            "the shell gets its terminal back"
        );
        session.signal(Signal::CONT);
        session.expect(ENTER);
        session.expect("drawn");
        assert_ne!(modes(&session.slave), session.before);
    }
    session.keys("q");
    assert!(session.end().success());
}

#[test]
fn it_draws_anew_after_a_stop_that_it_could_not_see() {
    let mut session = Session::on_screen("run");
    session.signal(Signal::STOP);
    session.wait_until_stopped();
    session.signal(Signal::CONT);
    session.expect(ENTER);
    session.expect("drawn");
    session.keys("q");
    assert!(session.end().success());
}

#[test]
fn the_last_picture_stays_when_the_feed_ends() {
    let mut session = Session::on_screen("end");
    session.expect("ended");
    session.keys("q");
    assert!(session.end().success());
}

#[test]
fn a_panic_in_drawing_is_told_on_the_restored_terminal() {
    let mut session = Session::start("panic in drawing");
    session.expect(ENTER);
    session.expect(LEAVE);
    session.expect("in drawing");
    let status = session.child.wait().unwrap();
    assert!(!status.success() && status.signal().is_none(), "{status}");
    assert_eq!(modes(&session.slave), session.before);
}

#[test]
fn a_panic_of_another_thread_gives_the_terminal_back_and_ends_it() {
    let mut session = Session::start("panic elsewhere");
    session.expect(ENTER);
    session.expect(LEAVE);
    session.expect("elsewhere");
    session.expect("returned");
    assert!(session.child.wait().unwrap().success());
    assert_eq!(modes(&session.slave), session.before);
}

#[test]
fn without_a_terminal_it_says_so_and_touches_nothing() {
    let output = command("refused").stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("no terminal") && !text.contains(ENTER),
        "{text}"
    );
}
