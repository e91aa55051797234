//! fsyncs whose end is not seen.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    sync::mpsc,
    thread,
};

use crate::{
    filesystem::{Ext4, Recording},
    machine::{Disk, Watch, io_starve, programs_of, until},
};

/// Syncs a file whenever it is told to, in a thread of its own.
struct Syncer {
    tid: u32,
    tell: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
}

impl Syncer {
    fn start(file: PathBuf) -> Syncer {
        let (tell, told) = mpsc::channel();
        let (say, done) = mpsc::channel();
        let (number, tid) = mpsc::channel();
        thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            number.send(u32::try_from(tid).unwrap()).unwrap();
            let mut file = File::create(file).unwrap();
            for () in told {
                file.write_all(&[1; 4096]).unwrap();
                file.sync_all().unwrap();
                say.send(()).unwrap();
            }
        });
        Syncer {
            tid: tid.recv().unwrap(),
            tell,
            done,
        }
    }

    fn sync(&self) {
        self.tell.send(()).unwrap();
        self.done.recv().unwrap();
    }
}

#[test]
#[ignore = "attaches to this kernel, needs root: cargo xtask test"]
fn an_fsync_whose_end_was_missed_is_given_up() {
    let disk = Disk::new(64 << 20, "none");
    let fs_ = Ext4::new(&disk, "defaults");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.rec");
    let faults = tempfile::tempdir().unwrap();
    let gone = faults.path().join("without-ext4_sync_file_exit");
    let mut command = io_starve();
    command.env("IO_STARVE_FAULTS", faults.path());
    let record = ["--record", file.to_str().unwrap()];
    let watch = Watch::spawn(&disk, &record, &mut command);
    let lives = Syncer::start(fs_.file("lives"));
    let ends = Syncer::start(fs_.file("ends"));
    let with = programs_of(watch.pid()).len();
    fs::write(&gone, "").unwrap();
    until("the hook is detached", || {
        (programs_of(watch.pid()).len() + 1 == with).then_some(())
    });
    lives.sync();
    ends.sync();
    let (lives_tid, ends_tid) = (lives.tid, ends.tid);
    drop(ends);
    until("the thread is gone", || {
        let task = format!("/proc/self/task/{ends_tid}");
        (!PathBuf::from(task).exists()).then_some(())
    });
    fs::remove_file(&gone).unwrap();
    until("the hook is attached again", || {
        (programs_of(watch.pid()).len() == with).then_some(())
    });
    watch.wait_for("both are given up, and that is said", |watch| {
        let lost = &watch.last_status()?["loss"]["kinds"]["spans-dropped"];
        (lost.as_u64()? >= 2).then_some(())
    });
    watch.settle();
    lives.sync();
    watch.settle();
    watch.stop();

    let recording = Recording::read(&file);
    for tid in [lives_tid, ends_tid] {
        let seemed = recording.fsyncs().any(|(_, f)| f["tid"] == tid);
        assert!(seemed, "it seemed to run");
        assert_eq!(recording.left_running(tid), 0, "it runs no more");
    }
    drop((lives, fs_));
}
