//! Packages crates as for publication, and compiles each from its package.

use std::{
    env, fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{capture::capture, report::Outcome};
use crate::workspace;

/// Runs Cargo with `arguments`, which publish crates without uploading them. `name` is that of the test.
pub fn check(name: &str, arguments: &[&str]) -> Result<Outcome, String> {
    let home = workspace::root().join("target/cargo-homes").join(name.replace("::", "-"));
    make_home(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    capture(workspace::cargo(arguments).env("CARGO_HOME", &home), |_| {}).output().map(|_| Outcome::Passed)
}

/// Makes a home for Cargo that shares everything with the usual one, except for the sources of packages.
///
/// Cargo unpacks a package that others are compiled with only once for each version, and this version has been packaged
/// with other sources before.
fn make_home(home: &Path) -> io::Result<()> {
    match fs::remove_dir_all(home) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let registry = home.join("registry");
    fs::create_dir_all(&registry)?;
    let usual = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let usual = usual.ok_or_else(|| io::Error::other("neither CARGO_HOME nor HOME is set"))?;
    share(&usual, home, "registry")?;
    share(&usual.join("registry"), &registry, "src")
}

/// Links everything in the directory `from` into `to`, except for what is called `except`.
fn share(from: &Path, to: &Path, except: &str) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
