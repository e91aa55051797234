//! What is decided once, when the programs are loaded and attached.

use std::{collections::BTreeSet, path::Path};

use io_starve_common::wire::PROBES;

use super::super::{
    AttachError, AttachOptions,
    config::Sizes,
    devices::Devices,
    hooks::{HOOKS, Purpose},
    lockdown,
};
use crate::model::observation::{Hook, Verdict};

/// aya's view of the kernel's types, with which typed tracepoints are attached; `None`: raw ones instead.
pub fn typed_tracepoints(options: &AttachOptions) -> Option<aya::Btf> {
    if options.raw_tracepoints {
        return None;
    }
    aya::Btf::from_sys_fs().ok()
}

pub fn sizes_for(devices: &Devices, options: &AttachOptions, sys: &Path) -> Sizes {
    let (disks, tags) = devices.tags();
    let mut sizes = Sizes::for_machine(possible_cpus(sys), disks, tags);
    if let Some(slots) = options.slots {
        sizes.slots = slots.clamp(PROBES, 1 << 20).next_power_of_two();
    }
    sizes
}

/// CPUs that can ever be online (Documentation/admin-guide/cputopology.rst): programs may run on any of them, whatever this
/// process is bound to. Unknown: as many as one can be sure that no shard is any CPU's own.
fn possible_cpus(sys: &Path) -> u32 {
    let list = std::fs::read_to_string(sys.join("devices/system/cpu/possible"));
    let last = list.ok().and_then(|l| {
        let last = l.trim().rsplit([',', '-']).next()?.parse::<u32>().ok()?;
        last.checked_add(1)
    });
    last.unwrap_or(u32::MAX)
}

pub fn require_some_hook(hooks: &[Hook]) -> Result<(), AttachError> {
    if hooks
        .iter()
        .zip(HOOKS)
        .any(|(h, s)| s.purpose == Purpose::Core && matches!(h.verdict, Verdict::Attached { .. }))
    {
        return Ok(());
    }
    let why: BTreeSet<&str> = hooks
        .iter()
        .filter_map(|h| match &h.verdict {
            Verdict::Refused { why } => Some(why.as_str()),
            _ => None,
        })
        .collect();
    let why = why.into_iter().collect::<Vec<_>>().join("; ");
    if let Some(mode) = lockdown("/sys/kernel/security".as_ref()).filter(|m| m == "confidentiality")
    {
        return Err(AttachError::Lockdown(mode));
    }
    if why.contains("Operation not permitted") && !rustix::process::geteuid().is_root() {
        return Err(AttachError::NotPermitted);
    }
    Err(AttachError::NoHook(if why.is_empty() {
        "this kernel has none of the block tracepoints".to_owned()
    } else {
        why
    }))
}

/// The kernel's types took some 20 MiB while the programs were loaded; the allocator would keep them for good.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no argument points anywhere.
    unsafe {
        libc::malloc_trim(0);
    }
}
