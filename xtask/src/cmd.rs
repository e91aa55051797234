//! Running other programs, with errors that name the command.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The checkout.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// The build folder; everything that is fetched or built goes below it.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where a program is: in `PATH` or in the folders that only root has there.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// A command for a program that may only be in root's folders.
pub fn command(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)))
}

/// Runs a command with its output shown. An exit status other than 0 is an error.
pub fn run(cmd: &mut Command) -> Result<()> {
    let status = cmd
        .status()
        .with_context(|| format!("cannot start {}", show(cmd)))?;
    if !status.success() {
        bail!("{} failed: {status}", show(cmd));
    }
    Ok(())
}

/// Runs a command and returns what it printed; what it said on stderr goes into the error.
pub fn output(cmd: &mut Command) -> Result<String> {
    let out = cmd
        .output()
        .with_context(|| format!("cannot start {}", show(cmd)))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{} failed: {}\n{}", show(cmd), out.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Builds io-starve as it is shipped and returns the program.
pub fn build_observer() -> Result<PathBuf> {
    run(Command::new("cargo")
        .args(["build", "--release", "--package", "io-starve"])
        .current_dir(root()))?;
    Ok(target().join("release/io-starve"))
}

/// Program and arguments as one would type them.
fn show(cmd: &Command) -> String {
    let words: Vec<_> = [cmd.get_program()]
        .into_iter()
        .chain(cmd.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}

/// True on Debian and what derives from it.
pub fn is_debian() -> bool {
    Path::new("/etc/debian_version").exists() && find("apt-get").is_some()
}

/// True when this process has root's rights.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// True when CI asked for it: there a skip of what could run is a failure.
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}
