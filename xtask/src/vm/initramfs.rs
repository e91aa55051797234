//! The guest's root: programs with their libraries, kernel modules, scripts.
//!
//! In: an unpacked kernel, the programs to copy, the scripts of this run. Out: one initramfs. Everything is
//! copied in, which works alike for kernels with and without 9p. It is not compressed: under software
//! emulation unpacking takes longer than reading 100 MB.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};

use super::kernels::Unpacked;
use crate::cmd::{command, find, output, target};

/// Programs of the host that scenarios may call. The shell is the host's, because busybox's would run its own applets
/// in the place of programs with the same name.
const PROGRAMS: &[&str] = &[
    "sh",
    "fio",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "losetup",
    "dmsetup",
    "ionice",
    "setpriv",
];

/// Modules that every boot loads, where the kernel has them as modules.
const BASE_MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "sd_mod",
    "crc32c_generic",
    "libcrc32c",
];

/// Writes the initramfs of one boot. `modules` are loaded in their order, after what they depend on; `files`
/// are (path in the guest, content), executable when they begin with `#!`.
pub fn build(
    out: &Path,
    kernel: &Unpacked,
    observer: Option<&Path>,
    modules: &BTreeSet<String>,
    files: &BTreeMap<String, String>,
) -> Result<()> {
    let stage = target().join("vm/stage");
    let mut image =
        fs::File::create(out).with_context(|| format!("cannot write {}", out.display()))?;

    let dir = fresh(&stage.join("programs"))?;
    stage_programs(&dir, observer)?;
    append(&mut image, &dir)?;

    let dir = fresh(&stage.join("run"))?;
    let order = stage_modules(&dir, kernel, modules)?;
    put(&dir, "modules/order", order.join("\n") + "\n")?;
    for (path, text) in files {
        put(&dir, path.trim_start_matches('/'), text.clone())?;
    }
    append(&mut image, &dir)?;
    image.flush()?;
    Ok(())
}

fn fresh(dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    fs::create_dir_all(dir)?;
    Ok(dir.to_path_buf())
}

