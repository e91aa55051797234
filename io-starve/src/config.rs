//! The configuration file of `watch`: TOML with the names of the options, and rules for what is not told.
//!
//! In: a file and the command line. Out: arguments as somebody would have typed them, so that there is one definition of
//! every option and one check of every value. What the command line names is left to it. Refused is what nobody knows, with the name
//! that is most like it.

use std::{
    ffi::OsString,
    ops::Range,
    path::{Path, PathBuf},
};

use clap::{ArgMatches, Command, parser::ValueSource};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    cli::{kind, nearest},
    output::ignore::Ignore,
};

/// Names that make no sense in a file.
const NOT_HERE: [&str; 5] = ["config", "check-config", "help", "version", "without-hook"];
/// Names beside those of the options.
const OWN: [&str; 2] = ["labels", "ignore"];
/// Names of a rule.
const RULE: [&str; 3] = ["kind", "device", "cgroup"];

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Arguments, to be added to those of the command line.
    pub args: Vec<OsString>,
    /// Findings that are not told.
    pub ignore: Vec<Ignore>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Something in it makes no sense.
    #[error("{path}:{line}: {what}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// Line, from 1 on.
        line: usize,
        /// What, and what to write instead.
        what: String,
    },
}

/// Reads a file for a command, built, whose own line was parsed to `given`.
///
/// # Errors
/// When it cannot be read, is no TOML, or has keys or values that nobody knows.
pub fn read(path: &Path, command: &Command, given: &ArgMatches) -> Result<Config, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, command, given).map_err(|(span, what)| ConfigError::Bad {
        path: path.to_owned(),
        line: text[..span.start.min(text.len())].matches('\n').count() + 1,
        what,
    })
}

type Bad = (Range<usize>, String);

fn parse(text: &str, command: &Command, given: &ArgMatches) -> Result<Config, Bad> {
    let table = DeTable::parse(text).map_err(|e| {
        let message = e.message().trim_end().to_owned();
        (e.span().unwrap_or(0..0), message)
    })?;
    let names: Vec<&str> = command
        .get_arguments()
        .filter(|a| !a.is_hide_set())
        .filter_map(|a| a.get_long())
        .filter(|name| !NOT_HERE.contains(name))
        .collect();
    let mut config = Config::default();
    for (key, value) in sorted(table.get_ref()) {
        match key.get_ref().as_ref() {
            "labels" => labels(value, is_given(given, "label"), &mut config.args)?,
            "ignore" => config.ignore = rules(value)?,
            name if names.contains(&name) => {
                if !is_given(given, &name.replace('-', "_")) {
                    option(name, value, &mut config.args)?;
                }
            }
            name => {
                let all: Vec<&str> = names.iter().copied().chain(OWN).collect();
                return Err(unknown(key, name, &all));
            }
        }
    }
    Ok(config)
}

/// In the order of the file, so that the first mistake is told first.
fn sorted<'a, 'b>(
    table: &'a DeTable<'b>,
) -> Vec<(
    &'a Spanned<std::borrow::Cow<'b, str>>,
    &'a Spanned<DeValue<'b>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn is_given(given: &ArgMatches, id: &str) -> bool {
    given.value_source(id) == Some(ValueSource::CommandLine)
}

fn unknown<T>(key: &Spanned<T>, name: &str, names: &[&str]) -> Bad {
    let hint = match nearest(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "the names are those of `io-starve watch --help`, without the dashes".to_owned(),
    };
    (key.span(), format!("no option is called `{name}`; {hint}"))
}

fn option(name: &str, value: &Spanned<DeValue<'_>>, args: &mut Vec<OsString>) -> Result<(), Bad> {
    match value.get_ref() {
        DeValue::Boolean(true) => args.push(format!("--{name}").into()),
        DeValue::Boolean(false) => {}
        DeValue::Array(list) => {
            for value in list {
                args.push(format!("--{name}={}", scalar(value)?).into());
            }
        }
        _ => args.push(format!("--{name}={}", scalar(value)?).into()),
    }
    Ok(())
}

fn scalar(value: &Spanned<DeValue<'_>>) -> Result<String, Bad> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(n) => Ok(n.to_string()),
        DeValue::Float(n) => Ok(n.to_string()),
        _ => Err((value.span(), "give a text or a number here".to_owned())),
    }
}

