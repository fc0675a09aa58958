//! Finds the names that can stand in place of the word before the cursor.
//!
//! The usage of a command, as in `[-v] GLOB`, tells what completes its arguments:
//!
//! | word of a usage | completed by |
//! |---|---|
//! | in small letters, as `on\|off` and `-v` | itself |
//! | `GLOB`, `FUNC`, `SYMBOL`, `PLACE`, `FUNCTION` | paths of functions to the next `::`, after `<` also whole names; otherwise paths with a segment that begins with the word |
//! | `PATH` | files |
//! | `PROGRAM`, `PROBES` | kinds of probes, functions, events, words of the language, and names from earlier in the program |
//! | `COMMAND`, after `-c` | a line |
//! | `EVENT`, `NAME`, `OPTIONS` | events that are defined, what `help` explains, options of `trace` |
//! | `TEXT` | a definition in quotes |
//! | any other, if it is the first argument | the values that the command's declaration lists |

mod names;

use fallible::OutOfMemory;
use kprobes_program::builtins;
use kprobes_program::syntax::{After, HardwareEvent, KINDS, Unit};
use kprobes_trace::definition::is_definition;

use crate::arguments::{is_unfinished, option, quoted};
use crate::line_editor::{Candidates, Completer};

/// A kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Command,
    /// The commands and files that `help` explains.
    Topic,
    /// The options of `trace`.
    Option,
    File,
    /// The plain paths of the functions.
    Function,
    /// The names of the functions as the symbols have them, with the brackets around types and generic arguments.
    WholeFunction,
    /// The functions with a segment that begins with the word.
    FunctionWithSegment,
    Static,
    /// The events that are defined.
    Event,
    /// The static events.
    StaticEvent,
    /// The static events with their group and a `:`.
    Tracepoint,
    /// The events with their group and a `.`.
    GroupEvent,
}

/// The arguments of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub arguments: &'static str,
    /// The values of an argument that has no [`NameKind`].
    pub values: &'static [&'static str],
}

/// The names that completion offers.
pub(crate) trait Names {
    /// Returns the usage of a command.
    fn usage(&self, command: &str) -> Option<Usage>;

    /// Returns the second word of the usage of a definition that begins with `letter`.
    fn place(&self, letter: char) -> Option<&'static str>;

    /// Offers the names of a kind.
    fn offer(&mut self, kind: NameKind, found: &mut Candidates) -> Result<(), OutOfMemory>;
}

impl<T: Names> Completer for T {
    fn complete(&mut self, before: &str, found: &mut Candidates) -> Result<(), OutOfMemory> {
        line(before, self, found)
    }

    fn is_open(&mut self, line: &str) -> bool {
        let usage = |command| self.usage(command).filter(|_| !is_definition(line));
        let (command, rest) = split(line.trim_start()).unwrap_or_default();
        usage(command).is_some_and(|usage| is_unfinished(rest, usage.arguments.contains("PROGRAM")))
    }
}

/// Splits `text` after its first word; `None` if no blank follows the word.
fn split(text: &str) -> Option<(&str, &str)> {
    text.split_once(char::is_whitespace).map(|(word, rest)| (word, rest.trim_start()))
}

/// Returns `text` without the quote at its start.
fn inside(text: &str) -> &str {
    text.strip_prefix(['\'', '"']).unwrap_or(text)
}

fn offer(word: &str, kind: NameKind, names: &mut impl Names, found: &mut Candidates) -> Result<(), OutOfMemory> {
    found.look_for(word)?;
    names.offer(kind, found)
}

/// Offers the functions that the word may mean.
fn offer_functions(word: &str, names: &mut impl Names, found: &mut Candidates) -> Result<(), OutOfMemory> {
    offer(word, NameKind::Function, names, found)?;
    if word.starts_with('<') {
        names.offer(NameKind::WholeFunction, found)?;
    }
    if found.names().is_empty() { names.offer(NameKind::FunctionWithSegment, found) } else { Ok(()) }
}

