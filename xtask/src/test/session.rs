//! A session with the console, written down as a person sees it, is a test. The lines after the prompts are typed, and
//! the replies must be those of the session ([`differ`](super::differ) defines which differences count). So
//! documentation that shows a session stays true.
//!
//! The console ignores lines that begin with `#`, so a session can explain itself. If such a line has a `${`, it is a
//! claim about numbers that were named before, as in `# ${hits} + ${missed} = 5000`. A reply with a line `^C` belongs
//! to a command that goes on forever: after all lines before `^C` have come, and no more come, that key is pressed.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::differ::{self, GAP, Numbers};
use crate::{
    console::Event,
    conversation::{POWER_OFF, PROMPT},
    dialogue::{Reply, Subject},
};

/// The line that the console writes when a command was interrupted.
pub const INTERRUPTED: &str = "^C";
/// The key that interrupts a command.
pub const INTERRUPT_KEY: u8 = 0x03;
/// How long a command may take to end after the key.
const PATIENCE: Duration = Duration::from_secs(120);

/// A written session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The lines that the machine writes before its first prompt. Empty if these do not matter.
    greeting: Vec<String>,
    exchanges: Vec<Exchange>,
}

/// A typed line, and the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exchange {
    typed: String,
    reply: Vec<String>,
}

impl Exchange {
    /// Returns whether the line switches the machine off.
    fn powers_off(&self) -> bool {
        self.typed.trim() == POWER_OFF
    }
}

impl Session {
    /// Parses the session that `text` shows.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut session = Self { greeting: Vec::new(), exchanges: Vec::new() };
        for line in text.lines() {
            match (line.strip_prefix(PROMPT), session.exchanges.last_mut()) {
                (Some(typed), _) => session.exchanges.push(Exchange { typed: typed.into(), reply: Vec::new() }),
                (None, Some(exchange)) => exchange.reply.push(line.into()),
                (None, None) => session.greeting.push(line.into()),
            }
        }
        match session.exchanges.iter().position(Exchange::powers_off) {
            _ if session.exchanges.is_empty() => Err(format!("a prompt, `{PROMPT}`, is followed by no command")),
            Some(place) if place + 1 < session.exchanges.len() => Err(format!("it goes on after `{POWER_OFF}`")),
            _ => Ok(session),
        }
    }

    /// Removes the exchange that switches the machine off.
    pub fn without_power_off(mut self) -> Self {
        self.exchanges.retain(|exchange| !exchange.powers_off());
        self
    }

    /// Returns the typed line of a session that has exactly one. An error otherwise.
    pub fn only_command(&self) -> Result<String, String> {
        match &self.exchanges[..] {
            [only] => Ok(only.typed.clone()),
            _ => Err("more than one line is typed".into()),
        }
    }

    /// Returns the sessions in those code blocks of a Markdown text that are marked as `mark`.
    pub fn in_markdown(text: &str, mark: &str) -> Vec<Result<Self, String>> {
        let start = format!("```{mark}");
        let mut blocks = Vec::new();
        let mut block: Option<String> = None;
        for line in text.lines() {
            match &mut block {
                Some(_) if line == "```" => blocks.extend(block.take().map(|text| Self::parse(&text))),
                Some(text) => *text += &format!("{line}\n"),
                None if line == start => block = Some(String::new()),
                None => {}
            }
        }
        blocks.extend(block.map(|_| Err("a block is not closed".into())));
        blocks
    }
}

/// Plays a session with a machine.
pub struct Player {
    session: Session,
    /// How many lines were typed.
    typed: usize,
    /// The lines since the last typed line.
    reply: Vec<String>,
    /// When the key was pressed, if it was pressed since the last line was typed.
    interrupted: Option<Instant>,
    numbers: Numbers,
}

impl Player {
    /// Creates a player for a machine that was just started.
    pub fn new(session: Session) -> Self {
        Self { session, typed: 0, reply: Vec::new(), interrupted: None, numbers: Numbers::new() }
    }

