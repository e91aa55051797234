//! What keeps somebody waiting.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What keeps the victim waiting.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The I/O scheduler issues others first.
    Scheduler,
    /// Writeback throttling.
    Wbt,
    /// The iocost controller.
    Iocost,
    /// No free tag.
    Tags,
    /// The device, or what is behind it.
    Device,
    /// A journal commit waits for data of another's file.
    JournalData,
    /// The journal's own blocks wait behind another's bulk.
    JournalQueue,
    /// The data of the synced file waits behind another's bulk.
    DataQueue,
    /// Handles of another keep the transaction open.
    Transaction,
    /// The journal is full, and room in it is made slowly.
    Checkpoint,
    /// The worker of a loop device is paused for dirty memory itself.
    LoopWorker,
    /// So much memory is dirty that writers are paused.
    DirtyLimit,
    /// Weights are set, and nothing looks at them.
    NotEnforced,
    /// What enforces weights gives others more than theirs.
    Misallocated,
    /// The disk is kept idle while somebody waits.
    Idling,
}

impl Mechanism {
    /// Every mechanism, in the order of the list above.
    pub const ALL: [Mechanism; 12] = [
        Mechanism::Scheduler,
        Mechanism::Wbt,
        Mechanism::Iocost,
        Mechanism::Tags,
        Mechanism::Device,
        Mechanism::JournalData,
        Mechanism::JournalQueue,
        Mechanism::DataQueue,
        Mechanism::Transaction,
        Mechanism::Checkpoint,
        Mechanism::LoopWorker,
        Mechanism::DirtyLimit,
    ];

    /// The name used on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Scheduler => "scheduler",
            Mechanism::Wbt => "wbt",
            Mechanism::Iocost => "iocost",
            Mechanism::Tags => "tags",
            Mechanism::Device => "device",
            Mechanism::JournalData => "journal-data",
            Mechanism::JournalQueue => "journal-queue",
            Mechanism::DataQueue => "data-queue",
            Mechanism::Transaction => "transaction",
            Mechanism::Checkpoint => "checkpoint",
            Mechanism::LoopWorker => "loop-worker",
            Mechanism::DirtyLimit => "dirty-limit",
            Mechanism::NotEnforced => "not-enforced",
            Mechanism::Misallocated => "misallocated",
            Mechanism::Idling => "idling",
        }
    }
}
