//! Writing a recording: frames are packed and written by a thread of their own, because the disk that they go
//! to may be the one that starves.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
    time::Duration,
};

use zstd::stream::write::Encoder;

use super::{Checkpoint, Header, Line, RecordingError};
use crate::{
    files::{Place, Purpose},
    model::observation::Observation,
};

/// A frame is closed when its observations span this much: what a crash may lose.
pub(super) const FRAME_NS: u64 = 1_000_000_000;

/// Frames that may wait for the disk: two minutes of some 100 KiB each. A disk that takes longer loses the recording,
/// not the run.
const QUEUE: usize = 120;

/// How long the end of the run waits for the disk to take the rest.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Writes one recording.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    frame: Vec<u8>,
    frame_begin_ns: Option<u64>,
    in_frame: u64,
    observations: u64,
    queue: SyncSender<Frame>,
    done: Receiver<Result<(), (u64, io::Error)>>,
    // Kept so that the thread has an owner; its result comes through `done`, which can be waited for with a limit.
    _thread: JoinHandle<()>,
}

/// Lines for one zstd frame.
#[derive(Debug)]
struct Frame {
    lines: Vec<u8>,
    observations: u64,
}

impl Recorder {
    /// Opens a file to record to, without changing one that is there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn place(path: &Path) -> Result<Place, RecordingError> {
        Place::open(path, Purpose::Replace).map_err(|source| RecordingError::Create {
            path: path.to_owned(),
            source,
        })
    }

    /// Empties the file and writes header and checkpoint.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(place: Place, checkpoint: &Checkpoint) -> Result<Recorder, RecordingError> {
        let path = place.path().to_owned();
        let failed = |source| RecordingError::Create {
            path: path.clone(),
            source,
        };
        let mut lines = Vec::new();
        let written = append_json(&mut lines, &Header::of_this_build())
            .and_then(|()| append_json(&mut lines, &Line::Checkpoint(Cow::Borrowed(checkpoint))));
        written.map_err(|source| RecordingError::Encode {
            path: path.clone(),
            source,
        })?;
        let mut file = place.begin().map_err(failed)?;
        let length = write_frame(&mut file, &lines).map_err(failed)?;
        let (queue, frames) = sync_channel::<Frame>(QUEUE);
        let (report, done) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || {
                // Nobody listens any more when the run gave this recording up.
                let _ = report.send(write_all(&mut file, length, &frames));
            })
            .map_err(failed)?;
        Ok(Recorder {
            path,
            frame: Vec::new(),
            frame_begin_ns: None,
            in_frame: 0,
            observations: 0,
            queue,
            done,
            _thread: thread,
        })
    }

    /// Adds an observation.
    ///
    /// # Errors
    /// When the recording cannot go on; it must be dropped then, and what was written before stays readable.
    pub fn write(&mut self, observation: &Observation) -> Result<(), RecordingError> {
        // The frame is closed before and not after: its age is known only from the next observation.
        match self.frame_begin_ns {
            Some(begin) if observation.mono_ns.saturating_sub(begin) >= FRAME_NS => {
                self.close_frame()?;
                self.frame_begin_ns = Some(observation.mono_ns);
            }
            Some(_) => {}
            None => self.frame_begin_ns = Some(observation.mono_ns),
        }
        self.append(&Line::Observation(Cow::Borrowed(observation)))?;
        self.observations += 1;
        self.in_frame += 1;
        Ok(())
    }

    /// Writes the end mark and waits, not for ever, until everything is with the kernel. Returns the number of
    /// observations in the file.
    ///
    /// # Errors
    /// When the rest could not be written.
    pub fn finish(mut self) -> Result<u64, RecordingError> {
        self.append(&Line::End {
            observations: self.observations,
        })?;
        self.close_frame()?;
        let Recorder {
            path,
            observations,
            queue,
            done,
            ..
        } = self;
        drop(queue);
        match done.recv_timeout(LAST_WRITE) {
            Ok(Ok(())) => Ok(observations),
            Ok(Err((kept, source))) => Err(RecordingError::Write { path, kept, source }),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(RecordingError::Stuck {
                    path,
                    seconds: LAST_WRITE.as_secs(),
                })
            }
        }
    }

    fn append(&mut self, line: &Line<'_>) -> Result<(), RecordingError> {
        append_json(&mut self.frame, line).map_err(|source| RecordingError::Encode {
            path: self.path.clone(),
            source,
        })
    }

    fn close_frame(&mut self) -> Result<(), RecordingError> {
        let frame = Frame {
            lines: std::mem::take(&mut self.frame),
            observations: std::mem::take(&mut self.in_frame),
        };
        self.queue.try_send(frame).map_err(|e| {
            let path = self.path.clone();
            match (e, self.done.try_recv()) {
                (TrySendError::Disconnected(_), Ok(Err((kept, source)))) => {
                    RecordingError::Write { path, kept, source }
                }
                _ => RecordingError::Stuck {
                    path,
                    seconds: QUEUE as u64,
                },
            }
        })
    }
}

