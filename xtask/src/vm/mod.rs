//! `cargo xtask vm`: boots Debian kernels, runs scenarios in them, compares what io-starve said with the kernel's own trace.

pub mod boot;
pub mod check;
pub mod initramfs;
pub mod kernels;
pub mod plan;
pub mod queue;
pub mod results;
pub mod rule;
pub mod scenario;
pub mod trace;

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, bail};

use crate::{
    cmd::{build_observer, target},
    setup,
    tally::Tally,
};
use check::Report;
use plan::{Plan, Wanted};
use results::{Observed, Ran, Results};

/// Runs what is wanted and prints a line for each scenario; what does not fit stands below it.
pub fn run(wanted: &Wanted) -> Result<Tally> {
    setup::ensure(setup::VM)?;
    let scenarios = scenario::load_all()?;
    let boots = plan::plan(&scenarios, wanted)?;
    let observer = if wanted.trace_only {
        None
    } else {
        Some(build_observer()?)
    };
    let mut tally = Tally::default();
    let mut again = Vec::new();
    let mut second_boots = 0;
    for (i, p) in boots.iter().enumerate() {
        println!(
            "vm: boot {} of {}: kernel {} {}",
            i + 1,
            boots.len(),
            p.kernel.name,
            p.cmdline
        );
        let dir = target()
            .join("vm/runs")
            .join(format!("{}-{}", i + 1, p.kernel.name));
        let mut of_boot = boot_and_tell(p, &dir, observer.as_deref());
        if !of_boot.is_good() && second_boots < SECOND_BOOTS {
            second_boots += 1;
            println!("vm: {} boots again", p.kernel.name);
            let second = boot_and_tell(p, &dir, observer.as_deref());
            again.extend(std::mem::replace(&mut of_boot, second).failed);
        }
        tally.add(of_boot);
    }
    for first in &again {
        println!("vm: at first, before another boot, failed {first}");
    }
    Ok(tally)
}

/// An emulated machine that shares its two CPUs with whatever else the host does can be held up for seconds. So many kernels
/// may boot a second time, one for each generic kernel, and each is told; what fails twice fails.
const SECOND_BOOTS: usize = 4;

/// A boot that cannot be made fails its scenarios, not those of the other kernels.
fn boot_and_tell(p: &Plan, dir: &Path, observer: Option<&Path>) -> Tally {
    let mut tally = Tally::default();
    if let Err(e) = one_boot(p, dir, observer, &mut tally) {
        println!("FAIL boot {}: {e:#}", p.kernel.name);
        tally.failed.push(format!("boot {}: {e:#}", p.kernel.name));
    }
    tally
}

fn one_boot(p: &Plan, dir: &Path, observer: Option<&Path>, tally: &mut Tally) -> Result<()> {
    let kernel = kernels::fetch(p.kernel)?;
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir)?;
    let initramfs = dir.join("initramfs");
    initramfs::build(&initramfs, &kernel, observer, &p.modules(), &p.files())?;
    let booted = boot::boot(&boot::Boot {
        kernel: &kernel,
        initramfs: &initramfs,
        dir,
        cmdline: p.cmdline,
        disks: p.scenarios().flat_map(|s| &s.disks).collect(),
        limit: Duration::from_secs(p.limit_s()),
    })?;
    fs::remove_file(&initramfs)?;
    let Some(results) = booted.results else {
        bail!(
            "the guest did not finish ({}); its console is {}",
            booted.faults.join("; "),
            dir.join("console").display()
        );
    };
    let mut faults = booted.faults;
    let dmesg = fs::read_to_string(results.join("dmesg")).unwrap_or_default();
    faults.extend(
        dmesg
            .lines()
            .filter(|l| boot::kernel_fault(l))
            .map(str::to_string),
    );
    for (i, batch) in p.batches.iter().enumerate() {
        let observed = match observer {
            Some(_) if batch.iter().all(|s| s.is_observed()) => {
                Some(Observed::read(&results.join(format!("batch{}", i + 1)))?)
            }
            _ => None,
        };
        for s in batch {
            let dir = results.join(&s.name);
            let report = if s.is_observed() {
                let imported = |mut r: Results| match observer {
                    Some(io_starve) if s.trace => r.import(io_starve, &dir).map(|()| r),
                    _ => Ok(r),
                };
                match Results::read(&dir).and_then(imported) {
                    Ok(r) => check::check(s, &r, observed.as_ref()),
                    Err(e) => Report::problem(format!("{e:#}")),
                }
            } else {
                let (ran, errors) = Ran::read(&dir, s.expect.commands.len());
                check::check_commands(s, &ran, &errors)
            };
            tell(p, &format!("{}: {}", s.name, s.title), &report, tally);
        }
        if let Some(o) = &observed {
            let names: Vec<&str> = batch.iter().map(|s| s.name.as_str()).collect();
            tell(
                p,
                &format!("observer of {}", names.join(", ")),
                &check::check_observer(o),
                tally,
            );
        }
    }
    // One test of its own: a scenario cannot know which of those that ran beside it made the kernel complain.
    let log = Report {
        problems: faults,
        notes: vec![format!("{}, {} s", kernel.release, booted.took.as_secs())],
    };
    tell(p, "kernel log", &log, tally);
    if !tally.is_good() {
        println!("    all that was left: {}", results.display());
    }
    Ok(())
}

/// Prints and counts one test.
fn tell(p: &Plan, what: &str, report: &Report, tally: &mut Tally) {
    let good = report.problems.is_empty();
    if good {
        tally.passed += 1;
    } else {
        let why: String = report
            .problems
            .iter()
            .map(|p| format!("\n  ! {p}"))
            .collect();
        tally.failed.push(format!("{} {what}{why}", p.kernel.name));
    }
    println!(
        "{} {} {what}",
        if good { "ok  " } else { "FAIL" },
        p.kernel.name
    );
    for note in &report.notes {
        println!("    {note}");
    }
    for problem in &report.problems {
        println!("  ! {problem}");
    }
}
