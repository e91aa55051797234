//! Each job of fio beside what was seen of it.
//!
//! The kernel counts by cgroup, disk and class. Jobs that share all three share their figures: they are compared together, and none of
//! them is said to have waited this or that. Buffered writes are written back later, for the cgroup: never told as a job's.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use io_starve_common::class::Class;

pub use super::view::{Agreement, AgreementVerdict, FioView, JobPart, JobRow, JobSyncs, Seen};

use super::output::{Direction, Job, Output};
use crate::{
    history::summary::{GroupRow, StageSum, Summary},
    model::observation::DevId,
};

/// fio and io-starve may differ by this part of the bytes before it is said that they do: requests at the ends of the run.
const TOLERANCE: f64 = 0.005;

/// What is known of the command's processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processes {
    /// Cgroup by process, as seen at ticks.
    pub cgroups: BTreeMap<u32, String>,
}

impl Processes {
    fn all(&self) -> BTreeSet<&str> {
        self.cgroups.values().map(String::as_str).collect()
    }
}

/// A group of requests that a part of a job may be in.
type Key = (DevId, String, Class);

struct Part<'a> {
    job: usize,
    class: Class,
    buffered: bool,
    told: &'a Direction,
    keys: BTreeSet<Key>,
}

/// Puts the two together. `pids`: the process of each job in fio's order, as far as it told them. `disks`: the disks that a path lies
/// on; `cwd`: where fio ran.
pub fn join(
    output: &Output,
    pids: &[u32],
    processes: &Processes,
    disks: &dyn Fn(&Path) -> Vec<DevId>,
    cwd: &Path,
    summary: &Summary,
) -> FioView {
    let mut parts = Vec::new();
    let mut jobs = Vec::new();
    for (i, job) in output.jobs.iter().enumerate() {
        let pid = pids.get(i).filter(|_| pids.len() == output.jobs.len());
        let cgroups = cgroups_of(output, job, pid.copied(), processes);
        let devices: BTreeSet<DevId> = paths(output, job, cwd)
            .iter()
            .flat_map(|p| disks(p))
            .collect();
        for (class, buffered, told) in directions(output, job) {
            let keys = devices.iter().flat_map(|dev| {
                let of = |cgroup: &String| (*dev, cgroup.clone(), class);
                cgroups.iter().map(of)
            });
            parts.push(Part {
                job: i,
                class,
                buffered,
                told,
                keys: keys.collect(),
            });
        }
        jobs.push(JobRow {
            name: job.jobname.clone(),
            error: Some(job.error).filter(|e| *e != 0),
            cgroups: cgroups.into_iter().collect(),
            devices: devices.iter().map(|dev| name_of(summary, *dev)).collect(),
            rate: rate(output, job),
            parts: Vec::new(),
            syncs: (job.sync.total_ios > 0).then_some(JobSyncs {
                count: job.sync.total_ios,
                mean_ns: (job.sync.lat_ns.n > 0).then_some(job.sync.lat_ns.mean),
            }),
        });
    }
    let together = components(&parts);
    for (part, members) in parts.iter().zip(&together) {
        let seen = seen(part, members, &parts, output, summary);
        jobs[part.job].parts.push(job_part(part, seen));
    }
    FioView {
        version: output.version.clone(),
        agreement: agreements(&parts, &together, output, summary),
        notes: notes(output, &parts, &together),
        jobs,
    }
}

fn name_of(summary: &Summary, dev: DevId) -> String {
    let row = summary.groups.iter().find(|g| g.dev == dev);
    row.map_or_else(|| dev.to_string(), |g| g.device.clone())
}

/// The cgroups that pay for a job.
fn cgroups_of(
    output: &Output,
    job: &Job,
    pid: Option<u32>,
    processes: &Processes,
) -> BTreeSet<String> {
    if let Some(cgroup) = pid.and_then(|pid| processes.cgroups.get(&pid)) {
        return BTreeSet::from([cgroup.clone()]);
    }
    // fio makes it below the root of the hierarchy.
    if let Some(cgroup) = output.option(job, "cgroup") {
        return BTreeSet::from([format!("/{}", cgroup.trim_matches('/'))]);
    }
    processes.all().into_iter().map(str::to_owned).collect()
}

