//! Time series: a row for each interval, with a point between the least value and the greatest.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::OutOfMemory;
use kprobes_vm::ir::{INTERVAL_WORDS, Series};

use super::{time, widened};

/// The number of columns in which points lie.
const COLUMNS: usize = 53;

/// An interval: its start in nanoseconds since the start of the machine, and its value, if it has one.
pub(super) type SeriesInterval = (u64, Option<i128>);

/// Returns the intervals of a series, from the first to the last that have values. A place may still hold an older
/// interval than the series shows; it is left out.
pub(super) fn intervals(series: &Series, words: &[u64]) -> Result<Vec<SeriesInterval>, OutOfMemory> {
    let places = 0..words.len() / INTERVAL_WORDS;
    let mut known = fallible::collect(places.filter_map(|place| series.interval(words, place)))?;
    fallible::sort_by_key(&mut known, |&(number, _)| number);
    let Some(&(newest, _)) = known.last() else { return Ok(Vec::new()) };
    let mut shown = known.into_iter().filter(|(number, _)| newest - number < series.intervals.into()).peekable();
    let first = shown.peek().map_or(newest, |&(number, _)| number);
    fallible::collect((first..=newest).map(|number| {
        let found = shown.next_if(|&(other, _)| other == number);
        (number.saturating_mul(series.interval), found.map(|(_, found)| widened(found, series.signed)))
    }))
}

/// Writes the date and the time at which an interval starts, to the nanosecond.
pub(super) fn write_date(start: u64, out: &mut dyn Write) -> fmt::Result {
    time::write("%F %H:%M:%S", start, out)?;
    write!(out, ".{:09}", start % 1_000_000_000)
}

/// A way to write the time of day at which an interval starts.
struct Clock {
    /// The heading.
    name: &'static str,
    /// The number of digits of the fraction of a second.
    digits: usize,
}

impl Clock {
    /// Returns the clock with the number of digits that the length of the intervals needs.
    fn of(series: &Series) -> Self {
        let (name, digits) = match series.interval {
            length if length.is_multiple_of(1_000_000_000) => ("hh:mm:ss", 0),
            length if length.is_multiple_of(1_000_000) => ("hh:mm:ss.ms", 3),
            length if length.is_multiple_of(1000) => ("hh:mm:ss.us", 6),
            _ => ("hh:mm:ss.ns", 9),
        };
        Self { name, digits }
    }

    /// Returns the number of characters of a time.
    fn width(&self) -> usize {
        if self.digits == 0 { "hh:mm:ss".len() } else { "hh:mm:ss.".len() + self.digits }
    }

    fn write(&self, start: u64, out: &mut dyn Write) -> fmt::Result {
        time::write("%H:%M:%S", start, out)?;
        let fraction = fallible::format(format_args!(".{:09}", start % 1_000_000_000))?;
        out.write_str(&fraction[..self.width() - "hh:mm:ss".len()])
    }
}

/// Writes a series as text. Values are divided by `divisor`.
pub(super) fn write(series: &Series, words: &[u64], divisor: u64, out: &mut dyn Write) -> fmt::Result {
    let mut intervals = intervals(series, words)?;
    intervals.iter_mut().for_each(|(_, value)| *value = value.map(|value| value / i128::from(divisor.max(1))));
    let values = || intervals.iter().filter_map(|(_, value)| *value);
    let (Some(mut least), Some(mut most)) = (values().min(), values().max()) else {
        return out.write_str("<no data>\n");
    };
    if least == most {
        let bounds: [i128; 2] = if series.signed { [i64::MIN.into(), i64::MAX.into()] } else { [0, u64::MAX.into()] };
        (least, most) = ((least - 1).max(bounds[0]), (most + 1).min(bounds[1]));
    }
    let column = |value: i128| ((value - least) * (COLUMNS as i128 - 1) / (most - least).max(1)) as usize;
    let clock = Clock::of(series);
    let (name, width) = (clock.name, clock.width());
    let bounds = fallible::format(format_args!("{least:<21}{most:>32}"))?;
    writeln!(out, "{:width$} {bounds}", "")?;
    writeln!(out, "{name:<width$} |{:_<1$}|", "", COLUMNS - 2)?;
    for &(start, value) in &intervals {
        clock.write(start, out)?;
        let mut line = [b' '; COLUMNS];
        (line[0], line[COLUMNS - 1]) = (b'|', b'|');
        if least < 0 && most > 0 {
            line[column(0)] = b'.';
        }
        if let Some(value) = value {
            line[column(value)] = b'*';
        }
        let line = core::str::from_utf8(&line).unwrap_or_default();
        match value {
            Some(value) => writeln!(out, " {line} {value}")?,
            None => writeln!(out, " {line} -")?,
        }
    }
    writeln!(out, "{:width$} v{:_<2$}v", "", "", COLUMNS - 2)?;
    writeln!(out, "{:width$} {bounds}", "")
}
