//! fio's command line: what has to be added so that it prints JSON too, without changing what its user sees.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// What to do with a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// It is not fio, or runs no jobs here: leave it as it is. The reason is for a user who expects figures of jobs.
    Leave(Option<&'static str>),
    /// fio, with these arguments instead (the program first).
    Join {
        /// The program and its arguments.
        command: Vec<OsString>,
        /// Where its output goes.
        pass: Pass,
        /// Job files that are named.
        job_files: Vec<PathBuf>,
    },
}

/// Where fio's output goes, and whether the JSON in it has to be taken out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// To standard output.
    Stdout {
        /// The user did not ask for JSON.
        strip: bool,
    },
    /// To a file that the user named.
    File {
        /// Which, as fio was given it.
        path: PathBuf,
        /// The user did not ask for JSON.
        strip: bool,
    },
}

/// Options that make fio do something else than run jobs.
const NO_JOBS: &[&str] = &[
    "help",
    "h",
    "version",
    "v",
    "cmdhelp",
    "c",
    "enghelp",
    "i",
    "crctest",
    "parse-only",
    "showcmd",
    "cpuclock-test",
    "memcpytest",
    "convert-cpu",
    "generate-trace",
];
/// Options of which the value may be an argument of its own.
const WITH_VALUE: &[&str] = &[
    "output-format",
    "output",
    "runtime",
    "section",
    "debug",
    "name",
    "bandwidth-log",
    "eta",
    "eta-newline",
    "eta-interval",
    "status-interval",
    "max-jobs",
    "trigger-file",
    "trigger-timeout",
    "trigger",
    "trigger-remote",
    "aux-path",
    "warnings-fatal",
    "alloc-size",
    "profile",
    "merge-blktrace-file",
    "merge_blktrace_scalars",
];

/// Looks at a command. `on_terminal`: standard output is a terminal.
pub fn plan(command: &[OsString], on_terminal: bool) -> Plan {
    let Some((program, args)) = command.split_first() else {
        return Plan::Leave(None);
    };
    if Path::new(program).file_name() != Some(OsStr::new("fio")) {
        return Plan::Leave(None);
    }
    let mut out = vec![program.clone()];
    let mut formats: Vec<String> = Vec::new();
    let mut file = None;
    let mut eta_given = false;
    let mut job_files = Vec::new();
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let Some((name, value)) = option(arg) else {
            job_files.push(PathBuf::from(arg));
            out.push(arg.clone());
            continue;
        };
        if NO_JOBS.contains(&name.as_str()) {
            return Plan::Leave(None);
        }
        match name.as_str() {
            "client" | "server" | "daemonize" | "remote-config" => {
                return Plan::Leave(Some(
                    "fio's jobs run in another process than the command, so they are not told one by one",
                ));
            }
            // fio takes abbreviations, and what they stand for is its own business.
            name if "output-format".starts_with(name)
                && name.len() > 1
                && name != "output"
                && name != "output-format" =>
            {
                return Plan::Leave(Some(
                    "an abbreviated --output option of fio is not followed: spell it out, or its jobs are not told one by one",
                ));
            }
            "output-format" | "output" => {
                let Some(value) = value.or_else(|| args.next().cloned()) else {
                    // fio's own complaint says it best.
                    return Plan::Leave(None);
                };
                if name == "output" {
                    file = Some(PathBuf::from(&value));
                    out.push(joined("--output=", &value));
                } else {
                    formats = value
                        .to_string_lossy()
                        .split(',')
                        .map(str::to_owned)
                        .collect();
                }
            }
            "minimal" | "m" => formats = vec!["terse".to_owned()],
            "append-terse" => {
                if formats.is_empty() {
                    formats.push("normal".to_owned());
                }
                formats.push("terse".to_owned());
            }
            name => {
                eta_given |= name == "eta";
                out.push(arg.clone());
                if value.is_none()
                    && WITH_VALUE.contains(&name)
                    && let Some(value) = args.next()
                {
                    out.push(value.clone());
                }
            }
        }
    }
    let strip = !formats.iter().any(|f| f == "json" || f == "json+");
    if formats.is_empty() {
        formats.push("normal".to_owned());
    }
    if strip {
        formats.push("json".to_owned());
    }
    // First, so that what is wrong with the user's own arguments is said of those.
    out.insert(1, format!("--output-format={}", formats.join(",")).into());
    let pass = match file {
        Some(path) => Pass::File { path, strip },
        None => {
            // Its output goes through a pipe, where fio shows no progress by itself.
            if on_terminal && !eta_given && formats.iter().any(|f| f == "normal") {
                out.insert(1, "--eta=always".into());
            }
            Pass::Stdout { strip }
        }
    };
    Plan::Join {
        command: out,
        pass,
        job_files,
    }
}

