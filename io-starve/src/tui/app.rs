//! The state of the screen: what is shown, selected, sorted, held. Pure: actions and snapshots go in, requests come out,
//! and there is no clock, no terminal and no figure of its own.

use std::sync::Arc;

use io_starve_common::class::Class;

use super::{
    bindings::Context,
    filter,
    history::History,
    orders::{DeviceSort, FsyncSort, OwnerSort},
    pages::View,
    request::{Status, Update},
};
use crate::{
    detect::finding::Finding,
    model::{
        observation::{DevId, Owner},
        snapshot::{DeviceView, FsyncView, OwnerView, Snapshot},
    },
};

/// Where the snapshots come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// This machine, now.
    Live,
    /// A recording.
    Replay {
        /// What to call it.
        name: String,
    },
    /// A recording that ships inside the program.
    Demo {
        /// What to call it.
        name: String,
    },
}

/// Something that can be selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The finding with this id.
    Finding(String),
    /// This disk.
    Device(DevId),
}

/// What a line of the screen stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hit {
    /// A finding or disk.
    Target(Target),
    /// An owner on the disk of the page.
    Owner(Owner, Class),
    /// An fsync.
    Fsync(FsyncId),
    /// The tab of a page, from this column to before that one.
    Tab(View, u16, u16),
}

/// When an fsync began, and whose it is.
pub type FsyncId = (u64, Owner);

/// What tells an fsync from others.
pub fn fsync_id(f: &FsyncView) -> FsyncId {
    (f.begin_ns, f.owner)
}

/// What the last drawing had room for; [`App::fit`] takes it back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// Lines or rows of one page.
    pub page: usize,
    /// How far the text can be scrolled.
    pub max_scroll: usize,
    /// What lines stand for, by their number from the top.
    pub hits: Vec<(u16, Hit)>,
}

/// The state of the screen.
#[derive(Debug, Clone)]
pub struct App {
    /// Where the snapshots come from.
    pub mode: Mode,
    /// The page.
    pub view: View,
    /// The keys are shown over the page.
    pub help: bool,
    /// What is selected is shown in full.
    pub details: bool,
    /// Nothing more will come.
    pub ended: bool,
    /// Order of the disks.
    pub device_sort: DeviceSort,
    /// Order of the owners.
    pub owner_sort: OwnerSort,
    /// Order of the fsyncs.
    pub fsync_sort: FsyncSort,
    /// How far a text (help, details, coverage) is scrolled, in lines.
    pub scroll: usize,
    /// Only what has this in its name is shown.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// What goes on beside the snapshots.
    pub status: Status,
    /// A word to the user, until the next key.
    pub note: Option<String>,
    pub(super) latest: Arc<Snapshot>,
    pub(super) held: Option<Arc<Snapshot>>,
    pub(super) shown: Arc<Snapshot>,
    pub(super) history: History,
    pub(super) target: Option<Target>,
    pub(super) device: Option<DevId>,
    pub(super) owner: Option<(Owner, Class)>,
    pub(super) fsync: Option<FsyncId>,
    pub(super) extent: Extent,
}

impl App {
    /// The first screen, with this snapshot.
    pub fn new(mode: Mode, snapshot: Arc<Snapshot>) -> App {
        let mut history = History::default();
        history.push(&snapshot);
        App {
            mode,
            view: View::default(),
            help: false,
            details: false,
            ended: false,
            device_sort: DeviceSort::default(),
            owner_sort: OwnerSort::default(),
            fsync_sort: FsyncSort::default(),
            scroll: 0,
            filter: String::new(),
            typing: false,
            status: Status::default(),
            note: None,
            latest: Arc::clone(&snapshot),
            held: None,
            shown: snapshot,
            history,
            target: None,
            device: None,
            owner: None,
            fsync: None,
            extent: Extent {
                page: 1,
                ..Extent::default()
            },
        }
    }

    /// Takes in what came; a held picture stays as it is.
    pub fn update(&mut self, update: Update) {
        if update.status.note != self.status.note {
            self.note = update.status.note.as_ref().map(|n| n.text.clone());
        }
        self.ended |= update.status.ended;
        self.status = update.status;
        if !Arc::ptr_eq(&self.latest, &update.snapshot) {
            self.history.push(&update.snapshot);
            self.latest = update.snapshot;
            self.refresh();
        }
    }

    pub(super) fn refresh(&mut self) {
        let whole = self.held.as_ref().unwrap_or(&self.latest);
        self.shown = match self.filter.as_str() {
            "" => Arc::clone(whole),
            text => Arc::new(filter::narrowed(whole, text)),
        };
    }

    /// Takes what the last drawing had room for, and ends a scroll beyond it.
    pub fn fit(&mut self, extent: Extent) {
        self.scroll = self.scroll.min(extent.max_scroll);
        self.extent = extent;
    }

    /// Where the screen is, for the meaning of keys.
    pub fn context(&self) -> Context {
        Context {
            view: self.view,
            details: self.details,
            replay: self.mode != Mode::Live,
            typing: self.typing,
        }
    }

    /// The snapshot to draw: the held one while there is one, else the latest, narrowed by the filter.
    pub fn shown(&self) -> &Snapshot {
        &self.shown
    }

