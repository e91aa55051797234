//! What the service manager is told (sd_notify(3)): that the first tick came, that ticks go on, that the end has begun.

use sd_notify::NotifyState;

/// Tells a service manager, where there is one.
pub(super) struct Service {
    ready: bool,
    has_watchdog: bool,
}

impl Service {
    pub(super) fn new() -> Service {
        let mut usec = 0;
        Service {
            ready: false,
            has_watchdog: sd_notify::watchdog_enabled(false, &mut usec),
        }
    }

    /// A tick was told. The first shows that the kernel can be read; from then on a watchdog hears of each.
    pub(super) fn alive(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            tell(&[NotifyState::Ready]);
        }
        if self.has_watchdog {
            tell(&[NotifyState::Watchdog]);
        }
    }

    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(state: &[NotifyState]) {
    // Without a service manager nobody listens; with one that cannot be reached its own time limit says so.
    let _ = sd_notify::notify(false, state);
}
