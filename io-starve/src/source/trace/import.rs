//! A trace as a tape: events in, observations out.

use std::io;

use io_starve_common::wire::LossKind;

use super::{
    Item, Reader,
    event::Event,
    fs_event::{FsEvent, FsWhat},
    look::Look,
    notes::Notes,
    order::{AnyEvent, Order, Timed},
    pauses::Pauses,
    questions::Questions,
    requests::Requests,
    syncs::Syncs,
    tally::Tally,
};
use crate::{
    model::observation::{DevId, Fact, Observation, Owner},
    source::{input::Progress, replay::Tape},
};

/// Time between two observations, the default of a live run.
pub const TICK: std::time::Duration = std::time::Duration::from_millis(250);
const TICK_NS: u64 = TICK.as_nanos() as u64;
/// After so long with nothing in flight, in ns, the rest of a pause is left out: every window and hold-down is over.
const QUIET_NS: u64 = 60_000_000_000;

/// The same with something in flight, in ns: nothing new is found about it any more. A damaged time may be centuries ahead.
const WAITS_NS: u64 = 3_600_000_000_000;

/// A trace that is being read.
pub struct Import {
    reader: Box<dyn Reader>,
    order: Order,
    requests: Requests,
    syncs: Syncs,
    pauses: Pauses,
    tally: Tally,
    look: Look,
    questions: Questions,
    notes: Notes,
    /// The next event, in order.
    next: Option<Timed>,
    /// The tick that is being filled; `None` before the first event.
    tick_ns: Option<u64>,
    /// The last event that was used.
    last_ns: u64,
    /// Wall clock less the trace's clock, in ns.
    wall_offset: i64,
    read_all: bool,
    ended: bool,
    damage: Option<io::Error>,
    progress: Progress,
}

impl Import {
    /// Reads events from here; `progress` is how far that has come.
    pub fn new(reader: Box<dyn Reader>, progress: Progress) -> Import {
        Import {
            reader,
            order: Order::default(),
            requests: Requests::default(),
            syncs: Syncs::default(),
            pauses: Pauses::default(),
            tally: Tally::default(),
            look: Look::default(),
            questions: Questions::default(),
            notes: Notes::default(),
            next: None,
            tick_ns: None,
            last_ns: 0,
            wall_offset: 0,
            read_all: false,
            ended: false,
            damage: None,
            progress,
        }
    }

    /// What was odd so far.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// The next event in order; reads until there is one.
    fn next_event(&mut self) -> Option<Timed> {
        loop {
            if let Some(next) = self.order.pop(self.read_all, &mut self.notes) {
                return Some(next);
            }
            if self.read_all {
                return None;
            }
            match self.reader.next_item() {
                Ok(Some(item)) => self.take(item),
                Ok(None) => self.read_all = true,
                Err(e) => {
                    self.damage = Some(e);
                    self.read_all = true;
                }
            }
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            // A queue without a disk, such as that of an NVMe controller's own commands.
            Item::Event(event) if event.dev == DevId(0) => self.notes.foreign += 1,
            Item::Event(event) => {
                self.notes.events += 1;
                self.questions.see(&event);
                self.order.push(AnyEvent::Block(event), &mut self.notes);
            }
            Item::Fs(event) => {
                self.notes.fs_events += 1;
                self.questions.see_fs(&event);
                self.order.push(AnyEvent::Fs(event), &mut self.notes);
            }
            // What was lost before the first event is missing as if recording had begun later.
            Item::Lost(n) if self.notes.events + self.notes.fs_events == 0 => {
                self.notes.overwritten = self.notes.overwritten.saturating_add(n.unwrap_or(0));
            }
            Item::Lost(n) => {
                self.notes.gaps += 1;
                self.notes.lost = self.notes.lost.saturating_add(n.unwrap_or(0));
                self.tally.lost(LossKind::TraceLost, n.unwrap_or(1).max(1));
                self.order.gap();
            }
            Item::Overwritten(n) => {
                self.notes.overwritten = self.notes.overwritten.saturating_add(n);
            }
            Item::Wall { ns, wall_ns } => {
                self.wall_offset = wall_ns.saturating_sub(i64::try_from(ns).unwrap_or(i64::MAX));
            }
            Item::Foreign => self.notes.foreign += 1,
            Item::Unreadable => {
                self.notes.unreadable += 1;
                self.tally.lost(LossKind::TraceLost, 1);
            }
        }
    }

