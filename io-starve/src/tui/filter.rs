//! What the screen shows when a filter is typed: disks and cgroups with this text in their names. Pure.

use crate::{
    detect::finding::Finding,
    model::{
        observation::{DevId, Owner},
        snapshot::Snapshot,
    },
};

/// The snapshot with only what has `text` in its name, capitals or not. A disk stays with all its owners when its own name fits,
/// else with those that fit. The verdict stays: who filters must not lose sight of the worst.
pub fn narrowed(snapshot: &Snapshot, text: &str) -> Snapshot {
    let wanted = text.to_lowercase();
    let fits = |name: &str| name.to_lowercase().contains(&wanted);
    let has_owner = |owner: Owner| fits(&snapshot.owner_name(owner));
    let has_device = |dev: DevId| fits(&snapshot.device_name(dev));
    let finding = |f: &Finding| {
        let culprits = f.culprits.iter().map(|c| c.owner);
        let mountpoint = f.sync.as_ref().and_then(|s| s.mountpoint.as_deref());
        f.device.is_some_and(has_device)
            || mountpoint.is_some_and(fits)
            || culprits.chain([f.victim]).any(has_owner)
    };
    let mut out = snapshot.clone();
    out.devices.retain_mut(|d| {
        if fits(&d.name) {
            return true;
        }
        d.owners.retain(|o| has_owner(o.owner));
        d.waiters.retain(|w| has_owner(w.owner));
        !d.owners.is_empty() || !d.waiters.is_empty()
    });
    out.findings.retain(|f| finding(f));
    out.blame
        .retain(|b| has_owner(b.edge.victim) || has_owner(b.edge.culprit));
    out.fsyncs.retain(|f| {
        let whom = f.waits.map(|w| [w.culprit, w.limit]);
        let mut whom = whom.into_iter().flatten().flatten();
        fits(&f.filesystem) || has_owner(f.owner) || whom.any(has_owner)
    });
    out.syncers
        .retain(|s| fits(&s.filesystem) || has_owner(s.owner));
    out.holds
        .retain(|h| fits(&h.device) || has_owner(h.group) || has_owner(h.owner));
    out.bdis.retain(|b| fits(&b.name));
    out.paused.retain(|p| fits(&p.name) || has_owner(p.owner));
    let trees = out.loops.chunk_by(|_, next| next.depth > 0);
    let of_loop =
        |l: &crate::model::snapshot::LoopView| fits(&l.name) || l.file.as_deref().is_some_and(fits);
    out.loops = trees
        .filter(|tree| tree.iter().any(of_loop))
        .flatten()
        .cloned()
        .collect();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    #[test]
    fn what_does_not_fit_is_left_out() {
        let snap = fixtures::crowded();
        let sda = narrowed(&snap, "SDA");
        assert_eq!(sda.devices.len(), 1);
        assert_eq!(sda.devices[0].owners.len(), 202, "all of its owners");
        assert!(sda.findings.len() < snap.findings.len() && !sda.findings.is_empty());
        let backup = narrowed(&snap, "backup");
        assert_eq!(
            backup.devices.len(),
            snap.devices.len(),
            "it is on every disk"
        );
        assert!(backup.devices.iter().all(|d| d.owners.len() == 1));
        assert_eq!(backup.verdict, snap.verdict);
        let none = narrowed(&snap, "no such thing");
        assert!(none.devices.is_empty() && none.findings.is_empty() && none.blame.is_empty());
        assert_eq!(narrowed(&snap, ""), snap);
    }

    #[test]
    fn a_tree_of_loop_devices_stays_whole() {
        let snap = fixtures::throttled();
        let name = &snap.loops.last().unwrap().name;
        let kept = narrowed(&snap, name).loops;
        assert!(
            kept.len() > 1 && kept.iter().any(|l| l.name == *name),
            "{kept:?}"
        );
    }
}
