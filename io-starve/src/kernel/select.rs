//! Which disks `--device` means.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use wildmatch::WildMatch;

use super::{
    AttachError,
    devices::{Devices, kernel_name, parse_dev},
};
use crate::model::observation::{DevId, DeviceFact};

/// The disks that these patterns name: a path of a block device or of a partition (its disk is meant), a name or alias with
/// wildcards, or major:minor.
///
/// # Errors
///
/// When a pattern names none, with the names that there are.
pub fn select(
    patterns: &[String],
    devices: &Devices,
    sys: &Path,
) -> Result<Vec<DevId>, AttachError> {
    let mut chosen = Vec::new();
    for pattern in patterns {
        let before = chosen.len();
        chosen.extend(matching(pattern, devices, sys));
        if chosen.len() == before {
            let known: Vec<&str> = devices.all().map(|d| kernel_name(&d.name)).collect();
            return Err(AttachError::NoDevice {
                pattern: pattern.clone(),
                known: known.join(", "),
            });
        }
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

/// Those of one pattern.
pub fn matching(pattern: &str, devices: &Devices, sys: &Path) -> Vec<DevId> {
    let path = Path::new(pattern);
    let by_path = if path.is_absolute() {
        disk_of_node(path, sys)
    } else {
        // A partition's name.
        disk_of_dir(&sys.join("class/block").join(pattern))
    };
    if let Some(dev) = by_path.filter(|d| devices.knows(*d)) {
        return vec![dev];
    }
    let name = pattern.strip_prefix("/dev/mapper/").unwrap_or(pattern);
    let wild = WildMatch::new(name.strip_prefix("/dev/").unwrap_or(name));
    let hit = |d: &&DeviceFact| {
        let alias = d
            .name
            .split_once(" (")
            .and_then(|(_, a)| a.strip_suffix(')'));
        wild.matches(kernel_name(&d.name))
            || alias.is_some_and(|a| wild.matches(a))
            || parse_dev(pattern) == Some(d.dev)
    };
    devices.all().filter(hit).map(|d| d.dev).collect()
}

fn disk_of_node(path: &Path, sys: &Path) -> Option<DevId> {
    let meta = fs::metadata(path).ok()?;
    if !meta.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    disk_of_dir(&sys.join(format!("dev/block/{major}:{minor}")))
}

fn disk_of_dir(dir: &Path) -> Option<DevId> {
    let real = fs::canonicalize(dir).ok()?;
    let disk = if real.join("partition").exists() {
        real.parent()?
    } else {
        &real
    };
    parse_dev(&fs::read_to_string(disk.join("dev")).ok()?)
}
