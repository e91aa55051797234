//! What fio prints: JSON and text for its user in one stream, told apart line by line.

use std::collections::BTreeMap;

use serde::Deserialize;

/// As much JSON as is kept; fio needs about 10 KB for each job.
const MAX_JSON: usize = 64 << 20;

/// Takes a stream apart as it comes. JSON begins with a line that is `{` and ends with one that is `}`, which no line of fio's
/// other formats is.
#[derive(Debug, Default)]
pub struct Splitter {
    strip: bool,
    /// The beginning of a line that may become a brace.
    held: Vec<u8>,
    /// The line that is written now is no brace.
    passing: bool,
    in_json: bool,
    json: Vec<u8>,
    latest: Option<String>,
    /// Processes that fio named as those of jobs, in its order.
    pids: Vec<u32>,
    line: Vec<u8>,
}

impl Splitter {
    /// `strip`: JSON is not for the user.
    pub fn new(strip: bool) -> Splitter {
        Splitter {
            strip,
            ..Splitter::default()
        }
    }

    /// Takes in what was printed; returns what the user is to see of it.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.take(*byte, &mut shown);
        }
        shown
    }

    fn take(&mut self, byte: u8, shown: &mut Vec<u8>) {
        if self.in_json {
            if self.json.len() < MAX_JSON {
                self.json.push(byte);
            }
            if !self.strip {
                shown.push(byte);
            }
            if self.json.ends_with(b"\n}\n") {
                self.in_json = false;
                let text = std::mem::take(&mut self.json);
                self.latest = Some(String::from_utf8_lossy(&text).into_owned());
            }
            return;
        }
        if !self.passing {
            self.held.push(byte);
            match self.held.as_slice() {
                b"{" => return,
                b"{\n" => {
                    self.in_json = true;
                    if !self.strip {
                        shown.extend_from_slice(&self.held);
                    }
                    self.json = std::mem::take(&mut self.held);
                    return;
                }
                _ => {
                    shown.append(&mut self.held);
                    self.passing = true;
                }
            }
        } else {
            shown.push(byte);
        }
        if byte == b'\n' {
            self.passing = false;
            self.read_line();
            self.line.clear();
        } else if self.line.len() < 1_024 {
            self.line.push(byte);
        }
    }

    /// `a: (groupid=0, jobs=1): err= 0: pid=26737: Tue Dec  1 01:37:53 2026`.
    fn read_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        if let Some((_, rest)) = line.split_once("): err=")
            && line.contains(": (groupid=")
            && let Some((_, rest)) = rest.split_once(": pid=")
            && let Some(pid) = rest.split(':').next().and_then(|p| p.trim().parse().ok())
        {
            self.pids.push(pid);
        }
    }

    /// What is left: the end of the text that the user is to see, and what fio said.
    pub fn finish(mut self) -> (Vec<u8>, Printed) {
        let mut rest = std::mem::take(&mut self.held);
        // Cut short: better too much than too little.
        if self.in_json && self.strip {
            rest.append(&mut self.json);
        }
        let printed = Printed {
            json: self.latest,
            pids: self.pids,
        };
        (rest, printed)
    }
}

/// What fio said of its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// The last JSON object, whole.
    pub json: Option<String>,
    /// The process of each job (of the first job of a group that is reported as one), where the text has it.
    pub pids: Vec<u32>,
}

/// fio's JSON, as far as it is used.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Output {
    /// `fio-3.33`.
    #[serde(rename = "fio version", default)]
    pub version: String,
    /// Options of all jobs.
    #[serde(rename = "global options", default)]
    pub global: BTreeMap<String, String>,
    /// Each job, or group of jobs that is reported as one.
    #[serde(default)]
    pub jobs: Vec<Job>,
}

/// One job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Job {
    /// Its section.
    pub jobname: String,
    /// errno of its failure, 0 without one.
    #[serde(default)]
    pub error: i64,
    /// Options of its section.
    #[serde(rename = "job options", default)]
    pub options: BTreeMap<String, String>,
    /// Reads.
    #[serde(default)]
    pub read: Direction,
    /// Writes.
    #[serde(default)]
    pub write: Direction,
    /// Trims.
    #[serde(default)]
    pub trim: Direction,
    /// fsyncs and the like.
    #[serde(default)]
    pub sync: Syncs,
}

