//! Writes the output and the maps of a program, as text in bpftrace's layout or as JSON in bpftrace's form.
//!
//! This code runs in a task: it allocates, and its time is not bounded. If there is no memory to read a map, a line
//! names the map in its place. If there is none for anything else, it returns the error of a writer, after the output
//! that it has written so far.

mod debug;
mod entries;
mod histogram;
mod json;
mod line;
mod series;
mod time;

use alloc::string::String;
use core::fmt::{self, Write};
use core::net::{Ipv4Addr, Ipv6Addr};

use fallible::{OutOfMemory, Text};
use kprobes_types::Types;
use kprobes_vm::counted::counted;
use kprobes_vm::ir::{LOOP_OPS_MAX, MapValue, Type};
use kprobes_vm::maps::{Masked, Record, Store};

pub(crate) use time::is_known as is_time_format;

use crate::checked::{Action, Checked, PrintKind, RustValue};
use crate::config::StackMode;
use crate::conversion::{Shown, lossy};

/// The start of a line that `errorf` writes.
pub(crate) const ERROR: &str = "ERROR: ";
/// The start of a line that `warnf` writes.
pub(crate) const WARNING: &str = "WARNING: ";

/// The names of the addresses, probes and types in a program's output.
pub trait Names {
    /// Returns the demangled path of the function that contains the virtual address `address`, and the virtual address
    /// at which it begins.
    fn symbol(&self, address: u64) -> Option<(&str, u64)>;

    /// Returns the number of the function that contains this virtual address among the functions with the same path, in
    /// the order of their addresses, from 1. Returns 0 if no other function has its path.
    fn number(&self, _address: u64) -> usize {
        0
    }

    /// Returns the table of Rust types; `None` if the image has none.
    fn types(&self) -> Option<Types<'static>> {
        None
    }

    /// Ends the watchpoints of the program at the virtual address `address`.
    fn unwatch(&self, _address: u64) {}

    /// Writes the name of the probe with this number, as in `kprobe:f`. Numbers count from 1.
    fn probe(&self, number: u64, out: &mut dyn Write) -> fmt::Result;
}

/// The form of a program's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs: an object on each line, as `bpftrace -f json` prints them.
    Json,
}

impl OutputFormat {
    /// Writes the number of probes of a program, which bpftrace reports in JSON only.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_attached(self, probes: usize, out: &mut dyn Write) -> fmt::Result {
        match self {
            Self::Text => Ok(()),
            Self::Json => json::count("attached_probes", "probes", probes as u64, out),
        }
    }

    /// Writes a sentence about a failure while a program ran.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn write_failure(self, sentence: &str, out: &mut dyn Write) -> fmt::Result {
        match self {
            Self::Text => writeln!(out, "{sentence}"),
            Self::Json => json::message("runtime_error", sentence, out),
        }
    }
}

/// The context for writing values of a program.
#[derive(Clone, Copy)]
struct Reporter<'a> {
    program: &'a Checked,
    store: &'a Store,
    names: &'a dyn Names,
    masked: Masked<'a>,
    format: OutputFormat,
}

/// Writes the output that `program` has produced since the last call and before this one, and carries out the actions
/// it requested: prints and clears its maps, in steps within calls of `masked`. Output of one CPU stays in order.
/// Output of several CPUs is merged by time, as far as it has been written. Returns whether the program asked to exit;
/// output after that request is not written.
///
/// # Errors
///
/// Returns the errors of `out`; the record that was being written is lost then.
pub fn drain(
    program: &Checked,
    store: &Store,
    names: &dyn Names,
    masked: Masked<'_>,
    format: OutputFormat,
    out: &mut dyn Write,
) -> Result<bool, fmt::Error> {
    let reporter = Reporter { program, store, names, masked, format };
    // The program may trace the writing itself, which produces more output. The next call writes that.
    let ends = store.output_ends()?;
    while let Some(record) = store.take_record(&ends)? {
        match program.actions.get(usize::from(record.action)) {
            Some(Action::Exit) => return Ok(true),
            Some(&Action::Clear { map }) => store.clear(map.into(), false, masked),
            Some(&Action::Zero { map }) => store.clear(map.into(), true, masked),
            Some(Action::Unwatch) => names.unwatch(record.values.first().copied().unwrap_or(0)),
            Some(action) => reporter.action(action, &record, out)?,
            None => {}
        }
    }
    Ok(false)
}

