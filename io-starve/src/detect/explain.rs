//! What `io-starve explain` says about each kind of finding.

use super::finding::Kind;
use super::{explain_dirty, explain_weight};

/// What a kind means, how it is judged with the default thresholds, what to do. Several paragraphs of plain text.
pub fn explain(kind: Kind) -> &'static str {
    match kind {
        Kind::AsyncWriteStarvation => ASYNC_WRITE,
        Kind::SyncWriteStarvation => SYNC_WRITE,
        Kind::ReadStarvation => READ,
        Kind::DeviceStall => DEVICE_STALL,
        Kind::QueueStuck => QUEUE_STUCK,
        Kind::FsyncSerialization => FSYNC,
        Kind::JournalStall => JOURNAL,
        Kind::LoopDoubleThrottle => explain_dirty::LOOP,
        Kind::DirtyThrottle => explain_dirty::DIRTY,
        Kind::WeightUnfairness => explain_weight::WEIGHT,
    }
}

const ASYNC_WRITE: &str = "\
async-write-starvation: background writes wait while others are served.

Data that was written without O_DIRECT or O_SYNC goes to disk later, as async writes that no task waits for directly. Every \
scheduler, and writeback throttling (wbt), puts them behind reads and sync writes. Under a steady load of those they may wait for \
minutes. Then dirty memory fills up, and in the end every writer, and whoever calls fsync or sync, stops.

How it is judged, for each disk, for the class over all owners and for each owner (the cgroup that pays):
  withheld   something waited in admission or queued all the time and nothing of the group was issued for 1 s, while at least 64 \
requests of others were; critical from 10 s on.
  crawling   over 5 s it waited 80 % of the time, got under 15 % of the issues (and under half of an equal share), and what it has to \
write (dirty and writeback memory, else what waits) needs more than 30 s at that rate; critical from 300 s on.
The age of the oldest request and how often it was passed are evidence, not the rule: a writer that gets most of the disk has old \
requests too. Nothing is found when those that were served waited two thirds as long themselves (a slow disk, a deep queue), when those that were served are of \
the same class and mostly came before it, or when the disk pauses for \
everybody.

Mechanisms:
  scheduler  requests are queued and the scheduler issues others first: writes_starved of mq-deadline, BFQ's preference for sync and \
interactive tasks, kyber's tokens, I/O priorities.
  wbt        writeback throttling keeps them back, since reads took longer than wbt_lat_usec.
  iocost     the cost model says that the cgroup has spent its share.
  tags       all request tags are taken, or those that async_depth leaves to async requests.
  device     there is no scheduler and the device takes no more.
`sure` means that the wait was seen there (in the queue, or in the kernel stack of a task); `likely` that only the configuration points \
to it, that it began before io-starve was attached, or that events were lost or a hook was refused.

Known false positives: an owner with I/O priority idle asked for it (severity info). A scheduler may leave requests far from the disk \
head for a second on purpose. Behind a deep queue without a scheduler a single write waits for its turn; it is told apart by the waits of \
those served, which a very uneven mix can blur.

What to do: on mq-deadline lower writes_starved (2 is the default). On BFQ set low_latency to 0 or raise io.bfq.weight of the writer. With \
wbt raise wbt_lat_usec. Or limit the culprit: io.max of its cgroup, ionice for its tasks. Each makes the other side slower; watch both.";

const SYNC_WRITE: &str = "\
sync-write-starvation: writes that somebody waits for are not served while others are.

Sync writes are those of O_DIRECT and O_SYNC, of fsync, and of the journals of filesystems. A task waits for each, and often many tasks \
wait for one journal. Schedulers treat them like reads or put them behind reads (mq-deadline puts all writes behind reads).

How it is judged, for each disk, for the class over all owners and for each owner (the cgroup that pays):
  withheld   something waited in admission or queued all the time and nothing of the group was issued for 1 s, while at least 64 \
requests of others were; critical from 10 s on.
  crawling   over 5 s it waited 80 % of the time, got under 15 % of the issues (and under half of an equal share), and the bytes that \
wait need more than 30 s at that rate; critical from 300 s on.
Nothing is found when those that were served waited two thirds as long themselves, or when the disk pauses for everybody.

Mechanisms: scheduler, iocost, tags and device, as for async-write-starvation; wbt does not hold back sync writes. `sure` and `likely` \
mean the same too.

Known false positives: an owner with I/O priority idle (severity info); one slow write behind a deep queue without a scheduler.

What to do: on mq-deadline lower writes_starved when reads are the culprit. On BFQ raise io.bfq.weight of the victim's cgroup, or set \
low_latency to 0. Where tags are short raise nr_requests, or limit who holds them by io.max. An fsync that is slow although no sync \
write starves waits for something else: its own dirty data, the journal, another's commit.";

