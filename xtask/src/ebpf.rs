//! `cargo xtask ebpf`: builds the BPF object that io-starve carries, the same bytes everywhere.
//!
//! In: io-starve-ebpf and a pinned compiler and linker. Out: io-starve/bpf/io-starve.bpf.o. Users of the program
//! need none of it: the object is committed, and `--check` proves that it is the source's.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{
    apt::{Suite, unpack},
    cmd::{command, find, is_debian, is_root, output, root, run, target},
};

/// The compiler whose LLVM the pinned linker loads.
const RUSTC: &str = "1.95.0";
/// The last series that fits this rustc's LLVM.
const BPF_LINKER: &str = "0.10.4";
const TRIPLE: &str = "bpfel-unknown-none";
/// Suite with Debian's rust-src of that compiler.
const RUST_SRC_SUITE: &str = "trixie-backports";

/// Builds the object and puts it in its place; with `check`, compares it with what is committed instead.
pub fn build(check: bool) -> Result<()> {
    let source = root().join("io-starve-ebpf");
    let toolchain = Toolchain::find()?;
    toolchain.ensure_source()?;
    let linker = ensure_linker(&toolchain)?;
    let dir = target().join("ebpf");
    let mut cmd = toolchain.cargo();
    cmd.args([
        "build",
        "--release",
        "--locked",
        "--target",
        TRIPLE,
        "-Z",
        "build-std=core",
    ])
    .arg("--target-dir")
    .arg(&dir)
    .current_dir(&source)
    // The pinned compiler is a stable one; building core for a target without a prebuilt one is an unstable feature.
    .env("RUSTC_BOOTSTRAP", "1")
    .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker)
    .env("CARGO_ENCODED_RUSTFLAGS", toolchain.flags()?)
    .env_remove("RUSTFLAGS")
    .env_remove("RUSTC")
    .env_remove("RUSTC_WORKSPACE_WRAPPER");
    run(&mut cmd)?;
    let built = dir.join(TRIPLE).join("release/io-starve-ebpf");
    let bytes = toolchain.without_dwarf(&built)?;
    let committed = root().join("io-starve/bpf/io-starve.bpf.o");
    if check {
        let old = fs::read(&committed).with_context(|| {
            format!(
                "cannot read {}: run `cargo xtask ebpf`",
                committed.display()
            )
        })?;
        if old != bytes {
            bail!(
                "the committed {} ({} bytes) is not what io-starve-ebpf builds ({} bytes, in {}): run `cargo xtask ebpf` and commit the result",
                committed.display(),
                old.len(),
                bytes.len(),
                built.display()
            );
        }
        println!(
            "ebpf: the committed object is what the source builds ({} bytes)",
            bytes.len()
        );
    } else {
        fs::create_dir_all(committed.parent().context("the object needs a folder")?)?;
        fs::write(&committed, &bytes)?;
        println!(
            "ebpf: wrote {} ({} bytes)",
            committed.display(),
            bytes.len()
        );
    }
    Ok(())
}

/// The pinned compiler.
struct Toolchain {
    /// Set when rustup has to select it.
    rustup_name: Option<&'static str>,
    sysroot: PathBuf,
}

impl Toolchain {
    /// The default compiler when it has the pinned version, else the one that rustup has or can get.
    fn find() -> Result<Toolchain> {
        let version = output(Command::new("rustc").arg("--version").current_dir(root()))?;
        let rustup_name = if version.split_whitespace().nth(1) == Some(RUSTC) {
            None
        } else if find("rustup").is_some() {
            run(command("rustup").args(["toolchain", "install", RUSTC, "--profile", "minimal"]))?;
            Some(RUSTC)
        } else {
            bail!(
                "the BPF programs are built with rustc {RUSTC}, this one is {}; install rustup, or that version",
                version.trim()
            );
        };
        let mut toolchain = Toolchain {
            rustup_name,
            sysroot: PathBuf::new(),
        };
        let sysroot = output(toolchain.command("rustc").args(["--print", "sysroot"]))?;
        toolchain.sysroot = PathBuf::from(sysroot.trim());
        Ok(toolchain)
    }

    fn command(&self, program: &str) -> Command {
        let mut cmd = Command::new(program);
        // An xtask started by cargo has the toolchain of that cargo in its environment.
        match self.rustup_name {
            Some(name) => cmd.env("RUSTUP_TOOLCHAIN", name),
            None => &mut cmd,
        };
        cmd.current_dir(root());
        cmd
    }

    fn cargo(&self) -> Command {
        self.command("cargo")
    }

