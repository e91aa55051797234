//! The terminal: taken once, and given back by one function on every way out (return, error, panic, signal, stop).

use std::{
    io,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor,
    event::{DisableMouseCapture, EnableMouseCapture},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};

static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Holds the terminal in raw mode on the alternate screen until it is dropped.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal. From the first call on, a panic of any thread gives it back before its message is printed.
    ///
    /// # Errors
    /// When the terminal refuses raw mode or cannot be written to; it is then as it was.
    pub fn take() -> io::Result<Guard> {
        HOOK.call_once(|| {
            let next = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                next(info);
            }));
        });
        let guard = Guard(());
        guard.retake()?;
        Ok(guard)
    }

    /// Takes the terminal again after a stop; whoever ran meanwhile may have left it in any mode.
    ///
    /// # Errors
    /// As for [`Guard::take`].
    pub fn retake(&self) -> io::Result<()> {
        // crossterm does nothing in `enable_raw_mode` when it believes that raw mode is on.
        disable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture))
            .inspect_err(|_| restore())
    }

    /// False once something gave the terminal back: a panic of another thread, or a stop.
    pub fn is_held(&self) -> bool {
        TAKEN.load(Ordering::SeqCst)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back as it was. Does nothing when it is not taken.
pub fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone cannot be restored, and there is nobody to tell.
        let _ = execute!(
            io::stdout(),
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = disable_raw_mode();
    }
}
