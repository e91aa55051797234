//! The processes of a command: itself and all that come of it, with the cgroups that they are in. Looked at only at ticks: what lives
//! for less than that is not seen.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Threads that are looked at in one go, so that a command with thousands of them costs what one with some hundreds does.
const MOST: usize = 512;

/// Cgroup of every thread of a process and of its descendants, by thread id.
#[derive(Debug)]
pub struct Descendants {
    proc_: PathBuf,
    root: u32,
    /// The last cgroup that each was seen in.
    cgroups: BTreeMap<u32, String>,
}

impl Descendants {
    /// Of this process.
    pub fn of(root: u32) -> Descendants {
        Descendants::from(Path::new("/proc"), root)
    }

    fn from(proc_: &Path, root: u32) -> Descendants {
        Descendants {
            proc_: proc_.to_owned(),
            root,
            cgroups: BTreeMap::new(),
        }
    }

    /// Looks at them now.
    pub fn look(&mut self) {
        let mut todo = vec![self.root];
        let mut looked = 0;
        while let Some(pid) = todo.pop() {
            let Ok(tasks) = fs::read_dir(self.proc_.join(pid.to_string()).join("task")) else {
                continue;
            };
            for task in tasks.flatten() {
                looked += 1;
                if looked > MOST {
                    return;
                }
                let name = task.file_name();
                let Some(tid) = name.to_str().and_then(|t| t.parse().ok()) else {
                    continue;
                };
                let read = |file: &str| fs::read_to_string(task.path().join(file));
                if let Some(cgroup) = read("cgroup").ok().as_deref().and_then(io_cgroup) {
                    self.cgroups.insert(tid, cgroup.to_owned());
                }
                let children = read("children").unwrap_or_default();
                todo.extend(
                    children
                        .split_whitespace()
                        .filter_map(|c| c.parse::<u32>().ok()),
                );
            }
        }
    }

    /// The cgroup of each that was seen, by thread id.
    pub fn into_cgroups(self) -> BTreeMap<u32, String> {
        self.cgroups
    }
}

/// The cgroup that I/O is charged to: of the blkio hierarchy where there is one, else of the unified one.
fn io_cgroup(text: &str) -> Option<&str> {
    let of = |wanted: fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            wanted(controllers).then_some(path)
        })
    };
    of(|c| c.split(',').any(|c| c == "blkio")).or_else(|| of(str::is_empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_children_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let task = |pid: u32, tid: u32, cgroup: &str, children: &str| {
            let at = dir.path().join(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("cgroup"), cgroup).unwrap();
            fs::write(at.join("children"), children).unwrap();
        };
        task(
            10,
            10,
            "4:memory:/m\n3:cpu,blkio:/root\n0::/unified\n",
            "20 99 ",
        );
        task(10, 11, "0::/unified\n", "");
        task(20, 20, "0::/child\n", "21 ");
        task(21, 21, "0::/grandchild\n", "");
        task(30, 30, "0::/stranger\n", "");
        let mut all = Descendants::from(dir.path(), 10);
        all.look();
        // What has ended since stays known.
        fs::remove_dir_all(dir.path().join("20")).unwrap();
        all.look();
        let cgroups = all.into_cgroups();
        let seen: Vec<_> = cgroups.iter().map(|(t, c)| (*t, c.as_str())).collect();
        assert_eq!(
            seen,
            [
                (10, "/root"),
                (11, "/unified"),
                (20, "/child"),
                (21, "/grandchild")
            ]
        );
    }

    #[test]
    fn this_process_is_in_some_cgroup() {
        let mut all = Descendants::of(std::process::id());
        all.look();
        assert!(all.into_cgroups().contains_key(&std::process::id()));
    }
}
