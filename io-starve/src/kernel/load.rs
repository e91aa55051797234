//! Loads the object and attaches each hook alone, so that one that fails takes nothing else with it.

use aya::{
    Ebpf, EbpfLoader, GlobalData, Pod,
    programs::{BtfTracePoint, Iter, KProbe, Program, ProgramError, RawTracePoint, TracePoint},
};
use io_starve_common::config::Config;

use super::{
    AttachError,
    btf::Btf,
    config::{Sizes, config},
    hooks::{Choice, HOOKS, HookSpec, Place, Purpose},
    tracefs,
};
use crate::model::observation::{Hook, Verdict};

/// The programs, built from io-starve-ebpf by `cargo xtask ebpf`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/io-starve.bpf.o");

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Global(Config);

// SAFETY: repr(C) of u32 only, without padding.
unsafe impl Pod for Global {}

/// Loads the object with everything that this kernel needs to tell it, nothing attached.
///
/// # Errors
///
/// When the kernel is unknown, or refuses maps or the object.
pub fn load(btf: &Btf, sizes: &Sizes, filtered: bool) -> Result<Ebpf, AttachError> {
    let raised = raise_memlock();
    let global = Global(config(btf, sizes, filtered)?);
    let ebpf = EbpfLoader::new()
        // The programs carry no relocations against kernel types.
        .btf(None)
        .override_global("CONFIG", GlobalData::from(&global), true)
        .map_max_entries("SLOTS", sizes.slots)
        .map_max_entries("BIOS", sizes.bios)
        .map_max_entries("GROUPS", sizes.groups)
        .map_max_entries("COUNTS", sizes.counts())
        .map_max_entries("DEVS", sizes.devs)
        .map_max_entries("ACCOUNTED", sizes.devs)
        .map_max_entries("CLOCKS", sizes.devs)
        .map_max_entries("OWNERS", sizes.owners)
        .map_max_entries("HCTXS", sizes.hctxs)
        .map_max_entries("HISTS", sizes.hists())
        .load(OBJECT)
        .map_err(|e| match AttachError::from_load(e) {
            AttachError::NotPermitted
                if !raised && counts_locked_memory(btf) && may_make_maps() =>
            {
                AttachError::LockedMemory
            }
            e => e,
        })?;
    Ok(ebpf)
}

/// Before 5.11 map memory counted against RLIMIT_MEMLOCK. Where it cannot be raised, later kernels do not need it.
fn raise_memlock() -> bool {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    setrlimit(Resource::Memlock, unlimited).is_ok()
}

/// include/linux/bpf.h, up to 5.10.
fn counts_locked_memory(btf: &Btf) -> bool {
    btf.offset("bpf_map_memory", "user").is_some()
}

/// True with CAP_BPF or CAP_SYS_ADMIN, without one of which the kernel says the same as without memory.
fn may_make_maps() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|s| has_map_capability(&s))
}

/// Numbers of include/uapi/linux/capability.h.
fn has_map_capability(status: &str) -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_BPF: u64 = 1 << 39;
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set & (CAP_SYS_ADMIN | CAP_BPF) != 0)
}

/// Tracepoints' types, as aya wants them, read when a tp_btf program is loaded and dropped after.
pub struct Attacher<'a> {
    /// Ours, for argument lists.
    pub btf: &'a Btf,
    /// aya's, for type ids; `None` where it could not be read: raw tracepoints then.
    pub aya: Option<aya::Btf>,
    /// Names given to `--without-hook`.
    pub forbidden: &'a [String],
}

