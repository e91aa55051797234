//! One boot of a guest under QEMU, watched on its console.
//!
//! In: kernel, initramfs, disks, a time limit. Out: the console text and what was wrong with it. The accelerator is always
//! TCG: nested KVM hangs on some hosts, and what is compared here are ratios of waits, not speeds.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{kernels::Unpacked, scenario::Disk};
use crate::cmd::{command, output};

/// PCI slot of the first scenario disk; below are the chipset and the disk of the results.
const FIRST_SLOT: usize = 8;
/// Disks that fit on the PCI bus.
pub const MAX_DISKS: usize = 20;
/// How long the guest may need to power off once its work is done.
const OFF_LIMIT: Duration = Duration::from_secs(60);

/// What a boot needs.
pub struct Boot<'a> {
    /// Kernel.
    pub kernel: &'a Unpacked,
    /// Initramfs.
    pub initramfs: &'a Path,
    /// Folder for disks, console and results.
    pub dir: &'a Path,
    /// More words for the kernel's command line.
    pub cmdline: &'a str,
    /// Disks in the order of their slots.
    pub disks: Vec<&'a Disk>,
    /// The guest is ended after this time.
    pub limit: Duration,
}

/// What came of it.
#[derive(Debug)]
pub struct Booted {
    /// Faults seen on the console, the line with each.
    pub faults: Vec<String>,
    /// Results, unpacked; `None` when the guest wrote none.
    pub results: Option<PathBuf>,
    /// How long it took.
    pub took: Duration,
}

/// PCI slot of a disk, as two hexadecimal digits.
pub fn slot(index: usize) -> String {
    format!("{:02x}", FIRST_SLOT + index)
}

/// Boots, waits for the end, unpacks the results.
pub fn boot(b: &Boot) -> Result<Booted> {
    if b.disks.len() > MAX_DISKS {
        bail!(
            "{} disks in one boot, at most {MAX_DISKS} fit",
            b.disks.len()
        );
    }
    fs::create_dir_all(b.dir)?;
    let results = b.dir.join("results.img");
    sparse(&results, 1 << 30)?;
    for (i, disk) in b.disks.iter().enumerate() {
        sparse(
            &b.dir.join(format!("disk{i}.img")),
            u64::from(disk.size_mib) << 20,
        )?;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a limit on a child process is about real time"
    )]
    let start = Instant::now();
    let mut child = qemu(b)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("cannot start qemu-system-x86_64")?;
    let watched = watch(&mut child, b, start);
    // Whatever happened, no guest outlives its boot.
    child.kill().ok();
    child.wait().ok();
    let (faults, done) = watched?;
    let unpacked = if done {
        let dir = b.dir.join("results");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        output(command("tar").arg("-xf").arg(&results).arg("-C").arg(&dir))?;
        Some(dir)
    } else {
        None
    };
    for entry in fs::read_dir(b.dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "img") {
            fs::remove_file(path)?;
        }
    }
    Ok(Booted {
        faults,
        results: unpacked,
        took: start.elapsed(),
    })
}

fn sparse(path: &Path, bytes: u64) -> Result<()> {
    let file =
        fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    file.set_len(bytes)?;
    Ok(())
}

