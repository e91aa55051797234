//! The live screen. Snapshots go in, keys change what of them is shown; nothing is measured or computed here.
//!
//! [`app`] and [`bindings`] are pure, [`view`] draws them into whatever area it is given, [`terminal`] holds the real
//! terminal. [`run`] is the only place that waits. What the screen cannot do by itself it asks for: [`request`].

mod acts;
pub mod app;
pub mod bindings;
pub mod filter;
pub mod history;
pub mod keys;
pub mod orders;
pub mod pages;
pub mod request;
pub mod terminal;
pub mod theme;
pub mod view;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    io::{self, IsTerminal},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use crossterm::event::{Event, EventStream, MouseButton, MouseEvent, MouseEventKind};
use futures_core::Stream;
use jiff::tz::TimeZone;
use ratatui::{Terminal, backend::CrosstermBackend, layout::Rect};
use rustix::process;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
};

pub use self::app::Mode;
use self::{
    app::{App, Extent},
    bindings::{Action, Context, on_key},
    keys::Key,
    request::{Request, Update},
    terminal::Guard,
    theme::Theme,
    view::Look,
};

/// How the screen is to be shown.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the snapshots come from.
    pub mode: Mode,
    /// Use no colour; [`Options::new`] takes it from `NO_COLOR`.
    pub no_color: bool,
    /// Write nothing but ASCII; [`Options::new`] takes it from the locale.
    pub ascii: bool,
    /// For times of day; [`Options::new`] takes the system's.
    pub time_zone: TimeZone,
}

impl Options {
    /// What the environment asks for: no colour when `NO_COLOR` is set and not empty (no-color.org), ASCII when the
    /// locale does not name UTF-8.
    pub fn new(mode: Mode) -> Options {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        // The first of these that is set decides: POSIX.1, section 8.2.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let utf8 = locale.is_some_and(|l| names_utf8(&l.to_string_lossy()));
        Options {
            mode,
            no_color: set("NO_COLOR").is_some(),
            ascii: !utf8,
            time_zone: TimeZone::system(),
        }
    }
}

fn names_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Why there is no screen, or no longer one.
#[derive(Debug, thiserror::Error)]
pub enum TuiError {
    /// Output goes to a file or pipe.
    #[error(
        "cannot show the screen: standard output is not a terminal; use `watch`, or `--format text`"
    )]
    NotATerminal,
    /// The terminal refused something.
    #[error(
        "cannot {doing}: {source}; the terminal may be gone; start again in another one, or use `watch`"
    )]
    Terminal {
        /// What was tried.
        doing: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// Another thread panicked and the terminal went back to show its message.
    #[error(
        "the screen was closed because another part of the program failed; its message was printed before this one"
    )]
    Lost,
    /// The screen itself panicked.
    #[error(
        "the screen was closed because drawing it or answering a key failed; the message was printed before this one, please report it; `io-starve watch` does without a screen"
    )]
    Panicked,
}

fn cannot(doing: &'static str) -> impl FnOnce(io::Error) -> TuiError {
    move |source| TuiError::Terminal { doing, source }
}

/// Shows what comes from `feed`, and asks through `requests`, until the user quits or the process is told to end (SIGINT, SIGTERM, SIGHUP,
/// SIGQUIT). When the sender is dropped the last snapshot stays on screen, marked as ended. Needs a tokio runtime with
/// I/O and time; drawing waits for the terminal, so that what must not wait belongs on another thread.
///
/// # Errors
/// [`TuiError`]; the terminal has been given back by then, after a panic too.
pub async fn run(
    feed: watch::Receiver<Update>,
    requests: mpsc::Sender<Request>,
    options: Options,
) -> Result<(), TuiError> {
    caught(show(feed, requests, options)).await
}

/// Makes a panic of the screen its error, so that whoever feeds it can end in order. The panic hook has told its message.
async fn caught(screen: impl Future<Output = Result<(), TuiError>>) -> Result<(), TuiError> {
    let mut screen = pin!(screen);
    // Unwinding drops all that the screen holds, and it is not polled again: nothing half done is seen by anybody.
    poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| screen.as_mut().poll(cx)))
            .unwrap_or(Poll::Ready(Err(TuiError::Panicked)))
    })
    .await
}

