//! Kernels of the test matrix: found, fetched and unpacked.
//!
//! In: a name such as `6.12` or `6.12-cloud`. Out: the kernel image and its modules below target/vm/NAME. Refuses a machine that is not Debian.

use std::{
    cmp::Ordering,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    apt::{Suite, unpack},
    cmd::{command, output, target},
};

/// A kernel of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Name on the command line.
    pub name: &'static str,
    /// What the version begins with.
    series: &'static str,
    /// What the name of the package ends with.
    flavour: &'static str,
    /// Suites that may have it, in the order of preference.
    suites: &'static [&'static str],
}

/// The matrix. In the generic flavour ext4, jbd2, loop and nearly everything else are modules; the cloud
/// flavour has ext4 built in, so that hooks attach in another way there.
pub const MATRIX: &[Kernel] = &[
    Kernel {
        name: "5.10",
        series: "5.10.",
        flavour: "-amd64",
        suites: &["bullseye", "bullseye-security"],
    },
    Kernel {
        name: "6.1",
        series: "6.1.",
        flavour: "-amd64",
        suites: &["bookworm-security", "bookworm"],
    },
    Kernel {
        name: "6.12",
        series: "6.12.",
        flavour: "-amd64",
        suites: &["bookworm-security", "trixie"],
    },
    Kernel {
        name: "7.3",
        series: "7.3.",
        flavour: "-amd64",
        suites: &["trixie-backports"],
    },
    Kernel {
        name: "6.12-cloud",
        series: "6.12.",
        flavour: "-cloud-amd64",
        suites: &["bookworm-security", "trixie"],
    },
];

/// The kernel with this name.
pub fn by_name(name: &str) -> Result<Kernel> {
    MATRIX
        .iter()
        .copied()
        .find(|k| k.name == name)
        .with_context(|| {
            let known: Vec<&str> = MATRIX.iter().map(|k| k.name).collect();
            format!(
                "no kernel {name} in the matrix; there are {}",
                known.join(", ")
            )
        })
}

/// A kernel on this machine, ready to boot.
#[derive(Debug, Clone)]
pub struct Unpacked {
    /// As `uname -r` says.
    pub release: String,
    /// The image.
    pub image: PathBuf,
    /// The folder with `modules.dep`.
    pub modules: PathBuf,
}

/// Fetches a kernel, or takes it from target/vm when it is there.
pub fn fetch(kernel: Kernel) -> Result<Unpacked> {
    let dir = target().join("vm/kernels").join(kernel.name);
    if !dir.join("complete").exists() {
        let (suite, package) = resolve(kernel)?;
        let mut packages = vec![package.clone()];
        // Newer Debian kernels split the image, the modules and the lists of what is built in into packages of their own.
        let release = package.trim_start_matches("linux-image-").to_string();
        let parts = ["binary", "modules", "base"].map(|part| format!("linux-{part}-{release}"));
        packages.extend(
            suite
                .depends(&package)?
                .into_iter()
                .filter(|d| parts.contains(d)),
        );
        let debs = suite.download(&packages, &target().join("vm/debs"))?;
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        unpack(&debs, &dir)?;
        fs::write(dir.join("release"), &release)?;
        let modules = module_dir(&dir, &release)?;
        let base = modules
            .ancestors()
            .find(|p| !p.ends_with(&release) && !p.ends_with("modules") && !p.ends_with("lib"))
            .context("the modules have no folder above them")?;
        output(command("depmod").arg("-b").arg(base).arg(&release))?;
        fs::write(dir.join("complete"), "")?;
    }
    let release = fs::read_to_string(dir.join("release"))?;
    let modules = module_dir(&dir, &release)?;
    let image = [
        dir.join(format!("boot/vmlinuz-{release}")),
        modules.join("vmlinuz"),
    ]
    .into_iter()
    .find(|p| p.exists())
    .with_context(|| {
        format!(
            "the packages of {release} have no vmlinuz; delete {} to fetch them again",
            dir.display()
        )
    })?;
    Ok(Unpacked {
        release,
        image,
        modules,
    })
}

