//! Types every key of the console's line editor in `tmux`, which is a terminal as a person has one: on QEMU, by `run`,
//! and on a serial line, by `attach`. The screen must show what the table says. Lines go over from one to the next.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{self, Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, ensure};

use super::{Fixture, TURN, own};
use crate::{conversation::PROMPT, setup, test::report::Outcome};

/// The size of the terminal.
const SIZE: [&str; 4] = ["-x", "80", "-y", "24"];

/// Keys by their names in tmux, or text, and the row that they make. Each begins with an empty line. `|` shows where
/// the cursor was. QEMU and `attach` take the first of two Ctrl-A.
const EDITED: [(&[&str], &str); 31] = [
    (&["ab", "Left", "|"], "a|b"),
    (&["ab", "C-b", "|"], "a|b"),
    (&["ab", "Home", "|"], "|ab"),
    (&["ab", "C-a", "C-a", "|"], "|ab"),
    (&["ab", "Home", "Right", "|"], "a|b"),
    (&["ab", "Home", "C-f", "|"], "a|b"),
    (&["ab", "Home", "End", "|"], "ab|"),
    (&["ab", "Home", "C-e", "|"], "ab|"),
    (&["ab cd", "M-b", "|"], "ab |cd"),
    (&["ab cd", "C-Left", "|"], "ab |cd"),
    (&["ab cd", "Home", "M-f", "|"], "ab| cd"),
    (&["ab cd", "Home", "C-Right", "|"], "ab| cd"),
    (&["abc", "BSpace", "|"], "ab|"),
    (&["abc", "Home", "DC", "|"], "|bc"),
    (&["abc", "Home", "C-d", "|"], "|bc"),
    (&["abc", "Left", "C-u", "|"], "|c"),
    (&["abc", "Home", "C-k", "|"], "|"),
    (&["ab c-d", "C-w", "|"], "ab |"),
    (&["ab c-d", "M-BSpace", "|"], "ab c-|"),
    (&["ab cd", "Home", "M-d", "|"], "| cd"),
    (&["ab cd", "C-w", "Home", "C-y", "|"], "cd|ab"),
    (&["ab", "C-t", "|"], "ba|"),
    (&["Up", "|"], "echo two|"),
    (&["C-p", "C-p", "|"], "echo one|"),
    (&["draft", "Up", "Down", "|"], "draft|"),
    (&["draft", "C-p", "C-n", "|"], "draft|"),
    (&["M-.", "|"], "two|"),
    (&["C-r", "on", "C-a", "C-a", "|"], "|echo one"),
    (&["draft", "C-r", "on", "C-g", "|"], "draft|"),
    (&["list-p", "Tab"], "list-probes"),
    (&["cat tracing_o", "Tab"], "cat tracing_on"),
];

/// A long line, which takes two rows of the terminal.
const LONG: &str = "echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb cccccccccc";

