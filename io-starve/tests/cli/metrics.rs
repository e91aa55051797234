//! Metrics as scrapers meet them: both notations, Prometheus' own checker, and those who mean harm.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    PATIENCE,
    stream::{Run, starvation},
    watch::{Daemon, until},
};

/// A `watch` of a recording, this many times as fast as it was, with its metrics.
fn serve(speed: &str) -> (Daemon, SocketAddr, tempfile::NamedTempFile) {
    let recording = Run::new().record(&starvation());
    let path = recording.path().to_str().unwrap().to_owned();
    let (daemon, said) = Daemon::start_until(
        &["--metrics", "0", "--speed", speed, "--replay", &path],
        "/metrics",
    );
    let address = said.split("http://").nth(1).unwrap();
    let address = address.split('/').next().unwrap().parse().unwrap();
    (daemon, address, recording)
}

fn ask(address: SocketAddr, request: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn scrape(address: SocketAddr, accept: &str) -> (String, String) {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    let answer = ask(address, request.as_bytes()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    (head.to_owned(), body.to_owned())
}

fn series(page: &str) -> BTreeMap<String, f64> {
    page.lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| {
            let (series, value) = l.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn ticks(address: SocketAddr) -> f64 {
    series(&scrape(address, "*/*").1)
        .get("io_starve_ticks_total")
        .copied()
        .unwrap_or(0.0)
}

#[test]
fn a_finding_shows_in_the_metrics_and_counters_grow() {
    let (daemon, address, _recording) = serve("20");
    let open = "io_starve_findings_open{kind=\"async-write-starvation\",severity=\"critical\"}";
    let mut before: BTreeMap<String, f64> = BTreeMap::new();
    let page = until("the finding is critical", || {
        let (head, page) = scrape(address, "*/*");
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        let now = series(&page);
        let counters = now.iter().filter(|(s, _)| {
            let name = s.split('{').next().unwrap();
            name.ends_with("_total") || name.ends_with("_bucket") || name.ends_with("_count")
        });
        for (series, value) in counters {
            assert!(
                value >= before.get(series).unwrap_or(&0.0),
                "{series} shrank"
            );
        }
        before.clone_from(&now);
        (now.get(open) == Some(&1.0)).then_some(now)
    });
    let value = |series: &str| *page.get(series).unwrap_or_else(|| panic!("no {series}"));
    assert_eq!(
        value("io_starve_findings_told_total{kind=\"async-write-starvation\"}"),
        1.0
    );
    assert!(value("io_starve_blame_seconds_total{mechanism=\"scheduler\"}") > 5.0);
    assert!(value("io_starve_oldest_wait_seconds{device=\"sda\",class=\"async-write\"}") > 9.0);
    assert_eq!(value("io_starve_hooks{verdict=\"attached\"}"), 2.0);
    assert_eq!(value("io_starve_hooks{verdict=\"refused\"}"), 1.0);
    assert!(
        value("io_starve_owner_oldest_wait_seconds{cgroup=\"/system.slice/backup.service\"}") > 9.0
    );
    assert!(value("io_starve_lines_written_total{output=\"standard output\"}") >= 2.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    let waits = "io_starve_owner_wait_seconds_total{cgroup=\"/system.slice/reader.service\",stage=\"queued\"}";
    assert!(value(waits) > 1.0);
    let (head, open_metrics) = scrape(address, "application/openmetrics-text;version=1.0.0");
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(open_metrics.ends_with("# EOF\n"));
    promtool(&scrape(address, "*/*").1);
    drop(daemon);
}

/// Prometheus' own opinion of a page.
fn promtool(page: &str) {
    let Some((good, said)) = run_promtool(&["check", "metrics"], page) else {
        return;
    };
    assert!(good && said.is_empty(), "{said}");
}

/// Whether promtool is content, and what it says; `None` when it is not installed.
fn run_promtool(args: &[&str], input: &str) -> Option<(bool, String)> {
    let child = Command::new("promtool")
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: promtool is not installed");
        return None;
    };
    child.stdin.take()?.write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output.status.success(), said))
}

#[test]
fn the_shipped_rules_do_what_their_tests_say() {
    for args in [
        ["check", "rules", "io-starve.rules.yml"],
        ["test", "rules", "io-starve.rules.test.yml"],
    ] {
        if let Some((good, said)) = run_promtool(&args, "") {
            assert!(good, "{said}");
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_answered_or_cut() {
    let (daemon, address, _recording) = serve("1");
    let status = |request: &[u8]| ask(address, request).unwrap_or_default();
    assert!(status(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(status(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").contains("see /metrics"));
    assert!(
        status(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n")
            .starts_with("HTTP/1.1 405")
    );
    assert!(status(b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    // Whoever sends too much may find the door closed before the answer is read.
    let long = [b"GET /metrics?", &vec![b'x'; 1 << 20][..]].concat();
    let answer = status(&long);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    scrape(address, "*/*");
    drop(daemon);
}

#[test]
fn an_address_that_is_taken_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = crate::io_starve(["watch", "--metrics", &port]);
    let (code, _, err) = crate::outcome(&mut command);
    assert_eq!(code, 1);
    assert!(err.contains("another program listens there"), "{err}");
}

#[test]
fn scrapers_do_not_slow_the_ticks() {
    // 40 ticks a second, ten times as many as a live run has.
    let (daemon, address, _recording) = serve("10");
    until("the first tick", || (ticks(address) > 0.0).then_some(()));
    let stop = Arc::new(AtomicBool::new(false));
    let scrapes = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..10 {
        let (stop, scrapes) = (stop.clone(), scrapes.clone());
        threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                scrape(address, "*/*");
                scrapes.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }));
    }
    for slow in [b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), b"G"] {
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || {
            // Reads, or sends, a byte a second, again and again.
            while !stop.load(Ordering::Relaxed) {
                let mut stream = TcpStream::connect(address).unwrap();
                let _ = stream.write_all(slow);
                for _ in 0..50 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }));
    }
    let flood = stop.clone();
    threads.push(std::thread::spawn(move || {
        while !flood.load(Ordering::Relaxed) {
            let _ = ask(address, &vec![b'x'; 1 << 20]);
            std::thread::sleep(Duration::from_millis(100));
        }
    }));
    let before = ticks(address);
    #[expect(clippy::disallowed_methods, reason = "how long the test has waited")]
    let begin = std::time::Instant::now();
    let passed = until("five seconds", || {
        let passed = begin.elapsed().as_secs_f64();
        (passed >= 5.0).then_some(passed)
    });
    let (after, expected) = (ticks(address), passed * 40.0);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    drop(daemon);
    // A page is made once a second of the run: ten a second here, so what is read is at most 4 ticks old.
    let ticked = after - before;
    assert!(
        ticked >= expected * 0.9 - 8.0,
        "{ticked} ticks of {expected}"
    );
    assert!(
        scrapes.load(Ordering::Relaxed) >= 100,
        "{scrapes:?} scrapes"
    );
}
