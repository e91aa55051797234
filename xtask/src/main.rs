//! Builds, tests and boots io-starve: one command for each ring of tests, the same as CI's.

mod apt;
mod bench;
mod cmd;
mod ebpf;
mod run;
mod setup;
mod tally;
mod test;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, tests and boots io-starve")]
struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs what all other commands need (Debian, as root), or says what is missing
    Setup,
    /// Builds the BPF object with the pinned compiler and linker
    Ebpf {
        /// Compare with the committed object instead of replacing it
        #[arg(long)]
        check: bool,
    },
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
    /// Runs the rings of tests: pure, ebpf, live, vm
    Test {
        /// What takes longer than CI's time too
        #[arg(long)]
        all: bool,
        /// Only this ring, may be given several times
        #[arg(long = "ring", value_name = "RING", value_parser = test::rings())]
        rings: Vec<String>,
    },
    /// Measures what io-starve costs, beside biolatency -Q
    Bench {
        /// How often each case is measured
        #[arg(long, default_value_t = 3)]
        rounds: u32,
    },
    /// Builds io-starve and starts it: live where it may, else the demo
    Run,
}

fn main() -> Result<ExitCode> {
    let verdict = |good: bool| {
        if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    };
    match Args::parse().command {
        Task::Setup => setup::all().map(|()| ExitCode::SUCCESS),
        Task::Ebpf { check } => ebpf::build(check).map(|()| ExitCode::SUCCESS),
        Task::Vm {
            kernels,
            all,
            lookalikes,
            trace_only,
            scenarios,
        } => {
            let tally = vm::run(&vm::plan::Wanted {
                kernels,
                all,
                look_alikes: lookalikes,
                trace_only,
                scenarios,
            })?;
            tally.print();
            Ok(verdict(tally.is_good()))
        }
        Task::Test { all, rings } => test::test(all, &rings).map(verdict),
        Task::Bench { rounds } => bench::bench(rounds).map(|()| ExitCode::SUCCESS),
        Task::Run => run::run(),
    }
}
