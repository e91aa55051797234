//! The fault `without-HOOK`: hooks that are gone for a moment.

use aya::programs::{Program, ProgramError};

use super::{
    super::{btf::Btf, hooks::HOOKS, load::Attacher},
    Attached,
    start::typed_tracepoints,
};
use crate::{faults, model::observation::Verdict};

impl Attached {
    /// Unloads the programs of hooks that are to be off, and attaches them again afterwards. Verdicts stay as they are:
    /// nobody tells the observer of such a loss in the field either.
    pub(super) fn take_hooks_away(&mut self) {
        for (spec, hook) in HOOKS.iter().zip(&self.hooks) {
            if !matches!(hook.verdict, Verdict::Attached { .. }) {
                continue;
            }
            let names = || spec.programs.iter().flat_map(|(_, btf, raw)| [*btf, *raw]);
            let is_loaded = |name: &&str| self.ebpf.program(name).is_some_and(|p| p.fd().is_ok());
            let loaded = names().find(is_loaded);
            match (faults::takes_away(spec.name), loaded) {
                (true, Some(name)) => {
                    if let Some(Err(e)) = self.ebpf.program_mut(name).map(unload) {
                        complain!("io-starve: fault: cannot detach {}: {e}", spec.name);
                    }
                }
                (false, None) => {
                    let verdict = Btf::open(Btf::VMLINUX.as_ref()).map(|btf| {
                        let attacher = Attacher {
                            btf: &btf,
                            aya: typed_tracepoints(&self.options),
                            forbidden: &[],
                        };
                        attacher.one(&mut self.ebpf, spec, true)
                    });
                    if !matches!(verdict, Ok(Verdict::Attached { .. })) {
                        complain!("io-starve: fault: cannot attach {}: {verdict:?}", spec.name);
                    }
                }
                _ => {}
            }
        }
    }
}

fn unload(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::BtfTracePoint(p) => p.unload(),
        Program::RawTracePoint(p) => p.unload(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}
