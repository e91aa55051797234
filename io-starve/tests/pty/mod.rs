//! A program on a pseudo-terminal, in a process group of its own as a shell would start it. No step waits for a time, each waits
//! for bytes or for the process.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};

/// What takes a terminal to its alternate screen.
pub const ENTER: &str = "\u{1b}[?1049h";
/// What brings it back.
pub const LEAVE: &str = "\u{1b}[?1049l";
/// For a machine that is very slow; nothing takes this long when the test passes.
const AT_MOST: Duration = Duration::from_secs(60);

/// The program and its terminal.
pub struct Session {
    child: Child,
    master: File,
    slave: OwnedFd,
    before: String,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Session {
    pub fn start(command: &mut Command) -> Session {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let name = ptsname(&master, vec![]).unwrap();
        let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 50,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let before = modes(&slave);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .process_group(0)
            .spawn()
            .unwrap();
        let (sender, output) = channel();
        let mut reader = File::from(master.try_clone().unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Session {
            child,
            master: File::from(master),
            slave,
            before,
            output,
            seen: String::new(),
        }
    }

    /// Reads until this comes, forgets all up to it, and returns what came before.
    pub fn expect(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                let mut before = std::mem::replace(&mut self.seen, rest);
                before.truncate(at);
                return before;
            }
            match self.output.recv_timeout(AT_MOST) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("{text:?} did not come after {:?}", self.seen),
            }
        }
    }

    pub fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// True while the terminal has the modes that it had at first.
    pub fn is_as_before(&self) -> bool {
        modes(&self.slave) == self.before
    }

    /// Waits for the end; the terminal must have its modes back.
    pub fn end(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        assert_eq!(modes(&self.slave), self.before);
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only after a failed assertion is it still there.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn modes(terminal: &OwnedFd) -> String {
    let t = tcgetattr(terminal).unwrap();
    format!(
        "{:?} {:?} {:?} {:?}",
        t.input_modes, t.output_modes, t.local_modes, t.control_modes
    )
}
