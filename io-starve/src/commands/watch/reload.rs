//! The configuration file: put beside the command line at the start, and again on SIGHUP.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::{
    cli::{Cli, Command},
    commands::CommandError,
    config,
};

/// A command line with a configuration file.
pub(in crate::commands) struct Reloader {
    path: PathBuf,
    line: Vec<OsString>,
    /// What the command line names.
    given: ArgMatches,
}

impl Reloader {
    /// For the command line of this process, whose arguments of `watch` are `given`.
    pub(in crate::commands) fn new(path: PathBuf, given: ArgMatches) -> Reloader {
        Reloader {
            path,
            line: std::env::args_os().collect(),
            given,
        }
    }

    /// The command line with what the file says now.
    pub(in crate::commands) fn load(&self) -> Result<Cli, CommandError> {
        let usage = |what: String| CommandError::Usage(what);
        let mut command = Cli::command();
        command.build();
        let Some(watch) = command.find_subcommand("watch") else {
            return Err(usage("this build has no watch".to_owned()));
        };
        let config =
            config::read(&self.path, watch, &self.given).map_err(|e| usage(e.to_string()))?;
        let line = self.line.iter().cloned().chain(config.args);
        let parsed = Cli::command()
            .try_get_matches_from(line)
            .and_then(|matches| Cli::from_arg_matches(&matches));
        let mut cli =
            parsed.map_err(|e| usage(format!("{}: {}", self.path.display(), first(&e))))?;
        cli.settings
            .check()
            .map_err(|e| usage(format!("{}: {e}", self.path.display())))?;
        if let Some(Command::Watch(args)) = &mut cli.command {
            args.ignore = config.ignore;
        }
        Ok(cli)
    }

    /// The file.
    pub(in crate::commands) fn path(&self) -> &std::path::Path {
        &self.path
    }
}

/// The sentence of an error of the command line, without how to get help for that.
fn first(e: &clap::Error) -> String {
    let text = e.to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