fn put(dir: &Path, path: &str, text: String) -> Result<()> {
    let file = dir.join(path);
    fs::create_dir_all(
        file.parent()
            .context("a file of the guest needs a folder")?,
    )?;
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    fs::write(&file, text)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Appends a folder as one cpio archive; the kernel unpacks archives that follow each other.
fn append(image: &mut fs::File, dir: &Path) -> Result<()> {
    let list = output(command("find").args([".", "-print"]).current_dir(dir))?;
    let mut cpio = command("cpio");
    cpio.args(["-o", "-H", "newc", "-R", "0:0", "--quiet"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(image.try_clone()?);
    let mut child = cpio.spawn().context("cannot start cpio")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(list.as_bytes())?;
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("cpio of {} failed: {status}", dir.display());
    }
    Ok(())
}

fn stage_programs(dir: &Path, observer: Option<&Path>) -> Result<()> {
    for d in [
        "usr/bin",
        "usr/sbin",
        "usr/lib",
        "usr/lib64",
        "busybox",
        "proc",
        "sys",
        "dev",
        "tmp",
        "out",
    ] {
        fs::create_dir_all(dir.join(d))?;
    }
    for (link, to) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/sbin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        symlink(to, dir.join(link))?;
    }
    let busybox = find("busybox").context("busybox is missing")?;
    copy(&busybox, &dir.join("usr/bin/busybox"))?;

    let mut libraries = BTreeSet::new();
    let mut programs: Vec<(String, PathBuf)> = Vec::new();
    for name in PROGRAMS {
        let path = find(name).with_context(|| format!("{name} is missing on this machine"))?;
        programs.push(((*name).to_string(), path));
    }
    if let Some(path) = observer {
        programs.push(("io-starve".to_string(), path.to_path_buf()));
    }
    for (name, path) in programs {
        // Programs are called by their full path in /usr/sbin where the shell has a builtin of that name.
        let folder = if path.to_string_lossy().contains("/sbin/") {
            "usr/sbin"
        } else {
            "usr/bin"
        };
        let real = fs::canonicalize(&path)?;
        copy(&real, &dir.join(folder).join(&name))?;
        libraries.extend(needed_libraries(&real)?);
    }
    for library in libraries {
        let to = dir.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(to.parent().context("a library needs a folder")?)?;
        copy(&library, &to)?;
    }
    put(dir, "etc/passwd", "root:x:0:0:root:/:/bin/sh\n".to_string())?;
    put(dir, "etc/group", "root:x:0:\n".to_string())?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Libraries and loader of a program, by `ldd`; none for a static one.
fn needed_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let out = command("ldd")
        .arg(program)
        .output()
        .context("cannot start ldd")?;
    let text = String::from_utf8_lossy(&out.stdout);
    if let Some(line) = text.lines().find(|l| l.contains("not found")) {
        bail!(
            "{} cannot run on this machine: {}",
            program.display(),
            line.trim()
        );
    }
    Ok(text
        .lines()
        .filter_map(|l| l.split_whitespace().find(|w| w.starts_with('/')))
        .map(|w| PathBuf::from(w.trim_end_matches(':')))
        .filter(|p| p != program)
        .collect())
}

/// Copies the wanted modules with all they depend on, decompressed; returns their file names in load order.
fn stage_modules(dir: &Path, kernel: &Unpacked, wanted: &BTreeSet<String>) -> Result<Vec<String>> {
    let table = ModuleTable::read(&kernel.modules)?;
    let mut order = Vec::new();
    for name in BASE_MODULES {
        table.closure(name, &mut order);
    }
    for name in wanted {
        if !table.closure(name, &mut order) {
            bail!(
                "kernel {} has no module {name}, which a scenario asks for",
                kernel.release
            );
        }
    }
    fs::create_dir_all(dir.join("modules"))?;
    let mut files = Vec::new();
    for path in order {
        let from = kernel.modules.join(&path);
        let file = from
            .file_name()
            .map(OsStr::to_string_lossy)
            .unwrap_or_default()
            .into_owned();
        let (plain, unpacker) = match file.rsplit_once('.') {
            Some((plain, "xz")) => (plain.to_string(), Some("xz")),
            Some((plain, "zst")) => (plain.to_string(), Some("zstd")),
            _ => (file.clone(), None),
        };
        let to = dir.join("modules").join(&plain);
        match unpacker {
            None => copy(&from, &to)?,
            Some(program) => {
                let out = fs::File::create(&to)?;
                let status = command(program)
                    .arg("-dc")
                    .arg(&from)
                    .stdout(out)
                    .status()?;
                if !status.success() {
                    bail!("{program} cannot unpack {}", from.display());
                }
            }
        }
        files.push(plain);
    }
    Ok(files)
}

/// `modules.dep` and `modules.builtin` of a kernel.
struct ModuleTable {
    /// Name -> (path, paths that must be loaded before, in the order of the file).
    modules: BTreeMap<String, (String, Vec<String>)>,
    /// `None` where the packages do not list them (Debian's 7.3): whatever is no module then counts as built in, and a
    /// scenario that needs what is not there fails by itself.
    builtin: Option<BTreeSet<String>>,
}

impl ModuleTable {
    fn read(dir: &Path) -> Result<ModuleTable> {
        let read = |f: &str| {
            let path = dir.join(f);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let builtin = fs::read_to_string(dir.join("modules.builtin")).ok();
        Ok(ModuleTable::parse(
            &read("modules.dep")?,
            builtin.as_deref(),
        ))
    }

    fn parse(dep: &str, builtin: Option<&str>) -> ModuleTable {
        let mut modules = BTreeMap::new();
        for line in dep.lines() {
            if let Some((path, needs)) = line.split_once(':') {
                let needs = needs.split_whitespace().map(str::to_string).collect();
                modules.insert(module_name(path), (path.to_string(), needs));
            }
        }
        ModuleTable {
            modules,
            builtin: builtin.map(|b| b.lines().map(module_name).collect()),
        }
    }

    /// Adds a module after all it depends on. False when the kernel has it in no form.
    fn closure(&self, name: &str, order: &mut Vec<String>) -> bool {
        let name = module_name(name);
        let Some((path, needs)) = self.modules.get(&name) else {
            return self.builtin.as_ref().is_none_or(|b| b.contains(&name));
        };
        if order.contains(path) {
            return true;
        }
        // modules.dep lists direct and indirect needs, the deepest last.
        for need in needs.iter().rev() {
            if !order.contains(need) {
                order.push(need.clone());
            }
        }
        order.push(path.clone());
        true
    }
}

/// `kernel/fs/ext4/ext4.ko.xz` -> `ext4`, with `_` for `-` as the kernel itself does.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split(".ko").next().unwrap_or(file);
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need() {
        let table = ModuleTable::parse(
            "kernel/fs/ext4/ext4.ko.xz: kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz\n\
             kernel/fs/jbd2/jbd2.ko.xz:\n\
             kernel/fs/mbcache.ko.xz:\n\
             kernel/drivers/md/dm-mod.ko:\n",
            Some("kernel/block/mq-deadline.ko\n"),
        );
        let mut order = Vec::new();
        assert!(table.closure("ext4", &mut order));
        assert!(table.closure("dm_mod", &mut order));
        assert!(table.closure("jbd2", &mut order));
        assert_eq!(
            order,
            [
                "kernel/fs/jbd2/jbd2.ko.xz",
                "kernel/fs/mbcache.ko.xz",
                "kernel/fs/ext4/ext4.ko.xz",
                "kernel/drivers/md/dm-mod.ko"
            ]
        );
        assert!(table.closure("mq-deadline", &mut order), "built in");
        assert!(!table.closure("zfs", &mut order));
        assert_eq!(order.len(), 4);
        let unlisted = ModuleTable::parse("", None);
        assert!(unlisted.closure("mq-deadline", &mut order));
        assert_eq!(order.len(), 4);
    }
}
