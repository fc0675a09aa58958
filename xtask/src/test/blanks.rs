//! Types a session in several spacings: 0 to 5 blanks before and after each line, and 1 to 5 between its words. The
//! replies must always be the written ones.
//!
//! The written session has one blank between words, begins with the greeting of a machine that was just started, and
//! ends with [`POWER_OFF`]. Before that line, a line resets the machine. So all other lines can be typed in several
//! rounds, and each round begins with the same state. In [`ALL_ROUNDS`] together, which a thorough run types, each gap
//! of a line has each number of blanks. In [`USUAL_ROUNDS`] each gap has two of these numbers, and different gaps have
//! different ones. Half of the blanks are typed as tabs, which the line editor takes for spaces where other input
//! follows at once.
//!
//! | blanks | meaning |
//! |---|---|
//! | before, between and after words | none |
//! | in quotes | characters of the text, so they are typed as written |
//! | in a name, around `as` | characters of the name, so they are typed as written |
//! | in a program, outside its strings | none |
//!
//! An error shows the line as typed, with the caret below the same character.
//!
//! The session is complete if it has a line for each command and each kind of definition in the machine's reply to
//! [`HELP`], and a line with each literal word of their usage, such as `on` and `-v`.

use super::session::{Player, Session};
use crate::{
    console::Event,
    conversation::{POWER_OFF, PROMPT},
    dialogue::{Reply, Subject},
};

/// The rounds in which each gap has each number of blanks.
pub const ALL_ROUNDS: &[usize] = &[0, 1, 2, 3, 4, 5];
/// The rounds of a usual run.
pub const USUAL_ROUNDS: &[usize] = &[0, 3];

/// The line whose reply lists all commands.
const HELP: &str = "help";
/// The column of this list at which descriptions begin.
const HELP_COLUMN: usize = 33;
/// The start of the line after the list.
const LIST_END: &str = "`help p`";

/// The start of a line of a reply that shows the typed line.
const COMMAND: &str = "  Command: ";

/// The question that the console asks a terminal at each tab. No answer comes, so the tab is a space.
const QUESTION: &str = "\x1b7\x1b[9999C\x1b[6n\x1b8";

/// Types a session in all rounds.
pub struct Blanks {
    player: Player,
    /// The typed lines, with one blank between words.
    lines: Vec<String>,
    /// The lines since the last prompt; `None` if they are no reply to [`HELP`].
    list: Option<Vec<String>>,
}

/// Parses the written session, to be typed in these rounds.
pub fn parse(text: &str, rounds: &[usize]) -> Result<Blanks, String> {
    let (greeting, rest) = text.split_at(text.find(PROMPT).ok_or("nothing is typed")?);
    let body = rest.trim_end().strip_suffix(POWER_OFF).and_then(|rest| rest.strip_suffix(PROMPT));
    let body = body.ok_or_else(|| format!("its last line is not `{POWER_OFF}`"))?;
    let rounds: String = rounds.iter().map(|&round| spaced(body, round)).collect();
    let session = Session::parse(&format!("{greeting}{rounds}{}", spaced(&format!("{PROMPT}{POWER_OFF}"), 3)))?;
    let lines = rest.lines().filter_map(|line| line.strip_prefix(PROMPT)).map(String::from).collect();
    Ok(Blanks { player: Player::new(session), lines, list: None })
}

/// Returns the session `body` with the blanks of this round. The numbers that it names are other numbers in each round.
fn spaced(body: &str, round: usize) -> String {
    let (mut text, mut typed) = (String::new(), None);
    let mut lines = body.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(plain) = line.strip_prefix(PROMPT) {
            let line = Spaced::new(plain, round + number);
            text += &format!("{PROMPT}{}\n", line.text);
            typed = Some((plain, line));
            continue;
        }
        let shown = typed.as_ref().filter(|(plain, _)| line.strip_prefix(COMMAND) == Some(plain));
        match (shown, lines.peek().and_then(|(_, caret)| caret.find('^'))) {
            (Some((_, spaced)), Some(caret)) => {
                let column = COMMAND.len() + spaced.column(caret - COMMAND.len());
                text += &format!("{COMMAND}{}\n{:column$}^\n", spaced.text, "");
                lines.next();
            }
            _ => text += &format!("{}\n", line.replace("${", &format!("${{{round}_"))),
        }
    }
    text
}

/// A line with other blanks.
struct Spaced {
    text: String,
    /// The column of each character of the original, and of its end.
    columns: Vec<usize>,
}

impl Spaced {
    /// Makes the line with the blanks of `variant`. Six consecutive variants have each number of blanks in each gap.
    fn new(line: &str, variant: usize) -> Self {
        let (mut text, mut columns) = (" ".repeat(variant % 6), Vec::new());
        let (mut quote, mut is_escaped, mut gaps) = (None, false, 0);
        for (at, character) in line.char_indices() {
            columns.push(text.chars().count());
            let (before, after) = line.split_at(at);
            let is_in_name = before.ends_with(" as") || after.starts_with(" as ");
            match (quote, character) {
                (None, ' ') if !is_in_name => {
                    gaps += 1;
                    text += &" ".repeat(1 + (variant + gaps) % 5);
                    continue;
                }
                (None, '\'' | '"') => quote = Some(character),
                (Some(opened), _) if opened == character && !is_escaped => quote = None,
                _ => {}
            }
            is_escaped = quote == Some('"') && character == '\\' && !is_escaped;
            text.push(character);
        }
        columns.push(text.chars().count());
        text += &" ".repeat((variant * 5 + 2) % 6);
        Self { text, columns }
    }

