//! Where `watch` writes to: what `--output` takes.

use std::{
    fmt,
    net::{IpAddr, ToSocketAddrs},
    path::PathBuf,
};

use clap::builder::{OsStringValueParser, TypedValueParser};

use super::is_dash;
use crate::output::{datagram::Address, journald, syslog};

/// Where alerts go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
    /// The systemd journal, at its socket.
    Journald(PathBuf),
    /// A syslog daemon.
    Syslog(Address),
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Stdout => f.write_str("standard output"),
            Output::File(path) => write!(f, "{}", path.display()),
            Output::Journald(path) => write!(f, "journald ({})", path.display()),
            Output::Syslog(Address::Unix(path)) => write!(f, "syslog ({})", path.display()),
            Output::Syslog(Address::Udp(to)) => write!(f, "syslog ({to})"),
        }
    }
}

/// `-`, `FILE`, `journald[:SOCKET]`, `syslog[:SOCKET|:HOST[:PORT]]`.
pub(super) fn output() -> impl TypedValueParser<Value = Output> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(&text);
        if is_dash(&path) {
            return Ok(Output::Stdout);
        }
        let (scheme, rest) = match text.to_str() {
            Some(text) => text
                .split_once(':')
                .map_or((text, None), |(s, r)| (s, Some(r))),
            None => ("", None),
        };
        match (scheme, rest) {
            ("journald", rest) => Ok(Output::Journald(rest.unwrap_or(journald::SOCKET).into())),
            ("syslog", None) => Ok(Output::Syslog(Address::Unix(syslog::SOCKET.into()))),
            ("syslog", Some(rest)) if rest.starts_with('/') => {
                Ok(Output::Syslog(Address::Unix(rest.into())))
            }
            ("syslog", Some(rest)) => host(rest).map(Output::Syslog),
            _ if text.is_empty() => {
                Err("give the name of a file, -, journald or syslog".to_owned())
            }
            _ => Ok(Output::File(path)),
        }
    })
}

fn host(text: &str) -> Result<Address, String> {
    let with_port = match text.parse::<IpAddr>() {
        Ok(ip) => Ok(Some((ip, syslog::PORT).into())),
        Err(_) if text.contains(':') => text.to_socket_addrs().map(|mut a| a.next()),
        Err(_) => (text, syslog::PORT).to_socket_addrs().map(|mut a| a.next()),
    };
    match with_port {
        Ok(Some(address)) => Ok(Address::Udp(address)),
        Ok(None) => Err(format!("{text} has no address")),
        Err(e) => Err(format!(
            "{text} is no address: {e}; give syslog:HOST:PORT, syslog:/SOCKET or syslog"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn parsed(text: &str) -> Result<Output, String> {
        let command = clap::Command::new("x");
        output()
            .parse_ref(&command, None, OsStr::new(text))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn each_notation_has_its_meaning() {
        let said = |text| parsed(text).unwrap().to_string();
        assert_eq!(said("-"), "standard output");
        assert_eq!(said("/var/log/x"), "/var/log/x");
        assert_eq!(said("./journald"), "./journald");
        assert_eq!(said("journald"), "journald (/run/systemd/journal/socket)");
        assert_eq!(said("journald:/tmp/s"), "journald (/tmp/s)");
        assert_eq!(said("syslog"), "syslog (/dev/log)");
        assert_eq!(said("syslog:/tmp/s"), "syslog (/tmp/s)");
        assert_eq!(said("syslog:127.0.0.1"), "syslog (127.0.0.1:514)");
        assert_eq!(said("syslog:127.0.0.1:99"), "syslog (127.0.0.1:99)");
        assert_eq!(said("syslog:[::1]:99"), "syslog ([::1]:99)");
        assert!(
            parsed("syslog:1.2.3.4:port")
                .unwrap_err()
                .contains("give syslog:HOST:PORT")
        );
        assert!(parsed("").is_err());
    }
}
