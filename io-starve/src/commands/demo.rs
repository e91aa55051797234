//! `demo`: recordings that ship inside the program.

use clap::ArgMatches;

use super::{CommandError, live::Common, replay::play, runtime};
use crate::{
    cli::{DemoArgs, nearest},
    detect::finding::Kind,
    output::sink::print,
    source::recording::Recording,
    tui,
};

/// A recording of a real machine, named by the kind of finding that it shows.
pub(crate) struct Demo {
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
}

/// All of them; the first one is played when none is named. Each was recorded in a guest of `cargo xtask vm`.
pub(crate) const DEMOS: &[Demo] = &[
    Demo {
        name: Kind::AsyncWriteStarvation.name(),
        bytes: include_bytes!("../../demos/async-write-starvation.rec"),
    },
    Demo {
        name: Kind::FsyncSerialization.name(),
        bytes: include_bytes!("../../demos/fsync-serialization.rec"),
    },
    Demo {
        name: Kind::WeightUnfairness.name(),
        bytes: include_bytes!("../../demos/weight-unfairness.rec"),
    },
];

pub(super) fn demo(
    common: &Common,
    matches: &ArgMatches,
    args: &DemoArgs,
) -> Result<u8, CommandError> {
    let names: Vec<&str> = DEMOS.iter().map(|demo| demo.name).collect();
    if args.list {
        print(
            &names
                .iter()
                .map(|name| format!("{name}\n"))
                .collect::<String>(),
        )?;
        return Ok(0);
    }
    let first = DEMOS.first().ok_or(CommandError::NoDemo)?;
    let demo = match &args.name {
        None => first,
        Some(name) => DEMOS
            .iter()
            .find(|demo| demo.name == name)
            .ok_or_else(|| unknown(name, &names))?,
    };
    let recording = Recording::new(demo.bytes, demo.name)?;
    let mode = tui::Mode::Demo {
        name: demo.name.to_owned(),
    };
    runtime()?.block_on(play(common, matches, &args.show, recording, mode))
}

fn unknown(name: &str, names: &[&str]) -> CommandError {
    let hint = nearest(name, names).map_or(String::new(), |n| format!("did you mean `{n}`? "));
    CommandError::Usage(format!(
        "there is no demo `{name}`; {hint}There are: {}",
        names.join(", ")
    ))
}
