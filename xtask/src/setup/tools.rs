//! Programs that the tests are made with: those that read cards, to find out whether one is right, and one that fetches what the
//! kernel serves.

use std::{
    io::ErrorKind,
    process::{Command, Stdio},
};

use anyhow::{Result, bail, ensure};

use super::{Step, is_root, text_of};

/// The programs, and Debian's packages that they are in.
const TOOLS: [(&str, &str); 4] =
    [("mcopy", "mtools"), ("fsck.fat", "dosfstools"), ("sfdisk", "fdisk"), ("curl", "curl")];

/// Gets the programs that are missing, or says what to type.
pub fn get() -> Result<()> {
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    eprintln!("setup: programs that the tests need are missing: {list}");
    if text_of(Command::new("apt-get").arg("--version")).is_err() {
        bail!("the tests need mtools, dosfstools, util-linux and curl: install what is missing of them, {list}");
    }
    let mut install = vec!["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];
    install.extend(&packages);
    let steps = [Step::run(&["apt-get", "update"]), Step::run(&install)];
    if !is_root()? {
        let lines: Vec<_> = steps.iter().map(|step| format!("    {}", step.shell())).collect();
        bail!("only root can install {list}; type\n{}", lines.join("\n"));
    }
    steps.iter().try_for_each(Step::take)?;
    ensure!(missing().is_empty(), "{} were installed, and are not in PATH", missing().join(" "));
    Ok(())
}

fn missing() -> Vec<&'static str> {
    let is_missing = |(program, _): &(&str, &str)| {
        let started = Command::new(program).arg("--help").stdin(Stdio::null()).output();
        started.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    TOOLS.into_iter().filter(is_missing).map(|(_, package)| package).collect()
}
