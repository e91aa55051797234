//! Which scenarios run on which kernel, and which of them at the same time. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::{
    boot::{self, MAX_DISKS},
    kernels::{self, Kernel},
    scenario::{Attach, Scenario},
};

/// The kernels on which CI runs the diseases.
const DISEASE_KERNELS: &[&str] = &["5.10", "6.1", "6.12", "7.3"];
/// The kernel on which CI runs the look-alikes.
const LOOK_ALIKE_KERNEL: &str = "6.12";
/// The kernel on which CI runs scenarios of commands, but for those that are about other kernels.
const COMMAND_KERNEL: &str = "6.12";
/// The kernel that shows the hooks with ext4 built in, and the scenario that CI runs there.
const BUILTIN_KERNEL: (&str, &str) = ("6.12-cloud", "async-write-mq-deadline");
/// Scenarios at once: what one host CPU can emulate without becoming slower than the disks. With three, ticks came up to 12 s late on a
/// bad day.
const AT_ONCE: usize = 2;

/// One boot.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Kernel.
    pub kernel: Kernel,
    /// More words for its command line.
    pub cmdline: &'a str,
    /// Groups that run one after the other; within a group all at once.
    pub batches: Vec<Vec<&'a Scenario>>,
}

/// What was asked for on the command line.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Kernels, all of the matrix that fit when empty.
    pub kernels: Vec<String>,
    /// Everything on every kernel.
    pub all: bool,
    /// Look-alikes too, on every kernel asked for.
    pub look_alikes: bool,
    /// Without io-starve: shows what the rules say of the kernel's trace.
    pub trace_only: bool,
    /// Scenario names; what CI runs when empty.
    pub scenarios: Vec<String>,
}

/// Chooses the boots.
pub fn plan<'a>(scenarios: &'a [Scenario], wanted: &Wanted) -> Result<Vec<Plan<'a>>> {
    for name in &wanted.scenarios {
        if !scenarios.iter().any(|s| s.name == *name) {
            let known: Vec<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
            bail!("no scenario {name}; there are {}", known.join(", "));
        }
    }
    let chosen: Vec<Kernel> = if wanted.kernels.is_empty() {
        kernels::MATRIX.to_vec()
    } else {
        wanted
            .kernels
            .iter()
            .map(|k| kernels::by_name(k))
            .collect::<Result<_>>()?
    };
    let mut boots = Vec::new();
    for kernel in chosen {
        // Commands call io-starve, which a guest that only traces does not have.
        let on_kernel =
            |s: &&Scenario| s.runs_on(kernel.name) && (s.is_observed() || !wanted.trace_only);
        let by_default = |s: &&Scenario| {
            if kernel.name == BUILTIN_KERNEL.0 {
                return s.name == BUILTIN_KERNEL.1;
            }
            if !s.is_observed() {
                kernel.name == COMMAND_KERNEL || !s.runs_on(COMMAND_KERNEL)
            } else if s.look_alike {
                wanted.look_alikes
            } else {
                DISEASE_KERNELS.contains(&kernel.name) && s.in_ci(kernel.name)
            }
        };
        let mut groups: Vec<Vec<&Scenario>> = Vec::new();
        if !wanted.scenarios.is_empty() {
            groups.push(
                scenarios
                    .iter()
                    .filter(|s| wanted.scenarios.contains(&s.name))
                    .filter(on_kernel)
                    .collect(),
            );
        } else if wanted.all {
            // The cloud flavour differs in what is built in; what must stay quiet or be refused is shown by the generic one.
            let shows =
                |s: &&Scenario| kernel.name != BUILTIN_KERNEL.0 || s.is_observed() && !s.look_alike;
            groups.push(scenarios.iter().filter(on_kernel).filter(shows).collect());
        } else {
            groups.push(
                scenarios
                    .iter()
                    .filter(on_kernel)
                    .filter(by_default)
                    .collect(),
            );
            // A boot of its own: what the diseases leave behind must not quiet the look-alikes.
            if kernel.name == LOOK_ALIKE_KERNEL && !wanted.look_alikes {
                groups.push(
                    scenarios
                        .iter()
                        .filter(on_kernel)
                        .filter(|s| s.look_alike && s.in_ci(kernel.name))
                        .collect(),
                );
            }
        }
        for group in groups {
            for (cmdline, alike) in by_cmdline(&group) {
                for part in by_disks(&alike) {
                    boots.push(Plan {
                        kernel,
                        cmdline,
                        batches: batches(&part),
                    });
                }
            }
        }
    }
    if boots.is_empty() {
        bail!("none of these scenarios runs on these kernels");
    }
    Ok(boots)
}

