//! Loads the object and attaches each hook alone, so that one that fails takes nothing else with it.

use aya::{
    Ebpf, EbpfLoader, GlobalData, Pod,
    programs::{BtfTracePoint, Program, ProgramError, RawTracePoint},
};
use io_starve_common::wire::Config;

use super::{
    AttachError,
    btf::Btf,
    config::{Sizes, config},
    hooks::{Choice, HOOKS, HookSpec, Purpose},
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
    raise_memlock();
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
        .map_max_entries("HCTXS", sizes.hctxs)
        .map_max_entries("HISTS", sizes.hists())
        .load(OBJECT)
        .map_err(AttachError::from_load)?;
    Ok(ebpf)
}

/// Before 5.11 map memory counted against RLIMIT_MEMLOCK. Where it cannot be raised, later kernels do not need it.
fn raise_memlock() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = setrlimit(Resource::Memlock, unlimited);
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
            .map(|spec| spec.with(self.one(ebpf, spec, wanted(spec.purpose))))
            .collect()
    }

    fn one(&self, ebpf: &mut Ebpf, spec: &HookSpec, needed: bool) -> Verdict {
        let forbidden = self.forbidden.iter().any(|f| f == spec.name);
        let refused = |why: String| Verdict::Refused { why };
        match spec.choose(self.btf.tracepoint_args(spec.name), needed, forbidden) {
            Choice::Absent => Verdict::Absent,
            Choice::NotNeeded => Verdict::NotNeeded,
            Choice::Forbidden => refused("switched off by --without-hook".to_owned()),
            Choice::UnknownArguments(n) => {
                refused(format!("its {n} arguments are not known to this version"))
            }
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
    program.load()?;
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

/// The last line of a verifier's log says what it minds; the rest goes to nobody.
fn short(e: &ProgramError) -> String {
    match e {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            let last = log
                .lines()
                .rev()
                .find(|l| {
                    !l.is_empty()
                        && !l.starts_with("processed ")
                        && !l.starts_with("verification time")
                })
                .unwrap_or_default()
                .to_owned();
            if last.is_empty() {
                io_error.to_string()
            } else {
                format!("{io_error} ({last})")
            }
        }
        e => e.to_string(),
    }
}
