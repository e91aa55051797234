//! An alert as a syslog message of RFC 5424. Pure.
//!
//! The message is the alert as one line of JSON or text; what a finding can be searched by is structured data beside it. The number behind
//! the @ is that for documentation (RFC 5612), since the project has none of its own.

use std::fmt::Write;

use super::{
    alert::{Alert, Event, Stamp},
    journald::{Priority, event_name, fields, finding},
};

/// Where the local syslog daemon listens.
pub const SOCKET: &str = "/dev/log";
/// The port of syslog over UDP.
pub const PORT: u16 = 514;
/// System daemons, times 8.
const FACILITY: u8 = 3 * 8;
const ID: &str = "io-starve@32473";

/// The datagram of an alert, with `message` as its text.
pub fn encode(alert: &Alert, message: &str) -> Vec<u8> {
    let stamp = stamp(&alert.event);
    let mut out = format!(
        "<{}>1 {} {} io-starve {} {} [{ID} event=\"{}\"",
        FACILITY + Priority::of(&alert.event) as u8,
        stamp.time,
        header_word(stamp.host.as_deref(), 255),
        std::process::id(),
        event_name(&alert.event),
        event_name(&alert.event),
    );
    for (name, value) in finding(&alert.event).map(fields).unwrap_or_default() {
        let _ = write!(out, " {name}=\"{}\"", escaped(&value));
    }
    // A byte order mark says that the message is UTF-8.
    let _ = write!(out, "] \u{feff}{}", message.trim_end());
    out.into_bytes()
}

fn stamp(event: &Event) -> &Stamp {
    match event {
        Event::Start(e) => &e.stamp,
        Event::Status(e) => &e.stamp,
        Event::Open(f) | Event::Update(f) | Event::Close(f) => &f.stamp,
        Event::Result(e) => &e.stamp,
        Event::Stop(e) => &e.stamp,
    }
}

/// Visible ASCII without blanks, `-` for what is not known.
fn header_word(word: Option<&str>, longest: usize) -> String {
    let word: String = word
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_graphic)
        .take(longest)
        .collect();
    if word.is_empty() {
        "-".to_owned()
    } else {
        word
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace(']', "\\]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_header_are_visible_and_values_escaped() {
        assert_eq!(header_word(None, 9), "-");
        assert_eq!(header_word(Some("db 1ä"), 9), "db1");
        assert_eq!(escaped(r#"/a"b]\c"#), r#"/a\"b\]\\c"#);
    }
}
