//! The lines that a person has typed at consoles, which a file keeps from one machine to the next. The machine's line
//! editor gets them when it has booted, and reports each line that the person ends (`wire/src/history.rs`). A machine
//! without this protocol, and a script, never see any of it.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use kprobes_wire::history::{Filter, KEEP, LEAVE, Report, earlier, key};

use crate::{
    console::{Console, Event},
    conversation::PROMPT,
    trace::LINE_MAX,
};

/// The number of lines that the file keeps. It may have up to as many more before it is cut.
const KEPT: usize = 1_000;

/// The history of one terminal.
pub struct History {
    /// The file to add lines to, if there is one.
    file: Option<File>,
    /// The lines in the order in which they were typed.
    lines: Vec<String>,
    /// The number of lines that the machine has not got, which are the first of `lines`.
    left: usize,
    filter: Filter,
    console: Console,
    control: Control,
    keys: Keys,
    /// Keys for the machine that wait until the person has typed a whole key.
    waiting: Vec<u8>,
}

impl History {
    /// Opens the file of the person. Without a home, or without permission, lines are kept as long as the machine runs.
    /// `has_menu` tells whether the machine is QEMU's terminal, where Ctrl-A begins a command for QEMU.
    pub fn open(has_menu: bool) -> Self {
        let path = path(env::var_os("XDG_STATE_HOME").map(PathBuf::from), env::var_os("HOME").map(PathBuf::from));
        Self::at(path.as_deref(), has_menu)
    }

    fn at(path: Option<&Path>, has_menu: bool) -> Self {
        let lines = path.map(read).unwrap_or_default();
        let file = path.and_then(|path| open(path, lines.len()).ok());
        let skipped = lines.len().saturating_sub(KEPT);
        let lines: Vec<String> = lines.into_iter().skip(skipped).collect();
        Self {
            file,
            left: lines.len(),
            lines,
            filter: Filter::default(),
            console: Console::new(PROMPT),
            control: Control::None,
            keys: Keys { has_menu, ..Keys::default() },
            waiting: Vec::new(),
        }
    }

    /// Takes output of the machine, and returns what of it is for the terminal.
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (text, reports) = self.filter.feed(bytes);
        for report in reports {
            match report {
                Report::First => {
                    self.left = self.lines.len();
                    self.hand_over();
                }
                Report::Next => self.hand_over(),
                Report::Line(line) => self.add(line),
            }
        }
        // The prompt may follow a sequence that clears the screen.
        let plain: Vec<u8> = text.iter().copied().filter(|byte| self.control.is_outside(*byte)).collect();
        if self.console.feed(&plain).contains(&Event::Prompt) {
            self.waiting.extend(key(KEEP).bytes());
        }
        text
    }

    /// Sends the newest line that the machine has not got.
    fn hand_over(&mut self) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            self.waiting.extend(earlier(&self.lines[left]).bytes());
        }
    }

    /// Keeps a line.
    fn add(&mut self, line: String) {
        if !is_line(&line) || self.lines.last() == Some(&line) {
            return;
        }
        if let Some(file) = &mut self.file {
            // A full disk must not end the session. One write adds the whole line, also if others add theirs.
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
        self.lines.push(line);
    }

    /// Takes keys of the person, and returns keys for the machine.
    pub fn pass(&mut self, typed: Vec<u8>) -> Vec<u8> {
        let mut keys = typed;
        keys.iter().for_each(|&byte| self.keys.take(byte));
        if self.keys.is_whole() {
            keys.append(&mut self.waiting);
        }
        keys
    }

    /// Returns the last keys for the machine.
    pub fn leave(&mut self) -> Vec<u8> {
        self.waiting = key(LEAVE).into_bytes();
        self.pass(Vec::new())
    }
}

/// Returns the file of the history (XDG Base Directory Specification).
fn path(state: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    // The specification ignores a path that is not absolute.
    let state = state.filter(|path| path.is_absolute()).or_else(|| Some(home?.join(".local/state")))?;
    Some(state.join("aarch64-kprobes/history"))
}

/// Whether the machine can get this line.
fn is_line(line: &str) -> bool {
    !line.trim().is_empty() && line.len() <= LINE_MAX && !line.contains(char::is_control)
}

fn read(path: &Path) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter(|line| is_line(line)).map(String::from).collect()
}

/// Opens the file to add lines, for its owner alone. If it has twice the lines that are kept, the oldest are removed.
fn open(path: &Path, lines: usize) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    if lines >= 2 * KEPT {
        let kept: String = read(path).iter().skip(lines - KEPT).map(|line| format!("{line}\n")).collect();
        let new = path.with_extension("new");
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?.write_all(kept.as_bytes())?;
        fs::rename(new, path)?;
    }
    File::options().create(true).append(true).mode(0o600).open(path)
}

/// Where a stream is in a control sequence (ECMA-48, section 5.4).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Control {
    #[default]
    None,
    /// After ESC.
    Escape,
    /// After ESC `[`.
    Sequence,
    /// After ESC `O`.
    Function,
}

impl Control {
    /// Takes the next byte. Returns whether it is outside of sequences.
    fn is_outside(&mut self, byte: u8) -> bool {
        let before = *self;
        *self = match (before, byte) {
            (_, 0x1b) => Self::Escape,
            (Self::Escape, b'[') => Self::Sequence,
            (Self::Escape, b'O') => Self::Function,
            (Self::Sequence, b' '..=b'?') => Self::Sequence,
            _ => Self::None,
        };
        before == Self::None && *self == Self::None
    }
}

