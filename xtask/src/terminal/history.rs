//! The lines that a person has typed at consoles, which a file keeps from one machine to the next. The machine's line
//! editor gets them when it has booted, and reports each line that the person ends (`wire/src/history.rs`). A machine
//! without this protocol, and a script, never see any of it.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    mem,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use kprobes_wire::history::{Filter, KEEP, LEAVE, LINE_MAX, Report, earlier, key};
use rustix::fs::{FlockOperation, flock};

use crate::{
    console::{Console, Event},
    conversation::PROMPT,
    lock::Locked,
};

/// The number of lines that the file keeps when it is cut, which is done when a session finds twice as many.
const KEPT: usize = 1_000;

/// The history of one terminal.
pub struct History {
    /// The file to add lines to, if there is one.
    path: Option<PathBuf>,
    /// The lines in the order in which they were typed.
    lines: Vec<String>,
    /// The number of lines that the machine has not got, which are the first of `lines`.
    left: usize,
    /// Whether the machine may ask for the newest line, once for each [`KEEP`].
    is_first_due: bool,
    /// Whether the machine may ask for the next line, once for each line that was sent.
    is_next_due: bool,
    /// Whether a line is in `waiting`.
    is_line_waiting: bool,
    /// The number of lines that the machine may report: the person has ended as many.
    lines_due: usize,
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
        // A file that can only be read is not cut.
        let lines = path.map(|path| open(path).unwrap_or_else(|_| read(path))).unwrap_or_default();
        let skipped = lines.len().saturating_sub(KEPT);
        let lines: Vec<String> = lines.into_iter().skip(skipped).collect();
        Self {
            path: path.map(Path::to_path_buf),
            left: lines.len(),
            lines,
            is_first_due: false,
            is_next_due: false,
            is_line_waiting: false,
            lines_due: 0,
            filter: Filter::default(),
            console: Console::new(PROMPT),
            control: Control::None,
            keys: Keys { has_menu, ..Keys::default() },
            waiting: Vec::new(),
        }
    }

    /// Takes output of the machine, and returns the part that is for the terminal. The output of a program may have the
    /// form of reports, so reports that are not due are ignored.
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (text, reports) = self.filter.feed(bytes);
        for report in reports {
            match report {
                Report::First if mem::take(&mut self.is_first_due) => {
                    self.left = self.lines.len();
                    self.hand_over();
                }
                Report::Next if mem::take(&mut self.is_next_due) => self.hand_over(),
                Report::Line(line) if self.lines_due > 0 => {
                    self.lines_due -= 1;
                    self.add(line);
                }
                Report::First | Report::Next | Report::Line(_) => {}
            }
        }
        // The prompt may follow a sequence that clears the screen.
        let plain: Vec<u8> = text.iter().copied().filter(|byte| self.control.is_outside(*byte)).collect();
        if self.console.feed(&plain).contains(&Event::Prompt) {
            self.waiting.extend(key(KEEP).bytes());
            self.is_first_due = true;
        }
        text
    }

    /// Sends the newest line that the machine has not got.
    fn hand_over(&mut self) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            self.is_line_waiting = true;
            self.waiting.extend(earlier(&self.lines[left]).bytes());
        }
    }

    /// Keeps a line.
    fn add(&mut self, line: String) {
        if !is_line(&line) || self.lines.last() == Some(&line) {
            return;
        }
        if let Some(path) = &self.path {
            // A full disk must not end the session.
            let _ = with_file(path, |mut file| file.write_all(format!("{line}\n").as_bytes()));
        }
        self.lines.push(line);
    }

    /// Takes keys of the person, and returns keys for the machine.
    pub fn pass(&mut self, typed: Vec<u8>) -> Vec<u8> {
        let mut keys = typed;
        keys.iter().for_each(|&byte| self.keys.take(byte));
        self.lines_due += keys.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count();
        if self.keys.is_whole() {
            keys.append(&mut self.waiting);
            self.is_next_due |= mem::take(&mut self.is_line_waiting);
        }
        keys
    }

    /// Returns the last keys for the machine. They end a key of which only the beginning was typed.
    pub fn leave(&mut self) -> Vec<u8> {
        self.waiting.clear();
        key(LEAVE).into_bytes()
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

/// Makes the file if there is none, and returns its lines. If it has twice the lines that are kept, the oldest are
/// removed.
fn open(path: &Path) -> io::Result<Vec<String>> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    with_file(path, |_| {
        let lines = read(path);
        if lines.len() >= 2 * KEPT {
            let kept: String = lines[lines.len() - KEPT..].iter().map(|line| format!("{line}\n")).collect();
            let new = path.with_extension("new");
            let mut file = open_own(&new, File::options().write(true).truncate(true))?;
            file.write_all(kept.as_bytes())?;
            fs::rename(new, path)?;
        }
        Ok(lines)
    })
}

