//! The disk, the load, what observes it, and what the kernel's statistics say of that.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Switched, put_away};
use crate::cmd::{output, run, target};

const SECONDS: u32 = 4;
/// Programs that user space runs at ticks, or once for each tag at the start: no I/O waits for them.
const ON_DEMAND: [&str; 3] = ["seed", "sweep", "expire_bio"];
const DISK_MIB: u32 = 256;

/// The kernel counts what BPF programs cost; that itself costs some tens of ns a run, for all programs alike.
pub struct Statistics(#[expect(dead_code, reason = "switches back when dropped")] Switched);

impl Statistics {
    pub fn on() -> Result<Statistics> {
        Ok(Statistics(Switched::to(
            "/proc/sys/kernel/bpf_stats_enabled",
            "1",
        )?))
    }
}

/// A loop device with a scheduler on a file in memory.
pub struct Disk {
    device: String,
    mount: PathBuf,
}

impl Disk {
    pub fn new() -> Result<Disk> {
        let mount = target().join("bench");
        fs::create_dir_all(&mount)?;
        let dir = mount.display().to_string();
        run(Command::new("mount").args(["-t", "tmpfs", "tmpfs", &dir]))?;
        let mut disk = Disk {
            device: String::new(),
            mount,
        };
        let file = disk.mount.join("disk");
        fs::write(&file, vec![0x5a; (DISK_MIB << 20) as usize])?;
        let device = output(
            Command::new("losetup")
                .args(["--find", "--show"])
                .arg(&file),
        )?;
        disk.device = device.trim().to_string();
        fs::write(
            format!("/sys/block/{}/queue/scheduler", disk.name()),
            "mq-deadline",
        )?;
        Ok(disk)
    }

    fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }

    /// Random 4 KiB reads from two threads.
    pub fn load(&self) -> Result<Load> {
        let text = output(Command::new("fio").args([
            "--name=load",
            &format!("--filename={}", self.device),
            "--rw=randread",
            "--bs=4k",
            "--direct=1",
            "--ioengine=psync",
            "--numjobs=2",
            "--time_based",
            &format!("--runtime={SECONDS}"),
            "--group_reporting",
            "--output-format=json",
        ]))?;
        let fio: Value = serde_json::from_str(&text).context("fio's JSON")?;
        let read = &fio["jobs"][0]["read"];
        match (read["total_ios"].as_f64(), read["iops"].as_f64()) {
            (Some(ios), Some(iops)) if ios > 0.0 => Ok(Load {
                ios,
                iops,
                seconds: ios / iops,
            }),
            _ => bail!("fio's JSON has no count of reads"),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            put_away("losetup", &["--detach", &self.device]);
        }
        put_away("umount", &["--lazy", &self.mount.display().to_string()]);
    }
}

/// What fio did.
pub struct Load {
    ios: f64,
    iops: f64,
    pub seconds: f64,
}

/// (run_time_ns, run_cnt) by name of the program.
type Programs = BTreeMap<String, (f64, f64)>;

/// One run.
pub struct Sample {
    pub iops: f64,
    pub ns_per_io: f64,
    /// (name, ns a run) of what ran at least for every hundredth I/O.
    pub programs: Vec<(String, f64)>,
}

impl Sample {
    pub fn between(load: Load, before: Option<Programs>, after: Option<Programs>) -> Sample {
        let before = before.unwrap_or_default();
        let mut total = 0.0;
        let mut programs = Vec::new();
        let per_io = |(name, _): &(String, _)| !ON_DEMAND.contains(&name.as_str());
        for (name, (time, count)) in after.unwrap_or_default().into_iter().filter(per_io) {
            let (time0, count0) = before.get(&name).copied().unwrap_or_default();
            let (time, count) = (time - time0, count - count0);
            total += time;
            if count * 100.0 > load.ios {
                programs.push((name, time / count));
            }
        }
        Sample {
            iops: load.iops,
            ns_per_io: total / load.ios,
            programs,
        }
    }

    pub fn line(&self) -> String {
        format!("{:.0} ns per I/O, {:.0} IOPS", self.ns_per_io, self.iops)
    }
}

/// A process with BPF programs.
pub struct Observer {
    child: Child,
    pub start_ms: f64,
}

impl Observer {
    pub fn biolatency() -> Result<Observer> {
        let mut observer = Observer {
            child: Command::new("biolatency")
                .args(["-Q", "3600", "1"])
                .stdout(Stdio::null())
                .spawn()
                .context("biolatency of libbpf-tools")?,
            start_ms: 0.0,
        };
        #[expect(clippy::disallowed_methods, reason = "the bound of a wait")]
        let begin = Instant::now();
        while observer.programs()?.len() < 3 {
            if begin.elapsed() > Duration::from_secs(30) || observer.child.try_wait()?.is_some() {
                bail!("biolatency -Q did not attach its three programs");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(observer)
    }

    pub fn io_starve(binary: &Path, disk: &Disk, args: &[&str]) -> Result<Observer> {
        #[expect(clippy::disallowed_methods, reason = "the time that start-up takes")]
        let begin = Instant::now();
        let mut child = Command::new(binary)
            .args(["watch", "--device", disk.name(), "--output", "/dev/null"])
            .args(args)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stderr = child.stderr.take().context("no standard error")?;
        BufReader::new(stderr).read_line(&mut line)?;
        let observer = Observer {
            child,
            start_ms: begin.elapsed().as_secs_f64() * 1e3,
        };
        if !line.contains("attached") {
            bail!("io-starve did not attach: {line}");
        }
        Ok(observer)
    }

    /// Statistics of the programs that this process holds.
    pub fn programs(&self) -> Result<Programs> {
        let mut programs = Programs::new();
        let mut ids = Vec::new();
        for fd in fs::read_dir(format!("/proc/{}/fdinfo", self.child.id()))? {
            let text = fs::read_to_string(fd?.path()).unwrap_or_default();
            let id = text.lines().find_map(|l| l.strip_prefix("prog_id:"));
            ids.extend(id.and_then(|id| id.trim().parse::<u64>().ok()));
        }
        ids.sort_unstable();
        ids.dedup();
        let all = output(Command::new("bpftool").args(["--json", "prog", "show"]))?;
        let all: Value = serde_json::from_str(&all).context("bpftool's JSON")?;
        for p in all.as_array().into_iter().flatten() {
            let ours = p["id"].as_u64().is_some_and(|id| ids.contains(&id));
            if let (true, Some(name)) = (ours, p["name"].as_str()) {
                let number = |field: &str| p[field].as_f64().unwrap_or(0.0);
                programs.insert(name.to_string(), (number("run_time_ns"), number("run_cnt")));
            }
        }
        Ok(programs)
    }

    /// User and system time so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in parentheses may hold blanks; utime and stime are fields 14 and 15, in ticks of 10 ms.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        Ok(ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0)
    }

    pub fn rss_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("no VmRSS")? / 1024.0)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
