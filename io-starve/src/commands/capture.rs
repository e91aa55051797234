//! `capture-script`: commands that record what the detectors need, for machines where io-starve cannot be installed.

use crate::{
    cli::{CaptureArgs, CaptureTool},
    source::trace::{FS_TRACEPOINTS, What},
};

/// Size of the ring buffer of each CPU in KiB: some 150,000 events, which a disk of 1,000 requests a second makes in 30 s.
const BUFFER_KIB: u32 = 16_384;

/// The script.
pub(super) fn script(args: &CaptureArgs, disks: &[String]) -> String {
    let seconds = args.duration.as_secs_f64().ceil().max(1.0) as u64;
    let mut out = String::from(
        "#!/bin/sh\n\
         # Records what io-starve needs. Run it as root while the machine is slow, then replay the file elsewhere:\n\
         #   io-starve replay FILE\n\
         set -eu\n",
    );
    if args.tool != Some(CaptureTool::Blktrace) {
        out += &events();
    }
    for tool in CaptureTool::ALL {
        if args.tool.is_none_or(|t| t == tool) {
            out += &match tool {
                CaptureTool::Tracefs => tracefs(seconds),
                CaptureTool::TraceCmd => trace_cmd(seconds),
                CaptureTool::Perf => perf(seconds),
                CaptureTool::Blktrace => blktrace(disks, seconds),
            };
            if args.tool.is_none() {
                out += "exit\n";
            }
        }
    }
    out
}

/// The events that this machine has: recorders refuse those of modules that are not loaded.
fn events() -> String {
    let block = What::ALL.into_iter().filter_map(What::tracepoint);
    let names: Vec<String> = block
        .map(|name| format!("block/{name}"))
        .chain(FS_TRACEPOINTS.iter().map(|(s, name)| format!("{s}/{name}")))
        .collect();
    format!(
        "\nt=/sys/kernel/tracing; [ -d $t/events ] || t=/sys/kernel/debug/tracing\n\
         events=\n\
         for e in {}; do\n\
         \x20   [ ! -d $t/events/$e ] || events=\"$events $e\"\n\
         done\n",
        wrapped(&names, " ")
    )
}

/// Options of trace-cmd and perf.
const OPTIONS: &str =
    "options=; for e in $events; do options=\"$options -e ${e%/*}:${e#*/}\"; done\n";

fn trace_cmd(seconds: u64) -> String {
    format!(
        "\n# With trace-cmd.\n\
         {OPTIONS}\
         trace-cmd record -C mono -b {BUFFER_KIB} -o io-starve.dat $options sleep {seconds}\n\
         trace-cmd report -i io-starve.dat | gzip > io-starve.trace.gz\n"
    )
}

fn perf(seconds: u64) -> String {
    format!(
        "\n# With perf.\n\
         {OPTIONS}\
         perf record -a -k CLOCK_MONOTONIC -m 4096 -o io-starve.perf $options -- sleep {seconds}\n\
         perf script -i io-starve.perf --show-lost-events | gzip > io-starve.trace.gz\n"
    )
}

/// An instance of its own leaves what others trace alone.
fn tracefs(seconds: u64) -> String {
    format!(
        "\n# With nothing but a shell.\n\
         i=$t/instances/io-starve; mkdir $i\n\
         trap 'echo 0 > $i/events/enable; rmdir $i' EXIT\n\
         echo mono > $i/trace_clock; echo {BUFFER_KIB} > $i/buffer_size_kb\n\
         for e in $events; do echo 1 > $i/events/$e/enable; done\n\
         sleep {seconds}; echo 0 > $i/tracing_on\n\
         cat $i/trace | gzip > io-starve.trace.gz\n"
    )
}

fn blktrace(disks: &[String], seconds: u64) -> String {
    let disks: Vec<String> = match disks {
        [] => vec!["-d /dev/sda".to_owned()],
        disks => disks
            .iter()
            .map(|d| match d.starts_with('/') {
                true => format!("-d {d}"),
                false => format!("-d /dev/{d}"),
            })
            .collect(),
    };
    format!(
        "\n# With blktrace, which has to be told the disks; give io-starve one of the files, it finds the others.\n\
         blktrace -w {seconds} -b 1024 -n 8 {}\n",
        disks.join(" ")
    )
}

/// Words in lines that go on.
fn wrapped(words: &[String], between: &str) -> String {
    words
        .chunks(3)
        .map(|line| line.join(between))
        .collect::<Vec<_>>()
        .join(" \\\n    ")
}

#[cfg(test)]
mod tests {
    use std::{process::Command, time::Duration};

    use super::*;

    fn args(tool: Option<CaptureTool>) -> CaptureArgs {
        CaptureArgs {
            tool,
            duration: Duration::from_millis(2_500),
        }
    }

    #[test]
    fn every_event_that_is_read_is_recorded() {
        for tool in [
            CaptureTool::Tracefs,
            CaptureTool::TraceCmd,
            CaptureTool::Perf,
        ] {
            let text = script(&args(Some(tool)), &[]);
            let fs = FS_TRACEPOINTS.iter().map(|(_, name)| *name);
            for name in What::ALL.into_iter().filter_map(What::tracepoint).chain(fs) {
                assert!(text.contains(name), "{tool:?} {name}");
            }
            assert!(
                text.contains("sleep 3\n") || text.contains("sleep 3;"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_shell_can_read_it() {
        for tool in CaptureTool::ALL.into_iter().map(Some).chain([None]) {
            let text = script(&args(tool), &["sda".to_owned(), "/dev/mapper/x".to_owned()]);
            let checked = Command::new("sh")
                .args(["-n", "-c", &text])
                .status()
                .unwrap();
            assert!(checked.success(), "{text}");
        }
        let text = script(
            &args(Some(CaptureTool::Blktrace)),
            &["sda".to_owned(), "/dev/x".to_owned()],
        );
        assert!(text.contains("-d /dev/sda -d /dev/x\n"), "{text}");
    }
}
