use io_starve_common::class::Class;

use super::*;
use crate::model::observation::{DevId, Owner};

/// A read of 8 sectors is submitted at this time.
pub fn event(ns: u64) -> Event {
    Event {
        ns,
        what: What::BioQueue,
        dev: DevId::new(8, 0),
        class: Class::SyncRead,
        sector: 1_000,
        sectors: 8,
        idle_prio: false,
        owner: Owner::Unknown,
        tid: 7,
        comm: Comm::new(b"fio"),
    }
}