/// Types all keys on both kinds of machines.
pub(super) fn keys(fixture: &Fixture) -> Result<Outcome> {
    if let Err(error) = setup::tool("tmux") {
        return Ok(Outcome::Skipped(format!("tmux is not installed: {error:#}")));
    }
    let image = fixture.image.display().to_string();
    let options = fixture.options.join(" ");
    let exe = own(&[])?.get_program().display().to_string();
    let state = fixture.directory("keys/state")?;
    let history = state.join("aarch64-kprobes/history");
    // The history of a test before.
    let _ = fs::remove_file(&history);
    let run = |name: &str| {
        let state = state.display();
        format!("env {name} XDG_STATE_HOME='{state}' '{exe}' run --no-network {options} --image '{image}'")
    };
    {
        let terminal = Tmux::new(fixture, "qemu", &run("-u NO_COLOR"))?;
        terminal.type_all()?;
        let painted = terminal.capture(&["-e", "-S", "-"])?;
        for (word, color) in [("kprobes>", "32m"), ("error:", "31m"), ("^", "31m")] {
            let has_color = painted.lines().any(|line| line.contains(&format!("{color}{word}")));
            ensure!(has_color, "`{word}` has no color: {painted:?}");
        }
        terminal.edit(&["poweroff"], "poweroff")?;
        terminal.send(&["Enter"])?;
        terminal.wait("the end", |screen| screen.contains("status 0"))?;
    }
    let typed = fs::read_to_string(&history)?;
    ensure!(typed.starts_with("echo one\necho two\n") && typed.ends_with("\nlisst\npoweroff\n"), "{typed:?}");
    ensure!(fs::metadata(&history)?.permissions().mode() & 0o777 == 0o600, "others may read the history");
    let cable = fixture.cable("keys")?;
    let port = cable.port.display().to_string();
    {
        let attach = format!("env XDG_STATE_HOME='{}' NO_COLOR=1 '{exe}' attach --serial '{port}'", state.display());
        let terminal = Tmux::new(fixture, "line", &attach)?;
        // The lines that were typed on QEMU.
        terminal.recall("poweroff")?;
        terminal.edit(&["Up", "|"], "poweroff|")?;
        terminal.edit(&["Up", "Up", "|"], "lisst|")?;
        terminal.edit(&["C-r", "o tw", "C-e", "|"], "echo two|")?;
        terminal.type_all()?;
        let plain = terminal.capture(&["-e", "-S", "-"])?;
        ensure!(!plain.contains('\x1b'), "there are colors with NO_COLOR: {plain:?}");
        terminal.send(&["C-c", "C-a", "x"])?;
        terminal.wait("the end", |screen| screen.contains("status 0"))?;
    }
    // A script sees nothing of the history, and is not in it.
    let typed = fs::read_to_string(&history)?;
    let script = fixture.directory("keys")?.join("script");
    fs::write(&script, "echo scripted\n")?;
    let mut scripted = own(&["attach", "--serial", &port, "--script"])?;
    let done = scripted.arg(&script).env("XDG_STATE_HOME", &state).output()?;
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(output == format!("{PROMPT}echo scripted\nscripted\n{PROMPT}\n"), "{output:?}");
    ensure!(fs::read_to_string(&history)? == typed, "a script is in the history");
    // Without colors, QEMU has the lines as well.
    let terminal = Tmux::new(fixture, "again", &run("TERM=dumb"))?;
    terminal.recall("lisst")?;
    terminal.edit(&["Up", "|"], "lisst|")?;
    terminal.send(&["C-a", "x"])?;
    terminal.wait("the end", |screen| screen.contains("status 0"))?;
    Ok(Outcome::Passed)
}

/// A terminal in a tmux of its own, which ends with this.
struct Tmux<'a> {
    fixture: &'a Fixture,
    socket: String,
}

impl<'a> Tmux<'a> {
    /// Starts a command, at whose end the terminal shows its status.
    fn new(fixture: &'a Fixture, name: &str, command: &str) -> Result<Self> {
        let place = fixture.directory.file_name().unwrap_or_default().to_string_lossy();
        let terminal = Self { fixture, socket: format!("kprobes-{}-{place}-{name}", process::id()) };
        let shell = format!("{command}; echo status $?; exec cat");
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d"], &[SIZE.as_slice(), &[&shell]].concat())?;
        terminal.wait("the prompt", |screen| last(screen) == PROMPT.trim_end())?;
        Ok(terminal)
    }

