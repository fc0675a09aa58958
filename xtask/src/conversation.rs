//! A conversation is a script against a machine: the machine prompts, a line is typed, the machine replies and prompts
//! again. This module decides whose turn it is, what is typed, and whether the conversation went well. It needs no
//! machine.

use std::{collections::VecDeque, mem, ops::RangeInclusive};

use crate::console::{Console, Event, stop_reason, stopped};

/// The prompt of the kernel's console.
pub const PROMPT: &str = "kprobes> ";
/// The prompt of the tests image.
pub const TESTS_PROMPT: &str = "tests> ";
/// Makes the console say whether it refused the line before. The reply is 1 if so, and 0 otherwise.
pub const STATUS: &str = "echo $?";
/// The line that ends the conversation and switches the machine off.
pub const POWER_OFF: &str = "poweroff";
/// The line that ends the conversation with a board and brings back its loader.
pub const REBOOT: &str = "reboot";

/// The state of a conversation.
enum State {
    /// The machine boots.
    Booting,
    /// The machine has prompted.
    Prompted,
    /// The machine is replying to this line.
    Answering(String),
    /// The machine has been asked whether it refused this line.
    Checking(String),
    /// The script has ended, and the farewell has been typed.
    Leaving,
}

/// The next thing for the owner of a conversation to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Type this line.
    Type(String),
    /// The conversation is over. The error says why in a sentence.
    Finish(Result<(), String>),
}

/// The conversation of one machine with one script.
pub struct Conversation {
    console: Console,
    state: State,
    /// Lines that have been read but not typed.
    script: VecDeque<String>,
    script_ended: bool,
    /// The line that is typed at the end of the script. `None` if the machine goes on.
    farewell: Option<&'static str>,
    /// Whether the machine has written anything yet.
    has_spoken: bool,
    /// Whether a refused line ends the script.
    is_strict: bool,
    /// The refused line, if the script ended at one.
    refused: Option<String>,
}

/// How many seconds a machine may take to its first byte, at least and at most: a quarter of the general limit. A
/// machine that boots takes less than one, except on a host that does much else, for which the limit is raised. With
/// the image of another board it never writes one.
const FIRST_BYTE_TIMEOUT: RangeInclusive<u64> = 15..=60;

impl Conversation {
    /// Starts a conversation with a machine before its prompt. It ends with the line `farewell`, or leaves the machine
    /// to itself. If it `is_strict`, it fails where a line is refused.
    pub fn new(farewell: Option<&'static str>, is_strict: bool) -> Self {
        let console = Console::new(PROMPT);
        Self {
            console,
            state: State::Booting,
            script: VecDeque::new(),
            script_ended: false,
            farewell,
            has_spoken: false,
            is_strict,
            refused: None,
        }
    }

    /// Whether it is the machine's turn, so that it can take too long.
    pub fn waits_for_machine(&self) -> bool {
        !matches!(self.state, State::Prompted)
    }

    /// Whether the machine is replying to a line, so that it can be asked for a sign of life.
    pub fn is_answered(&self) -> bool {
        matches!(self.state, State::Answering(_))
    }

    /// Whether the machine is replying to a question that is not part of the script.
    pub fn is_checking(&self) -> bool {
        matches!(self.state, State::Checking(_))
    }

    /// Returns how many seconds the machine may be silent, of the general limit `seconds`. `None` is no limit.
    pub fn patience(&self, seconds: Option<u64>) -> Option<u64> {
        let (least, most) = FIRST_BYTE_TIMEOUT.into_inner();
        let first = |seconds: u64| seconds.min((seconds / 4).clamp(least, most));
        seconds.map(|seconds| if self.has_spoken { seconds } else { first(seconds) })
    }

    /// Takes bytes that the machine wrote. Returns what to do, if anything.
    pub fn output(&mut self, bytes: &[u8]) -> Option<Action> {
        self.has_spoken |= !bytes.is_empty();
        for event in self.console.feed(bytes) {
            match event {
                Event::Line(line) => {
                    if let Some(reason) = stop_reason(&line) {
                        return Some(Action::Finish(Err(stopped(reason))));
                    }
                    if let State::Checking(checked) = &mut self.state
                        && line == "1"
                    {
                        self.refused = Some(mem::take(checked));
                        self.script.clear();
                        self.script_ended = true;
                    }
                }
                Event::Prompt => match &mut self.state {
                    State::Leaving => {}
                    State::Answering(line) if self.is_strict => {
                        self.state = State::Checking(mem::take(line));
                        return Some(Action::Type(STATUS.into()));
                    }
                    _ => self.state = State::Prompted,
                },
            }
        }
        self.speak()
    }

    /// Takes the next line of the script, or its end. Returns what to do, if anything.
    pub fn script(&mut self, line: Option<&str>) -> Option<Action> {
        match line {
            _ if self.refused.is_some() => {}
            Some(line) if line.trim().is_empty() || line.starts_with('#') => {}
            Some(line) => self.script.push_back(line.trim_end_matches(['\r', '\n']).into()),
            None => self.script_ended = true,
        }
        self.speak()
    }