/// Completes the last word of a line.
fn line(mut text: &str, names: &mut impl Names, found: &mut Candidates) -> Result<(), OutOfMemory> {
    // Each turn is a command after the `-c` of the one before. A line may have hundreds.
    loop {
        text = text.trim_start();
        if let Some(file) = text.strip_prefix('>') {
            return offer(file.trim_start_matches('>').trim_start(), NameKind::File, names, found);
        }
        let command = match split(text) {
            _ if text.starts_with("-:") => return offer(&text[2..], NameKind::Event, names, found),
            Some(_) if is_definition(text) => return definition(text, names, found),
            Some((command, rest)) => names.usage(command).map(|usage| (usage, rest)),
            None if text.starts_with('#') => None,
            None => return offer(text, NameKind::Command, names, found),
        };
        let Some((usage, rest)) = command else { return Ok(()) };
        let Some(inner) = arguments(rest, usage, names, found)? else { return Ok(()) };
        text = inner;
    }
}

/// Completes the place of a definition.
fn definition(text: &str, names: &mut impl Names, found: &mut Candidates) -> Result<(), OutOfMemory> {
    let Some((head, place)) = split(text) else { return Ok(()) };
    let place = inside(place);
    // Arguments follow the place.
    if outside(place).0 > 0 {
        return Ok(());
    }
    match head.chars().next().and_then(|letter| names.place(letter)) {
        Some("EVENT") => offer(place, NameKind::StaticEvent, names, found),
        Some("GROUP.EVENT") => offer(place, NameKind::GroupEvent, names, found),
        Some(_) => offer_functions(place, names, found),
        None => Ok(()),
    }
}

/// Completes the arguments of a command. If the last word is in a command after `-c`, returns that command instead.
fn arguments<'a>(
    mut rest: &'a str,
    usage: Usage,
    names: &mut impl Names,
    found: &mut Candidates,
) -> Result<Option<&'a str>, OutOfMemory> {
    let words = || usage.arguments.split([' ', '[', ']']).filter(|word| !word.is_empty() && !word.starts_with('+'));
    let has_command = words().any(|word| matches!(word, "-c" | "OPTIONS"));
    let mut position = 0;
    loop {
        let mut wanted = words().filter(|word| !word.starts_with('-') && *word != "OPTIONS");
        let argument = wanted.clone().nth(position).or(wanted.next().filter(|&word| word == "PATH"));
        let is_function = argument
            .is_some_and(|word| ["GLOB", "FUNC", "SYMBOL"].contains(&word.split('|').next().unwrap_or_default()));
        let is_program = matches!(argument, Some("PROGRAM" | "PROBES"));
        if rest.starts_with('-') {
            match split(rest) {
                Some(("-c", command)) if has_command => return Ok(Some(inside(command))),
                Some((_, behind)) => {
                    // No program begins with such a word.
                    let is_value = |word: &str| word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
                    let value = split(behind).filter(|(word, _)| is_program && is_value(word));
                    rest = value.map_or(behind, |(_, behind)| behind);
                }
                None => {
                    found.look_for(rest)?;
                    words().filter(|word| word.starts_with('-')).try_for_each(|word| found.offer(word, " "))?;
                    if words().any(|word| word == "OPTIONS") {
                        names.offer(NameKind::Option, found)?;
                    }
                    return Ok(None);
                }
            }
        } else if is_function || is_program {
            let behind = quoted(rest).map_or(rest, |(_, behind)| behind);
            match option(behind).filter(|_| has_command) {
                Some((_, command)) => return Ok(Some(inside(command))),
                None if is_program => program(inside(rest), names, found)?,
                None => offer_functions(inside(rest), names, found)?,
            }
            return Ok(None);
        } else if argument == Some("TEXT") {
            let is_quoted = |at: usize| rest[..at].matches('\'').count() % 2 == 1;
            match rest.rfind('>').filter(|&at| !is_quoted(at)) {
                Some(at) => offer(rest[at + 1..].trim_start(), NameKind::File, names, found)?,
                None if is_quoted(rest.len()) => definition(inside(rest), names, found)?,
                None => {}
            }
            return Ok(None);
        } else if let Some((_, behind)) = split(rest) {
            (rest, position) = (behind, position + 1);
        } else {
            let Some(argument) = argument else { return Ok(None) };
            let kind = match argument {
                "PATH" => Some(NameKind::File),
                "EVENT" => Some(NameKind::Event),
                "NAME" => Some(NameKind::Topic),
                _ => None,
            };
            found.look_for(rest)?;
            let literals = argument.split('|').filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
            match kind {
                Some(kind) => names.offer(kind, found)?,
                None => {
                    let values = usage.values.iter().copied().filter(|_| position == 0);
                    literals.chain(values).try_for_each(|value| found.offer(value, " "))?;
                }
            }
            return Ok(None);
        }
    }
}

