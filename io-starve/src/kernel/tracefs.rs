//! Records of classic tracepoints: which there are, and where their members are.

use std::{fs, path::PathBuf};

/// Where every record of jbd2 has its device and its transaction, on 5.10 to 7.3: the programs are told so before they are
/// loaded, which may be before jbd2 is.
pub const JBD2: [(&str, u32); 2] = [("dev", 8), ("transaction", 16)];

/// Where tracefs is found.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

fn dir(subsystem: &str, event: &str) -> Option<PathBuf> {
    ROOTS
        .iter()
        .map(|root| {
            PathBuf::from(root)
                .join("events")
                .join(subsystem)
                .join(event)
        })
        .find(|dir| dir.exists())
}

/// True when the running kernel has this tracepoint now.
pub fn has(subsystem: &str, event: &str) -> bool {
    dir(subsystem, event).is_some()
}

/// Compares the record with what the programs expect; one that is not there yet agrees.
///
/// # Errors
///
/// With a sentence when it is another.
pub fn check(subsystem: &str, event: &str) -> Result<(), String> {
    if !ROOTS
        .iter()
        .any(|root| PathBuf::from(root).join("events").exists())
    {
        return Err(
            "tracefs is not mounted: mount -t tracefs tracefs /sys/kernel/tracing".to_owned(),
        );
    }
    let Some(text) = dir(subsystem, event).and_then(|d| fs::read_to_string(d.join("format")).ok())
    else {
        return Ok(());
    };
    // A checkpoint is of no one transaction.
    let members = if event == "jbd2_checkpoint" {
        &JBD2[..1]
    } else {
        &JBD2[..]
    };
    agrees(&text, members)
}

fn agrees(format: &str, members: &[(&str, u32)]) -> Result<(), String> {
    for &(member, expected) in members {
        match offset(format, member) {
            Some(at) if at == expected => {}
            Some(at) => {
                return Err(format!(
                    "its member {member} is at {at} instead of {expected}; this version does not know this kernel"
                ));
            }
            None => return Err(format!("its record has no member {member}")),
        }
    }
    Ok(())
}

/// Offset of a member in `format`: lines are `field:dev_t dev;  offset:8;  size:4;  signed:0;`.
fn offset(format: &str, member: &str) -> Option<u32> {
    format.lines().find_map(|line| {
        let (field, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        if field.split_whitespace().last()? != member {
            return None;
        }
        let at = rest.split("offset:").nth(1)?;
        at.split(';').next()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_name() {
        let good = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
                    \tfield:char sync_commit;\toffset:12;\tsize:1;\tsigned:0;\n\tfield:tid_t transaction;\toffset:16;\tsize:4;\tsigned:0;\n";
        assert_eq!(agrees(good, &JBD2), Ok(()));
        let moved = good.replace("offset:16", "offset:20");
        assert!(
            agrees(&moved, &JBD2)
                .unwrap_err()
                .contains("transaction is at 20 instead of 16")
        );
        assert!(agrees("", &JBD2).unwrap_err().contains("no member dev"));
    }
}
