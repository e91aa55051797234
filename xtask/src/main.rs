//! Builds, tests and boots io-starve: one command for each ring of tests, the same as CI's.

mod apt;
mod cmd;
mod setup;
mod tally;
mod vm;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, tests and boots io-starve")]
struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Boots Debian kernels and runs scenarios in them
    Vm {
        /// Kernel of the matrix, may be given several times
        #[arg(long = "kernel", value_name = "K")]
        kernels: Vec<String>,
        /// Every scenario on every kernel
        #[arg(long)]
        all: bool,
        /// The look-alikes too
        #[arg(long)]
        lookalikes: bool,
        /// Without io-starve: shows what the rules say of the kernel's trace, to tune scenarios
        #[arg(long)]
        trace_only: bool,
        /// Scenarios by name; those that CI runs when none is named
        #[arg(value_name = "SCENARIO")]
        scenarios: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Task::Vm {
            kernels,
            all,
            lookalikes,
            trace_only,
            scenarios,
        } => vm::run(&vm::plan::Wanted {
            kernels,
            all,
            look_alikes: lookalikes,
            trace_only,
            scenarios,
        })
        .map(|t| println!("{t:?}")),
    }
}