/// The files of a job, or the folder that they are in.
fn paths(output: &Output, job: &Job, cwd: &Path) -> Vec<PathBuf> {
    let list = |name: &str| {
        output
            .option(job, name)
            .map(split_names)
            .unwrap_or_default()
    };
    let folders = list("directory");
    let files = list("filename");
    let folders = if folders.is_empty() {
        vec![String::new()]
    } else {
        folders
    };
    let mut paths = Vec::new();
    for folder in &folders {
        let folder = cwd.join(folder);
        if files.is_empty() {
            paths.push(folder);
        } else {
            paths.extend(files.iter().map(|f| folder.join(f)));
        }
    }
    paths
}

/// fio separates names by colons; one in a name is escaped.
fn split_names(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            ':' if !escaped => names.push(String::new()),
            c => names.iter_mut().last().into_iter().for_each(|n| n.push(c)),
        }
        escaped = false;
    }
    names.retain(|n| !n.is_empty());
    names
}

fn is_on(value: Option<&str>) -> bool {
    value.is_some_and(|v| !matches!(v, "0" | "none" | "false"))
}

/// What a job did: class, whether it went through the page cache, figures.
fn directions<'a>(output: &Output, job: &'a Job) -> Vec<(Class, bool, &'a Direction)> {
    let direct = is_on(output.option(job, "direct")) || output.option(job, "buffered") == Some("0");
    let synced = is_on(output.option(job, "sync"));
    let write = if direct || synced {
        Class::SyncWrite
    } else {
        Class::AsyncWrite
    };
    let all = [
        (Class::SyncRead, !direct, &job.read),
        (write, !direct, &job.write),
        (Class::Discard, false, &job.trim),
    ];
    all.into_iter().filter(|(.., d)| d.total_ios > 0).collect()
}

fn rate(output: &Output, job: &Job) -> Option<String> {
    let given = ["rate", "rate_iops", "thinktime"]
        .into_iter()
        .filter_map(|name| {
            let value = output.option(job, name)?;
            Some(format!("{name}={value}"))
        });
    let given: Vec<String> = given.collect();
    (!given.is_empty()).then(|| given.join(" "))
}

/// For each part all that share a key with it, or with one that does.
fn components(parts: &[Part<'_>]) -> Vec<BTreeSet<usize>> {
    let mut of: Vec<BTreeSet<usize>> = (0..parts.len()).map(|i| BTreeSet::from([i])).collect();
    for i in 0..parts.len() {
        for j in 0..i {
            if !of[i].contains(&j) && !parts[i].keys.is_disjoint(&parts[j].keys) {
                let all: BTreeSet<usize> = of[i].union(&of[j]).copied().collect();
                for member in &all {
                    of[*member] = all.clone();
                }
            }
        }
    }
    of
}

fn rows<'a>(
    members: &BTreeSet<usize>,
    parts: &[Part<'_>],
    summary: &'a Summary,
) -> Vec<&'a GroupRow> {
    let keys: BTreeSet<&Key> = members.iter().flat_map(|m| &parts[*m].keys).collect();
    let of = |g: &&GroupRow| keys.contains(&(g.dev, g.cgroup.clone(), g.class));
    summary.groups.iter().filter(of).collect()
}