    /// Returns the column of what has this column in the original, which may lie beyond its end.
    fn column(&self, original: usize) -> usize {
        let end = self.columns.len() - 1;
        self.columns[original.min(end)] + original.saturating_sub(end)
    }
}

/// Checks that `lines` have each command of `list`, and each literal word of its usage.
fn complete(list: &[String], lines: &[String]) -> Result<(), String> {
    for usage in list.iter().take_while(|line| !line.starts_with(LIST_END)) {
        let usage = usage.get(..HELP_COLUMN).unwrap_or(usage).trim_end();
        let (name, arguments) = usage.split_at(usage.find([' ', '[', ':']).unwrap_or(usage.len()));
        let is_literal = |word: &&str| word.starts_with(|first: char| first.is_ascii_lowercase() || first == '-');
        let literals = arguments.split([' ', '[', ']', '|']).filter(is_literal);
        let of_command = lines.iter().filter(|line| name_of(line) == name);
        for word in std::iter::once("").chain(literals) {
            if !of_command.clone().any(|line| word.is_empty() || line.split(' ').any(|typed| typed == word)) {
                return Err(format!("no line of the session types `{}`", [name, word].join(" ").trim_end()));
            }
        }
    }
    Ok(())
}

/// Returns the name of the command or of the kind of definition that `line` types.
fn name_of(line: &str) -> &str {
    let word = line.split(' ').next().unwrap_or_default();
    let word = word.split(':').next().unwrap_or_default();
    word.trim_end_matches(|last: char| last.is_ascii_digit())
}

impl Subject<()> for Blanks {
    fn event(&mut self, event: Event) -> Reply<()> {
        let event = match event {
            Event::Line(line) => Event::Line(line.replace(QUESTION, "")),
            event => event,
        };
        match &event {
            Event::Line(line) => match &mut self.list {
                Some(list) => list.push(line.clone()),
                None if line.strip_prefix(PROMPT).is_some_and(|typed| typed.trim() == HELP) => {
                    self.list = Some(Vec::new());
                }
                None => {}
            },
            Event::Prompt => {
                if let Some(Err(sentence)) = self.list.take().map(|list| complete(&list, &self.lines)) {
                    return Reply::Done(Err(sentence));
                }
            }
        }
        match self.player.event(event) {
            Reply::Type(line) => Reply::Type(line.replace("  ", " \t")),
            reply => reply,
        }
    }

    fn silence(&mut self) -> Reply<()> {
        self.player.silence()
    }

    fn ended(&mut self) -> Result<(), String> {
        self.player.ended()
    }
}

#[cfg(test)]
mod tests {
    use super::{QUESTION, Spaced, complete, parse, spaced};
    use crate::{
        console::Event,
        dialogue::{Reply, Subject},
    };

    #[test]
    fn each_gap_has_each_number_of_blanks() {
        const LINE: &str = "a 'b  c' \"d \\\" e\" <f as g>";
        for number in 0..4 {
            let mut found = [const { Vec::new() }; 5];
            for variant in number..number + 6 {
                let text = Spaced::new(LINE, variant).text;
                let mut rest = text.as_str();
                for (gap, word) in ["a", "'b  c'", "\"d \\\" e\"", "<f as g>", ""].into_iter().enumerate() {
                    let after = rest.trim_start_matches(' ');
                    found[gap].push(rest.len() - after.len());
                    rest = after.strip_prefix(word).unwrap();
                }
                assert_eq!(rest, "");
            }
            for (gap, counts) in found.iter_mut().enumerate() {
                counts.sort_unstable();
                counts.dedup();
                let least = usize::from((1..4).contains(&gap));
                assert_eq!(*counts, (least..6).collect::<Vec<_>>(), "gap {gap} of line {number}");
            }
        }
    }

    #[test]
    fn errors_show_the_line_as_typed() {
        let body = "kprobes> a b\nerror: no\n  Command: a b\n             ^\n${n} x\nkprobes> c\nerror: no\n  Command: c\n             ^\n";
        assert_eq!(
            spaced(body, 1),
            "kprobes>  a   b \nerror: no\n  Command:  a   b \n                ^\n${1_n} x\n\
             kprobes> c  \nerror: no\n  Command: c  \n             ^\n"
        );
    }

    #[test]
    fn all_commands_must_be_typed() {
        let list =
            ["p[:NAME] PLACE                   probe", "x [-v] [on|off] FILE.rs|NAME     say", "`help p` explains"];
        let check = |lines: &[&str]| {
            complete(&list.map(String::from), &lines.iter().map(|line| (*line).into()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["p:a f", "x -v on", "x off"]), Ok(()));
        assert_eq!(check(&["p f", "x -v off"]), Err("no line of the session types `x on`".into()));
        assert_eq!(check(&["x -v on off"]), Err("no line of the session types `p`".into()));
    }

    #[test]
    fn tabs_are_typed() {
        let mut test = parse("kprobes> help\nkprobes> poweroff\n", &[0, 1]).unwrap();
        assert_eq!(test.event(Event::Prompt), Reply::Type("help \t".into()));
        assert_eq!(test.event(Event::Line(format!("kprobes> help {QUESTION} "))), Reply::Wait);
        assert_eq!(test.event(Event::Prompt), Reply::Type(" help ".into()));
        assert!(parse("kprobes> help\n", &[0]).is_err());
    }
}
