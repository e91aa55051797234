//! The arrays of the programs, in memory.

use aya::Ebpf;
use io_starve_common::{
    class::Class,
    service::{DeviceClock, OwnerClock},
    wire::{
        BioSlot, CTRL_COUNT, DevRow, GroupName, GroupRow, HctxRow, HistRow, LossKind, PROBES, Slot,
        class_of_low, dev_key, dev_of_key, dev_row_of_low, probe_start,
    },
};

use super::{
    super::{AttachError, config::Sizes, table::Table},
    counters,
};
use crate::model::observation::{DevId, GroupKey};

/// Every array of the programs.
pub(super) struct Tables {
    pub slots: Table<Slot>,
    pub bios: Table<BioSlot>,
    pub groups: Table<GroupName>,
    pub counts: Table<GroupRow>,
    pub devs: Table<DevRow>,
    pub clocks: Table<DeviceClock>,
    pub owners: Table<OwnerClock>,
    pub accounted: Table<u64>,
    pub hists: Table<HistRow>,
    pub hctxs: Table<HctxRow>,
    pub loss: Table<u64>,
    pub ctrl: Table<u64>,
    pub allow: Table<u64>,
}

impl Tables {
    /// Whom a group row stands for. `None`: nobody has it, or its name is just being written.
    pub fn group_key(&self, group: u32) -> Option<GroupKey> {
        if group >= self.groups.rows() || self.groups.key(group) == 0 {
            return None;
        }
        let name = self.groups.read(group);
        // `low` is written last, and never 0.
        let dev_row = dev_row_of_low(name.low);
        if name.low == 0 || dev_row >= self.devs.rows() {
            return None;
        }
        let dev = self.devs.key(dev_row);
        (dev != 0).then(|| GroupKey {
            dev: DevId(dev_of_key(dev)),
            owner: counters::owner(name.owner),
            class: Class::from_u8(class_of_low(name.low)),
        })
    }

    pub fn map(ebpf: &Ebpf, s: &Sizes) -> Result<Tables, AttachError> {
        use io_starve_common::wire::ALLOW_ROWS;
        Ok(Tables {
            slots: Table::map(ebpf, "SLOTS", s.slots, false)?,
            bios: Table::map(ebpf, "BIOS", s.bios, false)?,
            groups: Table::map(ebpf, "GROUPS", s.groups, false)?,
            counts: Table::map(ebpf, "COUNTS", s.counts(), false)?,
            devs: Table::map(ebpf, "DEVS", s.devs, false)?,
            clocks: Table::map(ebpf, "CLOCKS", s.devs, false)?,
            owners: Table::map(ebpf, "OWNERS", s.owners, false)?,
            accounted: Table::map(ebpf, "ACCOUNTED", s.devs, true)?,
            hists: Table::map(ebpf, "HISTS", s.hists(), false)?,
            hctxs: Table::map(ebpf, "HCTXS", s.hctxs, false)?,
            loss: Table::map(ebpf, "LOSS", LossKind::COUNT as u32, false)?,
            ctrl: Table::map(ebpf, "CTRL", CTRL_COUNT, true)?,
            allow: Table::map(ebpf, "ALLOW", ALLOW_ROWS, true)?,
        })
    }

    /// Adds these disks to those that are followed. Nothing is taken out: a number that goes to another disk later
    /// was asked for by name then.
    pub fn allow_only(&self, disks: &[DevId]) {
        let mask = self.allow.rows() - 1;
        for dev in disks {
            let key = dev_key(dev.0);
            let places = (0..PROBES).map(|i| (probe_start(key, mask) + i) & mask);
            for at in places {
                let have = self.allow.read(at);
                if have == key {
                    break;
                }
                if have == 0 {
                    self.allow.write(at, key);
                    break;
                }
            }
        }
    }
}
