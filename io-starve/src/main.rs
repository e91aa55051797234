//! The program: see [`io_starve::commands`].

use std::process::ExitCode;

fn main() -> ExitCode {
    io_starve::commands::main()
}
