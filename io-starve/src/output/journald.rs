//! An alert as an entry of the systemd journal, by its native protocol. Pure.
//!
//! Every entry has MESSAGE (the alert in words), PRIORITY, SYSLOG_IDENTIFIER and IO_STARVE_EVENT. Those about findings
//! also have the IO_STARVE_ fields of [`fields`]; IO_STARVE_JSON is the whole alert. The protocol is that of
//! <https://systemd.io/JOURNAL_NATIVE_PROTOCOL>.

use super::{
    alert::{Alert, Cgroup, Event, FindingAlert, OwnerKind},
    text,
};
use crate::detect::finding::Severity;

/// Where journald listens.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// syslog's severities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Priority {
    /// A critical finding.
    Critical = 2,
    /// A warning.
    Warning = 4,
    /// Worth noticing: a finding that is an info, a start, an end.
    Notice = 5,
    /// That all is well.
    Info = 6,
}

impl Priority {
    /// How much an alert matters. The end of a finding is no alarm any more.
    pub fn of(event: &Event) -> Priority {
        match event {
            Event::Open(f) | Event::Update(f) => match f.severity {
                Severity::Critical => Priority::Critical,
                Severity::Warning => Priority::Warning,
                Severity::Info => Priority::Notice,
            },
            Event::Start(_) | Event::Result(_) | Event::Stop(_) | Event::Close(_) => {
                Priority::Notice
            }
            Event::Status(_) => Priority::Info,
        }
    }
}

/// Name of the event, as in JSON.
pub fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Start(_) => "start",
        Event::Status(_) => "status",
        Event::Open(_) => "open",
        Event::Update(_) => "update",
        Event::Close(_) => "close",
        Event::Result(_) => "result",
        Event::Stop(_) => "stop",
    }
}

/// What a finding can be searched by: (name, value); a name is left out where its value is not known.
pub fn fields(f: &FindingAlert) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", f.id.clone()),
        ("kind", f.kind.name().to_owned()),
        ("severity", f.severity.name().to_owned()),
        ("mechanism", f.mechanism.name().to_owned()),
        ("stage", f.stage.name().to_owned()),
        ("duration_ms", f.duration_ms.to_string()),
        ("longest_ms", f.longest_ms.to_string()),
    ];
    let mut known = |name, value: Option<String>| fields.extend(value.map(|v| (name, v)));
    known("device", f.device.as_ref().and_then(|d| d.name.clone()));
    known("mountpoint", f.mountpoint.clone());
    known("victim", who(f.victim.owner, f.victim.cgroup.as_ref()));
    let culprit = f.culprits.first();
    known(
        "culprit",
        culprit.and_then(|c| who(c.owner, c.cgroup.as_ref())),
    );
    known("recording", f.recording.clone());
    fields
}

fn who(owner: OwnerKind, cgroup: Option<&Cgroup>) -> Option<String> {
    match owner {
        OwnerKind::Cgroup => cgroup.and_then(|c| c.path.clone()),
        OwnerKind::Several => Some("several".to_owned()),
        OwnerKind::Task | OwnerKind::Unknown => None,
    }
}

/// The finding that an event is about.
pub fn finding(event: &Event) -> Option<&FindingAlert> {
    match event {
        Event::Open(f) | Event::Update(f) | Event::Close(f) => Some(f),
        Event::Start(_) | Event::Status(_) | Event::Result(_) | Event::Stop(_) => None,
    }
}

/// The datagram of an alert.
///
/// # Errors
/// Never for alerts made here; the encoder's error is passed on.
pub fn encode(alert: &Alert) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::new();
    field(&mut out, "MESSAGE", &text::line(alert));
    field(
        &mut out,
        "PRIORITY",
        &(Priority::of(&alert.event) as u8).to_string(),
    );
    field(&mut out, "SYSLOG_IDENTIFIER", "io-starve");
    field(&mut out, "IO_STARVE_EVENT", event_name(&alert.event));
    if let Some(f) = finding(&alert.event) {
        for (name, value) in fields(f) {
            field(
                &mut out,
                &format!("IO_STARVE_{}", name.to_uppercase()),
                &value,
            );
        }
        for (name, value) in &f.stamp.labels {
            field(&mut out, &label(name), value);
        }
    }
    field(&mut out, "IO_STARVE_JSON", &serde_json::to_string(alert)?);
    Ok(out)
}

/// A label as a name that journald takes: capital letters, digits and underscores, 64 at most.
fn label(name: &str) -> String {
    let allowed = |c: char| match c.to_ascii_uppercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    let prefix = "IO_STARVE_LABEL_";
    let name = name.chars().map(allowed).take(64 - prefix.len());
    prefix.chars().chain(name).collect()
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_several_lines_is_sent_with_its_length() {
        let mut out = Vec::new();
        field(&mut out, "A", "x=y");
        field(&mut out, "B", "1\n2");
        assert_eq!(out, b"A=x=y\nB\n\x03\0\0\0\0\0\0\x001\n2\n");
    }

    #[test]
    fn labels_become_names_that_journald_takes() {
        assert_eq!(label("site"), "IO_STARVE_LABEL_SITE");
        assert_eq!(label("a.b/ä"), "IO_STARVE_LABEL_A_B__");
        assert_eq!(label(&"x".repeat(100)).len(), 64);
    }
}
