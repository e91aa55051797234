//! `compare`: what changed between two recordings or traces.

use clap::ArgMatches;

use super::{CommandError, live::Common, replay};
use crate::{
    cli::{CompareArgs, is_dash},
    output::{compare, sink::print},
};

pub(super) async fn compare(
    common: &Common,
    matches: &ArgMatches,
    args: &CompareArgs,
) -> Result<u8, CommandError> {
    if is_dash(&args.before) && is_dash(&args.after) {
        return Err(CommandError::Usage(
            "only one of the two can be standard input; give the name of a file for the other"
                .to_owned(),
        ));
    }
    let mut both = Vec::new();
    for path in [&args.before, &args.after] {
        let Some(whole) = replay::whole(common, matches, path, None).await? else {
            return Ok(1);
        };
        if let Some(warning) = &whole.warning {
            complain!("io-starve: {}: {warning}", path.display());
        }
        both.push(whole);
    }
    let [before, after] = both.as_slice() else {
        return Ok(1);
    };
    let comparison = compare::Comparison::new(&before.summary, &after.summary);
    if args.json {
        print(&(serde_json::to_string(&comparison)? + "\n"))?;
    } else {
        print(&comparison.to_text(&before.name, &after.name))?;
    }
    Ok(0)
}
