//! What lies below what: dm and md on disks, loop devices on the disks of the filesystem that holds their file.

use super::Model;
use super::observation::DevId;

/// Layers that are followed: more is a loop in the facts, or nobody's intention.
const MAX_LAYERS: usize = 32;

impl Model {
    /// The disks right below this one.
    pub fn below(&self, dev: DevId) -> Vec<DevId> {
        match self.dirty.loops().get(&dev) {
            Some(l) if l.gone_ns.is_none() => l.fact.below.clone(),
            _ => {
                let fact = self.devices.get(&dev).and_then(|d| d.fact.as_ref());
                fact.map(|f| f.below.clone()).unwrap_or_default()
            }
        }
    }

    /// The disk and all below it, each once, upper ones first.
    pub fn stack(&self, dev: DevId) -> Vec<DevId> {
        let mut found = vec![dev];
        let mut at = 0;
        while at < found.len() && found.len() < MAX_LAYERS {
            for below in self.below(found[at]) {
                if !found.contains(&below) {
                    found.push(below);
                }
            }
            at += 1;
        }
        found
    }

    /// The disks at the bottom of a stack: those that have none below.
    pub fn bottom(&self, dev: DevId) -> Vec<DevId> {
        let mut all = self.stack(dev);
        all.retain(|d| self.below(*d).is_empty());
        all
    }

    /// True when what is written to `upper` is written to `lower` next: they are the same, or dm and md are between them, and no other
    /// loop device.
    pub fn writes_to(&self, upper: DevId, lower: DevId) -> bool {
        let is_loop = |dev: &DevId| self.dirty.loops().contains_key(dev);
        let mut todo = vec![upper];
        let mut seen = Vec::new();
        while let Some(dev) = todo.pop() {
            if dev == lower {
                return true;
            }
            if !is_loop(&dev) && !seen.contains(&dev) && seen.len() < MAX_LAYERS {
                seen.push(dev);
                todo.extend(self.below(dev));
            }
        }
        false
    }
}
