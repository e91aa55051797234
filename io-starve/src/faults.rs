//! Faults for the live tests; only in builds with the feature `faults`.
//!
//! `IO_STARVE_FAULTS` names a folder. A fault lasts as long as a file of its name lies there: a test begins and ends it when
//! its own condition is met, in the middle of a run, which options such as `--without-hook` cannot express.

use std::{env::var_os, path::Path};

/// `panic-in-drawing`: as if a view had a bug.
pub fn panic_in_drawing() {
    if is_on("panic-in-drawing") {
        #[expect(clippy::panic, reason = "the fault itself")]
        {
            panic!("the fault panic-in-drawing is on");
        }
    }
}

/// `without-HOOK`: true while this hook is to be off.
pub fn takes_away(hook: &str) -> bool {
    is_on(&format!("without-{hook}"))
}

fn is_on(fault: &str) -> bool {
    var_os("IO_STARVE_FAULTS").is_some_and(|folder| Path::new(&folder).join(fault).exists())
}