const READ: &str = "\
read-starvation: reads wait while others are served.

A task waits for almost every read, so this is felt at once. It is rarer than starved writes, since schedulers prefer reads; it happens \
when a scheduler divides the disk by cgroup or process (BFQ) and one of them is served much longer than its turn, when a flood of \
writes has taken all tags, or between readers of different owners.

How it is judged, for each disk, for the class over all owners and for each owner (the cgroup that pays):
  withheld   something waited in admission or queued all the time and nothing of the group was issued for 1 s, while at least 64 \
requests of others were; critical from 10 s on.
  crawling   over 5 s it waited 80 % of the time, got under 15 % of the issues (and under half of an equal share), and the bytes that \
wait need more than 30 s at that rate; critical from 300 s on.
Readers that share a slow disk evenly are not found, however slow each is: those served wait as long as those not yet served.

Mechanisms: scheduler, iocost, tags and device, as for async-write-starvation. `sure` and `likely` mean the same too.

Known false positives: an owner with I/O priority idle (severity info); one read behind a deep queue without a scheduler.

What to do: on BFQ raise io.bfq.weight of the victim's cgroup, or set low_latency to 0 where the culprit is preferred as interactive. On \
mq-deadline lower async_depth, so that writes cannot take all tags. Limit the culprit by io.max or ionice. Without a scheduler, choose one.";

const DEVICE_STALL: &str = "\
device-stall: the device keeps one request back while it completes others.

The request was issued, so no scheduler and no throttle holds it; the device, its firmware, or whatever is behind it (a RAID controller, a \
hypervisor, a network) completes later requests first. Disks reorder within their queue to save head movements and may leave one \
request out for long; a read that is retried on a bad sector looks the same.

How it is judged: a read or write is in the device for 1 s while at least 64 requests that were issued later have completed; critical \
from 10 s on. Flushes and discards are not judged, since later requests complete beside them on every disk. The count of those that \
passed is a lower bound. No culprit is named: the order inside the device is its own.

Mechanism: device. `sure` when the request was seen being issued, `likely` when that was before io-starve was attached or events were lost.

Known false positives: on dm, md and loop devices the device is another disk, whose own findings tell more.

What to do: look at the kernel log for errors, retries and resets, and at the disk's error log (SMART, NVMe). A lower queue depth \
(/sys/block/NAME/device/queue_depth or nr_requests) leaves less to reorder. For a stacked disk look at the disks below it.";

const QUEUE_STUCK: &str = "\
queue-stuck: everything on a disk waits and nothing moves.

This is not starvation: nobody gains. A request was lost, the driver waits for a controller or a network, the disk is suspended \
(dm-suspend), or a queue that shares its tags with another is blocked by that one. Tasks pile up in uninterruptible sleep; their stacks \
(wbt_wait, blk_mq_get_tag) only show where the line ends.

How it is judged: something is in flight, in any stage, and nothing was issued or completed on that disk for 5 s; critical from 60 s \
on, twice the time after which SCSI and NVMe drivers give up on a command. While it holds, no starvation is found on that disk. A disk \
with nothing in flight but discards, erases, formats or self-tests is not judged, since these may take minutes.

Mechanism: device. `sure` when a request is in the device and does not come back; `likely` when all wait before it.

Known false positives: a disk that spins up from standby may take up to 10 s. A disk that is suspended on purpose is stuck indeed.

What to do: look at the kernel log for timeouts and resets, and at the path to the disk (cable, controller, network, hypervisor). For \
dm devices dmsetup info tells whether it is suspended. For stacked disks and loop devices look at what is below. Tasks cannot be killed \
while their request is in flight.";

const FSYNC: &str = "\
fsync-serialization: an fsync of one cgroup waits for I/O of another.

A journal is shared by all that write to a filesystem. An fsync waits for its own data, then for the commit that has its file, and that \
commit may wait for data of files that others write. If a limit (io.max, blkio.throttle) holds their data, everybody who syncs \
waits for that limit, on an idle disk. Without limits an fsync of a few kB queues behind a neighbour's bulk writes.

How it is judged, for each filesystem and owner: an fsync, fdatasync, msync or O_SYNC write takes longer than 200 ms, and more than 5 \
times what it would have taken alone (what its owner had written meanwhile, two journal writes and a flush, at the best rate that the disk showed of \
late), and other owners account for at least half of the part where it waited most; critical from 10 s on. What keeps it waiting is looked at \
at each tick, and the time between two ticks is given to that.

Mechanisms:
  journal-data   the commit waits for data of a file of the culprit, held by a limit or queued. ext4 mounted with dioread_lock or \
