//! Words of scenario files.

use std::collections::BTreeMap;

use io_starve::detect::finding::{Confidence, Mechanism, Place, Rule, Severity};
use io_starve::detect::settings::Settings;
use io_starve::model::observation::*;
use io_starve_common::class::Class;
use serde::de::DeserializeOwned;

use super::MS;

/// `name=value` words and single words.
pub struct Opts(BTreeMap<String, String>);

impl Opts {
    pub fn parse(words: &[&str], allowed: &[&str], flags: &[&str]) -> Result<Opts, String> {
        let mut opts = BTreeMap::new();
        for word in words {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if allowed.contains(&name) => (name, value),
                None if flags.contains(word) => (*word, ""),
                _ => return Err(format!("unknown option `{word}`")),
            };
            if opts.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(format!("`{name}` twice"));
            }
        }
        Ok(Opts(opts))
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.get(name).map(number_of).transpose()
    }

    pub fn bytes(&self, name: &str) -> Result<Option<u64>, String> {
        self.get(name).map(bytes_of).transpose()
    }

    pub fn duration_ns(&self, name: &str) -> Result<Option<u64>, String> {
        Ok(self
            .get(name)
            .map(duration_ms)
            .transpose()?
            .map(|ms| ms * MS))
    }
}

pub fn one<T>(words: &[&str], read: fn(&str) -> Result<T, String>) -> Result<T, String> {
    match words {
        [word] => read(word),
        _ => Err("one value is needed".to_owned()),
    }
}