/// Returns three facts about the end of `text`: the offset of its last word outside brackets, whether the word is in
/// the braces of a clause or in a predicate, and whether a string is open.
fn outside(text: &str) -> (usize, bool, bool) {
    let (mut start, mut braces, mut brackets) = (0, 0_usize, 0_usize);
    let (mut is_predicate, mut is_string, mut previous) = (false, false, ' ');
    for (at, c) in text.char_indices() {
        let next = at + c.len_utf8();
        let is_probe = braces == 0 && !is_predicate;
        match c {
            '"' if previous != '\\' => is_string = !is_string,
            _ if is_string => {}
            '<' | '(' | '[' if is_probe => brackets += 1,
            // The brace is a part of a name.
            '{' if is_probe && text[..at].ends_with("::") => brackets += 1,
            '>' if previous == '-' => {}
            '>' | ')' | ']' if is_probe => brackets = brackets.saturating_sub(1),
            '}' if is_probe && brackets > 0 => brackets -= 1,
            _ if is_probe && brackets > 0 => {}
            '{' => braces += 1,
            '}' => (braces, start) = (braces.saturating_sub(1), next),
            '/' if braces == 0 && (is_predicate || previous.is_whitespace()) => {
                (is_predicate, start) = (!is_predicate, next);
            }
            _ if is_probe && (c.is_whitespace() || c == ',') => start = next,
            _ => {}
        }
        // A backslash after another one in a string quotes nothing.
        previous = if is_string && (previous, c) == ('\\', '\\') { ' ' } else { c };
    }
    (start, braces > 0 || is_predicate, is_string)
}

/// Completes the last word of a program.
fn program(text: &str, names: &mut impl Names, found: &mut Candidates) -> Result<(), OutOfMemory> {
    let (start, is_clause, is_string) = outside(text);
    if is_string {
        return Ok(());
    }
    if !is_clause {
        return probe(&text[start..], names, found);
    }
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.trim_end_matches(is_letter);
    let word = &text[before.len()..];
    match before.chars().next_back() {
        // A field is not completed.
        Some('.') => Ok(()),
        Some(sigil @ ('@' | '$')) => {
            let start = before.len() - 1;
            found.look_for(&text[start..])?;
            let other = text.match_indices(sigil).filter(|&(at, _)| at < start);
            let mut names =
                other.map(|(at, _)| &text[at..text.len() - text[at + 1..].trim_start_matches(is_letter).len()]);
            names.try_for_each(|name| found.offer(name, ""))
        }
        _ => {
            found.look_for(word)?;
            builtins::words().try_for_each(|(name, end)| found.offer(name, end))
        }
    }
}

/// Completes a probe.
fn probe(text: &str, names: &mut impl Names, found: &mut Candidates) -> Result<(), OutOfMemory> {
    let Some((kind, rest)) = text.split_once(':') else {
        found.look_for(text)?;
        ["BEGIN ", "END "].iter().try_for_each(|name| found.offer(name, ""))?;
        return KINDS.iter().filter_map(|(names, _)| names.first()).try_for_each(|name| found.offer(name, ":"));
    };
    let Some((_, after)) = KINDS.iter().find(|(names, _)| names.contains(&kind)) else { return Ok(()) };
    found.look_for(inside(rest))?;
    match after {
        After::Function => offer_functions(inside(rest), names, found),
        After::Event => names.offer(NameKind::Tracepoint, found),
        After::Memory => names.offer(NameKind::Static, found),
        After::Period => Unit::ALL.iter().try_for_each(|unit| found.offer(unit.name(), ":")),
        After::Software => found.offer("cpu-clock", ":"),
        After::Hardware => HardwareEvent::ALL.iter().try_for_each(|event| found.offer(event.name(), ":")),
    }
}

#[cfg(test)]
mod tests;
