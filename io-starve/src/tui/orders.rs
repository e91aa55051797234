//! Orders in which lists can be shown.

/// Order of the disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceSort {
    /// Those with open findings first, worst first, then by name, idle ones last.
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

    /// The next one, the first after the last.
    pub const fn next(self) -> DeviceSort {
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

    /// The next one, the first after the last.
    pub const fn next(self) -> OwnerSort {
        match self {
            OwnerSort::Waiting => OwnerSort::Oldest,
            OwnerSort::Oldest => OwnerSort::Iops,
            OwnerSort::Iops => OwnerSort::Name,
            OwnerSort::Name => OwnerSort::Waiting,
        }
    }
}

/// Order of the fsyncs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FsyncSort {
    /// Those that run, longest first, then those that ended, latest first, as the snapshot has them.
    #[default]
    Latest,
    /// Longest first, running or not.
    Longest,
}

impl FsyncSort {
    /// What the screen calls it.
    pub const fn name(self) -> &'static str {
        match self {
            FsyncSort::Latest => "latest",
            FsyncSort::Longest => "longest",
        }
    }

    /// The other one.
    pub const fn next(self) -> FsyncSort {
        match self {
            FsyncSort::Latest => FsyncSort::Longest,
            FsyncSort::Longest => FsyncSort::Latest,
        }
    }
}