    fn apply(&mut self, timed: &Timed) {
        if timed.gap {
            self.requests.doubt(&mut self.tally);
            self.syncs.doubt();
        }
        self.last_ns = self.last_ns.max(timed.event.ns());
        match timed.event {
            AnyEvent::Block(e) => self.apply_block(e),
            AnyEvent::Fs(e) => self.apply_fs(&e),
        }
    }

    fn apply_block(&mut self, mut e: Event) {
        e.dev = self.requests.disk_of(e.dev);
        let stands_for = self.syncs.block(&e);
        if let (Owner::Unknown, Some(owner)) = (e.owner, stands_for) {
            e.owner = owner;
        }
        self.requests.take(&e, &mut self.tally, &mut self.notes);
    }

    fn apply_fs(&mut self, e: &FsEvent) {
        if let FsWhat::Pause(pause) = &e.what {
            let owner = self.syncs.stands_for(e.tid);
            if !self.pauses.take(pause, e.ns, (e.tid, e.comm), owner) {
                self.tally.lost(LossKind::SpansDropped, 1);
            }
        } else {
            self.syncs.take(e);
        }
    }

    fn observe(&mut self, now: u64) -> Observation {
        let mut o = Observation {
            mono_ns: now,
            wall_ns: i64::try_from(now)
                .unwrap_or(i64::MAX)
                .saturating_add(self.wall_offset),
            ..Observation::default()
        };
        let end = self.read_all && self.next.is_none();
        o.facts.extend(self.questions.fact(self.reader.name(), end));
        for (dev, disk) in self.requests.take_learned() {
            self.syncs.is_on(dev, disk);
            o.facts.push(Fact::Partition { dev, disk });
        }
        let lost = self.syncs.take_lost();
        if lost > 0 {
            self.tally.lost(LossKind::SpansDropped, lost);
        }
        self.syncs.drain(&mut o);
        self.pauses.drain(&self.requests, &mut o);
        self.tally.drain(&mut o);
        self.look.at(&self.requests, &mut o);
        o
    }
}

impl Tape for Import {
    fn next_observation(&mut self) -> Option<Observation> {
        loop {
            if self.next.is_none() {
                self.next = self.next_event();
            }
            let Some(next) = self.next else {
                if self.ended {
                    return None;
                }
                self.ended = true;
                // What happened since the last tick, or a trace without any block event.
                let now = self.tick_ns.map_or(1, |_| self.last_ns);
                return Some(self.observe(now));
            };
            let Some(tick) = self.tick_ns else {
                self.tick_ns = Some(next.event.ns().saturating_add(TICK_NS));
                self.last_ns = next.event.ns();
                return Some(self.observe(next.event.ns()));
            };
            if next.event.ns() <= tick {
                self.apply(&next);
                self.next = None;
                continue;
            }
            let pause = next.event.ns() - tick;
            let since = tick.saturating_sub(self.last_ns);
            let waits = self.requests.any() || self.syncs.any();
            let over = since > if waits { WAITS_NS } else { QUIET_NS };
            // A gap says that nobody knows what happened in between.
            let skip = if over || (next.gap && pause > QUIET_NS) {
                pause / TICK_NS
            } else {
                0
            };
            let now = tick.saturating_add(skip.saturating_mul(TICK_NS));
            self.tick_ns = Some(now.saturating_add(TICK_NS));
            return Some(self.observe(now));
        }
    }

    fn is_whole(&self) -> bool {
        self.damage.is_none()
    }

    fn progress(&self) -> Option<Progress> {
        Some(self.progress.clone())
    }

    fn warning(&self) -> Option<String> {
        let mut words = self.notes.words(self.reader.name());
        if let Some(e) = &self.damage {
            words += &format!("; the input is damaged ({e}), what came before was used");
        }
        if self.notes.events + self.notes.fs_events == 0 {
            words += "; `io-starve capture-script` prints what to record";
        }
        Some(words)
    }
}
