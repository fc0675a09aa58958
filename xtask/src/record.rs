//! Records events of a machine, while it goes on, into a file for other programs. The target sends the unchanged pages
//! of its rings; they are converted here.

mod file;
mod format;
mod pages;
mod timeline;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cargo_kprobes::counted::counted;
use kprobes_symbols::SymbolTable;
use kprobes_wire::record::{Frame, Frames, PayloadKind};

use crate::{
    boot, failure_status,
    machine::{Start, with_channel},
    remote::{Heard, Remote, Stopped, TURN},
    signals::{catch_interrupts, check_signals, ended_by, is_interrupted},
    trace::{self, FAILED, Outcome, ProgramOptions, REFUSED, check_line, source::Source},
    workspace,
};
use format::Format;
use pages::PAGE;

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

/// A recording.
#[derive(Default)]
pub struct Recorded {
    /// The pages of each CPU.
    pages: Vec<Vec<u8>>,
    tasks: BTreeMap<u32, String>,
    formats: Vec<Format>,
    /// The formats of Linux's predefined events.
    ftrace: Vec<Format>,
    header_page: String,
    header_event: String,
    /// The image, which ends with the table of its functions.
    image: Vec<u8>,
    /// The number of records that were sent, and of those that were lost before.
    pub records: u64,
    pub lost: u64,
    /// The number of incomplete frames, and of bytes that belong to no frame.
    pub missing: u64,
    pub damaged: u64,
    /// Whether the machine has begun to send the recording.
    is_begun: bool,
    /// Whether the end of the recording has come.
    is_whole: bool,
}

/// The exit status of an incomplete recording. The others are those of `trace`.
const INCOMPLETE: u8 = 6;

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
    options.output.iter().try_for_each(|path| check_directory(path))?;
    let target = options.machine.target()?;
    let channel = Channel::of(&target)?;
    catch_interrupts();
    let start: &dyn Start = match &channel {
        Some(channel) => &channel.arguments,
        None => &target,
    };
    let image = target.image()?;
    let image = fs::read(&image).with_context(|| format!("{} cannot be read", image.display()))?;
    let mut recorded = Recorded { image, ..Recorded::default() };
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

/// Checks that a file can be written at the end: that its directory exists, and that it is no directory itself.
pub fn check_directory(path: &Path) -> Result<()> {
    ensure!(!path.is_dir(), "{} is a directory", path.display());
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    ensure!(directory.is_none_or(Path::is_dir), "{}: there is no such directory", path.display());
    Ok(())
}

impl std::fmt::Display for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let present: usize = self.pages.iter().map(|pages| pages::events(pages).count()).sum();
        write!(f, "{} of {}", counted(present, "event"), counted(self.pages.len(), "CPU"))?;
        match self.is_whole {
            true => write!(f, ", {} lost on the machine", self.lost)?,
            false => f.write_str("; the end of the recording is missing")?,
        }
        if self.missing + self.damaged > 0 {
            let (missing, damaged) = (counted(self.missing, "frame"), counted(self.damaged, "byte"));
            write!(f, ", {missing} missing and {damaged} damaged on the way")?;
        }
        Ok(())
    }
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

impl Recorded {
    /// Creates a recording of the machine that runs `image`.
    pub fn of(image: Vec<u8>) -> Self {
        Self { image, ..Self::default() }
    }