impl Attacher<'_> {
    /// Attaches every hook of these purposes and says what became of each.
    pub fn attach(&self, ebpf: &mut Ebpf, wanted: impl Fn(Purpose) -> bool) -> Vec<Hook> {
        HOOKS
            .iter()
            .map(|spec| self.attach_one(ebpf, spec, wanted(spec.purpose)))
            .collect()
    }

    /// The same for one hook.
    pub fn attach_one(&self, ebpf: &mut Ebpf, spec: &HookSpec, needed: bool) -> Hook {
        spec.with(self.one(ebpf, spec, needed))
    }

    /// Attaches one hook where it is needed, and says what became of it.
    pub fn one(&self, ebpf: &mut Ebpf, spec: &HookSpec, needed: bool) -> Verdict {
        let forbidden = self.forbidden.iter().any(|f| f == spec.name);
        let refused = |why: String| Verdict::Refused { why };
        match spec.choose(self.btf.tracepoint_args(spec.name), needed, forbidden) {
            Choice::Absent => Verdict::Absent,
            Choice::NotNeeded => Verdict::NotNeeded,
            Choice::Forbidden => refused("switched off by --without-hook".to_owned()),
            Choice::UnknownArguments(n) => {
                refused(format!("its {n} arguments are not known to this version"))
            }
            Choice::TryElsewhere(program) if spec.place == Place::Iterator => {
                iterator(ebpf, program, self.aya.as_ref())
            }
            Choice::TryElsewhere(program) => elsewhere(ebpf, spec, program),
            Choice::Try { btf, raw } => {
                let mut first = None;
                if let (false, Some(types)) = (btf.is_empty(), &self.aya) {
                    match attach_btf(ebpf, btf, spec.name, types) {
                        Ok(()) => {
                            return Verdict::Attached {
                                via: "tp_btf".to_owned(),
                            };
                        }
                        Err(e) => first = Some(short(&e)),
                    }
                }
                match attach_raw(ebpf, raw, spec.name) {
                    Ok(()) => Verdict::Attached {
                        via: "raw_tp".to_owned(),
                    },
                    Err(e) => {
                        let raw = short(&e);
                        refused(first.map_or_else(
                            || format!("raw_tp: {raw}"),
                            |btf| format!("tp_btf: {btf}; raw_tp: {raw}"),
                        ))
                    }
                }
            }
        }
    }
}

/// Loads a program that goes through all tasks when it is read from.
fn iterator(ebpf: &mut Ebpf, program: &str, types: Option<&aya::Btf>) -> Verdict {
    let Some(types) = types else {
        return Verdict::Refused {
            why: "iterators need typed programs".to_owned(),
        };
    };
    let load = || {
        let program: &mut Iter = find(ebpf, program)?.try_into()?;
        program.load("task", types)
    };
    match { load }() {
        Ok(()) => Verdict::Attached {
            via: "iter".to_owned(),
        },
        Err(e) => Verdict::Refused {
            why: format!("iter: {}", short(&e)),
        },
    }
}

/// What an iterator tells now.
///
/// # Errors
///
/// The kernel's, in words.
pub fn read_iterator(ebpf: &mut Ebpf, program: &str) -> Result<std::fs::File, String> {
    let mut link = || {
        let program: &mut Iter = find(ebpf, program)?.try_into()?;
        let id = program.attach()?;
        program.take_link(id)
    };
    let link = link().map_err(|e| short(&e))?;
    link.into_file().map_err(|e| e.to_string())
}

/// Attaches to what is there only while its module is.
fn elsewhere(ebpf: &mut Ebpf, spec: &HookSpec, program: &str) -> Verdict {
    let (via, result) = match spec.place {
        Place::Record(subsystem) => {
            if let Err(why) = tracefs::check(subsystem, spec.name) {
                return Verdict::Refused { why };
            }
            if !tracefs::has(subsystem, spec.name) {
                return Verdict::Waits;
            }
            let mut attach = || {
                let program: &mut TracePoint = find(ebpf, program)?.try_into()?;
                once(program.load())?;
                program.attach(subsystem, spec.name).map(|_| ())
            };
            ("tracepoint", attach())
        }
        Place::Function((subsystem, event)) => {
            if !kprobes_exist() {
                return Verdict::Absent;
            }
            // Without their module the functions are not there, or of no use.
            if !tracefs::has(subsystem, event) {
                return Verdict::Waits;
            }
            let mut attach = || {
                let program: &mut KProbe = find(ebpf, program)?.try_into()?;
                once(program.load())?;
                let function = spec.name.trim_end_matches("%return");
                program.attach(function, 0).map(|_| ())
            };
            ("kprobe", attach())
        }
        Place::Kernel | Place::Module(_) | Place::Iterator => {
            let result = attach_raw(ebpf, program, spec.name);
            if result.as_ref().is_err_and(is_not_found) {
                return Verdict::Waits;
            }
            ("raw_tp", result)
        }
    };
    match result {
        Ok(()) => Verdict::Attached {
            via: via.to_owned(),
        },
        Err(e) => Verdict::Refused {
            why: format!("{via}: {}", short(&e)),
        },
    }
}