/// Writes all maps that have entries, in the order of their names, as at the end of a program. Maps are read within
/// calls of `masked`. Instead of a map that there is no memory to read, writes a line that names it. After the maps,
/// writes a line for each kind of loss and failure.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_maps(
    program: &Checked,
    store: &Store,
    names: &dyn Names,
    masked: Masked<'_>,
    format: OutputFormat,
    out: &mut dyn Write,
) -> fmt::Result {
    let reporter = Reporter { program, store, names, masked, format };
    let mut order = fallible::collect(0..program.code.maps.len())?;
    fallible::sort_by_key(&mut order, |&number| program.code.maps.get(number).map(|map| map.name.as_str()));
    for number in order.into_iter().filter(|_| program.config.shows_maps) {
        reporter.map(number, 0, 1, out)?;
    }
    match (store.lost(), format) {
        (0, _) => {}
        (lost, OutputFormat::Text) => writeln!(out, "Lost {lost} events")?,
        (lost, OutputFormat::Json) => json::count("lost_events", "events", lost, out)?,
    }
    let mut failed = |sentence: fmt::Arguments<'_>| format.write_failure(&fallible::format(sentence)?, out);
    for (number, map) in program.code.maps.iter().enumerate() {
        let dropped = store.dropped(number);
        if dropped > 0 {
            failed(format_args!("@{}: {} lost: the map was full", map.name, counted(dropped, "value", "values")))?;
        }
    }
    if store.stacks_dropped() > 0 {
        let stacks = counted(store.stacks_dropped(), "stack", "stacks");
        failed(format_args!("{stacks} lost: the table of stacks was full"))?;
    }
    if store.cut() > 0 {
        let runs = counted(store.cut(), "run was", "runs were");
        failed(format_args!("{runs} ended after {LOOP_OPS_MAX} operations in loops"))?;
    }
    if store.faults() > 0 {
        let reads = counted(store.faults(), "read", "reads");
        failed(format_args!("{reads} of memory failed, and gave 0"))?;
    }
    Ok(())
}

