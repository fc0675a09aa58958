//! Extracts files from Debian packages without installing them: packages of another architecture, perhaps on a machine
//! that is not Debian.
//!
//! A mirror keeps no version forever, so the archive's index gives the current version and its checksum. On Debian, apt
//! does this with lists of its own, and with the system's mirror, proxy and check of signatures. Other systems download
//! from Debian's servers, which a certificate identifies.

mod index;

use std::{
    fs::{self, File},
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, anyhow, ensure};
use sha2::{Digest, Sha256};

use super::{
    SetupStep,
    apt::{self, KEYRING},
    output_of,
};
use crate::workspace;
use index::Stanza;

/// The Debian mirror for systems without one.
const MIRROR: &str = "https://deb.debian.org/debian";
/// The release that always exists.
const SUITE: &str = "stable";
/// The architecture of the packages. Packages for all architectures are among them.
const ARCHITECTURE: &str = "arm64";

/// One component of the archive, while files are extracted from it. Only one can be open at a time.
pub struct Archive {
    /// A directory for downloads. It is removed with this value, or by the next one if this process was killed.
    scratch: PathBuf,
    /// The release.
    suite: String,
    index: Index,
    _turn: File,
}

/// The list of packages.
enum Index {
    /// apt has the list, with this configuration file.
    Apt { configuration: String },
    /// The text of the list.
    Text(String),
}

