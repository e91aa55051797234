//! Values of options: text to what it means, or a sentence on what to type instead.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{
    ValueEnum,
    builder::{PathBufValueParser, TypedValueParser},
};
use jiff::SignedDuration;

use super::{FailOn, is_dash};
use crate::detect::finding::{Kind, Severity};

/// A file, where standard output is not the place to write to: a recording is not text, and the output of a command
/// is its own. Who wants that all the same has to say so.
pub(super) fn named_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match is_dash(&path) {
        true => {
            Err("this goes to a file; give its name, or /dev/stdout if standard output is meant")
        }
        false => Ok(path),
    })
}

pub(super) fn time(text: &str) -> Result<SignedDuration, String> {
    text.parse()
        .map_err(|_| "give a time with its unit: 250ms, 10s, 5m, 1h30m".to_owned())
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match Duration::try_from(time(text)?) {
        Ok(d) if !d.is_zero() => Ok(d),
        _ => Err("give a time above 0: 250ms, 10s, 5m, 1h30m".to_owned()),
    }
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(50)..=Duration::from_secs(1);
    match Duration::try_from(time(text)?) {
        Ok(d) if range.contains(&d) => Ok(d),
        _ => Err("give a time from 50ms to 1s".to_owned()),
    }
}

pub(super) fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(f) if f > 0.0 && f64::is_finite(f) => Ok(f),
        _ => Err("give a number above 0: 0.5 is half as fast, 10 ten times as fast".to_owned()),
    }
}

/// Bytes, with or without a unit.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" | "B" => Some(0),
        "KiB" | "K" => Some(10),
        "MiB" | "M" => Some(20),
        "GiB" | "G" => Some(30),
        _ => None,
    };
    let bytes = digits.parse::<u64>().ok().zip(shift);
    bytes
        .and_then(|(n, shift)| n.checked_mul(1 << shift))
        .ok_or_else(|| "give a size: 64MiB, 2GiB, or bytes".to_owned())
}

/// An address to listen on: a port alone means this machine only.
pub(super) fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "give a port, for this machine only, or ADDRESS:PORT (0.0.0.0:9464, [::]:9464)".to_owned()
    })
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give KEY=VALUE, for instance site=berlin".to_owned()),
    }
}

/// A kind of finding by its name.
///
/// # Errors
/// With the name that is most like it.
pub fn kind(text: &str) -> Result<Kind, String> {
    if let Some(kind) = Kind::ALL.into_iter().find(|k| k.name() == text) {
        return Ok(kind);
    }
    let names = Kind::ALL.map(Kind::name);
    let hint = match nearest(text, &names) {
        Some(name) => format!("did you mean `{name}`? "),
        None => String::new(),
    };
    Err(format!(
        "no such kind; {hint}There are: {}",
        names.join(", ")
    ))
}

pub(super) fn fail_on(text: &str) -> Result<FailOn, String> {
    let (name, severity) = match text.split_once(':') {
        Some((name, severity)) => (name, Some(severity)),
        None => (text, None),
    };
    let severity = severity.map_or(Ok(Severity::Info), |s| {
        Severity::from_str(s, false)
            .map_err(|_| "the severity is one of info, warning, critical".to_owned())
    })?;
    Ok(FailOn {
        kind: kind(name)?,
        severity,
    })
}

/// The name most like a text, if any is like it at all.
pub fn nearest<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    // 0.7 is clap's own limit for suggestions.
    let likeness = |name: &&str| strsim::jaro_winkler(text, name);
    let best = names
        .iter()
        .copied()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= 0.7).then_some(best)
}