fn module_dir(dir: &Path, release: &str) -> Result<PathBuf> {
    ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|d| dir.join(d).join(release))
        .find(|d| d.join("kernel").exists())
        .with_context(|| {
            format!(
                "no modules of {release} in {}; delete that folder to fetch them again",
                dir.display()
            )
        })
}

/// The newest package of the kernel's series, and the suite that has it.
fn resolve(kernel: Kernel) -> Result<(Suite, String)> {
    let mut tried = Vec::new();
    for name in kernel.suites {
        let suite = match Suite::open(name) {
            Ok(suite) => suite,
            Err(e) => {
                tried.push(format!("{name}: {e:#}"));
                continue;
            }
        };
        let names = suite.names("linux-image-")?;
        match newest(&names, kernel.series, kernel.flavour) {
            Some(package) => return Ok((suite, package)),
            None => tried.push(format!(
                "{name}: no linux-image-{}*{}",
                kernel.series, kernel.flavour
            )),
        }
    }
    bail!(
        "kernel {} was not found ({}); when its suite has moved on, change the matrix in xtask/src/vm/kernels.rs",
        kernel.name,
        tried.join("; ")
    )
}

/// The newest `linux-image-SERIES…FLAVOUR` among package names.
fn newest(names: &[String], series: &str, flavour: &str) -> Option<String> {
    names
        .iter()
        .filter(|n| {
            n.strip_prefix("linux-image-")
                .and_then(|n| n.strip_prefix(series))
                .and_then(|n| n.strip_suffix(flavour))
                // What is left is a version; letters would be another flavour (rt, cloud).
                .is_some_and(|rest| {
                    !rest.contains("-rt") && !rest.contains("-cloud") && !rest.contains("unsigned")
                })
        })
        .max_by(|a, b| by_version(a, b))
        .cloned()
}

/// Compares names with numbers inside: runs of digits as numbers, the rest as text.
fn by_version(a: &str, b: &str) -> Ordering {
    fn parts(s: &str) -> Vec<(u64, String)> {
        let mut out: Vec<(u64, String)> = vec![(0, String::new())];
        let mut in_digits = false;
        for c in s.chars() {
            if let Some(d) = c.to_digit(10) {
                if !in_digits {
                    out.push((0, String::new()));
                }
                if let Some(last) = out.last_mut() {
                    last.0 = last.0.saturating_mul(10).saturating_add(u64::from(d));
                }
                in_digits = true;
            } else {
                if let Some(last) = out.last_mut() {
                    last.1.push(c);
                }
                in_digits = false;
            }
        }
        out
    }
    parts(a).cmp(&parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_series_and_flavour_is_taken() {
        let names: Vec<String> = [
            "linux-image-6.12.9+deb12-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.118+deb12-rt-amd64",
            "linux-image-6.1.0-57-amd64",
            "linux-image-6.12.119+deb12-amd64-unsigned",
            "linux-image-amd64",
        ]
        .map(String::from)
        .to_vec();
        let found = |series, flavour| newest(&names, series, flavour);
        assert_eq!(
            found("6.12.", "-amd64").as_deref(),
            Some("linux-image-6.12.117+deb12-amd64")
        );
        assert_eq!(
            found("6.12.", "-cloud-amd64").as_deref(),
            Some("linux-image-6.12.117+deb12-cloud-amd64")
        );
        assert_eq!(
            found("6.1.", "-amd64").as_deref(),
            Some("linux-image-6.1.0-57-amd64")
        );
        assert_eq!(found("5.10.", "-amd64"), None);
    }

    #[test]
    fn names_of_the_matrix_are_unique_and_known() {
        for k in MATRIX {
            assert_eq!(by_name(k.name).ok(), Some(*k));
        }
        assert!(by_name("2.6").is_err());
    }
}
