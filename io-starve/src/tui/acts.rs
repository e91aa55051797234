//! What actions do to the state of the screen.

use std::sync::Arc;

use super::{
    app::{App, Hit, Target, fsync_id},
    bindings::Action,
    pages::View,
    request::{Pace, Request},
};
use crate::model::observation::DevId;

impl App {
    /// Does what an action asks of the screen, and says what is asked of others. `Quit`, `Suspend` and `Redraw` are for the caller.
    pub fn apply(&mut self, action: Action) -> Option<Request> {
        self.note = None;
        match action {
            Action::Nothing | Action::Ignored | Action::Quit | Action::Suspend | Action::Redraw => {
            }
            Action::Help => {
                self.help = !self.help;
                self.scroll = 0;
            }
            Action::Pause => return self.pause(),
            Action::Sort => match self.view {
                View::Overview => self.device_sort = self.device_sort.next(),
                View::Device => self.owner_sort = self.owner_sort.next(),
                View::Fsync => self.fsync_sort = self.fsync_sort.next(),
                View::Findings | View::Coverage | View::Dirty | View::Shares => {}
            },
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.step(-signed(self.extent.page.max(1))),
            Action::PageDown => self.step(signed(self.extent.page.max(1))),
            Action::First => self.step(isize::MIN),
            Action::Last => self.step(isize::MAX),
            Action::PreviousDevice => self.step_device(-1),
            Action::NextDevice => self.step_device(1),
            Action::Open => self.open(),
            Action::Back => self.back(),
            Action::NextView => self.show(self.view.next()),
            Action::PreviousView => self.show(self.view.previous()),
            Action::Show(view) => self.show(view),
            Action::Filter => {
                self.typing = true;
                self.help = false;
            }
            Action::Type(c) => self.edit(|filter| filter.push(c)),
            Action::Erase => self.edit(|filter| {
                filter.pop();
            }),
            Action::Keep => self.typing = false,
            Action::Drop => {
                self.typing = false;
                self.edit(String::clear);
            }
            Action::Earlier => return self.earlier(),
            Action::Later => return self.later(),
            Action::NextFinding => return self.next_finding(),
            Action::PreviousFinding => return self.previous_finding(),
            Action::Faster => return Some(Request::Pace(Pace::Faster)),
            Action::Slower => return Some(Request::Pace(Pace::Slower)),
            Action::Write => return Some(Request::Write(Arc::clone(&self.shown))),
            Action::Record => return Some(Request::Record),
            Action::Click(column, line) => self.click(column, line),
        }
        None
    }

    fn edit(&mut self, how: impl FnOnce(&mut String)) {
        how(&mut self.filter);
        self.refresh();
    }

    fn back(&mut self) {
        if self.help {
            self.help = false;
        } else if self.details {
            self.details = false;
        } else if !self.filter.is_empty() {
            self.edit(String::clear);
        } else {
            self.view = View::default();
        }
        self.scroll = 0;
    }

    fn show(&mut self, view: View) {
        if view == View::Device && self.view != View::Device {
            // The disk is taken from what is selected now, before the page's targets change.
            self.device = self.selected_device();
            self.owner = None;
        }
        self.view = view;
        self.help = false;
        self.details = false;
        self.scroll = 0;
    }

    fn selected_device(&self) -> Option<DevId> {
        match self.target()? {
            Target::Device(dev) => Some(dev),
            Target::Finding(_) => self.finding()?.device,
        }
    }

    fn open(&mut self) {
        if self.help || self.details {
            return;
        }
        match self.view {
            View::Fsync => {
                self.fsync = self.fsync().map(fsync_id);
                self.details = self.fsync.is_some();
            }
            View::Device => {
                // Chosen from now on: a worse finding must not bring another disk under the eyes of the reader.
                self.device = self.device().map(|d| d.dev);
                self.details = self.device.is_some();
            }
            View::Overview | View::Findings => match self.target() {
                Some(Target::Finding(id)) => {
                    self.target = Some(Target::Finding(id));
                    self.details = true;
                }
                Some(Target::Device(_)) => self.show(View::Device),
                None => {}
            },
            View::Dirty | View::Coverage | View::Shares => {}
        }
        self.scroll = 0;
    }

