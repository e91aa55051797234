//! `cargo xtask test`: the rings of tests, each with its time, and every skip with its reason.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::{
    cmd::{in_ci, is_root, root, run},
    ebpf, setup,
    tally::Tally,
    vm::{self, plan::Wanted},
};

/// Something that did not run.
#[derive(Debug)]
struct Skip {
    what: String,
    why: String,
    /// CI has what it needs, so there it must run.
    possible_in_ci: bool,
}

#[derive(Debug, Default)]
struct Outcome {
    tally: Tally,
    skips: Vec<Skip>,
}

impl Outcome {
    fn skip(&mut self, what: &str, why: String, possible_in_ci: bool) {
        self.tally.skipped += 1;
        self.skips.push(Skip {
            what: what.to_string(),
            why,
            possible_in_ci,
        });
    }

    fn step(&mut self, what: &str, result: Result<()>) {
        match result {
            Ok(()) => self.tally.passed += 1,
            Err(e) => {
                eprintln!("FAIL {what}: {e:#}");
                self.tally.failed.push(format!("{what}: {e:#}"));
            }
        }
    }
}

/// A ring: adds to the outcome; true for what takes longer than CI's time too.
type Ring = fn(&mut Outcome, bool);

/// Every ring, cheapest first.
const RINGS: [(&str, Ring); 4] = [
    ("pure", pure),
    ("ebpf", object),
    ("live", live),
    ("vm", guests),
];

/// Names of the rings.
pub fn rings() -> [&'static str; 4] {
    RINGS.map(|(name, _)| name)
}

/// Runs these rings, all when none is named; `all` adds what takes longer than CI's time. False when something failed.
pub fn test(all: bool, wanted: &[String]) -> Result<bool> {
    let mut outcome = Outcome::default();
    let mut times = Vec::new();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    for (name, ring) in RINGS.into_iter().filter(|(name, _)| chosen(name)) {
        println!("== ring {name}");
        #[expect(clippy::disallowed_methods, reason = "the time that a ring took")]
        let start = Instant::now();
        ring(&mut outcome, all);
        times.push(format!("{name} {} s", start.elapsed().as_secs()));
    }
    println!("== times: {}", times.join(", "));
    let Outcome { mut tally, skips } = outcome;
    for skip in &skips {
        println!("skipped {}: {}", skip.what, skip.why);
        if in_ci() && skip.possible_in_ci {
            tally.skipped -= 1;
            let failed = format!("{} (skipped, which CI does not allow)", skip.what);
            tally.failed.push(failed);
        }
    }
    tally.print();
    Ok(tally.is_good())
}

fn cargo(args: &[&str]) -> Command {
    let mut cmd = Command::new("cargo");
    cmd.args(args).current_dir(root());
    cmd
}

fn pure(o: &mut Outcome, all: bool) {
    if let Err(e) = setup::ensure(setup::PURE) {
        o.skip(
            "validation of the alert schema by jsonschema",
            format!("{e:#}"),
            true,
        );
    }
    if all && let Err(e) = setup::ensure(setup::METRICS) {
        let what = "promtool's check of metrics and alert rules";
        o.skip(what, format!("{e:#}"), true);
    }
    o.step("formatting", run(&mut cargo(&["fmt", "--all", "--check"])));
    o.step(
        "formatting of the BPF programs",
        run(cargo(&["fmt", "--check"]).current_dir(root().join("io-starve-ebpf"))),
    );
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ];
    o.step("clippy", run(&mut cargo(&clippy)));
    let with_faults = [
        "clippy",
        "--package",
        "io-starve",
        "--features",
        "faults",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ];
    o.step(
        "clippy of the injected faults",
        run(&mut cargo(&with_faults)),
    );
    let others = cargo(&["test", "--workspace", "--exclude", "io-starve"]);
    cargo_test(o, "tests of common and xtask", others);
    match pure_targets(&root().join("io-starve/tests")) {
        Ok(targets) => {
            let mut args = vec!["test", "--package", "io-starve", "--lib", "--bins"];
            for t in &targets {
                args.extend(["--test", t]);
            }
            cargo_test(o, "tests of io-starve", cargo(&args));
        }
        Err(e) => o.step("tests of io-starve", Err(e)),
    }
}

