//! fsyncs, what limits hold, and who waited for whom, in words: lines of text, and the sentences that the screen uses, too. Pure.

use std::fmt::Write;

use crate::{
    detect::fsync_words,
    model::{
        observation::{CgroupMode, Owner},
        snapshot::{HoldView, Snapshot, WaitView},
        syncs::Split,
    },
    output::format::{count, duration, printable},
};

/// Lines of one kind in [`super::table`], so that one table stays on one page.
const MOST: usize = 5;

/// Slow fsyncs, what limits hold, and who waited for whom, where there is any.
pub fn lines(snapshot: &Snapshot) -> String {
    let name = |owner| printable(&snapshot.owner_name(owner)).into_owned();
    let file = limit_file(snapshot);
    let fsyncs = snapshot.fsyncs.iter().map(|f| {
        let state = match (f.running, f.result) {
            (true, _) => "runs".to_owned(),
            (false, 0) => "took".to_owned(),
            (false, error) => format!("failed with error {} after", error.unsigned_abs()),
        };
        format!(
            "{state} {}: {} of {} on {} <- {}; {}",
            duration(f.took_ns),
            printable(f.what()),
            name(f.owner),
            printable(&f.filesystem),
            waits_for(f.waits.as_ref(), f.owner, Some(file), &name),
            split(&f.split)
        )
    });
    let holds = snapshot.holds.iter().map(|h| {
        format!(
            "{}, {}, {}",
            held(h, &printable(&h.device), &name),
            fsync_words::limits(&h.limits),
            fsync_words::bite(h.used, h.held_share)
        )
    });
    let blame = snapshot.blame.iter().map(|b| {
        let edge = b.edge;
        format!(
            "{} <- {}, {}, {}",
            name(edge.victim),
            name(edge.culprit),
            edge.mechanism.name(),
            duration(b.ns)
        )
    });
    let mut text = String::new();
    list(&mut text, "fsyncs that run or were slow lately", fsyncs);
    list(&mut text, "held by limits now", holds);
    list(&mut text, "who waited for whom, last minute", blame);
    text
}

/// A list under its title, in a few lines at most.
pub(super) fn list(
    text: &mut String,
    title: &str,
    mut lines: impl ExactSizeIterator<Item = String>,
) {
    if lines.len() == 0 {
        return;
    }
    let _ = writeln!(text, "{title}:");
    for line in lines.by_ref().take(MOST) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > 0 {
        let _ = writeln!(text, "  and {} more", count(lines.len() as u64));
    }
}

/// Where a cgroup's limits are set.
pub fn limit_file(snapshot: &Snapshot) -> &'static str {
    match snapshot.host.as_ref().map(|h| h.cgroups) {
        Some(CgroupMode::V1) => "blkio.throttle",
        _ => "io.max",
    }
}

/// Through what and for whom an owner waits: `journal-data: likely /backup.service, held by its io.max`. The limit is left out
/// without its file's name.
pub fn waits_for(
    wait: Option<&WaitView>,
    owner: Owner,
    file: Option<&str>,
    name: &dyn Fn(Owner) -> String,
) -> String {
    let Some(w) = wait else {
        return "not seen".to_owned();
    };
    let whom = match w.culprit {
        None => "not seen".to_owned(),
        Some(culprit) if culprit == owner => "itself".to_owned(),
        Some(culprit) if w.sure => name(culprit),
        Some(culprit) => format!("likely {}", name(culprit)),
    };
    let mut words = format!("{}: {whom}", w.mechanism.name());
    if let (Some(group), Some(file)) = (w.limit, file) {
        let whose = whose(group, w.culprit, file, name);
        let _ = write!(words, ", held by {whose}");
    }
    words
}

/// The limit of a group, as it is called beside this owner: `its io.max`, `io.max of /system.slice`.
pub fn whose(
    group: Owner,
    beside: Option<Owner>,
    file: &str,
    name: &dyn Fn(Owner) -> String,
) -> String {
    match beside {
        Some(owner) if owner == group => format!("its {file}"),
        _ => format!("{file} of {}", name(group)),
    }
}

