//! Names of owners: cgroup ids to paths, and what a path says of unit, container and pod.
//!
//! In: the hierarchy in which block I/O is charged (v2 with the io controller, else v1 blkio) and events of cgroups that
//! come and go. Out: facts.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::devices::clean;
use crate::model::observation::{CgroupFact, CgroupMode};

/// Where block I/O is charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Which kind.
    pub mode: CgroupMode,
    /// Where it is mounted.
    pub root: PathBuf,
    /// `cgroup_root.hierarchy_id`: 0 for v2.
    pub id: u32,
}

impl Hierarchy {
    /// Finds it in /proc/mounts and /proc/cgroups.
    pub fn find(proc_: &Path) -> Option<Hierarchy> {
        let mounts = fs::read_to_string(proc_.join("mounts")).ok()?;
        let mut fields = mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>());
        let v2 = fields
            .clone()
            .find(|f| f.get(2) == Some(&"cgroup2"))
            .and_then(|f| Some(PathBuf::from(unescape(f.get(1)?))));
        if let Some(root) = v2
            && fs::read_to_string(root.join("cgroup.controllers"))
                .is_ok_and(|c| c.split_whitespace().any(|w| w == "io"))
        {
            return Some(Hierarchy {
                mode: CgroupMode::V2,
                root,
                id: 0,
            });
        }
        let v1 = fields.find(|f| {
            f.get(2) == Some(&"cgroup")
                && f.get(3).is_some_and(|o| o.split(',').any(|w| w == "blkio"))
        })?;
        let table = fs::read_to_string(proc_.join("cgroups")).ok()?;
        let id = table
            .lines()
            .find(|l| l.starts_with("blkio\t"))?
            .split('\t')
            .nth(1)?;
        Some(Hierarchy {
            mode: CgroupMode::V1,
            root: PathBuf::from(unescape(v1.get(1)?)),
            id: id.parse().ok()?,
        })
    }
}

/// /proc/mounts and mountinfo write blanks, number signs and backslashes as octal.
pub fn unescape(s: &str) -> String {
    s.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\043", "#")
        .replace("\\134", "\\")
}

/// The dead keep their names for those whose last I/O outlives them, at most this many.
const DEAD_KEPT: usize = 4096;

/// Every cgroup of the hierarchy, as far as known.
pub struct Cgroups {
    hierarchy: Option<Hierarchy>,
    alive: BTreeMap<u64, String>,
    dead: BTreeMap<u64, String>,
    died: VecDeque<u64>,
}

impl Cgroups {
    /// Knows nothing yet.
    pub fn new(hierarchy: Option<Hierarchy>) -> Cgroups {
        Cgroups {
            hierarchy,
            alive: BTreeMap::new(),
            dead: BTreeMap::new(),
            died: VecDeque::new(),
        }
    }

    /// The hierarchy, if there is one.
    pub fn hierarchy(&self) -> Option<&Hierarchy> {
        self.hierarchy.as_ref()
    }

    /// Name of an id, and whether it is gone.
    pub fn lookup(&self, id: u64) -> Option<(CgroupFact, bool)> {
        let alive = self.alive.get(&id).map(|p| (p, false));
        let (path, gone) = alive.or_else(|| Some((self.dead.get(&id)?, true)))?;
        Some((describe(id, path), gone))
    }

    /// Directory of a living id, where files like io.pressure are.
    pub fn dir(&self, id: u64) -> Option<PathBuf> {
        let path = self.alive.get(&id)?;
        let root = &self.hierarchy.as_ref()?.root;
        Some(root.join(path.trim_start_matches('/')))
    }

    /// Paths of those that are there, by id.
    pub fn alive(&self) -> &BTreeMap<u64, String> {
        &self.alive
    }

    /// Paths of those that are there.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.alive.values().map(String::as_str)
    }

    /// Walks the hierarchy.
    pub fn walk(&mut self) {
        let Some(h) = &self.hierarchy else {
            return;
        };
        let mut now = BTreeMap::new();
        let mut todo = vec![(h.root.clone(), "/".to_owned())];
        while let Some((dir, path)) = todo.pop() {
            let Ok(meta) = fs::metadata(&dir) else {
                continue;
            };
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    todo.push((
                        entry.path(),
                        format!("{}/{name}", path.trim_end_matches('/')),
                    ));
                }
            }
            now.insert(meta.ino(), path);
        }
        let gone: Vec<u64> = self
            .alive
            .keys()
            .filter(|id| !now.contains_key(id))
            .copied()
            .collect();
        for id in gone {
            self.bury(id, None);
        }
        self.alive = now;
    }

    /// A cgroup was made or removed, by the kernel's event. Other hierarchies are not ours.
    pub fn event(&mut self, id: u64, hierarchy: u32, gone: bool, path: &str) {
        if self.hierarchy.as_ref().is_none_or(|h| h.id != hierarchy) {
            return;
        }
        if gone {
            self.bury(id, Some(path));
        } else {
            self.alive.insert(id, path.to_owned());
        }
    }

    fn bury(&mut self, id: u64, path: Option<&str>) {
        let Some(path) = self.alive.remove(&id).or_else(|| path.map(str::to_owned)) else {
            return;
        };
        if self.dead.insert(id, path).is_none() {
            self.died.push_back(id);
        }
        if self.died.len() > DEAD_KEPT
            && let Some(oldest) = self.died.pop_front()
        {
            self.dead.remove(&oldest);
        }
    }
}

