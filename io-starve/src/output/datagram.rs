//! A log daemon's socket: each message is one datagram.
//!
//! In: an address and messages. The daemon may be restarted at any time: a message waits for it a few seconds, and when it does
//! not come back those after it are tried once each and counted as lost.

use std::{
    io::{self, Write},
    net::{SocketAddr, UdpSocket},
    os::{fd::AsFd, unix::net::UnixDatagram},
    path::PathBuf,
    thread::sleep,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    net::{
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketAddrUnix as UnixName, sendmsg_addr,
    },
};

use super::sink::{SinkError, Target};

/// How often a message is tried while the daemon restarts, and how long between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);
/// A daemon that takes nothing for this long gets the next message.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where messages go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket in the filesystem.
    Unix(PathBuf),
    /// A host.
    Udp(SocketAddr),
}

/// An open socket.
#[derive(Debug)]
pub struct Datagram {
    socket: Socket,
    name: String,
    /// What does not fit into a datagram goes as a sealed file, which journald understands.
    by_file: bool,
    troubled: bool,
    error: Option<io::Error>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram, UnixName),
    Udp(UdpSocket),
}

impl Datagram {
    /// Opens a socket to a daemon that is called `name` in messages. A unix socket must be there.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn open(address: &Address, name: String, by_file: bool) -> Result<Datagram, SinkError> {
        let open = || -> io::Result<Socket> {
            match address {
                Address::Unix(path) => {
                    // Only to find out whether somebody listens: a daemon that restarts makes a new socket.
                    UnixDatagram::unbound()?.connect(path)?;
                    let socket = UnixDatagram::unbound()?;
                    socket.set_write_timeout(Some(PATIENCE))?;
                    Ok(Socket::Unix(socket, SocketAddrUnix::new(path)?))
                }
                Address::Udp(to) => {
                    let any: SocketAddr = match to {
                        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
                    };
                    let socket = UdpSocket::bind(any)?;
                    socket.connect(to)?;
                    Ok(Socket::Udp(socket))
                }
            }
        };
        match open() {
            Ok(socket) => Ok(Datagram {
                socket,
                name,
                by_file,
                troubled: false,
                error: None,
            }),
            Err(source) => Err(SinkError::Connect {
                target: name,
                source,
            }),
        }
    }

    /// Where it leads, in words.
    pub fn target(&self) -> &str {
        &self.name
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match &self.socket {
            Socket::Udp(socket) => socket.send(message).map(drop),
            Socket::Unix(socket, to) => {
                let part = [io::IoSlice::new(message)];
                let mut nothing = SendAncillaryBuffer::default();
                match sendmsg_addr(socket, to, &part, &mut nothing, SendFlags::NOSIGNAL) {
                    Err(rustix::io::Errno::MSGSIZE) if self.by_file => by_file(socket, to, message),
                    other => other.map(drop).map_err(Into::into),
                }
            }
        }
    }
}

/// As sd_journal_send(3) does it: the content in a sealed file, whose descriptor is sent alone.
fn by_file(socket: &UnixDatagram, to: &UnixName, message: &[u8]) -> io::Result<()> {
    let file = memfd_create("io-starve", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    file.write_all(message)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, all)?;
    let fds = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg_addr(socket, to, &[], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

impl Target for Datagram {
    fn put(&mut self, message: &[u8]) -> Result<bool, SinkError> {
        let tries = if self.troubled { 1 } else { TRIES };
        for attempt in 1..=tries {
            let Err(e) = self.send(message) else {
                if std::mem::take(&mut self.troubled) {
                    complain!(
                        "io-starve: {} takes messages again; those in between are lost",
                        self.name
                    );
                }
                return Ok(true);
            };
            let worth_waiting = is_restart(&e) && attempt < tries;
            if !worth_waiting {
                if !std::mem::replace(&mut self.troubled, true) {
                    complain!(
                        "io-starve: cannot send to {}: {e}; alerts are lost there until it works again; {}",
                        self.name,
                        hint(&e)
                    );
                }
                self.error = Some(e);
                return Ok(false);
            }
            sleep(PAUSE);
        }
        Ok(false)
    }

    fn last_error(self) -> Option<io::Error> {
        self.error
    }
}

/// The daemon is not there at this moment.
fn is_restart(e: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        e.kind(),
        Kind::ConnectionRefused | Kind::NotFound | Kind::ConnectionReset
    )
}

/// What to do about an error of sending.
pub(super) fn hint(e: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    match e.kind() {
        Kind::NotFound | Kind::ConnectionRefused => {
            "is the log daemon running, is this its socket?"
        }
        Kind::PermissionDenied => "this user may not write to the socket",
        Kind::WouldBlock | Kind::TimedOut => "the log daemon takes nothing",
        Kind::NetworkUnreachable | Kind::HostUnreachable => "check the address and the network",
        _ if e.raw_os_error() == Some(libc::EMSGSIZE) => {
            "the message is longer than a datagram may be; use a unix socket or a file"
        }
        _ => "check the address",
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    fn open(path: &std::path::Path, by_file: bool) -> Datagram {
        Datagram::open(
            &Address::Unix(path.to_owned()),
            "a daemon".to_owned(),
            by_file,
        )
        .unwrap()
    }

    #[test]
    fn a_daemon_that_restarts_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut ours = open(&path, false);
        assert!(ours.put(b"one").unwrap());
        let mut got = [0; 16];
        assert_eq!(daemon.recv(&mut got).unwrap(), 3);
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        let sender = std::thread::spawn(move || ours.put(b"while it is gone").unwrap());
        let daemon = UnixDatagram::bind(&path).unwrap();
        assert_eq!(daemon.recv(&mut got).unwrap(), 16);
        assert_eq!(&got, b"while it is gone");
        assert!(sender.join().unwrap());
    }

    #[test]
    fn what_is_too_long_goes_as_a_file_where_that_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let long = vec![b'x'; 8 << 20];
        assert!(!open(&path, false).put(&long).unwrap());
        assert!(open(&path, true).put(&long).unwrap());
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = rustix::net::RecvAncillaryBuffer::new(&mut space);
        rustix::net::recvmsg(
            &daemon,
            &mut [],
            &mut ancillary,
            rustix::net::RecvFlags::empty(),
        )
        .unwrap();
        let Some(rustix::net::RecvAncillaryMessage::ScmRights(mut fds)) = ancillary.drain().next()
        else {
            panic!("no file");
        };
        let mut file = std::fs::File::from(fds.next().unwrap());
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content.len(), long.len());
    }

    #[test]
    fn a_socket_that_is_not_there_is_said_at_once() {
        let address = Address::Unix("/nowhere/socket".into());
        let error =
            Datagram::open(&address, "journald (/nowhere/socket)".to_owned(), true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot send to journald (/nowhere/socket): No such file or directory (os error 2); \
             is the log daemon running, is this its socket?"
        );
    }

    #[test]
    fn a_host_gets_one_datagram_for_each_message() {
        let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = Address::Udp(daemon.local_addr().unwrap());
        let mut ours = Datagram::open(&address, "a host".to_owned(), false).unwrap();
        assert!(ours.put(b"one").unwrap() && ours.put(b"two").unwrap());
        let mut got = [0; 16];
        assert_eq!(daemon.recv(&mut got).unwrap(), 3);
        assert_eq!(daemon.recv(&mut got).unwrap(), 3);
        assert_eq!(&got[..3], b"two");
    }
}