    /// Returns the functions of the image.
    fn symbols(&self) -> Option<SymbolTable<'_>> {
        const ALIGNMENT: usize = 8;
        (0..self.image.len()).step_by(ALIGNMENT).find_map(|at| SymbolTable::parse(&self.image[at..]).ok())
    }

    /// Records on a machine that is at its prompt, while `program` runs, if one is given. The frames come over the
    /// UART, or are in the file `channel`.
    pub fn take(
        &mut self,
        remote: &mut Remote,
        channel: Option<&Path>,
        record_options: &RecordOptions,
        program: Option<&Source>,
    ) -> Result<Ending> {
        if let Some(kib) = record_options.buffer {
            ensure!(remote.does(&format!("echo {kib} > buffer_size_kb"))?, "there is no memory for rings of {kib} KiB");
        }
        for event in &record_options.event {
            if !remote.does(event)? {
                return Ok(Ending::Refused);
            }
        }
        self.read_texts(remote)?;
        // The file has the frames of the recordings before.
        let old = channel.and_then(|path| fs::metadata(path).ok()).map_or(0, |metadata| metadata.len());
        ensure!(remote.does("record on")?, "the machine does not record");
        self.is_begun = true;
        let outcome = wait(remote, record_options, program);
        let is_ended = if has_stopped(&outcome) { Ok(false) } else { remote.does("record off") };
        let mut frames = Frames::default();
        let mut received = match channel {
            Some(path) => frames.feed(&read_from(path, old)?),
            None => frames.feed(&remote.take_frames()),
        };
        received.extend(frames.finish());
        // Frames on the channel are numbered consecutively, so the last frame shows how many are missing at the end.
        received.drain(..).for_each(|frame| self.add(frame));
        (self.missing, self.damaged) = (frames.missing, frames.damaged);
        self.note_addresses();
        let outcome = outcome?;
        self.is_whole &= is_ended?;
        Ok(outcome)
    }

    /// Returns whether everything that the machine has recorded is here.
    fn is_complete(&self) -> bool {
        self.is_whole && self.missing == 0 && self.damaged == 0
    }

    /// Returns the exit status of a command whose recording has ended so. Fails if there is nothing to write.
    fn status(&self, outcome: Result<Ending>) -> Result<u8> {
        match outcome {
            Ok(Ending::Refused) => Ok(REFUSED),
            Ok(Ending::Failed) => Ok(FAILED),
            Ok(Ending::Done | Ending::Exited(_)) if !self.is_complete() => Ok(INCOMPLETE),
            Ok(Ending::Done) => Ok(0),
            Ok(Ending::Exited(status)) => Ok(status),
            // The part that has come until then is written.
            Err(error) if self.is_begun && (error.is::<Stopped>() || !self.pages.is_empty()) => {
                eprintln!("xtask: {error:#}");
                Ok(failure_status(&error))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the recording to each of these files, and says so. Returns false if one cannot be written. The others are
    /// written nevertheless.
    fn write_all(&self, paths: &[PathBuf]) -> bool {
        let mut are_written = true;
        for path in paths {
            match self.write(path) {
                Ok(()) => eprintln!("{}: {self}", path.display()),
                Err(error) => {
                    eprintln!("xtask: {error:#}");
                    are_written = false;
                }
            }
        }
        are_written
    }

    /// Writes the recording, in the form that the name of the file asks for.
    pub fn write(&self, path: &Path) -> Result<()> {
        let written = File::create(path).map(BufWriter::new).and_then(|mut out| {
            match path.extension().is_some_and(|extension| extension == "pftrace") {
                true => timeline::write(self, &mut out)?,
                false => file::write(self, &mut out)?,
            }
            out.flush()
        });
        written.with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Returns the CPU and the `common_flags` of each event, one CPU after the other.
    pub fn flags(&self) -> impl Iterator<Item = (usize, u8)> {
        let of_cpu =
            |(cpu, pages)| pages::events(pages).map(move |event| (cpu, event.bytes.get(2).copied().unwrap_or(0)));
        self.pages.iter().map(Vec::as_slice).enumerate().flat_map(of_cpu)
    }

    /// Reads the formats of the events.
    fn read_texts(&mut self, remote: &mut Remote) -> Result<(), Stopped> {
        let mut text =
            |path: &str| Ok(remote.ask(&format!("cat {path}"))?.iter().map(|line| format!("{line}\n")).collect());
        self.header_page = text("events/header_page")?;
        self.header_event = text("events/header_event")?;
        let print: String = text("events/ftrace/print/format")?;
        let raw: String = text("events/ftrace/raw_data/format")?;
        let fixed = [print, raw, KERNEL_STACK.into()].into_iter().chain(TRACERS.iter().map(TracerRecord::text));
        self.ftrace = fixed.filter_map(|text| Format::parse("ftrace", &text)).collect();
        let events: String = text("available_events")?;
        for (group, name) in events.lines().filter_map(|line| line.split_once(':')) {
            let format: String = text(&format!("events/{group}/{name}/format"))?;
            self.formats.extend(Format::parse(group, &format));
        }
        Ok(())
    }

    fn add(&mut self, Frame { kind, cpu, mut payload }: Frame) {
        let text = || String::from_utf8_lossy(&payload).into_owned();
        match kind {
            PayloadKind::Page => {
                let cpu = usize::from(cpu);
                if self.pages.len() <= cpu {
                    self.pages.resize_with(cpu + 1, Vec::new);
                }
                payload.resize(PAGE, 0);
                self.pages[cpu].extend(payload);
            }
            PayloadKind::Task => {
                if let Some((task, name)) = text().split_once(' ')
                    && let Ok(task) = task.parse()
                {
                    self.tasks.insert(task, name.into());
                }
            }
            PayloadKind::End => {
                self.is_whole = true;
                let mut numbers =
                    text().split(' ').map(|number| number.parse().unwrap_or(0)).collect::<Vec<_>>().into_iter();
                (self.records, self.lost) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            }
        }
    }

    fn note_addresses(&mut self) {
        for event in self.pages.iter().flat_map(|pages| pages::events(pages)) {
            if let Some(format) =
                self.formats.iter_mut().chain(&mut self.ftrace).find(|format| format.number == event.number())
            {
                format.note(&event);
            }
        }
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

/// Waits until the recording is to end.
fn wait(remote: &mut Remote, record_options: &RecordOptions, program: Option<&Source>) -> Result<Ending> {
    check_signals()?;
    let RecordOptions { command, seconds, .. } = record_options;
    if let Some(program) = program {
        let options = record_options.program_options();
        // The recording does not depend on the reader of the output.
        let outcome = trace::run_source(remote, program, &options, &mut |stream, text| {
            let _ = trace::show(&mut io::stdout(), stream, text);
            Ok(())
        })?;
        return Ok(match outcome {
            Outcome::Refused(sentence) => {
                eprintln!("{sentence}");
                Ending::Refused
            }
            Outcome::Failed => Ending::Failed,
            Outcome::Done => Ending::Done,
            Outcome::Exited(status) => Ending::Exited(status),
        });
    }
    if let Some(command) = command {
        return Ok(if remote.does(command)? { Ending::Done } else { Ending::Failed });
    }
    let deadline = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while !is_interrupted() && ended_by().is_none() && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        for heard in remote.hear(TURN)? {
            if let Heard::Line(line) = heard {
                eprintln!("{line}");
            }
        }
    }
    Ok(Ending::Done)
}

/// Reads a file from this byte on.
fn read_from(path: &Path, start: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut bytes)
    });
    read.with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(bytes)
}

/// The settings of a machine that a recording changes, for one that goes on.
pub struct Settings {
    /// The static and the defined events.
    events: Vec<String>,
    /// The files of the sizes of the rings, each with a size in KiB, in ascending order of size: one file for all CPUs,
    /// or one for each if the sizes differ.
    buffers: Vec<(String, u64)>,
}

impl Settings {
    /// Reads the settings.
    pub fn of(remote: &mut Remote) -> Result<Self, Stopped> {
        let events = remote.ask("cat available_events")?;
        let mut buffers = sizes(remote, vec!["buffer_size_kb".into()])?;
        if buffers.is_empty() {
            let files = remote.ask("ls per_cpu")?.iter().map(|cpu| format!("per_cpu/{cpu}/buffer_size_kb")).collect();
            buffers = sizes(remote, files)?;
        }
        // In this order, a ring that shrinks makes room for those that grow.
        buffers.sort_by_key(|&(_, size)| size);
        Ok(Self { events, buffers })
    }

    /// Checks that each of these definitions makes a new event, which can be removed again.
    fn check(&self, definitions: &[String]) -> Result<()> {
        for definition in definitions {
            let event = given_event(definition).filter(|event| self.events.contains(event));
            if let Some(event) = event {
                let event = event.replace(':', "/");
                bail!(
                    "the machine has an event {event} already: remove it by `-:{event}`, or define one of another name"
                );
            }
        }
        Ok(())
    }

    /// Removes the events that were defined since, and gives the rings the size that they had.
    pub fn restore(&self, remote: &mut Remote) -> Result<(), Stopped> {
        let now = Self::of(remote)?;
        for event in self.added(&now) {
            remote.does(&format!("-:{}", event.replace(':', "/")))?;
        }
        for (file, size) in self.buffers.iter().filter(|_| self.buffers != now.buffers) {
            remote.does(&format!("echo {size} > {file}"))?;
        }
        Ok(())
    }

    /// Returns the events that `now` has in addition, the last first: an event cannot be removed while another one,
    /// which was defined later, is on it.
    fn added<'a>(&self, now: &'a Self) -> impl Iterator<Item = &'a String> {
        now.events.iter().rev().filter(move |event| !self.events.contains(event))
    }
}

