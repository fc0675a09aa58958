//! The file `hist`, in the layout of Linux.

use core::cmp::Ordering;
use core::fmt::{self, Write};

use super::parse::{By, KeyField};
use super::{Histogram, Modifier, NAME_WORDS, Sort, Source, TEXT_WORDS, text_of};
use crate::filter::Number;
use crate::host::Symbols;
use crate::text::ShowError;

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
        // Where nothing else says an order, keys have their own.
        reading.entries.sort_unstable_by(|one, other| self.order(one, other).then_with(|| one.cmp(other)));
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

    /// The order of two entries that is asked for.
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
            Source::Text(_) => text_of(one).cmp(text_of(other)),
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
        (Source::Text(_), _) => {
            write!(out, "{}: ", field.name)?;
            write_column(out, 50, |out| write_text(out, words))
        }
        (_, None) => write!(out, "{}: {value:>10}", field.name),
        (_, Some(Modifier::Hex)) => write!(out, "{}: {value:x}", field.name),
        (_, Some(Modifier::Sym)) => {
            write!(out, "{}: [{value:x}] ", field.name)?;
            write_column(out, 45, |out| crate::text::write_name(out, value, symbols))
        }
        (_, Some(Modifier::SymOffset)) => {
            write!(out, "{}: [{value:x}] ", field.name)?;
            write_column(out, 55, |out| crate::text::write_offset(out, value, symbols))
        }
        (_, Some(Modifier::Execname)) => {
            write!(out, "{}: ", field.name)?;
            write_column(out, 16, |out| write_text(out, names.get(..NAME_WORDS).unwrap_or(&[])))?;
            write!(out, "[{value:>10}]")
        }
        (_, Some(Modifier::Log2)) => write!(out, "{}: ~ 2^{value:<2}", field.name),
        (_, Some(Modifier::Buckets(size))) => {
            write!(out, "{}: ~ {value}-{}", field.name, value.wrapping_add(size - 1))
        }
    }
}

/// Writes what `write` does, with blanks behind it up to so many characters.
fn write_column(out: &mut dyn Write, width: usize, write: impl FnOnce(&mut dyn Write) -> fmt::Result) -> fmt::Result {
    struct Counted<'a>(&'a mut dyn Write, usize);
    impl Write for Counted<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.1 += text.chars().count();
            self.0.write_str(text)
        }
    }
    let mut counted = Counted(out, 0);
    write(&mut counted)?;
    let blanks = width.saturating_sub(counted.1);
    write!(out, "{:blanks$}", "")
}

/// Writes the text of a key.
fn write_text(out: &mut dyn Write, words: &[u64]) -> fmt::Result {
    let mut bytes = [0; 8 * TEXT_WORDS];
    let length = bytes.iter_mut().zip(text_of(words)).map(|(place, byte)| *place = byte).count();
    crate::text::write_lossy(out, &bytes[..length])
}
