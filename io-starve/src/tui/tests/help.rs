//! The page of keys.

use super::*;

#[test]
fn text_scrolls_to_its_end_and_no_further() {
    let mut app = app(fixtures::starving());
    press(&mut app, &[Key::Char('?')]);
    assert!(!screen(&mut app, 80, 24).contains("never 0"));
    press(&mut app, &vec![Key::Down; 500]);
    let end = screen(&mut app, 80, 24);
    assert!(
        end.contains("never 0") && !end.contains("more lines"),
        "{end}"
    );
    press(&mut app, &[Key::Up]);
    assert_ne!(
        screen(&mut app, 80, 24),
        end,
        "one press up is seen at once"
    );
}

#[test]
fn the_help_names_the_keys_of_the_page_and_no_others() {
    let replay = || Mode::Replay {
        name: "x.rec".to_owned(),
    };
    for mode in [Mode::Live, replay()] {
        for page in PAGES {
            let mut app = App::new(mode.clone(), Arc::new(fixtures::serialized()));
            press(&mut app, &page_keys(page));
            app.help = true;
            let shown = screen(&mut app, 120, 60);
            for binding in BINDINGS {
                let keys: Vec<_> = binding.keys.iter().map(|k| k.name()).collect();
                let keys = format!("{:14}{}", keys.join(" "), binding.help);
                let is_there = shown.lines().any(|l| l.trim_end() == keys);
                assert_eq!(
                    is_there,
                    (binding.when)(app.context()),
                    "{page} {keys}: {shown}"
                );
            }
        }
    }
}