/// Scenarios that need the same command line; those that need none come first.
fn by_cmdline<'a>(group: &[&'a Scenario]) -> BTreeMap<&'a str, Vec<&'a Scenario>> {
    let mut alike: BTreeMap<&str, Vec<&Scenario>> = BTreeMap::new();
    for s in group {
        alike.entry(&s.cmdline).or_default().push(s);
    }
    alike
}

/// Splits a boot that has more disks than fit.
fn by_disks<'a>(group: &[&'a Scenario]) -> Vec<Vec<&'a Scenario>> {
    let mut parts: Vec<Vec<&Scenario>> = vec![Vec::new()];
    let mut disks = 0;
    for s in group {
        if disks + s.disks.len() > MAX_DISKS {
            parts.push(Vec::new());
            disks = 0;
        }
        disks += s.disks.len();
        if let Some(part) = parts.last_mut() {
            part.push(s);
        }
    }
    parts
}

/// What scenarios must have in common to run at the same time: settings of the whole machine, and the observer. Those without
/// one are told apart by their names: commands may change what others would see, so each scenario of them runs alone. So does one that is
/// about dirty memory, whose limit is one for all.
type Key<'a> = (
    Option<&'a str>,
    &'a BTreeMap<String, String>,
    Attach,
    &'a [String],
);

/// Scenarios that can run at the same time, a few at once.
fn batches<'a>(group: &[&'a Scenario]) -> Vec<Vec<&'a Scenario>> {
    let mut alike: BTreeMap<Key, Vec<&Scenario>> = BTreeMap::new();
    for s in group {
        alike
            .entry((
                (s.pauses || !s.is_observed()).then_some(s.name.as_str()),
                &s.sysctl,
                s.attach,
                &s.flags,
            ))
            .or_default()
            .push(s);
    }
    alike
        .into_values()
        .flat_map(|same| {
            // Parts of nearly the same size: 4 are 2 and 2, not 3 and 1.
            let size = same.len().div_ceil(same.len().div_ceil(AT_ONCE));
            same.chunks(size)
                .map(<[&Scenario]>::to_vec)
                .collect::<Vec<_>>()
        })
        .collect()
}

impl Plan<'_> {
    /// The scenarios in the order of their disks.
    pub fn scenarios(&self) -> impl Iterator<Item = &Scenario> {
        self.batches.iter().flatten().copied()
    }

    /// Modules that the guest loads.
    pub fn modules(&self) -> BTreeSet<String> {
        self.scenarios().flat_map(Scenario::all_modules).collect()
    }

    /// How long the guest may take, in s: twice what each batch needs by its own limits, because the machine may
    /// be busy, and it emulates the guest's CPU.
    pub fn limit_s(&self) -> u64 {
        let batch =
            |b: &Vec<&Scenario>| b.iter().map(|s| s.limit_s() + 90).max().unwrap_or_default();
        180 + 2 * self.batches.iter().map(batch).sum::<u64>()
    }

    /// Files of the guest: (path, content).
    pub fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::from(
            [
                ("init", include_str!("../../guest/init.sh")),
                ("vm/batch.sh", include_str!("../../guest/batch.sh")),
                ("vm/scenario.sh", include_str!("../../guest/scenario.sh")),
                ("vm/common", include_str!("../../guest/common")),
                ("vm/functions", include_str!("../../guest/functions")),
            ]
            .map(|(path, text)| (path.to_string(), text.to_string())),
        );
        let mut lines = String::new();
        let mut slot = 0;
        for (i, batch) in self.batches.iter().enumerate() {
            let Some(first) = batch.first() else {
                continue;
            };
            let sysctl: Vec<String> = first
                .sysctl
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            lines.push_str(if sysctl.is_empty() { "-" } else { "" });
            lines.push_str(&(sysctl.join(",") + "\n"));
            let names: Vec<&str> = batch.iter().map(|s| s.name.as_str()).collect();
            let after = match first.attach {
                Attach::Before => String::new(),
                Attach::After(n) => n.to_string(),
            };
            files.insert(
                format!("batches/{}", i + 1),
                format!(
                    "SCENARIOS='{}'\nCOMMANDS={}\nATTACH_AFTER={after}\nCLOSES={}\nEXTRA='{}'\n",
                    names.join(" "),
                    if first.is_observed() { "" } else { "1" },
                    if batch.iter().any(|s| s.expect.must_close) {
                        "1"
                    } else {
                        ""
                    },
                    first.flags.join(" "),
                ),
            );
            for s in batch {
                let slots: Vec<String> = (slot..slot + s.disks.len()).map(boot::slot).collect();
                slot += s.disks.len();
                add_scenario(&mut files, s, &slots);
            }
        }
        files.insert("vm/batches".to_string(), lines);
        files.insert("vm/limit".to_string(), format!("{}\n", self.limit_s()));
        files
    }
}

