//! Classes from what traces show of a request's flags.

use io_starve_common::class::{Class, OpBits, classify};

const BITS: OpBits = OpBits::MAINLINE;
const SYNC: u32 = 1 << 11;
const FUA: u32 = 1 << 17;
const PREFLUSH: u32 = 1 << 18;
/// `REQ_OP_WRITE_ZEROES`, `REQ_OP_ZONE_OPEN` and `REQ_OP_DRV_IN`: operations of no class of their own.
const WRITE_ZEROES: u32 = 9;
const ZONE: u32 = 10;
const PASSTHROUGH: u32 = 34;

/// The class that letters stand for: those of `blk_fill_rwbs` (kernel/trace/blktrace.c, 5.10 to 7.3) and of blkparse.
/// An `F` for a flush before, the operation in one or two letters, then `F` for FUA, `A`, `S` for sync, `M`, `U`.
/// `None` for what no kernel writes.
pub fn class_of_letters(letters: &[u8]) -> Option<Class> {
    let (flags, rest) = match letters {
        [b'F', rest @ ..] if !rest.is_empty() => (PREFLUSH, rest),
        all => (0, all),
    };
    let (op, rest) = match rest {
        [b'R', rest @ ..] => (0, rest),
        [b'W', b'Z', rest @ ..] => (WRITE_ZEROES, rest),
        [b'W', rest @ ..] => (BITS.write, rest),
        [b'D', b'E', rest @ ..] => (BITS.secure_erase, rest),
        [b'D', rest @ ..] => (BITS.discard, rest),
        [b'F', rest @ ..] => (BITS.flush, rest),
        // blkparse knows a flush only as something without data and direction.
        [b'N', rest @ ..] if flags == PREFLUSH => (BITS.flush, rest),
        [b'N', rest @ ..] => (PASSTHROUGH, rest),
        [b'Z', b'A', rest @ ..] => (BITS.zone_append, rest),
        [b'Z', _, rest @ ..] => (ZONE, rest),
        _ => return None,
    };
    let flags = rest.iter().try_fold(flags, |flags, letter| match letter {
        b'F' => Some(flags | FUA),
        b'S' => Some(flags | SYNC),
        b'A' | b'M' | b'U' => Some(flags),
        _ => None,
    })?;
    Some(classify(op | flags, &BITS))
}

/// The class of an operation that is told in parts, as in blktrace's binary records.
pub fn class_of_parts(write: bool, flush: bool, discard: bool, sync: bool, data: bool) -> Class {
    let op = match (discard, write) {
        (true, _) => BITS.discard,
        (_, true) => BITS.write,
        // The kernel marks a flush as a read, because its number is even.
        (_, false) if flush && !data => BITS.flush,
        _ => 0,
    };
    let sync = if sync || flush { SYNC } else { 0 };
    classify(op | sync, &BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_kernels_and_of_blkparse() {
        for (letters, class) in [
            ("R", Class::SyncRead),
            ("RSM", Class::SyncRead),
            ("RA", Class::SyncRead),
            ("W", Class::AsyncWrite),
            ("WM", Class::AsyncWrite),
            ("WS", Class::SyncWrite),
            ("WFS", Class::SyncWrite),
            ("WF", Class::SyncWrite),
            ("FWFSM", Class::SyncWrite),
            ("FWS", Class::SyncWrite),
            ("FF", Class::Flush),
            ("F", Class::Flush),
            ("FN", Class::Flush),
            ("D", Class::Discard),
            ("DES", Class::Discard),
            ("WZ", Class::Other),
            ("N", Class::Other),
            ("ZA", Class::AsyncWrite),
            ("ZR", Class::Other),
        ] {
            assert_eq!(
                class_of_letters(letters.as_bytes()),
                Some(class),
                "{letters}"
            );
        }
        for none in ["", "X", "WQ", "[fio]", "4096"] {
            assert_eq!(class_of_letters(none.as_bytes()), None, "{none}");
        }
    }
}
