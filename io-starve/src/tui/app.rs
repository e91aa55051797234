//! The state of the screen: what is shown, selected, sorted, held. Pure: actions and snapshots go in, and there is
//! no clock, no terminal and no figure of its own.

use std::sync::Arc;

use io_starve_common::class::Class;

use super::keys::Action;
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

/// A page of the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Findings and disks.
    #[default]
    Overview,
    /// One disk with its owners.
    Device,
    /// All findings.
    Findings,
    /// fsyncs, and what limits hold.
    Fsync,
    /// Hooks and losses.
    Coverage,
    /// Writers that are paused for dirty memory, and loop devices.
    Dirty,
    /// Shares of disks by cgroup.
    Shares,
}

impl View {
    /// Every view in the order of its number.
    pub const ALL: [View; 7] = [
        View::Overview,
        View::Device,
        View::Findings,
        View::Fsync,
        View::Coverage,
        View::Dirty,
        View::Shares,
    ];

    fn step(self, by: usize) -> View {
        View::ALL[(self as usize + by) % View::ALL.len()]
    }
}

/// Order of the disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceSort {
    /// Those with open findings first, worst first, then by name.
    #[default]
    Findings,
    /// Longest present wait first.
    Oldest,
    /// Most issues a second first.
    Iops,
    /// By name.
    Name,
}

impl DeviceSort {
    /// What the screen calls it.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceSort::Findings => "findings first",
            DeviceSort::Oldest => "longest wait",
            DeviceSort::Iops => "IOPS",
            DeviceSort::Name => "name",
        }
    }

    const fn next(self) -> DeviceSort {
        match self {
            DeviceSort::Findings => DeviceSort::Oldest,
            DeviceSort::Oldest => DeviceSort::Iops,
            DeviceSort::Iops => DeviceSort::Name,
            DeviceSort::Name => DeviceSort::Findings,
        }
    }
}

/// Order of the owners of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnerSort {
    /// Most waiting time first, as the snapshot has them.
    #[default]
    Waiting,
    /// Longest present wait first.
    Oldest,
    /// Most issues a second first.
    Iops,
    /// By name.
    Name,
}

impl OwnerSort {
    /// What the screen calls it.
    pub const fn name(self) -> &'static str {
        match self {
            OwnerSort::Waiting => "waiting time",
            OwnerSort::Oldest => "longest wait",
            OwnerSort::Iops => "IOPS",
            OwnerSort::Name => "name",
        }
    }

    const fn next(self) -> OwnerSort {
        match self {
            OwnerSort::Waiting => OwnerSort::Oldest,
            OwnerSort::Oldest => OwnerSort::Iops,
            OwnerSort::Iops => OwnerSort::Name,
            OwnerSort::Name => OwnerSort::Waiting,
        }
    }
}

/// Something that can be selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The finding with this id.
    Finding(String),
    /// This disk.
    Device(DevId),
}

/// What the last drawing had room for; [`App::fit`] takes it back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Lines or rows of one page.
    pub page: usize,
    /// How far the text can be scrolled.
    pub max_scroll: usize,
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
    /// The selected finding or fsync is shown in full.
    pub details: bool,
    /// Nothing more will come.
    pub ended: bool,
    /// Order of the disks.
    pub device_sort: DeviceSort,
    /// Order of the owners.
    pub owner_sort: OwnerSort,
    /// How far a text (help, details, coverage) is scrolled, in lines.
    pub scroll: usize,
    latest: Arc<Snapshot>,
    held: Option<Arc<Snapshot>>,
    target: Option<Target>,
    device: Option<DevId>,
    owner: Option<(Owner, Class)>,
    fsync: Option<FsyncId>,
    extent: Extent,
}

/// When an fsync began, and whose it is.
type FsyncId = (u64, Owner);

fn fsync_id(f: &FsyncView) -> FsyncId {
    (f.begin_ns, f.owner)
}

impl App {
    /// The first screen, with this snapshot.
    pub fn new(mode: Mode, snapshot: Arc<Snapshot>) -> App {
        App {
            mode,
            view: View::Overview,
            help: false,
            details: false,
            ended: false,
            device_sort: DeviceSort::default(),
            owner_sort: OwnerSort::default(),
            scroll: 0,
            latest: snapshot,
            held: None,
            target: None,
            device: None,
            owner: None,
            fsync: None,
            extent: Extent {
                page: 1,
                max_scroll: 0,
            },
        }
    }

