//! Kernels that are derived from the example `minimal` by replacements in its text, and built in a workspace of their
//! own in the target directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use super::read;
use crate::{setup, test::capture::capture, workspace};

/// The file of the example in which a text is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum File {
    Source,
    Script,
}

/// A text of the example, and its replacement.
pub type Replacement<'a> = (File, &'a str, &'a str);

const BUILD: &str = r#"//! Links each kernel by a script of its own.

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    for name in std::fs::read_dir(format!("{directory}/src/bin")).unwrap() {
        let name = name.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        println!("cargo::rustc-link-arg-bin={name}=-T{directory}/{name}.ld");
    }
}
"#;

/// A package of such kernels.
#[derive(Clone)]
pub struct Package {
    directory: PathBuf,
    source: String,
    script: String,
}

impl Package {
    /// Creates the package, without kernels. `name` is the name of its directory.
    pub fn new(name: &str) -> Result<Self, String> {
        let directory = workspace::root().join("target").join(name);
        write(&directory).map_err(|error| format!("{} cannot be written: {error}", directory.display()))?;
        let (source, script) = (read("examples/minimal/src/main.rs")?, read("examples/minimal/minimal.ld")?);
        Ok(Self { directory, source, script })
    }

    /// Writes a kernel: the example with these replacements, and `more` at the end of its source.
    pub fn put(&self, name: &str, replacements: &[Replacement<'_>], more: &str) -> Result<(), String> {
        let (mut source, mut script) = (self.source.clone(), self.script.clone());
        for (file, from, to) in replacements {
            let text = if *file == File::Source { &mut source } else { &mut script };
            if !text.contains(from) {
                return Err(format!("the example has no {from:?} for {name}"));
            }
            *text = text.replacen(from, to, 1);
        }
        for (path, text) in [(format!("src/bin/{name}.rs"), source + more), (format!("{name}.ld"), script)] {
            let path = self.directory.join(path);
            write_once(&path, &text).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Returns the command that builds these kernels, with more arguments, to the directory `target`.
    fn command(&self, names: &[&str], arguments: &[&str], target: &Path) -> Command {
        let manifest = self.directory.join("Cargo.toml").display().to_string();
        let common = ["build", "--release", "--manifest-path", &manifest];
        let names: Vec<&str> = names.iter().flat_map(|name| ["--bin", *name]).collect();
        let mut cargo = workspace::cargo(&[&common[..], &names, arguments].concat());
        cargo.env("CARGO_TARGET_DIR", target);
        cargo
    }

    /// Builds these kernels, with more arguments for Cargo. Returns the directory of the programs.
    pub fn build(&self, names: &[&str], arguments: &[&str]) -> Result<PathBuf, String> {
        capture(&mut self.command(names, arguments, &shared()), |_| {}).output()?;
        Ok(shared().join(setup::TARGET).join("release"))
    }

    /// Builds a kernel with these flags for the compiler, and no others. Returns its path.
    pub fn build_with_flags(&self, name: &str, flags: &str) -> Result<PathBuf, String> {
        let target = shared().join(name);
        capture(self.command(&[name], &[], &target).env("RUSTFLAGS", flags), |_| {}).output()?;
        Ok(target.join(setup::TARGET).join("release").join(name))
    }

    /// Builds a kernel with this linker. Returns its path.
    pub fn build_with_linker(&self, name: &str, linker: &str) -> Result<PathBuf, String> {
        let linker_of = format!("target.{}.linker={linker:?}", setup::TARGET);
        Ok(self.build(&[name], &["--config", &linker_of])?.join(name))
    }

    /// Tries to build a kernel. Returns what the compiler and the linker say.
    pub fn fail_to_build(&self, name: &str) -> Result<String, String> {
        let captured = capture(&mut self.command(&[name], &[], &shared()), |_| {});
        if captured.result.is_ok() { Err(format!("{name} is built")) } else { Ok(captured.text) }
    }
}

/// Returns the directory that all packages are built to, so that the engine is compiled once for all of them.
pub fn shared() -> PathBuf {
    workspace::root().join("target/derived")
}

/// Writes a file, unless it has this text: Cargo builds anew what is written anew.
pub fn write_once(path: &Path, text: &str) -> io::Result<()> {
    let is_written = |old: String| old == text;
    if fs::read_to_string(path).is_ok_and(is_written) { Ok(()) } else { fs::write(path, text) }
}

/// Writes the package, without its programs.
fn write(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory.join("src/bin"))?;
    let manifest = format!(
        "[package]\nname = \"derived\"\nedition = \"2024\"\n[workspace]\n[profile.release]\nopt-level = 2\n[features]\n\
         default = [\"stubs\", \"watchpoints\"]\nstubs = [\"aarch64-kprobes/stubs\"]\n\
         watchpoints = [\"aarch64-kprobes/watchpoints\"]\n\
         [dependencies]\naarch64-kprobes = {{ path = {:?}, default-features = false }}\n",
        workspace::root()
    );
    write_once(&directory.join("Cargo.toml"), &manifest)?;
    write_once(&directory.join("build.rs"), BUILD)?;
    fs::copy(workspace::root().join("Cargo.lock"), directory.join("Cargo.lock")).map(drop)
}
