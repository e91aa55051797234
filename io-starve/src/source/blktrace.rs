//! What blktrace records: its binary files, and their text by blkparse.

pub mod binary;
pub mod files;
pub mod text;

use super::trace::What;

/// The event that an action of blktrace stands for; `None` for those that are not needed.
const fn what_of_letter(letter: u8) -> Option<What> {
    Some(match letter {
        b'Q' => What::BioQueue,
        b'G' => What::GetRq,
        b'M' => What::AnyMerge,
        b'F' => What::FrontMerge,
        b'X' => What::Split,
        b'I' => What::Insert,
        b'D' => What::Issue,
        b'R' => What::Requeue,
        b'C' => What::Complete,
        _ => return None,
    })
}
