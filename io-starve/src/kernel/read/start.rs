//! What is decided once, when the programs are loaded and attached.

use std::{collections::BTreeSet, path::Path};

use aya::{Ebpf, programs::ProgramError};
use io_starve_common::wire::PROBES;

use super::super::{
    AttachError, AttachOptions,
    config::Sizes,
    devices::Devices,
    hooks::{HOOKS, Purpose},
    load::load_on_demand,
    lockdown_that_forbids,
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

/// Lockdown hides the helper by which old requests are read again. Typed programs load without it, but an old
/// request could then not be told from one whose end was missed.
///
/// # Errors
///
/// When such a lockdown is in force.
pub fn require_readable_memory(security: &Path) -> Result<(), AttachError> {
    lockdown_that_forbids(security).map_or(Ok(()), |mode| Err(AttachError::Lockdown(mode)))
}

/// Loads the programs that are run on demand; false where the kernel refuses one.
///
/// # Errors
///
/// When lockdown is why. That shows here where securityfs is not mounted, as in most containers.
pub fn load_all_on_demand(ebpf: &mut Ebpf) -> Result<bool, AttachError> {
    for program in ["sweep", "seed", "expire_bio", "held", "jiffies"] {
        if let Err(e) = load_on_demand(ebpf, program) {
            return match &e {
                ProgramError::LoadError { verifier_log, .. }
                    if lacks_the_helper(&verifier_log.to_string()) =>
                {
                    Err(AttachError::Lockdown("confidentiality".to_owned()))
                }
                _ => Ok(false),
            };
        }
    }
    Ok(true)
}

/// Every kernel from 5.5 on has bpf_probe_read_kernel, and whoever may not use it for want of a capability may not load the
/// program either. aya asks for the older bpf_probe_read where it sees that the kernel does not take the other.
fn lacks_the_helper(verifier_log: &str) -> bool {
    // The second since 6.8.
    ["unknown func", "program of this type cannot use helper"]
        .iter()
        .any(|words| verifier_log.contains(&format!("{words} bpf_probe_read")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_helper_is_known_by_the_verifiers_words() {
        for log in [
            "12: (85) call bpf_probe_read_kernel#113\nunknown func bpf_probe_read_kernel#113\n",
            "47: (85) call bpf_probe_read#4\nprogram of this type cannot use helper bpf_probe_read#4\n",
        ] {
            assert!(lacks_the_helper(log));
        }
        let another = "12: (85) call bpf_probe_read_kernel#113\nR1 invalid mem access 'inv'\n";
        assert!(!lacks_the_helper(another));
    }
}
