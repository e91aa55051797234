//! Which files belong to one recording of blktrace: `NAME.blktrace.CPU`, perhaps with an ending for how they are packed.

use std::path::{Path, PathBuf};

/// Name, ending and CPU.
type Parts = (String, String, u32);

/// All files of the recording that is meant: by one of them, by what stands before `.blktrace`, as `blkparse -i` takes it, or by
/// the folder that holds them, whichever disks they are of. None when no name in the folder is like that.
pub fn of(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() {
        return in_folder(path, |_| true);
    }
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Vec::new(),
    };
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else {
        return Vec::new();
    };
    match parts(name) {
        Some((stem, ending, _)) => in_folder(folder, |(s, e, _)| *s == stem && *e == ending),
        None if !path.exists() => in_folder(folder, |(s, _, _)| s == name),
        None => Vec::new(),
    }
}

fn parts(name: &str) -> Option<Parts> {
    let (stem, rest) = name.rsplit_once(".blktrace.")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (cpu, ending) = rest.split_at_checked(digits)?;
    Some((stem.to_owned(), ending.to_owned(), cpu.parse().ok()?))
}

fn in_folder(folder: &Path, wanted: impl Fn(&Parts) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let mut found: Vec<(Parts, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((parts(entry.file_name().to_str()?)?, entry.path())))
        .filter(|(parts, path)| wanted(parts) && path.is_file())
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_names_all() {
        let dir = tempfile::tempdir().unwrap();
        let names = |path: &Path| -> Vec<String> {
            of(path)
                .iter()
                .map(|p| p.file_name().unwrap().to_str().unwrap().to_owned())
                .collect()
        };
        for name in [
            "sda.blktrace.0",
            "sda.blktrace.10",
            "sda.blktrace.2",
            "sda.blktrace.1.xz",
            "sdb.blktrace.0",
            "sda.blktrace.x",
            "notes",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let sda = ["sda.blktrace.0", "sda.blktrace.2", "sda.blktrace.10"];
        assert_eq!(names(&dir.path().join("sda.blktrace.2")), sda);
        assert_eq!(
            names(&dir.path().join("sda.blktrace.7.xz")),
            ["sda.blktrace.1.xz"]
        );
        assert_eq!(names(&dir.path().join("sdb")), ["sdb.blktrace.0"]);
        assert_eq!(names(dir.path()).len(), 5);
        assert!(names(&dir.path().join("notes")).is_empty());
        assert!(names(&dir.path().join("other")).is_empty());
    }
}