/// Where the keys of a person are: other keys are sent only between two of theirs.
#[derive(Default)]
struct Keys {
    control: Control,
    /// The number of bytes that a character lacks (UTF-8).
    lacking: u32,
    /// Whether Ctrl-A begins a command for QEMU.
    has_menu: bool,
    /// Whether Ctrl-A came, and the key of the command has not.
    is_menu_open: bool,
    /// Whether keys go to the monitor of QEMU.
    is_in_monitor: bool,
}

impl Keys {
    fn take(&mut self, byte: u8) {
        if std::mem::take(&mut self.is_menu_open) {
            self.is_in_monitor ^= matches!(byte, b'c' | b'C');
            return;
        }
        if self.has_menu && byte == super::ESCAPE {
            self.is_menu_open = true;
            return;
        }
        self.control.is_outside(byte);
        self.lacking = match byte {
            0x80..0xc0 => self.lacking.saturating_sub(1),
            0xc0.. => byte.leading_ones() - 1,
            _ => 0,
        };
    }

    fn is_whole(&self) -> bool {
        self.control == Control::None && self.lacking == 0 && !self.is_menu_open && !self.is_in_monitor
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, process};

    use kprobes_wire::history::{KEEP, LEAVE, Report, earlier, key};

    use super::{History, KEPT, path};

    const PROMPT: &[u8] = b"kprobes> ";

    fn report(report: Report<&str>) -> Vec<u8> {
        report.to_string().into_bytes()
    }

    /// Returns the keys for the machine after this output of it.
    fn heard(history: &mut History, output: &[u8]) -> String {
        history.hear(output);
        String::from_utf8(history.pass(Vec::new())).unwrap()
    }

    #[test]
    fn lines_survive_the_machine() {
        let directory = env::temp_dir().join(format!("kprobes-{}-history", process::id()));
        let file = directory.join("a/history");
        let mut history = History::at(Some(&file), false);
        assert_eq!(heard(&mut history, PROMPT), key(KEEP));
        assert_eq!(heard(&mut history, &report(Report::First)), "");
        for line in ["one", "two", "two", " ", "bad\u{7f}", "é"] {
            assert_eq!(history.hear(&[b"x", report(Report::Line(line)).as_slice(), b"y"].concat()), b"xy");
        }
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // The next machine, which resets after two lines.
        let mut history = History::at(Some(&file), false);
        for (report_heard, keys) in [
            (Report::First, earlier("é")),
            (Report::Next, earlier("two")),
            (Report::First, earlier("é")),
            (Report::Next, earlier("two")),
            (Report::Next, earlier("one")),
            (Report::Next, String::new()),
        ] {
            assert_eq!(heard(&mut history, &report(report_heard)), keys);
        }
        assert_eq!(String::from_utf8(history.leave()).unwrap(), key(LEAVE));
        // A file that has grown is cut, and a damaged one is read as far as it has lines.
        let long: String = (0..2 * KEPT).map(|number| format!("{number}\n")).collect();
        fs::write(&file, [b"\xff\x1b[2J\n".as_slice(), long.as_bytes()].concat()).unwrap();
        History::at(Some(&file), false);
        let kept = fs::read_to_string(&file).unwrap();
        assert!(kept.starts_with(&format!("{KEPT}\n")) && kept.lines().count() == KEPT, "{kept}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_prompt_is_known_by_its_place() {
        for (output, is_prompt) in [
            (&b"boot\r\nkprobes> "[..], true),
            (b"\x1b[H\x1b[2Jkprobes> ", true),
            (b"a kprobes> ", false),
            (b"kprobes>", false),
        ] {
            let mut history = History::at(None, false);
            assert_eq!(heard(&mut history, output), if is_prompt { key(KEEP) } else { String::new() }, "{output:?}");
        }
    }

    /// Keys that wait are sent after the person's key of several bytes, and never within it.
    #[test]
    fn keys_of_a_person_stay_whole() {
        for (has_menu, typed) in [
            (false, &b"\x1b[1;5D"[..]),
            (false, b"\x1bOH"),
            (false, b"\x1bb"),
            (false, "💥".as_bytes()),
            (true, b"\x01x"),
            (true, b"\x01c\x1b\x01c[A"),
        ] {
            let mut history = History::at(None, has_menu);
            history.pass(typed[..1].to_vec());
            history.hear(PROMPT);
            for (at, &byte) in typed.iter().enumerate().skip(1) {
                let keys = history.pass(vec![byte]);
                let expected =
                    if at + 1 == typed.len() { [&[byte], key(KEEP).as_bytes()].concat() } else { vec![byte] };
                assert_eq!(keys, expected, "{typed:x?} at {at}");
            }
        }
        // Without QEMU's menu, Ctrl-A is a key like others.
        let mut history = History::at(None, false);
        history.pass(vec![1]);
        assert_eq!(heard(&mut history, PROMPT), key(KEEP));
    }

    #[test]
    fn the_file_is_in_the_state_of_the_user() {
        let of = |state: Option<&str>, home: Option<&str>| path(state.map(Into::into), home.map(Into::into));
        assert_eq!(of(Some("/s"), Some("/h")).as_deref(), Some(Path::new("/s/aarch64-kprobes/history")));
        assert_eq!(of(Some("s"), Some("/h")).as_deref(), Some(Path::new("/h/.local/state/aarch64-kprobes/history")));
        assert_eq!(of(None, None), None);
    }
}
