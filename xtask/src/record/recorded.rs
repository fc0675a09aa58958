//! A recording: what the machine sends of it, from the formats of its events to the last page, and the files that it is
//! written to.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use cargo_kprobes::counted::counted;
use kprobes_symbols::SymbolTable;
use kprobes_wire::record::{Frame, Frames, PayloadKind};

use super::{
    Ending, RecordOptions, file,
    format::Format,
    has_stopped,
    pages::{self, PAGE},
    predefined, timeline,
};
use crate::{
    failure_status,
    remote::{Heard, Remote, Stopped, TURN},
    signals::{check_signals, ended_by, is_interrupted},
    trace::{self, FAILED, Outcome, REFUSED, source::Source},
};

/// A recording.
#[derive(Default)]
pub struct Recorded {
    /// The pages of each CPU.
    pub(super) pages: Vec<Vec<u8>>,
    pub(super) tasks: BTreeMap<u32, String>,
    pub(super) formats: Vec<Format>,
    /// The formats of Linux's predefined events.
    pub(super) ftrace: Vec<Format>,
    pub(super) header_page: String,
    pub(super) header_event: String,
    /// The image, which ends with the table of its functions.
    pub(super) image: Vec<u8>,
    /// The number of records that were sent, and of those that were lost before.
    pub records: u64,
    pub lost: u64,
    /// The number of incomplete frames, and of bytes that belong to no frame.
    pub missing: u64,
    pub damaged: u64,
    /// Whether the machine has begun to send the recording.
    pub(super) is_begun: bool,
    /// Whether the end of the recording has come.
    pub(super) is_whole: bool,
}

/// The exit status of an incomplete recording. The others are those of `trace`.
const INCOMPLETE: u8 = 6;

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

impl Recorded {
    /// Creates a recording of the machine that runs `image`.
    pub fn of(image: Vec<u8>) -> Self {
        Self { image, ..Self::default() }
    }

    /// Returns the functions of the image.
    pub(super) fn symbols(&self) -> Option<SymbolTable<'_>> {
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
    pub(super) fn status(&self, outcome: Result<Ending>) -> Result<u8> {
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
    pub(super) fn write_all(&self, paths: &[PathBuf]) -> bool {
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
        let all = [print, raw].into_iter().chain(predefined::formats());
        self.ftrace = all.filter_map(|text| Format::parse("ftrace", &text)).collect();
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

#[cfg(test)]
mod tests {
    use std::{env, process};

    use anyhow::anyhow;

    use super::*;
    use crate::{record::check_writable, trace::STOPPED};

    #[test]
    fn the_other_files_are_written_if_one_cannot_be() {
        let directory = env::temp_dir().join(format!("kprobes-recorded-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let other = directory.join("trace.dat");
        assert!(check_writable(&directory).is_err() && check_writable(&other).is_ok());
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
}