    fn step(&mut self, by: isize) {
        if self.help
            || self.details
            || matches!(self.view, View::Coverage | View::Dirty | View::Shares)
        {
            self.scroll = moved(self.scroll, by, self.extent.max_scroll);
        } else if self.view == View::Fsync {
            let order = self.fsync_order();
            let from = self.fsync_index(&order).unwrap_or(0);
            let index = moved(from, by, order.len().saturating_sub(1));
            self.fsync = order.get(index).map(|f| fsync_id(f));
        } else if self.view == View::Device {
            let Some(device) = self.device() else { return };
            let order = self.owner_order(device);
            let index = moved(self.owner_index(&order), by, order.len().saturating_sub(1));
            self.owner = order.get(index).map(|o| (o.owner, o.class));
        } else {
            let targets = self.targets();
            let current = self.target();
            let index = targets
                .iter()
                .position(|t| Some(t) == current.as_ref())
                .unwrap_or(0);
            let index = moved(index, by, targets.len().saturating_sub(1));
            self.target = targets.into_iter().nth(index);
        }
    }

    fn step_device(&mut self, by: isize) {
        if self.view != View::Device || self.help {
            return;
        }
        let order = self.device_order();
        let devices = &self.shown.devices;
        let current = self.device().map(|d| d.dev);
        let index = order
            .iter()
            .position(|i| Some(devices[*i].dev) == current)
            .unwrap_or(0);
        let index = moved(index, by, order.len().saturating_sub(1));
        self.device = order.get(index).map(|i| devices[*i].dev);
        self.owner = None;
    }

    fn click(&mut self, column: u16, line: u16) {
        let on = |(at, hit): &&(u16, Hit)| {
            let inside = match hit {
                Hit::Tab(_, from, to) => (*from..*to).contains(&column),
                _ => true,
            };
            *at == line && inside
        };
        let Some((_, hit)) = self.extent.hits.iter().find(on).cloned() else {
            return;
        };
        // A second click on what is selected opens it.
        match hit {
            Hit::Tab(view, ..) => self.show(view),
            Hit::Target(target) if self.target() == Some(target.clone()) => self.open(),
            Hit::Target(target) => self.target = Some(target),
            Hit::Owner(owner, class) => self.owner = Some((owner, class)),
            Hit::Fsync(id) if self.fsync().map(fsync_id) == Some(id) => self.open(),
            Hit::Fsync(id) => self.fsync = Some(id),
        }
    }

    fn is_replay(&self) -> bool {
        self.context().replay
    }

    fn pause(&mut self) -> Option<Request> {
        if self.is_replay() && !self.ended {
            self.held = None;
            self.refresh();
            return Some(Request::Pace(Pace::Play));
        }
        self.held = match self.held {
            Some(_) => None,
            None => Some(Arc::clone(&self.latest)),
        };
        self.refresh();
        None
    }

    /// Shows a moment that is kept, and holds a replay, which would run away from it.
    fn hold(&mut self, ns: Option<u64>, otherwise: &str) -> Option<Request> {
        let Some(held) = ns.and_then(|ns| self.history.at(ns)) else {
            self.note = Some(otherwise.to_owned());
            return None;
        };
        self.held = Some(held);
        self.refresh();
        (self.is_replay() && !self.ended).then_some(Request::Pace(Pace::Hold))
    }

    /// The moment that is shown, ns monotonic.
    fn moment(&self) -> u64 {
        self.held.as_ref().unwrap_or(&self.latest).mono_ns
    }

    fn earlier(&mut self) -> Option<Request> {
        self.hold(
            self.history.before(self.moment()),
            "nothing earlier is kept",
        )
    }

    fn later(&mut self) -> Option<Request> {
        let later = self.history.after(self.moment());
        if later.is_none() && self.is_replay() && !self.ended {
            self.held = None;
            self.refresh();
            return Some(Request::Pace(Pace::Step));
        }
        self.hold(later, "nothing came later yet")
    }

    fn next_finding(&mut self) -> Option<Request> {
        let next = self.history.opened_after(self.moment());
        if next.is_none() && self.is_replay() && !self.ended {
            self.held = None;
            self.refresh();
            return Some(Request::Pace(Pace::Seek));
        }
        self.hold(next, "no finding opens later")
    }

    fn previous_finding(&mut self) -> Option<Request> {
        self.hold(
            self.history.opened_before(self.moment()),
            "no finding that is kept opened before",
        )
    }
}

fn moved(from: usize, by: isize, last: usize) -> usize {
    from.saturating_add_signed(by).min(last)
}

fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}