    /// Compares the lines since the last typed line with the expected reply.
    fn check(&mut self) -> Result<(), String> {
        let mut reply = mem::take(&mut self.reply);
        let Some(last) = self.typed.checked_sub(1) else {
            let greeting = &self.session.greeting;
            return match greeting.is_empty() {
                true => Ok(()),
                false => differ::compare(greeting, &reply, &mut self.numbers)
                    .map_err(|difference| format!("{difference}the greeting differs")),
            };
        };
        let Exchange { typed, reply: expected } = &self.session.exchanges[last];
        let echo = format!("{PROMPT}{typed}");
        if reply.first().map(|line| line.trim_end()) != Some(echo.trim_end()) {
            return Err(format!("`{typed}` is not echoed"));
        }
        reply.remove(0);
        differ::compare(expected, &reply, &mut self.numbers)
            .map_err(|difference| format!("{echo}\n{difference}\nthe reply to `{typed}` differs"))?;
        match typed.strip_prefix('#').filter(|claim| claim.contains("${")) {
            Some(claim) => check_claim(claim, &self.numbers),
            None => Ok(()),
        }
    }
}

impl Subject<()> for Player {
    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Line(line) => {
                self.reply.push(line);
                Reply::Wait
            }
            Event::Prompt => {
                if let Err(sentence) = self.check() {
                    return Reply::Done(Err(sentence));
                }
                let Some(next) = self.session.exchanges.get(self.typed) else { return Reply::Done(Ok(())) };
                self.typed += 1;
                self.interrupted = None;
                Reply::Type(next.typed.clone())
            }
        }
    }

    fn silence(&mut self) -> Reply<()> {
        let Some(exchange) = self.typed.checked_sub(1).and_then(|last| self.session.exchanges.get(last)) else {
            return Reply::Wait;
        };
        if let Some(pressed) = self.interrupted {
            let sentence = || format!("`{}` goes on though ^C was pressed", exchange.typed);
            return if pressed.elapsed() > PATIENCE { Reply::Done(Err(sentence())) } else { Reply::Wait };
        }
        let before = exchange.reply.iter().take_while(|line| *line != INTERRUPTED).count();
        let waits = before < exchange.reply.len();
        // Not before the line was taken: the line editor has a meaning of its own for the key. A gap may stand for
        // nothing.
        let least = exchange.reply.iter().take(before).filter(|line| *line != GAP).count();
        if !waits || self.reply.len() <= least {
            return Reply::Wait;
        }
        self.interrupted = Some(Instant::now());
        Reply::Keys(vec![INTERRUPT_KEY])
    }

    fn ended(&mut self) -> Result<(), String> {
        match self.session.exchanges.get(self.typed.wrapping_sub(1)) {
            Some(exchange) if exchange.powers_off() => self.check(),
            Some(Exchange { typed, .. }) => Err(format!("the machine powered off after `{typed}`")),
            None => Err("the machine powered off before it asked".into()),
        }
    }
}

/// Checks a claim of the form `A + B + … = C` or `… > C`, where each term is a number or the `${NAME}` of one.
fn check_claim(claim: &str, numbers: &Numbers) -> Result<(), String> {
    let value = |text: &str| -> Result<u64, String> {
        let text = text.trim();
        let name = text.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
        let number = match name {
            Some(name) => numbers.get(name).copied(),
            None => text.parse().ok(),
        };
        number.ok_or_else(|| format!("`{text}` is not a number in `{}`", claim.trim()))
    };
    let (sum, relation, right) = match (claim.split_once('='), claim.split_once('>')) {
        (Some((sum, right)), None) => (sum, '=', right),
        (None, Some((sum, right))) => (sum, '>', right),
        _ => return Err(format!("`{}` is not `SUM = NUMBER` or `SUM > NUMBER`", claim.trim())),
    };
    let sum: u64 = sum.split('+').map(value).sum::<Result<u64, String>>()?;
    let right = value(right)?;
    let holds = if relation == '=' { sum == right } else { sum > right };
    holds.then_some(()).ok_or_else(|| format!("`{}` does not hold: it is {sum} {relation} {right}", claim.trim()))
}

#[cfg(test)]
mod tests {
    use super::{PATIENCE, Player, Session, check_claim};
    use crate::{
        console::Console,
        dialogue::{Reply, Subject},
    };
    use std::time::Instant;

    const TEXT: &str = "hello\nkprobes> one\n1\nkprobes> two\n...\n${n} times\nkprobes> # ${n} > 2\n";