/// Integration tests but `live`, which is a ring of its own.
fn pure_targets(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if dir.exists() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.extension().is_some_and(|e| e == "rs") && name != "live" {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

fn object(o: &mut Outcome, _all: bool) {
    o.step("the committed BPF object", ebpf::build(true));
}

fn live(o: &mut Outcome, _all: bool) {
    if !is_root() {
        o.skip(
            "ring live",
            "it attaches programs to this kernel, which needs root".to_string(),
            true,
        );
        return;
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        o.skip(
            "ring live",
            "this kernel has no BTF (/sys/kernel/btf/vmlinux)".to_string(),
            false,
        );
        return;
    }
    if let Err(e) = setup::ensure(setup::LIVE) {
        o.skip("ring live", format!("{e:#}"), true);
        return;
    }
    // One at a time: they share the kernel's hooks and measure.
    let args = [
        "test",
        "--package",
        "io-starve",
        "--features",
        "faults",
        "--test",
        "live",
        "--",
        "--include-ignored",
        "--test-threads=1",
    ];
    cargo_test(o, "ring live", cargo(&args));
}

fn guests(o: &mut Outcome, all: bool) {
    if let Err(e) = setup::ensure(setup::VM) {
        o.skip("ring vm", format!("{e:#}"), true);
        return;
    }
    if !crate::cmd::is_debian() {
        let why = "the kernels are Debian's, and come through a Debian machine's own apt sources";
        o.skip("ring vm", why.to_string(), false);
        return;
    }
    let wanted = Wanted {
        all,
        ..Wanted::default()
    };
    match vm::run(&wanted) {
        Ok(tally) => o.tally.add(tally),
        Err(e) => o.step("ring vm", Err(e)),
    }
}

/// Runs `cargo test`, shows what it prints, counts.
fn cargo_test(o: &mut Outcome, what: &str, mut cmd: Command) {
    let mut counts = Counts::default();
    let result = stream(&mut cmd, |line| counts.line(line));
    let ran = counts.tally != Tally::default();
    let named = !counts.tally.is_good();
    o.tally.add(counts.tally);
    for (test, why) in counts.ignored {
        o.skips.push(Skip {
            what: test,
            why,
            possible_in_ci: false,
        });
    }
    // What does not compile, or ends before its summary, has named nothing.
    if let Err(e) = result
        && !named
    {
        o.step(what, Err(e));
    } else if !ran {
        o.step(what, Err(anyhow::anyhow!("no test ran")));
    }
}

fn stream(cmd: &mut Command, mut each: impl FnMut(&str)) -> Result<()> {
    let mut child = cmd
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let out = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(out).lines() {
        let line = line?;
        println!("{line}");
        each(&line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("cargo ended with {status}");
    }
    Ok(())
}

/// What the test harness of rustc printed.
#[derive(Debug, Default)]
struct Counts {
    tally: Tally,
    ignored: Vec<(String, String)>,
}

impl Counts {
    /// `test a::b ... ignored, reason` and `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test ") else {
            return;
        };
        if let Some(result) = rest.strip_prefix("result: ") {
            let number = |word: &str| -> usize {
                result
                    .split([';', '.'])
                    .filter_map(|part| part.trim().strip_suffix(word)?.trim().parse::<usize>().ok())
                    .sum()
            };
            self.tally.passed += number("passed");
            self.tally.skipped += number("ignored");
        } else if let Some(name) = rest.strip_suffix(" ... FAILED") {
            self.tally.failed.push(format!("test {name}"));
        } else if let Some((name, why)) = rest.split_once(" ... ignored") {
            let why = why.trim_start_matches(", ");
            let why = if why.is_empty() {
                "ignored without a reason"
            } else {
                why
            };
            self.ignored.push((name.to_string(), why.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_are_summed() {
        let mut c = Counts::default();
        for line in [
            "running 3 tests",
            "test a::passes ... ok",
            "test b::later ... ignored, needs a disk",
            "test b::bare ... ignored",
            "test b::breaks ... FAILED",
            "test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 5 filtered out; finished in 0.16s",
            "test result: FAILED. 24 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            c.line(line);
        }
        assert_eq!(
            c.tally,
            Tally {
                passed: 25,
                failed: vec!["test b::breaks".to_string()],
                skipped: 2
            }
        );
        assert_eq!(
            c.ignored[0],
            ("b::later".to_string(), "needs a disk".to_string())
        );
        assert_eq!(c.ignored[1].1, "ignored without a reason");
    }
}