pub(super) fn append_json<T: serde::Serialize>(
    lines: &mut Vec<u8>,
    line: &T,
) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.push(b'\n');
    Ok(())
}

/// Where frames go.
trait Medium: Write {
    /// Cuts off what is after `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Medium for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Writes frames until the queue is closed; after an error the file is cut back to its last whole frame.
fn write_all(
    file: &mut impl Medium,
    mut length: u64,
    frames: &Receiver<Frame>,
) -> Result<(), (u64, io::Error)> {
    let mut kept = 0;
    for frame in frames {
        match write_frame(file, &frame.lines) {
            Ok(n) => {
                length += n;
                kept += frame.observations;
            }
            Err(e) => {
                // Fails on a pipe, which then ends in a torn frame: readers cope with both.
                let _ = file.cut(length);
                return Err((kept, e));
            }
        }
    }
    Ok(())
}

/// One frame in one write. Without fsync: it would add to the trouble that is being recorded, and against a crash
/// of the recorder, which is what frames are for, the page cache is enough.
fn write_frame(file: &mut impl Write, lines: &[u8]) -> io::Result<u64> {
    let packed = packed(lines)?;
    file.write_all(&packed)?;
    Ok(packed.len() as u64)
}

/// Lines as one frame.
pub(super) fn packed(lines: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(lines)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::{
        files::tests::{fifo, reader},
        source::recording::{
            Recording,
            tests::{checkpoint, observations, recorded},
        },
    };

    /// A disk that takes so many bytes and no more, the last write in part.
    struct SmallDisk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            let n = data.len().min(self.room - self.bytes.len());
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend(&data[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for SmallDisk {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            self.bytes.truncate(length as usize);
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_keeps_whole_frames_and_says_how_many_observations() {
        let header = recorded(&[]);
        // Without the frame of the end mark.
        let header = &header[..zstd::zstd_safe::find_frame_compressed_size(&header).unwrap()];
        let list = observations(8);
        let mut disk = SmallDisk {
            bytes: header.to_vec(),
            room: header.len() + 400,
        };
        let (queue, frames) = sync_channel(8);
        for o in &list {
            let mut lines = Vec::new();
            append_json(&mut lines, &Line::Observation(Cow::Borrowed(o))).unwrap();
            queue
                .send(Frame {
                    lines,
                    observations: 1,
                })
                .unwrap();
        }
        let (kept, error) = write_all(&mut disk, header.len() as u64, &frames).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!((1..8).contains(&kept), "{kept}");
        let mut recording = Recording::new(&disk.bytes[..], "small").unwrap();
        let mut back = Vec::new();
        while let Some(o) = recording.next_observation() {
            back.push(o);
        }
        assert_eq!(back, list[..kept as usize]);
        assert_eq!(
            recording.ending(),
            Some(&crate::source::recording::Ending::NoEndMark)
        );
    }

    /// What ends a recording that nobody reads any more. Its thread may come to that late on a busy machine: 10 s and more are given to it.
    fn ending_of(mut recorder: Recorder) -> String {
        let list = observations(4_000);
        let late = list.iter().cycle().take(10_000).inspect(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
        });
        let error = list
            .iter()
            .chain(late)
            .find_map(|o| recorder.write(o).err())
            .unwrap_or_else(|| panic!("a recorder without a reader went on"));
        error.to_string()
    }

    #[test]
    fn the_run_learns_that_its_recording_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let reader = reader(&path);
        let recorder = Recorder::create(Recorder::place(&path).unwrap(), &checkpoint()).unwrap();
        drop(reader);
        let why = ending_of(recorder);
        assert!(
            why.contains("Broken pipe") && why.contains("reader has gone"),
            "{why}"
        );
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_no_reason_to_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = fifo(dir.path());
        let recorder = Recorder::create(Recorder::place(&path).unwrap(), &checkpoint()).unwrap();
        // Whoever comes late still gets it from the beginning.
        let mut begin = [0; 4];
        reader(&path).read_exact(&mut begin).unwrap();
        assert_eq!(u32::from_le_bytes(begin), 0xFD2F_B528);
        let why = ending_of(recorder);
        assert!(why.contains("its reader"), "{why}");
    }
}
