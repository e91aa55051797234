//! fio as the command of a run: starts it so that it prints JSON too, and joins that with what was seen.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    process::Stdio,
};

use super::relay::Relay;
use crate::{
    fio::{
        FioView, Pass, Plan,
        args::plan,
        jobfile, join,
        join::Processes,
        output::{Job, Output, Printed, Splitter},
    },
    history::summary::Summary,
    kernel::paths::Disks,
};

/// As much of fio's output file as is read.
const MAX_OUTPUT: u64 = 256 << 20;

/// A run of fio.
pub(super) struct Fio {
    command: Vec<OsString>,
    job_files: Vec<std::path::PathBuf>,
    pass: Pass,
    relay: Option<Relay>,
}

impl Fio {
    /// `None` when the command is not fio, or runs no jobs that could be joined.
    pub(super) fn of(command: &[OsString]) -> Option<Fio> {
        match plan(command, io::stdout().is_terminal()) {
            Plan::Leave(reason) => {
                if let Some(reason) = reason {
                    complain!("io-starve: {reason}");
                }
                None
            }
            Plan::Join {
                command,
                pass,
                job_files,
            } => Some(Fio {
                command,
                job_files,
                pass,
                relay: None,
            }),
        }
    }

    /// What is to be started instead.
    pub(super) fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Where its standard output is to go; `None`: where io-starve's goes.
    pub(super) fn stdout(&mut self) -> io::Result<Option<Stdio>> {
        let Pass::Stdout { strip } = self.pass else {
            return Ok(None);
        };
        let (relay, theirs) = Relay::start(strip)?;
        self.relay = Some(relay);
        Ok(Some(theirs))
    }

    /// Takes what it printed, once it has ended. `as_user`: who it ran as, where that is not who io-starve runs as.
    pub(super) fn printed(&mut self, as_user: Option<u32>) -> Printed {
        match (&self.pass, self.relay.take()) {
            (_, Some(relay)) => relay.finish(),
            (Pass::File { path, strip }, None) => from_file(path, *strip, as_user).unwrap_or_else(|e| {
                complain!("io-starve: cannot read fio's JSON from {}: {e}; its jobs are not told one by one", path.display());
                Printed::default()
            }),
            (Pass::Stdout { .. }, None) => Printed::default(),
        }
    }

    /// Its jobs beside what was seen.
    pub(super) fn view(
        &self,
        printed: &Printed,
        processes: &Processes,
        summary: &Summary,
    ) -> FioView {
        let cwd = std::env::current_dir().unwrap_or_default();
        let disks = Disks::now();
        let below = |path: &Path| disks.below(path);
        let (output, note) = match printed.json.as_deref().map(Output::parse) {
            Some(Ok(output)) => (output, None),
            Some(Err(e)) => (
                self.named(),
                Some(format!(
                    "fio's JSON cannot be read ({e}): its own figures are missing"
                )),
            ),
            None => (
                self.named(),
                Some(
                    "fio ended without its figures: it failed before its jobs began, or was killed"
                        .to_owned(),
                ),
            ),
        };
        let mut view = join(&output, &printed.pids, processes, &below, &cwd, summary);
        view.notes.extend(note);
        view
    }

    /// The jobs of its job files, without figures.
    fn named(&self) -> Output {
        let texts = self
            .job_files
            .iter()
            .filter_map(|f| std::fs::read_to_string(f).ok());
        let sections = texts.flat_map(|text| jobfile::parse(&text));
        Output {
            jobs: sections
                .map(|s| Job {
                    jobname: s.name,
                    options: s.options,
                    ..Job::default()
                })
                .collect(),
            ..Output::default()
        }
    }
}

/// Reads the JSON from fio's output file, and takes it out when the user did not ask for it.
fn from_file(path: &Path, strip: bool, as_user: Option<u32>) -> io::Result<Printed> {
    // Where fio ran as another user, that user could have put anything there: only a plain file of that user is touched.
    let no_links = if as_user.is_some() {
        libc::O_NOFOLLOW
    } else {
        0
    };
    let mut file: File = OpenOptions::new()
        .read(true)
        .write(strip)
        .custom_flags(libc::O_NONBLOCK | no_links)
        .open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || as_user.is_some_and(|uid| meta.uid() != uid || meta.nlink() != 1) {
        return Err(io::Error::other(
            "it is no plain file of the user who ran fio",
        ));
    }
    let mut text = Vec::new();
    (&mut file).take(MAX_OUTPUT).read_to_end(&mut text)?;
    let mut splitter = Splitter::new(strip);
    let mut shown = splitter.push(&text);
    let (rest, printed) = splitter.finish();
    shown.extend(rest);
    if strip && printed.json.is_some() {
        file.rewind()?;
        file.write_all(&shown)?;
        file.set_len(shown.len() as u64)?;
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_file_keeps_what_the_user_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let text = "Starting\n{\n  \"jobs\" : []\n}\na: (groupid=0, jobs=1): err= 0: pid=7: now\n";
        for (strip, left) in [
            (false, text),
            (
                true,
                "Starting\na: (groupid=0, jobs=1): err= 0: pid=7: now\n",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let printed = from_file(&path, strip, None).unwrap();
            assert_eq!(printed.json.as_deref(), Some("{\n  \"jobs\" : []\n}\n"));
            assert_eq!(printed.pids, [7]);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), left);
        }
    }

    #[test]
    fn what_another_user_may_have_put_there_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out"), dir.path().join("link"));
        std::fs::write(&path, "{\n}\n").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let uid = std::fs::metadata(&path).unwrap().uid();
        assert!(from_file(&path, true, Some(uid + 1)).is_err());
        assert!(from_file(&link, true, Some(uid)).is_err());
        assert!(from_file(Path::new("/dev/null"), true, None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\n}\n");
        assert!(from_file(&path, true, Some(uid)).is_ok());
    }

    #[test]
    fn jobs_are_named_by_their_files_when_fio_could_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.fio");
        std::fs::write(&path, "[global]\nrw=read\n[one]\n[two]\nrate=4m\n").unwrap();
        let fio = Fio::of(&["fio".into(), path.into_os_string()]).unwrap();
        let view = fio.view(
            &Printed::default(),
            &Processes::default(),
            &Summary::default(),
        );
        let names: Vec<_> = view
            .jobs
            .iter()
            .map(|j| (j.name.as_str(), j.rate.as_deref()))
            .collect();
        assert_eq!(names, [("one", None), ("two", Some("rate=4m"))]);
        assert!(view.notes[0].contains("without its figures"));
    }
}