fn qemu(b: &Boot) -> Command {
    let mut cmd = command("qemu-system-x86_64");
    // One host thread for all CPUs of the guest. With one for each, a CPU may still run the int3 of a tracepoint that another CPU
    // has just finished patching (QEMU 7.2: "Oops: int3" in blk_mq_submit_bio as tracing was switched off under load).
    cmd.args(["-accel", "tcg,thread=single"]);
    // Five-level paging makes every TLB miss of the emulator longer.
    cmd.args(["-cpu", "max,-la57", "-smp", "2", "-m", "2560"]);
    cmd.args([
        "-nodefaults",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-no-reboot",
    ]);
    cmd.arg("-kernel").arg(&b.kernel.image);
    cmd.arg("-initrd").arg(b.initramfs);
    // mitigations cost much under emulation; loglevel 5 shows warnings but not the boot messages.
    cmd.arg("-append").arg(format!(
        "console=ttyS0 loglevel=5 panic=-1 mitigations=off random.trust_cpu=on {}",
        b.cmdline
    ));
    cmd.arg("-drive").arg(format!(
        "file={},if=virtio,format=raw,cache=unsafe",
        b.dir.join("results.img").display()
    ));
    for (i, disk) in b.disks.iter().enumerate() {
        let mut drive = format!(
            "file={},if=none,id=d{i},format=raw,cache=unsafe",
            b.dir.join(format!("disk{i}.img")).display()
        );
        if let Some(n) = disk.iops {
            drive.push_str(&format!(",throttling.iops-total={n}"));
        }
        if let Some(n) = disk.bps {
            drive.push_str(&format!(",throttling.bps-total={n}"));
        }
        cmd.arg("-drive").arg(drive);
        // virtio-blk takes 256 requests at once and the scheduler would never have to choose. One controller for
        // each disk, since the disks of a controller share its tags; one queue, as a SATA disk has.
        cmd.arg("-device").arg(format!(
            "virtio-scsi-pci,id=s{i},addr=0x{},num_queues=1",
            slot(i)
        ));
        cmd.arg("-device")
            .arg(format!("scsi-hd,drive=d{i},bus=s{i}.0"));
    }
    cmd
}

/// Follows the console until the guest ends, its time is over or its kernel died.
fn watch(child: &mut Child, b: &Boot, start: Instant) -> Result<(Vec<String>, bool)> {
    let out = child
        .stdout
        .take()
        .context("the console is not connected")?;
    let mut log = fs::File::create(b.dir.join("console"))?;
    let (send, lines) = mpsc::sync_channel::<String>(1024);
    std::thread::spawn(move || {
        let mut out = BufReader::new(out);
        let mut bytes = Vec::new();
        while out.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_string();
            bytes.clear();
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut faults = Vec::new();
    let mut done = false;
    let mut deadline = start + b.limit;
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "a limit on a child process is about real time"
        )]
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                writeln!(log, "{:8.2} {line}", start.elapsed().as_secs_f64())?;
                if let Some(said) = line.split("vm: ").nth(1) {
                    eprintln!("    {said}");
                    if said.starts_with("done ") {
                        done = true;
                        deadline = deadline.min(start + start.elapsed() + OFF_LIMIT);
                    }
                }
                if kernel_fault(&line) {
                    eprintln!("    FAULT {line}");
                    faults.push(line.clone());
                    if line.contains("Kernel panic") {
                        // The trace that follows explains it; then nothing comes any more.
                        deadline = deadline.min(start + start.elapsed() + Duration::from_secs(5));
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if !done {
                    faults.push(format!(
                        "the guest was ended after {} s",
                        start.elapsed().as_secs()
                    ));
                }
                break;
            }
        }
    }
    Ok((faults, done))
}

/// True for a line by which the kernel says that something went wrong with it.
pub fn kernel_fault(line: &str) -> bool {
    const SIGNS: &[&str] = &[
        "Kernel panic",
        "BUG: ",
        "kernel BUG at",
        "WARNING: ",
        "[ cut here ]",
        "Oops: ",
        "general protection fault",
        "soft lockup",
        "hard LOCKUP",
        "self-detected stall",
        "detected stalls on CPUs",
        "blocked for more than",
        "I/O error, dev ",
    ];
    SIGNS.iter().any(|s| line.contains(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_from_messages() {
        assert!(kernel_fault(
            "[    3.1] ------------[ cut here ]------------"
        ));
        assert!(kernel_fault(
            "[    3.1] WARNING: CPU: 0 PID: 1 at kernel/bpf/verifier.c:1"
        ));
        assert!(kernel_fault(
            "INFO: task fio:99 blocked for more than 120 seconds."
        ));
        assert!(!kernel_fault("vm: booted 6.12.0 after 7.1 s"));
        assert!(!kernel_fault(
            "clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable"
        ));
    }

    #[test]
    fn slots_are_hexadecimal() {
        assert_eq!((slot(0).as_str(), slot(8).as_str()), ("08", "10"));
        assert_eq!(slot(MAX_DISKS - 1), "1b");
    }
}
