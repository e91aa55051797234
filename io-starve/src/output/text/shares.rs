//! Shares of disks as text: who is entitled to what and what they got. Pure.

use std::fmt::Write;

use crate::{
    detect::weight_words::percent,
    model::{
        snapshot::{ShareRow, ShareView, Snapshot},
        weights::Enforcer,
    },
    output::format::{duration, or_dash, printable, rate},
};

/// Lines of one disk.
const MAX_LINES: usize = 12;

/// The part of the table about shares, each line ended; empty where device time is not counted.
pub fn lines(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for view in snapshot.shares.iter().filter(|v| v.rows.len() > 1) {
        let _ = writeln!(text, "{}:", title(view));
        for row in view.rows.iter().take(MAX_LINES) {
            let indent = "  ".repeat(row.depth.min(6) + 1);
            let _ = writeln!(
                text,
                "{indent}{}: {}",
                printable(&row.path),
                figures(row).join(", ")
            );
        }
        match view.rows.len().saturating_sub(MAX_LINES) {
            0 => {}
            n => {
                let _ = writeln!(text, "  and {n} more");
            }
        }
    }
    text
}

/// What is said of the disk as a whole.
pub fn title(view: &ShareView) -> String {
    let by = match (view.enforcer, &view.scheduler) {
        (Enforcer::Nobody, Some(scheduler)) => {
            format!("weights are not enforced by {}", printable(scheduler))
        }
        (Enforcer::Nobody, None) => "weights are not enforced".to_owned(),
        (by, _) => format!("weights are enforced by {}", by.name()),
    };
    let mut out = format!(
        "shares of {}, last 5 s, {by}, busy {}",
        printable(&view.name),
        percent(view.busy_share)
    );
    if view.idle_waited_share >= 0.01 {
        out += &format!(
            ", idle while somebody waits {}",
            percent(view.idle_waited_share)
        );
    }
    out
}

/// The figures of a cgroup, the main ones first.
pub fn figures(row: &ShareRow) -> Vec<String> {
    let mut out = vec![
        format!("weight {}", or_dash(row.weight, |w| w.to_string())),
        format!(
            "got {} of {}",
            percent(row.obtained),
            or_dash(row.entitled, percent)
        ),
    ];
    out.extend(rest(row));
    out
}

/// The same without weight and shares.
pub fn rest(row: &ShareRow) -> Vec<String> {
    let mut out = vec![format!("{} served/s", rate(row.served_per_s))];
    if row.owner.is_some() {
        out.push(format!(
            "waits {} of the time, {} without anything in the device",
            percent(row.waited_share),
            percent(row.group_wait_share)
        ));
        let [admission, queued, device] = row.mean_ns.map(|ns| or_dash(ns, duration));
        out.push(format!(
            "admission {admission} queued {queued} device {device}"
        ));
    }
    out.extend(
        row.held_share
            .map(|s| format!("held by its own limit {} of the time", percent(s))),
    );
    out.extend(
        row.pressure
            .map(|(some, full)| format!("io psi {some:.0}/{full:.0}")),
    );
    out.extend(
        row.prio_class
            .as_ref()
            .map(|class| format!("io.prio.class {}", printable(class))),
    );
    out.extend(
        row.latency_us
            .map(|us| format!("io.latency {}", duration(us.saturating_mul(1_000)))),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    #[test]
    fn who_got_what_is_said_and_nothing_where_it_is_not_counted() {
        let text = lines(&fixtures::shared());
        for part in [
            "shares of sda, last 5 s, weights are not enforced by mq-deadline, busy 99 %",
            "  /a.slice: weight 100, got 33 % of 50 %",
            "    /a.slice/x.service: weight 300, got 20 % of 38 %",
            "waits 98 % of the time, 41 % without anything in the device",
            "held by its own limit 71 % of the time",
            "weight -, got 3 % of -",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(lines(&fixtures::healthy()), "");
    }
}
