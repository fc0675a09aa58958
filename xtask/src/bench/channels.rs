//! Measures how many events a second each channel of a recording carries, and how many are lost where more come. The
//! events are counted by the machine. The seconds are those of the host, because the channel is the host's.

use std::{
    cell::Cell,
    ffi::OsString,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::table::{aligned, number};
use crate::{
    machine::{Output, Start, Uart, with_channel},
    remote::Remote,
    workspace,
};

/// The number of CPUs, and of the tasks that cause events at full load.
pub const CPUS: u32 = 4;
/// An event that a workload causes twice in each iteration.
const EVENT: &str = "p:blocks sha2::sha256::compress256 count=%x2:u64";
const EVENTS_PER_ITERATION: u64 = 2;
/// How long events come at each of the rates that are tried.
const SPAN: Duration = Duration::from_secs(4);
/// The rates that are tried until nothing is lost, as parts of what the channel carries at full load.
const PARTS: [f64; 9] = [1.3, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6, 0.45, 0.3];

/// A channel of a recording.
struct Channel {
    name: &'static str,
    /// The speed of the UART that carries the frames. `None` if a virtio console does.
    baud: Option<u32>,
    /// The size of the ring of each CPU in KiB. A slow line would take minutes for the contents of large ones.
    ring: u64,
    /// How many iterations of the workload make the full load.
    iterations: u64,
    /// How often a part of the events is caused at a rate.
    period: Duration,
}

const CHANNELS: [Channel; 4] = [
    Channel { name: "virtio console", baud: None, ring: 512, iterations: 300_000, period: Duration::from_millis(100) },
    Channel {
        name: "UART without a speed",
        baud: Some(u32::MAX),
        ring: 512,
        iterations: 100_000,
        period: Duration::from_millis(100),
    },
    Channel {
        name: "UART at 921,600 baud",
        baud: Some(921_600),
        ring: 64,
        iterations: 20_000,
        period: Duration::from_millis(250),
    },
    Channel {
        name: "UART at 115,200 baud",
        baud: Some(115_200),
        ring: 8,
        iterations: 4_000,
        period: Duration::from_millis(500),
    },
];

/// The report of the machine at the end of a recording, and how long the recording took.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recorded {
    sent: u64,
    lost: u64,
    time: Duration,
}

impl Recorded {
    /// Returns the events that were sent in a second.
    fn rate(&self) -> f64 {
        self.sent as f64 / self.time.as_secs_f64()
    }
}

/// Measures all channels, and returns a table.
pub fn measure(arguments: &[OsString], seconds: u64) -> Result<String> {
    let head = ["channel", "sent/s at full load", "lost of", "events", "sent/s without loss"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for channel in &CHANNELS {
        let directory = workspace::root().join("target/recordings");
        fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        let frames = directory.join("bench.frames");
        let measured = channel.measure(arguments, &frames, seconds);
        // Only the channel of virtio has such a file.
        let _ = fs::remove_file(&frames);
        let (full, lossless) = measured.with_context(|| format!("{} cannot be measured", channel.name))?;
        rows.push(vec![
            channel.name.into(),
            number(Some(full.rate().round())),
            number(Some(full.lost as f64)),
            number(Some((full.sent + full.lost) as f64)),
            number(lossless.map(f64::round)),
        ]);
    }
    Ok(aligned(&rows))
}

impl Channel {
    /// Returns the recording at full load, and the greatest rate without loss of those that were tried.
    fn measure(&self, arguments: &[OsString], frames: &Path, seconds: u64) -> Result<(Recorded, Option<f64>)> {
        let mut remote = match self.baud {
            None => Remote::start(&with_channel(arguments, frames), seconds)?,
            Some(baud) => Remote::start(&Paced { arguments: arguments.to_vec(), baud }, seconds)?,
        };
        for line in [&format!("echo {} > buffer_size_kb", self.ring), EVENT] {
            ensure!(remote.does(line)?, "{line} is refused");
        }
        let full = record(&mut remote, |remote| {
            remote.ask(&format!("run sha256 {} {CPUS}", self.iterations))?;
            Ok(())
        })?;
        for part in PARTS {
            let wanted = part * full.rate() * self.period.as_secs_f64() / EVENTS_PER_ITERATION as f64;
            let line = format!("run sha256 {} {CPUS}", (wanted.round() as u64).max(u64::from(CPUS)));
            let recorded = record(&mut remote, |remote| {
                let begin = Instant::now();
                let mut next = begin;
                while begin.elapsed() < SPAN {
                    remote.ask(&line)?;
                    next += self.period;
                    // The rate is computed of the time that it took.
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                Ok(())
            })?;
            if recorded.lost == 0 {
                return Ok((full, Some(recorded.rate())));
            }
        }
        Ok((full, None))
    }
}

/// Records while `cause` causes events.
fn record(remote: &mut Remote, cause: impl FnOnce(&mut Remote) -> Result<()>) -> Result<Recorded> {
    ensure!(remote.does("clear trace")? && remote.does("record on")?, "the machine does not record");
    let begin = Instant::now();
    cause(remote)?;
    let answer = remote.ask("record off")?;
    let time = begin.elapsed();
    remote.take_frames();
    let counts = answer.iter().find_map(|line| parse(line));
    let (sent, lost) = counts.with_context(|| format!("the machine says {answer:?}"))?;
    Ok(Recorded { sent, lost, time })
}

/// Reads the end of a recording: `N records sent, M lost`.
fn parse(line: &str) -> Option<(u64, u64)> {
    let (sent, lost) = line.split_once(" sent, ")?;
    let sent = sent.strip_suffix(" records").or_else(|| sent.strip_suffix(" record"))?;
    Some((sent.parse().ok()?, lost.strip_suffix(" lost")?.parse().ok()?))
}

/// A QEMU whose UART has a speed, with a start bit and a stop bit for each byte. What QEMU has printed and the UART has
/// not carried yet waits in a pipe, and QEMU waits when that is full.
struct Paced {
    arguments: Vec<OsString>,
    baud: u32,
}

impl Start for Paced {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        const PIECE: usize = 64;
        let byte = Duration::from_secs_f64(10.0 / f64::from(self.baud));
        let is_fast = self.baud == u32::MAX;
        let due = Cell::new(Instant::now());
        self.arguments.start(Box::new(move |piece| match piece {
            Output::Bytes(bytes) if !is_fast => bytes.chunks(PIECE).for_each(|bytes| {
                due.set(due.get().max(Instant::now()) + byte * bytes.len() as u32);
                thread::sleep(due.get().saturating_duration_since(Instant::now()));
                output(Output::Bytes(bytes.into()));
            }),
            piece => output(piece),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Recorded, parse};

    #[test]
    fn the_end_of_a_recording_has_two_numbers() {
        assert_eq!(parse("200 records sent, 0 lost"), Some((200, 0)));
        assert_eq!(parse("1 record sent, 17 lost"), Some((1, 17)));
        assert_eq!(parse("kprobes> record off"), None);
        let recorded = Recorded { sent: 300, lost: 5, time: Duration::from_millis(1_500) };
        assert!((recorded.rate() - 200.0).abs() < 1e-9);
    }
}