fn seen(
    part: &Part<'_>,
    members: &BTreeSet<usize>,
    parts: &[Part<'_>],
    output: &Output,
    summary: &Summary,
) -> Seen {
    if part.class == Class::AsyncWrite {
        return Seen::Buffered;
    }
    if part.keys.is_empty() {
        return Seen::Unknown;
    }
    let rows = rows(members, parts, summary);
    if rows.is_empty() {
        return Seen::Nothing;
    }
    let requests = rows.iter().map(|r| r.requests).sum();
    let stages = [0, 1, 2].map(|stage| {
        let all = rows.iter().map(|r| r.stages[stage]);
        let (count, sum_ns) = all.clone().fold((0, 0u64), |(n, s), x| {
            (n + x.count, s.saturating_add(x.sum_ns))
        });
        StageSum {
            count,
            sum_ns,
            mean_ns: sum_ns.checked_div(count),
            max_ns: all.filter_map(|x| x.max_ns).max(),
        }
    });
    let others: BTreeSet<usize> = members
        .iter()
        .map(|m| parts[*m].job)
        .filter(|j| *j != part.job)
        .collect();
    if others.is_empty() {
        Seen::Alone { stages, requests }
    } else {
        let with = others.iter().map(|j| output.jobs[*j].jobname.clone());
        Seen::Shared {
            with: with.collect(),
            stages,
            requests,
        }
    }
}

fn job_part(part: &Part<'_>, seen: Seen) -> JobPart {
    let latency = &part.told.clat_ns;
    let known = |ns: f64| (latency.n > 0).then_some(ns);
    JobPart {
        class: part.class,
        ios: part.told.total_ios,
        bytes: part.told.io_bytes,
        mean_ns: known(latency.mean),
        p99_ns: latency.percentile.get("99.000000").copied(),
        max_ns: known(latency.max),
        seen,
    }
}

fn agreements(
    parts: &[Part<'_>],
    together: &[BTreeSet<usize>],
    output: &Output,
    summary: &Summary,
) -> Vec<Agreement> {
    let distinct: BTreeSet<&BTreeSet<usize>> = together.iter().collect();
    let mut list = Vec::new();
    for members in distinct {
        // What goes through the page cache is read ahead, merged and written at other times.
        if members
            .iter()
            .any(|m| parts[*m].buffered || parts[*m].keys.is_empty())
        {
            continue;
        }
        let rows = rows(members, parts, summary);
        let told = members.iter().map(|m| parts[*m].told);
        let (fio_ios, fio_bytes) = told.fold((0, 0), |(n, b), d| (n + d.total_ios, b + d.io_bytes));
        let bytes: u64 = rows.iter().map(|r| r.bytes).sum();
        let room = fio_bytes as f64 * TOLERANCE;
        let jobs: BTreeSet<usize> = members.iter().map(|m| parts[*m].job).collect();
        let Some(first) = members.first() else {
            continue;
        };
        list.push(Agreement {
            jobs: jobs
                .iter()
                .map(|j| output.jobs[*j].jobname.clone())
                .collect(),
            class: parts[*first].class,
            fio_ios,
            fio_bytes,
            requests: rows.iter().map(|r| r.seen).sum(),
            merged: rows.iter().map(|r| r.merged).sum(),
            bytes,
            verdict: match bytes as f64 - fio_bytes as f64 {
                d if d > room => AgreementVerdict::MoreSeen,
                d if d < -room => AgreementVerdict::LessSeen,
                _ => AgreementVerdict::Agrees,
            },
        });
    }
    list
}

fn notes(output: &Output, parts: &[Part<'_>], together: &[BTreeSet<usize>]) -> Vec<String> {
    let mut notes = Vec::new();
    if output
        .jobs
        .iter()
        .any(|j| output.option(j, "ramp_time").is_some())
    {
        notes.push("fio does not count what was done in its ramp_time; io-starve does".to_owned());
    }
    if parts.iter().any(|p| p.class == Class::AsyncWrite) {
        notes.push(
            "buffered writes are written back later, for their cgroup: not attributable to a job"
                .to_owned(),
        );
    }
    let shared = parts.iter().zip(together).any(|(p, members)| {
        p.class != Class::AsyncWrite && members.iter().any(|m| parts[*m].job != p.job)
    });
    if shared {
        notes.push(
            "jobs of one cgroup that do the same on one disk are told together; give each a cgroup of its own to tell them apart"
                .to_owned(),
        );
    }
    if parts.iter().any(|p| p.keys.is_empty()) {
        notes.push(
            "some jobs ended before their cgroup was seen, or the disk of their files is not known"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
