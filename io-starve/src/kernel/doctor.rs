//! What this kernel offers, what is missing, and what cannot be answered because of it.

use std::path::Path;

use super::{
    AttachError, AttachOptions, Attached, btf::Btf, cgroups::Hierarchy, devices::Devices, lockdown,
    lockdown_that_forbids,
};
use crate::{
    model::observation::{CgroupMode, DeviceFact},
    output::{
        alert,
        doctor::{Check, CheckState, DeviceReport, DoctorReport},
    },
};

/// Attaches, looks, detaches.
pub fn report(options: &AttachOptions) -> DoctorReport {
    let uname = rustix::system::uname();
    let mut devices = Devices::new(Path::new("/sys"), None);
    devices.refresh();
    let attached = Attached::attach(options);
    DoctorReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: Some(uname.nodename().to_string_lossy().into_owned()),
        kernel: Some(uname.release().to_string_lossy().into_owned()),
        checks: checks(attached.as_ref().err()),
        hooks: attached.as_ref().map_or_else(
            |_| Vec::new(),
            |a| a.hooks().iter().map(alert::Hook::from).collect(),
        ),
        map_bytes: attached.as_ref().ok().map(Attached::map_bytes),
        devices: devices.all().map(disk).collect(),
        exit_code: attached.err().map_or(0, |e| e.exit_code()),
    }
}

fn checks(problem: Option<&AttachError>) -> Vec<Check> {
    let security = Path::new("/sys/kernel/security");
    let mut checks = vec![
        match problem {
            None => good("BPF", "programs load and attach".to_owned()),
            Some(e) => bad("BPF", e.to_string()),
        },
        match Btf::open(Btf::VMLINUX.as_ref()) {
            Ok(_) => good("BTF", format!("{} can be read", Btf::VMLINUX)),
            Err(e) => bad("BTF", e.to_string()),
        },
        match lockdown(security) {
            None if security.join("lockdown").exists() => {
                good("lockdown", "none in force".to_owned())
            }
            // Programs that load are then the only proof that there is none.
            None => good(
                "lockdown",
                "not told: securityfs is not mounted, or this kernel has no lockdown".to_owned(),
            ),
            Some(mode) => match lockdown_that_forbids(security) {
                Some(mode) => bad("lockdown", AttachError::Lockdown(mode).to_string()),
                None => good("lockdown", format!("{mode}: BPF may read")),
            },
        },
    ];
    checks.push(match Hierarchy::find(Path::new("/proc")) {
        Some(h) if h.mode == CgroupMode::V2 => {
            good("cgroups", format!("v2 at {} with the io controller", h.root.display()))
        }
        Some(h) => limited(
            "cgroups",
            format!(
                "v1 blkio at {}: the kernel charges buffered writes to the root cgroup, so their owner is not known",
                h.root.display()
            ),
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
        None => limited(
            "cgroups",
            "no hierarchy with an I/O controller is mounted: owners have no names".to_owned(),
            "mount cgroup2 at /sys/fs/cgroup",
        ),
    });
    checks.push(if Path::new("/sys/kernel/debug/bdi").exists() {
        good(
            "debugfs",
            "dirty memory behind each disk can be read".to_owned(),
        )
    } else {
        limited(
            "debugfs",
            "not mounted: how much dirty memory waits behind a disk is not known".to_owned(),
            "mount -t debugfs debugfs /sys/kernel/debug",
        )
    });
    checks.push(if std::fs::read("/proc/self/stack").is_ok() {
        good("stacks", "what a task waits for can be read".to_owned())
    } else {
        limited(
            "stacks",
            "/proc/PID/stack cannot be read: whether a task waits for wbt, iocost or a tag is only guessed"
                .to_owned(),
            "run as root, on a kernel with CONFIG_STACKTRACE",
        )
    });
    checks
}

fn good(name: &str, found: String) -> Check {
    check(name, CheckState::Good, found, None)
}

fn limited(name: &str, found: String, next: &str) -> Check {
    check(name, CheckState::Limited, found, Some(next.to_owned()))
}

/// The sentences of errors carry their next step already.
fn bad(name: &str, found: String) -> Check {
    check(name, CheckState::Bad, found, None)
}

fn check(name: &str, state: CheckState, found: String, next_step: Option<String>) -> Check {
    Check {
        name: name.to_owned(),
        state,
        found,
        next_step,
    }
}

/// What the detectors can mean on a disk.
fn disk(d: &DeviceFact) -> DeviceReport {
    let remark = match d.scheduler.as_deref() {
        Some("none") if d.below.is_empty() => Some(
            "no scheduler: requests go straight to the device, so nothing waits in a queue; waits show in admission and device",
        ),
        Some("none") | None => {
            Some("has no queue of its own: what it sends to the disks below is seen there")
        }
        Some(_) => None,
    };
    DeviceReport {
        name: d.name.clone(),
        scheduler: d.scheduler.clone(),
        remarks: remark.into_iter().map(str::to_owned).collect(),
    }
}
