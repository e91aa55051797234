//! The disks that a file lies on.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::mounts::{Mounts, number_of, queues_below};
use crate::model::observation::DevId;

/// Answers for paths; reads the table of mounts once.
pub struct Disks {
    mounts: Mounts,
}

impl Disks {
    /// Of the machine as it is now.
    pub fn now() -> Disks {
        let mut mounts = Mounts::new(Path::new("/proc"), Path::new("/sys"), number_of);
        mounts.refresh(0);
        Disks { mounts }
    }

    /// The disks with request queues below a file, a folder or a block device. Of a file that is no more, those of the folder that it was
    /// in. Empty when it is on none, or that is not known.
    pub fn below(&self, path: &Path) -> Vec<DevId> {
        let found = path
            .ancestors()
            .find_map(|p| Some((p, fs::metadata(p).ok()?)));
        let Some((path, meta)) = found else {
            return Vec::new();
        };
        let of_block =
            |dev: DevId| queues_below(vec![Path::new("/sys/dev/block").join(dev.to_string())]);
        if let Some(dev) = number_of(path) {
            return of_block(dev);
        }
        let dev = DevId::new(rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        if dev.major() != 0 {
            return of_block(dev);
        }
        // btrfs: what stat says is in no table.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let fs = path.to_str().and_then(|p| self.mounts.holding(p));
        fs.map(|fs| self.mounts.queues(fs).to_vec())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_no_disk_has_none() {
        let disks = Disks::now();
        assert_eq!(disks.below(Path::new("/proc/self/status")), []);
        assert_eq!(
            disks.below(Path::new("/dev/null/nothing")),
            disks.below(Path::new("/dev"))
        );
    }
}