    /// Types the next line, if the machine has prompted and the line is known.
    fn speak(&mut self) -> Option<Action> {
        if self.waits_for_machine() {
            return None;
        }
        if let Some(line) = self.script.pop_front() {
            self.state = State::Answering(line.clone());
            return Some(Action::Type(line));
        }
        self.script_ended.then(|| match self.farewell {
            Some(farewell) => {
                self.state = State::Leaving;
                Action::Type(farewell.into())
            }
            None => Action::Finish(self.refusal()),
        })
    }

    /// Returns the error of a script that ended at a refused line.
    fn refusal(&self) -> Result<(), String> {
        match &self.refused {
            Some(line) => Err(format!("`{line}` was refused")),
            None => Ok(()),
        }
    }

    /// Returns the result of the conversation after QEMU has ended. `how` has QEMU's status and complaint, if it did
    /// not end well.
    pub fn ended(&mut self, how: Result<(), String>) -> Result<(), String> {
        if let Err(how) = how {
            return Err(format!("QEMU ended {}: {how}", self.place()));
        }
        match &self.state {
            State::Leaving => self.refusal(),
            State::Answering(line) if self.is_farewell(line.trim()) && self.script.is_empty() => Ok(()),
            _ => Err(format!("the machine powered off {}", self.place())),
        }
    }

    /// Whether a machine ends well by this line.
    fn is_farewell(&self, line: &str) -> bool {
        match self.farewell {
            Some(farewell) => line == farewell,
            None => [POWER_OFF, REBOOT].contains(&line),
        }
    }

    /// Returns the error for a machine that was silent for this many seconds in its turn.
    pub fn timed_out(&self, seconds: u64) -> String {
        match self.state {
            State::Leaving => format!("the machine did not end within {seconds} s, {}", self.place()),
            _ if !self.has_spoken => {
                format!("the machine printed nothing within {seconds} s: is the image built for this board?")
            }
            _ => format!("the machine gave no sign of life for {seconds} s, {}", self.place()),
        }
    }

    /// Returns the error of a script that was interrupted on this host.
    pub fn interrupted(&self) -> String {
        format!("the script was interrupted {}", self.place())
    }

    /// Returns a message for the waiting user if a machine that lives has been replying for this many seconds.
    pub fn progress_note(&self, seconds: u64) -> Option<String> {
        let State::Answering(line) = &self.state else { return None };
        Some(format!(
            "`{line}` has run for {seconds} s, and the machine still responds: each command of a script must end"
        ))
    }

