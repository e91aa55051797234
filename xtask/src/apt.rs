//! Packages of other Debian suites, fetched without touching what is installed.
//!
//! In: the name of a suite. Out: files of packages. The machine's own apt source entry is copied with its suite replaced, so
//! mirrors, proxies and keys are the machine's; lists and downloads live below target/.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::cmd::{command, is_debian, output, target};

/// How long fetched package lists are used before they are fetched again.
const LIST_AGE: Duration = Duration::from_secs(24 * 3600);

/// A suite whose lists are fetched.
pub struct Suite {
    name: String,
    dir: PathBuf,
}

impl Suite {
    /// Fetches the lists of a suite, unless that was done within the last day.
    pub fn open(name: &str) -> Result<Suite> {
        if !is_debian() {
            bail!("this machine is not Debian: {name} packages come through its own apt sources");
        }
        let dir = target().join("apt").join(name);
        fs::create_dir_all(dir.join("lists/partial"))?;
        let suite = Suite {
            name: name.to_string(),
            dir,
        };
        let stamp = suite.dir.join("updated");
        let fresh = fs::metadata(&stamp)
            .and_then(|m| m.modified())
            .is_ok_and(|t| t.elapsed().is_ok_and(|age| age < LIST_AGE));
        if !fresh {
            let sources = machine_sources()?;
            let entry = replace_suite(&sources, &machine_codename()?, name).with_context(|| {
                format!("no entry for the main archive in /etc/apt/sources.list or sources.list.d, so {name} cannot be derived from it")
            })?;
            let file = match &entry {
                Entry::Stanza(_) => suite.dir.join("suite.sources"),
                Entry::Line(_) => suite.dir.join("suite.list"),
            };
            let (Entry::Stanza(text) | Entry::Line(text)) = entry;
            fs::write(&file, text)?;
            output(suite.tool("apt-get")?.args(["-q", "update"]))
                .with_context(|| format!("cannot fetch the package lists of {name}: is the network reachable, is the suite still on the mirror?"))?;
            fs::write(&stamp, "")?;
        }
        Ok(suite)
    }

    /// An apt program that sees this suite only.
    fn tool(&self, program: &str) -> Result<Command> {
        let list = ["suite.sources", "suite.list"]
            .map(|f| self.dir.join(f))
            .into_iter()
            .find(|f| f.exists())
            .with_context(|| format!("no source entry was written for {}", self.name))?;
        let mut cmd = command(program);
        cmd.arg("-o")
            .arg(format!("Dir::Etc::sourcelist={}", list.display()));
        cmd.args(["-o", "Dir::Etc::sourceparts=-"]);
        cmd.arg("-o").arg(format!(
            "Dir::State::lists={}",
            self.dir.join("lists").display()
        ));
        // Without these apt would answer from, and overwrite, the machine's own cache.
        cmd.args([
            "-o",
            "Dir::Cache::pkgcache=",
            "-o",
            "Dir::Cache::srcpkgcache=",
        ]);
        // The download runs as root: apt's own user often cannot write to the checkout.
        cmd.args(["-o", "APT::Sandbox::User=root"]);
        Ok(cmd)
    }

    /// Names of the packages that begin with `prefix`.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let out = output(self.tool("apt-cache")?.args(["pkgnames", prefix]))?;
        Ok(out.lines().map(str::to_string).collect())
    }

    /// Versions of a package in this suite, the newest first.
    pub fn versions(&self, package: &str) -> Result<Vec<String>> {
        let out = output(self.tool("apt-cache")?.args(["madison", package]))?;
        Ok(out
            .lines()
            .filter_map(|l| l.split('|').nth(1))
            .map(|v| v.trim().to_string())
            .collect())
    }

    /// Names of the packages that a package depends on.
    pub fn depends(&self, package: &str) -> Result<Vec<String>> {
        let out = output(
            self.tool("apt-cache")?
                .args(["depends", "--important", package]),
        )?;
        Ok(out
            .lines()
            .filter_map(|l| l.trim().strip_prefix("Depends: "))
            .map(|d| d.trim_matches(['<', '>']).to_string())
            .collect())
    }

    /// Downloads packages (`name` or `name=version`) into `dir` and returns their files.
    pub fn download(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir)?;
        let mut files = Vec::new();
        for package in packages {
            let name = package.split('=').next().unwrap_or(package);
            let prefix = format!("{name}_");
            let have = || -> Result<Option<PathBuf>> {
                let mut found = Vec::new();
                for entry in fs::read_dir(dir)? {
                    let path = entry?.path();
                    let file = path
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned();
                    if file.starts_with(&prefix) && file.ends_with(".deb") {
                        found.push(path);
                    }
                }
                found.sort();
                Ok(found.pop())
            };
            if have()?.is_none() {
                eprintln!("apt: downloading {package} from {}", self.name);
                output(
                    self.tool("apt-get")?
                        .args(["-q", "download", package])
                        .current_dir(dir),
                )?;
            }
            files.push(
                have()?.with_context(|| {
                    format!("apt downloaded {package}, but left no {prefix}*.deb")
                })?,
            );
        }
        Ok(files)
    }
}

