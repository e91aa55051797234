//! What the screen asks for and cannot do by itself: files of what it shows, and recordings of what it sees.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Zoned;
use tokio::sync::{mpsc, watch};

use super::{CommandError, session::Session};
use crate::{
    files,
    model::snapshot::Snapshot,
    output::text,
    source::recording::Recorder,
    tui::request::{Request, Status, Update},
};

/// Requests that may wait: more than anybody presses between two ticks.
const QUEUE: usize = 32;
/// Files of one second that are told apart by a number.
const MAX_SAME: u32 = 99;

/// The other end of a screen.
pub(super) struct Desk {
    feed: watch::Sender<Update>,
    requests: mpsc::Receiver<Request>,
    /// Where files go; where the program was started when it is empty.
    folder: PathBuf,
}

/// The ends that a screen takes.
pub(super) type Ends = (watch::Receiver<Update>, mpsc::Sender<Request>);

impl Desk {
    /// A desk, and the ends for its screen, which begins with this.
    pub(super) fn new(snapshot: Snapshot) -> (Desk, Ends) {
        let (feed, updates) = watch::channel(Update {
            snapshot: Arc::new(snapshot),
            status: Status::default(),
        });
        let (sender, requests) = mpsc::channel(QUEUE);
        let desk = Desk {
            feed,
            requests,
            folder: PathBuf::new(),
        };
        (desk, (updates, sender))
    }

    /// Shows a snapshot.
    pub(super) fn show(&self, snapshot: Snapshot) {
        self.feed
            .send_modify(|update| update.snapshot = Arc::new(snapshot));
    }

    /// Changes what is told beside the snapshots.
    pub(super) fn tell(&self, change: impl FnOnce(&mut Status)) {
        self.feed.send_modify(|update| change(&mut update.status));
    }