/// Name and value of an option, as getopt_long_only(3) reads it; `None` for what is none.
fn option(arg: &OsStr) -> Option<(String, Option<OsString>)> {
    let bytes = arg.as_bytes();
    let body = bytes
        .strip_prefix(b"--")
        .or_else(|| bytes.strip_prefix(b"-"))?;
    if body.is_empty() {
        return None;
    }
    let (name, value) = match body.iter().position(|b| *b == b'=') {
        Some(at) => (
            &body[..at],
            Some(OsString::from_vec(body[at + 1..].to_vec())),
        ),
        None => (body, None),
    };
    Some((String::from_utf8_lossy(name).into_owned(), value))
}

fn joined(option: &str, value: &OsStr) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(value);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str], on_terminal: bool) -> Plan {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        plan(&words, on_terminal)
    }

    /// The new command line and what becomes of the output.
    fn joined_as(words: &[&str]) -> (String, Pass) {
        match of(words, false) {
            Plan::Join { command, pass, .. } => {
                let words: Vec<_> = command.iter().map(|w| w.to_string_lossy()).collect();
                (words.join(" "), pass)
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn what_the_user_asked_for_stays_and_json_is_added() {
        let out = |strip| Pass::Stdout { strip };
        let file = |strip| Pass::File {
            path: "o".into(),
            strip,
        };
        for (words, command, pass) in [
            (
                &["fio", "a.fio"][..],
                "fio --output-format=normal,json a.fio",
                out(true),
            ),
            (
                &["/opt/fio", "--output-format=json", "a"],
                "/opt/fio --output-format=json a",
                out(false),
            ),
            (
                &["fio", "--output-format", "json+,terse", "a"],
                "fio --output-format=json+,terse a",
                out(false),
            ),
            (
                &["fio", "-output-format=terse", "a"],
                "fio --output-format=terse,json a",
                out(true),
            ),
            (
                &["fio", "--minimal", "a"],
                "fio --output-format=terse,json a",
                out(true),
            ),
            (
                &["fio", "--append-terse", "a"],
                "fio --output-format=normal,terse,json a",
                out(true),
            ),
            (
                &["fio", "a", "--output", "o"],
                "fio --output-format=normal,json a --output=o",
                file(true),
            ),
            (
                &["fio", "--output=o", "--output-format=json", "a"],
                "fio --output-format=json --output=o a",
                file(false),
            ),
            (
                &["fio", "--name", "x", "--rw=read"],
                "fio --output-format=normal,json --name x --rw=read",
                out(true),
            ),
        ] {
            assert_eq!(joined_as(words), (command.to_owned(), pass), "{words:?}");
        }
    }

    #[test]
    fn progress_shows_on_a_terminal_unless_the_user_said_something_about_it() {
        for (words, shown) in [
            (&["fio", "a"][..], true),
            (&["fio", "--eta=never", "a"], false),
            (&["fio", "--eta", "never", "a"], false),
            (&["fio", "--output-format=json", "a"], false),
            (&["fio", "--output=o", "a"], false),
        ] {
            let Plan::Join { command, .. } = of(words, true) else {
                panic!("{words:?}")
            };
            assert_eq!(command.contains(&"--eta=always".into()), shown, "{words:?}");
        }
    }

    #[test]
    fn job_files_are_told_from_values() {
        let Plan::Join { job_files, .. } = of(
            &["fio", "--section", "s", "a.fio", "--eta=never", "b"],
            false,
        ) else {
            panic!()
        };
        assert_eq!(job_files, [PathBuf::from("a.fio"), "b".into()]);
    }

    #[test]
    fn what_runs_no_jobs_here_is_left_alone() {
        for words in [
            &["dd"][..],
            &[],
            &["fio-genzipf", "x"],
            &["fio", "--version"],
            &["fio", "--cmdhelp=rw"],
            &["fio", "--parse-only", "a"],
            &["fio", "--output"],
        ] {
            assert_eq!(of(words, false), Plan::Leave(None), "{words:?}");
        }
        for words in [
            &["fio", "--client=x", "a"][..],
            &["fio", "--server"],
            &["fio", "--outp=x", "a"],
        ] {
            assert!(
                matches!(of(words, false), Plan::Leave(Some(_))),
                "{words:?}"
            );
        }
    }
}
