//! How things are called on screen. Everything that comes from outside goes through [`Screen::safe`].

use jiff::Timestamp;

use super::{
    Screen,
    text::{self, Align},
};
use crate::{
    detect::finding::Place,
    model::{
        observation::{Owner, Stage, Task, WaitsFor},
        snapshot::WaiterView,
    },
    output::format,
};

impl Screen<'_> {
    /// Text that cannot steer the terminal, in the characters that this one may be sent.
    pub fn safe(&self, text: &str) -> String {
        let text = format::printable(text);
        if self.look.theme.ascii && !text.is_ascii() {
            text.chars()
                .map(|c| if c.is_ascii() { c } else { '?' })
                .collect()
        } else {
            text.into_owned()
        }
    }

    /// An owner's path, or a word for those that have none.
    pub fn owner(&self, owner: Owner) -> String {
        let name = self.safe(&self.snap.owner_name(owner));
        if name == "/" {
            "/ (root cgroup)".to_owned()
        } else {
            name
        }
    }

    /// What else an owner is known by, each with its kind: unit, container, pod; and whether it is gone.
    pub fn aliases(&self, owner: Owner) -> Vec<String> {
        let Some(name) = self.snap.owners.iter().find(|o| o.owner == owner) else {
            return Vec::new();
        };
        let kinds = [
            ("unit", &name.cgroup.unit),
            ("container", &name.cgroup.container),
            ("pod", &name.cgroup.pod),
        ];
        let mut out: Vec<_> = kinds
            .into_iter()
            .filter_map(|(kind, value)| value.as_ref().map(|v| format!("{kind} {}", self.safe(v))))
            .collect();
        if name.gone {
            out.push("removed".to_owned());
        }
        out
    }

    /// A thread's name and id.
    pub fn task(&self, task: &Task) -> String {
        format!("{} ({})", self.safe(&task.comm), task.pid)
    }

    /// A waiter's age, stage, owner (in at most `room` columns) and what else is known of it.
    pub fn waiter(&self, w: &WaiterView, room: usize) -> String {
        let mut out = format!(
            "{} in {}, {} of {}",
            format::duration(w.age_ns),
            in_stage(w.stage),
            w.class.name(),
            text::cut(
                &self.owner(w.owner),
                room,
                Align::Path,
                self.look.theme.ellipsis()
            ),
        );
        if let Some(task) = &w.task {
            out += &format!(", task {}", self.task(task));
        }
        if let Some(what) = w.waits_for {
            out += &format!(", waits for {}", waits_for(what));
        }
        if w.bypasses > 0 {
            out += &format!(", passed at least {} times", format::count(w.bypasses));
        }
        out
    }

    /// The time of day at a moment of the monotonic clock, by the snapshot's two clocks.
    pub fn clock(&self, mono_ns: u64) -> String {
        self.time(mono_ns, "%H:%M:%S")
    }

    /// The same with the date.
    pub fn date_and_clock(&self, mono_ns: u64) -> String {
        self.time(mono_ns, "%Y-%m-%d %H:%M:%S")
    }

    fn time(&self, mono_ns: u64, form: &str) -> String {
        let wall =
            i128::from(self.snap.wall_ns) - i128::from(self.snap.mono_ns) + i128::from(mono_ns);
        match Timestamp::from_nanosecond(wall) {
            Ok(time) if self.snap.wall_ns != 0 => time
                .to_zoned(self.look.time_zone.clone())
                .strftime(form)
                .to_string(),
            _ => format::DASH.to_owned(),
        }
    }
}

/// Where something waits, as it is said after "in".
pub const fn in_stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Admission => "admission",
        Stage::Queued => "the queue",
        Stage::Device => "the device",
    }
}

/// Where a victim waits, as it is said after "in".
pub const fn in_place(place: Place) -> &'static str {
    match place {
        Place::Held => "blk-throttle, held",
        Place::Admission => "admission",
        Place::Queued => "the queue",
        Place::Device => "the device",
        Place::Journal => "the journal",
        Place::Dirty => "a pause for dirty memory",
    }
}

/// What a task was found to wait for, in words.
pub const fn waits_for(what: WaitsFor) -> &'static str {
    match what {
        WaitsFor::Wbt => "wbt",
        WaitsFor::Iocost => "iocost",
        WaitsFor::Tags => "a tag",
    }
}
