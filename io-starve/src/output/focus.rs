//! What the user asked to hear of: cgroups and disks by name. Pure.
//!
//! It narrows what is told and shown, not what is judged: who keeps a cgroup from the disk is mostly another one.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::{reporter, text};
use crate::{
    detect::finding::Finding,
    model::{
        observation::{DevId, Owner},
        snapshot::{DeviceView, Snapshot},
    },
};

/// Patterns; an empty list of them means everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Focus {
    /// Cgroups by path or by the last part of it, `*` for any characters. What is below a cgroup belongs to it.
    pub cgroups: Vec<String>,
    /// Disks by name or number, `*` for any characters.
    pub devices: Vec<String>,
}

impl Focus {
    /// The patterns for cgroups that none of these paths fits: perhaps a slip, perhaps one that comes later.
    pub fn cgroups_without<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Vec<&str> {
        let mut missing: Vec<&str> = self.cgroups.iter().map(String::as_str).collect();
        for path in paths {
            missing.retain(|pattern| !has_path(pattern, path));
        }
        missing
    }

    /// True when nobody asked for less than everything.
    pub fn is_everything(&self) -> bool {
        self.cgroups.is_empty() && self.devices.is_empty()
    }

    /// True for a finding whose disk was asked for, and of whose victim or culprits one was. A finding over several owners
    /// counts when one asked for is among them.
    pub fn has(&self, finding: &Finding, snapshot: &Snapshot) -> bool {
        let device = finding.device.and_then(|dev| view(snapshot, dev));
        if !self.devices.is_empty() && !device.is_some_and(|d| self.has_device(d.dev, &d.name)) {
            return false;
        }
        if self.cgroups.is_empty() {
            return true;
        }
        let among = |victim: Owner| {
            victim == Owner::Other
                && device.is_some_and(|d| {
                    let same = |class| finding.class.is_none_or(|c| c == class);
                    d.owners
                        .iter()
                        .any(|o| same(o.class) && self.has_owner(o.owner, snapshot))
                })
        };
        let named = finding
            .culprits
            .iter()
            .map(|c| c.owner)
            .chain([finding.victim]);
        among(finding.victim)
            || named
                .into_iter()
                .any(|owner| self.has_owner(owner, snapshot))
    }

    /// The state with the rest left out. Totals and figures by class stay those of the whole disk.
    pub fn narrow(&self, mut snapshot: Snapshot) -> Snapshot {
        if self.is_everything() {
            return snapshot;
        }
        let open = |s: &Snapshot| s.findings.iter().filter(|f| f.closed.is_none()).count();
        let before = open(&snapshot);
        let kept: Vec<bool> = snapshot
            .findings
            .iter()
            .map(|f| self.has(f, &snapshot))
            .collect();
        let mut kept = kept.into_iter();
        snapshot.findings.retain(|_| kept.next().unwrap_or(true));
        if !self.devices.is_empty() {
            snapshot.devices.retain(|d| self.has_device(d.dev, &d.name));
            snapshot.shares.retain(|d| self.has_device(d.dev, &d.name));
        }
        if !self.cgroups.is_empty() {
            let mut devices = std::mem::take(&mut snapshot.devices);
            for device in &mut devices {
                device.owners.retain(|o| self.has_owner(o.owner, &snapshot));
            }
            snapshot.devices = devices;
        }
        self.narrow_journal(&mut snapshot);
        self.narrow_shares(&mut snapshot);
        let elsewhere = before - open(&snapshot);
        if elsewhere > 0 {
            let here = match snapshot.findings.first().filter(|f| f.closed.is_none()) {
                Some(worst) => reporter::in_words(worst, &snapshot),
                None => text::summary(&snapshot, 0),
            };
            snapshot.verdict = format!("{here}; {elsewhere} open elsewhere");
        }
        snapshot
    }