/// Reads the numbers at the start of these files. A file without one is left out.
fn sizes(remote: &mut Remote, files: Vec<String>) -> Result<Vec<(String, u64)>, Stopped> {
    let mut sizes = Vec::new();
    for file in files {
        let printed = remote.ask(&format!("cat {file}"))?;
        let size = printed.iter().find_map(|line| line.split_whitespace().next()?.parse().ok());
        sizes.extend(size.map(|size| (file, size)));
    }
    Ok(sizes)
}

/// Returns the event that a definition makes, as `GROUP:NAME`, if it gives a name.
fn given_event(definition: &str) -> Option<String> {
    let (kind, name) = definition.split_whitespace().next()?.split_once(':')?;
    // Without a group, it is in that of its kind, as in Linux.
    let group = match kind.chars().next() {
        Some('f') => "fprobes",
        Some('t') => "tracepoints",
        Some('e') => "eprobes",
        Some('s') => "synthetic",
        _ => "kprobes",
    };
    let (group, name) = name.split_once(['/', '.']).unwrap_or((group, name));
    Some(format!("{group}:{name}"))
}

/// The format of the record of a stack, as Linux has it (kernel/trace/trace_entries.h).
const KERNEL_STACK: &str = "\
name: kernel_stack
ID: 4
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;