data=journal; not ext4 as mounted by default, nor XFS.
  journal-queue  the blocks of the journal wait behind the culprit's bulk.
  data-queue     the data of the synced file waits behind the culprit's bulk, in a queue or in the device.
  transaction    the commit cannot begin, since handles of the culprit keep the transaction open.
  checkpoint     the journal is full, and room in it is made slowly.
`sure` means that each link from the fsync to the culprit was seen; `likely` that one was not, and which is said (under cgroup v1 the kernel \
does not say who pays for written data). A wait that the owner's own limit causes is told with severity info.

Followed are ext4, and XFS and btrfs where the kernel has kprobes: of their logs no commit is told, so what waits for the log is likely only.

Known false positives: services that sync into one filesystem from several cgroups of their own wait for each other by design.

What to do: raise or lift the limit that is named, or give the limited group a filesystem of its own. Mount ext4 without dioread_lock. \
Against bulk writers: limit what they have in flight (wbt_lat_usec, nr_requests, dirty_background_bytes), or use a scheduler that prefers \
sync writes.";

const JOURNAL: &str = "\
journal-stall: create, mkdir, write or umount of one cgroup waits for the journal, and that for I/O of another.

Whoever changes names or sizes of files needs room in the running transaction of the journal. A full transaction waits until the one before \
it is committed; a full journal waits until old blocks are written to their places, and the task that finds it full does that itself, on the account of its \
own cgroup. If a limit holds those writes, or data that a commit waits for, everybody else on that filesystem stands still, on an idle disk. The \
cgroup that causes it may do next to nothing: its limit is what to look at.

How it is judged, for each filesystem and owner: a call waits for the journal for longer than 1 s, and other owners account for at \
least half of the part where it waited most; critical from 10 s on. Such calls are found at ticks, among the tasks in uninterruptible sleep, and only while a \
commit takes longer than 100 ms or somebody makes room in the journal. So a wait looks up to one tick shorter than it is.

Mechanisms:
  checkpoint     the journal is full; the culprit makes room in it, or writes that are in the way are its own.
  journal-data   the transaction is full, and the commit before it waits for data of the culprit.
  journal-queue  the same, and the blocks of the journal wait behind the culprit's bulk.
  transaction    the commit cannot begin, since a handle of the culprit keeps the transaction open.
`sure` means that each link was seen; `likely` that one was not, and which is said. A wait that the owner's own limit causes is told with severity info.

Followed are filesystems with a jbd2 journal: ext4 now. Where several journals are slow at once, a call of which it is not known on which it \
waits is not told, and is counted as `spans-dropped`.

Known false positives: none known. A task that is woken often in one wait may be told as several shorter ones.

What to do: raise or lift the limit that is named (for a checkpoint above all its writes a second), or give the limited group a filesystem of its own. Make the \
journal larger (tune2fs -J size=N, unmounted), so that room is made less often. Mount ext4 without dioread_lock.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_explained_with_its_rule_and_what_to_do() {
        for kind in Kind::ALL {
            let text = explain(kind);
            assert!(text.starts_with(&format!("{}:", kind.name())));
            for part in [
                "How it is judged",
                "Known false positives",
                "What to do",
                "\n\n",
            ] {
                assert!(text.contains(part), "{}: {part}", kind.name());
            }
        }
    }

    #[test]
    fn the_texts_name_the_default_thresholds() {
        let s = super::super::settings::Settings::default();
        for kind in [
            Kind::AsyncWriteStarvation,
            Kind::SyncWriteStarvation,
            Kind::ReadStarvation,
        ] {
            for part in [
                format!("for {} s", s.withheld_ms / 1_000),
                format!("critical from {} s", s.withheld_critical_ms / 1_000),
                format!("at least {} ", s.withheld_others),
                format!("under {:.0} %", s.crawling_share * 100.0),
                format!("more than {} s", s.crawling_ms / 1_000),
                format!("critical from {} s", s.crawling_critical_ms / 1_000),
            ] {
                assert!(explain(kind).contains(&part), "{}: {part}", kind.name());
            }
        }
        assert!(explain(Kind::QueueStuck).contains(&format!("for {} s", s.stuck_ms / 1_000)));
        for part in [
            format!("longer than {} s", s.journal_ms / 1_000),
            format!("critical from {} s", s.journal_critical_ms / 1_000),
        ] {
            assert!(explain(Kind::JournalStall).contains(&part), "{part}");
        }
        for part in [
            format!("longer than {} ms", s.fsync_ms),
            format!("more than {} times", s.fsync_factor),
            format!("critical from {} s", s.fsync_critical_ms / 1_000),
        ] {
            let text = explain(Kind::FsyncSerialization).replace('\n', " ");
            assert!(text.contains(&part), "{part}");
        }
    }
}