    /// Cgroups that were asked for, with those above them.
    fn narrow_shares(&self, snapshot: &mut Snapshot) {
        if self.cgroups.is_empty() {
            return;
        }
        for view in &mut snapshot.shares {
            let wanted = |path: &str| self.cgroups.iter().any(|p| has_path(p, path));
            let kept: Vec<String> = view
                .rows
                .iter()
                .filter(|r| wanted(&r.path))
                .map(|r| r.path.clone())
                .collect();
            view.rows.retain(|r| {
                let above = |k: &String| {
                    k.strip_prefix(&r.path)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                kept.iter().any(above)
            });
        }
    }

    /// What is told of fsyncs and limits. Which disks lie below a filesystem is not told with them, so that only holds are left out
    /// by disk.
    fn narrow_journal(&self, snapshot: &mut Snapshot) {
        if !self.devices.is_empty() {
            // The name alone also fits a disk that had no I/O yet, all of which is held.
            let number = |s: &Snapshot, name: &str| {
                let named = s.devices.iter().find(|d| d.name == name);
                named.map_or(DevId::new(0, 0), |d| d.dev)
            };
            let mut holds = std::mem::take(&mut snapshot.holds);
            holds.retain(|h| self.has_device(number(snapshot, &h.device), &h.device));
            snapshot.holds = holds;
        }
        if self.cgroups.is_empty() {
            return;
        }
        let mut fsyncs = std::mem::take(&mut snapshot.fsyncs);
        let mut syncers = std::mem::take(&mut snapshot.syncers);
        let mut holds = std::mem::take(&mut snapshot.holds);
        let mut blame = std::mem::take(&mut snapshot.blame);
        let mut paused = std::mem::take(&mut snapshot.paused);
        let has = |owner| self.has_owner(owner, snapshot);
        fsyncs.retain(|f| {
            let whom = f.waits.map(|w| [w.culprit, w.limit]);
            has(f.owner) || whom.into_iter().flatten().flatten().any(has)
        });
        syncers.retain(|s| has(s.owner));
        holds.retain(|h| has(h.owner) || has(h.group));
        blame.retain(|b| has(b.edge.victim) || has(b.edge.culprit));
        paused.retain(|p| p.worker.is_some() || has(p.owner));
        snapshot.fsyncs = fsyncs;
        snapshot.syncers = syncers;
        snapshot.holds = holds;
        snapshot.blame = blame;
        snapshot.paused = paused;
    }

    fn has_owner(&self, owner: Owner, snapshot: &Snapshot) -> bool {
        let named = |o: &&crate::model::snapshot::OwnerName| o.owner == owner;
        let path = snapshot
            .owners
            .iter()
            .find(named)
            .map(|o| o.cgroup.path.as_str());
        path.is_some_and(|path| self.cgroups.iter().any(|pattern| has_path(pattern, path)))
    }

    fn has_device(&self, dev: DevId, name: &str) -> bool {
        // `dm-3 (vg-root)` goes by both names.
        let (kernel, alias) = name.split_once(" (").unwrap_or((name, ""));
        let alias = alias.strip_suffix(')').unwrap_or(alias);
        self.devices.iter().any(|pattern| {
            let pattern = pattern.strip_prefix("/dev/mapper/").unwrap_or(pattern);
            let wild = WildMatch::new(pattern.strip_prefix("/dev/").unwrap_or(pattern));
            dev.to_string() == pattern
                || wild.matches(kernel)
                || (!alias.is_empty() && wild.matches(alias))
        })
    }
}

fn view(snapshot: &Snapshot, dev: DevId) -> Option<&DeviceView> {
    snapshot.devices.iter().find(|d| d.dev == dev)
}

fn has_path(pattern: &str, path: &str) -> bool {
    let trimmed = pattern.trim_end_matches('/');
    let pattern = match trimmed.starts_with(['/', '*']) || trimmed.is_empty() {
        true => trimmed.to_owned(),
        false => format!("*/{trimmed}"),
    };
    WildMatch::new(&pattern).matches(path) || WildMatch::new(&(pattern + "/*")).matches(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_meant_with_all_below_it() {
        let path = "/system.slice/backup.service/worker";
        for pattern in [
            "/",
            "/system.slice",
            "/system.slice/",
            "/system.slice/backup.service",
            "backup.service",
            "*/worker",
            "/*",
        ] {
            assert!(has_path(pattern, path), "{pattern}");
        }
        for pattern in [
            "/system",
            "/backup.service",
            "backup",
            "/system.slice/back",
            "/user.slice",
            "service",
        ] {
            assert!(!has_path(pattern, path), "{pattern}");
        }
        assert!(has_path("/kubepods*pod1", "/kubepods/besteffort/pod1/c"));
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_told() {
        let focus = Focus {
            cgroups: ["backup.service", "/user.slice", "bakcup.service"]
                .map(str::to_owned)
                .into(),
            devices: Vec::new(),
        };
        let paths = ["/", "/system.slice/backup.service", "/user.slice"];
        assert_eq!(focus.cgroups_without(paths.into_iter()), ["bakcup.service"]);
    }

    #[test]
    fn fsyncs_holds_and_blame_are_narrowed_to_those_who_were_asked_for() {
        let snap = crate::tui::fixtures::serialized;
        let narrow = |cgroups: &[&str], devices: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
            let focus = Focus {
                cgroups: all(cgroups),
                devices: all(devices),
            };
            let s = focus.narrow(snap());
            [
                s.fsyncs.len(),
                s.syncers.len(),
                s.holds.len(),
                s.blame.len(),
            ]
        };
        assert_eq!(narrow(&[], &[]), [7, 6, 2, 4]);
        // Its own, those that waited for it, what its limit holds.
        assert_eq!(narrow(&["postgres.service"], &[]), [3, 1, 0, 2]);
        assert_eq!(narrow(&["backup.service"], &[]), [4, 1, 1, 2]);
        // Its limit holds what another waits for.
        assert_eq!(narrow(&["batch.slice"], &[]), [1, 0, 1, 0]);
        assert_eq!(narrow(&["nobody.service"], &[]), [0, 0, 0, 0]);
        assert_eq!(narrow(&[], &["sda"]), [7, 6, 2, 4]);
        assert_eq!(narrow(&[], &["8:0"]), [7, 6, 2, 4]);
        assert_eq!(narrow(&[], &["sdb"]), [7, 6, 0, 4]);
    }

    #[test]
    fn a_disk_goes_by_all_its_names() {
        let focus = |p: &str| Focus {
            devices: vec![p.to_owned()],
            ..Focus::default()
        };
        for pattern in [
            "dm-3",
            "vg-root",
            "/dev/mapper/vg-root",
            "/dev/dm-3",
            "vg-*",
        ] {
            assert!(
                focus(pattern).has_device(DevId::new(8, 0), "dm-3 (vg-root)"),
                "{pattern}"
            );
        }
        assert!(!focus("dm").has_device(DevId::new(8, 0), "dm-3 (vg-root)"));
        assert!(!focus("").has_device(DevId::new(8, 0), "sda"));
        assert!(focus("sd?").has_device(DevId::new(8, 0), "sda"));
    }
}
