//! `report`: a recording or a trace as one page of HTML.

use std::path::PathBuf;

use clap::ArgMatches;

use super::{CommandError, live::Common, replay};
use crate::{
    cli::{ReportArgs, is_dash},
    output::{document, report, sink::print},
};

pub(super) async fn report(
    common: &Common,
    matches: &ArgMatches,
    args: &ReportArgs,
) -> Result<u8, CommandError> {
    let output = match &args.output {
        Some(path) => path.clone(),
        None if is_dash(&args.file) => PathBuf::from("-"),
        None => {
            let mut name = args.file.clone().into_os_string();
            name.push(".html");
            name.into()
        }
    };
    // Before the replay, which may take long.
    let place = match is_dash(&output) {
        true => None,
        false => Some(document::place(&output)?),
    };
    let Some(whole) = replay::whole(common, matches, &args.file, args.from).await? else {
        return Ok(1);
    };
    let about = report::About {
        command: Some(whole.name),
        warning: whole.warning.clone(),
        ..report::About::default()
    };
    let page = report::page(&whole.summary, None, &about);
    match place {
        Some(place) => {
            document::write(place, &page)?;
            complain!(
                "io-starve: {}; wrote {}",
                whole.summary.verdict,
                output.display()
            );
        }
        None => print(&page)?,
    }
    if let Some(warning) = whole.warning {
        complain!("io-starve: {warning}");
    }
    Ok(0)
}
