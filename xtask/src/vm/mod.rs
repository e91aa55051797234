//! `cargo xtask vm`: boots Debian kernels, runs scenarios in them, compares what io-starve said with the kernel's own trace.

pub mod boot;
pub mod initramfs;
pub mod kernels;
pub mod plan;
pub mod scenario;

use std::{fs, time::Duration};

use anyhow::Result;

use crate::{cmd::target, setup};
use plan::{Plan, Wanted};

/// Runs what is wanted.
pub fn run(wanted: &Wanted) -> Result<()> {
    setup::ensure(setup::VM)?;
    let scenarios = scenario::load_all()?;
    for p in plan::plan(&scenarios, wanted)? {
        one(&p)?;
    }
    Ok(())
}

fn one(p: &Plan) -> Result<()> {
    let kernel = kernels::fetch(p.kernel)?;
    let dir = target().join("vm/runs").join(p.kernel.name);
    fs::create_dir_all(&dir)?;
    let initramfs = dir.join("initramfs");
    initramfs::build(&initramfs, &kernel, None, &p.modules(), &p.files())?;
    let b = boot::boot(&boot::Boot {
        kernel: &kernel,
        initramfs: &initramfs,
        dir: &dir,
        disks: p.scenarios().flat_map(|s| &s.disks).collect(),
        limit: Duration::from_secs(p.limit_s()),
    })?;
    eprintln!("{b:?}");
    Ok(())
}
