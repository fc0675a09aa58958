//! Finds the repository, by Cargo's environment, and the files that Cargo builds, by Cargo's messages. Makes their
//! images.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::image;

/// Returns the root of the repository that this command was started in.
pub fn root() -> PathBuf {
    let own = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Returns a command for a program, to be started in the root, where the configuration of the repository applies.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Returns a command for Cargo with these arguments.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Returns the environment variable that overrides the profile of `Cargo.toml` for the images, if one is set.
pub fn other_profile() -> Option<&'static str> {
    const VARIABLES: [&str; 3] =
        ["CARGO_PROFILE_RELEASE_OPT_LEVEL", "CARGO_PROFILE_RELEASE_LTO", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS"];
    VARIABLES.into_iter().find(|variable| env::var_os(variable).is_some())
}

/// An executable that Cargo built.
#[derive(Debug, PartialEq, Eq)]
pub struct Executable {
    /// The name of the target: of the binary, or of the library whose tests it runs.
    pub target: String,
    /// The path of the executable.
    pub path: PathBuf,
    /// The manifest of its package.
    pub manifest: PathBuf,
}

impl Executable {
    /// Returns a command for the program, in the environment that Cargo would give it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(package) = self.manifest.parent() {
            command.current_dir(package).env("CARGO_MANIFEST_DIR", package);
        }
        command
    }
}

/// Builds what `arguments` name, and returns all executables of that build. Diagnostics go to standard error.
pub fn build(arguments: &[&str]) -> Result<Vec<Executable>> {
    let mut command = cargo(arguments);
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let mut child = command.spawn().context("cargo cannot be started")?;
    let mut executables = Vec::new();
    if let Some(messages) = child.stdout.take() {
        for message in BufReader::new(messages).lines() {
            executables.extend(executable(&message.context("cargo cannot be read")?));
        }
    }
    let status = child.wait().context("cargo cannot be waited for")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(executables)
}

/// Builds the one bare-metal binary of `package`.
pub fn build_kernel(package: &str) -> Result<PathBuf> {
    let mut executables = build(&["build", "--release", "--package", package])?;
    match (executables.pop(), executables.pop()) {
        (Some(executable), None) => Ok(executable.path),
        (None, _) => bail!("the package {package} has no binary"),
        (Some(_), Some(_)) => bail!("the package {package} has more than one binary"),
    }
}

/// Makes the image of the linked program `elf` beside it, unless it is there already, and returns its path.
pub fn image(elf: &Path) -> Result<PathBuf> {
    let (image, state) = (with_suffix(elf, ".img"), with_suffix(elf, ".img.state"));
    // The time of a program does not say whether its image is older: Cargo may have put back one that it built before.
    let made = || -> io::Result<String> {
        let all = [elf, &env::current_exe()?, &image].map(version).into_iter().collect::<io::Result<Vec<_>>>()?;
        Ok(all.concat())
    };
    if made().is_ok_and(|now| fs::read_to_string(&state).is_ok_and(|made| made == now)) {
        return Ok(image);
    }
    image::write(elf, &image)?;
    let text = made().with_context(|| format!("{} cannot be read", image.display()))?;
    image::write_bytes(text.as_bytes(), &state)?;
    Ok(image)
}

/// Returns what differs between two versions of a file: its length and its time.
fn version(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    let time = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(format!("{} bytes of {} ns\n", metadata.len(), time.as_nanos()))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = OsString::from(path);
    whole.push(suffix);
    whole.into()
}

/// Parses one of Cargo's messages. `None` if it reports no executable.
fn executable(message: &str) -> Option<Executable> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: PathBuf,
        manifest_path: PathBuf,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let message: Message = serde_json::from_str(message).ok()?;
    Some(Executable { target: message.target.name, path: message.executable, manifest: message.manifest_path })
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::{Executable, executable, image, with_suffix};

    #[test]
    fn an_image_is_made_again_where_the_program_is_another() {
        let elf = env::temp_dir().join(format!("kprobes-image-{}", process::id()));
        fs::write(&elf, "no program").unwrap();
        assert!(image(&elf).is_err());
        // What is there is taken for the image if all that it was made from is as it was.
        let (out, state) = (with_suffix(&elf, ".img"), with_suffix(&elf, ".img.state"));
        fs::write(&out, "image").unwrap();
        let files = [elf.clone(), env::current_exe().unwrap(), out.clone()];
        let as_it_is = || files.each_ref().map(|file| super::version(file).unwrap()).concat();
        fs::write(&state, as_it_is()).unwrap();
        assert_eq!(image(&elf).unwrap(), out);
        for file in [&elf, &out] {
            fs::write(file, "another, of another length").unwrap();
            assert!(image(&elf).is_err(), "{} has changed", file.display());
            fs::write(&state, as_it_is()).unwrap();
            assert_eq!(image(&elf).unwrap(), out);
        }
        fs::remove_file(&out).unwrap();
        assert!(image(&elf).is_err());
        [&elf, &state].into_iter().for_each(|file| fs::remove_file(file).unwrap());
    }

    #[test]
    fn reads_executables_from_messages() {
        let artifact = r#"{"reason":"compiler-artifact","package_id":"path+file:///r#runtime@0.1.0",
            "manifest_path":"/r/runtime/Cargo.toml",
            "target":{"kind":["bin"],"name":"kernel","test":true},"executable":"/t/release/kernel","fresh":true}"#;
        let expected = Executable {
            target: "kernel".into(),
            path: "/t/release/kernel".into(),
            manifest: "/r/runtime/Cargo.toml".into(),
        };
        assert_eq!(executable(artifact), Some(expected));
        let library = r#"{"reason":"compiler-artifact","target":{"name":"runtime"},"executable":null}"#;
        for other in [library, r#"{"reason":"build-finished","success":true}"#, "not JSON", ""] {
            assert_eq!(executable(other), None, "{other}");
        }
    }
}
