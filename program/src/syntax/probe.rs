//! Parses probes. The name in a probe is not split into tokens: a demangled path may contain white space, commas,
//! braces and slashes, but only inside brackets. As in bpftrace, the name of a function may be in quotes.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_symbols::{Brackets, distance::nearest};

use super::period;
use super::token::{Cursor, number};
use super::tree::{Probe, Spanned};
use crate::error::{Error, Problem, Span};
use crate::foreign;

/// The text that follows the kind of a probe and its `:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Functions.
    Function,
    /// A static event.
    Event,
    /// Memory: a static or an address.
    Memory,
    /// A unit of time.
    Period,
    /// An event of the software.
    Software,
    /// An event of the hardware.
    Hardware,
}

/// The kinds of probes with a `:`: their names, and the text that follows.
pub const KINDS: [(&[&str], After); 11] = [
    (&["kprobe", "k", "fentry", "f", "kfunc"], After::Function),
    (&["kretprobe", "kr", "fexit", "fr", "kretfunc"], After::Function),
    (&["return"], After::Function),
    (&["insn"], After::Function),
    (&["inline"], After::Function),
    (&["tracepoint", "t", "rawtracepoint", "rt"], After::Event),
    (&["watchpoint", "w"], After::Memory),
    (&["profile", "p"], After::Period),
    (&["interval", "i"], After::Period),
    (&["software", "s"], After::Software),
    (&["hardware", "h"], After::Hardware),
];

/// Returns the problem with `kind`, which is no kind of probe.
fn unknown(kind: &str) -> Problem {
    let known = KINDS.iter().filter_map(|(names, _)| names.first().copied());
    nearest(kind, known, 3).map_or(Problem::ProbeKind, |meant| Problem::Meant { meant })
}

/// Returns the length of the name of a probe, in bytes: up to white space, `,`, `/`, `;` or `{` outside brackets and
/// quotes. A `{` after `::` belongs to the name. The inner error is the offset of an unclosed bracket or quote.
fn name_length(text: &str) -> Result<Result<usize, usize>, OutOfMemory> {
    let mut open = Vec::new();
    let mut previous = ' ';
    let mut quote = None;
    for (at, c) in text.char_indices() {
        if c == '"' && open.is_empty() {
            quote = if quote.is_none() { Some(at) } else { None };
        }
        if quote.is_some() {
            continue;
        }
        let begins_part = text.get(..at).is_some_and(|before| before.ends_with("::"));
        match c {
            '/' if open.is_empty() && is_in_path(text, at) => {}
            _ if open.is_empty() && (c.is_whitespace() || c == ',' || c == '/' || c == ';') => return Ok(Ok(at)),
            '{' if open.is_empty() && !begins_part => return Ok(Ok(at)),
            '<' | '(' | '[' | '{' => fallible::push(&mut open, at)?,
            '>' if previous == '-' => {}
            '>' | ')' | ']' | '}' => drop(open.pop()),
            _ => {}
        }
        previous = c;
    }
    Ok(match quote.or(open.pop()) {
        Some(at) => Err(at),
        None => Ok(text.len()),
    })
}

/// The suffixes of source files.
const SOURCE: [&str; 2] = [".rs", ".S"];

/// Returns whether the `/` at `at` is part of the path of a source file, as in `net/tcp.rs:12`, and not the start of a
/// predicate.
fn is_in_path(text: &str, at: usize) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_-./$".contains(c);
    let rest = text.get(at + 1..).unwrap_or("");
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let (path, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
    // The path may be a parameter, which is refused later. In a predicate, no `:` follows a parameter at once.
    behind.starts_with(':') && (is_source(path) || parameter(path).is_some() && !behind.starts_with("::"))
}

