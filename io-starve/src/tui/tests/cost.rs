//! What a frame costs on a crowded machine. Printed, not judged: machines differ. In release mode:
//! `cargo test --release -p io-starve --lib tui::tests::cost -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::*;
use crate::{model::observation::DevId, tui::history::History};

/// 200 cgroups, 50 disks, a screen of 200x60.
fn crowded() -> Snapshot {
    let mut snap = fixtures::crowded();
    for i in 0u32.. {
        if snap.devices.len() >= 50 {
            break;
        }
        let mut device = snap.devices[0].clone();
        device.dev = DevId::new(253, i);
        device.name = format!("vd{i}");
        snap.devices.push(device);
    }
    snap
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn mean(times: u32, mut what: impl FnMut()) -> Duration {
    let begin = Instant::now();
    for _ in 0..times {
        what();
    }
    begin.elapsed() / times
}

#[test]
#[ignore = "a measurement"]
fn a_frame_of_200_cgroups_and_50_disks() {
    let snap = Arc::new(crowded());
    let cgroups = snap.devices.iter().map(|d| d.owners.len()).max();
    assert!(snap.devices.len() >= 50 && cgroups >= Some(200));
    for page in PAGES {
        let mut app = App::new(Mode::Live, Arc::clone(&snap));
        press(&mut app, &page_keys(page));
        let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
        let look = look(true, false);
        let each = mean(100, || {
            terminal
                .draw(|frame| app.fit(view::draw(frame, &app, &look)))
                .unwrap();
        });
        println!("{page}: {each:?} a frame");
    }
    let mut history = History::default();
    let mut later = (*snap).clone();
    let each = mean(100, || {
        later.mono_ns += 1;
        history.push(&later);
    });
    println!("history: {each:?} a snapshot");
}
