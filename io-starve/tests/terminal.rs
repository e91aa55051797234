//! The screen on a real (pseudo) terminal: on every way out the terminal is as it was.
//!
//! A test starts this file's own binary on the far end of a pseudo-terminal and speaks to it as a user does.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in test functions, but not in what these call"
)]

mod pty;

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
};

use io_starve::{
    model::snapshot::Snapshot,
    tui::{self, Mode, Options, TuiError, request::Update, terminal::Guard},
};
use pty::{ENTER, LEAVE, Session};
use rustix::process::{Signal, WaitOptions, waitpid};

const WHAT: &str = "IO_STARVE_TERMINAL_TEST";

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
    let first = Update {
        snapshot: Arc::new(snapshot),
        ..Update::default()
    };
    let (sender, feed) = tokio::sync::watch::channel(first);
    let (requests, _asked) = tokio::sync::mpsc::channel(4);
    let options = Options {
        ascii: true,
        ..Options::new(Mode::Live)
    };
    match what.as_str() {
        "run" => {
            runtime.block_on(tui::run(feed, requests, options)).unwrap();
            drop(sender);
        }
        "end" => {
            drop(sender);
            runtime.block_on(tui::run(feed, requests, options)).unwrap();
        }
        "refused" => match runtime.block_on(tui::run(feed, requests, options)) {
            Err(TuiError::NotATerminal) => println!("no terminal"),
            other => panic!("{other:?}"),
        },
        "panic elsewhere" => {
            let result = runtime.block_on(async {
                let failing = async {
                    // Polled after the screen, which draws before it waits for the first time.
                    assert!(thread::spawn(|| panic!("elsewhere")).join().is_err());
                    sender.send(Update::default()).unwrap();
                };
                tokio::join!(biased; tui::run(feed, requests, options), failing).0
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

fn start(what: &str) -> Session {
    Session::start(&mut command(what))
}

fn on_screen(what: &str) -> Session {
    let mut session = start(what);
    session.expect(ENTER);
    session.expect("drawn");
    assert!(!session.is_as_before(), "the terminal is in raw mode");
    session
}

/// Waits until it has left the screen and ended.
fn end(mut session: Session) -> ExitStatus {
    session.expect(LEAVE);
    session.end()
}

fn wait_until_stopped(session: &Session) {
    let (_, status) = waitpid(Some(session.pid()), WaitOptions::UNTRACED)
        .unwrap()
        .unwrap();
    assert!(status.stopped(), "{status:?}");
}

fn command(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child", "--exact", "--nocapture", "--test-threads=1"])
        .env(WHAT, what);
    command
}

#[test]
fn a_key_ends_it() {
    for key in ["q", "\u{3}"] {
        let mut session = on_screen("run");
        session.keys(key);
        assert!(end(session).success(), "{key:?}");
    }
}

#[test]
fn a_signal_ends_it_as_a_key_does() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let session = on_screen("run");
        session.signal(signal);
        let status = end(session);
        assert!(status.success(), "{signal:?}: {status}");
    }
}

#[test]
fn it_stops_on_ctrl_z_and_comes_back() {
    let mut session = on_screen("run");
    for _ in 0..2 {
        session.keys("\u{1a}");
        wait_until_stopped(&session);
        session.expect(LEAVE);
        assert!(session.is_as_before(), "the shell gets its terminal back");
        session.signal(Signal::CONT);
        session.expect(ENTER);
        session.expect("drawn");
        assert!(!session.is_as_before());
    }
    session.keys("q");
    assert!(end(session).success());
}

#[test]
fn it_draws_anew_after_a_stop_that_it_could_not_see() {
    let mut session = on_screen("run");
    session.signal(Signal::STOP);
    wait_until_stopped(&session);
    session.signal(Signal::CONT);
    session.expect(ENTER);
    session.expect("drawn");
    session.keys("q");
    assert!(end(session).success());
}

#[test]
fn the_last_picture_stays_when_the_feed_ends() {
    let mut session = on_screen("end");
    session.expect("ended");
    session.keys("q");
    assert!(end(session).success());
}

#[test]
fn a_panic_in_drawing_is_told_on_the_restored_terminal() {
    let mut session = start("panic in drawing");
    session.expect(ENTER);
    session.expect(LEAVE);
    session.expect("in drawing");
    let status = session.end();
    assert!(!status.success() && status.signal().is_none(), "{status}");
}

#[test]
fn a_panic_of_another_thread_gives_the_terminal_back_and_ends_it() {
    let mut session = start("panic elsewhere");
    session.expect(ENTER);
    session.expect(LEAVE);
    session.expect("elsewhere");
    session.expect("returned");
    assert!(session.end().success());
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
