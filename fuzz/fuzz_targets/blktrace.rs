//! Anything may be in a trace: `cargo +nightly fuzz run blktrace`.
#![no_main]

use io_starve::source::{
    input::{Format, Opened, read},
    replay::Tape,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let input = Box::new(std::io::Cursor::new(data.to_vec()));
    if let Ok(Opened::Trace(mut trace)) = read(input, "fuzz", Some(Format::Blktrace)) {
        while trace.next_observation().is_some() {}
    }
});
