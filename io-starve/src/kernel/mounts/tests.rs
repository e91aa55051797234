use std::os::unix::fs::symlink;

use super::*;

const S: u64 = 1_000_000_000;

/// procfs and sysfs of a machine with sda (two partitions), sdb, nvme0n1 (one partition) and what is built upon them.
struct Machine {
    dir: tempfile::TempDir,
    now: u64,
    mounts: Mounts,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let mut m = Machine {
            mounts: Mounts::new(
                &dir.path().join("proc"),
                &dir.path().join("sys"),
                number_of_fixture,
            ),
            dir,
            now: S,
        };
        m.table("");
        m.disk("sda", "8:0", &[]);
        m.partition("sda", "sda1", "8:1");
        m.partition("sda", "sda2", "8:2");
        m.disk("sdb", "8:16", &[]);
        m.disk("nvme0n1", "259:0", &[]);
        m.partition("nvme0n1", "nvme0n1p1", "259:1");
        m
    }

    fn put(&self, file: &str, content: &str) {
        let path = self.dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, target: &str, link: &str) {
        let link = self.dir.path().join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(self.dir.path().join(target), link).unwrap();
    }

    /// A disk above others, given as paths below `sys/devices`.
    fn disk(&mut self, name: &str, dev: &str, slaves: &[&str]) {
        self.put(&format!("sys/devices/{name}/dev"), &format!("{dev}\n"));
        self.link(
            &format!("sys/devices/{name}"),
            &format!("sys/dev/block/{dev}"),
        );
        fs::create_dir_all(self.dir.path().join(format!("sys/devices/{name}/slaves"))).unwrap();
        for slave in slaves {
            let last = slave.rsplit('/').next().unwrap();
            self.link(
                &format!("sys/devices/{slave}"),
                &format!("sys/devices/{name}/slaves/{last}"),
            );
        }
    }

    fn partition(&mut self, disk: &str, name: &str, dev: &str) {
        let at = format!("sys/devices/{disk}/{name}");
        self.put(&format!("{at}/dev"), &format!("{dev}\n"));
        self.put(&format!("{at}/partition"), "1\n");
        self.link(&at, &format!("sys/dev/block/{dev}"));
    }

    fn table(&self, lines: &str) {
        self.put("proc/self/mountinfo", lines);
    }

    /// Facts so long after that the table is read in any case.
    fn refresh(&mut self) -> Vec<Fact> {
        self.now += READ_EVERY_NS;
        self.mounts.refresh(self.now)
    }

    fn only(&mut self) -> FilesystemFact {
        match &self.refresh()[..] {
            [Fact::Filesystem(f)] => f.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn number_of_fixture(path: &Path) -> Option<DevId> {
    match path.to_str()? {
        "/dev/sda2" => Some(DevId::new(8, 2)),
        "/dev/mapper/luks-a" => Some(DevId::new(254, 9)),
        "/dev/nfs" => None,
        path => panic!("asked for {path}"),
    }
}

const SDA: DevId = DevId::new(8, 0);
const SDB: DevId = DevId::new(8, 16);
const NVME: DevId = DevId::new(259, 0);

#[test]
fn a_partition_lies_on_its_disk() {
    let mut m = Machine::new();
    m.table(
        "22 1 0:21 / /proc rw,relatime - proc proc rw\n\
         27 1 8:1 / /srv/my\\040data rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw,errors=remount-ro\n",
    );
    assert_eq!(
        m.only(),
        FilesystemFact {
            dev: DevId::new(8, 1),
            fstype: "ext4".to_owned(),
            mountpoint: "/srv/my data".to_owned(),
            source: "/dev/sda1".to_owned(),
            options: "rw,errors=remount-ro".to_owned(),
            queues: vec![SDA],
        }
    );
}

#[test]
fn escapes_are_resolved_once_and_lines_stay_lines() {
    let mut m = Machine::new();
    m.table("27 1 8:16 / /a\\134040\\011b\\012c\\043 rw - ext4 /dev/sdb rw\n");
    assert_eq!(m.only().mountpoint, "/a\\040\u{fffd}b\u{fffd}c#");
}

#[test]
fn dm_on_partitions_and_md_of_disks() {
    let mut m = Machine::new();
    m.disk("dm-0", "254:0", &["sda/sda2", "nvme0n1/nvme0n1p1"]);
    m.disk("md0", "9:0", &["sda", "sdb"]);
    m.partition("md0", "md0p1", "259:7");
    m.table(
        "30 1 254:0 / / rw - xfs /dev/mapper/vg-root rw,attr2\n\
         31 1 259:7 / /var rw - ext4 /dev/md0p1 rw\n",
    );
    let facts = m.refresh();
    let [Fact::Filesystem(root), Fact::Filesystem(var)] = &facts[..] else {
        panic!("{facts:?}")
    };
    assert_eq!((root.queues.as_slice()), [SDA, NVME]);
    assert_eq!(var.queues, [SDA, SDB]);
}

#[test]
fn luks_on_lvm_on_md_is_followed_to_the_disks() {
    let mut m = Machine::new();
    m.disk("md0", "9:0", &["sda/sda2", "sdb"]);
    m.disk("dm-0", "254:0", &["md0"]);
    m.disk("dm-1", "254:1", &["dm-0"]);
    m.table("30 1 254:1 / /home rw - ext4 /dev/mapper/luks-home rw\n");
    assert_eq!(m.only().queues, [SDA, SDB]);
}

#[test]
fn a_ring_of_disks_ends() {
    let mut m = Machine::new();
    m.disk("dm-0", "254:0", &["dm-1"]);
    m.disk("dm-1", "254:1", &["dm-0", "sdb"]);
    m.table("30 1 254:0 / / rw - ext4 /dev/dm-0 rw\n");
    assert_eq!(m.only().queues, [SDB]);
}

#[test]
fn a_loop_device_has_a_queue_of_its_own() {
    let mut m = Machine::new();
    m.disk("loop0", "7:0", &[]);
    m.put("sys/devices/loop0/loop/backing_file", "/var/image\n");
    m.table("30 1 7:0 / /mnt ro - squashfs /dev/loop0 ro\n");
    assert_eq!(m.only().queues, [DevId::new(7, 0)]);
}

#[test]
fn btrfs_is_found_by_its_source_with_all_of_its_devices() {
    let mut m = Machine::new();
    m.table("30 1 0:45 /@home /home rw - btrfs /dev/sda2 rw,subvol=/@home\n");
    let one = m.only();
    assert_eq!((one.dev, one.queues), (DevId::new(0, 45), vec![SDA]));

    m.link("sys/devices/sda/sda2", "sys/fs/btrfs/1-2/devices/sda2");
    m.link(
        "sys/devices/nvme0n1/nvme0n1p1",
        "sys/fs/btrfs/1-2/devices/nvme0n1p1",
    );
    m.link("sys/devices/sdb", "sys/fs/btrfs/3-4/devices/sdb");
    m.put("sys/fs/btrfs/features/raid1c34", "0\n");
    assert_eq!(m.only().queues, [SDA, NVME], "a device was added");
}

#[test]
fn btrfs_on_luks_is_found_by_the_number_of_its_source() {
    let mut m = Machine::new();
    m.disk("dm-9", "254:9", &["sdb"]);
    m.table("30 1 0:45 / /home rw - btrfs /dev/mapper/luks-a rw\n");
    assert_eq!(m.only().queues, [SDB]);
}

#[test]
fn what_is_on_no_disk_is_no_fact_and_its_source_is_not_touched() {
    let mut m = Machine::new();
    m.table(
        "30 1 0:40 / /tmp rw - tmpfs tmpfs rw\n\
         31 1 0:41 / /net rw - nfs4 server:/export rw\n\
         32 1 0:42 / /other rw - fuse.sshfs /devices/x rw\n\
         33 1 0:43 / /root rw - nfs /dev/nfs rw\n\
         no mount at all\n\
         34 1 x:y / / rw - ext4 /dev/sda1 rw\n\
         35 1 8:1 / / rw - ext4\n",
    );
    assert_eq!(m.refresh(), []);
}

#[test]
fn the_whole_filesystem_goes_before_parts_of_it() {
    let mut m = Machine::new();
    m.table(
        "30 1 8:1 /srv/www /jail/www rw - ext4 /dev/sda1 rw\n\
         31 1 8:1 / /data rw - ext4 /dev/sda1 rw\n\
         32 1 8:1 / /later rw - ext4 /dev/sda1 rw\n\
         33 1 8:16 /part /first rw - ext4 /dev/sdb rw\n\
         34 1 8:16 /part2 /second rw - ext4 /dev/sdb rw\n",
    );
    let facts = m.refresh();
    let [Fact::Filesystem(a), Fact::Filesystem(b)] = &facts[..] else {
        panic!("{facts:?}")
    };
    assert_eq!(
        (a.mountpoint.as_str(), b.mountpoint.as_str()),
        ("/data", "/first")
    );
}

#[test]
fn only_changes_are_facts() {
    let mut m = Machine::new();
    let sdb = "30 1 8:16 / /b rw - ext4 /dev/sdb rw\n";
    m.table(&format!("{sdb}31 1 8:1 / /a rw - ext4 /dev/sda1 rw\n"));
    assert_eq!(m.refresh().len(), 2);
    assert_eq!(m.refresh(), []);
    m.table(&format!("{sdb}31 1 8:1 / /a rw - ext4 /dev/sda1 ro\n"));
    assert_eq!(m.only().options, "ro");
    m.table(sdb);
    let dev = DevId::new(8, 1);
    assert_eq!(m.refresh(), [Fact::FilesystemGone { dev }]);
    fs::remove_file(m.dir.path().join("proc/self/mountinfo")).unwrap();
    m.mounts.open = None;
    assert_eq!(m.refresh(), [], "unreadable is not unmounted");
}

#[test]
fn a_disk_that_sysfs_does_not_show_is_not_known() {
    let mut m = Machine::new();
    m.table("30 1 8:48 / /d rw - ext4 /dev/sdd rw\n");
    let fact = m.only();
    assert_eq!((fact.dev, fact.queues), (DevId::new(8, 48), Vec::new()));
}

#[test]
fn it_is_read_at_once_when_it_changed_and_not_more_often_than_once_a_second() {
    let mut m = Machine::new();
    let table = |dev: &str| format!("30 1 {dev} / / rw - ext4 /dev/x rw\n");
    m.table(&table("8:1"));
    assert_eq!(m.mounts.refresh(S).len(), 1);
    m.table(&table("8:16"));
    assert_eq!(m.mounts.refresh(4 * S), [], "nothing told of a change");
    m.mounts.changed = true;
    assert_eq!(m.mounts.refresh(4 * S).len(), 2);
    m.mounts.changed = true;
    m.table(&table("8:1"));
    assert_eq!(m.mounts.refresh(4 * S + REST_NS - 1), []);
    assert_eq!(m.mounts.refresh(4 * S + REST_NS).len(), 2);
}

#[test]
fn the_kernel_s_own_table_can_be_watched() {
    let mut mounts = Mounts::new("/proc".as_ref(), "/sys".as_ref(), number_of);
    assert!(mounts.table_changed(), "not open before");
    let table = mounts.read_table().unwrap();
    assert!(table.lines().all(|l| Mount::parse(l).is_some()), "{table}");
    assert_eq!(table, mounts.read_table().unwrap(), "it is rewound");
}