impl Reporter<'_> {
    fn action(&self, action: &Action, record: &Record, out: &mut dyn Write) -> fmt::Result {
        match action {
            Action::Format { pieces, kind } => {
                if self.format == OutputFormat::Json {
                    let mut text = Text::default();
                    Reporter { format: OutputFormat::Text, ..*self }.action(action, record, &mut text)?;
                    return match kind {
                        PrintKind::Value => {
                            json::object("value", out, |out| json::quoted(text.0.trim_end_matches('\n'), out))
                        }
                        PrintKind::Printf => json::object("printf", out, |out| json::quoted(&text.0, out)),
                        PrintKind::Time => json::object("time", out, |out| json::quoted(&text.0, out)),
                        PrintKind::Error => json::message("errorf", said(&text.0, ERROR), out),
                        PrintKind::Warning => json::message("warnf", said(&text.0, WARNING), out),
                    };
                }
                let mut rest = record.values.as_slice();
                for piece in pieces {
                    out.write_str(&piece.text)?;
                    if let Some(conversion) = &piece.conversion {
                        let (words, others) = split(rest, conversion.of);
                        rest = others;
                        let text = match conversion.shown {
                            Shown::Text => self.text(conversion.of, words)?,
                            Shown::Bytes { .. } if matches!(conversion.of, Type::Rust { .. }) => {
                                self.text(conversion.of, words)?
                            }
                            Shown::Bytes { characters, escaped } => {
                                let mut text = Text::default();
                                bytes(words, characters, escaped, &mut text)?;
                                text.0
                            }
                            _ => String::new(),
                        };
                        conversion.write(words.first().copied().unwrap_or(0), &text, out)?;
                    }
                }
                Ok(())
            }
            Action::Print { of } if self.format == OutputFormat::Json => {
                json::object("value", out, |out| self.json_value(*of, &record.values, 1, out))
            }
            Action::Print { of } => {
                writeln!(out, "{}", self.text(*of, &record.values)?)
            }
            Action::PrintEntry { map } => {
                let Some(of) = self.program.code.maps.get(usize::from(*map)) else { return Ok(()) };
                let (key, value) = record.values.split_at_checked(of.key_words()).unwrap_or_default();
                match (of.value.read_type(), self.format) {
                    (Some(kind), OutputFormat::Text) => {
                        self.key(of, key, out)?;
                        out.write_str(": ")?;
                        self.value(kind, value, 1, out)?;
                        out.write_char('\n')
                    }
                    (Some(kind), OutputFormat::Json) => {
                        self.json_map(of, MapValue::Value(kind), [(key, value)].into_iter(), 1, out)
                    }
                    (None, _) => self.collected((*map).into(), of, key, out),
                }
            }
            Action::PrintMap { map, top, divisor } => self.map((*map).into(), *top, *divisor, out),
            Action::Clear { .. } | Action::Zero { .. } | Action::Exit | Action::Unwatch => Ok(()),
        }
    }

    /// Returns the text of a value that is printed alone. A string is not escaped.
    fn text(&self, of: Type, words: &[u64]) -> Result<String, fmt::Error> {
        if let Type::Text { .. } = of {
            return Ok(string(words)?);
        }
        let mut text = Text::default();
        self.value(of, words, 1, &mut text)?;
        Ok(text.0)
    }

    /// Writes the path `name` of the function that contains `address`, with its number in the form that
    /// [`numbered`](kprobes_symbols::names::numbered) reads.
    fn function(&self, name: &str, address: u64, out: &mut dyn Write) -> fmt::Result {
        out.write_str(name)?;
        match self.names.number(address) {
            0 => Ok(()),
            number => write!(out, "#{number}"),
        }
    }

    /// Writes a value. Numbers are divided by `divisor`. Control characters of strings are escaped as in a Rust
    /// literal, so that a key stays on one line and cannot control the terminal.
    fn value(&self, of: Type, words: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
        let Type::Tuple { shape, .. } = of else { return self.simple(of, words, divisor, out) };
        let Some(of) = self.program.tuples.get(usize::from(shape)) else { return Ok(()) };
        out.write_str(match of.element_bytes {
            0 if of.names.is_empty() => "(",
            0 => "{ ",
            _ => "[",
        })?;
        let mut rest = words;
        for (number, &part) in of.parts.iter().enumerate() {
            let (words, others) = split(rest, part);
            rest = others;
            out.write_str(if number > 0 { ", " } else { "" })?;
            if let Some(name) = of.names.get(number) {
                write!(out, ".{name} = ")?;
            }
            self.value(part, words, divisor, out)?;
        }
        match (of.names.is_empty(), of.parts.len()) {
            _ if of.element_bytes > 0 => out.write_char(']'),
            (false, _) => out.write_str(" }"),
            // A tuple of one part is written as in a program.
            (true, 1) => out.write_str(",)"),
            (true, _) => out.write_char(')'),
        }
    }

    /// Writes a value that contains no other values.
    // Not inlined, so that the stack frame of each recursion of `value` stays small.
    #[inline(never)]
    fn simple(&self, of: Type, words: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
        let word = words.first().copied().unwrap_or(0);
        match of {
            // `value` writes tuples.
            Type::Tuple { .. } => Ok(()),
            Type::Integer { signed } => write!(out, "{}", widened(word, signed) / i128::from(divisor.max(1))),
            Type::Pointer { .. } => write!(out, "{word:#x}"),
            Type::Text { .. } => string(words)?.chars().try_for_each(|c| match c.is_control() {
                true => write!(out, "{}", c.escape_default()),
                false => out.write_char(c),
            }),
            Type::Symbol => match self.names.symbol(word) {
                Some((name, _)) => self.function(name, word, out),
                None => write!(out, "{word:#x}"),
            },
            Type::Probe if word == 0 => Ok(()),
            Type::Probe => self.names.probe(word, out),
            Type::Bytes { .. } => bytes(words, true, true, out),
            Type::Rust { shape, .. } => {
                let known = self.program.rust_values.get(usize::from(shape)).copied();
                match known {
                    Some(RustValue::HardwareAddress) => {
                        let [a, b, c, d, e, f, ..] = word.to_le_bytes();
                        return write!(out, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{f:02X}");
                    }
                    Some(RustValue::InternetAddress { bytes: 4 }) => {
                        return write!(out, "{}", Ipv4Addr::from((word as u32).to_le_bytes()));
                    }
                    Some(RustValue::InternetAddress { .. }) => {
                        let second = words.get(1).copied().unwrap_or(0);
                        let whole = u128::from(second) << 64 | u128::from(word);
                        return write!(out, "{}", Ipv6Addr::from(whole.to_le_bytes()));
                    }
                    _ => {}
                }
                match known.zip(self.names.types()) {
                    Some((known, types)) => debug::write(
                        &debug::Values { types, captures: &self.program.captures, names: self.names },
                        known,
                        words,
                        out,
                    ),
                    None => write!(out, "{word:#x}"),
                }
            }
            Type::Time { format } => {
                let format = self.program.formats.get(usize::from(format));
                time::write(format.map_or("", String::as_str), word, out)
            }
            Type::Stack { mode } => self.stack(word, StackMode::of_number(mode), out),
        }
    }

    /// Writes a stack, a line for each frame.
    fn stack(&self, stack: u64, mode: Option<StackMode>, out: &mut dyn Write) -> fmt::Result {
        let lines = self.names.types().and_then(|types| types.lines()).filter(|_| self.program.config.stack_lines);
        out.write_char('\n')?;
        for (depth, frame) in self.store.stack(stack).enumerate() {
            // After a call that does not return, the return address may belong to the next function.
            let within = if depth == 0 { frame } else { frame.wrapping_sub(1) };
            match (mode, self.names.symbol(within)) {
                (Some(StackMode::Address), _) => writeln!(out, "    {frame:x}")?,
                (mode, Some((name, start))) => {
                    out.write_str("    ")?;
                    if mode == Some(StackMode::Both) {
                        write!(out, "{frame:x} ")?;
                    }
                    self.function(name, within, out)?;
                    write!(out, "+{}", frame.wrapping_sub(start))?;
                    match lines.and_then(|lines| lines.at(within)) {
                        Some(line) => writeln!(out, "@{line}")?,
                        None => out.write_char('\n')?,
                    }
                }
                (_, None) => writeln!(out, "    {frame:#x}")?,
            }
        }
        Ok(())
    }
}