    fn place(&self) -> String {
        match &self.state {
            State::Booting => "before its first prompt".into(),
            State::Prompted => "while it waited for a line".into(),
            State::Answering(line) | State::Checking(line) => format!("after `{line}`"),
            State::Leaving => format!("after the `{}` at the end of the script", self.farewell.unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Conversation, POWER_OFF, REBOOT};

    fn typed(line: &str) -> Option<Action> {
        Some(Action::Type(line.into()))
    }

    #[test]
    fn types_a_line_at_each_prompt_and_powers_off() {
        let mut conversation = Conversation::new(Some(POWER_OFF), false);
        for line in ["# comment", "", "list", "   ", "run sha256 1\r\n"] {
            assert_eq!(conversation.script(Some(line)), None);
        }
        assert_eq!(conversation.script(None), None);
        assert_eq!(conversation.output(b"booting\r\nkprobes"), None);
        assert_eq!(conversation.output(b"> "), typed("list"));
        assert_eq!(conversation.output(b"list\r\nerror: nothing\r\n"), None);
        assert_eq!(conversation.output(b"kprobes> "), typed("run sha256 1"));
        assert_eq!(conversation.output(b"run sha256 1\r\nok\r\nkprobes> "), typed("poweroff"));
        assert_eq!(conversation.output(b"poweroff\r\nkprobes> "), None);
        assert_eq!(conversation.ended(Ok(())), Ok(()));
    }

    #[test]
    fn a_script_may_come_later_than_the_prompt() {
        let mut conversation = Conversation::new(Some(POWER_OFF), false);
        assert!(conversation.waits_for_machine());
        assert_eq!(conversation.output(b"kprobes> "), None);
        assert!(!conversation.waits_for_machine());
        assert_eq!(conversation.script(Some("help")), typed("help"));
        assert!(conversation.waits_for_machine());
        assert_eq!(conversation.script(None), None);
        assert_eq!(conversation.output(b"help\r\nkprobes> "), typed("poweroff"));
    }

    #[test]
    fn a_stopped_machine_is_a_failure_wherever_it_happens() {
        let mut conversation = Conversation::new(Some(POWER_OFF), false);
        let finish = Some(Action::Finish(Err("the machine stopped: panic at boot".into())));
        assert_eq!(conversation.output(b"kprobes> \nmachine stopped: panic at boot"), None);
        assert_eq!(conversation.output(b"\r\n"), finish);
    }

    #[test]
    fn an_early_end_is_a_failure_that_says_where() {
        let mut conversation = Conversation::new(Some(POWER_OFF), false);
        assert_eq!(conversation.ended(Ok(())), Err("the machine powered off before its first prompt".into()));
        let how = || Err("exit status: 1: no such CPU".into());
        let sentence = "QEMU ended before its first prompt: exit status: 1: no such CPU";
        assert_eq!(conversation.ended(how()), Err(sentence.into()));
        conversation.script(Some("crash"));
        conversation.output(b"kprobes> ");
        assert_eq!(conversation.ended(Ok(())), Err("the machine powered off after `crash`".into()));
        assert_eq!(conversation.timed_out(60), "the machine gave no sign of life for 60 s, after `crash`");
    }

    #[test]
    fn a_machine_that_never_speaks_is_told_of_soon() {
        let mut conversation = Conversation::new(Some(POWER_OFF), false);
        let patience = [None, Some(60), Some(9), Some(200), Some(3600)].map(|seconds| conversation.patience(seconds));
        assert_eq!(patience, [None, Some(15), Some(9), Some(50), Some(60)]);
        let sentence = "the machine printed nothing within 15 s: is the image built for this board?";
        assert_eq!(conversation.timed_out(15), sentence);
        conversation.output(b"booting");
        assert_eq!((conversation.patience(Some(60)), conversation.is_answered()), (Some(60), false));
        conversation.script(Some("list"));
        conversation.output(b"\nkprobes> ");
        assert!(conversation.is_answered());
    }

    #[test]
    fn a_command_that_does_not_end_is_told_of() {
        let mut conversation = Conversation::new(Some(POWER_OFF), false);
        assert_eq!(conversation.progress_note(60), None);
        conversation.script(Some("cat trace_pipe"));
        assert_eq!(conversation.output(b"kprobes> "), typed("cat trace_pipe"));
        let sentence =
            "`cat trace_pipe` has run for 60 s, and the machine still responds: each command of a script must end";
        assert_eq!(conversation.progress_note(60), Some(sentence.into()));
        conversation.script(None);
        assert_eq!(conversation.output(b"\nkprobes> "), typed("poweroff"));
        assert_eq!(conversation.progress_note(60), None);
    }

    #[test]
    fn a_script_may_power_off_itself_but_only_at_its_end() {
        for (rest, result) in
            [(None, Ok(())), (Some("list"), Err("the machine powered off after `poweroff`".to_string()))]
        {
            let mut conversation = Conversation::new(Some(POWER_OFF), false);
            conversation.script(Some("poweroff"));
            conversation.script(rest);
            assert_eq!(conversation.output(b"kprobes> "), typed("poweroff"));
            assert_eq!(conversation.ended(Ok(())), result);
        }
    }

    #[test]
    fn a_strict_script_ends_at_the_first_line_that_is_refused() {
        let mut conversation = Conversation::new(Some(POWER_OFF), true);
        for line in ["list", "lisst", "help"] {
            conversation.script(Some(line));
        }
        assert_eq!(conversation.output(b"kprobes> "), typed("list"));
        assert_eq!(conversation.output(b"list\r\n1\r\nkprobes> "), typed("echo $?"));
        assert!(conversation.is_checking());
        assert_eq!(conversation.output(b"echo $?\r\n0\r\nkprobes> "), typed("lisst"));
        assert!(!conversation.is_checking());
        assert_eq!(conversation.output(b"lisst\r\nerror: no\r\nkprobes> "), typed("echo $?"));
        assert_eq!(conversation.output(b"echo $?\r\n1\r\nkprobes> "), typed("poweroff"));
        assert_eq!(conversation.script(Some("more")), None);
        assert_eq!(conversation.ended(Ok(())), Err("`lisst` was refused".into()));
    }

    #[test]
    fn a_machine_that_goes_on_is_left_at_its_prompt() {
        let mut conversation = Conversation::new(None, true);
        conversation.script(Some("list"));
        assert_eq!(conversation.script(None), None);
        assert_eq!(conversation.output(b"kprobes> "), typed("list"));
        assert_eq!(conversation.output(b"list\r\nkprobes> "), typed("echo $?"));
        let finish = Action::Finish(Err("`list` was refused".into()));
        assert_eq!(conversation.output(b"echo $?\r\n1\r\nkprobes> "), Some(finish));
        let mut conversation = Conversation::new(None, false);
        conversation.script(None);
        assert_eq!(conversation.output(b"kprobes> "), Some(Action::Finish(Ok(()))));
        // A script may also end the machine.
        for farewell in [POWER_OFF, REBOOT] {
            let mut conversation = Conversation::new(None, false);
            conversation.script(Some(farewell));
            conversation.script(None);
            assert_eq!(conversation.output(b"kprobes> "), typed(farewell));
            assert_eq!(conversation.ended(Ok(())), Ok(()));
        }
    }

    #[test]
    fn a_board_is_left_to_its_loader() {
        let mut conversation = Conversation::new(Some(REBOOT), false);
        conversation.script(None);
        assert_eq!(conversation.output(b"kprobes> "), typed("reboot"));
        let late = "the machine did not end within 9 s, after the `reboot` at the end of the script";
        assert_eq!(conversation.timed_out(9), late);
        assert_eq!(conversation.ended(Ok(())), Ok(()));
    }
}