/// One direction of a job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Direction {
    /// Bytes.
    #[serde(default)]
    pub io_bytes: u64,
    /// I/Os.
    #[serde(default)]
    pub total_ios: u64,
    /// I/Os a second.
    #[serde(default)]
    pub iops: f64,
    /// Completion latency.
    #[serde(default)]
    pub clat_ns: Latency,
}

/// fsyncs of a job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Syncs {
    /// How many.
    #[serde(default)]
    pub total_ios: u64,
    /// How long they took.
    #[serde(default)]
    pub lat_ns: Latency,
}

/// A latency in ns.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Latency {
    /// Longest.
    #[serde(default)]
    pub max: f64,
    /// Mean.
    #[serde(default)]
    pub mean: f64,
    /// How many.
    #[serde(rename = "N", default)]
    pub n: u64,
    /// By per cent.
    #[serde(default)]
    pub percentile: BTreeMap<String, f64>,
}

impl Output {
    /// Reads fio's JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(json: &str) -> Result<Output, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// An option of a job: its own, or the one of all jobs.
    pub fn option<'a>(&'a self, job: &'a Job, name: &str) -> Option<&'a str> {
        let own = job.options.get(name).or_else(|| self.global.get(name));
        own.map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEFORE: &str =
        "\na: (g=0): rw=randread, bs=(R) 4096B-4096B\nfio-3.33\nStarting 1 process\n";
    const JSON: &str = "{\n  \"fio version\" : \"fio-3.33\",\n  \"jobs\" : [\n    {\n      \"jobname\" : \"a\"\n    }\n  ]\n}\n";
    const AFTER: &str = "\na: (groupid=0, jobs=1): err= 0: pid=26737: Tue Dec  1 01:37:53 2026\n  read: IOPS=13.7k\n}{\n";

    fn split(strip: bool, text: &str, step: usize) -> (String, Printed) {
        let mut splitter = Splitter::new(strip);
        let mut shown = Vec::new();
        for part in text.as_bytes().chunks(step) {
            shown.extend(splitter.push(part));
        }
        let (rest, printed) = splitter.finish();
        shown.extend(rest);
        (String::from_utf8(shown).unwrap(), printed)
    }

    #[test]
    fn the_user_sees_what_fio_would_have_printed() {
        let all = format!("{BEFORE}{JSON}{AFTER}");
        for step in [1, 2, 7, 4_096] {
            let (shown, printed) = split(true, &all, step);
            assert_eq!(shown, format!("{BEFORE}{AFTER}"));
            assert_eq!(printed.json.as_deref(), Some(JSON));
            assert_eq!(printed.pids, [26_737]);
            assert_eq!(split(false, &all, step).0, all);
        }
        let output = Output::parse(JSON).unwrap();
        assert_eq!(
            (output.version.as_str(), output.jobs.len()),
            ("fio-3.33", 1)
        );
    }

    #[test]
    fn the_last_of_several_counts_and_what_is_cut_short_is_shown() {
        let second = JSON.replace("\"a\"", "\"b\"");
        let (shown, printed) = split(true, &format!("{JSON}{second}"), 3);
        assert_eq!((shown.as_str(), printed.json), ("", Some(second)));
        let cut = &JSON[..JSON.len() - 3];
        let (shown, printed) = split(true, cut, 3);
        assert_eq!((shown.as_str(), printed.json), (cut, None));
    }

    #[test]
    fn progress_on_one_line_is_passed_on_at_once() {
        let mut splitter = Splitter::new(true);
        assert_eq!(splitter.push(b"Jobs: 1 (f=1)\r"), b"Jobs: 1 (f=1)\r");
    }

    proptest! {
        #[test]
        fn nothing_else_is_lost(text in "[a-z{}\n ]{0,60}") {
            prop_assume!(!format!("\n{text}").contains("\n{\n"));
            let (shown, _) = split(true, &text, 2);
            prop_assert_eq!(shown, text);
        }
    }
}
