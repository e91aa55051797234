//! What `doctor` found out, and how it is told. Pure: the kernel part fills it in.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    alert::{Hook, HookVerdict},
    format::{bytes, printable},
};

/// What this machine offers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DoctorReport {
    /// Version of io-starve.
    pub version: String,
    /// Name of the host; null when it could not be read.
    pub host: Option<String>,
    /// Kernel release; null when it could not be read.
    pub kernel: Option<String>,
    /// What is needed, one by one.
    pub checks: Vec<Check>,
    /// What became of the hooks; empty when nothing could be attached.
    pub hooks: Vec<Hook>,
    /// Memory of all maps, in bytes; null when nothing was loaded.
    pub map_bytes: Option<u64>,
    /// What can be judged on each disk.
    pub devices: Vec<DeviceReport>,
    /// Exit code of `doctor`: 0 when the main job works here, 4 when it is not permitted, 5 when the kernel cannot.
    pub exit_code: u8,
}

/// One thing that is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// What was looked at, e.g. `BTF`.
    pub name: String,
    /// How it is.
    pub state: CheckState,
    /// What was found, in a sentence.
    pub found: String,
    /// What to do about it; null when nothing needs doing.
    pub next_step: Option<String>,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// As it should be.
    Good,
    /// Works, but something cannot be answered.
    Limited,
    /// Nothing works like this.
    Bad,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its scheduler; null when it has none to choose.
    pub scheduler: Option<String>,
    /// What it means for the detectors, a sentence each; empty when all of them make sense on it.
    pub remarks: Vec<String>,
}

impl DoctorReport {
    /// For people; several lines, each ended.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let unknown = || "unknown".to_owned();
        let _ = writeln!(
            text,
            "io-starve {} on host {}, kernel {}",
            self.version,
            self.host.clone().unwrap_or_else(unknown),
            self.kernel.clone().unwrap_or_else(unknown)
        );
        for check in &self.checks {
            let state = match check.state {
                CheckState::Good => "good   ",
                CheckState::Limited => "limited",
                CheckState::Bad => "BAD    ",
            };
            let _ = writeln!(
                text,
                "  {state}  {}: {}",
                check.name,
                printable(&check.found)
            );
            if let Some(next) = &check.next_step {
                let _ = writeln!(text, "           next: {next}");
            }
        }
        if !self.hooks.is_empty() {
            text.push_str("hooks\n");
        }
        for hook in &self.hooks {
            let verdict = match hook.verdict {
                HookVerdict::Attached => format!(
                    "attached by {}",
                    hook.via.as_deref().unwrap_or("unknown means")
                ),
                HookVerdict::Absent => "absent in this kernel".to_owned(),
                HookVerdict::Refused => format!(
                    "REFUSED: {}",
                    printable(hook.why.as_deref().unwrap_or("no reason given"))
                ),
                HookVerdict::NotNeeded => "not needed now".to_owned(),
                HookVerdict::Waits => "waits for its module".to_owned(),
            };
            let _ = writeln!(text, "  {}: {verdict}", hook.name);
            if hook.verdict == HookVerdict::Refused {
                let _ = writeln!(text, "           cannot be answered: {}", hook.question);
            }
        }
        if let Some(n) = self.map_bytes {
            let _ = writeln!(text, "maps take {}", bytes(n));
        }
        if !self.devices.is_empty() {
            text.push_str("disks\n");
        }
        for device in &self.devices {
            let scheduler = device.scheduler.as_deref().unwrap_or("no scheduler");
            let _ = writeln!(text, "  {} ({scheduler})", printable(&device.name));
            for remark in &device.remarks {
                let _ = writeln!(text, "           {remark}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: CheckState) -> DoctorReport {
        DoctorReport {
            version: "1.2.3".to_owned(),
            host: Some("db1".to_owned()),
            kernel: None,
            checks: vec![Check {
                name: "BTF".to_owned(),
                state,
                found: "/sys/kernel/btf/vmlinux is missing".to_owned(),
                next_step: Some("boot a kernel with CONFIG_DEBUG_INFO_BTF".to_owned()),
            }],
            hooks: vec![Hook {
                name: "block_getrq".to_owned(),
                verdict: HookVerdict::Refused,
                via: None,
                why: Some("Operation not permitted".to_owned()),
                question: "how long requests wait for admission".to_owned(),
            }],
            map_bytes: Some(3 << 20),
            devices: vec![DeviceReport {
                name: "nvme0n1".to_owned(),
                scheduler: Some("none".to_owned()),
                remarks: vec!["has no queued stage".to_owned()],
            }],
            exit_code: 5,
        }
    }

    #[test]
    fn the_text_has_cause_next_step_and_lost_questions() {
        insta::assert_snapshot!(report(CheckState::Bad).to_text(), @r"
        io-starve 1.2.3 on host db1, kernel unknown
          BAD      BTF: /sys/kernel/btf/vmlinux is missing
                   next: boot a kernel with CONFIG_DEBUG_INFO_BTF
        hooks
          block_getrq: REFUSED: Operation not permitted
                   cannot be answered: how long requests wait for admission
        maps take 3 MiB
        disks
          nvme0n1 (none)
                   has no queued stage
        ");
    }
}