    /// Plays the session `text` with a machine that writes `stream`, and returns the verdict of the player.
    fn play(text: &str, stream: &str) -> Result<(), String> {
        let mut player = Player::new(Session::parse(text).unwrap());
        for event in Console::new("kprobes> ").feed(stream.as_bytes()) {
            if let Reply::Done(result) = player.hear(event) {
                return result;
            }
        }
        player.ended()
    }

    #[test]
    fn a_session_is_played() {
        let good =
            "hello\r\nkprobes> one\r\n1\r\nkprobes> two\r\na\r\nb\r\n3 times\r\nkprobes> # ${n} > 2\r\nkprobes> ";
        assert_eq!(play(TEXT, good), Ok(()));
        for (from, to, sentence) in [
            ("hello", "hi", "- hello\n+ hi\nthe greeting differs"),
            ("\n1", "\n2", "kprobes> one\n- 1\n+ 2\n\nthe reply to `one` differs"),
            ("> two", "> tw", "`two` is not echoed"),
            ("3 times", "2 times", "`${n} > 2` does not hold: it is 2 > 2"),
            ("\n3 times", "\nmachine stopped: tired", "the machine stopped: tired"),
            ("2\r\nkprobes> ", "2\r\n", "the machine powered off after `# ${n} > 2`"),
        ] {
            assert_eq!(play(TEXT, &good.replace(from, to)), Err(sentence.into()));
        }
    }

    #[test]
    fn what_goes_on_for_ever_is_interrupted_once_and_when_nothing_comes() {
        let mut player = Player::new(Session::parse("kprobes> trace x\none\n...\n^C\n@: 1\nkprobes> help\n").unwrap());
        assert_eq!(player.silence(), Reply::Wait);
        for event in Console::new("kprobes> ").feed(b"kprobes> ") {
            player.event(event);
        }
        assert_eq!(player.silence(), Reply::Wait, "the line was not echoed");
        for event in Console::new("kprobes> ").feed(b"kprobes> trace x\r\n") {
            player.event(event);
        }
        assert_eq!(player.silence(), Reply::Wait, "what comes before has not come");
        for event in Console::new("kprobes> ").feed(b"one\r\n") {
            player.event(event);
        }
        assert_eq!(player.silence(), Reply::Keys(vec![3]));
        assert_eq!(player.silence(), Reply::Wait);
        player.interrupted = Instant::now().checked_sub(2 * PATIENCE);
        assert_eq!(player.silence(), Reply::Done(Err("`trace x` goes on though ^C was pressed".into())));
    }

    #[test]
    fn a_session_may_end_with_the_machine() {
        let text = "kprobes> poweroff\n";
        assert_eq!(play(text, "any greeting\nkprobes> poweroff\n"), Ok(()));
        assert!(play(text, "kprobes> poweroff\nerror: no\n").is_err());
        assert!(play(text, "").is_err());
        assert!(Session::parse("kprobes> poweroff\nkprobes> help\n").is_err());
        assert!(Session::parse("help\n").is_err());
    }

    #[test]
    fn a_session_can_leave_the_machine_on() {
        let session = Session::parse("kprobes> one\n1\nkprobes> poweroff\n").unwrap();
        assert_eq!(session.without_power_off(), Session::parse("kprobes> one\n1\n").unwrap());
    }

    #[test]
    fn markdown_has_sessions() {
        let text = "```\nkprobes> no\n```\n```console smp4\nkprobes> no\n```\n```console\nkprobes> yes\n1\n```\n```console\nSESSION\n```\n```console\n";
        let sessions = Session::in_markdown(text, "console");
        assert_eq!(sessions[0], Session::parse("kprobes> yes\n1\n"));
        assert!(sessions[1].is_err() && sessions[2].is_err());
        assert_eq!(sessions.len(), 3);
    }

    #[test]
    fn claims_are_checked() {
        let numbers = [("a".to_string(), 2), ("b".to_string(), 3)].into();
        for (claim, holds) in [
            ("${a} + ${b} = 5", true),
            ("${a} + ${b} = 6", false),
            ("5 = ${a} + ${b}", false),
            ("${b} > ${a}", true),
            ("${b} > 3", false),
            ("${c} = 0", false),
            ("${a}", false),
        ] {
            assert_eq!(check_claim(claim, &numbers).is_ok(), holds, "{claim}");
        }
    }
}
