//! Installs what a command needs, or says what is missing.

use std::path::Path;

use anyhow::{Result, bail};

use crate::cmd::{command, find, is_debian, is_root, run};

/// Something that must be on the machine.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// A program, or a file when it begins with `/`.
    what: &'static str,
    /// The Debian package that has it.
    package: &'static str,
}

const fn need(what: &'static str, package: &'static str) -> Need {
    Need { what, package }
}

/// What `vm` needs on the host, beside cargo.
pub const VM: &[Need] = &[
    need("qemu-system-x86_64", "qemu-system-x86"),
    need("busybox", "busybox-static"),
    need("cpio", "cpio"),
    need("depmod", "kmod"),
    need("xz", "xz-utils"),
    need("zstd", "zstd"),
    need("tar", "tar"),
    need("fio", "fio"),
    need("mkfs.ext4", "e2fsprogs"),
    need("mkfs.xfs", "xfsprogs"),
    need("mkfs.btrfs", "btrfs-progs"),
    need("dmsetup", "dmsetup"),
    need("losetup", "mount"),
    need("ionice", "util-linux"),
];

/// What the live ring needs.
pub const LIVE: &[Need] = &[
    need("fio", "fio"),
    need("losetup", "mount"),
    need("dmsetup", "dmsetup"),
    need("mkfs.ext4", "e2fsprogs"),
    need("bpftool", "bpftool"),
    need("script", "bsdutils"),
];

/// What the pure ring needs beside cargo: the validator of the alert schema that is not ours.
pub const PURE: &[Need] = &[need(
    "/usr/lib/python3/dist-packages/jsonschema",
    "python3-jsonschema",
)];

/// What judges metrics and alert rules: with `--all`, since it is a large package.
pub const METRICS: &[Need] = &[need("promtool", "prometheus")];

/// What the benchmark and looking by hand need.
pub const BENCH: &[Need] = &[
    need("/usr/sbin/biolatency", "libbpf-tools"),
    need("bpftool", "bpftool"),
    need("fio", "fio"),
];

impl Need {
    fn met(&self) -> bool {
        if self.what.starts_with('/') {
            Path::new(self.what).exists()
        } else {
            find(self.what).is_some()
        }
    }
}

/// Everything that any command needs.
pub fn all() -> Result<()> {
    ensure(&[PURE, METRICS, LIVE, VM, BENCH].concat())?;
    println!("setup: everything is there");
    Ok(())
}

/// Makes sure that everything is there: installs it on Debian as root, else says what is missing and how
/// to get it.
pub fn ensure(needs: &[Need]) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|n| !n.met()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|n| n.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let names: Vec<&str> = missing.iter().map(|n| n.what).collect();
    if !is_debian() {
        bail!(
            "missing: {}. This is not Debian: install them with the system's package manager (Debian calls the packages {})",
            names.join(", "),
            packages.join(" ")
        );
    }
    if !is_root() {
        bail!(
            "missing: {}. Install them as root: apt-get install --no-install-recommends {}",
            names.join(", "),
            packages.join(" ")
        );
    }
    eprintln!(
        "setup: installing {} (for {})",
        packages.join(" "),
        names.join(", ")
    );
    run(command("apt-get").args(["-q", "update"]))?;
    run(command("apt-get")
        .args(["-q", "-y", "install", "--no-install-recommends"])
        .args(&packages)
        .env("DEBIAN_FRONTEND", "noninteractive"))?;
    let still: Vec<&str> = needs.iter().filter(|n| !n.met()).map(|n| n.what).collect();
    if !still.is_empty() {
        bail!(
            "the packages {} are installed, yet {} is still missing",
            packages.join(" "),
            still.join(", ")
        );
    }
    Ok(())
}
