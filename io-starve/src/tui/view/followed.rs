//! Whether fsyncs are seen at all, and what to say where none was slow.

use super::Screen;
use crate::{
    model::{
        observation::{Hook, Topic, Verdict},
        snapshot::FSYNC_SHOWN_NS,
    },
    output::format,
};

/// Without one of these no fsync is followed; without others less is known of each.
const NEEDED: [&str; 2] = ["ext4_sync_file_enter", "ext4_sync_file_exit"];

/// What is to be said while no fsync is slow: that none is, or that none could be seen.
pub fn healthy(screen: &Screen<'_>) -> String {
    if let Some(why) = not_followed(screen) {
        return why;
    }
    let seen = screen.snap.syncers.iter().map(|s| s.count);
    let mut out = match seen.fold(0, u64::saturating_add) {
        0 => "no fsync seen yet".to_owned(),
        n => format!(
            "no fsync took longer than {}; {} seen",
            format::duration(FSYNC_SHOWN_NS),
            format::count(n)
        ),
    };
    let mut questions: Vec<String> = Vec::new();
    for hook in journal(screen).filter(|h| is_missing(h)) {
        let question = screen.safe(&hook.question);
        if !questions.contains(&question) {
            questions.push(question);
        }
    }
    if !questions.is_empty() {
        out += &format!("; cannot tell: {}", questions.join("; "));
    }
    out
}

fn journal<'a>(screen: &'a Screen<'_>) -> impl Iterator<Item = &'a Hook> {
    let hooks = screen.snap.hooks.iter();
    hooks.filter(|h| h.topic == Topic::Journal)
}

fn is_missing(hook: &Hook) -> bool {
    matches!(hook.verdict, Verdict::Refused { .. } | Verdict::Waits)
}

fn not_followed(screen: &Screen<'_>) -> Option<String> {
    if screen.snap.hooks.is_empty() {
        return Some("not known yet: no hook is attached".to_owned());
    }
    let needed: Vec<&Hook> = journal(screen)
        .filter(|h| NEEDED.contains(&h.name.as_str()))
        .collect();
    if needed.is_empty() {
        return Some("fsyncs are not followed: there is no hook for them here".to_owned());
    }
    needed.into_iter().find_map(|hook| {
        let name = &hook.name;
        let why = match &hook.verdict {
            Verdict::Attached { .. } => return None,
            Verdict::Refused { why } => format!("the hook {name} was refused: {why}"),
            Verdict::Absent => format!("this kernel does not have {name}"),
            Verdict::NotNeeded => format!("nothing on this machine needs {name} now"),
            Verdict::Waits => {
                return Some(
                    "no fsync can be seen yet: ext4 is not loaded; its fsyncs are followed once it is"
                        .to_owned(),
                );
            }
        };
        Some(screen.safe(&format!("fsyncs are not followed: {why}")))
    })
}