impl Archive {
    /// Opens the component of this name in its current state.
    pub fn open(component: &str) -> Result<Self> {
        let target = workspace::root().join("target");
        let (scratch, lock) = (target.join("archive"), target.join("archive.lock"));
        fs::create_dir_all(&target).with_context(|| format!("{} cannot be made", target.display()))?;
        let turn = File::create(&lock).and_then(|file| file.lock().map(|()| file));
        let turn = turn.with_context(|| format!("{} cannot be locked", lock.display()))?;
        let mut archive = Self { scratch, suite: SUITE.into(), index: Index::Text(String::new()), _turn: turn };
        archive.clear();
        let made = |name: &str| {
            let directory = archive.scratch.join(name);
            fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))
        };
        ["lists/partial", "cache/archives/partial", "unpacked"].into_iter().try_for_each(made)?;
        let is_debian = Path::new(KEYRING).is_file() && output_of(Command::new("apt-get").arg("--version")).is_ok();
        archive.index = if is_debian { archive.ask_apt(component)? } else { archive.ask_mirror(component)? };
        Ok(archive)
    }

    fn clear(&self) {
        // A file that cannot be removed is harmless.
        let _ = fs::remove_dir_all(&self.scratch);
    }

    fn file(&self, name: &str) -> String {
        self.scratch.join(name).to_string_lossy().into_owned()
    }

    /// Asks this system's own mirror for the release that always exists, or, if the mirror does not have it, for the
    /// system's own release.
    fn ask_apt(&mut self, component: &str) -> Result<Index> {
        let (mirror, own) = apt::mirror()?.unwrap_or_else(|| (MIRROR.into(), SUITE.into()));
        let error = match self.ask_apt_for(&mirror, SUITE, component) {
            Err(error) if own != SUITE => error,
            outcome => return outcome,
        };
        let index = self.ask_apt_for(&mirror, &own, component);
        let index = index.with_context(|| format!("{mirror} has neither {SUITE} nor {own} of Debian: {error:#}"))?;
        self.suite = own;
        Ok(index)
    }

    fn ask_apt_for(&self, mirror: &str, suite: &str, component: &str) -> Result<Index> {
        let (sources, configuration) = (self.file("sources.list"), self.file("apt.conf"));
        SetupStep::write(&sources, format!("deb [signed-by={KEYRING}] {mirror} {suite} {component}\n")).take()?;
        let options = [
            ("Dir::Etc::SourceList", sources.as_str()),
            ("Dir::Etc::SourceParts", "/dev/null"),
            ("Dir::State::Lists", &self.file("lists")),
            ("Dir::State::Status", "/dev/null"),
            ("Dir::Cache", &self.file("cache")),
            ("APT::Architecture", ARCHITECTURE),
            ("APT::Architectures", ARCHITECTURE),
            // Other users may not be able to write here.
            ("APT::Sandbox::User", "root"),
            // A single list that cannot be downloaded is an error.
            ("APT::Update::Error-Mode", "any"),
            ("Acquire::Languages", "none"),
            ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false"),
        ];
        let lines = options.map(|(option, value)| format!("{option} \"{value}\";\n"));
        SetupStep::write(&configuration, lines.concat()).take()?;
        SetupStep::run(&["apt-get", "-c", &configuration, "update"]).take()?;
        Ok(Index::Apt { configuration })
    }

    fn ask_mirror(&self, component: &str) -> Result<Index> {
        let packed = self.file("Packages.gz");
        let url = format!("{MIRROR}/dists/{SUITE}/{component}/binary-{ARCHITECTURE}/Packages.gz");
        fetch(&url, &packed)?;
        Ok(Index::Text(output_of(Command::new("gzip").args(["-dc", &packed]))?))
    }

    /// Returns the index's description of a package.
    fn stanza(&self, package: &str) -> Result<Stanza> {
        let text = match &self.index {
            Index::Apt { configuration } => {
                &output_of(Command::new("apt-cache").args(["-c", configuration, "show", package]))?
            }
            Index::Text(text) => text,
        };
        Stanza::find(text, package).ok_or_else(|| anyhow!("Debian {} has no package {package}", self.suite))
    }

    /// Returns the first package that begins with `prefix` among the dependencies of `package`.
    pub fn dependency(&self, package: &str, prefix: &str) -> Result<String> {
        let found = self.stanza(package)?.dependency(prefix).map(String::from);
        found.ok_or_else(|| anyhow!("the package {package} depends on no {prefix}…"))
    }

    /// Extracts the files `names` from the directory `within` of the package, an absolute path, into `directory`.
    pub fn take(&self, package: &str, within: &str, names: &[&str], directory: &Path) -> Result<()> {
        let file = self.download(package)?;
        let unpacked = self.scratch.join("unpacked");
        let members: Vec<_> = names.iter().map(|name| format!(".{within}/{name}")).collect();
        unpack(&file, &unpacked, &members)?;
        fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        for (name, member) in names.iter().zip(&members) {
            let to = directory.join(name);
            fs::rename(unpacked.join(member), &to).with_context(|| format!("{} cannot be made", to.display()))?;
        }
        Ok(())
    }

    /// Downloads the package, and returns its path.
    fn download(&self, package: &str) -> Result<PathBuf> {
        let stanza = self.stanza(package)?;
        let path = stanza.field("Filename").with_context(|| format!("the index gives no path of {package}"))?;
        let hash = stanza.field("SHA256").with_context(|| format!("the index gives no checksum of {package}"))?;
        if let Some(bytes) = stanza.field("Size").and_then(|size| size.parse::<u64>().ok()) {
            eprintln!("setup: downloading {package}, {} MB", bytes.div_ceil(1_000_000));
        }
        let file = self.scratch.join("package.deb");
        match &self.index {
            Index::Apt { configuration } => {
                SetupStep::run(&["apt-get", "-c", configuration, "download", package]).run_in(&self.scratch)?;
                let entries = fs::read_dir(&self.scratch)?.filter_map(Result::ok);
                let downloaded = entries.into_iter().find(|entry| is_of(package, &entry.file_name().to_string_lossy()));
                let downloaded = downloaded.with_context(|| format!("apt-get has not downloaded {package}"))?;
                fs::rename(downloaded.path(), &file)?;
            }
            Index::Text(_) => fetch(&format!("{MIRROR}/{path}"), &file.to_string_lossy())?,
        }
        let found = checksum(&fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?);
        ensure!(found == hash, "the package {package} has the checksum {found}, but {hash} in the index");
        Ok(file)
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Whether a file of this name is the package, in any version. `_` ends the package's name and occurs in no name.
fn is_of(package: &str, file: &str) -> bool {
    file.strip_prefix(package).is_some_and(|rest| rest.starts_with('_') && rest.ends_with(".deb"))
}

fn fetch(url: &str, file: &str) -> Result<()> {
    // Redirects must not use another protocol, and a download that makes no progress must end.
    let secure = ["--proto", "=https", "--proto-redir", "=https"];
    let patient = ["--connect-timeout", "30", "--speed-limit", "1", "--speed-time", "60", "--retry", "3"];
    let progress = if io::stderr().is_terminal() { "--progress-bar" } else { "--silent" };
    let usual = ["--fail", "--location", progress, "--show-error", "--output", file, url];
    SetupStep::run(&[&["curl"][..], &secure, &patient, &usual].concat()).take()
}

/// Extracts the files `members` from a package into `directory`.
fn unpack(package: &Path, directory: &Path, members: &[String]) -> Result<()> {
    let (mut read, form) = if output_of(Command::new("dpkg-deb").arg("--version")).is_ok() {
        let mut read = workspace::command("dpkg-deb");
        read.arg("--fsys-tarfile").arg(package);
        (read, "-x")
    } else {
        // A package is an `ar` archive.
        let mut read = workspace::command("ar");
        read.arg("p").arg(package).arg("data.tar.xz");
        (read, "-xJ")
    };
    let mut reader = read.stdout(Stdio::piped()).spawn().context("the package cannot be unpacked")?;
    let mut write = workspace::command("tar");
    write.arg(form).arg("-C").arg(directory).args(["-f", "-"]).args(members);
    write.stdin(reader.stdout.take().map_or_else(Stdio::null, Stdio::from));
    let status = write.status().context("tar cannot be started")?;
    // tar may have closed the pipe after it has found all files.
    let _ = reader.wait();
    ensure!(status.success(), "{} cannot be unpacked: tar failed with {status}", package.display());
    Ok(())
}

/// Returns the SHA-256 checksum in hexadecimal digits.
fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{checksum, is_of};

    #[test]
    fn the_file_of_a_package_is_told_from_those_of_others() {
        assert!(is_of("linux-image-6.12", "linux-image-6.12_6.12.5-1_arm64.deb"));
        for other in
            ["package.deb", "linux-image-6.12-rt_6.12.5-1_arm64.deb", "linux-image-6.12_6.12.5-1_arm64.deb.part"]
        {
            assert!(!is_of("linux-image-6.12", other), "{other}");
        }
    }

    #[test]
    fn checksums_are_those_of_the_standard() {
        // FIPS 180-2, B.1.
        assert_eq!(checksum(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
