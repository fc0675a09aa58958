//! The file `hist`, in the layout of Linux.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering::Relaxed;

use super::parse::{By, KeyField};
use super::{Effect, Handler, Histogram, Modifier, NAME_WORDS, Sort, Source, TEXT_WORDS, text_of};
use fallible::OutOfMemory;

use crate::filter::Number;
use crate::symbols::Symbols;
use crate::text::ShowError;

impl Histogram {
    /// Writes the histogram; `trigger` is the text of its trigger.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for a copy, or returns the error of `out`.
    pub fn write(
        &self,
        out: &mut dyn Write,
        trigger: &dyn fmt::Display,
        symbols: &dyn Symbols,
    ) -> Result<(), ShowError> {
        let mut reading = self.read()?;
        // Entries that are equal in the requested order are sorted by their keys.
        fallible::sort_by(&mut reading.entries, |one, other| self.order(one, other).then_with(|| one.cmp(other)));
        write!(out, "# event histogram\n#\n# trigger info: {trigger}\n#\n\n")?;
        let stats = self.stats(&reading.entries)?;
        for entry in &reading.entries {
            self.write_entry(out, entry, &stats, symbols)?;
        }
        self.write_snapshot(out, symbols)?;
        let sums = self.key_words();
        let hits =
            reading.entries.iter().filter_map(|entry| entry.get(sums)).fold(0_u64, |all, hits| all.wrapping_add(*hits));
        let entries = reading.entries.len();
        writeln!(out, "\nTotals:\n    Hits: {hits}\n    Entries: {entries}\n    Dropped: {}", reading.dropped)?;
        Ok(())
    }

    /// Writes why the last snapshot was taken.
    fn write_snapshot(&self, out: &mut dyn Write, symbols: &dyn Symbols) -> Result<(), ShowError> {
        let Some(variable_use) = &self.variable_use else { return Ok(()) };
        for (act, action) in variable_use.actions.iter().zip(&self.definition.actions) {
            let Some(words) = act.latest.words(&variable_use.table) else { continue };
            let (handler, value) = (act.handler.name(), act.latest.value.load(Relaxed));
            out.write_str("\nSnapshot taken (see tracing/snapshot).  Details:\n")?;
            write!(out, "\ttriggering value {{ {handler}({}) }}: {value:>10}", action.of())?;
            out.write_str("\ttriggered by event with key: ")?;
            self.write_keys(out, &fallible::collect(words.iter().map(|word| word.load(Relaxed)))?, symbols)?;
            out.write_char('\n')?;
        }
        Ok(())
    }

