//! Every page of every recording that ships inside the program, at the moment when its first finding was met for longest.

use super::*;
use crate::{
    commands::demo::DEMOS, pipeline::Pipeline, source::recording::Recording, tui::pages::PAGES,
};

/// The snapshot of a demo in which the first finding is met and has been for longest.
pub fn at_its_worst(bytes: &[u8]) -> Snapshot {
    let mut recording = Recording::new(bytes, "demo").unwrap();
    let mut pipeline = Pipeline::new(recording.checkpoint().settings.clone());
    let mut worst: Option<Snapshot> = None;
    while let Some(observation) = recording.next_observation() {
        pipeline.feed(&observation);
        let snapshot = pipeline.snapshot();
        let Some(first) = snapshot.findings.first().filter(|f| f.closed.is_none()) else {
            continue;
        };
        let longest = worst.as_ref().map_or(0, |w| w.findings[0].longest_ns);
        if first.last_met_ns == snapshot.mono_ns && first.longest_ns >= longest {
            worst = Some(snapshot);
        }
    }
    worst.unwrap()
}

#[test]
fn demos_look_as_reviewed() {
    for demo in DEMOS {
        let snapshot = Arc::new(at_its_worst(demo.bytes));
        let mut views: Vec<(String, Vec<Key>)> = PAGES
            .iter()
            .map(|p| (p.name.to_owned(), vec![Key::Char(p.view.key())]))
            .collect();
        views.push(("in_full".to_owned(), vec![Key::Enter]));
        views.push(("times".to_owned(), vec![Key::Char('2'), Key::Enter]));
        for (name, keys) in views {
            let mode = Mode::Demo {
                name: demo.name.to_owned(),
            };
            let drawn = [(120, 40), (80, 24), (60, 20)].map(|(width, height)| {
                let mut app = App::new(mode.clone(), Arc::clone(&snapshot));
                press(&mut app, &keys);
                let drawn = text(&buffer(&mut app, &look(true, false), width, height));
                format!("{width}x{height}\n{drawn}")
            });
            insta::with_settings!({ snapshot_path => "../snapshots" }, {
                insta::assert_snapshot!(format!("demo_{}_{name}", demo.name), drawn.join("\n"));
            });
        }
    }
}
