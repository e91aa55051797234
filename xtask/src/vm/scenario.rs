//! Scenarios: a disease, or what looks like one, as data.
//!
//! In: io-starve/scenarios/NAME.toml. Out: [`Scenario`]. Refuses unknown keys and values that nothing would
//! notice: an unknown kind, class or kernel, a scenario that expects nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail};
use io_starve_common::class::Class;
use serde::Deserialize;

mod expect;

pub use expect::{Expect, ExpectedCommand, ExpectedFinding, ExpectedWeight};

use super::kernels;
use crate::cmd::root;

/// Kinds that a scenario may name; the same list as `Kind` of io-starve.
pub const KINDS: &[&str] = &[
    "async-write-starvation",
    "sync-write-starvation",
    "read-starvation",
    "device-stall",
    "queue-stuck",
    "fsync-serialization",
    "journal-stall",
    "loop-double-throttle",
    "dirty-throttle",
    "weight-unfairness",
];

/// One scenario file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// File name without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What it reproduces and why the settings are as they are.
    pub reproduces: String,
    /// Looks like a disease and is none: everything that is not expected by rule must stay quiet.
    #[serde(default)]
    pub look_alike: bool,
    /// Kernels it runs on; all when empty.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// Kernels on which CI runs it, if it runs there; all of the diseases' when absent. The rest is `--all`.
    pub ci: Option<Vec<String>>,
    /// Kernel modules it needs beside those for its disks.
    #[serde(default)]
    pub modules: BTreeSet<String>,
    /// Words for the kernel's command line. Scenarios with different ones never share a boot.
    #[serde(default)]
    pub cmdline: String,
    /// When io-starve attaches: `before` the load or `after:5s`.
    #[serde(default)]
    pub attach: Attach,
    /// The load, or each command, ends by itself within this time, in s.
    pub load_limit_s: u32,
    /// Compare with the kernel's block trace.
    #[serde(default)]
    pub trace: bool,
    /// Compare pauses for dirty memory with the kernel's own trace events of the whole guest.
    #[serde(default)]
    pub pauses: bool,
    /// More arguments for `io-starve watch`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Settings of the whole machine. Scenarios with different ones never run at the same time.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Disks, `$DISK` first, then `$DISK2`.
    #[serde(default, rename = "disk")]
    pub disks: Vec<Disk>,
    /// What runs. Variables: `$DISK`, `$DISK2` (names below /dev), `$DIR` (a folder to mount on), `$CG` (cgroup of the scenario), `$OUT` (results).
    #[serde(default)]
    pub script: Script,
    /// What must come out.
    #[serde(default)]
    pub expect: Expect,
}

/// When io-starve attaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Attach {
    /// Before the load begins.
    #[default]
    Before,
    /// So many seconds after the load began.
    After(u32),
}

impl TryFrom<String> for Attach {
    type Error = String;
    fn try_from(s: String) -> Result<Attach, String> {
        match s.strip_prefix("after:").and_then(|s| s.strip_suffix('s')) {
            None if s == "before" => Ok(Attach::Before),
            Some(n) => n
                .parse()
                .map(Attach::After)
                .map_err(|_| format!("attach = {s:?}: seconds expected, as in after:5s")),
            None => Err(format!(
                "attach = {s:?}: expected \"before\" or \"after:5s\""
            )),
        }
    }
}

/// A disk of the guest, slowed down by the emulator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Size in MiB.
    pub size_mib: u32,
    /// Requests a second, reads and writes together; unlimited when absent.
    pub iops: Option<u32>,
    /// Bytes a second, reads and writes together; unlimited when absent.
    pub bps: Option<u64>,
    /// Requests that the device takes at once.
    pub queue_depth: u32,
    /// I/O scheduler.
    pub scheduler: String,
    /// More files below /sys/block/NAME/queue.
    #[serde(default)]
    pub queue: BTreeMap<String, String>,
}

/// Shell scripts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Before the trace begins. May write the name of another device to watch into `$OUT/device`, and more into `$OUT/also`.
    #[serde(default)]
    pub setup: String,
    /// The load; ends by itself.
    #[serde(default)]
    pub load: String,
    /// Afterwards.
    #[serde(default)]
    pub teardown: String,
}

