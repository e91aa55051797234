//! What `io-starve explain` says about findings of dirty memory.

pub const LOOP: &str = "\
loop-double-throttle: writers to a loop device are paused, and so is the worker that does their writes.

Whoever dirties memory faster than its disk takes it is paused by the kernel (balance_dirty_pages). On a buffered loop device that \
happens twice: the writer is paused for what is dirty on the loop device, and the worker of the loop device, which writes that to the \
backing file, for what is dirty on the disk below. Each takes the other's pauses for a slow disk. The kernel marks the worker as less \
throttled (PF_LOCAL_THROTTLE), but both brakes still act. While the worker sleeps, up to 200 ms at a time, whatever else waits for it \
does not move: up to 5.13 everything on that loop device, since then all requests of the same cgroup.

How it is judged, for each loop device: in 5 s tasks are paused on it for at least 20 % of the wall time, and its worker is paused for at \
least 10 % (wall time, not the sum over tasks). It is told with severity info when the disk below is at least 80 % busy meanwhile: two \
brakes, but the disk is the limit. It is a warning when that disk is idle for 20 % of the time in which both are paused and no limit (io.max) holds writes on the way, or when others \
(readers, writers that sync) waited behind the worker for 200 ms of the 5 s; they are named as victims. Of a stack of loop devices the \
uppermost is told, with all layers.

Pauses are counted with the length that the kernel announces; a task wakes up to a clock tick later. How busy a disk is comes from \
its own counter.

Mechanism: loop-worker. `sure` when it is known how busy the disk below is, `likely` when that is not counted (queue/iostats is 0), or \
when events were lost.

Followed are loop devices. An NFS mount from the same host, for which the kernel's mark was made, has the same disease; it is not \
found: nothing ties the pauses of nfsd's threads to one mount. Nor are filesystems whose backing device has no disk's name (btrfs) on \
a loop device.

Known false positives: an io_uring write that would have to pause goes back to its caller instead, and is counted as a pause.

What to do: losetup --direct-io=on for the loop device, where the filesystem of the backing file allows it and the blocks of the loop \
device are not smaller than those of the disk below. Then its worker dirties no memory and is never paused. It makes no slow disk \
faster: with severity info only the waits behind the worker go. Otherwise limit the writer (io.max) to what the disk takes, and keep \
other writers away from that disk.";

pub const DIRTY: &str = "\
dirty-throttle: writers of one disk are paused because another, slow disk holds the dirty memory.

The limit for dirty memory (vm.dirty_ratio, vm.dirty_bytes) is one for all disks. A large copy to a slow disk fills it, and then \
everybody who writes is paused, also on disks that are idle: a copy to a stick freezes the desktop. The kernel gives each disk a share \
of the limit by how fast it has written of late, so a disk that has just begun has hardly any.

How it is judged, for each owner and disk: in 5 s its tasks are paused for at least 20 % of the wall time; all dirty memory is above \
the point from which writers are held back; at most a fifth of it is for that disk, and at least half for another one, which is neither \
below nor above it; and that disk is busy for less than 80 % of the time. Severity is info when nobody else writes to the slow disk.

Mechanism: dirty-limit. `sure` when it is known how busy the disk is, `likely` when that is not counted, or when events were lost. \
Culprits are those who write to the slow disk.

Known false positives: figures are those of the last pause, so that a slow disk that was written out a moment ago may still be blamed. A \
slow disk whose writers are not paused themselves is not found.

What to do: give the slow disk a limit of its own (strict_limit and max_ratio or max_bytes of its bdi, 6.2 and later; older kernels \
have max_ratio). Give the group that writes to it a memory limit (memory.high), which limits its dirty memory too. Lower \
vm.dirty_bytes and vm.dirty_background_bytes to what the slowest disk writes in a few seconds.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::settings::Settings;

    #[test]
    fn the_texts_name_the_default_thresholds() {
        let s = Settings::default();
        for text in [LOOP, DIRTY] {
            let text = text.replace('\n', " ");
            let part = format!("for at least {:.0} %", s.paused_share * 100.0);
            assert!(text.contains(&part), "{part}");
        }
        let part = format!("at least {:.0} % (wall time", s.worker_share * 100.0);
        assert!(LOOP.contains(&part), "{part}");
    }
}
