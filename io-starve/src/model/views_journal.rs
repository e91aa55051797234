//! What every front end shows of fsyncs and limits.

use super::Model;
use super::devices::display_name;
use super::observation::{DevId, Owner};
use super::snapshot::{FSYNC_SHOWN_NS, FsyncView, HoldView, SyncerView, WaitView};
use super::syncs::Sync;

impl Model {
    fn filesystem_name(&self, fs: DevId) -> String {
        self.filesystem(fs)
            .map_or_else(|| fs.to_string(), |f| f.mountpoint.clone())
    }

    fn fsync_view(&self, sync: &Sync, running: bool) -> FsyncView {
        let most = sync.delays.iter().max_by_key(|d| d.ns);
        FsyncView {
            call: sync.span.call,
            filesystem: self.filesystem_name(sync.span.fs),
            owner: sync.span.owner,
            task: sync.span.task.clone(),
            file: sync.span.file.clone(),
            begin_ns: sync.span.begin_ns,
            took_ns: sync.took_ns(self.now_ns()),
            running,
            result: sync.span.result,
            split: sync.split,
            waits: most.map(|d| WaitView {
                culprit: d.culprit,
                mechanism: d.mechanism,
                ns: d.ns,
                limit: d.limit.map(|(group, _)| group),
                sure: d.sure,
            }),
        }
    }

    pub(super) fn fsync_views(&self) -> Vec<FsyncView> {
        let now = self.now_ns();
        let running = self.syncs().running();
        let slow = running.filter(|s| s.took_ns(now) >= FSYNC_SHOWN_NS);
        slow.map(|s| self.fsync_view(s, true))
            .chain(self.syncs().recent().map(|s| self.fsync_view(s, false)))
            .collect()
    }

    pub(super) fn syncer_views(&self) -> Vec<SyncerView> {
        let mut all: Vec<_> = self.syncs().totals().iter().collect();
        all.sort_by(|a, b| b.1.sum_ns.cmp(&a.1.sum_ns).then(a.0.cmp(b.0)));
        all.into_iter()
            .map(|((fs, owner), t)| SyncerView {
                filesystem: self.filesystem_name(*fs),
                owner: *owner,
                count: t.count,
                mean_ns: t.sum_ns / t.count.max(1),
            })
            .collect()
    }

    pub(super) fn hold_views(&self) -> Vec<HoldView> {
        let now = self.now_ns();
        let limits = |group, dev| match group {
            Owner::Cgroup(id) => self.limit_on(id, dev).unwrap_or_default(),
            Owner::Unknown | Owner::Task(_) | Owner::Other => Default::default(),
        };
        let holds = self.syncs().holds().iter();
        holds
            .map(|h| HoldView {
                device: display_name(h.dev, self.devices.get(&h.dev)),
                group: h.group,
                owner: h.owner,
                write: h.write,
                count: h.count,
                age_ns: now.saturating_sub(h.since_ns),
                limits: limits(h.group, h.dev),
                used: self.limit_used(h.dev, h.group, h.write),
                held_share: self.held_share(h.dev, h.group, h.write),
            })
            .collect()
    }
}