fn labels(value: &Spanned<DeValue<'_>>, given: bool, args: &mut Vec<OsString>) -> Result<(), Bad> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err((
            value.span(),
            "labels are a table: labels = { site = \"berlin\" }".to_owned(),
        ));
    };
    for (key, value) in sorted(table) {
        let label = format!("--label={}={}", key.get_ref(), scalar(value)?);
        if !given {
            args.push(label.into());
        }
    }
    Ok(())
}

fn rules(value: &Spanned<DeValue<'_>>) -> Result<Vec<Ignore>, Bad> {
    let wrong = |span| {
        (
            span,
            "rules are tables: [[ignore]] with kind, device or cgroup".to_owned(),
        )
    };
    let DeValue::Array(list) = value.get_ref() else {
        return Err(wrong(value.span()));
    };
    let mut rules = Vec::new();
    for rule in list {
        let DeValue::Table(table) = rule.get_ref() else {
            return Err(wrong(rule.span()));
        };
        let mut ignore = Ignore::default();
        for (key, value) in sorted(table) {
            let name = key.get_ref().as_ref();
            if !RULE.contains(&name) {
                return Err(unknown(key, name, &RULE));
            }
            let text = scalar(value)?;
            match name {
                "kind" => ignore.kind = Some(kind(&text).map_err(|what| (value.span(), what))?),
                "device" => ignore.device = Some(text),
                _ => ignore.cgroup = Some(text),
            }
        }
        if ignore == Ignore::default() {
            return Err((
                rule.span(),
                "this rule would ignore everything; name a kind, device or cgroup".to_owned(),
            ));
        }
        rules.push(ignore);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::{cli::Cli, detect::finding::Kind};

    fn parsed(text: &str, line: &[&str]) -> Result<Config, String> {
        let mut command = Cli::command();
        command.build();
        let args = ["io-starve", "watch"].iter().chain(line);
        let matches = command.clone().try_get_matches_from(args).unwrap();
        let watch = command.find_subcommand("watch").unwrap();
        parse(text, watch, matches.subcommand().unwrap().1).map_err(|(_, what)| what)
    }

    #[test]
    fn names_are_those_of_the_options_and_the_command_line_goes_before() {
        let text = "device = [\"sda\", \"sd*\"]\ninterval = \"500ms\"\nfsync-ms = 300\npaused-share = 0.5\nascii = true\n\
                    labels = { site = \"x\" }\n";
        let args = parsed(text, &[]).unwrap().args;
        let expected = [
            "--device=sda",
            "--device=sd*",
            "--interval=500ms",
            "--fsync-ms=300",
            "--paused-share=0.5",
            "--ascii",
            "--label=site=x",
        ];
        assert_eq!(args, expected);
        let line = ["--device", "vda", "--fsync-ms", "1", "--label", "a=b"];
        let args = parsed(text, &line).unwrap().args;
        assert_eq!(args, ["--interval=500ms", "--paused-share=0.5", "--ascii"]);
    }

    #[test]
    fn what_nobody_knows_is_refused_with_what_is_like_it() {
        let says = |text: &str, part: &str| {
            let said = parsed(text, &[]).unwrap_err();
            assert!(said.contains(part), "{said}");
        };
        says("min-severty = \"info\"", "did you mean `min-severity`?");
        says("lables = {}", "did you mean `labels`?");
        says("zzz = 1", "watch --help");
        says("config = \"x\"", "no option is called `config`");
        says("labels = 1", "are a table");
        says("interval = {}", "a text or a number");
        says("interval", "expected");
        says(
            "[[ignore]]\nkind = \"queue-stuk\"",
            "did you mean `queue-stuck`?",
        );
        says("[[ignore]]\ndevcie = \"sda\"", "did you mean `device`?");
        says("[[ignore]]\n", "ignore everything");
        says("ignore = 1", "[[ignore]]");
    }

    #[test]
    fn rules_are_read() {
        let text = "[[ignore]]\nkind = \"queue-stuck\"\ndevice = \"sd*\"\n[[ignore]]\ncgroup = \"backup.service\"\n";
        let rules = parsed(text, &[]).unwrap().ignore;
        assert_eq!(rules[0].kind, Some(Kind::QueueStuck));
        assert_eq!(rules[0].device.as_deref(), Some("sd*"));
        assert_eq!(rules[1].cgroup.as_deref(), Some("backup.service"));
    }
}