    /// Writes what actions have saved.
    fn write_actions(&self, out: &mut dyn Write, entry: &[u64], symbols: &dyn Symbols) -> fmt::Result {
        let Some(variable_use) = &self.variable_use else { return Ok(()) };
        let word = |number: usize| variable_use.kept.get(number).and_then(|kept| entry.get(kept.at)).unwrap_or(&0);
        for act in variable_use.actions.iter().filter(|act| !matches!(act.effect, Effect::Snapshot)) {
            let Some((_, kept)) = act.watched else { continue };
            let name = if act.handler == Handler::Max { "max" } else { "changed" };
            write!(out, "\n\t{name}: {:>10}", word(kept))?;
            let saved = self.definition.kept.iter().enumerate().filter(|(_, variable)| !variable.name.is_empty());
            for (number, variable) in saved {
                let setting = variable_use.kept.get(number).map_or(0..0, |kept| kept.at..kept.at + kept.words);
                let words = entry.get(setting).unwrap_or(&[]);
                write!(out, "  {}: ", variable.name)?;
                if variable.is_stack() {
                    out.write_char('\n')?;
                    write_addresses(out, words, symbols)?;
                } else if variable.is_text() {
                    write_column(out, 32, |out| write_text(out, words))?;
                } else {
                    write!(out, "{:>10}", word(number))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the word of an entry that a value shows.
    fn shown(&self, entry: &[u64], value: usize) -> u64 {
        let word = self.key_words() + self.definition.column(value).map_or(0, |column| 1 + column);
        entry.get(word).copied().unwrap_or(0)
    }

    /// Returns the total and the maximum of each value.
    fn stats(&self, entries: &[Vec<u64>]) -> Result<Vec<Stat>, OutOfMemory> {
        let of = |value| {
            let all = entries.iter().map(|entry| self.shown(entry, value));
            all.fold(Stat::default(), |Stat { total, most }, one| Stat {
                total: total.wrapping_add(one),
                most: most.max(one),
            })
        };
        fallible::collect((0..self.definition.values.len()).map(of))
    }

    fn write_entry(&self, out: &mut dyn Write, entry: &[u64], stats: &[Stat], symbols: &dyn Symbols) -> fmt::Result {
        self.write_keys(out, entry, symbols)?;
        let sums = entry.get(self.key_words()..).unwrap_or(&[]);
        if !self.definition.no_hits {
            write!(out, " hitcount: {:>10}", sums.first().unwrap_or(&0))?;
        }
        let values = self.definition.values.iter().zip(stats).enumerate();
        for (number, (value, stat)) in values.filter(|(_, (value, _))| value.is_shown()) {
            let (name, shown) = (value.label(), self.shown(entry, number));
            match value.modifier() {
                Some(Modifier::Percent) => match hundredths(shown, stat.total) {
                    Some(part) => write!(out, "  {name} (%): {:>3}.{:02}", part / 100, part % 100)?,
                    None => write!(out, "  {name} (%):[ERROR]")?,
                },
                Some(Modifier::Graph) => match hundredths(shown, stat.most) {
                    Some(part) => {
                        let bar = (part as usize * BAR.len() / 10_000).min(BAR.len());
                        write!(out, "  {name}: {:<20}", &BAR[..bar])?;
                    }
                    None => write!(out, "  {name}: {:>20}", "[ERROR]")?,
                },
                Some(Modifier::Hex) => write!(out, "  {name}: {shown:>10x}")?,
                _ => write!(out, "  {name}: {shown:>10}")?,
            }
        }
        self.write_actions(out, entry, symbols)?;
        out.write_char('\n')
    }

    fn write_keys(&self, out: &mut dyn Write, entry: &[u64], symbols: &dyn Symbols) -> fmt::Result {
        out.write_str("{ ")?;
        let sums = entry.get(self.key_words()..).unwrap_or(&[]);
        let names = sums.get(1 + self.sums()..).unwrap_or(&[]);
        let mut words = entry;
        let mut many_lines = false;
        for (number, (key, field)) in self.keys.iter().zip(&self.definition.keys).enumerate() {
            let (own, rest) = words.split_at_checked(key.words).unwrap_or((words, &[]));
            words = rest;
            out.write_str(if number > 0 { ", " } else { "" })?;
            many_lines |= matches!(key.source, Source::Stack | Source::Recorded(_));
            write_key(out, field, own, names, symbols)?;
        }
        out.write_str(if many_lines { "}" } else { " }" })
    }

    /// Compares two entries in the requested order.
    fn order(&self, one: &[u64], other: &[u64]) -> Ordering {
        let sums = self.key_words();
        self.definition.sorts.iter().fold(Ordering::Equal, |order, &Sort { by, descending }| {
            let next = match by {
                By::Hits => one.get(sums).cmp(&other.get(sums)),
                By::Value(index) => self.shown(one, index).cmp(&self.shown(other, index)),
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
            Source::Stack | Source::Recorded(_) => Ordering::Equal,
        }
    }
}

/// The total and the maximum of a value over all entries.
#[derive(Default)]
struct Stat {
    total: u64,
    most: u64,
}

/// The longest bar of a value with the modifier `.graph`.
const BAR: &str = "####################";

/// Returns how many hundredths of a percent `value` is of `total`; `None` if `total` is too small to divide by.
fn hundredths(value: u64, total: u64) -> Option<u64> {
    const ALL: u64 = 10_000;
    if value == 0 {
        return Some(0);
    }
    let part = match value < u64::MAX / ALL {
        true => (value * ALL).checked_div(total)?,
        false => value.checked_div(total / ALL)?,
    };
    Some(part & u64::from(u32::MAX))
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
        (Source::Stack | Source::Recorded(_), modifier) => {
            match modifier {
                // The first address follows on the same line, as in Linux.
                Some(modifier) => write!(out, "{}{modifier}", field.name)?,
                None => writeln!(out, "{}:", field.name)?,
            }
            write_addresses(out, words, symbols)
        }
        (Source::Text(_), _) => {
            write!(out, "{}: ", field.name)?;
            write_column(out, 50, |out| write_text(out, words))
        }
        (_, None | Some(Modifier::Microseconds | Modifier::Percent | Modifier::Graph | Modifier::Stacktrace)) => {
            write!(out, "{}: {value:>10}", field.name)
        }
        (_, Some(Modifier::Hex)) => write!(out, "{}: {value:x}", field.name),
        (_, Some(Modifier::Sym)) => {
            write!(out, "{}: [{value:x}] ", field.name)?;
            write_column(out, 45, |out| crate::symbols::write_name(out, value, symbols))
        }
        (_, Some(Modifier::SymOffset)) => {
            write!(out, "{}: [{value:x}] ", field.name)?;
            write_column(out, 55, |out| crate::symbols::write_offset(out, value, symbols))
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

/// Writes the addresses of a stack, one a line.
fn write_addresses(out: &mut dyn Write, words: &[u64], symbols: &dyn Symbols) -> fmt::Result {
    words.iter().take_while(|&&address| address != 0).enumerate().try_for_each(|(number, &address)| {
        out.write_str("         ")?;
        crate::symbols::write_on_stack(out, address, number > 0, symbols)?;
        out.write_char('\n')
    })
}

/// Writes the output of `write`, padded with spaces to `width` characters.
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

/// Writes a text in a key.
fn write_text(out: &mut dyn Write, words: &[u64]) -> fmt::Result {
    let mut bytes = [0; 8 * TEXT_WORDS];
    let length = bytes.iter_mut().zip(text_of(words)).map(|(place, byte)| *place = byte).count();
    crate::print::write_lossy(out, &bytes[..length])
}