    /// The next request; for ever when the screen is gone.
    pub(super) async fn next(&mut self) -> Request {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// A request that waits already.
    pub(super) fn waiting(&mut self) -> Option<Request> {
        self.requests.try_recv().ok()
    }

    /// Writes a snapshot and says where.
    pub(super) fn write(&self, snapshot: &Snapshot) {
        let said = match written(&self.folder, snapshot) {
            Ok(name) => format!("written to {name}.txt and {name}.json"),
            Err(e) => format!("cannot write a file here: {e}{}", files::hint(&e)),
        };
        self.tell(|status| status.say(said));
    }

    /// Begins a recording of the session, or ends the one that there is.
    pub(super) fn record(&self, session: &mut Session) {
        let recording = self.feed.borrow().status.recording.clone();
        let (recording, said) = match recording {
            Some(name) => (None, ended(&name, session)),
            None => match begun(&self.folder, session) {
                Ok(name) => (
                    Some(name.clone()),
                    format!("recording to {name}; r ends it"),
                ),
                Err(e) => (None, e.to_string()),
            },
        };
        self.tell(|status| {
            status.recording = recording;
            status.say(said);
        });
    }

    /// Says so when a recording ended by itself, because it failed.
    pub(super) fn check(&self, session: &Session) {
        let is_marked = self.feed.borrow().status.recording.is_some();
        if is_marked && !session.is_recording() {
            self.tell(|status| {
                status.recording = None;
                status.say("the recording failed and has ended".to_owned());
            });
        }
    }
}

fn ended(name: &str, session: &mut Session) -> String {
    match session.end_recording() {
        Ok(Some(n)) => format!("recorded {n} observations to {name}"),
        Ok(None) => format!("the recording to {name} had failed"),
        Err(e) => e.to_string(),
    }
}

fn begun(folder: &Path, session: &mut Session) -> Result<String, CommandError> {
    let (name, _) = fresh(folder, &["rec"]).map_err(|e| {
        CommandError::Usage(format!(
            "cannot record to a file here: {e}{}",
            files::hint(&e)
        ))
    })?;
    let name = format!("{name}.rec");
    session.record_to(Recorder::place(name.as_ref())?)?;
    Ok(name)
}

/// Makes files that were not there, so that nothing is lost and no link of somebody else is followed: their name without its
/// end, and they.
fn fresh(folder: &Path, ends: &[&str]) -> io::Result<(String, Vec<std::fs::File>)> {
    let stem = Zoned::now().strftime("io-starve-%Y%m%d-%H%M%S");
    let stem = folder.join(stem.to_string()).display().to_string();
    for n in 1..=MAX_SAME {
        let name = match n {
            1 => stem.clone(),
            n => format!("{stem}-{n}"),
        };
        let make = |end: &&str| {
            let path = PathBuf::from(format!("{name}.{end}"));
            OpenOptions::new().write(true).create_new(true).open(path)
        };
        match ends.iter().map(make).collect::<io::Result<Vec<_>>>() {
            Ok(files) => return Ok((name, files)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn written(folder: &Path, snapshot: &Snapshot) -> io::Result<String> {
    let json = serde_json::to_vec(snapshot)?;
    let (name, files) = fresh(folder, &["txt", "json"])?;
    let text = text::table(snapshot);
    for (mut file, content) in files.into_iter().zip([text.as_bytes(), json.as_slice()]) {
        file.write_all(content)?;
        file.write_all(b"\n")?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        detect::{finding::Severity, settings::Settings},
        model::observation::Observation,
        output::{focus::Focus, reporter::Audience},
        tui::fixtures,
    };

    fn desk(folder: &Path) -> (Desk, Ends) {
        let (mut desk, ends) = Desk::new(Snapshot::default());
        desk.folder = folder.to_owned();
        (desk, ends)
    }

    fn said(desk: &Desk) -> String {
        let status = &desk.feed.borrow().status;
        status.note.as_ref().unwrap().text.clone()
    }

    fn names(folder: &Path, end: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(folder).unwrap();
        let paths = files.map(|f| f.unwrap().path());
        paths
            .filter(|p| p.extension().is_some_and(|e| e == end))
            .collect()
    }

    #[test]
    fn what_is_shown_is_written_as_text_and_json_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (desk, _ends) = desk(folder.path());
        let snapshot = fixtures::starving();
        desk.write(&snapshot);
        assert!(said(&desk).starts_with("written to "), "{}", said(&desk));
        desk.write(&snapshot);
        let (texts, jsons) = (names(folder.path(), "txt"), names(folder.path(), "json"));
        assert_eq!(
            (texts.len(), jsons.len()),
            (2, 2),
            "two in one second, or in two"
        );
        for json in jsons {
            let back: Snapshot = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
            assert_eq!(back, snapshot);
        }
        let text = std::fs::read_to_string(&texts[0]).unwrap();
        assert!(text.starts_with(&snapshot.verdict), "{text}");
    }

    #[test]
    fn a_folder_that_refuses_is_told() {
        let (desk, _ends) = desk(Path::new("/nonexistent"));
        desk.write(&Snapshot::default());
        assert!(said(&desk).starts_with("cannot write a file here: "));
    }

    #[test]
    fn a_recording_is_marked_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (desk, _ends) = desk(folder.path());
        let audience = Audience {
            ignore: Default::default(),
            min_severity: Severity::Info,
            focus: Focus::default(),
            status_ns: 60_000_000_000,
        };
        let interval = Duration::from_millis(250);
        let mut session = Session::new(&Settings::default(), &[], interval, audience);
        desk.record(&mut session);
        assert!(desk.feed.borrow().status.recording.is_some());
        session.feed(&Observation {
            mono_ns: 1_000_000_000,
            ..Observation::default()
        });
        desk.check(&session);
        desk.record(&mut session);
        assert!(desk.feed.borrow().status.recording.is_none());
        assert!(
            said(&desk).starts_with("recorded 1 observations to "),
            "{}",
            said(&desk)
        );
        let recorded = names(folder.path(), "rec");
        assert!(std::fs::metadata(&recorded[0]).unwrap().len() > 0);
    }
}
