//! `cargo xtask bench`: what io-starve costs, beside libbpf-tools' `biolatency -Q` in the same run.
//!
//! Out: ratios with their spread. Absolute figures are printed, never judged: the same command gives other ones
//! on the next machine, or an hour later on the same.

mod measure;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    cmd::{build_observer, is_root, output, run},
    setup,
};
use measure::{Disk, Observer, Sample, Statistics};

/// Hooks that only waits for admission need.
const ADMISSION: [&str; 5] = [
    "block_bio_queue",
    "block_getrq",
    "block_bio_backmerge",
    "block_bio_frontmerge",
    "block_bio_complete",
];

/// What runs beside the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Nothing,
    Biolatency,
    Core,
    Admission,
    Raw,
}

impl Case {
    const ALL: [Case; 5] = [
        Case::Nothing,
        Case::Biolatency,
        Case::Core,
        Case::Admission,
        Case::Raw,
    ];

    fn name(self) -> &'static str {
        match self {
            Case::Nothing => "nothing attached",
            Case::Biolatency => "biolatency -Q",
            Case::Core => "io-starve, insert + issue + complete",
            Case::Admission => "io-starve, with admission",
            Case::Raw => "io-starve, with admission, raw tracepoints",
        }
    }
}

/// Runs everything `rounds` times, interleaved, and prints the figures.
pub fn bench(rounds: u32) -> Result<()> {
    ensure!(is_root(), "bench attaches to this kernel: run it as root");
    setup::ensure(setup::BENCH)?;
    setup::ensure(setup::LIVE)?;
    let binary = build_observer()?;
    let disk = Disk::new()?;
    let _statistics = Statistics::on()?;
    let mut samples: BTreeMap<Case, Vec<Sample>> = BTreeMap::new();
    for round in 0..rounds {
        for case in Case::ALL {
            let sample = one(case, &binary, &disk)?;
            eprintln!("round {}: {} {}", round + 1, case.name(), sample.line());
            samples.entry(case).or_default().push(sample);
        }
    }
    report(&samples);
    footprint(&binary, &disk)
}

fn one(case: Case, binary: &Path, disk: &Disk) -> Result<Sample> {
    let observer = match case {
        Case::Nothing => None,
        Case::Biolatency => Some(Observer::biolatency()?),
        Case::Core => {
            let mut args = Vec::new();
            for hook in ADMISSION {
                args.extend(["--without-hook", hook]);
            }
            Some(Observer::io_starve(binary, disk, &args)?)
        }
        Case::Admission => Some(Observer::io_starve(binary, disk, &[])?),
        Case::Raw => Some(Observer::io_starve(binary, disk, &["--raw-tracepoints"])?),
    };
    let before = observer.as_ref().map(Observer::programs).transpose()?;
    let load = disk.load()?;
    let after = observer.as_ref().map(Observer::programs).transpose()?;
    Ok(Sample::between(load, before, after))
}

fn report(samples: &BTreeMap<Case, Vec<Sample>>) {
    println!(
        "\n| beside the load | BPF ns per I/O | of biolatency -Q | IOPS | programs (ns a run) |"
    );
    println!("|---|---|---|---|---|");
    let none = Vec::new();
    let reference = samples.get(&Case::Biolatency).unwrap_or(&none);
    for (case, of) in samples {
        let ns = of.iter().map(|s| s.ns_per_io);
        // Each round is compared with its own biolatency: what slows the machine slows both.
        let ratio = of
            .iter()
            .zip(reference)
            .map(|(s, r)| s.ns_per_io / r.ns_per_io);
        let iops = of.iter().map(|s| s.iops);
        let (ns, ratio) = if *case == Case::Nothing {
            ("-".to_string(), "-".to_string())
        } else {
            (spread(ns, 0), spread(ratio, 2))
        };
        println!(
            "| {} | {ns} | {ratio} | {} | {} |",
            case.name(),
            spread(iops, 0),
            programs(of)
        );
    }
    println!("\nMedian (least to most of {} rounds).", reference.len());
}

fn programs(of: &[Sample]) -> String {
    let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, ns) in of.iter().flat_map(|s| &s.programs) {
        all.entry(name).or_default().push(*ns);
    }
    let parts = all
        .into_iter()
        .map(|(name, ns)| format!("{name} {}", spread(ns.into_iter(), 0)));
    parts.collect::<Vec<_>>().join(", ")
}

/// `median (least to most)`.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    match (all.first(), all.get(all.len() / 2), all.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
        }
        _ => "-".to_string(),
    }
}

/// Start-up, CPU and memory of the process, memory of the maps.
fn footprint(binary: &Path, disk: &Disk) -> Result<()> {
    let mut starts = Vec::new();
    let mut cpu = Vec::new();
    let mut rss = Vec::new();
    for _ in 0..3 {
        let observer = Observer::io_starve(binary, disk, &[])?;
        starts.push(observer.start_ms);
        let begin = observer.cpu_seconds()?;
        let load = disk.load()?;
        cpu.push((observer.cpu_seconds()? - begin) / load.seconds * 100.0);
        rss.push(observer.rss_mib()?);
    }
    let doctor = output(std::process::Command::new(binary).args(["doctor", "--json"]))?;
    let doctor: serde_json::Value = serde_json::from_str(&doctor).context("doctor's JSON")?;
    println!("start to attached: {} ms", spread(starts.into_iter(), 0));
    println!(
        "CPU of the process under load: {} % of a core",
        spread(cpu.into_iter(), 1)
    );
    println!("resident memory: {} MiB", spread(rss.into_iter(), 1));
    match doctor["map_bytes"].as_f64() {
        Some(bytes) => println!("maps: {:.1} MiB", bytes / f64::from(1 << 20)),
        None => println!("maps: unknown"),
    }
    Ok(())
}

/// Switches something in /proc or /sys for as long as this lives.
pub struct Switched {
    file: PathBuf,
    before: String,
}

impl Switched {
    fn to(file: &str, value: &str) -> Result<Switched> {
        let file = PathBuf::from(file);
        let before = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, value).with_context(|| file.display().to_string())?;
        Ok(Switched { file, before })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, self.before.trim());
    }
}

/// Unmounts and detaches; what fails is left for the next start to complain about.
fn put_away(program: &str, args: &[&str]) {
    let _ = run(std::process::Command::new(program).args(args));
}