/// kernel/events/core.c registers this when it has CONFIG_KPROBE_EVENTS.
fn kprobes_exist() -> bool {
    std::path::Path::new("/sys/bus/event_source/devices/kprobe").exists()
}

/// No such tracepoint: kernel/bpf/syscall.c bpf_raw_tp_link_attach.
fn is_not_found(e: &ProgramError) -> bool {
    matches!(e, ProgramError::SyscallError(e) if e.io_error.kind() == std::io::ErrorKind::NotFound)
}

/// A program that waited for its module is loaded already.
fn once(loaded: Result<(), ProgramError>) -> Result<(), ProgramError> {
    match loaded {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        other => other,
    }
}

fn attach_btf(
    ebpf: &mut Ebpf,
    program: &str,
    tracepoint: &str,
    types: &aya::Btf,
) -> Result<(), ProgramError> {
    let program: &mut BtfTracePoint = find(ebpf, program)?.try_into()?;
    program.load(tracepoint, types)?;
    program.attach()?;
    Ok(())
}

fn attach_raw(ebpf: &mut Ebpf, program: &str, tracepoint: &str) -> Result<(), ProgramError> {
    let program: &mut RawTracePoint = find(ebpf, program)?.try_into()?;
    once(program.load())?;
    program.attach(tracepoint)?;
    Ok(())
}

/// Loads a program that is run on demand and attached to nothing.
///
/// # Errors
///
/// The kernel's.
pub fn load_on_demand(ebpf: &mut Ebpf, program: &str) -> Result<(), ProgramError> {
    let program: &mut RawTracePoint = find(ebpf, program)?.try_into()?;
    program.load()
}

fn find<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut Program, ProgramError> {
    ebpf.program_mut(name).ok_or(ProgramError::NotLoaded)
}

fn short(e: &ProgramError) -> String {
    match e {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => match reason(&verifier_log.to_string()) {
            "" => io_error.to_string(),
            reason => format!("{io_error} ({reason})"),
        },
        e => e.to_string(),
    }
}

/// The last line of a verifier's log says what it minds, but for its figures; the rest goes to nobody.
fn reason(log: &str) -> &str {
    let figures = ["processed ", "verification time", "stack depth "];
    log.lines()
        .rev()
        .find(|l| !l.is_empty() && !figures.iter().any(|f| l.starts_with(f)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_verifiers_reason_and_not_its_figures() {
        let log = "47: (85) call bpf_probe_read#4\nprogram of this type cannot use helper bpf_probe_read#4\n\
                   verification time 3208 usec\nstack depth 72+0\nprocessed 46 insns (limit 1000000)\n";
        assert_eq!(
            reason(log),
            "program of this type cannot use helper bpf_probe_read#4"
        );
        assert_eq!(reason("processed 0 insns\n"), "");
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        let status = |set: &str| format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{set}\n");
        assert!(has_map_capability(&status("000001ffffffffff")));
        assert!(has_map_capability(&status("000000c000000004")));
        assert!(has_map_capability(&status("0000000000200000")));
        assert!(!has_map_capability(&status("0000000000000004")));
        assert!(!has_map_capability("CapEff:\n"));
    }
}