async fn show(
    mut feed: watch::Receiver<Update>,
    requests: mpsc::Sender<Request>,
    options: Options,
) -> Result<(), TuiError> {
    if !io::stdout().is_terminal() {
        return Err(TuiError::NotATerminal);
    }
    let mut signals = Signals::new().map_err(cannot("listen for signals"))?;
    let look = Look {
        theme: Theme {
            color: !options.no_color,
            ascii: options.ascii,
        },
        time_zone: options.time_zone,
    };
    let first = Arc::clone(&feed.borrow_and_update().snapshot);
    let mut app = App::new(options.mode, first);
    let guard = Guard::take().map_err(cannot("take the terminal"))?;
    let mut screen = Terminal::new(CrosstermBackend::new(io::stdout()))
        .map_err(cannot("ask for the terminal's size"))?;
    let mut events = EventStream::new();
    let mut is_fed = true;
    loop {
        if !guard.is_held() {
            return Err(TuiError::Lost);
        }
        let mut extent = Extent::default();
        screen
            .draw(|frame| {
                extent = view::draw(frame, &app, &look);
                #[cfg(feature = "faults")]
                crate::faults::panic_in_drawing();
            })
            .map_err(cannot("draw on the terminal"))?;
        app.fit(extent);
        let action = tokio::select! {
            biased;
            () = any(&mut signals.end) => Action::Quit,
            () = received(&mut signals.cont) => {
                guard.retake().map_err(cannot("take the terminal again"))?;
                Action::Redraw
            }
            event = next(&mut events) => match event {
                Some(Ok(Event::Key(key))) => {
                    let at = app.context();
                    Key::from_event(&key).map_or(Action::Nothing, |key| on_key(key, at))
                }
                Some(Ok(Event::Mouse(mouse))) => on_mouse(mouse, app.context()),
                // A new size is noticed by drawing.
                Some(Ok(_)) => Action::Ignored,
                Some(Err(source)) => return Err(cannot("read from the terminal")(source)),
                None => return Err(cannot("read from the terminal")(io::ErrorKind::UnexpectedEof.into())),
            },
            changed = feed.changed(), if is_fed => {
                match changed {
                    Ok(()) => app.update(feed.borrow_and_update().clone()),
                    Err(_) => {
                        is_fed = false;
                        app.ended = true;
                    }
                }
                Action::Ignored
            }
        };
        match action {
            Action::Quit => return Ok(()),
            Action::Suspend => {
                signals.suspend().await.map_err(cannot("stop"))?;
                guard.retake().map_err(cannot("take the terminal again"))?;
                clear(&mut screen).map_err(cannot("clear the terminal"))?;
            }
            Action::Redraw => clear(&mut screen).map_err(cannot("clear the terminal"))?,
            Action::Ignored => {}
            other => {
                let Some(request) = app.apply(other) else {
                    continue;
                };
                // Whoever feeds the screen is gone, or so far behind that more would not help.
                if requests.try_send(request).is_err() {
                    app.note = Some("this cannot be done now".to_owned());
                }
            }
        }
    }
}

/// What the mouse asks for: the left button points, the wheel goes up and down.
fn on_mouse(mouse: MouseEvent, at: Context) -> Action {
    match mouse.kind {
        _ if at.typing => Action::Ignored,
        MouseEventKind::Down(MouseButton::Left) => Action::Click(mouse.column, mouse.row),
        MouseEventKind::ScrollUp => Action::Up,
        MouseEventKind::ScrollDown => Action::Down,
        _ => Action::Ignored,
    }
}

/// Clears the screen so that the next drawing writes all of it. `Terminal::clear` would ask the terminal for the cursor's
/// place (ratatui 0.30), and wait for an answer that the event stream may take or that never comes.
fn clear(screen: &mut Terminal<CrosstermBackend<io::Stdout>>) -> io::Result<()> {
    let size = screen.size()?;
    screen.resize(Rect::new(0, 0, size.width, size.height))
}

struct Signals {
    end: [Signal; 4],
    cont: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            end: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::quit())?,
            ],
            cont: signal(SignalKind::from_raw(process::Signal::CONT.as_raw()))?,
        })
    }

    /// Gives the terminal back and stops the whole job, as the terminal driver would for Ctrl-Z; returns when it is
    /// continued. A job that no shell could continue is not stopped by the kernel (an orphaned process group), so
    /// there is an end to the wait; a stopped process does not run into it, the signal that continued it comes first.
    async fn suspend(&mut self) -> io::Result<()> {
        terminal::restore();
        process::kill_current_process_group(process::Signal::TSTP)?;
        let _ = tokio::time::timeout(Duration::from_millis(500), received(&mut self.cont)).await;
        Ok(())
    }
}

async fn next(events: &mut EventStream) -> Option<io::Result<Event>> {
    poll_fn(|cx| Pin::new(&mut *events).poll_next(cx)).await
}

async fn any(signals: &mut [Signal; 4]) {
    let [a, b, c, d] = signals;
    tokio::select! {
        () = received(a) => {}
        () = received(b) => {}
        () = received(c) => {}
        () = received(d) => {}
    }
}

/// The next signal; for ever when none can come any more.
async fn received(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}