    /// While a picture is held: how much later the latest snapshot is, in ns.
    pub fn behind_ns(&self) -> Option<u64> {
        self.held
            .as_ref()
            .map(|held| self.latest.mono_ns.saturating_sub(held.mono_ns))
    }

    /// Disks in the order of the screen, as indices into the snapshot.
    pub fn device_order(&self) -> Vec<usize> {
        let snap = self.shown();
        let rank = |d: &DeviceView| {
            snap.findings
                .iter()
                .position(|f| f.closed.is_none() && f.device == Some(d.dev))
                .unwrap_or(usize::MAX)
        };
        let is_idle = |d: &DeviceView| d.iops == 0.0 && d.oldest_ns.is_none();
        let age = |d: &DeviceView| std::cmp::Reverse(d.oldest.as_ref().map(|w| w.age_ns));
        let mut order: Vec<_> = snap.devices.iter().enumerate().collect();
        order.sort_by(|(_, a), (_, b)| {
            match self.device_sort {
                // Those that do nothing come last; by how much they do would not stay still under the eye.
                DeviceSort::Findings => (rank(a), is_idle(a)).cmp(&(rank(b), is_idle(b))),
                DeviceSort::Oldest => age(a).cmp(&age(b)),
                DeviceSort::Iops => b.iops.total_cmp(&a.iops),
                DeviceSort::Name => std::cmp::Ordering::Equal,
            }
            .then_with(|| a.name.cmp(&b.name))
        });
        order.into_iter().map(|(i, _)| i).collect()
    }

    /// Owners of a disk in the order of the screen.
    pub fn owner_order<'a>(&self, device: &'a DeviceView) -> Vec<&'a OwnerView> {
        let mut order: Vec<_> = device.owners.iter().collect();
        match self.owner_sort {
            OwnerSort::Waiting => {}
            OwnerSort::Oldest => order.sort_by_key(|o| std::cmp::Reverse(o.oldest_ns)),
            OwnerSort::Iops => order.sort_by(|a, b| b.iops.total_cmp(&a.iops)),
            OwnerSort::Name => {
                order.sort_by_cached_key(|o| (self.shown().owner_name(o.owner), o.class))
            }
        }
        order
    }

    /// fsyncs in the order of the screen.
    pub fn fsync_order(&self) -> Vec<&FsyncView> {
        let mut order: Vec<_> = self.shown().fsyncs.iter().collect();
        match self.fsync_sort {
            FsyncSort::Latest => {}
            FsyncSort::Longest => order.sort_by_key(|f| std::cmp::Reverse(f.took_ns)),
        }
        order
    }

    /// What can be selected on this page, in the order of the screen.
    pub fn targets(&self) -> Vec<Target> {
        let snap = self.shown();
        let mut targets: Vec<_> = snap
            .findings
            .iter()
            .map(|f| Target::Finding(f.id.clone()))
            .collect();
        if self.view == View::Overview {
            targets.extend(
                self.device_order()
                    .into_iter()
                    .map(|i| Target::Device(snap.devices[i].dev)),
            );
        }
        targets
    }

    /// What is selected: what the user chose while it is there or being read, else the first, which is the worst
    /// finding.
    pub fn target(&self) -> Option<Target> {
        let targets = self.targets();
        match &self.target {
            Some(chosen) if self.details || targets.contains(chosen) => Some(chosen.clone()),
            _ => targets.into_iter().next(),
        }
    }

    /// The selected finding; `None` also when it is being read and the snapshot no longer has it.
    pub fn finding(&self) -> Option<&Finding> {
        match self.target()? {
            Target::Finding(id) => self.shown().findings.iter().find(|f| f.id == id),
            Target::Device(_) => None,
        }
    }

    /// The disk of the device view: the one chosen, else that of the selection, else the first.
    pub fn device(&self) -> Option<&DeviceView> {
        let devices = &self.shown().devices;
        let named = |dev: DevId| devices.iter().find(|d| d.dev == dev);
        let selected = || match self.target()? {
            Target::Device(dev) => named(dev),
            Target::Finding(_) => named(self.finding()?.device?),
        };
        let first = || devices.get(*self.device_order().first()?);
        self.device.and_then(named).or_else(selected).or_else(first)
    }

    /// Index of the selected owner in [`App::owner_order`]: the one chosen while it is there, else the first.
    pub fn owner_index(&self, order: &[&OwnerView]) -> usize {
        self.owner
            .and_then(|chosen| order.iter().position(|o| (o.owner, o.class) == chosen))
            .unwrap_or(0)
    }

    /// Index of the selected fsync in [`App::fsync_order`]: the one chosen while it is there or being read, else the first.
    pub fn fsync_index(&self, order: &[&FsyncView]) -> Option<usize> {
        let chosen = |id| order.iter().position(|f| fsync_id(f) == id);
        let first = || (!order.is_empty() && !self.details).then_some(0);
        self.fsync.and_then(chosen).or_else(first)
    }

    /// The selected fsync; `None` also when it is being read and the snapshot no longer has it.
    pub fn fsync(&self) -> Option<&FsyncView> {
        let order = self.fsync_order();
        order.get(self.fsync_index(&order)?).copied()
    }
}
