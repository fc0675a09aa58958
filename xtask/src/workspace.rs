//! Finds the repository, by Cargo's environment, and the files that Cargo builds, by Cargo's messages. Makes their
//! images.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, Metadata},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use anyhow::{Context, Result, bail, ensure};
use cargo_kprobes::image;
use serde::Deserialize;

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
    let out = with_suffix(elf, ".img");
    // The image also depends on this command, whose file Cargo may have replaced since the command was started.
    let command = fs::metadata("/proc/self/exe").or_else(|_| fs::metadata(env::current_exe()?));
    let inputs = || Some([version(&fs::metadata(elf).ok()?)?, version(&command.ok()?)?].concat());
    make_unless_current(&out, inputs(), || image::write(elf, &out).map(drop))?;
    Ok(out)
}

/// Makes the file `out` by `make`, unless it is there and was made from these `inputs`: their [`version`]s, before
/// `make`. If one of them is not known, the file is always made.
fn make_unless_current(out: &Path, inputs: Option<String>, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let record = with_suffix(out, ".inputs");
    let versions = || Some([inputs.as_ref()?, &*version(&fs::metadata(out).ok()?)?].concat());
    if versions().is_some_and(|now| fs::read_to_string(&record).is_ok_and(|recorded| recorded == now)) {
        return Ok(());
    }
    make()?;
    if let Some(versions) = versions() {
        // Without the record, the next command makes the file again.
        let _ = image::write_bytes(versions.as_bytes(), &record);
    }
    Ok(())
}

/// Returns what differs between two versions of a file: its length and its time. The order of times says nothing: Cargo
/// may put back a program that it built earlier.
fn version(file: &Metadata) -> Option<String> {
    let time = file.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(format!("{} bytes of {} ns\n", file.len(), time.as_nanos()))
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

    use anyhow::bail;

    use super::{Executable, executable, make_unless_current, with_suffix};

    #[test]
    fn a_file_is_made_only_if_its_inputs_have_changed() {
        let out = env::temp_dir().join(format!("kprobes-made-{}", process::id()));
        let makes_of = |inputs: Option<&str>| {
            let mut is_made = false;
            let make = || {
                is_made = true;
                Ok(fs::write(&out, "made")?)
            };
            make_unless_current(&out, inputs.map(String::from), make).unwrap();
            is_made
        };
        let makes = |inputs| makes_of(Some(inputs));
        assert!(makes("one"));
        assert!(!makes("one"));
        assert!(makes("two") && makes("one"), "the inputs are others");
        fs::write(&out, "written by others").unwrap();
        assert!(makes("one") && !makes("one"));
        fs::remove_file(&out).unwrap();
        assert!(makes("one") && !makes("one"));
        assert!(make_unless_current(&out, Some("two".into()), || bail!("it fails")).is_err());
        assert!(makes("two"));
        assert!(makes_of(None) && makes_of(None), "an input that is not known may have changed");
        [&out, &with_suffix(&out, ".inputs")].into_iter().for_each(|file| fs::remove_file(file).unwrap());
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