pub fn number_of(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{word}` is no number"))
}

pub fn bytes_of(word: &str) -> Result<u64, String> {
    for (unit, shift) in [("KiB", 10), ("MiB", 20), ("GiB", 30)] {
        if let Some(n) = word.strip_suffix(unit) {
            return Ok(number_of(n)? << shift);
        }
    }
    number_of(word)
}

/// `250ms`, `2.5s`.
pub fn signed_ms(word: &str) -> Result<i64, String> {
    let wrong = || format!("`{word}` is no time");
    let (number, unit) = match word.strip_suffix("ms") {
        Some(number) => (number, 1.0),
        None => (word.strip_suffix('s').ok_or_else(wrong)?, 1_000.0),
    };
    let n: f64 = number.parse().map_err(|_| wrong())?;
    Ok((n * unit).round() as i64)
}

pub fn duration_ms(word: &str) -> Result<u64, String> {
    u64::try_from(signed_ms(word)?).map_err(|_| format!("`{word}` is before the start"))
}

/// `2s..2.5s`, or a single moment.
pub fn range_ms(word: &str) -> Result<(u64, u64), String> {
    match word.split_once("..") {
        Some((from, to)) => Ok((duration_ms(from)?, duration_ms(to)?)),
        None => Ok((duration_ms(word)?, duration_ms(word)?)),
    }
}

pub fn within_ms(ns: u64, want: &str) -> Result<bool, String> {
    let (from, to) = range_ms(want)?;
    Ok((from * MS..=to * MS).contains(&ns))
}

pub fn within(n: u64, want: &str) -> Result<bool, String> {
    let (from, to) = want.split_once("..").unwrap_or((want, want));
    Ok((number_of(from)?..=number_of(to)?).contains(&n))
}

/// A name as JSON has it.
pub fn named<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(word.to_owned()))
        .map_err(|_| format!("unknown name `{word}`"))
}

/// `host v1`.
pub fn host(words: &[&str]) -> Result<Fact, String> {
    let cgroups = match words {
        ["v1"] => CgroupMode::V1,
        ["v2"] => CgroupMode::V2,
        _ => return Err("host v1 or v2".to_owned()),
    };
    Ok(Fact::Host(HostFact {
        name: "lab".to_owned(),
        kernel: "6.12".to_owned(),
        cgroups,
    }))
}

/// Refuses values that no finding can have.
pub fn known_word(name: &str, word: &str) -> Result<(), String> {
    match name {
        "rule" => named::<Rule>(word).map(drop),
        "class" | "culprit-class" => named::<Class>(word).map(drop),
        "mechanism" => named::<Mechanism>(word).map(drop),
        "stage" => named::<Place>(word).map(drop),
        "severity" => named::<Severity>(word).map(drop),
        "confidence" => named::<Confidence>(word).map(drop),
        "share" => within(0, word).map(drop),
        "culprit" if word != "none" => owner_of(word).map(drop),
        "reason" if !["resolved", "detached"].contains(&word) => {
            Err(format!("unknown reason `{word}`"))
        }
        "before-attach" if !["yes", "no"].contains(&word) => Err("yes or no".to_owned()),
        _ => Ok(()),
    }
}

pub fn owner_of(word: &str) -> Result<Owner, String> {
    match word {
        "unknown" => Ok(Owner::Unknown),
        "other" => Ok(Owner::Other),
        id => Ok(Owner::Cgroup(number_of(id)?)),
    }
}

pub fn dev_of(word: &str) -> Result<DevId, String> {
    let (major, minor) = word.split_once(':').ok_or("MAJOR:MINOR")?;
    let part = |w: &str| u32::try_from(number_of(w)?).map_err(|e| e.to_string());
    Ok(DevId::new(part(major)?, part(minor)?))
}

pub fn task(word: &str) -> Result<Task, String> {
    let (pid, comm) = word.split_once(':').ok_or("PID:COMM")?;
    Ok(Task {
        pid: u32::try_from(number_of(pid)?).map_err(|e| e.to_string())?,
        comm: comm.to_owned(),
    })
}

pub fn device(words: &[&str]) -> Result<DeviceFact, String> {
    let [dev, name, scheduler, opts @ ..] = words else {
        return Err("device MAJOR:MINOR NAME SCHEDULER".to_owned());
    };
    let known = ["none", "mq-deadline", "bfq", "kyber", "no-queue"];
    if !known.contains(scheduler) {
        return Err(format!("unknown scheduler `{scheduler}`"));
    }
    let mut fact = DeviceFact {
        dev: dev_of(dev)?,
        name: (*name).to_owned(),
        scheduler: (*scheduler != "no-queue").then(|| (*scheduler).to_owned()),
        tunables: Vec::new(),
        below: Vec::new(),
        rotational: None,
        iocost: None,
        backing_file: None,
    };
    for opt in opts {
        match opt.split_once('=') {
            Some(("below", dev)) => fact.below.push(dev_of(dev)?),
            Some(("iocost", "yes")) => fact.iocost = Some(true),
            Some(("backing", file)) => fact.backing_file = Some(file.to_owned()),
            Some((file, value)) if TUNABLES.contains(&file) => {
                fact.tunables.push((file.to_owned(), value.to_owned()))
            }
            _ => return Err(format!("unknown option `{opt}`")),
        }
    }
    fact.tunables.sort();
    Ok(fact)
}

const TUNABLES: [&str; 10] = [
    "logical_block_size",
    "iosched/writes_starved",
    "iosched/slice_idle",
    "iosched/write_expire",
    "iosched/prio_aging_expire",
    "iosched/async_depth",
    "iosched/low_latency",
    "async_depth",
    "wbt_lat_usec",
    "nr_requests",
];

pub fn hook(refused: bool, rest: &str) -> Result<Hook, String> {
    let (name, question) = rest.split_once(' ').unwrap_or((rest, ""));
    Ok(Hook {
        name: name.to_owned(),
        verdict: if refused {
            Verdict::Refused {
                why: "Operation not permitted".to_owned(),
            }
        } else {
            Verdict::Attached {
                via: "tp_btf".to_owned(),
            }
        },
        question: question.trim_matches('"').to_owned(),
        topic: if ["jbd2_", "ext4_", "folio_wait"]
            .iter()
            .any(|p| name.starts_with(p))
        {
            Topic::Journal
        } else if name == "balance_dirty_pages" {
            Topic::Dirty
        } else {
            Topic::Requests
        },
    })
}

/// Settings with one threshold changed.
pub fn set(settings: &Settings, words: &[&str]) -> Result<Settings, String> {
    let [name, value] = words else {
        return Err("set NAME VALUE".to_owned());
    };
    let mut json = serde_json::to_value(settings).map_err(|e| e.to_string())?;
    let value: serde_json::Value = serde_json::from_str(value).map_err(|e| e.to_string())?;
    // The type refuses names that it does not have.
    json[*name] = value;
    serde_json::from_value(json).map_err(|e| e.to_string())
}
