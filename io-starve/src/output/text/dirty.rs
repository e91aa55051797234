//! Who is paused for dirty memory, and loop devices whose writers are, in words. Pure.

use super::journal::list;
use crate::{
    detect::dirty_words::bytes,
    model::snapshot::Snapshot,
    output::format::{count, duration, printable},
};

/// Backing devices, who is paused, and loop devices on which somebody is; nothing where nobody is.
pub fn lines(snapshot: &Snapshot) -> String {
    let per_cent = |share: f64| format!("{:.0} %", share * 100.0);
    let bdis = snapshot.bdis.iter().map(|b| {
        let mut line = format!(
            "{} of the time behind {}, longest {}",
            per_cent(b.paused_share),
            printable(&b.name),
            duration(b.longest_ns)
        );
        if let (Some(dirty), Some(limit)) = (b.dirty, b.limit) {
            line += &format!(", {} dirty of {}", bytes(dirty), bytes(limit));
        }
        if let Some(share) = b.busy_share {
            line += &format!(", {} busy", per_cent(share));
        }
        line
    });
    let paused = snapshot.paused.iter().map(|p| {
        let who = match &p.worker {
            Some(worker) => format!("the worker of {}", printable(worker)),
            None => printable(&snapshot.owner_name(p.owner)).into_owned(),
        };
        let mut line = format!(
            "{who} on {}, {} of the time, {} pauses",
            printable(&p.name),
            per_cent(p.paused_share),
            count(p.pauses)
        );
        if let Some(task) = p.now.first() {
            line += &format!(", now {} {}", printable(&task.comm), task.pid);
        }
        line
    });
    let is_paused =
        |share: f64, worker: Option<f64>| share > 0.0 || worker.is_some_and(|s| s > 0.0);
    let loops: Vec<String> = snapshot
        .loops
        .iter()
        .filter(|l| is_paused(l.paused_share, l.worker_share))
        .map(|l| {
            let mut line = format!(
                "{}{}: paused {}",
                "  ".repeat(l.depth.min(4)),
                printable(&l.name),
                per_cent(l.paused_share)
            );
            if let Some(share) = l.worker_share {
                line += &format!(", its worker {}", per_cent(share));
            }
            if let Some(file) = &l.file {
                let deleted = if l.deleted { " (deleted)" } else { "" };
                line += &format!(", file {}{deleted}", printable(file));
            }
            line
        })
        .collect();
    let mut text = String::new();
    list(&mut text, "paused for dirty memory, last 5 s", bdis);
    list(&mut text, "who is paused", paused);
    // A disk alone is no loop device.
    if loops.len() > 1 {
        list(&mut text, "loop devices", loops.into_iter());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    #[test]
    fn who_is_paused_is_said_and_nothing_where_nobody_is() {
        let text = lines(&fixtures::throttled());
        for part in [
            "94 % of the time behind loop1, longest 200 ms, 9.0 MiB dirty of 11 MiB, 99 % busy",
            "/copy.service on loop1, 94 % of the time, 31 pauses, now cp 1200",
            "the worker of loop0 on sda, 78 % of the time",
            "loop1: paused 94 %, its worker 86 %, file /mnt/in/disk image.img (deleted)",
            "      sda: paused 78 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(lines(&fixtures::healthy()), "");
    }
}
