//! Gives up what a daemon no longer needs once it is attached, and says what it keeps.
//!
//! It acts on the thread that it is called from and on those that this one starts later, so it comes before all others.

use rustix::{
    io,
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs},
};

/// What observing goes on to need: programs that are run on demand, or attached when their module is loaded (BPF, PERFMON;
/// SYS_RESOURCE for locked memory before 5.11); kernel stacks of tasks that wait (SYS_ADMIN, SYS_PTRACE); files of /proc, /sys and the
/// cgroups that are not everybody's (DAC_READ_SEARCH).
const OBSERVING: [(CapabilitySet, &str); 6] = [
    (CapabilitySet::BPF, "bpf"),
    (CapabilitySet::PERFMON, "perfmon"),
    (CapabilitySet::SYS_ADMIN, "sys-admin"),
    (CapabilitySet::SYS_PTRACE, "sys-ptrace"),
    (CapabilitySet::DAC_READ_SEARCH, "dac-read-search"),
    (CapabilitySet::SYS_RESOURCE, "sys-resource"),
];
/// To reopen files in folders of other users.
const WRITING: (CapabilitySet, &str) = (CapabilitySet::DAC_OVERRIDE, "dac-override");

/// Drops capabilities and the way to new ones; `writes_files` when files are yet to be opened.
pub(super) fn drop_unneeded(writes_files: bool) {
    let writing = writes_files.then_some(WRITING);
    match drop_all_but(OBSERVING.into_iter().chain(writing)) {
        Ok(kept) if kept.is_empty() => complain!("io-starve: keeps no capability"),
        Ok(kept) => complain!("io-starve: keeps only the capabilities {}", kept.join(", ")),
        // It works as before, with more than it needs.
        Err(e) => complain!("io-starve: cannot drop capabilities ({e}); going on with all of them"),
    }
}

fn drop_all_but(
    wanted: impl Iterator<Item = (CapabilitySet, &'static str)>,
) -> io::Result<Vec<&'static str>> {
    let held = capabilities(None)?.permitted;
    let mut kept = CapabilitySet::empty();
    let mut names = Vec::new();
    for (capability, name) in wanted.filter(|(c, _)| held.contains(*c)) {
        kept |= capability;
        names.push(name);
    }
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_wanted_is_gone_for_this_thread() {
        let thread = std::thread::spawn(|| {
            let before = capabilities(None).unwrap().permitted;
            let names = drop_all_but(OBSERVING[..2].iter().copied()).unwrap();
            let after = capabilities(None).unwrap();
            (before, names, after)
        });
        let (before, names, after) = thread.join().unwrap();
        let wanted = CapabilitySet::BPF | CapabilitySet::PERFMON;
        assert_eq!(after.permitted, before & wanted);
        assert_eq!(after.effective, after.permitted);
        assert_eq!(names.is_empty(), (before & wanted).is_empty());
    }
}
