//! Files out of Debian packages that are not installed: of another architecture than this machine's, perhaps on a machine
//! that is not Debian. A package is known by its checksum, so it does not matter where it comes from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::{Step, text_of};
use crate::workspace;

/// The downloader of apt, which knows of proxies what apt does.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";
/// Where packages are: in the archive, and where they go when newer ones have replaced them.
const MIRRORS: [&str; 2] = ["http://deb.debian.org/debian", "http://archive.debian.org/debian"];

/// A file of Debian's archive.
pub struct Package {
    /// Its path below a mirror.
    pub path: &'static str,
    /// Its checksum, in hexadecimal digits.
    pub sha256: &'static str,
}

impl Package {
    /// Takes the files `members` out of the package. Returns the directory, in `directory`, that they are in with their paths.
    pub fn unpack(&self, directory: &Path, members: &[String]) -> Result<PathBuf> {
        let file = directory.join(self.name());
        self.download(&file)?;
        let unpacked = directory.join("unpacked");
        fs::create_dir_all(&unpacked).with_context(|| format!("{} cannot be made", unpacked.display()))?;
        let mut read = if text_of(Command::new("dpkg-deb").arg("--version")).is_ok() {
            let mut read = workspace::command("dpkg-deb");
            read.arg("--fsys-tarfile").arg(&file);
            read
        } else {
            // A package is an archive of the kind `ar`, which tar elsewhere than on Linux reads too.
            let mut read = workspace::command("tar");
            read.arg("-xOf").arg(&file).arg("data.tar.xz");
            read
        };
        let mut reader = read.stdout(Stdio::piped()).spawn().context("the package cannot be unpacked")?;
        let mut write = workspace::command("tar");
        write.arg("-x").arg("-C").arg(&unpacked).args(["-f", "-"]).args(members);
        write.stdin(reader.stdout.take().map_or_else(Stdio::null, Stdio::from));
        let status = write.status().context("tar cannot be started")?;
        // It may have been ended by tar, which has found all that it is to find.
        let _ = reader.wait();
        ensure!(status.success(), "{} cannot be unpacked: tar failed with {status}", file.display());
        fs::remove_file(&file).with_context(|| format!("{} cannot be removed", file.display()))?;
        Ok(unpacked)
    }

    fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Downloads the package to `file`.
    fn download(&self, file: &Path) -> Result<()> {
        let target = file.to_string_lossy();
        let hash = format!("SHA256:{}", self.sha256);
        let mut failures = Vec::new();
        for mirror in MIRRORS {
            let url = format!("{mirror}/{}", self.path);
            let step = match Path::new(APT_HELPER).is_file() {
                true => Step::run(&[APT_HELPER, "download-file", &url, &target, &hash]),
                false => {
                    Step::run(&["curl", "--fail", "--location", "--silent", "--show-error", "--output", &target, &url])
                }
            };
            match step.take().and_then(|()| self.check(file)) {
                Ok(()) => return Ok(()),
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
        bail!("{} cannot be had: {}", self.name(), failures.join("; "))
    }

    fn check(&self, file: &Path) -> Result<()> {
        let bytes = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let found = checksum(&bytes);
        ensure!(found == self.sha256, "{} has the checksum {found}, not {}", file.display(), self.sha256);
        Ok(())
    }
}

/// SHA-256, in hexadecimal digits.
pub fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // FIPS 180-2, B.1.
        assert_eq!(checksum(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