    fn tmux(&self, command: &[&str], arguments: &[&str]) -> Result<String> {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.socket]).args(command).args(arguments).stdin(Stdio::null());
        let output = tmux.output().context("tmux cannot be started")?;
        ensure!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn send(&self, keys: &[&str]) -> Result<()> {
        self.tmux(&["send-keys"], keys).map(drop)
    }

    /// Returns what the terminal shows, with rows that are wrapped as one.
    fn capture(&self, options: &[&str]) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-J"], options)
    }

    /// Waits until the screen is as wanted.
    fn wait(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
        let deadline = self.fixture.deadline();
        loop {
            let screen = self.capture(&[])?;
            if is_wanted(&screen) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{what} does not come; the screen is\n{}", screen.trim_end());
            thread::sleep(TURN);
        }
    }

    /// Recalls the newest line of the history. The lines come after the first prompt, so until then Up shows nothing.
    fn recall(&self, line: &str) -> Result<()> {
        let wanted = format!("{PROMPT}{line}");
        self.wait(&format!("`{line}` after Up"), |screen| match last(screen) {
            row if row == wanted => true,
            row => {
                let key = if row == PROMPT.trim_end() { "Up" } else { "C-c" };
                // If tmux is gone, nothing comes.
                let _ = self.send(&[key]);
                false
            }
        })
    }

    /// Types keys on an empty line, and waits for the row that they make.
    fn edit(&self, keys: &[&str], row: &str) -> Result<()> {
        self.send(&["C-c"])?;
        self.wait("an empty line", |screen| last(screen) == PROMPT.trim_end())?;
        self.send(keys)?;
        let wanted = format!("{PROMPT}{row}");
        self.wait(&format!("`{row}` after {keys:?}"), |screen| last(screen) == wanted.trim_end())
    }

    /// Types everything that the editor knows.
    fn type_all(&self) -> Result<()> {
        for line in ["echo one", "echo two"] {
            self.edit(&[line], line)?;
            self.send(&["Enter"])?;
            let reply = line.trim_start_matches("echo ");
            self.wait(reply, |screen| screen.contains(&format!("\n{reply}\n{}", PROMPT.trim_end())))?;
        }
        EDITED.iter().try_for_each(|(keys, row)| self.edit(keys, row))?;
        self.edit(&[LONG, "Home", "|", "End", "|"], &format!("|{LONG}|"))?;
        self.edit(&[LONG, "C-b", "C-u", "|"], "|c")?;
        // The names that a word may become, and the line again.
        self.edit(&["ls events/sched/s", "Tab"], "ls events/sched/sched_")?;
        self.send(&["Tab"])?;
        self.wait("the names", |screen| {
            screen.contains("sched_switch/") && last(screen) == format!("{PROMPT}ls events/sched/sched_")
        })?;
        // A search shows what it looks for.
        self.send(&["C-c", "C-r", "on"])?;
        self.wait("the search", |screen| last(screen) == "(reverse-i-search)`on': echo one")?;
        // An open bracket goes on in a next row.
        self.edit(&["trace 'BEGIN {"], "trace 'BEGIN {")?;
        self.send(&["Enter"])?;
        self.wait("a second row", |screen| last(screen) == ">")?;
        self.send(&["printf(\"two rows\\n\"); exit(); }'", "Enter"])?;
        self.wait("the program", |screen| screen.contains("\ntwo rows\n") && last(screen) == PROMPT.trim_end())?;
        // A blank screen has the line at its top.
        self.edit(&["ab", "C-l", "|"], "ab|")?;
        self.wait("a blank screen", |screen| screen.starts_with(&format!("{PROMPT}ab|\n")))?;
        // While a command runs, a key shows its line.
        let program = "trace 'BEGIN { printf(\"begun\\n\"); }'";
        self.edit(&[program], program)?;
        self.send(&["Enter"])?;
        self.wait("the program", |screen| screen.contains("\nbegun\n"))?;
        self.send(&["C-t"])?;
        self.wait("what runs", |screen| {
            last(screen).starts_with("running for ") && last(screen).ends_with(&format!(": {program}"))
        })?;
        self.edit(&["lisst"], "lisst")?;
        self.send(&["Enter"])?;
        self.wait("an error", |screen| screen.contains("did you mean `list`?") && last(screen) == PROMPT.trim_end())
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.tmux(&["kill-server"], &[]);
    }
}

/// Returns the last line with text.
fn last(screen: &str) -> &str {
    screen.trim_end().lines().next_back().unwrap_or_default()
}
