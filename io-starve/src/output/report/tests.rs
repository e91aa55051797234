use super::*;
use crate::history::tests::replayed;

fn demo(name: &str) -> String {
    let about = About {
        command: Some("fio job.fio".to_owned()),
        ..About::default()
    };
    page(&replayed(name), None, &about)
}

#[test]
fn pages_of_the_demos_are_as_they_were() {
    for name in ["async-write-starvation", "fsync-serialization"] {
        insta::assert_snapshot!(format!("report-{name}"), demo(name));
    }
}
