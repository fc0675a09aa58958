//! Shows the progress of a transfer: a bar on a terminal, a line at the end elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use kprobes_loader_protocol::{BLOCK, package::Package, sender::Stage};

const WIDTH: usize = 30;
/// Where output is lines, the progress is not shown before this time.
const PROGRESS_DELAY: Duration = Duration::from_secs(3);

/// The display of one transfer.
pub struct Progress {
    port: String,
    packed: usize,
    length: usize,
    is_terminal: bool,
    since: Instant,
    /// The last shown text.
    shown: String,
    /// When the sending of blocks began, and from which block.
    begin: Option<(Instant, u32)>,
}

impl Progress {
    /// Shows a package that goes to the board on the port of this name.
    pub fn new(package: &Package, port: String) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let length = package.transfer.length as usize;
        Self {
            port,
            packed: package.packed.len(),
            length,
            is_terminal,
            since: Instant::now(),
            shown: String::new(),
            begin: None,
        }
    }

    /// Shows the progress at this stage.
    pub fn show(&mut self, stage: Stage, is_connected: bool) {
        let line = match stage {
            _ if !is_connected => format!("{} is gone; the transfer continues when it is back", self.port),
            Stage::Greeting => format!("waiting for the loader on {}: switch the board on or reset it", self.port),
            Stage::Beginning => "the loader answered".into(),
            Stage::Sending(index) => self.bar(index),
            Stage::Starting | Stage::Unpacking => format!("the loader unpacks {} KiB", self.length / 1024),
            Stage::Started => return,
        };
        if !self.is_terminal {
            // Without a terminal, the line cannot be redrawn. It is printed once if the user must act.
            if stage == Stage::Greeting && self.shown.is_empty() && self.since.elapsed() > PROGRESS_DELAY {
                eprintln!("{line}");
                self.shown = line;
            }
            return;
        }
        if line != self.shown {
            self.draw(&line);
            self.shown = line;
        }
    }

    /// Ends the display, so that other output can follow.
    pub fn end(&mut self) {
        if self.is_terminal {
            self.draw("");
        }
        if let Some((begin, _)) = self.begin {
            let seconds = begin.elapsed().as_secs_f64();
            eprintln!("{} KiB in {} KiB on {}, in {seconds:.1} s", self.length / 1024, self.packed / 1024, self.port);
        }
    }

    fn bar(&mut self, index: u32) -> String {
        let (begin, first) = *self.begin.get_or_insert_with(|| (Instant::now(), index));
        let done = (index as usize * BLOCK).min(self.packed);
        let filled = done * WIDTH / self.packed.max(1);
        let seconds = begin.elapsed().as_secs_f64().max(0.001);
        let speed = index.saturating_sub(first) as f64 * BLOCK as f64 / 1024.0 / seconds;
        format!(
            "[{}{}] {:3} %  {} of {} KiB, {speed:.1} KiB/s",
            "#".repeat(filled),
            " ".repeat(WIDTH - filled),
            done * 100 / self.packed.max(1),
            done / 1024,
            self.packed / 1024
        )
    }

    fn draw(&self, line: &str) {
        /// Erase to the end of the line (ECMA-48, EL).
        const ERASE: &str = "\x1b[K";
        // If standard error is gone, no user waits.
        let _ = write!(io::stderr(), "\r{line}{ERASE}");
    }
}
