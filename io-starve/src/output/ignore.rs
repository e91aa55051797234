//! Findings that nobody wants to hear of: by kind, disk and victim. Pure.

use serde::{Deserialize, Serialize};

use super::focus::Focus;
use crate::{
    detect::finding::{Finding, Kind},
    model::snapshot::Snapshot,
};

/// A rule; what it does not name fits anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignore {
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only on this disk, by name or number, `*` for any characters.
    pub device: Option<String>,
    /// Only when this cgroup, or one below it, is the victim; by path or last name, `*` for any characters.
    pub cgroup: Option<String>,
}

impl Ignore {
    /// True for a finding that is not to be told.
    pub fn fits(&self, finding: &Finding, snapshot: &Snapshot) -> bool {
        let victim_only = Finding {
            culprits: Vec::new(),
            ..finding.clone()
        };
        let focus = Focus {
            cgroups: self.cgroup.iter().cloned().collect(),
            devices: self.device.iter().cloned().collect(),
        };
        self.kind.is_none_or(|kind| kind == finding.kind) && focus.has(&victim_only, snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    #[test]
    fn a_rule_fits_by_all_that_it_names() {
        let snapshot = fixtures::starving();
        let finding = &snapshot.findings[0];
        let victim = snapshot.owner_name(finding.victim);
        let culprit = snapshot.owner_name(finding.culprits[0].owner);
        let device = snapshot.device_name(finding.device.unwrap());
        let fits = |kind: Option<Kind>, device: Option<&str>, cgroup: Option<&str>| {
            let rule = Ignore {
                kind,
                device: device.map(str::to_owned),
                cgroup: cgroup.map(str::to_owned),
            };
            rule.fits(finding, &snapshot)
        };
        assert!(fits(Some(finding.kind), None, None));
        assert!(fits(Some(finding.kind), Some(&device), Some(&victim)));
        assert!(fits(None, Some("*"), Some("*")));
        assert!(!fits(Some(Kind::QueueStuck), Some(&device), Some(&victim)));
        assert!(!fits(None, Some("nvme9n9"), None));
        assert!(
            !fits(None, None, Some(&culprit)),
            "who is served is not ignored"
        );
    }
}
