//! Files that cannot be written. Nobody may attach here, so exit code 4 says that everything before attaching went well.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{as_nobody, outcome};

/// Every option that names a file to write, with the exit code of a failure of its command.
const OPTIONS: [(&[&str], i32); 7] = [
    (&["watch", "--output"], 1),
    (&["watch", "--record"], 1),
    (&["record", "-o"], 1),
    (&["run", "--json"], 125),
    (&["run", "--record"], 125),
    (&["run", "--report"], 125),
    (&["run", "--junit"], 125),
];

/// Runs such a command with this file.
fn with_file(words: &[&str], file: &Path) -> (i32, String) {
    let mut command = as_nobody(words);
    command.arg(file);
    if words[0] == "run" {
        command.args(["--", "true"]);
    }
    let (code, _, err) = outcome(&mut command);
    (code, err)
}

/// The code of having no permission to attach.
fn not_attached(words: &[&str]) -> i32 {
    match words[0] {
        "run" => 125,
        _ => 4,
    }
}

/// A folder for everybody, where nobody can write as well.
fn folder(mode: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    dir
}

#[test]
fn what_cannot_be_written_is_said_before_attaching_and_with_what_to_do() {
    let (open, shut) = (folder(0o777), folder(0o555));
    let cases: [(PathBuf, &str); 3] = [
        (open.path().join("no/file"), "make its folder first"),
        (open.path().to_owned(), "give the name of a file"),
        (shut.path().join("file"), "this user may write to"),
    ];
    for (words, code) in OPTIONS {
        for (file, hint) in &cases {
            let (got, err) = with_file(words, file);
            assert_eq!(got, code, "{words:?}: {err}");
            let name = file.display().to_string();
            assert!(
                err.starts_with("io-starve: cannot ") && err.contains(&name) && err.contains(hint),
                "{words:?}: {err}"
            );
        }
    }
}

#[test]
fn when_attaching_fails_old_files_keep_their_content_and_no_new_ones_stay() {
    let dir = folder(0o777);
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::write(&old, "precious").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o666)).unwrap();
    for (words, _) in OPTIONS {
        for file in [&old, &new] {
            let (code, err) = with_file(words, file);
            assert_eq!(code, not_attached(words), "{words:?}: {err}");
            assert!(err.contains("not permitted"), "{words:?}: {err}");
        }
        assert_eq!(fs::read_to_string(&old).unwrap(), "precious", "{words:?}");
        assert!(!new.exists(), "{words:?}");
    }
}

#[test]
fn a_dash_is_standard_output_and_no_file() {
    let shut = folder(0o555);
    let mut command = as_nobody(["watch", "--output", "-"]);
    let (code, _, err) = outcome(command.current_dir(shut.path()));
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("not permitted"), "{err}");
}

#[test]
fn a_pipe_that_nobody_reads_holds_nothing_up() {
    let dir = folder(0o755);
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::from(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // The umask took some of it.
    rustix::fs::chmod(&pipe, mode).unwrap();
    for (words, _) in OPTIONS {
        let (code, err) = with_file(words, &pipe);
        assert_eq!(code, not_attached(words), "{words:?}: {err}");
        assert!(err.contains("not permitted"), "{words:?}: {err}");
    }
}
