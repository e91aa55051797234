//! What this kernel offers, what is missing, and what cannot be answered because of it.

use std::path::Path;

use serde::Serialize;

use super::{AttachError, AttachOptions, Attached, cgroups::Hierarchy, devices::Devices, lockdown};
use crate::model::observation::{CgroupMode, DeviceFact, Fact, Hook};

/// The state of this machine, as far as io-starve cares.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Kernel release.
    pub kernel: String,
    /// True when type information was read.
    pub btf: bool,
    /// Kernel lockdown, when in force.
    pub lockdown: Option<String>,
    /// Which hierarchy names the owners.
    pub cgroups: CgroupMode,
    /// Where it is mounted.
    pub cgroup_root: Option<String>,
    /// Every hook with its verdict; empty when nothing could be attached.
    pub hooks: Vec<Hook>,
    /// Memory of all BPF maps in bytes, when they could be made.
    pub map_bytes: Option<u64>,
    /// Disks.
    pub devices: Vec<Disk>,
    /// Why nothing can be attached.
    pub problem: Option<String>,
    /// Sentences about what cannot be said here.
    pub limits: Vec<String>,
    /// Exit code: 0 when the main job works.
    pub exit_code: u8,
}

/// A disk and what can be said about it.
#[derive(Debug, Clone, Serialize)]
pub struct Disk {
    /// What it is.
    #[serde(flatten)]
    pub fact: DeviceFact,
    /// What starvation means on it.
    pub says: String,
}

/// Attaches, looks, detaches.
pub fn report(options: &AttachOptions) -> Report {
    let uname = rustix::system::uname();
    let hierarchy = Hierarchy::find(Path::new("/proc"));
    let mut devices = Devices::new(Path::new("/sys"), None);
    let disks = devices.refresh().into_iter().filter_map(|f| match f {
        Fact::Device(d) => Some(Disk {
            says: meaning(&d).to_owned(),
            fact: d,
        }),
        _ => None,
    });
    let mut report = Report {
        kernel: uname.release().to_string_lossy().into_owned(),
        btf: Path::new(super::btf::Btf::VMLINUX).exists(),
        lockdown: lockdown(Path::new("/sys/kernel/security")),
        cgroups: hierarchy.as_ref().map_or(CgroupMode::None, |h| h.mode),
        cgroup_root: hierarchy.map(|h| h.root.display().to_string()),
        hooks: Vec::new(),
        map_bytes: None,
        devices: disks.collect(),
        problem: None,
        limits: Vec::new(),
        exit_code: 0,
    };
    match Attached::attach(options) {
        Ok(attached) => {
            report.hooks = attached.hooks().to_vec();
            report.map_bytes = Some(attached.map_bytes());
        }
        Err(e) => fail(&mut report, &e),
    }
    report.limits = limits(&report);
    report
}

fn fail(report: &mut Report, e: &AttachError) {
    report.exit_code = e.exit_code();
    report.problem = Some(e.to_string());
}

fn limits(report: &Report) -> Vec<String> {
    let mut limits = Vec::new();
    match report.cgroups {
        CgroupMode::V2 => {}
        CgroupMode::V1 => limits.push(
            "cgroup v1: buffered writes are charged to the root cgroup, so their owner is not known"
                .to_owned(),
        ),
        CgroupMode::None => limits.push(
            "no cgroup hierarchy with an I/O controller is mounted: owners have no names".to_owned(),
        ),
    }
    if !Path::new("/sys/kernel/debug/bdi").exists() {
        limits.push(
            "debugfs is not mounted: how much dirty memory waits behind a disk is not known; `mount -t debugfs debugfs /sys/kernel/debug`"
                .to_owned(),
        );
    }
    if std::fs::read("/proc/self/stack").is_err() {
        limits.push(
            "kernel stacks cannot be read: whether a task waits for wbt, iocost or a tag is only guessed"
                .to_owned(),
        );
    }
    limits
}

/// What the detectors can mean on a disk.
fn meaning(d: &DeviceFact) -> &'static str {
    match d.scheduler.as_deref() {
        Some("none") if d.below.is_empty() => {
            "no scheduler: requests go straight to the device, so there is no queued stage; waits show in admission and device"
        }
        Some("none") | None => {
            "stacked or without a queue of its own: what it sends below is seen there"
        }
        Some(_) => "all stages can be seen",
    }
}
