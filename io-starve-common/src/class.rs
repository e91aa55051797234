//! Request classes, decoded with the running kernel's own numbers.

/// What kind of request it is. Sync is the kernel's meaning: a read, or a write that carries
/// `REQ_SYNC`, `REQ_FUA` or `REQ_PREFLUSH` (`op_is_sync`, include/linux/blk_types.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "user",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
#[cfg_attr(feature = "user", serde(rename_all = "kebab-case"))]
#[repr(u8)]
pub enum Class {
    /// Any read; the kernel treats all of them as sync.
    SyncRead = 0,
    /// A write that somebody waits for: direct I/O, fsync, the journal.
    SyncWrite = 1,
    /// A write that nobody waits for: background writeback.
    AsyncWrite = 2,
    /// A cache flush without data.
    Flush = 3,
    /// Discard and secure erase.
    Discard = 4,
    /// Write zeroes, zone management, passthrough commands.
    Other = 5,
}

impl Class {
    /// How many classes there are.
    pub const COUNT: usize = 6;

    /// Every class, in the order of its number.
    pub const ALL: [Class; Class::COUNT] = [
        Class::SyncRead,
        Class::SyncWrite,
        Class::AsyncWrite,
        Class::Flush,
        Class::Discard,
        Class::Other,
    ];

    /// The class with this number, [`Class::Other`] for a number that no class has.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> Class {
        match n {
            0 => Class::SyncRead,
            1 => Class::SyncWrite,
            2 => Class::AsyncWrite,
            3 => Class::Flush,
            4 => Class::Discard,
            _ => Class::Other,
        }
    }

    /// True for the classes that somebody waits for.
    #[inline(always)]
    pub const fn is_sync(self) -> bool {
        matches!(self, Class::SyncRead | Class::SyncWrite)
    }

    /// The name used on screen and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Class::SyncRead => "sync-read",
            Class::SyncWrite => "sync-write",
            Class::AsyncWrite => "async-write",
            Class::Flush => "flush",
            Class::Discard => "discard",
            Class::Other => "other",
        }
    }
}

/// The numbers of `enum req_op` and the masks of `enum req_flag_bits` on the running kernel.
///
/// Bits 8 to 21 and the low operations are alike from 5.10 to 7.3, but others moved, so all are
/// resolved by name from BTF. An operation that this kernel lacks is [`OpBits::ABSENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct OpBits {
    /// `REQ_OP_WRITE`; reads are 0 everywhere.
    pub write: u32,
    /// `REQ_OP_FLUSH`.
    pub flush: u32,
    /// `REQ_OP_DISCARD`.
    pub discard: u32,
    /// `REQ_OP_SECURE_ERASE`.
    pub secure_erase: u32,
    /// `REQ_OP_ZONE_APPEND`: a write whose place the zone chooses.
    pub zone_append: u32,
    /// `REQ_SYNC | REQ_FUA | REQ_PREFLUSH` as a mask.
    pub sync_mask: u32,
}

impl OpBits {
    /// The value of an operation that the kernel does not have; no 8-bit operation equals it.
    pub const ABSENT: u32 = u32::MAX;

    /// The numbers of Linux 6.1 and later, for importers of texts that carry no numbers and for tests.
    pub const MAINLINE: OpBits = OpBits {
        write: 1,
        flush: 2,
        discard: 3,
        secure_erase: 5,
        zone_append: 7,
        sync_mask: 1 << 11 | 1 << 17 | 1 << 18,
    };
}

/// The class of a request with these `cmd_flags`. The operation is the low 8 bits
/// (`REQ_OP_MASK`, include/linux/blk_types.h).
#[inline(always)]
pub fn classify(cmd_flags: u32, bits: &OpBits) -> Class {
    let op = cmd_flags & 0xff;
    if op == 0 {
        Class::SyncRead
    } else if op == bits.write || op == bits.zone_append {
        if cmd_flags & bits.sync_mask != 0 {
            Class::SyncWrite
        } else {
            Class::AsyncWrite
        }
    } else if op == bits.flush {
        Class::Flush
    } else if op == bits.discard || op == bits.secure_erase {
        Class::Discard
    } else {
        Class::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_classes_seen_on_real_kernels() {
        let b = OpBits::MAINLINE;
        // cmd_flags observed in VMs: O_DIRECT, fsync writeback, jbd2, background writeback, flush_rq.
        assert_eq!(classify(0x8801, &b), Class::SyncWrite);
        assert_eq!(classify(0x801, &b), Class::SyncWrite);
        assert_eq!(classify(0x9801, &b), Class::SyncWrite);
        assert_eq!(classify(0x10_0001, &b), Class::AsyncWrite);
        assert_eq!(classify(0x3001, &b), Class::AsyncWrite);
        assert_eq!(classify(0x80_0001, &b), Class::AsyncWrite);
        assert_eq!(classify(0x4_0002, &b), Class::Flush);
        assert_eq!(classify(0x8_0000, &b), Class::SyncRead);
        assert_eq!(classify(34, &b), Class::Other);
        assert_eq!(classify(9, &b), Class::Other);
    }

    #[test]
    fn an_absent_operation_matches_nothing() {
        let b = OpBits {
            zone_append: OpBits::ABSENT,
            ..OpBits::MAINLINE
        };
        assert_eq!(classify(7, &b), Class::Other);
        assert_eq!(classify(0xff, &b), Class::Other);
    }

    #[test]
    fn numbers_and_names_go_both_ways() {
        for (i, c) in Class::ALL.iter().enumerate() {
            assert_eq!(*c as usize, i);
            assert_eq!(Class::from_u8(i as u8), *c);
        }
    }
}