    /// A new snapshot came; a held picture stays as it is.
    pub fn update(&mut self, snapshot: Arc<Snapshot>) {
        self.latest = snapshot;
    }

    /// Takes what the last drawing had room for, and ends a scroll beyond it.
    pub fn fit(&mut self, extent: Extent) {
        self.extent = extent;
        self.scroll = self.scroll.min(extent.max_scroll);
    }

    /// The snapshot to draw: the held one while paused, else the latest.
    pub fn shown(&self) -> &Snapshot {
        self.held.as_ref().unwrap_or(&self.latest)
    }

    /// While paused: how much later the latest snapshot is than the held one, in ns.
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
        let age = |d: &DeviceView| std::cmp::Reverse(d.oldest.as_ref().map(|w| w.age_ns));
        let mut order: Vec<_> = snap.devices.iter().enumerate().collect();
        order.sort_by(|(_, a), (_, b)| {
            match self.device_sort {
                DeviceSort::Findings => rank(a).cmp(&rank(b)),
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

    /// Index of the selected fsync in the snapshot: the one chosen while it is there or being read, else the first.
    pub fn fsync_index(&self) -> Option<usize> {
        let fsyncs = &self.shown().fsyncs;
        let chosen = |id| fsyncs.iter().position(|f| fsync_id(f) == id);
        let first = || (!fsyncs.is_empty() && !self.details).then_some(0);
        self.fsync.and_then(chosen).or_else(first)
    }

    /// The selected fsync; `None` also when it is being read and the snapshot no longer has it.
    pub fn fsync(&self) -> Option<&FsyncView> {
        self.shown().fsyncs.get(self.fsync_index()?)
    }

    /// Does what an action asks of the screen. `Quit`, `Suspend` and `Redraw` are for the caller.
    pub fn apply(&mut self, action: Action) {
        match action {
            Action::Nothing | Action::Quit | Action::Suspend | Action::Redraw => {}
            Action::Help => {
                self.help = !self.help;
                self.scroll = 0;
            }
            Action::Pause => {
                self.held = if self.held.is_some() {
                    None
                } else {
                    Some(Arc::clone(&self.latest))
                };
            }
            Action::Sort => match self.view {
                View::Overview => self.device_sort = self.device_sort.next(),
                View::Device => self.owner_sort = self.owner_sort.next(),
                View::Findings | View::Fsync | View::Coverage | View::Dirty | View::Shares => {}
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
            Action::Back => {
                if self.help {
                    self.help = false;
                } else if self.details {
                    self.details = false;
                } else {
                    self.view = View::Overview;
                }
                self.scroll = 0;
            }
            Action::NextView => self.show(self.view.step(1)),
            Action::PreviousView => self.show(self.view.step(View::ALL.len() - 1)),
            Action::Show(view) => self.show(view),
        }
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
        if self.view == View::Fsync {
            self.fsync = self.fsync().map(fsync_id);
            self.details = self.fsync.is_some();
            self.scroll = 0;
            return;
        }
        match (self.view, self.target()) {
            (View::Overview | View::Findings, Some(Target::Finding(id))) => {
                // Chosen from now on: another finding that becomes the worst must not replace the one being read.
                self.target = Some(Target::Finding(id));
                self.details = true;
                self.scroll = 0;
            }
            (View::Overview, Some(Target::Device(_))) => self.show(View::Device),
            _ => {}
        }
    }

    fn step(&mut self, by: isize) {
        if self.help
            || self.details
            || matches!(self.view, View::Coverage | View::Dirty | View::Shares)
        {
            self.scroll = moved(self.scroll, by, self.extent.max_scroll);
        } else if self.view == View::Fsync {
            let fsyncs = &self.shown().fsyncs;
            let from = self.fsync_index().unwrap_or(0);
            let index = moved(from, by, fsyncs.len().saturating_sub(1));
            self.fsync = fsyncs.get(index).map(fsync_id);
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
        let devices = &self.shown().devices;
        let current = self.device().map(|d| d.dev);
        let index = order
            .iter()
            .position(|i| Some(devices[*i].dev) == current)
            .unwrap_or(0);
        let index = moved(index, by, order.len().saturating_sub(1));
        self.device = order.get(index).map(|i| devices[*i].dev);
        self.owner = None;
    }
}

fn moved(from: usize, by: isize, last: usize) -> usize {
    from.saturating_add_signed(by).min(last)
}

fn signed(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX)
}