/// The class with this name.
pub fn class_by_name(name: &str) -> Option<Class> {
    Class::ALL.into_iter().find(|c| c.name() == name)
}

impl Scenario {
    /// Reads one from the text of its file.
    pub fn parse(name: &str, text: &str) -> Result<Scenario> {
        let mut s: Scenario = toml::from_str(text).with_context(|| format!("scenario {name}"))?;
        s.name = name.to_string();
        s.check().with_context(|| format!("scenario {name}"))?;
        Ok(s)
    }

    fn check(&self) -> Result<()> {
        let e = &self.expect;
        let kinds = e
            .findings
            .iter()
            .map(|f| &f.kind)
            .chain(&e.never)
            .chain(&e.as_rule)
            .chain(&e.by_owner)
            .chain(&e.at_most_info);
        for kind in kinds {
            if !KINDS.contains(&kind.as_str()) {
                bail!("unknown kind {kind}; there are {}", KINDS.join(", "));
            }
        }
        let classes = e
            .findings
            .iter()
            .filter_map(|f| f.victim_class.as_ref())
            .chain(e.fio.iter().map(|f| &f.class));
        for class in classes {
            if class_by_name(class).is_none() {
                bail!("unknown class {class}");
            }
        }
        for rule in e.findings.iter().filter_map(|f| f.rule.as_ref()) {
            if !["withheld", "crawling", "stuck", "overtaken"].contains(&rule.as_str()) {
                bail!("unknown rule {rule}");
            }
        }
        for kernel in self.kernels.iter().chain(self.ci.iter().flatten()) {
            kernels::by_name(kernel)?;
        }
        if !e.commands.is_empty() {
            return self.check_commands();
        }
        if self.disks.is_empty() {
            bail!("it has no disk");
        }
        if self.script.load.is_empty() {
            bail!("it has no load");
        }
        if e.findings.is_empty()
            && e.never.is_empty()
            && e.as_rule.is_empty()
            && e.at_most_info.is_empty()
            && e.weights.is_empty()
        {
            bail!("it expects nothing, so it could not fail");
        }
        if self.look_alike && !e.findings.is_empty() {
            bail!("a look-alike cannot demand a finding");
        }
        if !e.as_rule.is_empty() && !self.trace {
            bail!("as_rule needs trace = true");
        }
        if e.must_close && e.findings.is_empty() {
            bail!("must_close without a finding");
        }
        Ok(())
    }

    /// Where commands run nothing is observed, so nothing may be expected of an observer.
    fn check_commands(&self) -> Result<()> {
        let only = Expect {
            commands: self.expect.commands.clone(),
            ..Expect::default()
        };
        let observes = self.trace || self.look_alike || !self.flags.is_empty();
        if self.expect != only || observes || self.attach != Attach::Before {
            bail!("commands go with no observer, so nothing else can be expected");
        }
        if !self.script.load.is_empty() {
            bail!("commands run in the place of a load");
        }
        for c in &self.expect.commands {
            if c.code != 0 && c.stderr.is_empty() && c.stdout.is_empty() {
                bail!("`{}` fails, and no word of its reason is expected", c.run);
            }
        }
        Ok(())
    }

    /// True when io-starve watches it; else its commands call io-starve.
    pub fn is_observed(&self) -> bool {
        self.expect.commands.is_empty()
    }

    /// How long its load or its commands may take, in s.
    pub fn limit_s(&self) -> u64 {
        u64::from(self.load_limit_s) * self.expect.commands.len().max(1) as u64
    }

    /// True when CI runs it on this kernel, if it is one of the kernels for it.
    pub fn in_ci(&self, kernel: &str) -> bool {
        self.ci
            .as_ref()
            .is_none_or(|ci| ci.iter().any(|k| k == kernel))
    }

    /// True when it runs on this kernel.
    pub fn runs_on(&self, kernel: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|k| k == kernel)
    }

    /// Modules that it needs: its own and those of its schedulers.
    pub fn all_modules(&self) -> BTreeSet<String> {
        let mut modules = self.modules.clone();
        for disk in &self.disks {
            match disk.scheduler.as_str() {
                "bfq" => modules.insert("bfq".to_string()),
                "kyber" => modules.insert("kyber-iosched".to_string()),
                "mq-deadline" => modules.insert("mq-deadline".to_string()),
                _ => false,
            };
        }
        modules
    }
}

