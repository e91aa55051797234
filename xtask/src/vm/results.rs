//! What a scenario brought out of its guest, read from its folder.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::check::io_ms;
use crate::cmd::output;

/// One line that `io-starve watch` or `replay` wrote.
#[derive(Debug, Clone)]
pub struct Alert {
    /// The line itself.
    pub line: String,
    /// The same, parsed.
    pub json: Value,
}

impl Alert {
    /// A text in it, by JSON pointer; empty when there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.json
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// A whole number in it; `None` when it is absent or null.
    pub fn number(&self, pointer: &str) -> Option<u64> {
        self.json.pointer(pointer).and_then(Value::as_u64)
    }

    /// `open`, `update`, `close`, …
    pub fn event(&self) -> &str {
        self.text("/event")
    }

    /// True for the lines that tell of findings.
    pub fn is_finding(&self) -> bool {
        matches!(self.event(), "open" | "update" | "close")
    }
}

/// Reads NDJSON.
pub fn parse_alerts(text: &str) -> Result<Vec<Alert>> {
    text.lines()
        .map(|line| {
            let json = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
            Ok(Alert {
                line: line.to_string(),
                json,
            })
        })
        .collect()
}

/// What the observer of a batch left.
#[derive(Debug, Default)]
pub struct Observed {
    /// The guest's own complaints.
    pub errors: Vec<String>,
    /// Moments: `attached`, `stop`. ns, monotonic.
    pub marks: BTreeMap<String, u64>,
    /// What io-starve wrote; empty when it did not run.
    pub alerts: Vec<Alert>,
    /// What the replay of its recording wrote.
    pub replay: Vec<Alert>,
    /// Exit codes of `watch` and `replay`.
    pub codes: BTreeMap<String, String>,
    /// stderr of `watch`.
    pub stderr: String,
    /// When it looked, by its recording. ns, monotonic.
    pub ticks: Vec<u64>,
}

impl Observed {
    /// Reads the folder of a batch.
    pub fn read(dir: &Path) -> Result<Observed> {
        let text = |name: &str| read_text(dir, name).unwrap_or_default();
        let mut codes = BTreeMap::new();
        for name in ["watch", "replay"] {
            let code = text(&format!("{name}.code"));
            if !code.is_empty() {
                codes.insert(name.to_string(), code.trim().to_string());
            }
        }
        Ok(Observed {
            errors: text("errors").lines().map(str::to_string).collect(),
            marks: parse_marks(&text("marks")),
            alerts: parse_alerts(&text("events.ndjson"))?,
            replay: parse_alerts(&text("replay.ndjson"))?,
            codes,
            stderr: text("watch.err"),
            ticks: ticks(&dir.join("run.rec"))?,
        })
    }
}

/// When the observations of a recording were made; none when there is no recording.
fn ticks(recording: &Path) -> Result<Vec<u64>> {
    if !recording.exists() {
        return Ok(Vec::new());
    }
    let text = output(
        Command::new("zstd")
            .args(["--decompress", "--stdout"])
            .arg(recording),
    )?;
    let tick = |line: &str| -> Option<u64> {
        let line: Value = serde_json::from_str(line).ok()?;
        line.pointer("/observation/mono_ns")?.as_u64()
    };
    Ok(text.lines().filter_map(tick).collect())
}

/// The kernel's own events of pauses for dirty memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// (ns, name of the backing device, length in ms) of those that made a task sleep.
    pub events: Vec<(u64, String, u64)>,
    /// Events that the trace lost.
    pub lost: u64,
}

/// Everything that one scenario left.
#[derive(Debug, Default)]
pub struct Results {
    /// The guest's own complaints.
    pub errors: Vec<String>,
    /// Name of the watched device, and its number as `major:minor`.
    pub device: (String, String),
    /// Text of the kernel's trace.
    pub trace: String,
    /// Events that the trace lost: overrun and dropped, over all CPUs.
    pub trace_lost: u64,
    /// The kernel's own events of pauses; `None` when they were not traced.
    pub pauses: Option<Pauses>,
    /// Memory that waited to be written behind the device: (ns, bytes).
    pub backlog: Vec<(u64, u64)>,
    /// fio's results by job name.
    pub fio: BTreeMap<String, Value>,
    /// How long the watched device was busy during the load by the kernel's own counter, in ms, where the load's script kept it.
    pub io_ms: Option<u64>,
    /// Moments of the scenario: `trace`, `load`, `loaded`. ns, monotonic.
    pub marks: BTreeMap<String, u64>,
    /// What `io-starve replay` made of the trace; empty when it was not asked.
    pub imported: Vec<Alert>,
}

impl Results {
    /// Reads the folder of one scenario. A file that must be there and is not is an error.
    pub fn read(dir: &Path) -> Result<Results> {
        let text = |name: &str| read_text(dir, name);
        let optional = |name: &str| text(name).unwrap_or_default();
        let mut fio = BTreeMap::new();
        for path in json_files(dir)? {
            let name = path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(&path)?;
            // fio prints warnings before its JSON.
            let json = text.find('{').map_or("", |at| &text[at..]);
            fio.insert(
                name,
                serde_json::from_str(json)
                    .with_context(|| format!("fio's {} is not JSON", path.display()))?,
            );
        }
        let watched = text("watched")?;
        let device = watched
            .trim()
            .split_once(' ')
            .context("the watched device has no number")?;
        Ok(Results {
            errors: optional("errors").lines().map(str::to_string).collect(),
            device: (device.0.to_string(), device.1.to_string()),
            trace: text("trace")?,
            trace_lost: parse_lost(&text("trace.stats")?),
            pauses: match text("pauses") {
                Ok(lines) => Some(Pauses {
                    events: parse_pauses(&lines),
                    lost: parse_lost(&text("pauses.stats")?),
                }),
                Err(_) => None,
            },
            backlog: parse_backlog(&optional("backlog")),
            fio,
            io_ms: io_ms(&optional("stat.before"), &optional("stat.after")),
            marks: parse_marks(&optional("marks")),
            imported: Vec::new(),
        })
    }