/// Returns the offset of the first parameter, such as `$1`, in `text`.
fn parameter(text: &str) -> Option<usize> {
    text.find('$').filter(|at| text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns whether this is the path of a source file. No function has such a name.
fn is_source(path: &str) -> bool {
    SOURCE.iter().any(|ending| path.ends_with(ending))
}

/// Returns the offset of the last `separator` in `text` that is outside brackets and quotes, and not part of a `::`.
fn last_outside(text: &str, separator: char) -> Option<usize> {
    let mut brackets = Brackets::ALL;
    let mut found = None;
    let mut is_quoted = false;
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        is_quoted ^= c == '"' && brackets.is_outside();
        if is_quoted {
            continue;
        }
        let beside = |other: Option<usize>| other.and_then(|at| bytes.get(at)) == Some(&b':');
        // A `:` next to another `:` belongs to a path.
        let is_of_path = || c == ':' && (beside(at.checked_sub(1)) || beside(Some(at + 1)));
        if brackets.pass(c) && c == separator && !is_of_path() {
            found = Some(at);
        }
    }
    found
}

/// A part of a probe, with its place.
#[derive(Clone, Copy)]
struct ProbePart<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> ProbePart<'a> {
    fn span(self) -> Span {
        Span { start: self.start, end: self.start + self.text.len() }
    }

    /// Splits the part around the separator at `at`.
    fn cut(self, at: usize) -> (Self, Self) {
        let before = self.text.get(..at).unwrap_or("");
        let after = self.text.get(at + 1..).unwrap_or("");
        (Self { text: before, ..self }, Self { text: after, start: self.start + at + 1 })
    }

    /// Returns the text without the quotes around it.
    fn unquoted(self) -> &'a str {
        let inner = self.text.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'));
        inner.unwrap_or(self.text)
    }

    /// Returns the part as a function or a glob.
    fn glob(self) -> Result<String, Error> {
        match self.unquoted() {
            "" => Err(self.span().error(Problem::ProbeName)),
            name if number(name).is_some() => Err(self.span().error(Problem::ProbeAddress)),
            // An offset, where none is possible.
            _ if last_outside(self.text, '+').is_some() => Err(self.span().error(Problem::OneGlob)),
            name => Ok(fallible::copy(name)?),
        }
    }

    /// Returns the part as one function.
    fn function(self) -> Result<String, Error> {
        if self.text.contains(['*', '?']) {
            return Err(self.span().error(Problem::GlobOffset));
        }
        self.glob()
    }

    /// Returns the part as an offset from the entry of a function, in bytes.
    fn offset(self) -> Result<u64, Error> {
        number(self.text).filter(|offset| offset % 4 == 0).ok_or(self.span().error(Problem::Offset))
    }
}

/// Parses a list of probes, which must be the whole text.
pub(super) fn list_alone(text: &str) -> Result<Vec<Spanned<Probe>>, Error> {
    let mut cursor = Cursor { text, position: 0 };
    let mut probes = Vec::new();
    list(&mut cursor, &mut probes)?;
    cursor.skip_blank()?;
    match cursor.rest() {
        "" => Ok(probes),
        _ => Err(Span { start: cursor.position, end: text.len() }.error(Problem::Expected { sign: "," })),
    }
}

/// Parses the list of probes at `cursor`, separated by commas, and moves past it.
pub(super) fn list(cursor: &mut Cursor<'_>, probes: &mut Vec<Spanned<Probe>>) -> Result<(), Error> {
    loop {
        fallible::push(probes, parse(cursor)?)?;
        cursor.skip_blank()?;
        if !cursor.rest().starts_with(',') {
            return Ok(());
        }
        cursor.position += 1;
    }
}

/// Parses the probe at `cursor`, and moves past it.
fn parse(cursor: &mut Cursor<'_>) -> Result<Spanned<Probe>, Error> {
    cursor.skip_blank()?;
    let start = cursor.position;
    let length = name_length(cursor.rest())?.map_err(|at| {
        let problem = if cursor.rest().get(at..).is_some_and(|rest| rest.starts_with('"')) {
            Problem::OpenText
        } else {
            Problem::OpenBracket
        };
        let start = start + at;
        Span { start, end: start + 1 }.error(problem)
    })?;
    cursor.position += length;
    let whole = ProbePart { text: cursor.text.get(start..start + length).unwrap_or(""), start };
    if let Some(at) = parameter(whole.text) {
        let start = start + at;
        return Err(Span { start, end: start + 2 }.error(Problem::ProbeParameter));
    }
    Ok(Spanned { node: read(whole)?, span: whole.span() })
}

