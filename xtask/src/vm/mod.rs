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
        let runs = target().join("vm/runs");
        let dir = runs.join(format!("{}-{}", i + 1, p.kernel.name));
        let mut of_boot = boot_and_tell(p, &dir, observer.as_deref());
        if let Some(second) = of_boot
            .worth_another(p)
            .filter(|_| second_boots < SECOND_BOOTS)
        {
            second_boots += 1;
            println!("vm: {} boots again for what failed", p.kernel.name);
            again.append(&mut of_boot.failed());
            let dir = runs.join(format!("{}-{}-again", i + 1, p.kernel.name));
            of_boot.replace_failed(boot_and_tell(&second, &dir, observer.as_deref()));
        }
        tally.add(of_boot.into_tally());
    }
    for first in &again {
        println!("vm: at first, before another boot, failed {first}");
    }
    Ok(tally)
}

/// An emulated machine that shares its two CPUs with whatever else the host does can be held up for seconds. So many kernels
/// may boot a second time, one for each generic kernel, for the batches in which something failed. Each is told; what fails twice
/// fails.
const SECOND_BOOTS: usize = 4;

/// What came of a boot: of its batches in their order, and of the boot itself.
#[derive(Debug, Default)]
struct OfBoot {
    batches: Vec<Tally>,
    boot: Tally,
}

impl OfBoot {
    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.batches.iter().chain([&self.boot])
    }

    fn failed(&self) -> Vec<String> {
        self.tallies().flat_map(|t| t.failed.clone()).collect()
    }

    fn into_tally(self) -> Tally {
        let mut all = Tally::default();
        self.batches.into_iter().for_each(|t| all.add(t));
        all.add(self.boot);
        all
    }

    /// The boot that could show it better: all batches when the boot itself failed.
    fn worth_another<'a>(&self, p: &Plan<'a>) -> Option<Plan<'a>> {
        let whole = !self.boot.is_good();
        let failed = |i: usize| self.batches.get(i).is_none_or(|t| !t.is_good());
        let of_batch = p.batches.iter().enumerate();
        let batches: Vec<_> = of_batch
            .filter(|(i, _)| whole || failed(*i))
            .map(|(_, batch)| batch.clone())
            .collect();
        (!batches.is_empty()).then_some(Plan { batches, ..*p })
    }

    /// Puts the second boot in the place of what failed.
    fn replace_failed(&mut self, second: OfBoot) {
        if self.boot.is_good() {
            self.batches.retain(Tally::is_good);
        } else {
            self.batches.clear();
        }
        self.batches.extend(second.batches);
        self.boot = second.boot;
    }
}

/// A boot that cannot be made fails its scenarios, not those of the other kernels.
fn boot_and_tell(p: &Plan, dir: &Path, observer: Option<&Path>) -> OfBoot {
    let mut of_boot = OfBoot::default();
    if let Err(e) = one_boot(p, dir, observer, &mut of_boot) {
        println!("FAIL boot {}: {e:#}", p.kernel.name);
        let failed = format!("boot {}: {e:#}", p.kernel.name);
        of_boot.boot.failed.push(failed);
    }
    of_boot
}

fn one_boot(p: &Plan, dir: &Path, observer: Option<&Path>, of_boot: &mut OfBoot) -> Result<()> {
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
        let mut tally = Tally::default();
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
            tell(p, &format!("{}: {}", s.name, s.title), &report, &mut tally);
        }
        if let Some(o) = &observed {
            let names: Vec<&str> = batch.iter().map(|s| s.name.as_str()).collect();
            tell(
                p,
                &format!("observer of {}", names.join(", ")),
                &check::check_observer(o),
                &mut tally,
            );
        }
        of_boot.batches.push(tally);
    }
    // One test of its own: a scenario cannot know which of those that ran beside it made the kernel complain.
    let log = Report {
        problems: faults,
        notes: vec![format!("{}, {} s", kernel.release, booted.took.as_secs())],
    };
    tell(p, "kernel log", &log, &mut of_boot.boot);
    if !of_boot.tallies().all(Tally::is_good) {
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
            .map(|p| format!("\n  ! {}", shortened(p)))
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

/// The end of a log is what is kept of it: what failed must fit there. The whole problem stands where it was met.
fn shortened(problem: &str) -> String {
    const ENOUGH: usize = 300;
    match problem.char_indices().nth(ENOUGH) {
        Some((at, _)) => format!("{} …", &problem[..at]),
        None => problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::scenario::Scenario;

    fn tally(failed: &[&str]) -> Tally {
        Tally {
            passed: 1,
            failed: failed.iter().map(|f| f.to_string()).collect(),
            skipped: 0,
        }
    }

    fn scenario(name: &str) -> Scenario {
        let text = "title = 't'\nreproduces = 'r'\nload_limit_s = 20\n[[disk]]\nsize_mib = 64\nqueue_depth = 2\nscheduler = 'none'\n[script]\nload = 'true'\n[expect]\nnever = ['queue-stuck']\n";
        Scenario::parse(name, text).unwrap()
    }

    #[test]
    fn only_what_failed_runs_a_second_time_and_what_fails_twice_fails() {
        let (a, b) = (scenario("a"), scenario("b"));
        let p = Plan {
            kernel: kernels::MATRIX[0],
            cmdline: "",
            batches: vec![vec![&a], vec![&b]],
        };
        let mut good = OfBoot {
            batches: vec![tally(&[]), tally(&[])],
            boot: tally(&[]),
        };
        assert!(good.worth_another(&p).is_none());
        good.batches[1] = tally(&["b"]);
        let second = good.worth_another(&p).unwrap();
        assert_eq!(second.batches.len(), 1);
        assert_eq!(second.batches[0][0].name, "b");
        good.replace_failed(OfBoot {
            batches: vec![tally(&["b again"])],
            boot: tally(&[]),
        });
        let all = good.into_tally();
        assert_eq!((all.passed, all.failed), (3, vec!["b again".to_string()]));

        let broken = OfBoot {
            batches: vec![tally(&[]), tally(&[])],
            boot: tally(&["kernel log"]),
        };
        assert_eq!(broken.worth_another(&p).unwrap().batches.len(), 2);
        let unfinished = OfBoot {
            batches: vec![tally(&[])],
            boot: tally(&[]),
        };
        assert_eq!(unfinished.worth_another(&p).unwrap().batches.len(), 1);
    }

    #[test]
    fn a_long_problem_is_cut_between_characters() {
        let long = "ä".repeat(400);
        assert_eq!(shortened(&long).chars().count(), 302);
        assert_eq!(shortened("short"), "short");
    }
}