/// All scenario files, by name.
pub fn load_all() -> Result<Vec<Scenario>> {
    load_dir(&root().join("io-starve/scenarios"))
}

fn load_dir(dir: &Path) -> Result<Vec<Scenario>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            all.push(Scenario::parse(&name, &fs::read_to_string(&path)?)?);
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        title = "t"
        reproduces = "r"
        attach = "after:5s"
        load_limit_s = 10
        [[disk]]
        size_mib = 64
        queue_depth = 2
        scheduler = "bfq"
        [script]
        load = "true"
        [expect]
        never = ["queue-stuck"]
    "#;

    fn error_of(text: &str) -> String {
        match Scenario::parse("x", text) {
            Ok(s) => panic!("accepted: {s:?}"),
            Err(e) => format!("{e:#}"),
        }
    }

    #[test]
    fn a_scenario_is_read_whole() {
        let s = Scenario::parse("x", GOOD).unwrap();
        assert_eq!(s.attach, Attach::After(5));
        assert_eq!(s.all_modules().into_iter().collect::<Vec<_>>(), ["bfq"]);
        assert!(s.runs_on("5.10"));
    }

    #[test]
    fn mistakes_are_refused() {
        for (from, to, word) in [
            ("title", "tilte", "tilte"),
            ("queue-stuck", "queue-stcuk", "unknown kind"),
            ("never = [\"queue-stuck\"]", "", "expects nothing"),
            ("after:5s", "after:5", "after:5s"),
            (
                "load_limit_s = 10",
                "load_limit_s = 10\nkernels = [\"2.6\"]",
                "no kernel 2.6",
            ),
            ("never", "as_rule", "trace = true"),
            ("never", "must_close = true\nnever", "without a finding"),
            ("load = \"true\"", "", "no load"),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD);
            assert!(
                error_of(&text).contains(word),
                "{from}: {}",
                error_of(&text)
            );
        }
    }

    const COMMANDS: &str = r#"
        title = "t"
        reproduces = "r"
        cmdline = "lockdown=integrity"
        load_limit_s = 10
        [[expect.command]]
        run = "false"
        code = 1
        stderr = ["because"]
        [[expect.command]]
        run = "true"
        code = 0
    "#;

    #[test]
    fn commands_need_no_disk_and_no_load() {
        let s = Scenario::parse("x", COMMANDS).unwrap();
        assert!(!s.is_observed());
        assert_eq!(s.cmdline, "lockdown=integrity");
        assert_eq!(s.limit_s(), 20);
        assert!(Scenario::parse("x", GOOD).unwrap().is_observed());
    }

    #[test]
    fn commands_expect_nothing_of_an_observer_and_a_word_of_each_failure() {
        for (from, to, word) in [
            ("stderr = [\"because\"]", "", "no word of its reason"),
            ("cmdline", "trace = true\ncmdline", "no observer"),
            ("cmdline", "attach = \"after:1s\"\ncmdline", "no observer"),
            (
                "[[expect.command]]\n        run = \"true\"",
                "[expect]\nnever = [\"queue-stuck\"]\n[[expect.command]]\nrun = \"true\"",
                "expect",
            ),
            (
                "[[expect.command]]\n        run = \"false\"",
                "[script]\nload = \"true\"\n[[expect.command]]\nrun = \"false\"",
                "in the place of a load",
            ),
            ("code = 1", "code = 256", "256"),
        ] {
            let text = COMMANDS.replace(from, to);
            assert_ne!(text, COMMANDS);
            assert!(
                error_of(&text).contains(word),
                "{from}: {}",
                error_of(&text)
            );
        }
    }

    #[test]
    fn every_scenario_of_the_project_is_valid() {
        let all = load_all().unwrap();
        assert!(all.iter().any(|s| s.look_alike));
        assert!(all.iter().any(|s| !s.look_alike));
    }
}