    /// Has this io-starve replay the trace in the folder of the scenario, here.
    pub fn import(&mut self, io_starve: &Path, dir: &Path) -> Result<()> {
        let text = output(
            Command::new(io_starve)
                .args(["replay", "--format", "json"])
                .arg(dir.join("trace")),
        )?;
        self.imported = parse_alerts(&text)?;
        Ok(())
    }
}

/// What a command left.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code, as text; empty when it did not run.
    pub code: String,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Ran {
    /// Reads what so many commands left in the folder of their scenario, and the guest's own complaints.
    pub fn read(dir: &Path, commands: usize) -> (Vec<Ran>, Vec<String>) {
        let text = |name: String| read_text(dir, &name).unwrap_or_default();
        let ran = (1..=commands).map(|n| Ran {
            code: text(format!("commands/{n}.code")).trim().to_string(),
            stdout: text(format!("commands/{n}.out")),
            stderr: text(format!("commands/{n}.err")),
        });
        let errors = text("errors".to_string());
        (ran.collect(), errors.lines().map(str::to_string).collect())
    }
}

fn read_text(dir: &Path, name: &str) -> Result<String> {
    let path = dir.join(name);
    fs::read(&path)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .with_context(|| {
            format!(
                "the guest left no {name}; look at the logs in {}",
                dir.display()
            )
        })
}

fn json_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// `12.34` seconds to ns.
fn seconds(s: &str) -> Option<u64> {
    let (s, cs) = s.split_once('.')?;
    Some(s.parse::<u64>().ok()? * 1_000_000_000 + cs.parse::<u64>().ok()? * 10_000_000)
}

fn parse_marks(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|l| l.split_once(' '))
        .filter_map(|(name, at)| Some((name.to_string(), seconds(at)?)))
        .collect()
}

fn parse_lost(text: &str) -> u64 {
    text.lines()
        .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// `fio-99 [001] ..... 12.345678: balance_dirty_pages: bdi 7:0: limit=… pause=120 period=…`; without a sleep the pause is not above 0.
fn parse_pauses(text: &str) -> Vec<(u64, String, u64)> {
    text.lines()
        .filter_map(|line| {
            let (before, rest) = line.split_once(": balance_dirty_pages: bdi ")?;
            let (whole, us) = before.split_whitespace().last()?.split_once('.')?;
            let at = whole.parse::<u64>().ok()? * 1_000_000_000 + us.parse::<u64>().ok()? * 1_000;
            let bdi = rest.split_once(": ")?.0.to_string();
            let pause = rest.split(' ').find_map(|w| w.strip_prefix("pause="))?;
            let ms = pause.parse::<u64>().ok().filter(|ms| *ms > 0)?;
            Some((at, bdi, ms))
        })
        .collect()
}

/// Lines of `TIME BdiWriteback: KB BdiReclaimable: KB … file_dirty BYTES file_writeback BYTES`: the disk's figures, and those of the
/// scenario's cgroup. Whichever is larger counts: before 6.10 the disk's leave out all cgroups but the root.
fn parse_backlog(text: &str) -> Vec<(u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let value = |name| {
                let at = words.iter().position(|w| *w == name)?;
                words.get(at + 1)?.parse::<u64>().ok()
            };
            let disk = (value("BdiWriteback:")? + value("BdiReclaimable:")?) * 1024;
            let cgroup = value("file_dirty")? + value("file_writeback")?;
            Some((seconds(words.first()?)?, disk.max(cgroup)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_guest_are_read() {
        assert_eq!(parse_marks("load 7.99\nend 32.04\n")["load"], 7_990_000_000);
        assert_eq!(
            parse_lost("overrun: 3\ncommit overrun: 0\ndropped events: 2\n"),
            5
        );
        let lines = "  fio-99 [001] ..... 12.345678: balance_dirty_pages: bdi 7:0: limit=4096 setpoint=3 dirty=9 pause=120 period=124 think=4\n\
                     fio-99 [001] ..... 12.400000: balance_dirty_pages: bdi 7:0: limit=4096 setpoint=3 dirty=9 pause=-4 period=0 think=4\n\
                     kworker/u4:0-1 [000] ..... 12.500000: balance_dirty_pages: bdi 8:0: limit=1 pause=8 period=0\n# tracer: nop\n";
        assert_eq!(
            parse_pauses(lines),
            [
                (12_345_678_000, "7:0".to_string(), 120),
                (12_500_000_000, "8:0".to_string(), 8)
            ]
        );
        let lines = "30.35 BdiWriteback: 8 BdiReclaimable: 4 b_io: 0 file_dirty 0 file_writeback 512\n\
                     30.85 BdiWriteback: 0 BdiReclaimable: 0 file_dirty 4096 file_writeback 4096\ntorn 30\n";
        assert_eq!(
            parse_backlog(lines),
            [(30_350_000_000, 12 << 10), (30_850_000_000, 8 << 10)]
        );
    }

    #[test]
    fn a_line_that_is_not_json_is_an_error() {
        assert!(parse_alerts("{\"event\":\"start\"}\nbroken\n").is_err());
        let a = parse_alerts("{\"event\":\"open\",\"n\":{\"m\":3}}\n").unwrap();
        assert!(a[0].is_finding());
        assert_eq!(a[0].number("/n/m"), Some(3));
        assert_eq!(a[0].number("/n/x"), None);
    }
}