/// What a limit holds: `12 writes for 3.2 s`.
pub fn held_amount(h: &HoldView) -> String {
    format!("{} for {}", held_things(h), duration(h.age_ns))
}

fn held_things(h: &HoldView) -> String {
    let what = match (h.write, h.count) {
        (true, 1) => "write",
        (true, _) => "writes",
        (false, 1) => "read",
        (false, _) => "reads",
    };
    format!("{} {what}", count(h.count))
}

/// The same with whose it is: `sda: /backup.service holds 12 writes for 3.2 s`.
pub fn held(h: &HoldView, device: &str, name: &dyn Fn(Owner) -> String) -> String {
    let of = match h.owner == h.group {
        true => String::new(),
        false => format!(" of {}", name(h.owner)),
    };
    let (what, since) = (held_things(h), duration(h.age_ns));
    format!("{device}: {} holds {what}{of} for {since}", name(h.group))
}

/// Where the time of an fsync went, by part.
pub fn split(s: &Split) -> String {
    let parts = [
        ("own data", s.data_ns),
        ("journal", s.journal_ns),
        ("flush", s.flush_ns),
        ("other", s.other_ns),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(name, ns)| format!("{name} {}", duration(ns)))
        .collect();
    match (parts.is_empty(), s.exact) {
        (true, _) => "its parts were not seen".to_owned(),
        (false, true) => parts.join(", "),
        (false, false) => format!("{}, as seen at ticks", parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::text::table, tui::fixtures};

    #[test]
    fn the_table_ends_with_fsyncs_holds_and_blame() {
        let text = table(&fixtures::serialized());
        let (_, journal) = text.split_once("fsyncs that").unwrap();
        let lines: Vec<&str> = journal.lines().collect();
        assert_eq!(
            lines,
            [
                " run or were slow lately:",
                "  runs 12.4 s: 0000000100000A3F of /postgres.service on /var/lib/postgresql <- journal-data: /backup.service, held by its io.max; own data 31 ms, journal 12.4 s",
                "  runs 9.1 s: daily-2026-03-14.tar of /backup.service on /var/lib/postgresql <- data-queue: itself, held by its io.max; own data 8.1 s, other 1.0 s, as seen at ticks",
                "  took 1.0 s: dovecot.index.log of /system.slice/dovecot.service on /var/mail <- journal-queue: /postgres.service; own data 2.0 ms, journal 946 ms, flush 100 ms",
                "  took 984 ms: pg_control of /postgres.service on /var/lib/postgresql <- transaction: likely /backup.service, held by io.max of /batch.slice; journal 784 ms, other 200 ms, as seen at ticks",
                "  failed with error 5 after 5.0 s: a file of /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f.slice/cri-containerd-9e1c.scope on /var/lib/etcd <- not seen; other 5.0 s, as seen at ticks",
                "  and 2 more",
                "held by limits now:",
                "  sda: /backup.service holds 12 writes for 3.2 s, wbps=262144, 98 % used, held something 71 % of the last minute",
                "  sda: /batch.slice holds 1 read of /reader.service for 41 ms, rbps=1048576 riops=100, held something 2 % of the last minute",
                "who waited for whom, last minute:",
                "  /postgres.service <- /backup.service, journal-data, 51.3 s",
                "  /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f.slice/cri-containerd-9e1c.scope <- /backup.service, transaction, 7.4 s",
                "  /system.slice/dovecot.service <- /postgres.service, journal-queue, 812 ms",
                "  /reader.service <- /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f.slice/cri-containerd-9e1c.scope, data-queue, 41 ms",
                "",
            ]
        );
        let quiet = table(&fixtures::quiet());
        assert!(
            !quiet.contains("fsync") && !quiet.contains("held by"),
            "{quiet}"
        );
        assert!(
            quiet.ends_with("\n\n") && !quiet.ends_with("\n\n\n"),
            "{quiet}"
        );
        assert_eq!(table(&Snapshot::default()), "\nno disk had I/O yet\n\n");
        let crowded = table(&fixtures::crowded());
        assert!(
            !crowded.contains('\u{1b}') && crowded.contains("  and 135 more\n"),
            "{crowded}"
        );
    }
}