/// Unpacks packages into `dir` without installing them.
pub fn unpack(debs: &[PathBuf], dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    for deb in debs {
        output(command("dpkg").arg("-x").arg(deb).arg(dir))?;
    }
    Ok(())
}

/// An apt source entry in one of its two notations.
#[derive(Debug, PartialEq)]
enum Entry {
    /// deb822, for a file that ends in `.sources`.
    Stanza(String),
    /// One line, for a file that ends in `.list`.
    Line(String),
}

fn machine_codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    text.lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .map(|v| v.trim_matches('"').to_string())
        .context("/etc/os-release names no VERSION_CODENAME, so the machine's own suite is unknown")
}

/// All source entries of the machine: (file name, text).
fn machine_sources() -> Result<Vec<(String, String)>> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(dir) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(dir.filter_map(|e| e.ok()).map(|e| e.path()));
    }
    files.sort();
    Ok(files
        .into_iter()
        .filter_map(|f| {
            Some((
                f.file_name()?.to_string_lossy().into_owned(),
                fs::read_to_string(&f).ok()?,
            ))
        })
        .collect())
}

/// The entry that serves the machine's own suite (or its security suite, for a wanted `…-security`), with the wanted suite in its place.
fn replace_suite(sources: &[(String, String)], codename: &str, wanted: &str) -> Option<Entry> {
    let own = if wanted.ends_with("-security") {
        format!("{codename}-security")
    } else {
        codename.to_string()
    };
    for (file, text) in sources {
        if file.ends_with(".sources") {
            for stanza in text.split("\n\n") {
                let serves = stanza
                    .lines()
                    .find_map(|l| l.strip_prefix("Suites:"))
                    .is_some_and(|s| s.split_whitespace().any(|s| s == own));
                if serves {
                    let lines: Vec<String> = stanza
                        .lines()
                        .filter(|l| !l.trim().is_empty())
                        .map(|l| {
                            if l.starts_with("Suites:") {
                                format!("Suites: {wanted}")
                            } else {
                                l.to_string()
                            }
                        })
                        .collect();
                    return Some(Entry::Stanza(lines.join("\n") + "\n"));
                }
            }
        } else if file.ends_with(".list") {
            for line in text.lines().filter(|l| l.starts_with("deb ")) {
                let words: Vec<&str> = line.split_whitespace().collect();
                if words.contains(&own.as_str()) {
                    let words: Vec<&str> = words
                        .iter()
                        .map(|w| if *w == own { wanted } else { *w })
                        .collect();
                    return Some(Entry::Line(words.join(" ") + "\n"));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn src(name: &str, text: &str) -> (String, String) {
        (name.to_string(), text.to_string())
    }

    #[test]
    fn a_stanza_is_copied_with_its_suite_replaced() {
        let text = "Types: deb\nURIs: mirror-a\nSuites: bookworm bookworm-updates\nComponents: main\n\nTypes: deb\nURIs: mirror-b\nSuites: bookworm-security\nComponents: main\n";
        let all = [
            src("other.list", "deb elsewhere nodistro main\n"),
            src("debian.sources", text),
        ];
        assert_eq!(
            replace_suite(&all, "bookworm", "bullseye"),
            Some(Entry::Stanza(
                "Types: deb\nURIs: mirror-a\nSuites: bullseye\nComponents: main\n".into()
            ))
        );
        assert_eq!(
            replace_suite(&all, "bookworm", "bookworm-security"),
            Some(Entry::Stanza(
                "Types: deb\nURIs: mirror-b\nSuites: bookworm-security\nComponents: main\n".into()
            ))
        );
        assert_eq!(replace_suite(&all, "trixie", "bullseye"), None);
    }

    #[test]
    fn the_one_line_notation_keeps_its_options() {
        let all = [src(
            "sources.list",
            "# comment\ndeb [signed-by=/k.gpg] mirror trixie main\n",
        )];
        assert_eq!(
            replace_suite(&all, "trixie", "trixie-backports"),
            Some(Entry::Line(
                "deb [signed-by=/k.gpg] mirror trixie-backports main\n".into()
            ))
        );
    }
}
