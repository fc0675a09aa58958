//! Records events of a machine, while it goes on, into a file for other programs. The target sends the unchanged pages
//! of its rings; they are converted here.
//!
//! | module | what it owns |
//! |---|---|
//! | `settings` | what a recording changes on the machine |
//! | `recorded` | taking a recording, and its end |
//! | `pages` | events in pages of a ring |
//! | `format` | the formats of events |
//! | `predefined` | formats for which the kernel has no file |
//! | `file`, `timeline` | the files for `trace-cmd` and Perfetto |

mod file;
mod format;
mod pages;
mod predefined;
mod recorded;
mod settings;
mod timeline;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, ensure};
use rustix::fs::Access;

use crate::{
    boot,
    machine::{Start, with_channel},
    remote::{Remote, Stopped},
    signals::catch_interrupts,
    trace::{self, ProgramOptions, REFUSED, check_line},
    workspace,
};
pub use recorded::Recorded;
pub use settings::Settings;

/// The events to record, and the files.
#[derive(clap::Args)]
#[command(
    after_help = "The exit status is 3 if an event or the program is refused, 4 if the machine stops responding, 5 if COMMAND is refused, \
                  6 if a part of the recording is missing or an assert of the program does not hold, \
                  and otherwise N if the program calls exit(N)."
)]
pub struct Options {
    #[command(flatten)]
    machine: boot::TargetOptions,
    #[command(flatten)]
    record_options: RecordOptions,
    /// Runs this program meanwhile, or the one in this file, with its output on the standard output. `-` is standard
    /// input. The recording ends when the program does.
    #[arg(short, value_name = "PROGRAM|FILE")]
    program: Option<String>,
    /// The file of the recording. FILE.pftrace is for Perfetto, any other a trace.dat as `trace-cmd` writes it. May be
    /// given several times.
    #[arg(short, value_name = "FILE", default_value = "trace.dat")]
    output: Vec<PathBuf>,
}

/// The events to record, and for how long.
#[derive(clap::Args, Default)]
pub struct RecordOptions {
    /// Defines an event as on the console, p:NAME PLACE ARGUMENTS, and enables it. May be given several times.
    #[arg(short, value_name = "EVENT")]
    pub event: Vec<String>,
    /// Runs this console command meanwhile, and ends the recording when it ends.
    #[arg(short, value_name = "COMMAND")]
    pub command: Option<String>,
    /// Ends the recording after this many seconds. Without this and a command, it goes on until ^C.
    #[arg(long, value_name = "N", conflicts_with = "command", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seconds: Option<u64>,
    /// Gives each CPU a ring of this many KiB.
    #[arg(short, value_name = "KIB")]
    pub buffer: Option<u64>,
}

/// How a recording has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Done,
    /// The program has asked for this exit status, which is not 0.
    Exited(u8),
    /// An event or the program was refused, so no file is written.
    Refused,
    /// The command was refused.
    Failed,
}

/// Records events as the options say.
pub fn record(options: &Options) -> Result<ExitCode> {
    // Checked before anything is built.
    options.record_options.event.iter().try_for_each(|event| check_line("the event", event))?;
    let program = match options.program.as_deref().map(|program| trace::read(program, &[])).transpose()? {
        Some(Err(sentence)) => {
            eprintln!("{sentence}");
            return Ok(REFUSED.into());
        }
        Some(Ok(source)) => {
            options.record_options.program_options().line(&source.line)?;
            Some(source)
        }
        None => None,
    };
    options.record_options.command.iter().try_for_each(|command| check_line("the command", command))?;
    options.output.iter().try_for_each(|path| check_writable(path))?;
    let target = options.machine.target()?;
    let channel = Channel::of(&target)?;
    catch_interrupts();
    let start: &dyn Start = match &channel {
        Some(channel) => &channel.arguments,
        None => &target,
    };
    let image = target.image()?;
    let image = fs::read(&image).with_context(|| format!("{} cannot be read", image.display()))?;
    let mut recorded = Recorded::of(image);
    let path = match (&channel, &target) {
        (Some(channel), _) => Some(channel.path.clone()),
        (None, boot::Target::Detached(detached)) => detached.frames(),
        _ => None,
    };
    let outcome = Remote::start(start, options.machine.boot.timeout).and_then(|mut remote| {
        let settings = match target.farewell() {
            None => Some(Settings::of(&mut remote)?),
            Some(_) => None,
        };
        if let Some(Err(error)) = settings.as_ref().map(|settings| settings.check(&options.record_options.event)) {
            eprintln!("xtask: {error:#}");
            return Ok(Ending::Refused);
        }
        let mut outcome = recorded.take(&mut remote, path.as_deref(), &options.record_options, program.as_ref());
        if !has_stopped(&outcome) {
            if let Some(settings) = settings {
                let restored = settings.restore(&mut remote);
                outcome = outcome.and_then(|ending| Ok(restored.map(|()| ending)?));
            }
            remote.leave(target.farewell());
        }
        outcome
    });
    drop(channel);
    if matches!(outcome, Ok(Ending::Refused)) {
        return Ok(REFUSED.into());
    }
    let status = recorded.status(outcome)?;
    Ok(if recorded.write_all(&options.output) { status.into() } else { ExitCode::FAILURE })
}

/// Checks that a file can be written at the end: that it is no directory, and that this user may write it, or may make
/// it in its directory.
pub fn check_writable(path: &Path) -> Result<()> {
    ensure!(!path.is_dir(), "{} is a directory", path.display());
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    ensure!(directory.is_none_or(Path::is_dir), "{}: there is no such directory", path.display());
    let (written, how) = match path.exists() {
        true => (path, Access::WRITE_OK),
        false => (directory.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK),
    };
    rustix::fs::access(written, how).with_context(|| format!("{} cannot be written", path.display()))
}

/// A second way out of QEMU beside the UART: a virtio console that writes to a file.
struct Channel {
    arguments: Vec<std::ffi::OsString>,
    path: PathBuf,
}

impl Channel {
    /// Returns a channel for the machine. `None` if it cannot have one.
    fn of(target: &boot::Target) -> Result<Option<Self>> {
        let boot::Target::Qemu { arguments, has_virtio: true, .. } = target else { return Ok(None) };
        let directory = workspace::root().join("target/recordings");
        fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        let path = directory.join(format!("{}.frames", std::process::id()));
        Ok(Some(Self { arguments: with_channel(arguments, &path), path }))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The file has no other use.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the machine takes no more lines.
fn has_stopped<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.is::<Stopped>())
}

impl RecordOptions {
    /// Returns how the program is run.
    fn program_options(&self) -> ProgramOptions {
        ProgramOptions {
            format: "text".into(),
            command: self.command.clone(),
            seconds: self.seconds,
            ..ProgramOptions::default()
        }
    }
}