fn add_scenario(files: &mut BTreeMap<String, String>, s: &Scenario, slots: &[String]) {
    let dir = format!("scenarios/{}", s.name);
    let env = format!(
        "SLOTS='{}'\nLOAD_LIMIT={}\nPAUSES={}\n",
        slots.join(" "),
        s.load_limit_s,
        if s.pauses { "1" } else { "" }
    );
    files.insert(format!("{dir}/env"), env);
    files.insert(format!("{dir}/setup"), s.script.setup.clone());
    files.insert(format!("{dir}/load"), s.script.load.clone());
    files.insert(format!("{dir}/teardown"), s.script.teardown.clone());
    for (i, c) in s.expect.commands.iter().enumerate() {
        files.insert(format!("{dir}/commands/{}", i + 1), format!("{}\n", c.run));
    }
    for (i, disk) in s.disks.iter().enumerate() {
        let mut lines = format!(
            "device/queue_depth {}\nqueue/scheduler {}\n",
            disk.queue_depth, disk.scheduler
        );
        // After the scheduler: its own files exist only then, and it changes others.
        for (file, value) in &disk.queue {
            lines.push_str(&format!("queue/{file} {value}\n"));
        }
        files.insert(format!("{dir}/disk{}", i + 1), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(name: &str, look_alike: bool, sysctl: &str) -> Scenario {
        let text = format!(
            "title = 't'\nreproduces = 'r'\nlook_alike = {look_alike}\nload_limit_s = 20\nsysctl = {{ {sysctl} }}\n\
             [[disk]]\nsize_mib = 64\nqueue_depth = 2\nscheduler = 'bfq'\nqueue = {{ 'iosched/low_latency' = '0' }}\n\
             [script]\nload = 'true'\n[expect]\nnever = ['queue-stuck']\n"
        );
        Scenario::parse(name, &text).unwrap()
    }

    fn names(p: &Plan) -> Vec<Vec<String>> {
        p.batches
            .iter()
            .map(|b| b.iter().map(|s| s.name.clone()).collect())
            .collect()
    }

    #[test]
    fn ci_runs_diseases_everywhere_and_look_alikes_once() {
        let all = [
            scenario("async-write-mq-deadline", false, ""),
            scenario("other", false, "'vm.dirty_bytes' = '1'"),
            scenario("quiet", true, ""),
        ];
        let boots = plan(&all, &Wanted::default()).unwrap();
        let seen: Vec<_> = boots
            .iter()
            .map(|b| (b.kernel.name, names(b).concat()))
            .collect();
        let diseases = vec!["async-write-mq-deadline".to_string(), "other".to_string()];
        assert_eq!(
            seen,
            [
                ("5.10", diseases.clone()),
                ("6.1", diseases.clone()),
                ("6.12", diseases.clone()),
                ("6.12", vec!["quiet".to_string()]),
                ("7.3", diseases.clone()),
                ("6.12-cloud", diseases[..1].to_vec()),
            ]
        );
        assert_eq!(
            boots[0].batches.len(),
            2,
            "different settings never run at once"
        );
    }

    #[test]
    fn what_is_asked_for_runs_and_nothing_else() {
        let all = [scenario("a", false, ""), scenario("b", true, "")];
        let wanted = Wanted {
            kernels: vec!["6.1".into()],
            scenarios: vec!["b".into()],
            ..Wanted::default()
        };
        let boots = plan(&all, &wanted).unwrap();
        assert_eq!(boots.len(), 1);
        assert_eq!(names(&boots[0]), [["b"]]);
        let wanted = Wanted {
            scenarios: vec!["c".into()],
            ..Wanted::default()
        };
        assert!(
            plan(&all, &wanted)
                .unwrap_err()
                .to_string()
                .contains("no scenario c")
        );
    }

    #[test]
    fn files_name_the_slots_and_settings() {
        let all = [scenario("a", false, ""), scenario("b", false, "")];
        let wanted = Wanted {
            kernels: vec!["6.1".into()],
            ..Wanted::default()
        };
        let files = plan(&all, &wanted).unwrap()[0].files();
        assert_eq!(files["vm/batches"], "-\n");
        assert_eq!(
            files["batches/1"],
            "SCENARIOS='a b'\nCOMMANDS=\nATTACH_AFTER=\nCLOSES=\nEXTRA=''\n"
        );
        assert!(files["scenarios/b/env"].starts_with("SLOTS='09'\n"));
        assert_eq!(
            files["scenarios/a/disk1"],
            "device/queue_depth 2\nqueue/scheduler bfq\nqueue/iosched/low_latency 0\n"
        );
    }

    fn commands(name: &str, cmdline: &str) -> Scenario {
        let text = format!(
            "title = 't'\nreproduces = 'r'\ncmdline = '{cmdline}'\nload_limit_s = 20\n\
             [[expect.command]]\nrun = 'one'\ncode = 0\n[[expect.command]]\nrun = 'two'\ncode = 0\n"
        );
        Scenario::parse(name, &text).unwrap()
    }

    #[test]
    fn who_shares_dirty_memory_runs_alone() {
        let mut all = [scenario("a", false, ""), scenario("b", false, "")];
        all[1].pauses = true;
        let wanted = Wanted {
            kernels: vec!["6.1".into()],
            ..Wanted::default()
        };
        let boots = plan(&all, &wanted).unwrap();
        assert_eq!(boots[0].batches.len(), 2);
    }

    #[test]
    fn a_command_line_has_a_boot_of_its_own_and_commands_run_alone() {
        let all = [
            scenario("a", false, ""),
            commands("locked", "lockdown=integrity"),
            commands("plain", ""),
            commands("plain-too", ""),
        ];
        let boots = plan(&all, &Wanted::default()).unwrap();
        let seen: Vec<_> = boots
            .iter()
            .map(|b| (b.kernel.name, b.cmdline, names(b).len(), names(b).concat()))
            .collect();
        let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            seen,
            [
                ("5.10", "", 1, named(&["a"])),
                ("6.1", "", 1, named(&["a"])),
                ("6.12", "", 3, named(&["a", "plain", "plain-too"])),
                ("6.12", "lockdown=integrity", 1, named(&["locked"])),
                ("7.3", "", 1, named(&["a"])),
            ]
        );
        let mut old = commands("old", "");
        old.kernels = vec!["5.10".into()];
        let boots_of_old = plan(std::slice::from_ref(&old), &Wanted::default()).unwrap();
        assert_eq!(boots_of_old.len(), 1, "CI shows it where it can");
        let files = boots[2].files();
        assert!(files["batches/1"].contains("\nCOMMANDS=\n"));
        assert!(files["batches/2"].contains("\nCOMMANDS=1\n"));
        assert_eq!(files["scenarios/plain/commands/2"], "two\n");
        let everywhere = Wanted {
            all: true,
            ..Wanted::default()
        };
        let locked = |w: &Wanted| {
            let boots = plan(&all, w).unwrap();
            boots.iter().filter(|b| !b.cmdline.is_empty()).count()
        };
        assert_eq!(
            locked(&everywhere),
            kernels::MATRIX.len() - 1,
            "not on the cloud flavour"
        );
        let traced = Wanted {
            trace_only: true,
            ..everywhere
        };
        assert_eq!(locked(&traced), 0, "there is no io-starve to call");
    }
}