    /// What aya needs (debug information that the linker turns into BTF), and no path of this machine in the result.
    fn flags(&self) -> Result<OsString> {
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
            .context("neither CARGO_HOME nor HOME is set")?;
        let mut flags =
            OsString::from("--cfg=bpf_target_arch=\"x86_64\"\x1f-Cdebuginfo=2\x1f-Clink-arg=--btf");
        let mut maps = vec![
            (self.sysroot.clone(), "/rust"),
            (home.clone(), "/cargo"),
            (root(), "/io-starve"),
        ];
        // Named after the registry in use, which differs with a mirror. This workspace has filled it already; the last map that fits counts.
        let registries = fs::read_dir(home.join("registry/src"))
            .into_iter()
            .flatten();
        maps.extend(registries.filter_map(|r| Some((r.ok()?.path(), "/crates"))));
        for (from, to) in maps {
            flags.push("\x1f--remap-path-prefix=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        Ok(flags)
    }

    /// The object without what only debuggers read: the linker has made BTF of it, and it is three quarters of the file.
    fn without_dwarf(&self, built: &Path) -> Result<Vec<u8>> {
        let host = output(self.command("rustc").args(["--print", "host-tuple"]))?;
        let objcopy = self
            .sysroot
            .join("lib/rustlib")
            .join(host.trim())
            .join("bin/rust-objcopy");
        let stripped = built.with_extension("bpf.o");
        let read = || {
            fs::read(&stripped)
                .with_context(|| format!("{} left no {}", objcopy.display(), stripped.display()))
        };
        run(Command::new(&objcopy)
            .arg("--strip-debug")
            .arg(built)
            .arg(&stripped))?;
        let names = mangled(&read()?);
        if names.is_empty() {
            return read();
        }
        let mut cmd = Command::new(&objcopy);
        for name in &names {
            cmd.arg(format!(
                "--redefine-sym={name}={}",
                without_disambiguator(name)
            ));
        }
        run(cmd.arg(&stripped))?;
        read()
    }

    /// Makes sure that the sources of core are where cargo looks for them.
    fn ensure_source(&self) -> Result<()> {
        let place = self.sysroot.join("lib/rustlib/src/rust/library");
        if place.join("core/src/lib.rs").exists() {
            return Ok(());
        }
        let by_rustup = if find("rustup").is_some() {
            output(
                self.command("rustup")
                    .args(["component", "add", "rust-src"]),
            )
            .map(|_| ())
        } else {
            Err(anyhow::anyhow!("there is no rustup"))
        };
        let Err(why) = by_rustup else {
            return Ok(());
        };
        if !is_debian() || !is_root() {
            bail!("the sources of core are missing: run `rustup component add rust-src` ({why:#})");
        }
        eprintln!(
            "ebpf: rustup cannot fetch rust-src, taking Debian's package of rustc {RUSTC} instead"
        );
        source_from_debian(&place)
    }
}

/// Names of functions in an object as rustc mangles them.
fn mangled(object: &[u8]) -> Vec<String> {
    let words = object.split(|b| !b.is_ascii_alphanumeric() && *b != b'_');
    let names = words.filter(|w| w.starts_with(b"_RN"));
    let mut names: Vec<String> = names
        .map(|n| String::from_utf8_lossy(n).into_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The name without the number that rustc makes of the folder of the crate: `Cs8kH555jcFoQ_14io_starve_ebpf`.
fn without_disambiguator(name: &str) -> String {
    match name.split_once("Cs") {
        Some((before, rest)) => {
            let after = rest.split_once('_').map_or(rest, |(_, after)| after);
            format!("{before}C{after}")
        }
        None => name.to_string(),
    }
}

/// Puts the library folder of Debian's rust-src package at `place`.
fn source_from_debian(place: &Path) -> Result<()> {
    let suite = Suite::open(RUST_SRC_SUITE)?;
    let versions = suite.versions("rust-src")?;
    let version = versions
        .iter()
        .find(|v| v.starts_with(&format!("{RUSTC}+")) || v.starts_with(&format!("{RUSTC}-")))
        .with_context(|| {
            format!(
                "{RUST_SRC_SUITE} has rust-src {}, not {RUSTC}",
                versions.join(", ")
            )
        })?;
    let dir = target().join("rust-src");
    let debs = suite.download(&[format!("rust-src={version}")], &dir)?;
    let unpacked = dir.join("unpacked");
    unpack(&debs, &unpacked)?;
    let library = unpacked
        .join("usr/src")
        .join(format!("rustc-{RUSTC}"))
        .join("library");
    if !library.join("core/src/lib.rs").exists() {
        bail!("Debian's rust-src has no {}", library.display());
    }
    fs::create_dir_all(place.parent().context("the sources need a folder")?)?;
    run(command("cp").arg("-a").arg(&library).arg(place))?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

fn ensure_linker(toolchain: &Toolchain) -> Result<PathBuf> {
    let dir = target().join("tools");
    let linker = dir.join("bin/bpf-linker");
    let version = Command::new(&linker).arg("--version").output();
    let good = version.is_ok_and(|v| {
        String::from_utf8_lossy(&v.stdout).trim() == format!("bpf-linker {BPF_LINKER}")
    });
    if !good {
        eprintln!("ebpf: installing bpf-linker {BPF_LINKER} below target/tools");
        run(toolchain
            .cargo()
            .args([
                "install",
                "bpf-linker",
                "--version",
                BPF_LINKER,
                "--locked",
                "--force",
                "--root",
            ])
            .arg(&dir))?;
    }
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_tell_where_they_were_built() {
        let at = |hash: &str| {
            let object =
                format!("\0.text\0_RNvNtCs{hash}_14io_starve_ebpf7service5shift\0memset\0");
            let names = mangled(object.as_bytes());
            names
                .iter()
                .map(|n| without_disambiguator(n))
                .collect::<Vec<_>>()
        };
        assert_eq!(at("8kH555jcFoQ"), ["_RNvNtC14io_starve_ebpf7service5shift"]);
        assert_eq!(at("8kH555jcFoQ"), at("hN2NbrDjzWT"));
    }
}