/// Widens a word that may be signed.
fn widened(word: u64, signed: bool) -> i128 {
    if signed { word.cast_signed().into() } else { word.into() }
}

/// Returns the text of an `errorf` or `warnf` line, without its prefix and newline.
fn said<'a>(line: &'a str, before: &str) -> &'a str {
    let text = line.strip_prefix(before).unwrap_or(line);
    text.strip_suffix('\n').unwrap_or(text)
}

/// Returns the bytes in these words. The first word is their number.
fn bytes_of(words: &[u64]) -> impl Iterator<Item = u8> {
    let (&count, words) = words.split_first().unwrap_or((&0, &[]));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    words.iter().flat_map(|word| word.to_le_bytes()).take(count)
}

/// Writes the bytes in these words. The first word is their number.
fn bytes(words: &[u64], characters: bool, escaped: bool, out: &mut dyn Write) -> fmt::Result {
    for (number, byte) in bytes_of(words).enumerate() {
        match byte {
            b' '..=b'~' if characters => out.write_char(byte.into())?,
            _ if escaped => write!(out, "\\x{byte:02x}")?,
            _ => write!(out, "{}{byte:02x}", if number > 0 { " " } else { "" })?,
        }
    }
    Ok(())
}

/// Returns the string in these words.
fn string(words: &[u64]) -> Result<String, OutOfMemory> {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0);
    lossy(&fallible::collect(bytes)?)
}

/// Splits `words` into the words of a value of type `of`, and the rest.
fn split(words: &[u64], of: Type) -> (&[u64], &[u64]) {
    words.split_at_checked(of.words().into()).unwrap_or((words, &[]))
}
