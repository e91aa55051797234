//! What `io-starve explain` says about findings of weights.

pub const WEIGHT: &str = "\
weight-unfairness: somebody gets less of a disk than the weights say, or waits while the disk is idle.

io.weight, io.bfq.weight (systemd: IOWeight) and blkio weights divide a disk among cgroups that compete for it, level by level. Only BFQ \
and the iocost controller do that: with none, mq-deadline or kyber weights are set and nothing happens. Where one of them is active, its \
idling and its preference for some tasks bend the shares. The kernel no longer counts who got what (group_wait_time and its kin are \
compiled out everywhere); io-starve does, on disks where BFQ or iocost is active or a weight is set.

How it is judged, for each disk and owner, in three windows of 5 s, one after the other: it has something in admission or queued for at least half \
of the window, it obtained less than 0.75 of the device time that it is entitled to, another active owner obtained more than its \
share, and a weight other than 100 is set on one of them or above. Entitled is what the weights say among those that are active, for a \
tenth of the window at least: with a at 100, children of a at 300 and 100, and b at 100, that is 37.5, 12.5 and 50 %, and 50 % each for a's second \
child and b while the first is idle. Device time that several requests share is divided equally among them, so the parts sum to \
the time in which the disk is busy. Or, with weights or without: in each window the disk was idle for 0.2 of the time while the owner waited, and \
others use the disk; not with iocost, which keeps a disk below a rate on purpose.

Mechanisms:
  not-enforced  neither BFQ nor iocost is active on the disk, or what is set is not what it looks at (io.weight on BFQ).
  misallocated  BFQ or iocost is active, and the shares are off.
  idling        the disk is idle while the owner waits: BFQ waits for the next request of whoever it served last (slice_idle), as in the \
report of 2017, where a greedy group got less than a polite one of the same weight.
`likely` when the weight of one of those that are active is not known, or when events were lost.

Known false positives: an owner that asks for little, one request after another, and waits for each longer than it thinks. \
Writes that were buffered are charged to the root with cgroup v1, and stand beside the others there with a weight of 100.

What to do: where nothing enforces weights choose BFQ (echo bfq > /sys/block/NAME/queue/scheduler) or enable iocost (io.cost.qos of the \
root cgroup), or limit the other one (io.max). On BFQ set slice_idle to 0 where the disk is idle, low_latency to 0 where interactive tasks \
are preferred. The cgroup view (key 7) shows the tree with entitled and obtained shares.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::settings::Settings;

    #[test]
    fn the_text_names_the_default_thresholds() {
        let s = Settings::default();
        for part in [
            format!("less than {} of the device time", s.unfair_share),
            format!("idle for {} of the time", s.idle_share),
        ] {
            assert!(WEIGHT.contains(&part), "{part}");
        }
    }
}