print fmt: \"\\t=> %ps\\n\\t=> %ps\\n\\t=> %ps\\n\", (void *)REC->caller[0], (void *)REC->caller[1], (void *)REC->caller[2]
";

/// A record of a tracer: fields of eight bytes, one after the other.
struct TracerRecord {
    name: &'static str,
    number: u16,
    fields: &'static [&'static str],
    print: &'static str,
}

/// The records of the tracers. The record `function` is Linux's. The records of the graph have fields that Linux's do
/// not have, and therefore other names: readers have the fields of `funcgraph_entry` and `funcgraph_exit` built in.
const TRACERS: [TracerRecord; 3] = [
    TracerRecord {
        name: "function",
        number: 1,
        fields: &["ip", "parent_ip"],
        print: "\" %ps <-- %ps\", (void *)REC->ip, (void *)REC->parent_ip",
    },
    TracerRecord {
        name: "graph_return",
        number: 10,
        fields: &["func", "ret_ip", "sp"],
        print: "\"<-- %ps\", (void *)REC->func",
    },
    TracerRecord {
        name: "graph_call",
        number: 11,
        fields: &["func", "parent_ip", "sp"],
        print: "\"--> %ps\", (void *)REC->func",
    },
];

impl TracerRecord {
    /// Returns its format.
    fn text(&self) -> String {
        let Self { name, number, fields, print } = self;
        let common = KERNEL_STACK.lines().filter(|line| line.contains(" common_"));
        let common: String = common.map(|line| format!("{line}\n")).collect();
        let field = |(at, name)| format!("\tfield:unsigned long {name};\toffset:{};\tsize:8;\tsigned:0;\n", 8 + 8 * at);
        let own: String = fields.iter().enumerate().map(field).collect();
        format!("name: {name}\nID: {number}\nformat:\n{common}\n{own}\nprint fmt: {print}\n")
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use anyhow::anyhow;

    use super::*;
    use crate::trace::STOPPED;

    #[test]
    fn only_new_events_are_defined_where_they_are_removed_again() {
        let events = ["kprobes:blocks", "sched:sched_switch"].map(String::from).to_vec();
        let settings = Settings { events, buffers: Vec::new() };
        for (definition, is_new) in [
            ("p:blocks f", false),
            ("r5:kprobes/blocks f", false),
            ("p:kprobes.blocks f", false),
            ("p:other/blocks f", true),
            ("e:blocks kprobes/other", true),
            ("p:sched_switch f", true),
            ("t:sched/sched_switch other", false),
            ("p:block f", true),
            ("p f x=+0(%x0):u8", true),
        ] {
            assert_eq!(settings.check(&[definition.into()]).is_ok(), is_new, "{definition}");
        }
        let error = settings.check(&["p:blocks f".into()]).unwrap_err().to_string();
        let sentence = "the machine has an event kprobes/blocks already: remove it by `-:kprobes/blocks`, or define one of \
                        another name";
        assert_eq!(error, sentence);
    }

    #[test]
    fn events_are_removed_before_those_that_they_are_on() {
        let events = ["sched:sched_switch", "kprobes:old", "kprobes:in", "eprobes:on"].map(String::from);
        let lists = [&events[..2], &events[..]];
        let [before, now] = lists.map(|events| Settings { events: events.to_vec(), buffers: Vec::new() });
        assert_eq!(before.added(&now).collect::<Vec<_>>(), ["eprobes:on", "kprobes:in"]);
    }

    #[test]
    fn the_other_files_are_written_if_one_cannot_be() {
        let directory = env::temp_dir().join(format!("kprobes-recorded-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let other = directory.join("trace.dat");
        assert!(check_directory(&directory).is_err() && check_directory(&other).is_ok());
        assert!(!Recorded::default().write_all(&[directory.join("none/trace.dat"), other.clone()]));
        assert!(fs::read(&other).unwrap().starts_with(&[0x17, 0x08, 0x44]));
        assert!(Recorded::default().write_all(&[other]));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_recording_is_written_whatever_ended_it() {
        let mut recorded = Recorded { is_begun: true, is_whole: true, ..Recorded::default() };
        assert_eq!(recorded.status(Ok(Ending::Exited(7))).unwrap(), 7);
        assert!(recorded.status(Err(anyhow!("no page has come"))).is_err());
        assert_eq!(recorded.status(Err(Stopped("it is silent".into()).into())).unwrap(), STOPPED);
        recorded.pages.push(vec![0; PAGE]);
        assert_eq!(recorded.status(Err(anyhow!("the program ended abnormally"))).unwrap(), 1);
        recorded.missing = 1;
        assert_eq!(recorded.status(Ok(Ending::Done)).unwrap(), INCOMPLETE);
    }

    #[test]
    fn the_records_of_tracers_have_formats() {
        let formats: Vec<_> = TRACERS.iter().map(|record| Format::parse("ftrace", &record.text()).unwrap()).collect();
        let layouts = formats.iter().map(|format| {
            let fields = format.arguments().map(|field| (field.name.as_str(), field.offset, field.size));
            (format.name.as_str(), format.number, fields.collect::<Vec<_>>())
        });
        let expected = [
            ("function", 1, vec![("ip", 8, 8), ("parent_ip", 16, 8)]),
            ("graph_return", 10, vec![("func", 8, 8), ("ret_ip", 16, 8), ("sp", 24, 8)]),
            ("graph_call", 11, vec![("func", 8, 8), ("parent_ip", 16, 8), ("sp", 24, 8)]),
        ];
        assert_eq!(layouts.collect::<Vec<_>>(), expected);
        assert_eq!(formats[0].text(None), TRACERS[0].text());
    }
}