/// What a path says: the innermost systemd unit, a container id of 64 hex digits, a Kubernetes pod uid.
pub fn describe(id: u64, path: &str) -> CgroupFact {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    let unit = parts
        .iter()
        .rev()
        .find(|p| p.ends_with(".service") || p.ends_with(".scope"))
        .or_else(|| parts.iter().rev().find(|p| p.ends_with(".slice")))
        .map(|p| unescape_unit(p));
    let container = parts.iter().rev().find_map(|p| {
        let id = p.strip_suffix(".scope").unwrap_or(p);
        let id = id.rsplit(['-', ':']).next().unwrap_or(id);
        (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_owned())
    });
    let pod = parts.iter().rev().find_map(|p| {
        let p = p.strip_suffix(".slice").unwrap_or(p);
        let at = p.rfind("pod")?;
        let uid = p.get(at + 3..)?.replace('_', "-");
        let is_uid = uid.len() == 36 && uid.bytes().filter(|b| *b == b'-').count() == 4;
        is_uid.then_some(uid)
    });
    CgroupFact {
        id,
        path: if path.is_empty() {
            "/".to_owned()
        } else {
            clean(path)
        },
        unit,
        container,
        pod,
    }
}

/// systemd writes bytes that a path cannot hold as `\xNN`.
fn unescape_unit(unit: &str) -> String {
    let mut out = Vec::new();
    let mut rest = unit.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'\\' && tail.first() == Some(&b'x'))
            .then(|| tail.get(1..3))
            .flatten()
            .and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        match hex {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    clean(&String::from_utf8_lossy(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_tell_unit_container_and_pod() {
        let d = describe(7, "/system.slice/my\\x2ddb.service");
        assert_eq!(d.unit.as_deref(), Some("my-db.service"));
        let cid = "a".repeat(64);
        let pod = "0123abcd_0000_1111_2222_0123456789ab";
        let d = describe(
            8,
            &format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/cri-containerd-{cid}.scope"
            ),
        );
        assert_eq!(d.container.as_deref(), Some(cid.as_str()));
        assert_eq!(
            d.pod.as_deref(),
            Some("0123abcd-0000-1111-2222-0123456789ab")
        );
        let d = describe(9, "/docker/podman");
        assert_eq!((d.unit, d.container, d.pod), (None, None, None));
        assert_eq!(describe(1, "").path, "/");
    }

    fn proc_with(mounts: &str, dir: &Path) -> PathBuf {
        fs::write(dir.join("mounts"), mounts).unwrap();
        fs::write(
            dir.join("cgroups"),
            "#subsys_name\thierarchy\nblkio\t9\t4\t1\n",
        )
        .unwrap();
        dir.to_owned()
    }

    #[test]
    fn v2_counts_only_with_the_io_controller() {
        let dir = tempfile::tempdir().unwrap();
        let v2 = dir.path().join("v 2");
        fs::create_dir(&v2).unwrap();
        let mounts = format!(
            "cgroup2 {} cgroup2 rw 0 0\ncgroup /v1/blkio cgroup rw,blkio 0 0\n",
            v2.display().to_string().replace(' ', "\\040")
        );
        let p = proc_with(&mounts, dir.path());
        fs::write(v2.join("cgroup.controllers"), "\n").unwrap();
        let h = Hierarchy::find(&p).unwrap();
        assert_eq!((h.mode, h.id), (CgroupMode::V1, 9));
        fs::write(v2.join("cgroup.controllers"), "cpu io memory\n").unwrap();
        let h = Hierarchy::find(&p).unwrap();
        assert_eq!((h.mode, h.id, h.root), (CgroupMode::V2, 0, v2));
    }

    #[test]
    fn walks_and_events_agree() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a.service/b")).unwrap();
        let mut c = Cgroups::new(Some(Hierarchy {
            mode: CgroupMode::V2,
            root: dir.path().to_owned(),
            id: 0,
        }));
        c.walk();
        let id = fs::metadata(dir.path().join("a.service/b")).unwrap().ino();
        assert_eq!(c.lookup(id).unwrap().0.path, "/a.service/b");
        assert_eq!(c.dir(id), Some(dir.path().join("a.service/b")));

        c.event(99, 3, false, "/other");
        assert_eq!(c.lookup(99), None, "another hierarchy");
        c.event(99, 0, false, "/x\n");
        let (fact, gone) = c.lookup(99).unwrap();
        assert_eq!((fact.path.as_str(), gone), ("/x", false));
        c.event(99, 0, true, "/x");
        assert!(c.lookup(99).unwrap().1, "the dead keep their names");
        c.event(100, 0, true, "/short");
        assert_eq!(c.lookup(100).unwrap().0.path, "/short");

        fs::remove_dir(dir.path().join("a.service/b")).unwrap();
        c.walk();
        assert!(c.lookup(id).unwrap().1);
        assert_eq!(c.dir(id), None);
    }

    #[test]
    fn the_dead_are_bounded() {
        let mut c = Cgroups::new(Some(Hierarchy {
            mode: CgroupMode::V2,
            root: PathBuf::from("/nonexistent"),
            id: 0,
        }));
        for id in 1..20_000 {
            c.event(id, 0, false, "/churn");
            c.event(id, 0, true, "/churn");
        }
        assert_eq!(c.dead.len(), DEAD_KEPT);
        assert!(c.lookup(19_999).is_some() && c.lookup(1).is_none());
    }
}
