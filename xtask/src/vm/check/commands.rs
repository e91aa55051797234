//! How commands ended, beside how they must end.

use super::Report;
use crate::vm::{
    results::Ran,
    scenario::{ExpectedCommand, Scenario},
};

/// Compares each command of a scenario with what it left; `errors` are the guest's own complaints.
pub fn check_commands(s: &Scenario, ran: &[Ran], errors: &[String]) -> Report {
    let mut report = Report::default();
    report
        .problems
        .extend(errors.iter().map(|e| format!("guest: {e}")));
    for (n, expected) in s.expect.commands.iter().enumerate() {
        match ran.get(n) {
            Some(r) if !r.code.is_empty() => one(expected, r, &mut report),
            _ => report
                .problems
                .push(format!("`{}` left no exit code", expected.run)),
        }
    }
    report
}

fn one(expected: &ExpectedCommand, r: &Ran, report: &mut Report) {
    let run = expected.run.trim();
    let said = r.stderr.trim();
    report.notes.push(format!("{} from `{run}`", r.code));
    report.notes.extend(said.lines().map(|l| format!("  {l}")));
    let mut problem = |text: String| report.problems.push(format!("`{run}` {text}"));
    // What it says then belongs to another ending.
    if r.code != expected.code.to_string() {
        return problem(format!(
            "ended with {}, and not with {}; its last word: {}",
            r.code,
            expected.code,
            said.lines().last().unwrap_or("none")
        ));
    }
    for (stream, have, want) in [
        ("standard error", &r.stderr, &expected.stderr),
        ("standard output", &r.stdout, &expected.stdout),
    ] {
        for words in want.iter().filter(|w| !have.contains(w.as_str())) {
            problem(format!("said no \"{words}\" on {stream}"));
        }
        if have.contains("panicked at") || have.contains("stack backtrace") {
            problem(format!("panicked: {}", have.trim()));
        }
    }
    if expected.code != 0 && said.lines().count() > 1 {
        problem("failed with more than one line".to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        let text = "title = 't'\nreproduces = 'r'\nload_limit_s = 20\n\
                    [[expect.command]]\nrun = 'watch'\ncode = 5\nstderr = ['lockdown', 'boot with']\n\
                    [[expect.command]]\nrun = 'doctor'\ncode = 0\nstdout = ['good']\n";
        Scenario::parse("x", text).unwrap()
    }

    fn ran(code: &str, stdout: &str, stderr: &str) -> Ran {
        Ran {
            code: code.to_string(),
            stdout: stdout.to_string(),
            stderr: stderr.to_string(),
        }
    }

    fn fitting() -> [Ran; 2] {
        [
            ran("5", "", "io-starve: lockdown; boot with none\n"),
            ran("0", "good\n", "a note\nof two lines\n"),
        ]
    }

    #[test]
    fn what_ends_as_expected_passes_and_is_told() {
        let report = check_commands(&scenario(), &fitting(), &[]);
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(report.notes[0], "5 from `watch`");
        assert_eq!(report.notes[1], "  io-starve: lockdown; boot with none");
    }

    #[test]
    fn each_thing_that_differs_is_a_problem() {
        let says = "io-starve: lockdown; boot with none\n";
        for (watch, word) in [
            (ran("0", "", says), "ended with 0, and not with 5"),
            (ran("", "", ""), "left no exit code"),
            (ran("5", "", "lockdown\n"), "said no \"boot with\""),
            (ran("5", "", &format!("{says}more\n")), "more than one line"),
            (ran("5", "thread main panicked at x", says), "panicked"),
        ] {
            let [_, doctor] = fitting();
            let report = check_commands(&scenario(), &[watch, doctor], &[]);
            assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
            assert!(report.problems[0].contains(word), "{:?}", report.problems);
        }
        let [watch, _] = fitting();
        let report = check_commands(&scenario(), &[watch], &["a program is left".to_string()]);
        assert_eq!(
            report.problems,
            ["guest: a program is left", "`doctor` left no exit code"]
        );
    }
}
