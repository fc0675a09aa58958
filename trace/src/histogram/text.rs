//! The file `hist`, in the layout of Linux.

use alloc::collections::TryReserveError;
use alloc::format;
use alloc::string::String;
use core::cmp::Ordering;
use core::fmt::{self, Write};

use super::parse::{By, KeyField};
use super::{Histogram, Modifier, NAME_WORDS, Sort, Source, text_of};
use crate::filter::Number;
use crate::host::Symbols;

/// Why a histogram cannot be shown.
#[derive(Debug)]
pub enum ShowError {
    /// There is no memory for a copy.
    Memory(TryReserveError),
    /// The place that it is written to gives an error.
    Write(fmt::Error),
}

impl From<fmt::Error> for ShowError {
    fn from(error: fmt::Error) -> Self {
        Self::Write(error)
    }
}

impl From<TryReserveError> for ShowError {
    fn from(error: TryReserveError) -> Self {
        Self::Memory(error)
    }
}

impl Histogram {
    /// Writes the histogram, whose trigger is shown as `trigger`.
    ///
    /// # Errors
    ///
    /// No memory for a copy; and those of `out`.
    pub fn write(
        &self,
        out: &mut dyn Write,
        trigger: &dyn fmt::Display,
        symbols: &dyn Symbols,
    ) -> Result<(), ShowError> {
        let mut reading = self.read()?;
        reading.entries.sort_by(|one, other| self.order(one, other));
        write!(out, "# event histogram\n#\n# trigger info: {trigger}\n#\n\n")?;
        for entry in &reading.entries {
            self.write_entry(out, entry, symbols)?;
        }
        let sums = self.key_words();
        let hits =
            reading.entries.iter().filter_map(|entry| entry.get(sums)).fold(0_u64, |all, hits| all.wrapping_add(*hits));
        let entries = reading.entries.len();
        writeln!(out, "\nTotals:\n    Hits: {hits}\n    Entries: {entries}\n    Dropped: {}", reading.dropped)?;
        Ok(())
    }

    fn write_entry(&self, out: &mut dyn Write, entry: &[u64], symbols: &dyn Symbols) -> fmt::Result {
        out.write_str("{ ")?;
        let sums = entry.get(self.key_words()..).unwrap_or(&[]);
        let names = sums.get(1 + self.values.len()..).unwrap_or(&[]);
        let mut words = entry;
        let mut many_lines = false;
        for (number, (key, field)) in self.keys.iter().zip(&self.definition.keys).enumerate() {
            let (own, rest) = words.split_at_checked(key.words).unwrap_or((words, &[]));
            words = rest;
            out.write_str(if number > 0 { ", " } else { "" })?;
            many_lines |= matches!(key.source, Source::Stack);
            write_key(out, field, own, names, symbols)?;
        }
        out.write_str(if many_lines { "}" } else { " }" })?;
        write!(out, " hitcount: {:>10}", sums.first().unwrap_or(&0))?;
        for (value, sum) in self.definition.values.iter().zip(sums.iter().skip(1)) {
            match value.hex {
                true => write!(out, "  {}: {sum:>10x}", value.name)?,
                false => write!(out, "  {}: {sum:>10}", value.name)?,
            }
        }
        out.write_char('\n')
    }

    /// The order of two entries, which have their keys' order where nothing else says one.
    fn order(&self, one: &[u64], other: &[u64]) -> Ordering {
        let sums = self.key_words();
        self.definition.sorts.iter().fold(Ordering::Equal, |order, &Sort { by, descending }| {
            let next = match by {
                By::Hits => one.get(sums).cmp(&other.get(sums)),
                By::Value(index) => one.get(sums + 1 + index).cmp(&other.get(sums + 1 + index)),
                By::Key(index) => self.order_by_key(index, one, other),
            };
            order.then(if descending { next.reverse() } else { next })
        })
    }

    fn order_by_key<'a>(&self, index: usize, one: &'a [u64], other: &'a [u64]) -> Ordering {
        let Some(key) = self.keys.get(index) else { return Ordering::Equal };
        let start: usize = self.keys.iter().take(index).map(|key| key.words).sum();
        let words = |entry: &'a [u64]| entry.get(start..start + key.words).unwrap_or(&[]);
        let (one, other) = (words(one), words(other));
        match key.source {
            Source::Number { number: Number::Field { signed: true, .. }, .. } => {
                let signed = |words: &[u64]| words.first().map(|&word| word as i64);
                signed(one).cmp(&signed(other))
            }
            Source::Number { .. } => one.cmp(other),
            Source::Text(_) => text_of(one).cmp(&text_of(other)),
            Source::Stack => Ordering::Equal,
        }
    }
}

fn write_key(
    out: &mut dyn Write,
    field: &KeyField,
    words: &[u64],
    names: &[u64],
    symbols: &dyn Symbols,
) -> fmt::Result {
    let value = words.first().copied().unwrap_or(0);
    match (field.source, field.modifier) {
        (Source::Stack, _) => {
            writeln!(out, "{}:", field.name)?;
            for (number, &address) in words.iter().take_while(|&&address| address != 0).enumerate() {
                out.write_str("         ")?;
                crate::text::write_on_stack(out, address, number > 0, symbols)?;
                out.write_char('\n')?;
            }
            Ok(())
        }
        (Source::Text(_), _) => write!(out, "{}: {:<50}", field.name, text_of(words)),
        (_, None) => write!(out, "{}: {value:>10}", field.name),
        (_, Some(Modifier::Hex)) => write!(out, "{}: {value:x}", field.name),
        (_, Some(Modifier::Sym)) => {
            let name = symbols.lookup(value).map_or_else(|| format!("{value:#x}"), |function| function.name.into());
            write!(out, "{}: [{value:x}] {name:<45}", field.name)
        }
        (_, Some(Modifier::SymOffset)) => {
            write!(out, "{}: [{value:x}] {:<55}", field.name, with_offset(value, symbols))
        }
        (_, Some(Modifier::Execname)) => {
            let name = text_of(names.get(..NAME_WORDS).unwrap_or(&[]));
            write!(out, "{}: {name:<16}[{value:>10}]", field.name)
        }
        (_, Some(Modifier::Log2)) => write!(out, "{}: ~ 2^{value:<2}", field.name),
        (_, Some(Modifier::Buckets(size))) => {
            write!(out, "{}: ~ {value}-{}", field.name, value.wrapping_add(size - 1))
        }
    }
}

/// `name+0xOFFSET/0xSIZE`.
fn with_offset(address: u64, symbols: &dyn Symbols) -> String {
    let mut text = String::new();
    // A string gives no errors.
    let _ = crate::text::write_offset(&mut text, address, symbols);
    text
}