fn read(whole: ProbePart<'_>) -> Result<Probe, Error> {
    // A name before the kind has no meaning.
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let named = whole.text.find('=').map(|at| whole.cut(at)).filter(|(name, _)| is_name(name.text));
    let whole = named.map_or(whole, |(_, probe)| probe);
    match whole.text {
        "BEGIN" | "begin" => return Ok(Probe::Begin),
        "END" | "end" => return Ok(Probe::End),
        _ => {}
    }
    let Some(at) = whole.text.find(':') else {
        return Err(whole.span().error(foreign::probe_alone(whole.text).unwrap_or(Problem::ProbeKind)));
    };
    let (kind, rest) = whole.cut(at);
    match kind.text {
        "kprobe" | "k"
            if let Some((file, line)) = last_outside(rest.text, ':').map(|at| rest.cut(at))
                && is_source(file.unquoted()) =>
        {
            let number = number(line.text).and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0);
            let number = number.ok_or(line.span().error(Problem::LineNumber))?;
            Ok(Probe::Line { file: fallible::copy(file.unquoted())?, line: number })
        }
        "kprobe" | "k"
            if let Some((function, line)) = last_outside(rest.text, ':').map(|at| rest.cut(at))
                && line.text.starts_with(|c: char| c.is_ascii_digit()) =>
        {
            let number = number(line.text).and_then(|line| u32::try_from(line).ok());
            let number = number.ok_or(line.span().error(Problem::LineNumber))?;
            Ok(Probe::FunctionLine { function: function.function()?, line: number })
        }
        "fentry" | "f" | "kfunc" => Ok(Probe::Kprobe { glob: rest.glob()? }),
        "fexit" | "fr" | "kretfunc" => Ok(Probe::Kretprobe { glob: rest.glob()? }),
        "kprobe" | "k" => match last_outside(rest.text, '+').map(|at| rest.cut(at)) {
            Some((function, offset)) => Ok(Probe::Offset { function: function.function()?, offset: offset.offset()? }),
            None => Ok(Probe::Kprobe { glob: rest.glob()? }),
        },
        "kretprobe" | "kr" => Ok(Probe::Kretprobe { glob: rest.glob()? }),
        "return" => Ok(Probe::Return { glob: rest.glob()? }),
        "insn" => {
            let Some(at) = last_outside(rest.text, ':') else {
                rest.glob()?;
                let end = rest.span().end;
                return Err(Span { start: end, end }.error(Problem::Offset));
            };
            let (function, offset) = rest.cut(at);
            let function = function.function()?;
            let offset = if offset.text == "*" { None } else { Some(offset.offset()?) };
            Ok(Probe::Instruction { function, offset })
        }
        "inline" => {
            let parts = last_outside(rest.text, ':').map(|at| rest.cut(at));
            match parts.map(|(function, place)| (function, place.text)) {
                Some((function, place @ ("entry" | "return"))) => {
                    Ok(Probe::Inline { function: function.glob()?, exit: place == "return" })
                }
                _ => Err(rest.span().error(Problem::InlineWhere)),
            }
        }
        "tracepoint" | "t" | "rawtracepoint" | "rt" => {
            let parts = rest.text.find(':').map(|at| rest.cut(at));
            match parts.map(|(group, event)| (group.text, event.text)) {
                Some((group, event)) if !group.is_empty() && !event.is_empty() && !event.contains(':') => {
                    Ok(Probe::Tracepoint { group: fallible::copy(group)?, event: fallible::copy(event)? })
                }
                None if rest.text == "*" || kind.text.starts_with('r') && !rest.text.is_empty() => {
                    Ok(Probe::Tracepoint { group: fallible::copy("*")?, event: fallible::copy(rest.text)? })
                }
                _ => Err(rest.span().error(Problem::TracepointName)),
            }
        }
        "watchpoint" | "w" => watchpoint(rest),
        "interval" | "i" => period::interval(rest.text).ok_or(rest.span().error(Problem::Interval)),
        "profile" | "p" => period::profile(rest.text).ok_or(rest.span().error(Problem::Profile)),
        "software" | "s" => period::software(rest.text).map_err(|problem| rest.span().error(problem)),
        "hardware" | "h" => period::hardware(rest.text).map_err(|problem| rest.span().error(problem)),
        other => Err(kind.span().error(foreign::probe(other).unwrap_or_else(|| unknown(other)))),
    }
}

/// Parses `ADDRESS:LENGTH:MODE`, with a number or the name of a static, and an offset after it.
fn watchpoint(rest: ProbePart<'_>) -> Result<Probe, Error> {
    let parts = last_outside(rest.text, ':').map(|at| rest.cut(at)).and_then(|(before, mode)| {
        let (place, length) = before.cut(last_outside(before.text, ':')?);
        Some((place, length, mode))
    });
    let Some((place, length, mode)) = parts else {
        return Err(rest.span().error(Problem::WatchForm));
    };
    let (loads, stores) = match mode.text {
        "r" => (true, false),
        "w" => (false, true),
        "rw" | "wr" => (true, true),
        _ if mode.text.contains('x') && mode.text.chars().all(|c| "rwx".contains(c)) => {
            return Err(mode.span().error(foreign::EXECUTION));
        }
        _ => return Err(mode.span().error(Problem::WatchForm)),
    };
    let length_span = length.span();
    let length = number(length.text).ok_or(length_span.error(Problem::WatchForm))?;
    if !((1..=8).contains(&length) || length.is_power_of_two() && length <= WATCHED_MAX) {
        return Err(length_span.error(Problem::WatchRange));
    }
    let watch = |symbol, offset| Probe::Watch { symbol, offset, length, loads, stores };
    if let Some(address) = number(place.text) {
        return match can_watch(address, length) {
            true => Ok(watch(None, address)),
            false => Err(place.span().to(length_span).error(Problem::WatchRange)),
        };
    }
    let (name, offset) = match last_outside(place.text, '+').map(|at| place.cut(at)) {
        Some((name, offset)) => (name, number(offset.text).ok_or(offset.span().error(Problem::WatchForm))?),
        None => (place, 0),
    };
    if name.text.is_empty() || name.text.contains(['*', '?']) {
        return Err(name.span().error(Problem::WatchForm));
    }
    Ok(watch(Some(fallible::copy(name.unquoted())?), offset))
}

/// The largest number of bytes that a watchpoint covers.
const WATCHED_MAX: u64 = 1 << 31;

/// Returns whether a watchpoint can cover the `length` bytes from the virtual address `address` on: some of an aligned
/// doubleword, or a power of two that is aligned to itself.
#[must_use]
pub fn can_watch(address: u64, length: u64) -> bool {
    let is_range = length.is_power_of_two() && length <= WATCHED_MAX && address.is_multiple_of(length);
    (1..=8 - address % 8).contains(&length) || is_range
}