/// Opens a file, or makes it, for its owner alone.
fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.create(true).mode(0o600).open(path)?;
    // Nothing is private in a device such as /dev/null.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Does `work` with the file at its end, while other sessions neither add lines nor replace the file.
fn with_file<T>(path: &Path, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
    loop {
        let file = open_own(path, File::options().append(true))?;
        flock(&file, FlockOperation::LockExclusive)?;
        // Takes over the lock, which is this file's already.
        let locked = Locked::new(&file)?;
        let (own, present) = (file.metadata()?, fs::metadata(path)?);
        // Otherwise another session has replaced it before it was locked.
        if (own.dev(), own.ino()) == (present.dev(), present.ino()) {
            let outcome = work(&file);
            drop(locked);
            return outcome;
        }
    }
}

/// The position of a stream in a control sequence (ECMA-48, section 5.4).
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

/// The position in the keys of the person: other keys are sent only between two whole keys.
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
        if mem::take(&mut self.is_menu_open) {
            self.is_in_monitor ^= byte == b'c';
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
    use std::{
        env, fs,
        os::unix::fs::PermissionsExt,
        path::{Path, PathBuf},
        process,
    };

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

    /// Returns the directory for the files of a test.
    fn directory(name: &str) -> PathBuf {
        env::temp_dir().join(format!("kprobes-{}-{name}", process::id()))
    }

    fn mode(file: &Path) -> u32 {
        fs::metadata(file).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn lines_survive_the_machine() {
        let directory = directory("history");
        let file = directory.join("a/history");
        let mut history = History::at(Some(&file), false);
        assert_eq!(heard(&mut history, PROMPT), key(KEEP));
        assert_eq!(heard(&mut history, &report(Report::First)), "");
        history.hear(&report(Report::Line("by a program")));
        for line in ["one", "two", "two", " ", "bad\u{7f}", "é"] {
            history.pass(vec![b'\r']);
            assert_eq!(history.hear(&[b"x", report(Report::Line(line)).as_slice(), b"y"].concat()), b"xy");
        }
        assert_eq!(mode(&file), 0o600);
        // The next machine, which resets after two lines.
        let mut history = History::at(Some(&file), false);
        for (output, keys) in [
            // The output of a program.
            (report(Report::First), String::new()),
            (report(Report::Next), String::new()),
            (PROMPT.to_vec(), key(KEEP)),
            ([report(Report::First), report(Report::First)].concat(), earlier("é")),
            ([report(Report::Next), report(Report::Next)].concat(), earlier("two")),
            ([b"\r\n", PROMPT].concat(), key(KEEP)),
            (report(Report::First), earlier("é")),
            (report(Report::Next), earlier("two")),
            (report(Report::Next), earlier("one")),
            (report(Report::Next), String::new()),
        ] {
            assert_eq!(heard(&mut history, &output), keys, "{output:x?}");
        }
        history.pass(vec![0x1b]);
        assert_eq!(String::from_utf8(history.leave()).unwrap(), key(LEAVE));
        // A file that has grown is cut, and a damaged one is read as far as it has lines.
        let long: String = (0..2 * KEPT).map(|number| format!("{number}\n")).collect();
        fs::write(&file, [b"\xff\x1b[2J\n".as_slice(), long.as_bytes()].concat()).unwrap();
        let new = file.with_extension("new");
        fs::write(&new, "left by a session that was killed").unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        History::at(Some(&file), false);
        let kept = fs::read_to_string(&file).unwrap();
        assert!(kept.starts_with(&format!("{KEPT}\n")) && kept.lines().count() == KEPT, "{kept}");
        assert_eq!(mode(&file), 0o600);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn no_session_loses_lines_of_another() {
        let directory = directory("sessions");
        let file = directory.join("history");
        fs::create_dir_all(&directory).unwrap();
        fs::write(&file, "old\n".repeat(2 * KEPT - 1)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let mut first = History::at(Some(&file), false);
        assert_eq!(mode(&file), 0o600);
        let add = |history: &mut History, line: &str| {
            history.pass(vec![b'\r']);
            history.hear(&report(Report::Line(line)));
        };
        add(&mut first, "1");
        // It replaces the file.
        let mut second = History::at(Some(&file), false);
        add(&mut first, "2");
        add(&mut second, "3");
        add(&mut first, "4");
        let kept = fs::read_to_string(&file).unwrap();
        assert!(kept.ends_with("old\n1\n2\n3\n4\n") && kept.lines().count() == KEPT + 3, "{kept}");
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
            (true, b"\x01C"),
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
